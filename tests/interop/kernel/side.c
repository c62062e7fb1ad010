/* One side of a connection; see side.h. */
#include "side.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define LIMIT_MS   60000
#define MEET_TRIES 200 /* to connect, 50 ms apart */

void side_fail(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	fputs("FAILED: ", stdout);
	vprintf(format, arguments);
	va_end(arguments);
	putchar('\n');
	fflush(stdout);
	_exit(1);
}

/* --- The talk over TCP --- */

static int listen_at(const struct addrinfo *where)
{
	int on = 1;
	int listener = socket(where->ai_family, SOCK_STREAM, 0);
	if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
	    bind(listener, where->ai_addr, where->ai_addrlen) < 0 || listen(listener, 1) < 0)
		side_fail("listen: %s", strerror(errno));
	struct pollfd fd = {listener, POLLIN, 0};
	if (poll(&fd, 1, LIMIT_MS) != 1)
		side_fail("nobody came");
	int talk = accept(listener, NULL, NULL);
	close(listener);
	return talk;
}

static int connect_to(const struct addrinfo *where)
{
	for (int i = 0; i < MEET_TRIES; i++) {
		int talk = socket(where->ai_family, SOCK_STREAM, 0);
		if (talk >= 0 && connect(talk, where->ai_addr, where->ai_addrlen) == 0)
			return talk;
		close(talk);
		usleep(50000);
	}
	return -1;
}

static void meet(struct side *side)
{
	struct addrinfo hints = {.ai_family = side->host != NULL ? AF_UNSPEC : AF_INET6,
	                         .ai_socktype = SOCK_STREAM,
	                         .ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV};
	struct addrinfo *where = NULL;
	if (getaddrinfo(side->host, side->port, &hints, &where) != 0)
		side_fail("%s port %s?", side->host != NULL ? side->host : "", side->port);
	side->talk = side->host != NULL ? connect_to(where) : listen_at(where);
	freeaddrinfo(where);
	struct timeval limit = {LIMIT_MS / 1000, 0};
	if (side->talk < 0 ||
	    setsockopt(side->talk, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) < 0)
		side_fail("the sides did not meet: %s", strerror(errno));
}

void side_swap(struct side *side, const void *mine, void *other, size_t bytes)
{
	if (send(side->talk, mine, bytes, MSG_NOSIGNAL) != (ssize_t)bytes ||
	    recv(side->talk, other, bytes, MSG_WAITALL) != (ssize_t)bytes)
		side_fail("the other side is gone");
}

void side_meet(struct side *side)
{
	char mine = '.', other;
	side_swap(side, &mine, &other, 1);
}

/* --- Verbs --- */

static void open_device(struct side *side)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	for (int i = 0; i < count && side->context == NULL; i++)
		if (side->device == NULL || strcmp(ibv_get_device_name(list[i]), side->device) == 0)
			side->context = ibv_open_device(list[i]);
	if (side->context == NULL)
		side_fail("no device %s", side->device != NULL ? side->device : "at all");
	ibv_free_device_list(list);
	struct ibv_port_attr port;
	if (ibv_query_port(side->context, 1, &port) != 0 ||
	    ibv_query_gid(side->context, 1, side->gid_index, &side->mine.gid) != 0)
		side_fail("the port or its GID cannot be asked");
	side->mine.mtu = port.active_mtu;
}

static void make_objects(struct side *side)
{
	const unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
	                        IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC |
	                        IBV_ACCESS_MW_BIND;
	void *memory = NULL;
	if (posix_memalign(&memory, 4096, side->bytes) != 0)
		side_fail("no memory");
	side->memory = memory;
	memset(side->memory, 0, side->bytes);
	side->pd = ibv_alloc_pd(side->context);
	side->channel = ibv_create_comp_channel(side->context);
	if (side->pd == NULL || side->channel == NULL)
		side_fail("no protection domain or no channel");
	side->cq = ibv_create_cq(side->context, 2 * SIDE_DEPTH, NULL, side->channel, 0);
	side->mr = ibv_reg_mr(side->pd, side->memory, side->bytes, access);
	if (side->cq == NULL || side->mr == NULL || ibv_req_notify_cq(side->cq, 0) != 0)
		side_fail("no completion queue or no region");
	side->mine.address = (uintptr_t)side->memory;
	side->mine.rkey = side->mr->rkey;
}

