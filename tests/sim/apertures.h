/* A world of apertures: hosts that connect, store, signal, read, close and connect again, over a
 * network with every fault, while somebody replays what he has heard. */
#ifndef SIM_APERTURES_H
#define SIM_APERTURES_H

#include "base/prng.h"
#include "scenario.h"
#include "transport/aperture/ap.h"

#define APERTURES_HOSTS     4u
#define APERTURES_ENDS      6u /* of a host */
#define APERTURES_ROWS      16u
#define APERTURES_BITS      12u
#define APERTURES_SIZE      (1u << APERTURES_BITS)
#define APERTURES_LOGS      512u
#define APERTURES_PACKETS   20000u /* of all logs */
#define APERTURES_BYTES     (4u << 20)
#define APERTURES_PENDING   64u
#define APERTURES_REPLAYS   64u
#define APERTURES_MAX_FRAME 1500u
#define APERTURES_PORT      7u

/* A packet that was put, by its number. */
struct apertures_packet {
	uint8_t kind;
	uint32_t offset, bytes, at; /* of its bytes in world.bytes */
	uint32_t next;              /* of the same log, plus 1 */
};

/* Everything that was put for the entry of @host that had this nonce. */
struct apertures_log {
	uint64_t nonce;
	uint32_t host;
	uint32_t first; /* number of the first packet */
	uint32_t count;
	uint32_t head, tail; /* in world.packets, plus 1 */
	uint32_t applied;    /* the next one for the model, plus 1; 0: @head, or none yet */
	uint32_t applied_count;
};

struct apertures_end {
	struct ap_conn conn;
	struct ap_kept kept[HDL_APERTURE_KEPT];
	uint8_t *bytes;
	uint8_t memory[APERTURES_SIZE], model[APERTURES_SIZE];
	uint8_t (*possible)[32]; /* without numbers: by byte, the values that may be there */
	struct apertures_host *host;
	struct apertures_log *out; /* what we put; NULL: not connected */
	uint64_t in_nonce;         /* of the connection that the model is of; 0: none */
	uint64_t looked;           /* at how many writes of the node its bytes were looked at */
	/* A read that waits. */
	uint32_t token, read_offset, read_bytes, read_got;
	uint32_t read_after; /* packets put before it */
	uint8_t read_model[APERTURES_SIZE];
	uint64_t events_taken;
	uint64_t questions, answers; /* ALIVEs sent; ALIVEACKs reported */
};

struct apertures_host {
	struct apertures_world *world;
	uint32_t number;
	bool dead;
	struct ap_node node;
	struct ap_port port;
	struct tpt tpt;
	struct hdl_aperture_fixed rows[APERTURES_ROWS];
	struct hdl_aperture_user users[APERTURES_ROWS];
	struct ap_conn *conns[APERTURES_ROWS];
	uint64_t map[BITMAP_WORDS(APERTURES_ROWS)];
	struct apertures_end ends[APERTURES_ENDS];
	uint8_t out[APERTURES_MAX_FRAME];
	uint64_t wakes_ns;
	struct {
		uint32_t from, bytes;
		uint8_t frame[APERTURES_MAX_FRAME];
	} pending[APERTURES_PENDING];
	uint32_t pending_count;
};

struct apertures_world {
	struct scenario_run *run;
	struct sim *sim;
	struct prng prng;
	bool faults, healed;
	uint32_t host_count, full_permille, no_room_permille;
	struct apertures_host *hosts;
	struct apertures_log logs[APERTURES_LOGS];
	uint32_t log_count;
	struct apertures_packet packets[APERTURES_PACKETS];
	uint32_t packet_count;
	uint8_t *bytes;
	uint32_t byte_count;
	struct {
		uint32_t from, to, bytes;
		uint8_t frame[APERTURES_MAX_FRAME];
	} replays[APERTURES_REPLAYS];
	uint32_t replay_count;
	uint64_t opened, events, reads, replayed, forged, refused;
	uint64_t errors[CI_ELEMENT_COUNT]; /* ERROR packets, by who found it */
};

/* --- apertures_check.c --- */
/* @end is about to wait for a connection with its new nonce: its memory is zero. */
void apertures_check_begin(struct apertures_end *end);
/* @end is connected: what it puts is for the entry with this nonce. */
void apertures_check_opened(struct apertures_end *end);
/* @end has put packets; @data: all their bytes, for CI_DATA cut into @piece. */
void apertures_check_put(struct apertures_end *end, uint8_t kind, uint32_t offset,
                         const uint8_t *data, uint32_t bytes, uint32_t piece);
/* Responses are put by ap_take(): the log learns them afterwards. */
void apertures_check_learn(struct apertures_host *host);
/* @host sends the frame of @bytes in host->out: count what is in it; and a port gets an event of an
 * ALIVEACK to @end. An answer is to a question, whatever the network doubles and others replay. */
void apertures_check_sent(struct apertures_host *host, size_t bytes);
void apertures_check_answer(struct apertures_end *end);
/* Is the memory of every end of @host what it must be? */
void apertures_check_memory(struct apertures_host *host);
/* What the model of the peer's memory is after all that @end has put. */
void apertures_check_model(const struct apertures_end *end, uint8_t model[APERTURES_SIZE]);
/* The faults are over for long. */
void apertures_check_end(struct apertures_world *world);

#endif
