/* A program that is not linked to libibverbs: it loads the library while it runs, finds calls by
 * their names, and by names and versions that only newer releases of rdma-core than the one at hand
 * have. */
#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <infiniband/verbs.h>

#undef ibv_reg_mr

static void *library;

static void *find(const char *name, const char *version)
{
	void *call = version != NULL ? dlvsym(library, name, version) : dlsym(library, name);
	if (call == NULL)
		print_message("%s@%s is missing\n", name, version != NULL ? version : "");
	return call;
}

/* Call @name with the arguments that follow, as the type of the name's declaration. */
#define CALL(name) ((__typeof__(&(name)))find(#name, NULL))

struct loop {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char bytes[256];
};

/* A queue pair that is connected to itself. */
static void loop_open(struct loop *loop)
{
	int count;
	struct ibv_device **list = CALL(ibv_get_device_list)(&count);
	assert_true(count > 0);
	loop->context = CALL(ibv_open_device)(list[0]);
	CALL(ibv_free_device_list)(list);
	assert_non_null(loop->context);
	loop->pd = CALL(ibv_alloc_pd)(loop->context);
	loop->cq = CALL(ibv_create_cq)(loop->context, 8, NULL, NULL, 0);
	loop->mr = CALL(ibv_reg_mr)(loop->pd, loop->bytes, sizeof(loop->bytes),
	                            IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(loop->mr);
	struct ibv_qp_init_attr init = {
	        .send_cq = loop->cq,
	        .recv_cq = loop->cq,
	        .qp_type = IBV_QPT_RC,
	        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
	loop->qp = CALL(ibv_create_qp)(loop->pd, &init);
	assert_non_null(loop->qp);
	union ibv_gid gid;
	assert_int_equal(CALL(ibv_query_gid)(loop->context, 1, 0, &gid), 0);
	struct ibv_qp_attr attr = {
	        .qp_state = IBV_QPS_INIT,
	        .port_num = 1,
	        .path_mtu = IBV_MTU_1024,
	        .dest_qp_num = loop->qp->qp_num,
	        .timeout = 14,
	        .retry_cnt = 7,
	        .ah_attr = {.grh = {.dgid = gid, .hop_limit = 1}, .is_global = 1, .port_num = 1}};
	__typeof__(&ibv_modify_qp) modify = CALL(ibv_modify_qp);
	assert_int_equal(
	        modify(loop->qp, &attr,
	               IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
	        0);
	attr.qp_state = IBV_QPS_RTR;
	assert_int_equal(modify(loop->qp, &attr,
	                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
	                                IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
	                                IBV_QP_MIN_RNR_TIMER),
	                 0);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(modify(loop->qp, &attr,
	                        IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
	                                IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
	                 0);
}

static void loop_close(struct loop *loop)
{
	assert_int_equal(CALL(ibv_destroy_qp)(loop->qp), 0);
	assert_int_equal(CALL(ibv_destroy_cq)(loop->cq), 0);
	assert_int_equal(CALL(ibv_dereg_mr)(loop->mr), 0);
	assert_int_equal(CALL(ibv_dealloc_pd)(loop->pd), 0);
	assert_int_equal(CALL(ibv_close_device)(loop->context), 0);
}

static void wait_for(struct loop *loop, int count)
{
	struct ibv_wc wc;
	time_t end = time(NULL) + 20;
	while (count > 0) {
		int found = ibv_poll_cq(loop->cq, 1, &wc);
		assert_true(found >= 0 && time(NULL) < end);
		if (found > 0) {
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			count--;
		}
	}
}

static void send_to_itself(void)
{
	struct loop loop = {.bytes = "loaded while it runs"};
	loop_open(&loop);
	struct ibv_sge from = {(uintptr_t)loop.bytes, 64, loop.mr->lkey},
	               to = {(uintptr_t)loop.bytes + 128, 64, loop.mr->lkey};
	struct ibv_recv_wr recv = {.sg_list = &to, .num_sge = 1}, *bad_recv;
	struct ibv_send_wr send = {.sg_list = &from,
	                           .num_sge = 1,
	                           .opcode = IBV_WR_SEND,
	                           .send_flags = IBV_SEND_SIGNALED},
	                   *bad_send;
	assert_int_equal(ibv_post_recv(loop.qp, &recv, &bad_recv), 0);
	assert_int_equal(ibv_post_send(loop.qp, &send, &bad_send), 0);
	wait_for(&loop, 2);
	assert_string_equal(loop.bytes + 128, "loaded while it runs");
	loop_close(&loop);
}

static void a_loaded_library_works_and_again_after_it_was_closed(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
		assert_non_null(library);
		send_to_itself();
		assert_int_equal(dlclose(library), 0);
	}
	library = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_GLOBAL);
	assert_non_null(library);
	/* The program, which was loaded before it, sees the files of the device. */
	FILE *file = fopen("/sys/class/infiniband/heddle0/node_type", "r");
	assert_non_null(file);
	fclose(file);
}

/* Stock librdmacm, loaded later still. */
static void librdmacm_may_be_loaded_too(void **state)
{
	(void)state;
	void *cm = dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL);
	if (cm == NULL) {
		print_message("skipped: %s\n", dlerror());
		skip();
	}
	void *(*create)(void) = (void *(*)(void))dlsym(cm, "rdma_create_event_channel");
	void (*destroy)(void *) = (void (*)(void *))dlsym(cm, "rdma_destroy_event_channel");
	assert_non_null(create);
	assert_non_null(destroy);
	void *channel = create();
	assert_non_null(channel);
	destroy(channel);
}

/* --- names of newer releases --- */

#define NODES 5
static const char *const nodes[NODES] = {"IBVERBS_PRIVATE_34", "IBVERBS_PRIVATE_57",
                                         "IBVERBS_PRIVATE_59", "IBVERBS_PRIVATE_64",
                                         "IBVERBS_PRIVATE_65"};

/* What drivers' libraries bind, and the first of the nodes that has it in any of the releases that
 * it is the node of: a node gains names without a new number (rdma-core 49, 53 and 62), and drivers
 * of the later release bind them under the old one. */
static const struct {
	const char *name;
	int since;
} private_names[] = {
        {"__ioctl_final_num_attrs", 0},
        {"__verbs_log", 0},
        {"_verbs_init_and_alloc_context", 0},
        {"execute_ioctl", 0},
        {"ibv_cmd_advise_mr", 0},
        {"ibv_cmd_alloc_dm", 0},
        {"ibv_cmd_alloc_mw", 0},
        {"ibv_cmd_alloc_pd", 0},
        {"ibv_cmd_attach_mcast", 0},
        {"ibv_cmd_close_xrcd", 0},
        {"ibv_cmd_create_ah", 0},
        {"ibv_cmd_create_counters", 0},
        {"ibv_cmd_create_cq", 0},
        {"ibv_cmd_create_cq_ex", 0},
        {"ibv_cmd_create_flow", 0},
        {"ibv_cmd_create_flow_action_esp", 0},
        {"ibv_cmd_create_qp", 0},
        {"ibv_cmd_create_qp_ex", 0},
        {"ibv_cmd_create_qp_ex2", 0},
        {"ibv_cmd_create_rwq_ind_table", 0},
        {"ibv_cmd_create_srq", 0},
        {"ibv_cmd_create_srq_ex", 0},
        {"ibv_cmd_create_wq", 0},
        {"ibv_cmd_dealloc_mw", 0},
        {"ibv_cmd_dealloc_pd", 0},
        {"ibv_cmd_dereg_mr", 0},
        {"ibv_cmd_destroy_ah", 0},
        {"ibv_cmd_destroy_counters", 0},
        {"ibv_cmd_destroy_cq", 0},
        {"ibv_cmd_destroy_flow", 0},
        {"ibv_cmd_destroy_flow_action", 0},
        {"ibv_cmd_destroy_qp", 0},
        {"ibv_cmd_destroy_rwq_ind_table", 0},
        {"ibv_cmd_destroy_srq", 0},
        {"ibv_cmd_destroy_wq", 0},
        {"ibv_cmd_detach_mcast", 0},
        {"ibv_cmd_free_dm", 0},
        {"ibv_cmd_get_context", 0},
        {"ibv_cmd_modify_cq", 0},
        {"ibv_cmd_modify_flow_action_esp", 0},
        {"ibv_cmd_modify_qp", 0},
        {"ibv_cmd_modify_qp_ex", 0},
        {"ibv_cmd_modify_srq", 0},
        {"ibv_cmd_modify_wq", 0},
        {"ibv_cmd_open_qp", 0},
        {"ibv_cmd_open_xrcd", 0},
        {"ibv_cmd_poll_cq", 0},
        {"ibv_cmd_post_recv", 0},
        {"ibv_cmd_post_send", 0},
        {"ibv_cmd_post_srq_recv", 0},
        {"ibv_cmd_query_context", 0},
        {"ibv_cmd_query_device_any", 0},
        {"ibv_cmd_query_mr", 0},
        {"ibv_cmd_query_port", 0},
        {"ibv_cmd_query_qp", 0},
        {"ibv_cmd_query_srq", 0},
        {"ibv_cmd_read_counters", 0},
        {"ibv_cmd_reg_dm_mr", 0},
        {"ibv_cmd_reg_dmabuf_mr", 0},
        {"ibv_cmd_reg_mr", 0},
        {"ibv_cmd_req_notify_cq", 0},
        {"ibv_cmd_rereg_mr", 0},
        {"ibv_cmd_resize_cq", 0},
        {"ibv_query_gid_type", 0},
        {"ibv_read_ibdev_sysfs_file", 0},
        {"verbs_allow_disassociate_destroy", 0},
        {"verbs_init_cq", 0},
        {"verbs_open_device", 0},
        {"verbs_set_ops", 0},
        {"verbs_uninit_context", 0},
        {"ibv_cmd_create_cq_ex2", 0},
        {"ibv_wr_opcode_str", 0},
        {"ibv_cmd_alloc_dmah", 2},
        {"ibv_cmd_free_dmah", 2},
        {"ibv_cmd_reg_mr_ex", 2},
        {"ibv_cmd_export_dmabuf_fd", 2},
        {"ibv_cmd_query_port_speed", 2},
        {"ibv_dmabuf_heap_alloc", 3},
        {"ibv_dmabuf_heap_cc_shared_init", 3},
        {"ibv_dmabuf_heap_destroy", 3},
        {"ibv_dmabuf_heap_free", 3},
        {"ibv_cmd_create_comp_cntr", 4},
        {"ibv_cmd_destroy_comp_cntr", 4},
        {"ibv_cmd_inc_comp_cntr", 4},
        {"ibv_cmd_inc_err_comp_cntr", 4},
        {"ibv_cmd_qp_attach_comp_cntr", 4},
        {"ibv_cmd_query_comp_cntr_caps", 4},
        {"ibv_cmd_read_comp_cntr", 4},
        {"ibv_cmd_read_err_comp_cntr", 4},
        {"ibv_cmd_set_comp_cntr", 4},
        {"ibv_cmd_set_err_comp_cntr", 4},
};

static const struct {
	const char *name, *node;
} public_names[] = {
        {"ibv_get_device_list", "IBVERBS_1.0"},
        {"ibv_get_device_list", "IBVERBS_1.1"},
        {"ibv_query_qp_data_in_order", "IBVERBS_1.14"},
        {"ibv_alloc_dmah", "IBVERBS_1.15"},
        {"ibv_dealloc_dmah", "IBVERBS_1.15"},
        {"ibv_reg_mr_ex", "IBVERBS_1.15"},
        {"ibv_dm_export_dmabuf_fd", "IBVERBS_1.16"},
        {"ibv_query_port_speed", "IBVERBS_1.16"},
        {"ibv_alloc_buf", "IBVERBS_1.17"},
        {"ibv_free_buf", "IBVERBS_1.17"},
        {"ibv_reg_buf_mr", "IBVERBS_1.17"},
        {"_ibv_query_comp_cntr_caps", "IBVERBS_1.18"},
        {"ibv_create_comp_cntr", "IBVERBS_1.18"},
        {"ibv_destroy_comp_cntr", "IBVERBS_1.18"},
        {"ibv_export_buf_dmabuf_fd", "IBVERBS_1.18"},
        {"ibv_inc_comp_cntr", "IBVERBS_1.18"},
        {"ibv_inc_err_comp_cntr", "IBVERBS_1.18"},
        {"ibv_qp_attach_comp_cntr", "IBVERBS_1.18"},
        {"ibv_read_comp_cntr", "IBVERBS_1.18"},
        {"ibv_read_err_comp_cntr", "IBVERBS_1.18"},
        {"ibv_set_comp_cntr", "IBVERBS_1.18"},
        {"ibv_set_err_comp_cntr", "IBVERBS_1.18"},
};

static void names_of_all_releases_are_there(void **state)
{
	(void)state;
	int missing = 0;
	for (size_t i = 0; i < sizeof(private_names) / sizeof(private_names[0]); i++)
		for (int node = private_names[i].since; node < NODES; node++)
			missing += find(private_names[i].name, nodes[node]) == NULL;
	for (int node = 0; node < NODES; node++) {
		char name[64];
		snprintf(name, sizeof(name), "verbs_register_driver_%s",
		         strrchr(nodes[node], '_') + 1);
		void (*enter)(void *) = (void (*)(void *))find(name, nodes[node]);
		missing += enter == NULL;
		if (enter != NULL)
			enter(NULL); /* as a driver's constructor does */
	}
	for (size_t i = 0; i < sizeof(public_names) / sizeof(public_names[0]); i++)
		missing += find(public_names[i].name, public_names[i].node) == NULL;
	assert_int_equal(missing, 0);
}

/* struct ibv_mr_init_attr of rdma-core 64. */
struct newer_mr {
	size_t length;
	int access;
	uint64_t comp_mask, iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	void *dmah, *buf;
};

enum { MASK_IOVA = 1, MASK_ADDR = 2, MASK_FD = 4, MASK_DMAH = 16 };

static void newer_calls_do_what_they_say(void **state)
{
	(void)state;
	struct loop loop = {.context = NULL};
	loop_open(&loop);
	struct ibv_mr *(*reg_mr_ex)(struct ibv_pd *, struct newer_mr *) =
	        (struct ibv_mr * (*)(struct ibv_pd *, struct newer_mr *))
	                find("ibv_reg_mr_ex", NULL);
	struct newer_mr attr = {.length = 64,
	                        .access = IBV_ACCESS_LOCAL_WRITE,
	                        .comp_mask = MASK_ADDR | MASK_IOVA,
	                        .iova = 4096,
	                        .addr = loop.bytes};
	struct ibv_mr *mr = reg_mr_ex(loop.pd, &attr);
	assert_non_null(mr);
	assert_ptr_equal(mr->addr, loop.bytes);
	assert_int_equal(CALL(ibv_dereg_mr)(mr), 0);
	static const struct {
		uint64_t mask;
		int error;
	} refused[] = {{MASK_FD, EOPNOTSUPP},
	               {MASK_ADDR | MASK_DMAH, EOPNOTSUPP},
	               {MASK_ADDR | 1u << 20, EOPNOTSUPP},
	               {MASK_IOVA, EINVAL}};
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		attr.comp_mask = refused[i].mask;
		assert_null(reg_mr_ex(loop.pd, &attr));
		assert_int_equal(errno, refused[i].error);
	}

	uint64_t speed = 0;
	int (*port_speed)(struct ibv_context *, uint32_t, uint64_t *) =
	        (int (*)(struct ibv_context *, uint32_t, uint64_t *))find("ibv_query_port_speed",
	                                                                  NULL);
	assert_int_equal(port_speed(loop.context, 1, &speed), 0);
	assert_int_equal(speed, 1000);
	assert_int_equal(port_speed(loop.context, 2, &speed), EINVAL);

	void *buffer;
	void *(*alloc_buf)(struct ibv_pd *, size_t, void **) =
	        (void *(*)(struct ibv_pd *, size_t, void **))find("ibv_alloc_buf", NULL);
	struct ibv_mr *(*reg_buf)(struct ibv_pd *, void *, void *, size_t, int) =
	        (struct ibv_mr * (*)(struct ibv_pd *, void *, void *, size_t, int))
	                find("ibv_reg_buf_mr", NULL);
	void (*free_buf)(void *) = (void (*)(void *))find("ibv_free_buf", NULL);
	char *bytes = alloc_buf(loop.pd, 10000, &buffer);
	assert_non_null(bytes);
	assert_int_equal((uintptr_t)bytes % 4096, 0);
	memset(bytes, 1, 10000);
	mr = reg_buf(loop.pd, buffer, bytes + 100, 9900, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(mr);
	assert_int_equal(CALL(ibv_dereg_mr)(mr), 0);
	assert_null(reg_buf(loop.pd, buffer, bytes + 100, 9901, IBV_ACCESS_LOCAL_WRITE));
	assert_null(reg_buf(loop.pd, buffer, bytes - 1, 10, IBV_ACCESS_LOCAL_WRITE));
	assert_int_equal(errno, EINVAL);
	free_buf(buffer);

	void *(*no_counter)(struct ibv_context *, void *) =
	        (void *(*)(struct ibv_context *, void *))find("ibv_create_comp_cntr", NULL);
	errno = 0;
	assert_null(no_counter(loop.context, &speed));
	assert_int_equal(errno, EOPNOTSUPP);
	loop_close(&loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_loaded_library_works_and_again_after_it_was_closed),
	        cmocka_unit_test(librdmacm_may_be_loaded_too),
	        cmocka_unit_test(names_of_all_releases_are_there),
	        cmocka_unit_test(newer_calls_do_what_they_say),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
