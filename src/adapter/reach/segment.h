/* Memory that peers can map. Where registered memory lies in a shared mapping of a memory file,
 * its owner tells its peers which descriptor names that file; a peer opens /proc/PID/fd/N, maps
 * the file and from then on copies without a system call. Everything else goes through the kernel
 * (process.c).
 *
 * struct segment_table is part of the tables that peers map read-only:
 *
 *   0    version (u64)     even; odd while the owner changes the table; each change leaves it
 *        larger
 *   8    slots[64]         56 bytes each: struct segment, word by word
 *
 * A segment is there as long as a registered region lies in it. It is taken out after the last
 * region's entry says no and guards have been left (tpt.h), and before that address can be
 * registered anew: whoever finds an entry valid and then reads the version finds no segment of
 * memory that was there before. */
#ifndef ADAPTER_SEGMENT_H
#define ADAPTER_SEGMENT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/span.h"

#define SEGMENT_MAX       64u          /* per process; the rest is reached through the kernel */
#define SEGMENT_MAX_BYTES (1ull << 40) /* of one */
#define SEGMENT_WORDS     7u

struct segment {
	uint64_t addr; /* in the owner's address space */
	uint64_t length;
	uint64_t offset; /* of the first byte in the file */
	/* Which file: a program that closes descriptors it does not know may have put another one
	 * there. */
	uint64_t dev;
	uint64_t inode;
	uint64_t generation; /* never given twice; 0: no segment */
	int32_t fd;          /* in the owner */
	uint32_t writable;
};
_Static_assert(sizeof(struct segment) == 8 * SEGMENT_WORDS, "see the drawing");

struct segment_slot {
	_Atomic uint64_t words[SEGMENT_WORDS];
};

struct segment_table {
	_Alignas(64) _Atomic uint64_t version;
	struct segment_slot slots[SEGMENT_MAX];
};

/* --- file.c: what is behind an address --- */

/* The memory file of which the @length bytes at @addr, mapped and touched, are a shared mapping:
 * the whole mapping, and a descriptor that is the caller's. False: it is other memory, or there is
 * no way to name the file. @pagemap is file_pagemap()'s: for other memory this costs one short
 * read. */
bool file_behind(int pagemap, uint64_t addr, uint64_t length, struct segment *found);
/* The shared mapping of a file around the range, as one although advice or rights may have cut it
 * into several. False: there is none. *path is its file's as the kernel names it, to be freed. */
bool file_mapping(uint64_t addr, uint64_t length, struct segment *found, char **path);
/* The same by reading /proc/self/maps, for kernels before 6.11, which cannot be asked for one
 * mapping. */
bool file_listed_mapping(uint64_t addr, uint64_t length, struct segment *found, char **path);
extern pthread_mutex_t descriptors_lock; /* of what file_behind() remembers of descriptors */
/* This process's page map, a descriptor or -1. */
int file_pagemap(void);
/* Is @fd a file that lives in memory, and which? Its pages come without waiting for anything but
 * memory. */
bool file_in_memory(int fd, uint64_t *dev, uint64_t *inode);
/* A file of hdl_mem_alloc() (mem.c). As file_behind(). */
bool mem_behind(uint64_t addr, uint64_t length, struct segment *found);
extern pthread_mutex_t mem_lock; /* of the list of such memory; the last to be taken */

/* --- segment.c: the owner. With the drive lock. --- */

/* A region's part in a segment. */
struct segment_ref {
	uint32_t index;
	uint64_t birth; /* 0: none */
};

struct segment_own {
	struct segment segment;
	uint64_t birth;   /* which segment this is; the generation changes when it grows */
	uint32_t regions; /* that lie in it */
};

struct segments {
	struct segment_table *table;
	int pagemap; /* of file_pagemap(); -1: no segments */
	uint64_t last_generation;
	struct segment_own own[SEGMENT_MAX];
};

/* Is it worth knowing what is behind memory that is about to be registered? Not where there is no
 * room for one more segment, and none that the memory could be part of, or make out of date. */
bool segment_wanted(const struct segments *segments, uint64_t addr, uint64_t length);
/* Memory at @addr is about to be registered. @found is what file_behind() said, NULL where it said
 * no; its descriptor is taken over. A segment that claims the addresses for another file is out of
 * date and taken out. */
struct segment_ref segment_take(struct segments *segments, uint64_t addr, uint64_t length,
                                const struct segment *found);
/* One more region of the same memory. */
struct segment_ref segment_share(struct segments *segments, struct segment_ref ref);
/* The region's entry said no and every guard has been left. */
void segment_give(struct segments *segments, struct segment_ref ref);
/* Take out every segment with a byte of the range: the memory is no longer what it was. */
void segment_forget(struct segments *segments, uint64_t addr, uint64_t length);
void segment_begin(struct segments *segments, struct segment_table *table, bool with_peers);
void segment_end(struct segments *segments);
/* In a child of fork(), whose parent goes on with them: close what it inherited. */
void segment_close_inherited(struct segments *segments);

/* --- reach.c: the peer. With the drive lock. --- */

/* What is mapped of one peer's memory. */
#define REACH_MAX_MAPPED 16u /* a peer; the least recently used goes */
#define REACH_READ_TRIES 64u /* then the owner is taken for broken, and the kernel is asked */

struct reached {
	struct segment segment; /* a judged copy; generation 0: none */
	unsigned char *base;    /* NULL: not mapped */
	uint64_t used;
	bool failed; /* could not be mapped */
};

struct reach {
	const struct segment_table *table; /* the peer's */
	pid_t pid;
	int pidfd;  /* of the process; -1: none */
	pid_t task; /* that the kernel is asked for: it counts and locks there, so better a thread
	               that sleeps than the one that runs */
	uint64_t checked_ns; /* when both numbers were last seen to be those of the process */
	bool kernel;         /* process_vm_readv() and process_vm_writev() reach the rest */
	uint64_t version;    /* that the copies are of */
	uint64_t clock;
	uint32_t count; /* behind the last that is there: most peers have none */
	uint32_t last;  /* used */
	uint32_t mapped;
	struct reached at[SEGMENT_MAX];
};

/* How long a number is believed to be that of the process, after that was looked up. Numbers are
 * given anew when all others have been: that takes longer. */
#define REACH_BELIEF_NS 1000000u

/* NULL: no memory. @pidfd stays the caller's. */
struct reach *reach_make(pid_t pid, int pidfd, const struct segment_table *table, bool kernel);
/* Ask the kernel for @thread from now on, if it is one of the process; it may end, or never have
 * been one. */
void reach_prefer(struct reach *reach, pid_t thread);
/* Are the numbers still those of the process? False: it has ended. May change reach->task. */
bool reach_check(struct reach *reach, uint64_t now_ns);
void reach_end(struct reach *reach);
/* Where @length bytes at @addr of the peer's memory lie in ours; NULL: not at all. Good until the
 * next call. */
void *reach_find(void *reach, uint64_t addr, uint64_t length);
/* The same for @count runs, at most REACH_MAX_MAPPED; they stay together. */
bool reach_find_all(struct reach *reach, const struct span *runs, size_t count, struct span *out);

#endif
