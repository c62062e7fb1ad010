/* 'datagrams': hosts that send each other reliable datagrams, RDMA and atomics through end-to-end
 * contexts, over a network with faults. MISSION SN2, X4. Judged: every request completes once; what
 * succeeded was delivered once, in the order of its queue pair and context, with the right bytes;
 * one message is in flight a context; what fails is a message, unless the peer does not answer. */
#include "datagrams.h"

#include <stdlib.h>
#include <string.h>

#include "guard.h"
#include "place.h"

#define LOAD_NS    3000000u
#define END_NS     400000000u
#define MAX_EVENTS 2000000u

#define ALL_ACCESS                                                                 \
	(HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE | HDL_ACCESS_REMOTE_READ | \
	 HDL_ACCESS_REMOTE_WRITE | HDL_ACCESS_REMOTE_ATOMIC)

uint32_t dg_draw(struct dg *w, uint32_t bound)
{
	return (uint32_t)prng_below(&w->prng, bound);
}

uint8_t dg_byte(uint32_t id, uint32_t at)
{
	return (uint8_t)(id * 37 + at * 11 + at / 239);
}

/* --- the network --- */

static void out(void *context, const struct path *path, const uint8_t *payload, size_t bytes)
{
	struct dg_host *from = context;
	struct dg *w = from->world;
	uint8_t data[CABLE_BYTES];
	if (w->over)
		return;
	size_t all = cable_pack(data, path, payload, bytes);
	dg_check_sent(w, from, payload, bytes);
	for (uint32_t i = 0; i < w->host_count; i++)
		if (memcmp(w->hosts[i].gid.raw, path->ip.dgid, 16) == 0)
			sim_send(w->sim, from->index, i, data, all);
}

static bool room(void *context)
{
	struct dg_host *host = context;
	return sim_in_flight(host->world->sim) + 8 < DG_PACKETS &&
	       !prng_chance(&host->world->prng, host->world->busy_permille);
}

static void arrive(void *context, struct sim *sim, uint32_t index, uint32_t from,
                   const void *packet, size_t bytes)
{
	struct dg *w = context;
	const uint8_t *payload;
	struct path came;
	size_t payload_bytes;
	(void)sim;
	(void)from;
	if (dg_raw_arrive(w, &w->hosts[index], packet, bytes) ||
	    !cable_unpack(packet, bytes, &came, &payload, &payload_bytes))
		return;
	dg_check_came(w, &w->hosts[index], &came, payload, payload_bytes);
	adapter_take(w->hosts[index].adapter, &came, false, payload, payload_bytes);
}

static void draw_network(struct dg *w)
{
	struct sim_link link = {.delay_min_ns = dg_draw(w, 4000),
	                        .reorder_ns = 1 + dg_draw(w, 60000),
	                        .flip_bits_max = 4};
	link.delay_max_ns = link.delay_min_ns + dg_draw(w, 8000);
	if (!w->faultless) {
		link.loss_permille = dg_draw(w, 3) == 0 ? 0 : dg_draw(w, 150);
		link.duplicate_permille = dg_draw(w, 3) == 0 ? 0 : dg_draw(w, 200);
		link.reorder_permille = dg_draw(w, 3) == 0 ? 0 : dg_draw(w, 200);
		link.flip_permille = dg_draw(w, 3) == 0 ? 0 : dg_draw(w, 30);
		w->damages = link.flip_permille > 0;
		w->busy_permille = dg_draw(w, 3) == 0 ? dg_draw(w, 200) : 0;
	}
	sim_link_set_all(w->sim, &link);
}

static void heal(struct dg *w)
{
	static const struct sim_link healthy = {.delay_min_ns = 1000, .delay_max_ns = 2000};
	sim_heal(w->sim);
	w->busy_permille = 0;
	sim_link_set_all(w->sim, &healthy);
}

/* --- objects --- */

static void must(struct dg *w, int result, const char *what)
{
	if (result != 0)
		scenario_fail(w->run, "%s: %d", what, result);
}

