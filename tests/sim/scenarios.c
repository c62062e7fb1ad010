/* The table of scenarios. */
#include "scenario.h"

extern const struct scenario scenario_packets;
extern const struct scenario scenario_determinism;
extern const struct scenario scenario_coverage;

const struct scenario *const scenarios[] = {
        &scenario_packets,
        &scenario_determinism,
        &scenario_coverage,
        NULL,
};
