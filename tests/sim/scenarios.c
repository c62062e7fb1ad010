/* The table of scenarios. */
#include "scenario.h"

extern const struct scenario scenario_packets;
extern const struct scenario scenario_determinism;
extern const struct scenario scenario_coverage;
extern const struct scenario scenario_adapters;
extern const struct scenario scenario_adapters_again;
extern const struct scenario scenario_adapters_coverage;

const struct scenario *const scenarios[] = {
        &scenario_packets,
        &scenario_determinism,
        &scenario_coverage,
        &scenario_adapters,
        &scenario_adapters_again,
        &scenario_adapters_coverage,
        NULL,
};
