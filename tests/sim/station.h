/* One adapter at a network of the simulator: what the rigs that measure (crowd.c, ways.c) have at
 * each end. It is driven by the packets that arrive and at the times that it asks for, and sends no
 * more at once than its lines take. Where packets go, and what is said in them, is up to the rig.
 */
#ifndef SIM_STATION_H
#define SIM_STATION_H

#include <stdbool.h>
#include <stdint.h>

#include <heddle/heddle.h>

#include "cable/cable.h"
#include "port/simnet.h"

#define STATION_LINES 2u

struct station;

struct station_config {
	struct sim *sim;
	uint32_t index; /* among the rig's stations */
	uint64_t seed;
	struct hdl_gid gids[STATION_LINES]; /* the second may be all zero: there is one line */
	uint32_t max_qp, cq_entries;
	uint32_t max_mr; /* 0: as many as the usual rig needs */
	size_t memory_bytes;
	uint64_t bandwidth_bps; /* of each line */
	uint32_t room_bytes;    /* that it sends at once */
	bool cells;             /* the network carries cells */
	void *rig;
	/* A packet leaves; @context is the station. The rig sends it on, and says by station_busy()
	 * which line took it. */
	void (*out)(void *context, const struct path *path, const uint8_t *payload, size_t bytes);
	/* Completions may be there. */
	void (*collect)(struct station *station);
};

struct station {
	struct station_config config;
	struct hdl_adapter *adapter;
	struct hdl_pd *pd;
	struct hdl_cq *cq;
	struct hdl_mr *mr;
	uint8_t *memory; /* all zero at first */
	struct cable cable;
	uint64_t wake_ns;                /* when it is to be driven next */
	uint64_t line_ns[STATION_LINES]; /* until when a line is busy with what was sent */
};

/* False: there was no memory. station_close() is due in any case. */
bool station_open(struct station *station, const struct station_config *config);
/* Packets that arrive at @host of the network are for @station. */
void station_attach(struct station *station, uint32_t host);
void station_busy(struct station *station, uint32_t line, size_t bytes);
/* Let it do what there is to do now, and have it called again when it wants to be. */
void station_drive(struct station *station);
/* A queue pair for @depth requests each way; NULL: there was no memory. */
struct hdl_qp *station_qp(struct station *station, uint32_t depth);
/* From RESET to RTS with @attr, which says everything but the states. @on_ready, @on_send:
 * attributes besides the usual ones. */
bool station_connect(struct hdl_qp *qp, struct hdl_qp_attr attr, uint32_t on_ready,
                     uint32_t on_send);
/* After its queue pairs are gone. */
void station_close(struct station *station);

#endif
