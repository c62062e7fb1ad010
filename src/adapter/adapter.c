/* Opening, joining and closing adapters. */
#include "adapter/adapter.h"
#include "adapter/aperture/aperture.h"
#include "adapter/aperture/cluster.h"
#include "transport/ib/raw.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/barrier.h"
#include "base/fd.h"
#include "base/log.h"
#include "port/bell.h"

static void sink_quiesce(void *context)
{
	adapter_quiesce(context);
}

static void sink_ci(void *context, uint32_t link, const uint8_t *frame, size_t bytes)
{
	apertures_lane(context, link, frame, bytes);
}

static void sink_packet(void *context, uint32_t link, const uint8_t *packet, size_t bytes)
{
	packets_take(context, link, packet, bytes);
}

static void sink_link_down(void *context, uint32_t link)
{
	apertures_link_down(context, link);
}

static void sink_bell(void *context, uint32_t link)
{
	peers_ring(context, link);
}

/* Called with the drive lock, under which nothing is logged: the thread that drops the lock logs
 * it. */
static void sink_not_ready(void *context, const struct qp *qp)
{
	struct hdl_adapter *adapter = context;
	if (adapter->objects.not_ready_noted)
		return;
	adapter->objects.not_ready_noted = true;
	adapter->objects.not_ready_retries = qp->attr.rnr_retry;
	adapter->objects.not_ready_alone = qp->type == HDL_QP_RD;
	atomic_store_explicit(&adapter->objects.not_ready_qpn, qp->qpn, memory_order_release);
}

void adapter_say_not_ready(struct hdl_adapter *adapter)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;
	uint32_t qpn =
	        atomic_exchange_explicit(&adapter->objects.not_ready_qpn, 0, memory_order_acquire);
	if (qpn == 0 || atomic_flag_test_and_set(&said))
		return;
	if (adapter->objects.not_ready_alone)
		log_warn("a message of queue pair 0x%06x failed: its peer had no receive posted "
		         "for it; post receives before the other side sends, or set rnr_retry of "
		         "the end-to-end context to 7, which tries for ever (logged once)",
		         qpn);
	else
		log_warn("queue pair 0x%06x failed: its peer had no receive posted for a message, "
		         "and rnr_retry is %u; post receives before the other side sends, or set "
		         "rnr_retry to 7, which tries for ever (logged once)",
		         qpn, adapter->objects.not_ready_retries);
}

/* The code that knows why an adapter cannot be opened logs it. */
static int lacks_memory(void)
{
	log_error("memory for an adapter: %m; raise \"ulimit -v\", or end some programs");
	return -HDL_ENOMEM;
}

