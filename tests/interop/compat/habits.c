/* MISSION X1: what programs that were written on hardware count on, though no manual page promises
 * it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

static struct ibv_xrcd *open_domain(struct ibv_context *context)
{
	struct ibv_xrcd_init_attr attr = {.comp_mask =
	                                          IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
	                                  .fd = -1,
	                                  .oflags = O_CREAT};
	return ibv_open_xrcd(context, &attr);
}

/* --- objects --- */

static void busy_objects_set_errno(void **state)
{
	struct pair *pair = pair_open(NULL);
	struct side *a = &pair->a;
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 1, .max_sge = 1}};
	(void)state;
	REFUSED(ibv_dealloc_pd(a->pd), EBUSY);
	REFUSED(ibv_destroy_cq(a->cq), EBUSY);
	REFUSED(ibv_destroy_comp_channel(a->channel), EBUSY);
	struct ibv_srq *srq = ibv_create_srq(a->pd, &init);
	struct ibv_qp_init_attr qp = {
	        .send_cq = a->cq, .recv_cq = a->cq, .srq = srq, .qp_type = IBV_QPT_RC};
	struct ibv_qp *user = ibv_create_qp(a->pd, &qp);
	assert_non_null(user);
	REFUSED(ibv_destroy_srq(srq), EBUSY);
	struct ibv_xrcd *xrcd = open_domain(a->context);
	struct ibv_qp_init_attr_ex target = {
	        .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = xrcd};
	struct ibv_qp *receiver = ibv_create_qp_ex(a->context, &target);
	assert_non_null(receiver);
	REFUSED(ibv_close_xrcd(xrcd), EBUSY);
	/* A refusal leaves the object as it was. */
	assert_int_equal(ibv_destroy_qp(receiver), 0);
	assert_int_equal(ibv_close_xrcd(xrcd), 0);
	assert_int_equal(ibv_destroy_qp(user), 0);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	pair_close(pair);
}

/* The pointer of an object that has gone is kept aside from the compiler, which warns of its use.
 */
#define GONE(pointer) ((void *)(uintptr_t)(number = (uintptr_t)(pointer)))

static void destroying_twice_is_refused(void **state)
{
	struct pair *pair = pair_open(NULL);
	struct ibv_context *context = pair->a.context;
	volatile uintptr_t number;
	(void)state;
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 1, NULL, NULL, 0);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 1, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(pd, &srq_init);
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	char byte;
	struct ibv_mr *mr = ibv_reg_mr(pd, &byte, 1, 0);
	struct ibv_ah_attr address = {
	        .is_global = 1, .grh = {.dgid = pair->b.gid, .hop_limit = 1}, .port_num = 1};
	struct ibv_ah *ah = ibv_create_ah(pd, &address);
	struct ibv_xrcd *xrcd = open_domain(context);
	uintptr_t was;
#define TWICE(destroy, object)                        \
	do {                                          \
		was = (uintptr_t)(object);            \
		assert_int_equal(destroy(object), 0); \
		REFUSED(destroy(GONE(was)), EINVAL);  \
	} while (0)
	uintptr_t qp_was = (uintptr_t)qp, pd_was = (uintptr_t)pd, cq_was = (uintptr_t)cq;
	TWICE(ibv_destroy_ah, ah);
	TWICE(ibv_dereg_mr, mr);
	TWICE(ibv_destroy_qp, qp);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	REFUSED(ibv_modify_qp(GONE(qp_was), &attr, IBV_QP_STATE), EINVAL);
	REFUSED(ibv_query_qp(GONE(qp_was), &attr, IBV_QP_STATE, &init), EINVAL);
	TWICE(ibv_destroy_srq, srq);
	TWICE(ibv_destroy_cq, cq);
	TWICE(ibv_destroy_comp_channel, channel);
	TWICE(ibv_dealloc_pd, pd);
	/* Nor can anything be made with them. */
	FAILS(ibv_reg_mr(GONE(pd_was), &byte, 1, 0), EINVAL);
	init.send_cq = init.recv_cq = GONE(cq_was);
	FAILS(ibv_create_qp(pair->a.pd, &init), EINVAL);
	/* ibv_close_xrcd() and ibv_dealloc_mw() look into the object before the library is asked: a
	 * copy can be told. */
	struct ibv_xrcd other = *xrcd;
	REFUSED(ibv_close_xrcd(&other), EINVAL);
	assert_int_equal(ibv_close_xrcd(xrcd), 0);
	pair_close(pair);
}