void dg_ready_qp(struct dg *w, struct dg_qp *qp)
{
	struct hdl_qp_attr attr = {.state = HDL_QPS_INIT,
	                           .port_num = 1,
	                           .qkey = DG_QKEY,
	                           .access = HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE |
	                                     HDL_ACCESS_REMOTE_ATOMIC,
	                           .min_rnr_timer = 1};
	must(w,
	     hdl_qp_modify(qp->qp, &attr,
	                   HDL_QP_STATE | HDL_QP_PKEY_INDEX | HDL_QP_PORT | HDL_QP_QKEY |
	                           HDL_QP_ACCESS | HDL_QP_MIN_RNR_TIMER),
	     "INIT");
	attr.state = HDL_QPS_RTR;
	must(w, hdl_qp_modify(qp->qp, &attr, HDL_QP_STATE), "RTR");
	attr.state = HDL_QPS_RTS;
	must(w, hdl_qp_modify(qp->qp, &attr, HDL_QP_STATE), "RTS");
}

static uint64_t now(void *context)
{
	return sim_now_ns(context);
}

static void furnish(struct dg *w, struct dg_host *host)
{
	struct sim_host_ops ops = {.receive = arrive};
	struct hdl_open_attr attr = {
	        .max_qp = 64, .max_mr = 64, .no_thread = true, .gid = {{0xfd, [15] = 1}}};
	attr.gid.raw[14] = (uint8_t)host->index;
	host->gid = attr.gid;
	struct adapter_env env = {.clock = {now, w->sim},
	                          .seed = prng_next(&w->prng) | 1,
	                          .carrier = &host->cable.carrier};
	env.no_fast_path = env.seed >> 32 & 1;
	cable_init(&host->cable, out, room, host);
	sim_host_attach(w->sim, host->index, &ops, w);
	must(w, adapter_open(&attr, &env, &host->adapter), "open");
	must(w, hdl_pd_create(host->adapter, &host->pd), "pd");
	must(w, hdl_rdd_open(host->adapter, &host->rdd), "rdd");
	must(w, hdl_cq_create(host->adapter, 4096, NULL, NULL, &host->cq), "cq");
	host->mem = place_take(host->index, sizeof(*host->mem));
	if (host->mem == NULL)
		abort();
	for (uint32_t i = 0; i < sizeof(host->mem->pattern); i++)
		host->mem->pattern[i] = dg_byte(host->index, i);
	must(w, hdl_mr_register(host->pd, host->mem, sizeof(*host->mem), ALL_ACCESS, &host->mr),
	     "mr");
	for (uint32_t i = 0; i < w->qp_count; i++) {
		struct dg_qp *qp = &host->qps[i];
		struct hdl_qp_init_attr init = {.type = HDL_QP_RD,
		                                .send_cq = host->cq,
		                                .recv_cq = host->cq,
		                                .rdd = host->rdd,
		                                .cap = {16, DG_RECVS, 1, 1, 64}};
		*qp = (struct dg_qp){.host = host, .index = i};
		must(w, hdl_qp_create(host->pd, &init, &qp->qp), "qp");
		dg_ready_qp(w, qp);
	}
	dg_raw_make(w, host);
	for (uint32_t i = 0; i < w->host_count; i++)
		if (i != host->index)
			must(w, hdl_eec_create(host->rdd, &host->eecs[i].eec), "eec");
}

