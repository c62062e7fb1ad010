/* Memory that peers can map. If registered memory lies in a shared mapping of a memory file, its
 * owner tells its peers which descriptor refers to that file. A peer opens /proc/PID/fd/N, maps the
 * file, and from then on copies without a system call. Access to all other memory goes through the
 * kernel (process.c).
 *
 * struct segment_table is part of the tables that peers map read-only:
 *
 *   0    version (u64)     even; odd while the owner changes the table; each change leaves it
 *        larger
 *   8    slots[64]         56 bytes each: struct segment, word by word
 *
 * A segment exists as long as a registered region lies in it. It is removed after the entry of the
 * last region is invalid and all guards have been left (tpt.h), and before its addresses can be
 * registered again. So a reader that finds a valid entry and then reads the version never finds a
 * segment of memory that was there before. */
#ifndef ADAPTER_SEGMENT_H
#define ADAPTER_SEGMENT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/span.h"

#define SEGMENT_MAX       64u /* per process; other memory is accessed through the kernel */
#define SEGMENT_MAX_BYTES (1ull << 40) /* of one */
#define SEGMENT_WORDS     7u

struct segment {
	uint64_t addr; /* in the owner's address space */
	uint64_t length;
	uint64_t offset; /* of the first byte in the file */
	/* Identifies the file: a program that closes unknown descriptors may have reused the
	 * number. */
	uint64_t dev;
	uint64_t inode;
	uint64_t generation; /* never reused; 0: no segment */
	int32_t fd;          /* in the owner */
	uint32_t writable : 1;
	uint32_t aperture : 31; /* SEGMENT_APERTURE() of one whose memory it is; 0: of none */
};
/* An in-index as it is in a segment: of a connected aperture ... */
#define SEGMENT_APERTURE(index) (((index)&0x1fffffffu) + 1u)
/* ... and of one that everybody may access who knows the nonce, of which a segment has a digest: a
 * stale one finds nothing. */
static inline uint32_t segment_open_aperture(uint32_t index, uint64_t nonce)
{
	uint64_t mix = nonce ^ (uint64_t)index << 32 ^ index;
	mix = (mix ^ mix >> 30) * 0xbf58476d1ce4e5b9ull; /* the finalizer of SplitMix64 */
	mix = (mix ^ mix >> 27) * 0x94d049bb133111ebull;
	return 0x40000000u | (uint32_t)(mix >> 34);
}
_Static_assert(sizeof(struct segment) == 8 * SEGMENT_WORDS, "see the drawing");

struct segment_slot {
	_Atomic uint64_t words[SEGMENT_WORDS];
};

struct segment_table {
	_Alignas(64) _Atomic uint64_t version;
	struct segment_slot slots[SEGMENT_MAX];
};

/* --- file.c: the file behind an address --- */

/* Find the memory file of which the @length bytes at @addr, mapped and touched, are a shared
 * mapping: the whole mapping, and a descriptor that the caller owns. False: it is other memory, or
 * there is no way to name the file. @pagemap comes from file_pagemap(); for other memory the call
 * costs one short read. */
bool file_behind(int pagemap, uint64_t addr, uint64_t length, struct segment *found);
/* The shared file mapping around the range, as one mapping even if advice or rights have split it.
 * False: there is none. *path is the path of the file in the kernel's notation; the caller frees
 * it. */
bool file_mapping(uint64_t addr, uint64_t length, struct segment *found, char **path);
/* The same by reading /proc/self/maps, for kernels before 6.11, which have no query for one
 * mapping. */
bool file_listed_mapping(uint64_t addr, uint64_t length, struct segment *found, char **path);
extern pthread_mutex_t descriptors_lock; /* protects the descriptor cache of file_behind() */
/* A descriptor of the page map of this process, or -1. */
int file_pagemap(void);
/* Is @fd a file that lives in memory, and which one? Access to its pages waits for nothing but
 * memory. */
bool file_in_memory(int fd, uint64_t *dev, uint64_t *inode);
/* Like file_behind(), for files of hdl_mem_alloc() (mem.c). */
bool mem_behind(uint64_t addr, uint64_t length, struct segment *found);
/* Give the memory of hdl_mem_alloc() at @memory fresh pages with the same content: whoever maps the
 * old ones shares nothing with it any more. No thread may store to it meanwhile, and no segment may
 * name it. Returns 0; -HDL_EINVAL it is not such memory; -HDL_ENOMEM, and nothing has changed. */
int mem_renew(void *memory);
extern pthread_mutex_t mem_lock; /* protects the list of such memory; always taken last */

/* --- segment.c: the owner. With the drive lock. --- */

/* A region's reference to a segment. */
struct segment_ref {
	uint32_t index;
	uint64_t birth; /* 0: none */
};

struct segment_own {
	struct segment segment;
	uint64_t birth;   /* identifies the segment; the generation changes when it grows */
	uint32_t regions; /* number of regions in it */
	bool watched;     /* by this adapter */
	uint32_t live;    /* its place for segment_lives() */
};