static unsigned open_files(void)
{
	unsigned count = 0;
	DIR *files = opendir("/proc/self/fd");
	assert_non_null(files);
	while (readdir(files) != NULL)
		count++;
	closedir(files);
	return count;
}

/* A program may have as many channels as it has descriptors left, and their numbers are low. */
static void a_channel_takes_one_descriptor(void **state)
{
	enum { CHANNELS = 64 };
	struct pair *pair = pair_open(NULL);
	struct ibv_comp_channel *channels[CHANNELS];
	(void)state;
	unsigned before = open_files();
	for (unsigned i = 0; i < CHANNELS; i++) {
		int next = dup(0);
		close(next);
		channels[i] = ibv_create_comp_channel(pair->a.context);
		assert_non_null(channels[i]);
		assert_int_equal(channels[i]->fd, next);
		assert_int_equal(fcntl(channels[i]->fd, F_GETFL) & O_NONBLOCK, 0);
		assert_int_equal(fcntl(channels[i]->fd, F_GETFD), FD_CLOEXEC);
	}
	assert_int_equal(open_files(), before + CHANNELS);
	for (unsigned i = 0; i < CHANNELS; i++)
		assert_int_equal(ibv_destroy_comp_channel(channels[i]), 0);
	assert_int_equal(open_files(), before);
	pair_close(pair);
}

static void copies_are_not_objects(void **state)
{
	struct pair *pair = pair_open(NULL);
	struct side *a = &pair->a;
	struct ibv_pd pd = *a->pd;
	struct ibv_mr mr = *a->mr;
	struct ibv_comp_channel channel = *a->channel;
	struct ibv_mw *window = ibv_alloc_mw(a->pd, IBV_MW_TYPE_2), mw = *window;
	struct ibv_cq *cq = malloc(sizeof(*cq));
	struct ibv_qp *qp = malloc(sizeof(*qp));
	memcpy(cq, a->cq, sizeof(*cq));
	memcpy(qp, a->qp, sizeof(*qp));
	(void)state;
	REFUSED(ibv_dealloc_pd(&pd), EINVAL);
	REFUSED(ibv_dereg_mr(&mr), EINVAL);
	REFUSED(ibv_dealloc_mw(&mw), EINVAL);
	REFUSED(ibv_destroy_comp_channel(&channel), EINVAL);
	REFUSED(ibv_destroy_cq(cq), EINVAL);
	REFUSED(ibv_destroy_qp(qp), EINVAL);
	FAILS(ibv_reg_mr(&pd, a->bytes, 1, 0), EINVAL);
	free(cq);
	free(qp);
	/* The objects themselves are none the worse for it. */
	assert_int_equal(ibv_dealloc_mw(window), 0);
	pair_close(pair);
}

static void no_domain_is_an_error(void **state)
{
	struct pair *pair = pair_open(NULL);
	struct side *a = &pair->a;
	struct ibv_qp_init_attr init = {.send_cq = a->cq, .recv_cq = a->cq, .qp_type = IBV_QPT_RC};
	struct ibv_qp_init_attr_ex init_ex = {.send_cq = a->cq,
	                                      .recv_cq = a->cq,
	                                      .qp_type = IBV_QPT_RC,
	                                      .comp_mask = IBV_QP_INIT_ATTR_PD};
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 1, .max_sge = 1}};
	struct ibv_srq_init_attr_ex srq_ex = {.attr = {.max_wr = 1, .max_sge = 1},
	                                      .comp_mask = IBV_SRQ_INIT_ATTR_PD};
	struct ibv_ah_attr address = {
	        .is_global = 1, .grh = {.dgid = pair->b.gid, .hop_limit = 1}, .port_num = 1};
	struct ibv_wc wc = {0};
	struct ibv_grh grh = {0};
	struct ibv_parent_domain_init_attr parent = {0};
	/* Called by their names: the header declares that a domain is always there. */
	struct ibv_mr *(*reg)(struct ibv_pd *, void *, size_t, uint64_t, unsigned) =
	        ibv_reg_mr_iova2;
	struct ibv_pd *volatile none = NULL;
	(void)state;
	FAILS(reg(none, a->bytes, 1, 0, 0), EINVAL);
	FAILS(ibv_create_qp(none, &init), EINVAL);
	FAILS(ibv_create_qp_ex(a->context, &init_ex), EINVAL);
	FAILS(ibv_create_srq(none, &srq), EINVAL);
	FAILS(ibv_create_srq_ex(a->context, &srq_ex), EINVAL);
	FAILS(ibv_create_ah(none, &address), EINVAL);
	FAILS(ibv_create_ah_from_wc(none, &wc, &grh, 1), EINVAL);
	FAILS(ibv_alloc_parent_domain(a->context, &parent), EINVAL);
	REFUSED(ibv_dealloc_pd(none), EINVAL);
	assert_int_equal(ibv_rereg_mr(a->mr, IBV_REREG_MR_CHANGE_PD, none, NULL, 0, 0) != 0 &&
	                         errno == EINVAL,
	                 1);
	pair_close(pair);
}

