/* Circular queues over apertures: stores and events of the aperture carry them. */
#include <stdlib.h>
#include <string.h>

#include <heddle/aperture.h>

#include "adapter/adapter.h"
#include "adapter/aperture/aperture.h"
#include "adapter/cqueue/cqueue.h"

static bool aperture_stores(void *context, uint64_t offset, const void *data, uint64_t bytes)
{
	struct hdl_aperture *aperture = context;
	int result = hdl_aperture_store(aperture, offset, data, bytes, 0);
	if (result == -HDL_EAGAIN) { /* what the peer waits for is sent when there is room again */
		adapter_lock(aperture->adapter);
		aperture->placed_again = aperture->placed != NULL;
		adapter_unlock(aperture->adapter);
	}
	return result == 0;
}

static bool aperture_stores_locked(void *context, uint64_t offset, const void *data, uint64_t bytes)
{
	return aperture_put(context, offset, data, bytes) == 0;
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

/* Packets of the peer were placed; with the drive lock. */
static bool aperture_queue_placed(void *context)
{
	struct hdl_cqueue *queue = context;
	const struct hdl_aperture *aperture = queue->carrier.context;
	return cqueue_placed(queue, queue->events->port, aperture->conn.own.index);
}

static void aperture_queue_ends(void *context)
{
	struct hdl_aperture *aperture = context;
	adapter_lock(aperture->adapter);
	aperture->placed = NULL;
	aperture->placed_context = NULL;
	aperture->placed_again = false;
	adapter_unlock(aperture->adapter);
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
	                                 .store_locked = aperture_stores_locked,
	                                 .wake = aperture_wakes,
	                                 .alive = aperture_lives,
	                                 .end = aperture_queue_ends,
	                                 .context = aperture};
	struct hdl_adapter *adapter = aperture->adapter;
	adapter_lock(adapter);
	bool published = aperture->published;
	const struct ap_port *port = aperture->conn.port;
	bool other_port = port == NULL || port->number != events->port;
	adapter_unlock(adapter);
	/* A peer on this machine: its memory itself, if it can do the same with ours. An end that
	 * stores directly expects to be told who waits in the same way. */
	void *peer = published ? aperture_share(aperture) : NULL;
	carrier.silent = other_port || (published && peer == NULL);
	int result = cqueue_open(adapter, own, bytes, peer, &carrier, events, out);
	if (result != 0)
		return result;
	adapter_lock(adapter);
	aperture->placed = aperture_queue_placed;
	aperture->placed_context = *out;
	adapter_unlock(adapter);
	return 0;
}
