/* Circular queues over apertures: stores and events of the aperture carry them. */
#include <stdlib.h>
#include <string.h>

#include <heddle/aperture.h>

#include "adapter/adapter.h"
#include "adapter/aperture/aperture.h"
#include "adapter/cqueue/cqueue.h"

static bool aperture_stores(void *context, uint64_t offset, const void *data, uint64_t bytes)
{
	return hdl_aperture_store(context, offset, data, bytes, 0) == 0;
}

static bool aperture_wakes(void *context)
{
	/* A connection that has ended wakes nobody: there is nothing to try again. */
	return hdl_aperture_event(context, 0, NULL, 0, 0) != -HDL_EAGAIN;
}

static bool aperture_lives(void *context)
{
	return hdl_aperture_state(context) == HDL_APERTURE_OPEN;
}

int hdl_cqueue_open(struct hdl_aperture *aperture, uint64_t bytes, struct hdl_eventq *events,
                    struct hdl_cqueue **out)
{
	uint64_t length = 0;
	if (aperture == NULL || events == NULL || events->magic != MAGIC_EVENTQ || out == NULL ||
	    hdl_cqueue_length(bytes) == 0)
		return -HDL_EINVAL;
	void *own = hdl_aperture_memory(aperture, &length);
	if (own == NULL || length < hdl_cqueue_length(bytes) || (uintptr_t)own % 64 != 0)
		return -HDL_EINVAL;
	if (!aperture_lives(aperture))
		return -HDL_EPERM;
	struct cqueue_carrier carrier = {.store = aperture_stores,
	                                 .wake = aperture_wakes,
	                                 .alive = aperture_lives,
	                                 .context = aperture};
	/* A peer on this machine: its memory itself. */
	return cqueue_open(events->adapter, own, bytes, aperture_share(aperture), &carrier, events,
	                   out);
}
