/* The world of 'cards': what its files share; see cards.c. */
#ifndef SIM_CARDS_H
#define SIM_CARDS_H

#include "scenario.h"

#include <heddle/push.h>

#include "base/prng.h"
#include "station.h"
#include "ulp/internal.h"

#define HOSTS    3u
#define UNITS    2u
#define STATIONS (HOSTS + UNITS)
#define LEAST    24u
#define LONGEST  20000u
#define AGAIN_NS 5000u
#define WAKES    32u

struct cards_world;

/* One end of the connection of host @host to unit @unit. */
struct cards_end {
	struct cards_world *world;
	struct hdl_push *push; /* NULL: it is dead */
	uint32_t host, unit;
	enum split_role role;
	bool begun;
	uint64_t begin_ns;   /* when its connection is made */
	uint64_t refuses_ns; /* until when its user takes no frames */
	const uint8_t *held; /* the frame that it refused last, */
	uint32_t held_bytes; /* and what it was */
	uint8_t copy[LONGEST];
};

/* Frames from one host to another through a unit. */
struct cards_flow {
	uint32_t sent, awaited;
	uint32_t excused; /* only frames below may be missing */
	uint64_t blocked_ns;
};

struct cards_link {
	struct hdl_push_terms terms;
	struct cards_end ends[2]; /* SPLIT_HOST, SPLIT_UNIT */
	bool lossy;
	uint64_t again_ns; /* when it is connected again; 0: it is not dead */
	uint32_t epoch;
};

struct cards_world {
	struct scenario_run *run;
	struct sim *sim;
	struct prng prng;
	uint32_t hosts, units;
	bool cells, loses, settling, deadly;
	uint16_t mtu;
	struct station stations[STATIONS];
	struct hdl_push_port ports[STATIONS];
	uint64_t wake_ns[STATIONS][WAKES]; /* wake-ups that are pending; 0: none */
	struct cards_link links[HOSTS][UNITS];
	struct cards_flow flows[UNITS][HOSTS][HOSTS];
	uint64_t hash; /* of what arrived when: packets contain addresses, which differ */
	uint64_t arrived, dropped, deaths, broken, refusals;
};

static inline uint64_t cards_now(const struct cards_world *w)
{
	return sim_now_ns(w->sim);
}

static inline uint32_t cards_draw(struct cards_world *w, uint64_t bound)
{
	return (uint32_t)prng_below(&w->prng, bound);
}

struct station *cards_station(struct cards_end *end);
/* Drive the station of @end at @at_ns, or before. */
void cards_wake_at(struct cards_end *end, uint64_t at_ns);

/* --- cards_check.c: frames --- */

extern const struct hdl_push_ops cards_ops;
/* Put frame @number of a flow into @frame. */
void cards_fill(uint8_t *frame, uint32_t bytes, uint32_t unit, uint32_t from, uint32_t to,
                uint32_t number);
/* What the user of an end is reading must stay as it is. */
void cards_look(struct cards_end *end);
/* Frames of a flow below @below may be missing. */
void cards_excuse(struct cards_flow *flow, uint32_t below);

#endif