static void connect_hosts(struct dg *w, struct dg_host *host, struct dg_host *peer)
{
	struct hdl_eec *eec = host->eecs[peer->index].eec;
	struct hdl_qp_attr attr = {
	        .state = HDL_QPS_INIT,
	        .port_num = 1,
	        .ah = {.dgid = peer->gid, .port_num = 1, .is_global = true, .hop_limit = 64},
	        .path_mtu = 256,
	        .dest_qpn = hdl_eec_number(peer->eecs[host->index].eec),
	        .rq_psn = (0xfffff0 + peer->index) & 0xffffff,
	        .sq_psn = (0xfffff0 + host->index) & 0xffffff,
	        .max_dest_rd_atomic = 1,
	        .max_rd_atomic = 1,
	        .timeout = 7,
	        .retry_cnt = 7,
	        .rnr_retry = w->rnr_retry};
	host->eecs[peer->index].high = attr.sq_psn;
	must(w, hdl_eec_modify(eec, &attr, HDL_QP_STATE | HDL_QP_PKEY_INDEX | HDL_QP_PORT),
	     "context INIT");
	attr.state = HDL_QPS_RTR;
	must(w,
	     hdl_eec_modify(eec, &attr,
	                    HDL_QP_STATE | HDL_QP_AV | HDL_QP_PATH_MTU | HDL_QP_DEST_QPN |
	                            HDL_QP_RQ_PSN | HDL_QP_MAX_DEST_RD_ATOMIC),
	     "context RTR");
	attr.state = HDL_QPS_RTS;
	must(w,
	     hdl_eec_modify(eec, &attr,
	                    HDL_QP_STATE | HDL_QP_SQ_PSN | HDL_QP_TIMEOUT | HDL_QP_RETRY_CNT |
	                            HDL_QP_RNR_RETRY | HDL_QP_MAX_RD_ATOMIC),
	     "context RTS");
}

static void clear_away(struct dg *w)
{
	w->over = true;
	for (uint32_t h = 0; h < w->host_count; h++) {
		struct dg_host *host = &w->hosts[h];
		must(w, hdl_qp_destroy(host->raw), "destroy");
		for (uint32_t i = 0; i < w->qp_count; i++)
			must(w, hdl_qp_destroy(host->qps[i].qp), "destroy");
		for (uint32_t i = 0; i < w->host_count; i++)
			if (host->eecs[i].eec != NULL)
				must(w, hdl_eec_destroy(host->eecs[i].eec), "destroy context");
		must(w, hdl_mr_deregister(host->mr), "deregister");
		must(w, hdl_cq_destroy(host->cq), "destroy cq");
		must(w, hdl_rdd_close(host->rdd), "close domain");
		must(w, hdl_pd_destroy(host->pd), "destroy pd");
		must(w, hdl_close(host->adapter), "close");
		place_give(host->mem, sizeof(*host->mem));
	}
}

/* --- the load --- */

static void post_receive(struct dg *w, struct dg_qp *qp)
{
	for (uint32_t i = 0; i < DG_RECVS; i++) {
		struct dg_recv *recv = &qp->recvs[i];
		if (recv->posted)
			continue;
		struct hdl_sge piece = {(uintptr_t)qp->host->mem->recv[qp->index][i], DG_RECV_BYTES,
		                        hdl_mr_key(qp->host->mr)};
		struct hdl_recv_wr wr = {.wr_id = DG_RECV_ID | i, .sg_list = &piece, .num_sge = 1};
		recv->posted = true;
		must(w, hdl_post_recv(qp->qp, &wr, NULL), "receive");
		return;
	}
}

static void fill(struct dg *w, struct dg_request *r, struct hdl_send_wr *wr, struct hdl_sge *piece)
{
	struct dg_host *host = r->qp->host, *peer = r->to->host;
	uint32_t id = (uint32_t)(r - w->requests);
	uint8_t *data = host->mem->data[id];
	*piece = (struct hdl_sge){(uintptr_t)data, r->length, hdl_mr_key(host->mr)};
	*wr = (struct hdl_send_wr){
	        .wr_id = id,
	        .flags = HDL_SEND_SIGNALED,
	        .sg_list = piece,
	        .num_sge = 1,
	        .rd = {host->eecs[peer->index].eec, hdl_qp_number(r->to->qp), DG_QKEY}};
	for (uint32_t i = 0; i < r->length; i++)
		data[i] = dg_byte(id, i);
	uint32_t key = hdl_mr_key(peer->mr).v;
	switch (r->kind) {
	case DG_WRITE:
	case DG_WRITE_NO_RIGHT:
		wr->opcode = HDL_OP_WRITE;
		wr->u.rdma.addr = (uintptr_t)peer->mem->written[id];
		wr->u.rdma.key.v = r->kind == DG_WRITE ? key : key ^ 1;
		break;
	case DG_READ:
		wr->opcode = HDL_OP_READ;
		wr->u.rdma.addr = (uintptr_t)peer->mem->pattern;
		wr->u.rdma.key.v = key;
		break;
	case DG_ADD:
		wr->opcode = HDL_OP_FETCH_ADD;
		wr->u.atomic.addr = (uintptr_t)&peer->mem->counter;
		wr->u.atomic.key.v = key;
		wr->u.atomic.compare_add = 1;
		break;
	case DG_SEND_WRONG_KEY:
		wr->rd.qkey ^= 2;
		break;
	case DG_SEND_NOBODY:
		wr->rd.qpn ^= 0x400000;
		break;
	default:
		break;
	}
	if (r->kind <= DG_LAST_SEND) {
		wr->opcode = HDL_OP_SEND_IMM;
		wr->imm = id;
	}
}

