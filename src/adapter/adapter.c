/* Opening, joining and closing adapters. */
#include "adapter/adapter.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "port/lanes.h"

/* Joining and closing: which adapters know each other changes under this alone. */
static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;

static const char *const counter_names[NODE_COUNTER_COUNT] = {
        [NODE_FRAMES_IN] = "frames_in",
        [NODE_FRAMES_OUT] = "frames_out",
        [NODE_BYTES_SENT] = "bytes_sent",
        [NODE_BYTES_RECEIVED] = "bytes_received",
        [NODE_BYTES_WRITTEN] = "bytes_written",
        [NODE_BYTES_READ] = "bytes_read",
        [NODE_ATOMICS] = "atomics",
        [NODE_RNR_SENT] = "rnr_sent",
        [NODE_RETRIES] = "retries",
        [NODE_TIMEOUTS] = "timeouts",
        [NODE_REPEATED] = "repeated",
        [NODE_DROPPED] = "dropped",
        [NODE_DROPPED_QKEY] = "dropped_qkey",
        [NODE_DROPPED_NO_RECV] = "dropped_no_recv",
        [NODE_BAD_FRAMES] = "bad_frames",
        [NODE_MEMORY_GONE] = "memory_gone",
};

static const char *const refusal_names[HDL_DETAIL_COUNT] = {
        [HDL_DETAIL_NONE] = "refused_other",
        [HDL_DETAIL_NOT_VALID] = "refused_not_valid",
        [HDL_DETAIL_TYPE] = "refused_type",
        [HDL_DETAIL_PD] = "refused_pd",
        [HDL_DETAIL_QP] = "refused_qp",
        [HDL_DETAIL_INSTANCE] = "refused_instance",
        [HDL_DETAIL_BOUNDS] = "refused_bounds",
        [HDL_DETAIL_ACCESS] = "refused_access",
        [HDL_DETAIL_BIND] = "refused_bind",
        [HDL_DETAIL_TOUCHED] = "refused_touched",
        [HDL_DETAIL_OUT_OF_WINDOW] = "refused_out_of_window",
        [HDL_DETAIL_GONE] = "refused_gone",
        [HDL_DETAIL_MISALIGNED] = "refused_misaligned",
        [HDL_DETAIL_BUSY] = "refused_busy",
        [HDL_DETAIL_PAGES] = "refused_pages",
        [HDL_DETAIL_LIMIT] = "refused_limit",
};

void adapter_quiesce(struct hdl_adapter *adapter)
{
	for (uint32_t i = 0; i < adapter->node.link_count; i++) {
		uint64_t seen = 0;
		if (adapter->links[i].up && adapter->peers[i].guard != NULL)
			while (!tpt_left(adapter->peers[i].guard, &seen))
				sched_yield();
	}
}

static void sink_quiesce(void *context)
{
	adapter_quiesce(context);
}

static void sink_bell(void *context, uint32_t link)
{
	struct hdl_adapter *adapter = context;
	adapter_ring(adapter->peers[link].adapter);
}

/* Memory that costs nothing until it is used, zero-filled. */
static void *map_block(struct hdl_adapter *adapter, size_t which, size_t bytes)
{
	void *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
	                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (block == MAP_FAILED)
		return NULL;
	adapter->blocks[which] = block;
	adapter->block_bytes[which] = bytes;
	return block;
}

static void unmap_blocks(struct hdl_adapter *adapter)
{
	for (size_t i = 0; i < sizeof(adapter->blocks) / sizeof(adapter->blocks[0]); i++)
		if (adapter->blocks[i] != NULL)
			munmap(adapter->blocks[i], adapter->block_bytes[i]);
}