static void make_qp(struct side *side)
{
	struct ibv_qp_init_attr how = {
	        .send_cq = side->cq,
	        .recv_cq = side->cq,
	        .qp_type = side->type,
	        .cap = {SIDE_DEPTH, SIDE_DEPTH, 4, 4, 0},
	};
	side->qp = ibv_create_qp(side->pd, &how);
	if (side->qp == NULL)
		side_fail("no queue pair: %s", strerror(errno));
	struct ibv_qp_attr attr = {
	        .qp_state = IBV_QPS_INIT,
	        .port_num = 1,
	        .qkey = SIDE_QKEY,
	        .qp_access_flags =
	                IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
	};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	mask |= side->type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	if (ibv_modify_qp(side->qp, &attr, mask) != 0)
		side_fail("INIT: %s", strerror(errno));
	side->mine.qpn = side->qp->qp_num;
	side->mine.psn = (uint32_t)random() & 0xffffff;
	/* The last packets before the number starts again are the interesting ones. */
	if (side->host == NULL)
		side->mine.psn |= 0xffff00;
}

static struct ibv_ah_attr path_to_other(const struct side *side)
{
	return (struct ibv_ah_attr){
	        .grh = {.dgid = side->other.gid,
	                .sgid_index = (uint8_t)side->gid_index,
	                .hop_limit = 64},
	        .is_global = 1,
	        .port_num = 1,
	};
}

static void connect_qp(struct side *side)
{
	enum ibv_mtu mtu = side->mine.mtu < side->other.mtu ? side->mine.mtu : side->other.mtu;
	struct ibv_ah_attr path = path_to_other(side);
	struct ibv_qp_attr attr = {
	        .qp_state = IBV_QPS_RTR,
	        .ah_attr = path,
	        .path_mtu = mtu,
	        .dest_qp_num = side->other.qpn,
	        .rq_psn = side->other.psn,
	        .max_dest_rd_atomic = 4,
	        .min_rnr_timer = 12, /* 0.64 ms */
	};
	const bool rc = side->type == IBV_QPT_RC, ud = side->type == IBV_QPT_UD;
	side->mtu_bytes = 128u << mtu;
	int mask = IBV_QP_STATE;
	if (!ud)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (rc)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	if (ibv_modify_qp(side->qp, &attr, mask) != 0)
		side_fail("RTR: %s", strerror(errno));
	attr = (struct ibv_qp_attr){
	        .qp_state = IBV_QPS_RTS,
	        .sq_psn = side->mine.psn,
	        .timeout = side->timeout,
	        .retry_cnt = side->gives_up ? 6 : 7, /* 7 is without end for rdma_rxe */
	        .rnr_retry = 7,
	        .max_rd_atomic = 4,
	};
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (rc)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		        IBV_QP_MAX_QP_RD_ATOMIC;
	if (ibv_modify_qp(side->qp, &attr, mask) != 0)
		side_fail("RTS: %s", strerror(errno));
	if (ud && (side->ah = ibv_create_ah(side->pd, &path)) == NULL)
		side_fail("no address handle");
}

static void connect_both(struct side *side)
{
	if (side->by_cm != NULL) {
		side_cm_connect(side);
		side_meet(side);
		return;
	}
	make_qp(side);
	side_swap(side, &side->mine, &side->other, sizeof(side->mine));
	connect_qp(side);
	side_meet(side);
}

void side_open(struct side *side)
{
	meet(side);
	srandom((unsigned)getpid());
	if (side->by_cm != NULL)
		side_cm_open(side);
	else
		open_device(side);
	make_objects(side);
	connect_both(side);
}

void side_again(struct side *side)
{
	struct ibv_wc wc;
	side_meet(side);
	if (side->by_cm != NULL)
		side_cm_part(side);
	else if (ibv_destroy_qp(side->qp) != 0)
		side_fail("a queue pair stays: %s", strerror(errno));
	while (ibv_poll_cq(side->cq, 1, &wc) > 0)
		;
	connect_both(side);
}

