/* Move bytes to and from another process with one copy: our own if the memory is mapped here as
 * well (segment.h), else the kernel's. */
#include <errno.h>
#include <sys/uio.h>

#include "adapter/adapter.h"

static void to_iovec(struct iovec *out, const struct span *runs, size_t count)
{
	for (size_t i = 0; i < count; i++)
		out[i] = (struct iovec){(void *)(uintptr_t)runs[i].addr, runs[i].length};
}

/* Which side is unmapped? The kernel reports EFAULT for both, so check our own side. */
static bool own_is_there(const struct span *runs, size_t count, bool write)
{
	for (size_t i = 0; i < count; i++)
		if (fault_probe(runs[i].addr, runs[i].length, write) != 0)
			return false;
	return true;
}

/* The kernel identifies processes by number, and a number may be reused by the next call. */
static ssize_t ask_kernel(struct reach *reach, enum move_side side, const struct iovec *to,
                          size_t to_count, const struct iovec *from, size_t from_count)
{
	if (!reach_check(reach, clock_tick_ns())) {
		errno = ESRCH;
		return -1;
	}
	return side == MOVE_TO_PEER
	               ? process_vm_writev(reach->task, from, from_count, to, to_count, 0)
	               : process_vm_readv(reach->task, to, to_count, from, from_count, 0);
}

static enum move_result copy_by_kernel(struct reach *reach, enum move_side side,
                                       const struct span *to, size_t to_count,
                                       const struct span *from, size_t from_count)
{
	struct iovec to_iov[MOVE_MAX_SPANS], from_iov[MOVE_MAX_SPANS];
	uint64_t want = 0;
	for (size_t i = 0; i < to_count; i++)
		want += to[i].length;
	to_iovec(to_iov, to, to_count);
	to_iovec(from_iov, from, from_count);
	ssize_t done = ask_kernel(reach, side, to_iov, to_count, from_iov, from_count);
	if (done < 0 && errno == ESRCH && reach->task != reach->pid) {
		reach->task = reach->pid; /* perhaps only that thread has ended */
		done = ask_kernel(reach, side, to_iov, to_count, from_iov, from_count);
	}
	if (done >= 0 && (uint64_t)done == want)
		return MOVE_OK;
	/* A short copy, EFAULT, or the process has ended (ESRCH): the far side failed, unless our
	 * side did. */
	if (side == MOVE_TO_PEER)
		return own_is_there(from, from_count, false) ? MOVE_TARGET_GONE : MOVE_SOURCE_GONE;
	return own_is_there(to, to_count, true) ? MOVE_SOURCE_GONE : MOVE_TARGET_GONE;
}

/* copy_process() for the simplest case. */
static bool copy_peer(void *context, enum move_side side, uint64_t own, uint64_t addr, size_t bytes)
{
	struct reach *reach = context;
	void *here = reach_find(reach, addr, bytes);
	if (here != NULL)
		return fault_copy_peer(NULL, side, own, (uint64_t)(uintptr_t)here, bytes);
	if (!reach->kernel)
		return false;
	const struct iovec ours = {(void *)(uintptr_t)own, bytes};
	const struct iovec theirs = {(void *)(uintptr_t)addr, bytes};
	bool write = side == MOVE_TO_PEER;
	return ask_kernel(reach, side, write ? &theirs : &ours, 1, write ? &ours : &theirs, 1) ==
	       (ssize_t)bytes;
}

_Static_assert(MOVE_MAX_SPANS <= REACH_MAX_MAPPED, "the runs of one copy are mapped together");

static enum move_result copy_process(void *context, enum move_side side, const struct span *to,
                                     size_t to_count, const struct span *from, size_t from_count)
{
	struct reach *reach = context;
	struct span here[MOVE_MAX_SPANS];
	const struct copy_ops own = fault_own_memory().ops;
	if (side == MOVE_BOTH_OWN)
		return own.copy(NULL, side, to, to_count, from, from_count);
	if (side == MOVE_TO_PEER && reach_find_all(reach, to, to_count, here))
		return own.copy(NULL, side, here, to_count, from, from_count);
	if (side == MOVE_FROM_PEER && reach_find_all(reach, from, from_count, here))
		return own.copy(NULL, side, to, to_count, here, from_count);
	return reach->kernel ? copy_by_kernel(reach, side, to, to_count, from, from_count)
	                     : MOVE_ELSEWHERE;
}

static enum move_result atomic_process(void *context, enum move_side side, uint64_t addr, bool add,
                                       uint64_t compare_add, uint64_t swap, uint64_t *old)
{
	/* The kernel has no atomic operation on another process, so the target executes it. */
	if (side != MOVE_BOTH_OWN) {
		void *here = reach_find(context, addr, sizeof(uint64_t));
		if (here == NULL)
			return MOVE_ELSEWHERE;
		addr = (uint64_t)(uintptr_t)here;
	}
	return fault_own_memory().ops.atomic(NULL, side, addr, add, compare_add, swap, old);
}

struct peer_memory process_memory(struct reach *reach, bool by_target)
{
	return (struct peer_memory){
	        .ops = {.copy = copy_process, .atomic = atomic_process, .context = reach},
	        .copy_short = by_target ? NULL : copy_peer};
}