/* rdma_xserver makes its shared receive queue with the domain that it finds in the queue pair. */
static void a_target_shows_the_domain_it_was_given(void **state)
{
	struct pair *pair = pair_open(NULL);
	struct side *a = &pair->a;
	struct ibv_xrcd *xrcd = open_domain(a->context);
	struct ibv_qp_init_attr_ex init = {.qp_type = IBV_QPT_XRC_RECV,
	                                   .comp_mask = IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_PD,
	                                   .pd = a->pd,
	                                   .xrcd = xrcd};
	(void)state;
	struct ibv_qp *qp = ibv_create_qp_ex(a->context, &init);
	assert_non_null(qp);
	assert_ptr_equal(qp->pd, a->pd);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_close_xrcd(xrcd), 0);
	pair_close(pair);
}

/* --- queue pairs --- */

/* An end of XRC has no use for half of what a connection needs; the kernel drops that half. */
static void xrc_drops_what_it_has_no_use_for(void **state)
{
	struct pair *pair = pair_open(NULL);
	struct side *a = &pair->a;
	struct ibv_xrcd *xrcd = open_domain(a->context);
	struct ibv_qp_init_attr_ex target = {.qp_type = IBV_QPT_XRC_RECV,
	                                     .comp_mask = IBV_QP_INIT_ATTR_XRCD,
	                                     .xrcd = xrcd},
	                           initiator = {.send_cq = a->cq,
	                                        .cap = {.max_send_wr = 1, .max_send_sge = 1},
	                                        .qp_type = IBV_QPT_XRC_SEND,
	                                        .comp_mask = IBV_QP_INIT_ATTR_PD,
	                                        .pd = a->pd};
	struct ibv_qp *ends[2] = {ibv_create_qp_ex(a->context, &initiator),
	                          ibv_create_qp_ex(a->context, &target)};
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
		assert_int_equal(ibv_modify_qp(ends[i], &attr,
		                               IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		                                       IBV_QP_ACCESS_FLAGS),
		                 0);
		attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
		                            .path_mtu = IBV_MTU_1024,
		                            .dest_qp_num = ends[!i]->qp_num,
		                            .max_dest_rd_atomic = 1,
		                            .min_rnr_timer = 1,
		                            .ah_attr = {.is_global = 1,
		                                        .grh = {.dgid = a->gid, .hop_limit = 1},
		                                        .port_num = 1}};
		assert_int_equal(ibv_modify_qp(ends[i], &attr,
		                               IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
		                                       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		                                       IBV_QP_MAX_DEST_RD_ATOMIC |
		                                       IBV_QP_MIN_RNR_TIMER),
		                 0);
		attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
		                            .timeout = 14,
		                            .retry_cnt = 7,
		                            .rnr_retry = 7,
		                            .max_rd_atomic = 1};
		assert_int_equal(ibv_modify_qp(ends[i], &attr,
		                               IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN |
		                                       IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		                                       IBV_QP_MAX_QP_RD_ATOMIC),
		                 0);
	}
	/* The half that it has a use for is still judged. */
	struct ibv_qp_attr attr = {.min_rnr_timer = 1, .qp_access_flags = 0};
	assert_int_equal(ibv_modify_qp(ends[0], &attr, IBV_QP_DEST_QPN), EINVAL);
	assert_int_equal(ibv_destroy_qp(ends[0]), 0);
	assert_int_equal(ibv_destroy_qp(ends[1]), 0);
	assert_int_equal(ibv_close_xrcd(xrcd), 0);
	pair_close(pair);
}

