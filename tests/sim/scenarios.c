/* The table of scenarios. */
#include "scenario.h"

extern const struct scenario scenario_packets;
extern const struct scenario scenario_determinism;
extern const struct scenario scenario_coverage;
extern const struct scenario scenario_adapters;
extern const struct scenario scenario_adapters_coverage;
extern const struct scenario scenario_wire;
extern const struct scenario scenario_wire_coverage;
extern const struct scenario scenario_datagrams;
extern const struct scenario scenario_incast;
extern const struct scenario scenario_migration;
extern const struct scenario scenario_striping;
extern const struct scenario scenario_striped;
extern const struct scenario scenario_streams;
extern const struct scenario scenario_streams_coverage;
extern const struct scenario scenario_messages;
extern const struct scenario scenario_messages_coverage;
extern const struct scenario scenario_switching;
extern const struct scenario scenario_classes;
extern const struct scenario scenario_cells;
extern const struct scenario scenario_cards;
extern const struct scenario scenario_apertures;
extern const struct scenario scenario_apertures_coverage;

/* clang-format off */ /* one per line */
const struct scenario *const scenarios[] = {
        &scenario_packets,
        &scenario_determinism,
        &scenario_coverage,
        &scenario_adapters,
        &scenario_adapters_coverage,
        &scenario_wire,
        &scenario_wire_coverage,
        &scenario_datagrams,
        &scenario_incast,
        &scenario_migration,
        &scenario_striping,
        &scenario_striped,
        &scenario_streams,
        &scenario_streams_coverage,
        &scenario_messages,
        &scenario_messages_coverage,
        &scenario_switching,
        &scenario_classes,
        &scenario_cells,
        &scenario_cards,
        &scenario_apertures,
        &scenario_apertures_coverage,
        NULL,
};
