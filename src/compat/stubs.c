/* Symbols that must be there although nothing behind them is offered.
 *
 * IBVERBS_1.0 is the interface of 2006, with structures of another shape: a program that old finds no device. The symbols
 * of IBVERBS_PRIVATE_34 belong to kernel drivers' libraries (libmlx5, libefa and others), which programs link or load
 * beside us and which bind all of them at start; with no device of theirs they call none but verbs_register_driver_34(), from a
 * constructor. Whoever calls another one is told EOPNOTSUPP. */
#include "compat/compat.h"

#define STUB(name, type, ...)          \
	COMPAT_EXPORT type name(void); \
	type name(void)                \
	{                              \
		__VA_ARGS__;           \
	}
/* The default version of these names is defined elsewhere; this is the one of the old interface. */
#define OLD(name, type, ...)                \
	STUB(old_##name, type, __VA_ARGS__) \
	__asm__(".symver old_" #name "," #name "@IBVERBS_1.0");

#define NOTHING    (void)0
#define NO_POINTER return compat_fail(EOPNOTSUPP)
#define NO_NUMBER           \
	errno = EOPNOTSUPP; \
	return -1
#define NO_ERRNO return EOPNOTSUPP

OLD(ibv_ack_async_event, void, NOTHING)
OLD(ibv_ack_cq_events, void, NOTHING)
OLD(ibv_alloc_pd, void *, NO_POINTER)
OLD(ibv_attach_mcast, int, NO_ERRNO)
OLD(ibv_close_device, int, NO_ERRNO)
OLD(ibv_create_ah, void *, NO_POINTER)
OLD(ibv_create_cq, void *, NO_POINTER)
OLD(ibv_create_qp, void *, NO_POINTER)
OLD(ibv_create_srq, void *, NO_POINTER)
OLD(ibv_dealloc_pd, int, NO_ERRNO)
OLD(ibv_dereg_mr, int, NO_ERRNO)
OLD(ibv_destroy_ah, int, NO_ERRNO)
OLD(ibv_destroy_cq, int, NO_ERRNO)
OLD(ibv_destroy_qp, int, NO_ERRNO)
OLD(ibv_destroy_srq, int, NO_ERRNO)
OLD(ibv_detach_mcast, int, NO_ERRNO)
OLD(ibv_free_device_list, void, NOTHING)
OLD(ibv_get_async_event, int, NO_NUMBER)
OLD(ibv_get_cq_event, int, NO_NUMBER)
OLD(ibv_get_device_guid, void, NOTHING)
OLD(ibv_get_device_list, void *, NO_POINTER)
OLD(ibv_get_device_name, void *, NO_POINTER)
OLD(ibv_modify_qp, int, NO_ERRNO)
OLD(ibv_modify_srq, int, NO_ERRNO)
OLD(ibv_open_device, void *, NO_POINTER)
OLD(ibv_query_device, int, NO_ERRNO)
OLD(ibv_query_gid, int, NO_NUMBER)
OLD(ibv_query_pkey, int, NO_NUMBER)
OLD(ibv_query_port, int, NO_ERRNO)
OLD(ibv_query_qp, int, NO_ERRNO)
OLD(ibv_query_srq, int, NO_ERRNO)
OLD(ibv_reg_mr, void *, NO_POINTER)
OLD(ibv_resize_cq, int, NO_ERRNO)

/* Drivers of before 2017 registered by this call; it is a version of IBVERBS_1.1 that new programs do not see. */
STUB(old_ibv_register_driver, void, NOTHING)
__asm__(".symver old_ibv_register_driver,ibv_register_driver@IBVERBS_1.1");

STUB(__ioctl_final_num_attrs, void, NOTHING)
STUB(__verbs_log, void, NOTHING)
STUB(_verbs_init_and_alloc_context, void *, NO_POINTER)
STUB(execute_ioctl, int, NO_ERRNO)
STUB(ibv_cmd_advise_mr, int, NO_ERRNO)
STUB(ibv_cmd_alloc_dm, int, NO_ERRNO)
STUB(ibv_cmd_alloc_mw, int, NO_ERRNO)
STUB(ibv_cmd_alloc_pd, int, NO_ERRNO)
STUB(ibv_cmd_attach_mcast, int, NO_ERRNO)
STUB(ibv_cmd_close_xrcd, int, NO_ERRNO)
STUB(ibv_cmd_create_ah, int, NO_ERRNO)
STUB(ibv_cmd_create_counters, int, NO_ERRNO)
STUB(ibv_cmd_create_cq, int, NO_ERRNO)
STUB(ibv_cmd_create_cq_ex, int, NO_ERRNO)
STUB(ibv_cmd_create_flow, int, NO_ERRNO)
STUB(ibv_cmd_create_flow_action_esp, int, NO_ERRNO)
STUB(ibv_cmd_create_qp, int, NO_ERRNO)
STUB(ibv_cmd_create_qp_ex, int, NO_ERRNO)
STUB(ibv_cmd_create_qp_ex2, int, NO_ERRNO)
STUB(ibv_cmd_create_rwq_ind_table, int, NO_ERRNO)
STUB(ibv_cmd_create_srq, int, NO_ERRNO)
STUB(ibv_cmd_create_srq_ex, int, NO_ERRNO)
STUB(ibv_cmd_create_wq, int, NO_ERRNO)
STUB(ibv_cmd_dealloc_mw, int, NO_ERRNO)
STUB(ibv_cmd_dealloc_pd, int, NO_ERRNO)
STUB(ibv_cmd_dereg_mr, int, NO_ERRNO)
STUB(ibv_cmd_destroy_ah, int, NO_ERRNO)
STUB(ibv_cmd_destroy_counters, int, NO_ERRNO)
STUB(ibv_cmd_destroy_cq, int, NO_ERRNO)
STUB(ibv_cmd_destroy_flow, int, NO_ERRNO)
STUB(ibv_cmd_destroy_flow_action, int, NO_ERRNO)
STUB(ibv_cmd_destroy_qp, int, NO_ERRNO)
STUB(ibv_cmd_destroy_rwq_ind_table, int, NO_ERRNO)
STUB(ibv_cmd_destroy_srq, int, NO_ERRNO)
STUB(ibv_cmd_destroy_wq, int, NO_ERRNO)
STUB(ibv_cmd_detach_mcast, int, NO_ERRNO)
STUB(ibv_cmd_free_dm, int, NO_ERRNO)
STUB(ibv_cmd_get_context, int, NO_ERRNO)
STUB(ibv_cmd_modify_cq, int, NO_ERRNO)
STUB(ibv_cmd_modify_flow_action_esp, int, NO_ERRNO)
STUB(ibv_cmd_modify_qp, int, NO_ERRNO)
STUB(ibv_cmd_modify_qp_ex, int, NO_ERRNO)
STUB(ibv_cmd_modify_srq, int, NO_ERRNO)
STUB(ibv_cmd_modify_wq, int, NO_ERRNO)
STUB(ibv_cmd_open_qp, int, NO_ERRNO)
STUB(ibv_cmd_open_xrcd, int, NO_ERRNO)
STUB(ibv_cmd_poll_cq, int, NO_ERRNO)
STUB(ibv_cmd_post_recv, int, NO_ERRNO)
STUB(ibv_cmd_post_send, int, NO_ERRNO)
STUB(ibv_cmd_post_srq_recv, int, NO_ERRNO)
STUB(ibv_cmd_query_context, int, NO_ERRNO)
STUB(ibv_cmd_query_device_any, int, NO_ERRNO)
STUB(ibv_cmd_query_mr, int, NO_ERRNO)
STUB(ibv_cmd_query_port, int, NO_ERRNO)
STUB(ibv_cmd_query_qp, int, NO_ERRNO)
STUB(ibv_cmd_query_srq, int, NO_ERRNO)
STUB(ibv_cmd_read_counters, int, NO_ERRNO)
STUB(ibv_cmd_reg_dm_mr, int, NO_ERRNO)
STUB(ibv_cmd_reg_dmabuf_mr, int, NO_ERRNO)
STUB(ibv_cmd_reg_mr, int, NO_ERRNO)
STUB(ibv_cmd_req_notify_cq, int, NO_ERRNO)
STUB(ibv_cmd_rereg_mr, int, NO_ERRNO)
STUB(ibv_cmd_resize_cq, int, NO_ERRNO)
STUB(ibv_read_ibdev_sysfs_file, int, NO_NUMBER)
STUB(verbs_allow_disassociate_destroy, int, NO_ERRNO)
STUB(verbs_init_cq, void, NOTHING)
STUB(verbs_open_device, void *, NO_POINTER)
STUB(verbs_register_driver_34, void, NOTHING)
STUB(verbs_set_ops, void, NOTHING)
STUB(verbs_uninit_context, void, NOTHING)
