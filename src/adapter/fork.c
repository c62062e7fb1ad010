/* fork(): the child has a copy of our memory but not the adapter's thread, and the peers only know
 * the parent. So the child drops everything that connects the parent to others: the agent's socket
 * and the bells (they would stay open when the parent dies), the lanes and the tables (one stray
 * store would reach the parent's peers). From then on, every call refuses the inherited objects
 * like an invalid handle. The child can open its own adapters.
 *
 * A child that is created without fork handlers (vfork, posix_spawn, a bare clone) keeps these open
 * until it executes another program, which closes them. The agent and the peers also watch the
 * process itself. */
#include <sys/mman.h>
#include <unistd.h>

#include "adapter/adapter.h"
#include "adapter/track/track.h"
#include "port/lanes.h"

uint32_t magic_generation;

/* Taken before any other lock of the adapter layer. Closing holds it, so that a child never sees a
 * half-closed adapter. */
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct hdl_adapter *list;
/* Adapters of the parent, detached. Not freed: the program still has pointers to their objects. */
static struct hdl_adapter *inherited;

static void fork_before(void)
{
	pthread_mutex_lock(&list_lock);
	pthread_mutex_lock(&registry_lock);
	pthread_mutex_lock(&install_lock);
	pthread_mutex_lock(&tracer_lock);
	pthread_mutex_lock(&mem_lock);
	pthread_mutex_lock(&descriptors_lock);
}

static void unlock_all(void)
{
	pthread_mutex_unlock(&descriptors_lock);
	pthread_mutex_unlock(&mem_lock);
	pthread_mutex_unlock(&tracer_lock);
	pthread_mutex_unlock(&install_lock);
	pthread_mutex_unlock(&registry_lock);
	pthread_mutex_unlock(&list_lock);
}

static void fork_close_one(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* Replace shared memory with private zero pages: code that still accesses it finds zeroes and does
 * no harm. */
static void part_from(void *block, size_t bytes)
{
	if (block != NULL)
		mmap(block, bytes, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

static void fork_forget(struct hdl_adapter *adapter)
{
	adapter->peers.probe = 0; /* our copy of the parent's memory is not the parent's */
	fork_close_one(&adapter->agent.sock);
	fork_close_one(&adapter->drive.bell);
	fork_close_one(&adapter->drive.rope);
	fork_close_one(&adapter->drive.nudge);
	fork_close_one(&adapter->drive.epoll);
	net_close(adapter);
	oob_forget(adapter);
	fork_close_one(&adapter->peers.tables.fd);
	segment_close_inherited(&adapter->peers.segments);
	unmapped_forget(adapter);
	recorder_forget(adapter);
	part_from(adapter->peers.tables.block, adapter->peers.tables.sizes.block_bytes);
	for (uint32_t i = 0; i < adapter->engine.link_count; i++) {
		struct peer *peer = &adapter->peers.list[i];
		if (!peer->used || peer->adapter != NULL)
			continue;
		fork_close_one(&peer->pidfd);
		fork_close_one(&peer->bell);
		part_from(peer->tables.block, peer->tables.sizes.block_bytes);
		part_from(peer->block, lanes_bytes());
	}
}

static void in_child(void)
{
	unlock_all(); /* a thread that waited for one of these does not exist here */
	magic_generation++;
	tracer_in_child();
	track_in_child();
	while (list != NULL) {
		struct hdl_adapter *adapter = list;
		list = adapter->next;
		fork_forget(adapter);
		adapter->next = inherited;
		inherited = adapter;
	}
}

/* Early, so that the fork handlers of the layers above run before ours: their locks are taken
 * before ours too. */
__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(fork_before, unlock_all, in_child);
}

void fork_enter(struct hdl_adapter *adapter)
{
	pthread_mutex_lock(&list_lock);
	adapter->next = list;
	list = adapter;
	pthread_mutex_unlock(&list_lock);
}

bool fork_each(void (*visit)(struct hdl_adapter *adapter, void *context), void *context)
{
	if (pthread_mutex_trylock(&list_lock) != 0)
		return false;
	for (struct hdl_adapter *at = list; at != NULL; at = at->next)
		visit(at, context);
	pthread_mutex_unlock(&list_lock);
	return true;
}

void fork_leave(struct hdl_adapter *adapter)
{
	pthread_mutex_lock(&list_lock);
	for (struct hdl_adapter **at = &list; *at != NULL; at = &(*at)->next)
		if (*at == adapter) {
			*at = adapter->next;
			break;
		}
}

void fork_left(void)
{
	pthread_mutex_unlock(&list_lock);
}
