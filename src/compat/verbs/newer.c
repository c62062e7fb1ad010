/* What libibverbs gained after rdma-core 44: IBVERBS_1.15 to 1.18. The headers of the build machine
 * may or may not have these calls, so nothing here uses the headers' names; the structures have the
 * same layout as theirs.
 *
 * ibv_reg_mr_ex() and buffers that the library allocates are offered; bus steering handles, dmabuf
 * and completion counters are not. */
#include <stdlib.h>
#include <sys/mman.h>

#include "compat/verbs/stubs.h"

/* The name under which the call is exported; libibverbs.map has its version. */
#define PUBLIC(name) __asm__(#name)
#define NOT_OFFERED(name, type, ...)                     \
	COMPAT_EXPORT type no_##name(void) PUBLIC(name); \
	type no_##name(void)                             \
	{                                                \
		__VA_ARGS__;                             \
	}

enum { MR_IOVA = 1 << 0, MR_ADDR = 1 << 1, MR_BUF = 1 << 5 }; /* enum ibv_mr_init_attr_mask */

/* struct ibv_mr_init_attr, as far as we read it. */
struct mr_init {
	size_t length;
	int access;
	uint64_t comp_mask;
	uint64_t iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	void *dmah;
	struct buffer *buf; /* since IBVERBS_1.17: read only when comp_mask says so */
};
_Static_assert(offsetof(struct mr_init, comp_mask) == 16 && offsetof(struct mr_init, addr) == 32 &&
                       offsetof(struct mr_init, buf) == 64,
               "same layout as in programs");

/* struct ibv_buf, which is opaque to programs. */
struct buffer {
	void *addr;
	size_t length;
};

COMPAT_EXPORT struct ibv_mr *newer_reg_mr_ex(struct ibv_pd *pd, struct mr_init *init)
        PUBLIC(ibv_reg_mr_ex);
struct ibv_mr *newer_reg_mr_ex(struct ibv_pd *pd, struct mr_init *init)
{
	uint64_t mask = init->comp_mask;
	if (mask & ~(uint64_t)(MR_IOVA | MR_ADDR | MR_BUF))
		return compat_fail(
		        EOPNOTSUPP); /* a dmabuf, a handle, or fields of later releases */
	if (!(mask & MR_ADDR))
		return compat_fail(EINVAL);
	if (mask & MR_BUF) {
		uintptr_t offset = (uintptr_t)init->addr - (uintptr_t)init->buf->addr;
		if (offset > init->buf->length || init->length > init->buf->length - offset)
			return compat_fail(EINVAL);
	}
	uint64_t iova = mask & MR_IOVA ? init->iova : (uint64_t)(uintptr_t)init->addr;
	return ibv_reg_mr_iova2(pd, init->addr, init->length, iova, (unsigned)init->access);
}

COMPAT_EXPORT void *newer_alloc_buf(struct ibv_pd *pd, size_t length, struct buffer **out)
        PUBLIC(ibv_alloc_buf);
void *newer_alloc_buf(struct ibv_pd *pd, size_t length, struct buffer **out)
{
	(void)pd;
	struct buffer *buffer = malloc(sizeof(*buffer));
	if (buffer == NULL)
		return compat_fail(ENOMEM);
	buffer->length = length;
	buffer->addr =
	        mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (buffer->addr == MAP_FAILED) {
		int error = errno;
		free(buffer);
		return compat_fail(error);
	}
	*out = buffer;
	return buffer->addr;
}

COMPAT_EXPORT void newer_free_buf(struct buffer *buffer) PUBLIC(ibv_free_buf);
void newer_free_buf(struct buffer *buffer)
{
	munmap(buffer->addr, buffer->length);
	free(buffer);
}

COMPAT_EXPORT struct ibv_mr *newer_reg_buf_mr(struct ibv_pd *pd, struct buffer *buffer, void *addr,
                                              size_t length, int access) PUBLIC(ibv_reg_buf_mr);
struct ibv_mr *newer_reg_buf_mr(struct ibv_pd *pd, struct buffer *buffer, void *addr, size_t length,
                                int access)
{
	struct mr_init init = {.length = length,
	                       .access = access,
	                       .comp_mask = MR_ADDR | MR_BUF,
	                       .addr = addr,
	                       .buf = buffer};
	return newer_reg_mr_ex(pd, &init);
}

COMPAT_EXPORT int newer_query_port_speed(struct ibv_context *context, uint32_t port,
                                         uint64_t *speed) PUBLIC(ibv_query_port_speed);
int newer_query_port_speed(struct ibv_context *context, uint32_t port, uint64_t *speed)
{
	(void)context;
	if (port != COMPAT_PORT)
		return EINVAL;
	*speed = COMPAT_PORT_SPEED;
	return 0;
}

NOT_OFFERED(ibv_alloc_dmah, void *, NO_POINTER)
NOT_OFFERED(ibv_dealloc_dmah, int, NO_ERRNO)
NOT_OFFERED(ibv_dm_export_dmabuf_fd, int, NO_NUMBER)
NOT_OFFERED(_ibv_query_comp_cntr_caps, int, NO_ERRNO)
NOT_OFFERED(ibv_create_comp_cntr, void *, NO_POINTER)
NOT_OFFERED(ibv_destroy_comp_cntr, int, NO_ERRNO)
NOT_OFFERED(ibv_export_buf_dmabuf_fd, int, NO_NUMBER)
NOT_OFFERED(ibv_inc_comp_cntr, int, NO_ERRNO)
NOT_OFFERED(ibv_inc_err_comp_cntr, int, NO_ERRNO)
NOT_OFFERED(ibv_qp_attach_comp_cntr, int, NO_ERRNO)
NOT_OFFERED(ibv_read_comp_cntr, int, NO_ERRNO)
NOT_OFFERED(ibv_read_err_comp_cntr, int, NO_ERRNO)
NOT_OFFERED(ibv_set_comp_cntr, int, NO_ERRNO)
NOT_OFFERED(ibv_set_err_comp_cntr, int, NO_ERRNO)