/* rdma_xclient asks for no inline data, and sends 16 bytes so. */
static void inline_space_is_rounded_up(void **state)
{
	struct pair *pair = pair_open(NULL);
	struct side *a = &pair->a;
	(void)state;
	for (uint32_t asked = 0; asked <= 1024; asked += 97) {
		struct ibv_qp_init_attr init = {
		        .send_cq = a->cq,
		        .recv_cq = a->cq,
		        .cap = {.max_send_wr = 1, .max_send_sge = 1, .max_inline_data = asked},
		        .qp_type = IBV_QPT_RC};
		struct ibv_qp *qp = ibv_create_qp(a->pd, &init);
		assert_non_null(qp);
		assert_true(init.cap.max_inline_data >= asked);
		assert_true(init.cap.max_inline_data >= 28); /* as mlx5, with one piece */
		struct ibv_qp_attr attr;
		assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_CAP, &init), 0);
		assert_true(attr.cap.max_inline_data == init.cap.max_inline_data);
		assert_int_equal(ibv_destroy_qp(qp), 0);
	}
	struct ibv_qp_init_attr init = {.send_cq = a->cq,
	                                .recv_cq = a->cq,
	                                .cap = {.max_send_wr = 1, .max_send_sge = 1},
	                                .qp_type = IBV_QPT_RC};
	assert_int_equal(ibv_destroy_qp(a->qp), 0);
	a->qp = ibv_create_qp(a->pd, &init);
	pair_connect(a, &pair->b);
	pair_reset(&pair->b);
	pair_connect(&pair->b, a);
	char words[16] = "fifteen letters";
	struct ibv_sge sge = {.addr = (uintptr_t)words, .length = sizeof(words)};
	struct ibv_send_wr wr = {.sg_list = &sge,
	                         .num_sge = 1,
	                         .opcode = IBV_WR_SEND,
	                         .send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED};
	pair_recv(&pair->b, 1, 0, 64);
	pair_send(a, &wr);
	pair_done(a);
	pair_done(&pair->b);
	assert_string_equal((char *)pair->b.bytes, words);
	pair_close(pair);
}

static void the_state_is_refreshed_when_it_is_asked_for(void **state)
{
	struct pair *pair = pair_open(NULL);
	struct ibv_qp *qp = pair->a.qp;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	(void)state;
	/* Into the error state without ibv_modify_qp(): a write with a key that is nobody's. */
	struct ibv_sge sge = pair_sge(&pair->a, 0, 8);
	struct ibv_send_wr wr = {.sg_list = &sge,
	                         .num_sge = 1,
	                         .opcode = IBV_WR_RDMA_WRITE,
	                         .wr.rdma = {.remote_addr = 8, .rkey = 8}};
	pair_send(&pair->a, &wr);
	assert_int_not_equal(pair_wait(&pair->a).status, IBV_WC_SUCCESS);
	assert_int_equal(qp->state, IBV_QPS_RTS);
	assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_CAP, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_ERR);
	assert_int_equal(qp->state, IBV_QPS_RTS);
	assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(qp->state, IBV_QPS_ERR);
	pair_close(pair);
}

static void acknowledged_events_are_counted(void **state)
{
	struct pair *pair = pair_open(NULL);
	struct side *b = &pair->b;
	struct ibv_cq *cq;
	void *context;
	(void)state;
	for (uint32_t i = 0; i < 3; i++) {
		struct ibv_sge sge = pair_sge(&pair->a, 0, 8);
		struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
		assert_int_equal(ibv_req_notify_cq(b->cq, 0), 0);
		pair_recv(b, i, 0, 64);
		pair_send(&pair->a, &wr);
		assert_int_equal(ibv_get_cq_event(b->channel, &cq, &context), 0);
		assert_ptr_equal(cq, b->cq);
		assert_int_equal(cq->comp_events_completed, i / 2 * 2);
		if (i == 1)
			ibv_ack_cq_events(cq, 2);
		pair_done(b);
	}
	ibv_ack_cq_events(cq, 1);
	assert_int_equal(cq->comp_events_completed, 3);
	pair_close(pair);
}

