#include "adapter/eventq/oob.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "adapter/adapter.h"
#include "base/fd.h"
#include "base/memfile.h"
#include "port/bell.h"
#include "port/oob.h"

void oob_attach(struct hdl_adapter *adapter)
{
	struct agent_msg msg = {.kind = AGENT_OOB_ATTACH};
	adapter_lock(adapter);
	bool wanted = adapter->oob.block == NULL;
	adapter_unlock(adapter);
	if (wanted && adapter->agent.on_node)
		agent_tell(adapter, &msg); /* without an agent there is nobody to tell */
}

void oob_again(struct hdl_adapter *adapter)
{
	struct agent_msg msg = {.kind = AGENT_OOB_ATTACH};
	if (adapter->eventqs.by_port != NULL)
		agent_tell_locked(adapter, &msg);
}

/* With the drive lock, or when no other thread is left. */
static void oob_drop(struct hdl_adapter *adapter)
{
	if (adapter->oob.block == NULL)
		return;
	munmap(adapter->oob.block, oob_bytes());
	fd_close(adapter->oob.bell);
	adapter->oob.block = NULL;
}

void oob_take(struct hdl_adapter *adapter, int *fds)
{
	void *block = MAP_FAILED;
	int bell = bell_take(fds[1]);
	fds[1] = -1;
	if (memfile_is_sealed(fds[0], oob_bytes()))
		block = mmap(NULL, oob_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	if (block == MAP_FAILED || bell < 0) {
		if (block != MAP_FAILED)
			munmap(block, oob_bytes());
		if (bell >= 0)
			close(bell);
		return;
	}
	madvise(block, oob_bytes(), MADV_DONTFORK);
	adapter_lock(adapter);
	oob_drop(adapter); /* of a former agent */
	adapter->oob.block = block;
	adapter->oob.bell = bell;
	ring_tx_attach(&adapter->oob.lane, adapter->oob.block->lane, OOB_SLOTS);
	adapter_unlock(adapter);
}

_Static_assert(sizeof(struct hdl_port_event) == OOB_EVENT_BYTES &&
                       offsetof(struct hdl_port_event, type) == offsetof(struct oob_event, type) &&
                       offsetof(struct hdl_port_event, index) ==
                               offsetof(struct oob_event, index) &&
                       offsetof(struct hdl_port_event, value) == offsetof(struct oob_event, value),
               "the agent reads events out of queues");

static void oob_send(struct hdl_adapter *adapter, const struct oob_message *message)
{
	struct oob *oob = &adapter->oob;
	if (oob->block == NULL || (message->bits & atomic_load_explicit(&oob->block->criteria,
	                                                                memory_order_relaxed)) == 0)
		return;
	void *room = ring_reserve(&oob->lane, sizeof(*message));
	if (room == NULL) {
		atomic_fetch_add_explicit(&oob->block->lost, 1, memory_order_relaxed);
		return;
	}
	memcpy(room, message, sizeof(*message));
	ring_publish(&oob->lane);
	oob->messages++;
	if ((message->bits & atomic_load_explicit(&oob->block->wakes, memory_order_relaxed)) != 0 &&
	    ring_take_armed(&oob->lane)) {
		oob->wakes++;
		bell_ring(oob->bell);
	}
}

void oob_note(struct hdl_adapter *adapter, uint16_t port, const struct hdl_eventq *queue,
              const struct hdl_port_event *event, uint32_t bits)
{
	uint16_t type = event->type;
	struct oob_message message = {.bits = bits | (type < 16 ? 1u << type : 0) |
	                                      (type == HDL_PORT_ERROR ? (uint32_t)OOB_ERRORS : 0),
	                              .port = port,
	                              .type = type,
	                              .status = event->status,
	                              .index = event->index};
	if (queue != NULL) {
		const struct evring_block *block = queue->writer.block;
		message.wrptr_addr = (uint64_t)(uintptr_t)&block->events_writer.wrptr;
		message.rdptr_addr = (uint64_t)(uintptr_t)&block->events_writer.rdptr_copy;
		message.events_addr = (uint64_t)(uintptr_t)block->memory;
		message.events = (uint32_t)queue->writer.events.units;
	}
	oob_send(adapter, &message);
}

void oob_failed(struct hdl_adapter *adapter, uint16_t type)
{
	struct oob_message message = {.bits = OOB_FAILURES, .type = type};
	oob_send(adapter, &message);
}

void oob_end(struct hdl_adapter *adapter)
{
	oob_drop(adapter);
}

void oob_forget(struct hdl_adapter *adapter)
{
	if (adapter->oob.block != NULL)
		close(adapter->oob.bell);
	adapter->oob.block = NULL;
}

struct hdl_oob_status oob_status(const struct agent_oob *told)
{
	return (struct hdl_oob_status){.messages = told->messages,
	                               .blocked = told->blocked,
	                               .errors = told->errors,
	                               .failures = told->failures,
	                               .lost = told->lost,
	                               .wakes = told->wakes,
	                               .refused = told->refused,
	                               .nobody = told->nobody,
	                               .waiting = told->waiting,
	                               .first_type = (uint16_t)told->first_type,
	                               .first_index = told->first_index,
	                               .first_value = told->first_value,
	                               .criteria = told->criteria,
	                               .waking = told->waking,
	                               .last_port = told->last_port,
	                               .error_port = told->error_port,
	                               .error_index = told->error_index,
	                               .error_status = told->error_status};
}

int hdl_oob_query(struct hdl_adapter *adapter, struct hdl_oob_status *status)
{
	struct agent_msg msg = {.kind = AGENT_OOB_QUERY};
	if (adapter == NULL || adapter->magic != MAGIC_ADAPTER || status == NULL)
		return -HDL_EINVAL;
	*status = (struct hdl_oob_status){0};
	if (!adapter->agent.on_node || !adapter->drive.has_thread)
		return -HDL_EHOSTUNREACH;
	int result = agent_ask(adapter, &msg, &msg.u.oob.token);
	if (result != 0)
		return result == -HDL_EAGAIN ? -HDL_EHOSTUNREACH : result;
	*status = oob_status(&msg.u.oob);
	return 0;
}
