#include "adapter/reach/rights.h"

#include <errno.h>
#include <sched.h>
#include <sys/mman.h>

#include "adapter/adapter.h"
#include "base/imports.h"

static void rights_taken(struct hdl_adapter *adapter, void *context)
{
	const struct span *range = context;
	if (!segment_names(&adapter->peers.segments, range->addr, range->length))
		return;
	adapter_lock(adapter);
	segment_forget(&adapter->peers.segments, range->addr, range->length);
	adapter_quiesce(adapter);
	adapter_unlock(adapter);
}

/* Afterwards no peer accesses what the owner may not. A call that fails may have changed some of
 * the pages. Calls that concern no segment take no lock: they may come from anywhere, such as
 * free() of an allocator that protects what it gets back. */
static int our_mprotect(void *addr, size_t length, int rights)
{
	int result = mprotect(addr, length, rights), error = errno;
	struct span range = {(uint64_t)(uintptr_t)addr, length};
	if (length > 0 && (rights & (PROT_READ | PROT_WRITE)) != (PROT_READ | PROT_WRITE) &&
	    segment_lives(range.addr, range.length))
		while (!fork_each(rights_taken, &range))
			sched_yield();
	errno = error;
	return result;
}

void rights_watch(void)
{
	static const struct import call = {"mprotect", (void (*)(void))our_mprotect};
	static struct imports imports = {.list = &call, .count = 1};
	imports_patch(&imports);
}