/* --- words --- */

/* What a child that runs @does writes to stderr. */
static char *said_by(void (*does)(void))
{
	static char text[65536];
	int ends[2], status;
	assert_int_equal(pipe(ends), 0);
	fflush(stdout);
	fflush(stderr);
	pid_t child = fork();
	if (child == 0) {
		dup2(ends[1], STDERR_FILENO);
		unsetenv("HEDDLE_LOG");
		does();
		_exit(0);
	}
	close(ends[1]);
	size_t length = 0;
	ssize_t got;
	while (length < sizeof(text) - 1 &&
	       (got = read(ends[0], text + length, sizeof(text) - 1 - length)) > 0)
		length += (size_t)got;
	text[length] = '\0';
	close(ends[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	return text;
}

static unsigned count_of(const char *text, const char *what)
{
	unsigned count = 0;
	for (const char *at = strstr(text, what); at != NULL; at = strstr(at + 1, what))
		count++;
	return count;
}

/* As ibv_rc_pingpong does without -g. */
static void connect_without_a_route(void)
{
	struct pair *pair = pair_open(NULL);
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
		                           .path_mtu = IBV_MTU_1024,
		                           .ah_attr = {.dlid = 1, .port_num = 1}};
		if (ibv_modify_qp(pair->a.qp, &attr,
		                  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		                          IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
		                          IBV_QP_MIN_RNR_TIMER) != EINVAL)
			_exit(1);
	}
}

static void send_to_nobody_ready(void)
{
	struct pair *pair = pair_open(NULL);
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_attr attr = {.rnr_retry = 0};
		struct ibv_sge sge = pair_sge(&pair->a, 0, 8);
		struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
		pair_reset(&pair->a);
		pair_reset(&pair->b);
		pair_connect(&pair->a, &pair->b);
		pair_connect(&pair->b, &pair->a);
		attr.qp_state = IBV_QPS_SQD;
		if (ibv_modify_qp(pair->a.qp, &attr, IBV_QP_STATE) != 0)
			_exit(1);
		if (ibv_modify_qp(pair->a.qp, &attr, IBV_QP_RNR_RETRY) != 0)
			_exit(2);
		attr.qp_state = IBV_QPS_RTS;
		if (ibv_modify_qp(pair->a.qp, &attr, IBV_QP_STATE) != 0)
			_exit(3);
		pair_send(&pair->a, &wr);
		if (pair_wait(&pair->a).status != IBV_WC_RNR_RETRY_EXC_ERR)
			_exit(4);
	}
}

static void failures_that_puzzle_are_explained_once(void **state)
{
	(void)state;
	const char *text = said_by(connect_without_a_route);
	if (count_of(text, "logged once") != 1 || strstr(text, "global route") == NULL)
		fail_msg("said: %s", text);
	assert_true(strstr(text, "heddle_ib0") != NULL && strstr(text, "-g") != NULL);
	text = said_by(send_to_nobody_ready);
	if (count_of(text, "logged once") != 1 || strstr(text, "rnr_retry") == NULL)
		fail_msg("said: %s", text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(failures_that_puzzle_are_explained_once), /* first: it forks */
	        cmocka_unit_test(busy_objects_set_errno),
	        cmocka_unit_test(destroying_twice_is_refused),
	        cmocka_unit_test(a_channel_takes_one_descriptor),
	        cmocka_unit_test(copies_are_not_objects),
	        cmocka_unit_test(no_domain_is_an_error),
	        cmocka_unit_test(a_target_shows_the_domain_it_was_given),
	        cmocka_unit_test(xrc_drops_what_it_has_no_use_for),
	        cmocka_unit_test(inline_space_is_rounded_up),
	        cmocka_unit_test(the_state_is_refreshed_when_it_is_asked_for),
	        cmocka_unit_test(acknowledged_events_are_counted),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