void side_prepare_path(struct side *side)
{
	struct ibv_qp_attr attr = {.alt_ah_attr = path_to_other(side),
	                           .alt_port_num = 1,
	                           .alt_timeout = side->timeout,
	                           .path_mig_state = IBV_MIG_REARM};
	if (ibv_modify_qp(side->qp, &attr, IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE) != 0)
		side_fail("an alternate path: %s", strerror(errno));
}

void side_change_path(struct side *side)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_async_event event;
	/* The other side's packets said so. */
	if (ibv_query_qp(side->qp, &attr, IBV_QP_PATH_MIG_STATE, &init) != 0 ||
	    attr.path_mig_state != IBV_MIG_ARMED)
		side_fail("the alternate path is not armed: %d", attr.path_mig_state);
	attr.path_mig_state = IBV_MIG_MIGRATED;
	if (ibv_modify_qp(side->qp, &attr, IBV_QP_PATH_MIG_STATE) != 0)
		side_fail("migration: %s", strerror(errno));
	do {
		struct pollfd fd = {side->context->async_fd, POLLIN, 0};
		if (poll(&fd, 1, LIMIT_MS) != 1 || ibv_get_async_event(side->context, &event) != 0)
			side_fail("no event tells of the migration");
		ibv_ack_async_event(&event);
	} while (event.event_type != IBV_EVENT_PATH_MIG);
}

void side_close(struct side *side)
{
	side_meet(side);
	if (side->by_cm != NULL)
		side_cm_part(side);
	if ((side->ah != NULL && ibv_destroy_ah(side->ah) != 0) ||
	    (side->qp != NULL && ibv_destroy_qp(side->qp) != 0) || ibv_dereg_mr(side->mr) != 0 ||
	    ibv_destroy_cq(side->cq) != 0 || ibv_destroy_comp_channel(side->channel) != 0 ||
	    ibv_dealloc_pd(side->pd) != 0 ||
	    (side->by_cm == NULL && ibv_close_device(side->context) != 0))
		side_fail("something cannot be closed");
	if (side->by_cm != NULL)
		side_cm_close();
	free(side->memory);
	close(side->talk);
}

struct ibv_wc side_wait(struct side *side)
{
	struct ibv_wc wc;
	struct pollfd fd = {side->channel->fd, POLLIN, 0};
	struct ibv_cq *cq;
	void *context;
	for (;;) {
		int got = ibv_poll_cq(side->cq, 1, &wc);
		if (got < 0)
			side_fail("the completion queue is broken");
		if (got == 1)
			return wc;
		if (poll(&fd, 1, LIMIT_MS) != 1)
			side_fail("no completion within %d s", LIMIT_MS / 1000);
		if (ibv_get_cq_event(side->channel, &cq, &context) != 0)
			side_fail("no event");
		ibv_ack_cq_events(cq, 1);
		if (ibv_req_notify_cq(cq, 0) != 0)
			side_fail("arm");
	}
}

struct ibv_wc side_done(struct side *side, uint64_t wr_id)
{
	struct ibv_wc wc = side_wait(side);
	if (wc.status != IBV_WC_SUCCESS || wc.wr_id != wr_id)
		side_fail("completion of %#lx (waiting for %#lx): %s (detail %u)",
		          (unsigned long)wc.wr_id, (unsigned long)wr_id,
		          ibv_wc_status_str(wc.status), wc.vendor_err);
	return wc;
}

void side_send(struct side *side, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int error = ibv_post_send(side->qp, wr, &bad);
	if (error != 0)
		side_fail("post a request: %s", strerror(error));
}

void side_recv(struct side *side, uint64_t wr_id, struct ibv_sge *list, int count)
{
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = list, .num_sge = count};
	struct ibv_recv_wr *bad;
	int error = ibv_post_recv(side->qp, &wr, &bad);
	if (error != 0)
		side_fail("post a receive: %s", strerror(error));
}
