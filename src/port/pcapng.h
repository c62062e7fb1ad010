/* Captures: packets into a pcapng file (draft-ietf-opsawg-pcapng), for tshark, Wireshark and their
 * kin. A packet is a datagram from its IP header on (link type RAW), with nanoseconds and a
 * comment.
 *
 * 	section header   one, by whoever made the file
 * 	interface        one a writer: its number is how many there were before
 * 	packets          blocks that name their writer's interface
 * 	statistics       of the writer: packets, and how many had to be left out
 *
 * In a file the statistics have a place behind the interface and are written anew there, so that
 * they need no room when there is none; in a pipe they come at the end, and whenever packets had to
 * be left out.
 *
 * Several processes may write to one file at the same time: it is opened for appending, and what a
 * process has gathered goes there in whole blocks by one write(), so blocks never mix; where the
 * disk is full, the block that did not fit as a whole is cut off again. Three byte-range locks go
 * with it: PCAPNG_LOCK_HEADER while interfaces are counted and one is added, PCAPNG_LOCK_WRITE
 * while blocks are, PCAPNG_LOCK_USED (shared) as long as a writer has the file open, so that
 * nobody empties it. A pipe is written to as well; it has one writer, and no locks.
 *
 * Packets wait in a buffer of fixed size until pcapng_flush(), or until it is full. What cannot be
 * written then, because the pipe has no room or the disk is full, is left out and counted: a
 * capture never makes its program wait for a reader. */
#ifndef PORT_PCAPNG_H
#define PORT_PCAPNG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PCAPNG_BUFFER_BYTES  (1u << 20)
#define PCAPNG_COMMENT_BYTES 128u /* longer ones are cut */
#define PCAPNG_NAME_BYTES    128u
#define PCAPNG_LOCK_HEADER   0
#define PCAPNG_LOCK_USED     1
#define PCAPNG_LOCK_WRITE    2

enum pcapng_direction { PCAPNG_INBOUND = 1, PCAPNG_OUTBOUND = 2 };

struct pcapng_packet {
	uint64_t time_ns; /* since 1970 */
	const void *bytes;
	size_t captured; /* of these, */
	size_t length;   /* and of the packet: more, where its end is not known */
	enum pcapng_direction direction;
	const char *comment; /* or NULL */
};

struct pcapng {
	int fd;
	bool regular;          /* a file; else a pipe */
	bool broken;           /* it takes no more: everything is left out */
	bool warned;           /* of packets that are missing */
	uint32_t interface;    /* our number */
	int64_t statistics_at; /* in the file */
	size_t used;
	uint64_t taken, dropped;
	uint64_t told; /* of those dropped, in the last statistics */
	uint8_t *buffer;
};

/* Make the file @path for a new capture: empty, unless somebody is writing to it just now, whose
 * capture then goes on. 0; -EEXIST: there is a file that is no capture, which is left alone;
 * another -errno. */
int pcapng_prepare(const char *path);

/* Can a capture be begun at @path, or added to what is there? Nothing is taken out. 0, or as above.
 */
int pcapng_check(const char *path);

/* Begin to write to @path, behind what is there. @name and @description are those of the interface.
 * 0, or as above. */
int pcapng_open(struct pcapng *to, const char *path, const char *name, const char *description);
void pcapng_put(struct pcapng *to, const struct pcapng_packet *packet);
/* Write what waits. @time_ns: of statistics, if they are due. */
void pcapng_flush(struct pcapng *to, uint64_t time_ns);
/* Write what waits and the statistics, and let go. */
void pcapng_close(struct pcapng *to, uint64_t time_ns);
/* Let go and write nothing: a child's copy of what is its parent's. */
void pcapng_forget(struct pcapng *to);

#endif
