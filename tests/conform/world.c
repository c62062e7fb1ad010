/* Worlds: how a test's two sides are created and destroyed, and how time passes in them. */
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "conform.h"

#define VIRTUAL_STEP_NS  10000u
#define NETWORK_STEP_NS  500u
#define VIRTUAL_LIMIT_NS 30000000000u
#define REAL_LIMIT_NS    60000000000u

/* --- time --- */

uint64_t world_now(struct world *w)
{
	struct timespec now;
	if (!w->port->threaded)
		return w->virtual_ns;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

unsigned world_turn(struct world *w)
{
	unsigned did = w->port->carry != NULL ? w->port->carry(w) : 0;
	if (w->a.adapter != NULL)
		did += (unsigned)hdl_progress(w->a.adapter);
	if (w->b.adapter != NULL && w->b.adapter != w->a.adapter)
		did += (unsigned)hdl_progress(w->b.adapter);
	return did;
}

void world_pump(struct world *w)
{
	if (!w->port->threaded) {
		if (world_turn(w) == 0)
			w->virtual_ns += VIRTUAL_STEP_NS;
		return;
	}
	struct timespec moment = {.tv_nsec = 20000};
	nanosleep(&moment, NULL);
}

void world_settle(struct world *w)
{
	for (int quiet = 0; quiet < 3;) {
		if (world_turn(w) > 0)
			quiet = 0;
		else if (w->port->is_busy == NULL || !w->port->is_busy(w))
			quiet++;
		else
			w->virtual_ns += NETWORK_STEP_NS; /* for packets in flight */
	}
}

void world_pass(struct world *w, uint64_t ns)
{
	uint64_t end = world_now(w) + ns;
	world_settle(w);
	while (world_now(w) < end) {
		if (!w->port->threaded) {
			uint64_t left = end - w->virtual_ns;
			w->virtual_ns += left < VIRTUAL_STEP_NS ? left : VIRTUAL_STEP_NS;
			world_settle(w);
		} else {
			world_pump(w);
		}
	}
}

bool world_expired(struct world *w, uint64_t start)
{
	return world_now(w) - start > (w->port->threaded ? REAL_LIMIT_NS : VIRTUAL_LIMIT_NS);
}

/* --- the lists of objects --- */

static void keep(void *list, void *object)
{
	void **at = list;
	for (size_t i = 0; i < MAX_OBJECTS; i++) {
		if (at[i] == NULL) {
			at[i] = object;
			return;
		}
	}
	fail_msg("the world holds at most %u objects of a kind", MAX_OBJECTS);
}

void keep_mr(struct world *w, struct hdl_mr *mr)
{
	keep(w->mrs, mr);
}

void keep_srq(struct world *w, struct hdl_srq *srq)
{
	keep(w->srqs, srq);
}

void forget_object(struct world *w, const void *object)
{
	void **lists[] = {(void **)w->qps,      (void **)w->ahs, (void **)w->srqs,
	                  (void **)w->mws,      (void **)w->mrs, (void **)w->cqs,
	                  (void **)w->channels, (void **)w->pds, (void **)w->xrcds};
	for (size_t l = 0; l < COUNT(lists); l++)
		for (size_t i = 0; i < MAX_OBJECTS; i++)
			if (lists[l][i] == object)
				lists[l][i] = NULL;
}

#define TAKE_APART(list, destroy)                                                                 \
	do {                                                                                      \
		for (size_t i = 0; i < MAX_OBJECTS; i++)                                          \
			if (w->list[i] != NULL && (result = destroy(w->list[i])) != 0)            \
				print_error(#destroy ": %s\n", hdl_strerror(result)), ok = false; \
	} while (0)

static bool take_apart(struct world *w)
{
	bool ok = true;
	int result;
	TAKE_APART(qps, hdl_qp_destroy);
	TAKE_APART(ahs, hdl_ah_destroy);
	TAKE_APART(srqs, hdl_srq_destroy);
	TAKE_APART(xrcds, hdl_xrcd_close);
	TAKE_APART(mws, hdl_mw_free);
	TAKE_APART(mrs, hdl_mr_deregister);
	TAKE_APART(cqs, hdl_cq_destroy);
	TAKE_APART(channels, hdl_channel_destroy);
	TAKE_APART(pds, hdl_pd_destroy);
	return ok;
}

/* --- making and ending a world --- */

static void side_open(struct world *w, struct side *s, struct hdl_adapter *adapter, size_t bytes)
{
	struct hdl_limits limits;
	struct hdl_open_attr attr = {.max_qp = 1024, .max_mr = 4096};
	s->world = w;
	s->adapter = adapter;
	if (adapter == NULL)
		assert_int_equal(w->port->open(w, &s->adapter, &attr), 0);
	assert_int_equal(hdl_adapter_query(s->adapter, &limits), 0);
	s->gid = limits.gid;
	s->bytes = bytes;
	void *mem = MAP_FAILED;
	if (w->port->mapped)
		assert_int_equal(hdl_mem_alloc(bytes, &mem), 0);
	else
		mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(mem != MAP_FAILED);
	s->mem = mem;
	s->shadow = malloc(bytes);
	assert_non_null(s->shadow);
	pattern(s->mem, bytes, 99);
	memcpy(s->shadow, s->mem, bytes);
	s->pd = make_pd(s);
	s->scq = make_cq(s, 64, NULL, NULL);
	s->rcq = make_cq(s, 64, NULL, NULL);
	s->mr = make_mr(s, 0, bytes, LOCAL_BOTH | REMOTE_ALL | HDL_ACCESS_BIND);
}

static int setup(void **state, size_t bytes)
{
	struct world *w = calloc(1, sizeof(*w));
	if (w == NULL)
		return -1;
	w->port = conform_port;
	*state = w;
	side_open(w, &w->a, NULL, bytes);
	side_open(w, &w->b, w->port->one_adapter ? w->a.adapter : NULL, bytes);
	if (!w->port->one_adapter)
		assert_int_equal(w->port->join(w, w->a.adapter, w->b.adapter), 0);
	return 0;
}

void skip_lossy(const struct world *w)
{
	if (w->port->lossy)
		skip();
}

int world_setup(void **state)
{
	return setup(state, ARENA_BYTES);
}

int world_setup_big(void **state)
{
	return setup(state, BIG_ARENA_BYTES);
}

int world_teardown(void **state)
{
	struct world *w = *state;
	bool ok = take_apart(w);
	struct hdl_adapter *adapters[2] = {w->a.adapter, w->b.adapter};
	for (int i = 0; i < 2; i++) {
		if (adapters[i] == NULL || (i == 1 && adapters[1] == adapters[0]))
			continue;
		int result = hdl_close(adapters[i]);
		if (result != 0) {
			print_error("hdl_close: %s\n", hdl_strerror(result));
			ok = false;
			w->port->kill(adapters[i]);
		}
	}
	for (int i = 0; i < 2; i++) {
		struct side *s = i == 0 ? &w->a : &w->b;
		if (w->port->mapped)
			ok &= hdl_mem_free(s->mem) == 0;
		else
			munmap(s->mem, s->bytes);
		free(s->shadow);
	}
	if (w->port->end != NULL)
		w->port->end(w);
	free(w);
	return ok ? 0 : -1;
}

/* --- objects --- */

struct hdl_pd *make_pd(struct side *s)
{
	struct hdl_pd *pd;
	assert_int_equal(hdl_pd_create(s->adapter, &pd), 0);
	keep(s->world->pds, pd);
	return pd;
}

struct hdl_cq *make_cq(struct side *s, uint32_t depth, struct hdl_channel *channel, void *context)
{
	struct hdl_cq *cq;
	assert_int_equal(hdl_cq_create(s->adapter, depth, channel, context, &cq), 0);
	keep(s->world->cqs, cq);
	return cq;
}

struct hdl_channel *make_channel(struct side *s)
{
	struct hdl_channel *channel;
	assert_int_equal(hdl_channel_create(s->adapter, &channel), 0);
	keep(s->world->channels, channel);
	return channel;
}

struct hdl_srq *make_srq(struct side *s, uint32_t max_wr, uint32_t max_sge, uint32_t limit)
{
	struct hdl_srq *srq;
	struct hdl_srq_attr attr = {.max_wr = max_wr, .max_sge = max_sge, .limit = limit};
	assert_int_equal(hdl_srq_create(s->pd, &attr, NULL, &srq), 0);
	keep(s->world->srqs, srq);
	return srq;
}

struct hdl_xrcd *make_xrcd(struct side *s)
{
	struct hdl_xrcd *xrcd;
	assert_int_equal(hdl_xrcd_open(s->adapter, &xrcd), 0);
	keep(s->world->xrcds, xrcd);
	return xrcd;
}

struct hdl_mr *make_mr(struct side *s, size_t offset, size_t length, uint32_t access)
{
	struct hdl_mr *mr;
	assert_int_equal(hdl_mr_register(s->pd, s->mem + offset, length, access, &mr), 0);
	keep_mr(s->world, mr);
	return mr;
}

struct hdl_mr *make_empty_mr(struct side *s, uint32_t max_pages)
{
	struct hdl_mr *mr;
	assert_int_equal(hdl_mr_alloc(s->pd, max_pages, &mr), 0);
	keep_mr(s->world, mr);
	return mr;
}

struct hdl_mw *make_mw(struct side *s, uint32_t type)
{
	struct hdl_mw *mw;
	assert_int_equal(hdl_mw_alloc(s->pd, type, &mw), 0);
	keep(s->world->mws, mw);
	return mw;
}

struct hdl_ah *make_ah(struct side *s, const struct hdl_ah_attr *attr)
{
	struct hdl_ah *ah;
	assert_int_equal(hdl_ah_create(s->pd, attr, &ah), 0);
	keep(s->world->ahs, ah);
	return ah;
}

/* --- queue pairs --- */

static uint32_t or_else(uint32_t value, uint32_t otherwise)
{
	return value != 0 ? value : otherwise;
}

static const struct qp_options no_options;

struct hdl_qp *make_qp(struct side *s, const struct qp_options *o)
{
	if (o == NULL)
		o = &no_options;
	if (s->world->port->lossy && (o->type == HDL_QP_UC || o->type == HDL_QP_UD))
		skip(); /* lost messages stay lost: the simulator checks those that arrive */
	if (s->world->port->stream && or_else(o->type, HDL_QP_RC) != HDL_QP_RC)
		skip(); /* iWARP has reliable connections alone */
	if (s->world->port->cells && or_else(o->type, HDL_QP_RC) != HDL_QP_RC &&
	    o->type != HDL_QP_UC)
		skip(); /* datagrams of cells are shorter: tests/unit/transport/cells_channels.c */
	struct hdl_qp_init_attr init = {.type = or_else(o->type, HDL_QP_RC),
	                                .send_cq = o->scq != NULL ? o->scq : s->scq,
	                                .recv_cq = o->rcq != NULL ? o->rcq : s->rcq,
	                                .srq = o->srq,
	                                .xrcd = o->xrcd,
	                                .rdd = o->rdd,
	                                .cap = {.max_send_wr = or_else(o->cap.max_send_wr, 16),
	                                        .max_recv_wr = or_else(o->cap.max_recv_wr, 16),
	                                        .max_send_sge = or_else(o->cap.max_send_sge, 4),
	                                        .max_recv_sge = or_else(o->cap.max_recv_sge, 4),
	                                        .max_inline = or_else(o->cap.max_inline, 64)},
	                                .signal_all = o->signal_all,
	                                .register_on_send = o->register_on_send,
	                                .remote_windows_only = o->windows_only,
	                                .register_error = o->register_error};
	struct hdl_qp *qp;
	struct hdl_pd *pd = o->pd != NULL ? o->pd : s->pd;
	assert_int_equal(hdl_qp_create(o->type == HDL_QP_XRC_TGT ? NULL : pd, &init, &qp), 0);
	keep(s->world->qps, qp);
	return qp;
}

void drop_qp(struct world *w, struct hdl_qp *qp)
{
	forget_object(w, qp);
	assert_int_equal(hdl_qp_destroy(qp), 0);
}

static uint32_t type_of(struct hdl_qp *qp)
{
	struct hdl_qp_attr attr;
	struct hdl_qp_init_attr init;
	assert_int_equal(hdl_qp_query(qp, &attr, &init), 0);
	return init.type;
}

enum hdl_qp_state qp_state_of(struct hdl_qp *qp)
{
	struct hdl_qp_attr attr;
	assert_int_equal(hdl_qp_query(qp, &attr, NULL), 0);
	return attr.state;
}

void qp_to_init(struct hdl_qp *qp, const struct qp_options *o)
{
	if (o == NULL)
		o = &no_options;
	bool ud = type_of(qp) == HDL_QP_UD;
	struct hdl_qp_attr attr = {.state = HDL_QPS_INIT,
	                           .port_num = 1,
	                           .qkey = o->qkey,
	                           .access = o->no_access ? 0 : or_else(o->access, REMOTE_ALL)};
	assert_int_equal(hdl_qp_modify(qp, &attr,
	                               HDL_QP_STATE | HDL_QP_PKEY_INDEX | HDL_QP_PORT |
	                                       (ud ? HDL_QP_QKEY : HDL_QP_ACCESS)),
	                 0);
}

void qp_to_rtr(struct hdl_qp *qp, const struct qp_options *o, const struct hdl_gid *gid,
               uint32_t dest)
{
	if (o == NULL)
		o = &no_options;
	uint32_t type = type_of(qp), mask = HDL_QP_STATE;
	struct hdl_qp_attr attr = {
	        .state = HDL_QPS_RTR,
	        .ah = {.dgid = *gid, .port_num = 1, .is_global = true},
	        .path_mtu = 4096,
	        .dest_qpn = dest,
	        .rq_psn = 1234,
	        .max_dest_rd_atomic =
	                o->no_dest_rd_atomic ? 0 : (uint8_t)or_else(o->max_rd_atomic, 4),
	        .min_rnr_timer = (uint8_t)or_else(o->min_rnr_timer, 1)};
	if (type != HDL_QP_UD)
		mask |= HDL_QP_AV | HDL_QP_PATH_MTU | HDL_QP_DEST_QPN | HDL_QP_RQ_PSN;
	if (type == HDL_QP_RC || type == HDL_QP_XRC_TGT)
		mask |= HDL_QP_MAX_DEST_RD_ATOMIC | HDL_QP_MIN_RNR_TIMER;
	assert_int_equal(hdl_qp_modify(qp, &attr, mask), 0);
}

void qp_to_rts(struct hdl_qp *qp, const struct qp_options *o)
{
	if (o == NULL)
		o = &no_options;
	uint32_t mask = HDL_QP_STATE | HDL_QP_SQ_PSN;
	struct hdl_qp_attr attr = {
	        .state = HDL_QPS_RTS,
	        .sq_psn = 1234 + o->psn_ahead,
	        .timeout = o->wait_for_ever
	                           ? 0
	                           : (uint8_t)or_else(o->timeout, conform_port->lossy ? 8 : 16),
	        .retry_cnt = o->no_retry ? 0 : (uint8_t)or_else(o->retry_cnt, 7),
	        .rnr_retry = o->no_rnr_retry ? 0 : (uint8_t)or_else(o->rnr_retry, 7),
	        .max_rd_atomic = o->no_rd_atomic ? 0 : (uint8_t)or_else(o->max_rd_atomic, 4)};
	uint32_t type = type_of(qp);
	if (type == HDL_QP_RC || type == HDL_QP_XRC_INI)
		mask |= HDL_QP_TIMEOUT | HDL_QP_RETRY_CNT | HDL_QP_RNR_RETRY | HDL_QP_MAX_RD_ATOMIC;
	if (type == HDL_QP_XRC_TGT)
		mask |= HDL_QP_TIMEOUT;
	assert_int_equal(hdl_qp_modify(qp, &attr, mask), 0);
}

void qp_go(struct hdl_qp *qp, enum hdl_qp_state state)
{
	struct hdl_qp_attr attr = {.state = state};
	assert_int_equal(hdl_qp_modify(qp, &attr, HDL_QP_STATE), 0);
}

void connect_pair(struct world *w, const struct qp_options *o, struct hdl_qp *qa, struct hdl_qp *qb)
{
	qp_to_init(qa, o);
	qp_to_init(qb, o);
	qp_to_rtr(qa, o, &w->b.gid, hdl_qp_number(qb));
	qp_to_rtr(qb, o, &w->a.gid, hdl_qp_number(qa));
	qp_to_rts(qa, o);
	qp_to_rts(qb, o);
	if (w->port->attach != NULL && type_of(qa) == HDL_QP_RC)
		w->port->attach(w, qa, qb);
}

void make_pair(struct world *w, const struct qp_options *o, struct hdl_qp **qa, struct hdl_qp **qb)
{
	*qa = make_qp(&w->a, o);
	*qb = make_qp(&w->b, o);
	connect_pair(w, o, *qa, *qb);
}