static int lacks_files(void)
{
	log_error("descriptors for an adapter: %m; close some files, or raise \"ulimit -n\"");
	return -HDL_EIO;
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

/* If address space is limited, translation tables get an eighth of it: peers map them too. */
static uint64_t arena_of_limit(void)
{
	struct rlimit limit;
	uint64_t words = ADAPTER_ARENA_WORDS;
	if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
		while (words > ADAPTER_ARENA_LEAST && words * sizeof(uint64_t) > limit.rlim_cur / 8)
			words /= 2;
	return words;
}

static int make_tables(struct hdl_adapter *adapter)
{
	while ((1u << adapter->objects.qp_bits) <=
	       adapter->objects.max_qp) /* one slot is never used */
		adapter->objects.qp_bits++;
	uint64_t arena_words = arena_of_limit();
	int result = tables_make(&adapter->peers.tables, adapter->objects.max_mr,
	                         adapter->objects.qp_bits, arena_words);
	if (result != 0)
		return result;
	struct tpt_config config = {.capacity = adapter->objects.max_mr,
	                            .arena_words = arena_words};
	size_t qps = (size_t)1 << adapter->objects.qp_bits;
	void *private_memory = map_block(adapter, 0, tpt_bytes(&config).private_bytes);
	void **table = map_block(adapter, 1,
	                         3 * qps * sizeof(*table) + HDL_MAX_RAW * sizeof(struct raw_entry));
	uint64_t *words = map_block(adapter, 2, 8 * (BITMAP_WORDS(qps) + BITMAP_WORDS(HDL_MAX_PD)));
	if (private_memory == NULL || table == NULL || words == NULL)
		return lacks_memory();
	adapter->peers.probe = prng_next(&adapter->prng);
	adapter->peers.tables.header->probe_addr = (uint64_t)(uintptr_t)&adapter->peers.probe;
	adapter->peers.tables.header->probe_value = adapter->peers.probe;
	adapter->peers.tables.header->refusals_addr = (uint64_t)(uintptr_t)adapter->tpt.verdicts;
	adapter->peers.tables.header->wq_layout = TABLES_WQ_LAYOUT;
	adapter->drive.barrier = barrier_register();
	adapter->peers.tables.header->barrier = adapter->drive.barrier;
	tpt_init(&adapter->tpt, &config, adapter->peers.tables.slots, adapter->peers.tables.arena,
	         private_memory, prng_next(&adapter->prng));
	adapter->peers.tables.header->key_mul = adapter->tpt.view.mul;
	bitmap_init(&adapter->objects.qp_map, words, qps);
	bitmap_init(&adapter->objects.pd_map, words + BITMAP_WORDS(qps), HDL_MAX_PD);
	bitmap_set(&adapter->objects.pd_map, 0); /* no object has number 0 */
	bitmap_set(&adapter->objects.qp_map, 0);
	struct engine *engine = &adapter->engine;
	engine->tpt = &adapter->tpt;
	engine->counters = adapter->peers.tables.header->counters;
	engine->links = adapter->peers.links;
	engine->gids = adapter->gids;
	engine->gid_ports = adapter->net.gid_ports;
	engine->cell_ports = adapter->net.cell_ports;
	engine->qps = (struct qp **)table;
	engine->srqs = (struct srq **)(table + qps);
	engine->eecs = (struct qp **)(table + 2 * qps);
	engine->raws = (struct raw_entry *)(void *)(table + 3 * qps);
	engine->qps_public = adapter->peers.tables.qps;
	engine->qp_mask = (uint32_t)qps - 1;
	mpsc_init(&engine->pending);
	engine_begin_turns(engine);
	engine->dirty_links = LINK_NONE;
	packets_begin(adapter);
	engine->now_ns = clock_read(&adapter->clock);
	timer_wheel_init(&engine->wheel, engine->now_ns);
	engine->own = fault_own_memory();
	engine->sink = (struct engine_sink){.cq_event = adapter_cq_event,
	                                    .event = adapter_event,
	                                    .fault = why_failed,
	                                    .quiesce = sink_quiesce,
	                                    .not_ready = sink_not_ready,
	                                    .bell = sink_bell,
	                                    .ci = sink_ci,
	                                    .packet = sink_packet,
	                                    .link_down = sink_link_down,
	                                    .context = adapter};
	return 0;
}

/* What wakes the thread. */
static int make_bell(struct hdl_adapter *adapter)
{
	struct epoll_event bell = {.events = EPOLLIN, .data.u64 = EPOLL_BELL};
	struct epoll_event nudge = {.events = EPOLLIN, .data.u64 = EPOLL_NUDGE};
	int ends[2];
	bell_make(ends);
	adapter->drive.bell = ends[0];
	adapter->drive.rope = ends[1];
	adapter->drive.nudge = fd_aside(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	adapter->drive.epoll = fd_aside(epoll_create1(EPOLL_CLOEXEC));
	adapter->drive.bell_holder = BELL_THREAD;
	return adapter->drive.bell >= 0 && adapter->drive.nudge >= 0 && adapter->drive.epoll >= 0 &&
	                       epoll_ctl(adapter->drive.epoll, EPOLL_CTL_ADD, adapter->drive.bell,
	                                 &bell) == 0 &&
	                       epoll_ctl(adapter->drive.epoll, EPOLL_CTL_ADD, adapter->drive.nudge,
	                                 &nudge) == 0
	               ? 0
	               : lacks_files();
}

static bool gid_is_zero(const struct hdl_gid *gid)
{
	static const struct hdl_gid zero;
	return memcmp(gid, &zero, sizeof(zero)) == 0;
}

/* --- open and close --- */

/* Allocate an adapter; nothing else is initialized. NULL: no memory. */
static struct hdl_adapter *new_adapter(const struct hdl_open_attr *attr,
                                       const struct adapter_env *env)
{
	struct hdl_adapter *adapter = aligned_alloc(64, (sizeof(*adapter) + 63) & ~(size_t)63);
	if (adapter == NULL)
		return NULL;
	memset(adapter, 0, sizeof(*adapter));
	adapter->magic = MAGIC_ADAPTER;
	strncpy(adapter->name, attr->name != NULL ? attr->name : "heddle0",
	        sizeof(adapter->name) - 1);
	adapter->objects.max_mr = attr->max_mr != 0 ? attr->max_mr : ADAPTER_DEFAULT_MR;
	adapter->objects.max_qp = attr->max_qp != 0 ? attr->max_qp : ADAPTER_NODE_QP;
	adapter->objects.qp_bits = attr->on_node ? ENGINE_QPN_BITS - AGENT_SLOT_BITS : 0;
	adapter->clock = env->clock;
	if (env->seed != 0)
		prng_seed(&adapter->prng, env->seed);
	else
		prng_seed_from_os(&adapter->prng);
	adapter->guid = prng_next(&adapter->prng);
	adapter->agent.sock = adapter->drive.bell = adapter->drive.nudge = adapter->drive.epoll =
	        adapter->drive.events.fd = adapter->peers.tables.fd = adapter->drive.rope = -1;
	adapter->peers.segments.pagemap = adapter->peers.segments.watch = -1;
	unmapped_begin(adapter);
	pthread_mutex_init(&adapter->agent.ask_lock, NULL);
	/* A program may exit inside a signal handler, in the middle of one of our calls. An
	 * error-checking mutex then refuses the lock (cm_settle()). */
	pthread_mutexattr_t checked;
	pthread_mutexattr_init(&checked);
	pthread_mutexattr_settype(&checked, PTHREAD_MUTEX_ERRORCHECK);
	pthread_mutex_init(&adapter->agent.lock, &checked);
	pthread_mutexattr_destroy(&checked);
	pthread_mutex_init(&adapter->agent.handler_lock, NULL);
	clock_cond_init(&adapter->agent.answered);
	vis_init(&adapter->vis);
	return adapter;
}

/* Set the identity of the adapter, until an agent assigns another one, and how it accesses memory
 * and peers. */
static void adapter_introduce(struct hdl_adapter *adapter, const struct hdl_open_attr *attr,
                              const struct adapter_env *env)
{
	adapter->peers.by_value = env->by_value;
	adapter->engine.turn_bytes = env->turn_bytes != 0 ? env->turn_bytes : ENGINE_TURN_BYTES;
	adapter->peers.by_target = env->by_target || env->by_value;
	adapter->engine.general_only = env->no_fast_path || adapter->engine.capture != NULL;
	adapter->engine.gid = attr->gid;
	if (gid_is_zero(&attr->gid)) {
		/* fe80::/64 and the GUID: link-local, as unique as the GUID is. */
		memcpy(adapter->engine.gid.raw, "\xfe\x80\0\0\0\0\0\0", 8);
		memcpy(adapter->engine.gid.raw + 8, &adapter->guid, 8);
	}
	adapter->gids[0] = adapter->engine.gid;
	adapter->gids[1] = env->second_gid;
	adapter->gid_count = gid_is_zero(&env->second_gid) ? 1 : 2;
	if (env->carrier != NULL)
		adapter->engine.carriers[adapter->engine.carrier_count++] = env->carrier;
	adapter->net.only = env->carrier != NULL;
	adapter->net.cells = env->cells || attr->cells;
	if (attr->ether != NULL)
		strncpy(adapter->net.interface, attr->ether, sizeof(adapter->net.interface) - 1);
}

int adapter_open(const struct hdl_open_attr *attr, const struct adapter_env *env,
                 struct hdl_adapter **out)
{
	static const struct hdl_open_attr defaults;
	if (out == NULL)
		return -HDL_EINVAL;
	if (attr == NULL)
		attr = &defaults;
	/* On a node, the high bits of a queue pair number identify the process. */
	if (attr->max_mr > HDL_MAX_MR || attr->max_qp > HDL_MAX_QP ||
	    (attr->on_node && (attr->no_thread || attr->max_qp > ADAPTER_NODE_QP)))
		return -HDL_EINVAL;
	struct hdl_adapter *adapter = new_adapter(attr, env);
	if (adapter == NULL)
		return lacks_memory();
	fork_enter(adapter);
	int result = groups_init(adapter) == 0 ? 0 : lacks_memory();
	if (result == 0)
		result = fault_install();
	if (result == 0 && events_init(&adapter->drive.events) != 0)
		result = lacks_files();
	if (result == 0)
		result = make_bell(adapter);
	if (result == 0)
		result = make_tables(adapter);
	if (result == 0)
		result = recorder_open(adapter, attr->capture);
	if (result == 0) {
		segment_begin(&adapter->peers.segments, adapter->peers.tables.segments,
		              attr->on_node);
		adapter_introduce(adapter, attr, env);
	}
	if (result == 0 && attr->on_node)
		result = agent_join(adapter, attr->node);
	if (result == 0 && peers_join_self(adapter) != 0)
		result = lacks_memory();
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
	struct hdl_open_attr wanted = attr != NULL ? *attr : (struct hdl_open_attr){0};
	if (wanted.capture == NULL)
		wanted.capture = secure_getenv("HEDDLE_CAPTURE");
	if (!settings_fast_path(&env))
		return -HDL_EINVAL;
	return adapter_open(&wanted, &env, out);
}

void adapter_kill(struct hdl_adapter *adapter)
{
	cm_settle(adapter);
	fork_leave(adapter);
	adapter_stop_thread(adapter);
	unmapped_end(adapter);
	agent_leave(adapter);
	peers_leave(adapter);
	recorder_close(adapter);
	events_end(&adapter->drive.events);
	segment_end(&adapter->peers.segments);
	unmap_blocks(adapter);
	tables_unmap(&adapter->peers.tables);
	if (adapter->drive.bell >= 0)
		close(adapter->drive.bell);
	if (adapter->drive.rope >= 0)
		close(adapter->drive.rope);
	if (adapter->drive.nudge >= 0)
		close(adapter->drive.nudge);
	if (adapter->drive.epoll >= 0)
		close(adapter->drive.epoll);
	net_close(adapter);
	apertures_end(adapter);
	cluster_free(adapter->cluster);
	cm_end(adapter);
	groups_end(adapter);
	eventqs_end(adapter);
	oob_end(adapter);
	pthread_mutex_destroy(&adapter->agent.ask_lock);
	pthread_mutex_destroy(&adapter->agent.lock);
	pthread_mutex_destroy(&adapter->agent.handler_lock);
	pthread_cond_destroy(&adapter->agent.answered);
	vis_end(&adapter->vis);
	adapter->magic = 0;
	fork_left();
	free(adapter);
}

int hdl_close(struct hdl_adapter *adapter)
{
	if (adapter == NULL || adapter->magic != MAGIC_ADAPTER)
		return -HDL_EINVAL;
	if (atomic_load(&adapter->objects.count) > 0)
		return -HDL_EBUSY;
	adapter_kill(adapter);
	return 0;
}

int hdl_adapter_query(struct hdl_adapter *adapter, struct hdl_limits *limits)
{
	if (adapter == NULL || adapter->magic != MAGIC_ADAPTER || limits == NULL)
		return -HDL_EINVAL;
	adapter_lock(adapter); /* a new agent may assign other names */
	*limits = (struct hdl_limits){.gid = adapter->engine.gid,
	                              .gid_count = adapter->gid_count,
	                              .guid = adapter->guid,
	                              .lid = adapter->lid,
	                              .lmc = adapter->lmc,
	                              .sm_lid = adapter->lid != 0 ? AGENT_SM_LID : 0,
	                              .slot = (uint16_t)adapter->slot,
	                              .wire = net_reach(adapter),
	                              .mtu = net_mtu(adapter),
	                              .wire_gids = net_gids(adapter),
	                              .cells = adapter->net.cells,
	                              .max_qp = adapter->objects.max_qp,
	                              .max_qp_wr = HDL_MAX_QP_WR,
	                              .max_sge = HDL_MAX_SGE,
	                              .max_inline = HDL_MAX_INLINE,
	                              .max_cq = HDL_MAX_CQ,
	                              .max_cqe = HDL_MAX_CQE,
	                              .max_srq = HDL_MAX_SRQ,
	                              .max_srq_wr = HDL_MAX_SRQ_WR,
	                              .max_pd = HDL_MAX_PD - 1,
	                              .max_mr = adapter->objects.max_mr,
	                              .max_ah = HDL_MAX_AH,
	                              .max_groups = HDL_MAX_GROUPS,
	                              .max_group_members = HDL_MAX_GROUP_MEMBERS,
	                              .max_rd_atomic = HDL_MAX_RD_ATOMIC,
	                              .max_peers = HDL_MAX_PEERS,
	                              .max_message = HDL_MAX_MESSAGE,
	                              .max_mr_length = HDL_MAX_MR_LENGTH,
	                              .max_register_pages = HDL_MAX_REGISTER_PAGES};
	if (adapter->lid != 0 && adapter->gid_count > AGENT_IB_GID)
		limits->ib_gid = adapter->gids[AGENT_IB_GID];
	adapter_unlock(adapter);
	return 0;
}

int hdl_gid_query(struct hdl_adapter *adapter, uint32_t index, struct hdl_gid *gid)
{
	if (adapter == NULL || adapter->magic != MAGIC_ADAPTER || gid == NULL)
		return -HDL_EINVAL;
	adapter_lock(adapter);
	bool known = index < adapter->gid_count;
	if (known)
		*gid = adapter->gids[index];
	adapter_unlock(adapter);
	return known ? 0 : -HDL_EINVAL;
}

size_t hdl_counters(struct hdl_adapter *adapter, struct hdl_counter *list, size_t max)
{
	if (adapter == NULL || adapter->magic != MAGIC_ADAPTER)
		return 0;
	for (size_t i = 0; i < COUNTER_COUNT && i < max; i++)
		list[i] = (struct hdl_counter){
		        counter_name(i),
		        i < ENGINE_COUNTER_COUNT
		                ? counter_read(&adapter->engine.counters[i])
		                : atomic_load_explicit(
		                          &adapter->tpt.verdicts[i - ENGINE_COUNTER_COUNT],
		                          memory_order_relaxed)};
	return COUNTER_COUNT;
}
