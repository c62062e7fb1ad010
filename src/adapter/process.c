/* Moving bytes to and from another process: one copy, by the kernel. */
#include <errno.h>
#include <sys/uio.h>

#include "adapter/adapter.h"

/* The process id travels as the mover's context. */
static pid_t pid_of(void *context)
{
	return (pid_t)(intptr_t)context;
}

static void to_iovec(struct iovec *out, const struct span *runs, size_t count)
{
	for (size_t i = 0; i < count; i++)
		out[i] = (struct iovec){(void *)(uintptr_t)runs[i].addr, runs[i].length};
}

/* Which side has gone? The kernel says EFAULT for both: look at our own. */
static bool own_is_there(const struct span *runs, size_t count, bool write)
{
	for (size_t i = 0; i < count; i++)
		if (fault_probe(runs[i].addr, runs[i].length, write) != 0)
			return false;
	return true;
}

static enum move_result copy_process(void *context, enum move_side side, const struct span *to,
                                     size_t to_count, const struct span *from, size_t from_count)
{
	struct iovec to_iov[MOVE_MAX_SPANS], from_iov[MOVE_MAX_SPANS];
	if (side == MOVE_BOTH_OWN)
		return fault_mover(true).copy(NULL, side, to, to_count, from, from_count);
	uint64_t want = 0;
	for (size_t i = 0; i < to_count; i++)
		want += to[i].length;
	to_iovec(to_iov, to, to_count);
	to_iovec(from_iov, from, from_count);
	ssize_t done = side == MOVE_TO_PEER ? process_vm_writev(pid_of(context), from_iov,
	                                                        from_count, to_iov, to_count, 0)
	                                    : process_vm_readv(pid_of(context), to_iov, to_count,
	                                                       from_iov, from_count, 0);
	if (done >= 0 && (uint64_t)done == want)
		return MOVE_OK;
	/* Short, EFAULT, or the process has ended (ESRCH): the far side, unless it is ours. */
	if (side == MOVE_TO_PEER)
		return own_is_there(from, from_count, false) ? MOVE_TARGET_GONE : MOVE_SOURCE_GONE;
	return own_is_there(to, to_count, true) ? MOVE_SOURCE_GONE : MOVE_TARGET_GONE;
}

static enum move_result atomic_process(void *context, enum move_side side, uint64_t addr, bool add,
                                       uint64_t compare_add, uint64_t swap, uint64_t *old)
{
	(void)context;
	/* Never asked for on the peer: atomic_on_peer is false, the target does it itself. */
	return side == MOVE_BOTH_OWN
	               ? fault_mover(true).atomic(NULL, side, addr, add, compare_add, swap, old)
	               : MOVE_TARGET_GONE;
}

struct mover process_mover(pid_t pid, bool reaches_peer)
{
	return (struct mover){.copy = copy_process,
	                      .atomic = atomic_process,
	                      .context = (void *)(intptr_t)pid,
	                      .reaches_peer = reaches_peer,
	                      .atomic_on_peer = false};
}