static int make_tables(struct hdl_adapter *adapter)
{
	struct tpt_config config = {.capacity = adapter->max_mr,
	                            .arena_words = ADAPTER_ARENA_WORDS};
	struct tpt_bytes bytes = tpt_bytes(&config);
	while ((1u << adapter->qp_bits) <= adapter->max_qp) /* one place is never used */
		adapter->qp_bits++;
	size_t qps = (size_t)1 << adapter->qp_bits;
	void *slots = map_block(adapter, 0, bytes.slots);
	void *arena = map_block(adapter, 1, bytes.arena);
	void *private_memory = map_block(adapter, 2, bytes.private_bytes);
	struct qp_public *qps_public = map_block(adapter, 3, qps * sizeof(*qps_public));
	struct qp **table = map_block(adapter, 4, qps * sizeof(*table));
	uint64_t *words = map_block(adapter, 5, 8 * (BITMAP_WORDS(qps) + BITMAP_WORDS(HDL_MAX_PD)));
	if (slots == NULL || arena == NULL || private_memory == NULL || qps_public == NULL ||
	    table == NULL || words == NULL)
		return -HDL_ENOMEM;
	tpt_init(&adapter->tpt, &config, slots, arena, private_memory, prng_next(&adapter->prng));
	bitmap_init(&adapter->qp_map, words, qps);
	bitmap_init(&adapter->pd_map, words + BITMAP_WORDS(qps), HDL_MAX_PD);
	bitmap_set(&adapter->pd_map, 0); /* no object has number 0 */
	bitmap_set(&adapter->qp_map, 0);
	struct node *node = &adapter->node;
	node->tpt = &adapter->tpt;
	node->links = adapter->links;
	node->qps = table;
	node->qps_public = qps_public;
	node->qp_mask = (uint32_t)qps - 1;
	mpsc_init(&node->pending);
	node->active_end = &node->active;
	node->dirty_links = LINK_NONE;
	node->now_ns = clock_read(&adapter->clock);
	timer_wheel_init(&node->wheel, node->now_ns);
	node->own = fault_mover(true);
	node->sink = (struct node_sink){.cq_event = adapter_cq_event,
	                                .event = adapter_event,
	                                .quiesce = sink_quiesce,
	                                .bell = sink_bell,
	                                .context = adapter};
	return 0;
}

static bool gid_is_zero(const struct hdl_gid *gid)
{
	static const struct hdl_gid zero;
	return memcmp(gid, &zero, sizeof(zero)) == 0;
}

/* --- links --- */

uint32_t adapter_find_link(const struct hdl_adapter *adapter, const struct hdl_gid *gid)
{
	for (uint32_t i = 0; i < adapter->node.link_count; i++)
		if (adapter->links[i].up && memcmp(&adapter->links[i].gid, gid, sizeof(*gid)) == 0)
			return i;
	return LINK_NONE;
}

/* A number for a new link: one that is free, or one more. */
static uint32_t new_link(struct hdl_adapter *adapter)
{
	for (uint32_t i = 0; i < adapter->node.link_count; i++)
		if (!adapter->links[i].up && adapter->peers[i].adapter == NULL)
			return i;
	return adapter->node.link_count < HDL_MAX_PEERS ? adapter->node.link_count : LINK_NONE;
}

static void attach(struct hdl_adapter *adapter, uint32_t index, struct hdl_adapter *peer,
                   uint32_t peer_index, const struct lanes_end *end, void *block)
{
	uint32_t epoch = adapter->links[index].epoch + 1;
	adapter->peers[index] = (struct peer){
	        .adapter = peer, .link = peer_index, .guard = end->peer_guard, .block = block};
	bool reaches = adapter->node.own.reaches_peer;
	adapter->links[index] = (struct link){.up = true,
	                                      .epoch = epoch,
	                                      .dirty_next = LINK_NONE,
	                                      .tx = end->tx,
	                                      .rx = end->rx,
	                                      .peer_table = peer->tpt.view,
	                                      .peer_qps = peer->node.qps_public,
	                                      .peer_qp_mask = peer->node.qp_mask,
	                                      .peer_link = peer_index,
	                                      .guard = end->own_guard,
	                                      .mover = fault_mover(reaches),
	                                      .gid = peer->node.gid};
	if (index == adapter->node.link_count)
		adapter->node.link_count++;
}

