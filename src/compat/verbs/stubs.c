/* Symbols that must exist although nothing behind them is offered.
 *
 * IBVERBS_1.0 is the interface of 2006, with different structures: a program that old finds no
 * device. */
#include "compat/verbs/stubs.h"

/* The default version of these names is defined elsewhere; this one is for the old interface. */
#define OLD(name, type, ...)                \
	STUB(old_##name, type, __VA_ARGS__) \
	__asm__(".symver old_" #name "," #name "@IBVERBS_1.0");

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

/* Drivers from before 2017 registered with this call. Its version is IBVERBS_1.1, which new
 * programs do not see. */
STUB(old_ibv_register_driver, void, NOTHING)
__asm__(".symver old_ibv_register_driver,ibv_register_driver@IBVERBS_1.1");