static void post_send(struct dg *w, struct dg_qp *qp)
{
	static const uint8_t kinds[] = {
	        DG_SEND, DG_SEND,      DG_SEND,           DG_SEND,        DG_WRITE,         DG_READ,
	        DG_ADD,  DG_SEND_LONG, DG_SEND_WRONG_KEY, DG_SEND_NOBODY, DG_WRITE_NO_RIGHT};
	uint32_t to = dg_draw(w, w->host_count - 1);
	if (w->request_count == w->request_limit)
		return;
	to += to >= qp->host->index;
	struct dg_request *r = &w->requests[w->request_count];
	struct hdl_send_wr wr;
	struct hdl_sge piece;
	*r = (struct dg_request){.qp = qp,
	                         .to = &w->hosts[to].qps[dg_draw(w, w->qp_count)],
	                         .kind = kinds[dg_draw(w, w->errors ? sizeof(kinds) : 7)],
	                         .disturbed = qp->disturbed};
	r->length = r->kind == DG_ADD ? 8
	            : r->kind == DG_SEND_LONG
	                    ? DG_RECV_BYTES + 1 + dg_draw(w, DG_BYTES - DG_RECV_BYTES)
	            : dg_draw(w, 3) == 0 ? dg_draw(w, 64)
	                                 : dg_draw(w, DG_RECV_BYTES + 1);
	if (r->length == 0 && r->kind == DG_WRITE_NO_RIGHT)
		r->length = 1; /* nothing may be written anywhere */
	fill(w, r, &wr, &piece);
	int result = hdl_post_send(qp->qp, &wr, NULL);
	if (result == -HDL_ENOSPC || result == -HDL_EPERM)
		return; /* full, or reset just now */
	must(w, result, "send");
	r->order = ++qp->posted[to];
	w->request_count++;
}

/* A queue pair is ended and begun anew, with whatever is under way to and from it. */
static void disturb(struct dg *w, struct dg_qp *qp)
{
	struct hdl_qp_attr attr = {.state = HDL_QPS_ERR};
	must(w, hdl_qp_modify(qp->qp, &attr, HDL_QP_STATE), "ERR");
	qp->disturbed++;
	w->disturbances++;
	dg_poll(w, qp->host);
	attr.state = HDL_QPS_RESET;
	must(w, hdl_qp_modify(qp->qp, &attr, HDL_QP_STATE), "RESET");
	dg_poll(w, qp->host);
	for (uint32_t i = 0; i < DG_RECVS; i++)
		qp->recvs[i].posted = false;
	dg_ready_qp(w, qp);
}