/* Lay lanes between @a and @b, which may be the same. With registry_lock and both drive locks. */
static int join(struct hdl_adapter *a, struct hdl_adapter *b)
{
	uint32_t at_a = new_link(a), at_b = a == b ? at_a : new_link(b);
	if (at_a == LINK_NONE || at_b == LINK_NONE)
		return -HDL_ENOMEM;
	void *block = aligned_alloc(64, lanes_bytes());
	if (block == NULL)
		return -HDL_ENOMEM;
	lanes_format(block);
	struct lanes_end end_a, end_b;
	lanes_attach(&end_a, block, 0);
	lanes_attach(&end_b, block, 1);
	if (a == b) {
		/* One lane, both ends ours: what we send ourselves comes in where it went out. */
		end_a.rx = end_b.rx;
		end_a.peer_guard = NULL; /* the driver is alone with its own table */
	} else {
		attach(b, at_b, a, at_a, &end_b, block);
	}
	attach(a, at_a, b, at_b, &end_a, block);
	return 0;
}

int hdl_join(struct hdl_adapter *a, struct hdl_adapter *b)
{
	if (a == NULL || b == NULL || a == b || a->magic != MAGIC_ADAPTER ||
	    b->magic != MAGIC_ADAPTER)
		return -HDL_EINVAL;
	int result;
	pthread_mutex_lock(&registry_lock);
	adapter_lock(a < b ? a : b);
	adapter_lock(a < b ? b : a);
	if (adapter_find_link(a, &b->node.gid) != LINK_NONE ||
	    adapter_find_link(b, &a->node.gid) != LINK_NONE)
		result = -HDL_EINVAL;
	else
		result = join(a, b);
	adapter_unlock(a);
	adapter_unlock(b);
	pthread_mutex_unlock(&registry_lock);
	/* A thread that sleeps has not armed the new lane. */
	adapter_ring(a);
	adapter_ring(b);
	return result;
}

/* Peers of @adapter see it no more; when this returns none of them touches its memory. With registry_lock. */
static void leave_peers(struct hdl_adapter *adapter)
{
	for (uint32_t i = 0; i < adapter->node.link_count; i++) {
		struct peer *peer = &adapter->peers[i];
		if (peer->adapter == NULL)
			continue;
		struct hdl_adapter *other = peer->adapter;
		if (other != adapter) {
			adapter_lock(other);
			node_link_down(&other->node, peer->link);
			other->peers[peer->link] = (struct peer){0};
			adapter_unlock(other);
		}
		free(peer->block);
		*peer = (struct peer){0};
	}
}

/* --- open and close --- */

int adapter_open(const struct hdl_open_attr *attr, const struct adapter_env *env,
                 struct hdl_adapter **out)
{
	static const struct hdl_open_attr defaults;
	if (out == NULL)
		return -HDL_EINVAL;
	if (attr == NULL)
		attr = &defaults;
	if (attr->max_mr > HDL_MAX_MR || attr->max_qp > HDL_MAX_QP)
		return -HDL_EINVAL;
	struct hdl_adapter *adapter = aligned_alloc(64, (sizeof(*adapter) + 63) & ~(size_t)63);
	if (adapter == NULL)
		return -HDL_ENOMEM;
	memset(adapter, 0, sizeof(*adapter));
	adapter->magic = MAGIC_ADAPTER;
	strncpy(adapter->name, attr->name != NULL ? attr->name : "heddle0",
	        sizeof(adapter->name) - 1);
	adapter->max_mr = attr->max_mr != 0 ? attr->max_mr : ADAPTER_DEFAULT_MR;
	adapter->max_qp = attr->max_qp != 0 ? attr->max_qp : ADAPTER_DEFAULT_QP;
	adapter->clock = env->clock;
	if (env->seed != 0)
		prng_seed(&adapter->prng, env->seed);
	else
		prng_seed_from_os(&adapter->prng);
	adapter->guid = prng_next(&adapter->prng);
	int result = fault_install();
	if (result == 0)
		result = events_init(&adapter->events);
	if (result != 0) {
		free(adapter);
		return result;
	}
	result = make_tables(adapter);
	if (result == 0) {
		adapter->node.own.reaches_peer = adapter->node.own.atomic_on_peer = !env->by_target;
		adapter->node.gid = attr->gid;
		if (gid_is_zero(&attr->gid)) {
			/* fe80::/64 and the GUID: link-local, as unique as the GUID is. */
			memcpy(adapter->node.gid.raw, "\xfe\x80\0\0\0\0\0\0", 8);
			memcpy(adapter->node.gid.raw + 8, &adapter->guid, 8);
		}
		result = join(adapter, adapter);
	}
	if (result == 0 && !attr->no_thread)
		result = adapter_start_thread(adapter);
	if (result != 0) {
		adapter_kill(adapter);
		return result;
	}
	*out = adapter;
	return 0;
}

