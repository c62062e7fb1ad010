/* Symbols for driver libraries.
 *
 * libmlx5, libefa and others, which programs link or load beside us, bind all symbols of the
 * version node IBVERBS_PRIVATE_n when they are loaded, where n is the release of rdma-core that
 * they belong to. Without a device of theirs they call only verbs_register_driver_n(), from a
 * constructor. All other symbols return EOPNOTSUPP.
 *
 * A node can also gain symbols in a release that keeps its number, and a driver of such a release
 * binds them under the old number: ibv_wr_opcode_str is in IBVERBS_PRIVATE_34 since release 49. So
 * each symbol is in the first node that has it in any release.
 *
 * libibverbs.map lists the nodes. Their symbols are listed here, because a map allows a name in one
 * node only. */
#include "compat/verbs/stubs.h"

/* @name of a release: the stub with that name. */
#define VERSION(name, node)                                           \
	COMPAT_EXPORT extern __typeof__(stub_##name) p##node##_##name \
	        __attribute__((alias("stub_" #name)));                \
	__asm__(".symver p" #node "_" #name "," #name "@IBVERBS_PRIVATE_" #node);

#define FROM_65(name) VERSION(name, 65)
#define FROM_64(name) VERSION(name, 64) FROM_65(name)
#define FROM_59(name) VERSION(name, 59) FROM_64(name)
#define FROM_57(name) VERSION(name, 57) FROM_59(name)
#define FROM_34(name) VERSION(name, 34) FROM_57(name)

#define SINCE(node, name, type, ...)         \
	STUB(stub_##name, type, __VA_ARGS__) \
	FROM_##node(name)

/* Two that work. */
COMPAT_EXPORT int stub_ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned index,
                                          int *type);
int stub_ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned index, int *type)
{
	return compat_gid_type(compat_device_of(context), port, index, type);
}
FROM_34(ibv_query_gid_type)

COMPAT_EXPORT const char *stub_ibv_wr_opcode_str(unsigned opcode);
const char *stub_ibv_wr_opcode_str(unsigned opcode)
{
	static const char *const names[] = {
	        [IBV_WR_RDMA_WRITE] = "rdma-write",
	        [IBV_WR_RDMA_WRITE_WITH_IMM] = "rdma-write-with-imm",
	        [IBV_WR_SEND] = "send",
	        [IBV_WR_SEND_WITH_IMM] = "send-with-imm",
	        [IBV_WR_RDMA_READ] = "rdma-read",
	        [IBV_WR_ATOMIC_CMP_AND_SWP] = "atomic-cmp-and-swp",
	        [IBV_WR_ATOMIC_FETCH_AND_ADD] = "atomic-fetch-and-add",
	        [IBV_WR_LOCAL_INV] = "local-inv",
	        [IBV_WR_BIND_MW] = "bind-mw",
	        [IBV_WR_SEND_WITH_INV] = "send-with-inv",
	        [IBV_WR_TSO] = "tso",
	        [IBV_WR_DRIVER1] = "driver1",
	        [14] = "flush", /* IBV_WR_FLUSH */
	        [15] = "atomic-write",
	};
	return opcode < sizeof(names) / sizeof(names[0]) && names[opcode] != NULL ? names[opcode]
	                                                                          : "unknown";
}
FROM_34(ibv_wr_opcode_str)

STUB(verbs_register_driver_34, void, NOTHING)
STUB(verbs_register_driver_57, void, NOTHING)
STUB(verbs_register_driver_59, void, NOTHING)
STUB(verbs_register_driver_64, void, NOTHING)
STUB(verbs_register_driver_65, void, NOTHING)

SINCE(34, __ioctl_final_num_attrs, void, NOTHING)
SINCE(34, __verbs_log, void, NOTHING)
SINCE(34, _verbs_init_and_alloc_context, void *, NO_POINTER)
SINCE(34, execute_ioctl, int, NO_ERRNO)
SINCE(34, ibv_cmd_advise_mr, int, NO_ERRNO)
SINCE(34, ibv_cmd_alloc_dm, int, NO_ERRNO)
SINCE(34, ibv_cmd_alloc_mw, int, NO_ERRNO)
SINCE(34, ibv_cmd_alloc_pd, int, NO_ERRNO)
SINCE(34, ibv_cmd_attach_mcast, int, NO_ERRNO)
SINCE(34, ibv_cmd_close_xrcd, int, NO_ERRNO)
SINCE(34, ibv_cmd_create_ah, int, NO_ERRNO)
SINCE(34, ibv_cmd_create_counters, int, NO_ERRNO)
SINCE(34, ibv_cmd_create_cq, int, NO_ERRNO)
SINCE(34, ibv_cmd_create_cq_ex, int, NO_ERRNO)
SINCE(34, ibv_cmd_create_cq_ex2, int, NO_ERRNO)
SINCE(34, ibv_cmd_create_flow, int, NO_ERRNO)
SINCE(34, ibv_cmd_create_flow_action_esp, int, NO_ERRNO)
SINCE(34, ibv_cmd_create_qp, int, NO_ERRNO)
SINCE(34, ibv_cmd_create_qp_ex, int, NO_ERRNO)
SINCE(34, ibv_cmd_create_qp_ex2, int, NO_ERRNO)
SINCE(34, ibv_cmd_create_rwq_ind_table, int, NO_ERRNO)
SINCE(34, ibv_cmd_create_srq, int, NO_ERRNO)
SINCE(34, ibv_cmd_create_srq_ex, int, NO_ERRNO)
SINCE(34, ibv_cmd_create_wq, int, NO_ERRNO)
SINCE(34, ibv_cmd_dealloc_mw, int, NO_ERRNO)
SINCE(34, ibv_cmd_dealloc_pd, int, NO_ERRNO)
SINCE(34, ibv_cmd_dereg_mr, int, NO_ERRNO)
SINCE(34, ibv_cmd_destroy_ah, int, NO_ERRNO)
SINCE(34, ibv_cmd_destroy_counters, int, NO_ERRNO)
SINCE(34, ibv_cmd_destroy_cq, int, NO_ERRNO)
SINCE(34, ibv_cmd_destroy_flow, int, NO_ERRNO)
SINCE(34, ibv_cmd_destroy_flow_action, int, NO_ERRNO)
SINCE(34, ibv_cmd_destroy_qp, int, NO_ERRNO)
SINCE(34, ibv_cmd_destroy_rwq_ind_table, int, NO_ERRNO)
SINCE(34, ibv_cmd_destroy_srq, int, NO_ERRNO)
SINCE(34, ibv_cmd_destroy_wq, int, NO_ERRNO)
SINCE(34, ibv_cmd_detach_mcast, int, NO_ERRNO)
SINCE(34, ibv_cmd_free_dm, int, NO_ERRNO)
SINCE(34, ibv_cmd_get_context, int, NO_ERRNO)
SINCE(34, ibv_cmd_modify_cq, int, NO_ERRNO)
SINCE(34, ibv_cmd_modify_flow_action_esp, int, NO_ERRNO)
SINCE(34, ibv_cmd_modify_qp, int, NO_ERRNO)
SINCE(34, ibv_cmd_modify_qp_ex, int, NO_ERRNO)
SINCE(34, ibv_cmd_modify_srq, int, NO_ERRNO)
SINCE(34, ibv_cmd_modify_wq, int, NO_ERRNO)
SINCE(34, ibv_cmd_open_qp, int, NO_ERRNO)
SINCE(34, ibv_cmd_open_xrcd, int, NO_ERRNO)
SINCE(34, ibv_cmd_poll_cq, int, NO_ERRNO)
SINCE(34, ibv_cmd_post_recv, int, NO_ERRNO)
SINCE(34, ibv_cmd_post_send, int, NO_ERRNO)
SINCE(34, ibv_cmd_post_srq_recv, int, NO_ERRNO)
SINCE(34, ibv_cmd_query_context, int, NO_ERRNO)
SINCE(34, ibv_cmd_query_device_any, int, NO_ERRNO)
SINCE(34, ibv_cmd_query_mr, int, NO_ERRNO)
SINCE(34, ibv_cmd_query_port, int, NO_ERRNO)
SINCE(34, ibv_cmd_query_qp, int, NO_ERRNO)
SINCE(34, ibv_cmd_query_srq, int, NO_ERRNO)
SINCE(34, ibv_cmd_read_counters, int, NO_ERRNO)
SINCE(34, ibv_cmd_reg_dm_mr, int, NO_ERRNO)
SINCE(34, ibv_cmd_reg_dmabuf_mr, int, NO_ERRNO)
SINCE(34, ibv_cmd_reg_mr, int, NO_ERRNO)
SINCE(34, ibv_cmd_req_notify_cq, int, NO_ERRNO)
SINCE(34, ibv_cmd_rereg_mr, int, NO_ERRNO)
SINCE(34, ibv_cmd_resize_cq, int, NO_ERRNO)
SINCE(34, ibv_read_ibdev_sysfs_file, int, NO_NUMBER)
SINCE(34, verbs_allow_disassociate_destroy, int, NO_ERRNO)
SINCE(34, verbs_init_cq, void, NOTHING)
SINCE(34, verbs_open_device, void *, NO_POINTER)
SINCE(34, verbs_set_ops, void, NOTHING)
SINCE(34, verbs_uninit_context, void, NOTHING)

SINCE(59, ibv_cmd_alloc_dmah, int, NO_ERRNO)
SINCE(59, ibv_cmd_export_dmabuf_fd, int, NO_ERRNO)
SINCE(59, ibv_cmd_free_dmah, int, NO_ERRNO)
SINCE(59, ibv_cmd_query_port_speed, int, NO_ERRNO)
SINCE(59, ibv_cmd_reg_mr_ex, int, NO_ERRNO)

SINCE(64, ibv_dmabuf_heap_alloc, void *, NO_POINTER)
SINCE(64, ibv_dmabuf_heap_cc_shared_init, int, NO_NUMBER)
SINCE(64, ibv_dmabuf_heap_destroy, void, NOTHING)
SINCE(64, ibv_dmabuf_heap_free, void, NOTHING)

SINCE(65, ibv_cmd_create_comp_cntr, int, NO_ERRNO)
SINCE(65, ibv_cmd_destroy_comp_cntr, int, NO_ERRNO)
SINCE(65, ibv_cmd_inc_comp_cntr, int, NO_ERRNO)
SINCE(65, ibv_cmd_inc_err_comp_cntr, int, NO_ERRNO)
SINCE(65, ibv_cmd_qp_attach_comp_cntr, int, NO_ERRNO)
SINCE(65, ibv_cmd_query_comp_cntr_caps, int, NO_ERRNO)
SINCE(65, ibv_cmd_read_comp_cntr, int, NO_ERRNO)
SINCE(65, ibv_cmd_read_err_comp_cntr, int, NO_ERRNO)
SINCE(65, ibv_cmd_set_comp_cntr, int, NO_ERRNO)
SINCE(65, ibv_cmd_set_err_comp_cntr, int, NO_ERRNO)
