/* Captures: write packets to a pcapng file (draft-ietf-opsawg-pcapng), for tshark, Wireshark and
 * similar tools. A packet is a datagram that starts with its IP header (link type RAW), an Ethernet
 * frame, or an IBC packet, with a nanosecond timestamp and a comment.
 *
 * 	section header   one, by the process that created the file
 * 	interfaces       one per writer: its number is the number of those before it
 * 	reserve          a block for local use, which readers skip
 * 	statistics       one per writer, the last one first: packets, and how many were dropped
 * 	packets          blocks that name their writer's interface
 *
 * reordercap(1) and other tools that copy captures want every interface before the first packet,
 * but writers come and go. So the process that creates a file reserves PCAPNG_RESERVE_BYTES, from
 * which each writer takes its interface at the front and its statistics at the back. The statistics
 * are rewritten in their place and need no room on a full disk. Writers who find the reserve used
 * up, or none, append both at the end of the file. In a pipe, the statistics come at the end, and
 * whenever packets had to be dropped.
 *
 * Several processes may write to one file at the same time. It is opened for appending, and each
 * process writes whole blocks with one write(), so blocks never mix. If the disk is full, an
 * incomplete block is truncated again. Three byte-range locks protect the file: PCAPNG_LOCK_HEADER
 * while interfaces are counted and one is added, PCAPNG_LOCK_WRITE while blocks are added, and
 * PCAPNG_LOCK_USED (shared) as long as a writer has the file open, so that no process empties it. A
 * pipe has one writer and no locks.
 *
 * Packets wait in a buffer of fixed size until pcapng_flush(), or until it is full. Packets that
 * cannot be written then, because the pipe has no room or the disk is full, are dropped and
 * counted: a capture never makes its program wait for a reader. */
#ifndef PORT_PCAPNG_H
#define PORT_PCAPNG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PCAPNG_BUFFER_BYTES  (1u << 20)
#define PCAPNG_COMMENT_BYTES 128u /* longer ones are cut */
#define PCAPNG_NAME_BYTES    128u
#define PCAPNG_RESERVE_BYTES (32u << 10) /* for 200 writers or so */
#define PCAPNG_LOCK_HEADER   0
#define PCAPNG_LOCK_USED     1
#define PCAPNG_LOCK_WRITE    2

/* What a packet begins with: an Ethernet header, its IP header, or that of an IBC packet
 * (wire/ibc.h). */
enum pcapng_link { PCAPNG_ETHERNET = 1, PCAPNG_RAW = 101, PCAPNG_IBC = 147 /* USER0 */ };

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
	bool broken;           /* cannot be written any more: everything is dropped */
	bool warned;           /* of packets that are missing */
	uint32_t interface;    /* our number */
	int64_t statistics_at; /* in the file */
	size_t used;
	uint64_t taken, dropped;
	uint64_t told; /* of those dropped, in the last statistics */
	uint8_t *buffer;
};

/* Prepare the file @path for a new capture: empty it, unless a process is writing to it now, whose
 * capture then continues. Returns 0; -EEXIST: there is a file that is not a capture, which is left
 * unchanged; another -errno. */
int pcapng_prepare(const char *path);

/* Can a capture be started at @path, or appended to what is there? Changes nothing. Returns 0, or
 * as above. */
int pcapng_check(const char *path);

/* Start to append to @path. @name and @description are those of the interface. Returns 0, or as
 * above. */
int pcapng_open(struct pcapng *to, const char *path, enum pcapng_link link, const char *name,
                const char *description);
void pcapng_put(struct pcapng *to, const struct pcapng_packet *packet);
/* Write the buffered packets. @time_ns: the time of the statistics, if they are due. */
void pcapng_flush(struct pcapng *to, uint64_t time_ns);
/* Write the buffered packets and the statistics, and close. */
void pcapng_close(struct pcapng *to, uint64_t time_ns);
/* Close without writing: a child of fork() drops its copy. */
void pcapng_forget(struct pcapng *to);

#endif