int hdl_open(const struct hdl_open_attr *attr, struct hdl_adapter **out)
{
	struct adapter_env env = {.clock = clock_real()};
	return adapter_open(attr, &env, out);
}

void adapter_kill(struct hdl_adapter *adapter)
{
	adapter_stop_thread(adapter);
	pthread_mutex_lock(&registry_lock);
	leave_peers(adapter);
	pthread_mutex_unlock(&registry_lock);
	events_end(&adapter->events);
	unmap_blocks(adapter);
	adapter->magic = 0;
	free(adapter);
}

int hdl_close(struct hdl_adapter *adapter)
{
	if (adapter == NULL || adapter->magic != MAGIC_ADAPTER)
		return -HDL_EINVAL;
	if (atomic_load(&adapter->objects) > 0)
		return -HDL_EBUSY;
	adapter_kill(adapter);
	return 0;
}

int hdl_adapter_query(struct hdl_adapter *adapter, struct hdl_limits *limits)
{
	if (adapter == NULL || adapter->magic != MAGIC_ADAPTER || limits == NULL)
		return -HDL_EINVAL;
	*limits = (struct hdl_limits){.gid = adapter->node.gid,
	                              .guid = adapter->guid,
	                              .max_qp = adapter->max_qp,
	                              .max_qp_wr = HDL_MAX_QP_WR,
	                              .max_sge = HDL_MAX_SGE,
	                              .max_inline = HDL_MAX_INLINE,
	                              .max_cq = HDL_MAX_CQ,
	                              .max_cqe = HDL_MAX_CQE,
	                              .max_srq = HDL_MAX_SRQ,
	                              .max_srq_wr = HDL_MAX_SRQ_WR,
	                              .max_pd = HDL_MAX_PD - 1,
	                              .max_mr = adapter->max_mr,
	                              .max_ah = HDL_MAX_AH,
	                              .max_rd_atomic = HDL_MAX_RD_ATOMIC,
	                              .max_peers = HDL_MAX_PEERS,
	                              .max_message = HDL_MAX_MESSAGE,
	                              .max_mr_length = HDL_MAX_MR_LENGTH,
	                              .max_register_pages = HDL_MAX_REGISTER_PAGES};
	return 0;
}

size_t hdl_counters(struct hdl_adapter *adapter, struct hdl_counter *list, size_t max)
{
	size_t count = NODE_COUNTER_COUNT + HDL_DETAIL_COUNT;
	for (size_t i = 0; i < count && i < max; i++) {
		size_t refusal = i - NODE_COUNTER_COUNT;
		list[i] = i < NODE_COUNTER_COUNT
		                  ? (struct hdl_counter){counter_names[i],
		                                         counter_read(&adapter->node.counters[i])}
		                  : (struct hdl_counter){
		                            refusal_names[refusal],
		                            atomic_load_explicit(&adapter->tpt.verdicts[refusal],
		                                                 memory_order_relaxed)};
	}
	return count;
}