struct segments {
	struct segment_table *table;
	int pagemap; /* of file_pagemap(); -1: no segments */
	int watch;   /* of segment_watch(); -1: nobody tells when the program unmaps memory */
	uint64_t last_generation;
	struct segment_own own[SEGMENT_MAX];
};

/* Is it worth finding out what is behind memory that is about to be registered? Not if there is no
 * room for another segment and no segment overlaps the memory. */
bool segment_wanted(const struct segments *segments, uint64_t addr, uint64_t length);
/* Memory at @addr is about to be registered. @found is the result of file_behind(), NULL if that
 * found nothing; its descriptor is taken over. A segment that claims the addresses for another file
 * is out of date and is removed. */
struct segment_ref segment_take(struct segments *segments, uint64_t addr, uint64_t length,
                                const struct segment *found);
/* Add another region of the same memory. */
struct segment_ref segment_share(struct segments *segments, struct segment_ref ref);
/* Drop a reference: the region's entry is invalid and every guard has been left. */
void segment_give(struct segments *segments, struct segment_ref ref);
/* Remove every segment that overlaps the range: the mapping has changed. */
void segment_forget(struct segments *segments, uint64_t addr, uint64_t length);
/* May a segment of any adapter of this process overlap the range? Without any lock. */
bool segment_lives(uint64_t addr, uint64_t length);
/* Does a segment overlap the range? Without any lock: it may be about to change. */
bool segment_names(const struct segments *segments, uint64_t addr, uint64_t length);
/* A descriptor that is readable when the program has unmapped memory of a segment, or put something
 * else in its place; what unmaps waits until it has been read. -1: the kernel does not tell
 * (userfaultfd(2) with UFFD_USER_MODE_ONLY, events, and write protection of shared memory: Linux
 * 5.19). Segments that are made from then on are watched. */
int segment_watch(struct segments *segments);
/* There are no segments any more. */
void segment_unwatch(struct segments *segments);
/* Read what was unmapped. False: nothing more. Without any lock. */
bool segment_hear(int watch, struct span *range);
void segment_begin(struct segments *segments, struct segment_table *table, bool with_peers);
void segment_end(struct segments *segments);
/* In a child of fork(): close what it inherited. The parent keeps using the segments. */
void segment_close_inherited(struct segments *segments);

/* --- reach.c: the peer. With the drive lock. --- */

/* The mapped parts of one peer's memory. */
#define REACH_MAX_MAPPED 16u /* per peer; the least recently used is evicted */
#define REACH_READ_TRIES 64u /* then the owner counts as broken, and copies use the kernel */

struct reached {
	struct segment segment; /* a checked copy; generation 0: none */
	unsigned char *base;    /* NULL: not mapped */
	uint64_t used;
	bool failed; /* could not be mapped */
};

struct reach {
	const struct segment_table *table; /* of the peer */
	pid_t pid;
	int pidfd;  /* of the process; -1: none */
	pid_t task; /* the thread to name in system calls: the kernel counts and locks there, so a
	               sleeping thread is better than a running one */
	uint64_t checked_ns; /* when both numbers were last verified to belong to the process */
	bool kernel;         /* process_vm_readv() and process_vm_writev() work for the rest */
	uint64_t version;    /* of the copied table */
	uint64_t clock;
	uint32_t count; /* one past the last segment in use: most peers have none */
	uint32_t last;  /* the segment used last */
	uint32_t mapped;
	struct reached at[SEGMENT_MAX];
};

/* How long a process number is trusted after it was verified, by clock_tick_ns(). The kernel reuses
 * a number only after all others: that takes longer, even with the 10 ms of a slow tick. */
#define REACH_BELIEF_NS 1000000u

/* NULL: no memory. The caller keeps @pidfd. */
struct reach *reach_make(pid_t pid, int pidfd, const struct segment_table *table, bool kernel);
/* Name @thread in system calls from now on, if it belongs to the process. It may have ended, or may
 * never have belonged to it. */
void reach_prefer(struct reach *reach, pid_t thread);
/* Do the numbers still belong to the process? False: it has ended. May change reach->task. */
bool reach_check(struct reach *reach, uint64_t now_ns);
void reach_end(struct reach *reach);
/* Where @length bytes at @addr of the peer's memory are mapped here; NULL: not mapped. Valid until
 * the next call. */
void *reach_find(void *reach, uint64_t addr, uint64_t length);
/* A descriptor of the sealed file behind @length bytes at @addr of the peer's memory, and where
 * they begin in it; -1: there is none, or its owner could change its size. The caller closes it.
 * */
int reach_open(struct reach *reach, uint64_t addr, uint64_t length, uint64_t *offset);
/* The same for the memory of an aperture, all of it: @length bytes from the beginning of the
 * file. */
int reach_open_aperture(struct reach *reach, uint32_t aperture, uint64_t length);
/* As reach_find() for @count runs, at most REACH_MAX_MAPPED; all results are valid together. */
bool reach_find_all(struct reach *reach, const struct span *runs, size_t count, struct span *out);

#endif