static void step(struct sim *sim, void *context, uint64_t index)
{
	struct dg *w = context;
	struct dg_host *host = &w->hosts[index];
	bool loading = sim_now_ns(sim) < LOAD_NS;
	if (w->run->failed)
		return;
	hdl_progress(host->adapter);
	dg_poll(w, host);
	struct dg_qp *qp = &host->qps[dg_draw(w, w->qp_count)];
	if (!loading || prng_chance(&w->prng, w->receive_permille))
		post_receive(w, qp);
	dg_raw_receive(w, host);
	if (loading && prng_chance(&w->prng, 50))
		dg_raw_send(w, host);
	if (loading && prng_chance(&w->prng, 300))
		post_send(w, qp);
	if (loading && prng_chance(&w->prng, w->disturb_permille))
		disturb(w, qp);
	if (loading && !w->faultless && prng_chance(&w->prng, 1)) {
		w->loses = true;
		sim_stall(sim, host->index, sim_now_ns(sim) + dg_draw(w, 2000000));
	}
	if (w->answered == w->request_count && !loading)
		return;
	sim_at_host(sim, host->index, sim_now_ns(sim) + 500 + dg_draw(w, 8000), step, w, index);
}

/* --- a world --- */

static void end_of_load(struct sim *sim, void *context, uint64_t arg)
{
	(void)sim;
	(void)arg;
	heal(context);
}

static void kill_host(struct sim *sim, void *context, uint64_t host)
{
	struct dg *w = context;
	w->hosts[host].dead = true;
	w->loses = true;
	sim_kill(sim, (uint32_t)host, SIM_DEATH_NODE);
	dg_bury(w, &w->hosts[host]);
}

static void populate(struct dg *w)
{
	for (uint32_t i = 0; i < w->host_count; i++) {
		w->hosts[i].world = w;
		w->hosts[i].index = i;
		furnish(w, &w->hosts[i]);
	}
	for (uint32_t i = 0; i < w->host_count; i++)
		for (uint32_t j = 0; j < w->host_count && !w->run->failed; j++)
			if (i != j)
				connect_hosts(w, &w->hosts[i], &w->hosts[j]);
	draw_network(w);
	for (uint32_t i = 0; i < w->host_count; i++)
		sim_at_host(w->sim, i, dg_draw(w, 5000), step, w, i);
	sim_at(w->sim, LOAD_NS, end_of_load, w, 0);
	if (!w->faultless && w->host_count > 2 && prng_chance(&w->prng, 150))
		sim_at(w->sim, dg_draw(w, LOAD_NS), kill_host, w, dg_draw(w, w->host_count));
}

static void run_datagrams(struct scenario_run *run)
{
	struct dg *w = calloc(1, sizeof(*w));
	if (w == NULL)
		abort();
	run->hash = SIM_FOLD_START;
	w->run = run;
	prng_seed(&w->prng, run->seed * 3 + 1);
	w->host_count = 2 + dg_draw(w, DG_HOSTS - 1);
	w->qp_count = 1 + dg_draw(w, DG_QPS);
	w->request_limit = 20 + dg_draw(w, DG_REQUESTS - 19);
	w->faultless = prng_chance(&w->prng, 250);
	w->loses = !w->faultless;
	w->errors = prng_chance(&w->prng, 600);
	w->rnr_retry = prng_chance(&w->prng, 500) ? 7 : 2;
	w->receive_permille = 300 + dg_draw(w, 700);
	w->disturb_permille = prng_chance(&w->prng, 300) ? 5 : 0;
	struct sim_config config = {.seed = prng_next(&w->prng),
	                            .host_count = w->host_count,
	                            .event_capacity = 256,
	                            .packet_capacity = DG_PACKETS,
	                            .packet_bytes = CABLE_BYTES};
	if (sim_create(&config, &w->sim) != 0)
		abort();
	sim_set_trace(w->sim, scenario_print, run);
	populate(w);
	if (!run->failed && guard_sim_run(w->sim, END_NS, MAX_EVENTS) == SIM_STOP_EVENTS)
		scenario_fail(run, "not at rest after %u events", MAX_EVENTS);
	dg_check_end(w);
	run->hash = sim_fold(run->hash, sim_hash(w->sim));
	if (!run->failed)
		clear_away(w);
	sim_destroy(w->sim);
	free(w);
}

extern const struct scenario scenario_datagrams;
const struct scenario scenario_datagrams = {
        .name = "datagrams",
        .purpose = "reliable datagrams through end-to-end contexts, with faults",
        .run = run_datagrams,
        .test_seeds = 150,
        .twice = 30,
};
