/* Checked lists: a gather or scatter list of a work request, or a peer's range, walked piece by
 * piece through the protection table that it belongs to; and the function that moves bytes from
 * list to list. */
#ifndef TRANSPORT_SG_H
#define TRANSPORT_SG_H

#include <stdint.h>

#include <heddle/types.h>

#include "memory/tpt.h"
#include "transport/copy.h"
#include "transport/engine.h"

struct sg {
	const struct tpt_view *table; /* NULL: the pieces are plain memory of this process */
	/* Of a peer's table: held while its memory is used; otherwise NULL. */
	struct tpt_guard *guard;
	const struct hdl_sge *pieces; /* owned by the caller */
	uint32_t count;
	uint32_t pd;
	uint32_t qpn;
	uint8_t access; /* enum hdl_access */
	uint8_t side;   /* enum tpt_side */
	bool windows_only;
	/* Refuse one-touch entries (HDL_DETAIL_TOUCHED): only their owner can mark them. */
	bool untouchable;
	/* The queue pair on whose behalf memory of @table is used, and its first word when the use
	 * was decided. If the word has changed since, the memory may have been given to somebody
	 * else and is not accessed. NULL: our own driver uses it. */
	const struct qp_public *watch;
	uint64_t watched;
	uint32_t index;  /* current piece */
	uint64_t offset; /* position within the piece */
};

/* Why a move stopped. */
struct sg_result {
	enum hdl_detail detail; /* HDL_DETAIL_NONE: everything was moved */
	/* The list that was written to refused, otherwise the one that was read. */
	bool at_target;
	bool changed;       /* the watched queue pair has changed; detail is meaningless */
	struct hdl_key key; /* of the refused piece */
};

/* Total length of @pieces. */
static inline uint64_t sg_length(const struct hdl_sge *pieces, uint32_t count)
{
	uint64_t total = 0; /* at most HDL_MAX_SGE x 4 GiB: does not wrap */
	for (uint32_t i = 0; i < count; i++)
		total += pieces[i].length;
	return total;
}

/* Move @length bytes from @from to @to and advance both. Checks every piece that it touches, inside
 * the guards of both lists, in chunks of ENGINE_CHUNK_BYTES. @copy reaches both. */
struct sg_result sg_move(const struct copy_ops *copy, enum move_side side, struct sg *to,
                         struct sg *from, uint64_t length);

/* The usual short message: copy @length (at most MOVE_SHORT) bytes from @plain to our own @pieces,
 * starting @skip bytes into them (@access: HDL_ACCESS_LOCAL_WRITE), or the other way
 * (HDL_ACCESS_LOCAL_READ). False: something is unusual or refused, and part of the data may have
 * been copied; sg_move() repeats it or tells what is wrong. */
bool sg_copy_short(const struct engine *engine, uint32_t pd, const struct hdl_sge *pieces,
                   uint32_t count, uint64_t skip, void *plain, uint32_t length, uint8_t access);

/* Where the bytes of @piece, part of our own work request, are, if the owner of @pd may use them
 * with @access and they are one run. False: something is unusual or refused. */
bool sg_own_run(const struct engine *engine, uint32_t pd, const struct hdl_sge *piece,
                uint8_t access, uint64_t *host);

/* The usual case: the current piece of @list holds all of @length in one run of our own memory.
 * False: something is unusual or refused. */
bool sg_one_run(const struct sg *list, uint64_t length, struct span *run);

/* Has the queue pair that @list watches changed since it was read? */
static inline bool sg_changed(const struct sg *list)
{
	return list->watch != NULL &&
	       atomic_load_explicit(&list->watch->words[0], memory_order_acquire) != list->watched;
}
/* Where the next bytes of @list are: up to @max runs for at most @want bytes from its position on,
 * which does not change; *covered is how many bytes they have. Fewer than @want: there are no more
 * runs, the list ends, or *detail says that the next piece is refused. For memory that is handed to
 * somebody who moves the bytes himself (stream.h); valid until the table may change. The caller is
 * inside the guard of a peer's list. */
size_t sg_runs(const struct sg *list, uint64_t want, struct span *out, size_t max,
               uint64_t *covered, enum hdl_detail *detail);
/* Copy the next @length bytes of @from, our own memory, to @out, advance, and continue *sum, their
 * CRC-32C, in the same pass where possible. */
struct sg_result sg_gather_sum(const struct engine *engine, struct sg *from, void *out,
                               uint32_t length, uint32_t *sum);
/* Advance by @bytes, within the list. */
void sg_skip(struct sg *list, uint64_t bytes);
/* The key of the piece with the next byte of @list; 0 behind the last. */
struct hdl_key sg_key(const struct sg *list);

/* May @piece of @list, which has a table, be used? The caller is inside the guard of a peer's list.
 */
enum hdl_detail sg_ask(const struct sg *list, const struct hdl_sge *piece, struct tpt_grant *grant);

/* Would every piece of @list be granted? Moves nothing. The caller is inside the guard of a peer's
 * list. */
struct sg_result sg_check(const struct sg *list);

/* The list of a queue pair's own work request. */
struct sg sg_own(const struct engine *engine, const struct qp *qp, const struct hdl_sge *pieces,
                 uint32_t count, uint8_t access);
/* Plain memory of this process as a list. The caller provides the storage of @piece. */
struct sg sg_plain(struct hdl_sge *piece, const void *memory, uint32_t length);

#endif
