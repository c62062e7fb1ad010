/* MISSION X1: memory as programs that were written on hardware use it: windows with any key,
 * regions of no bytes and of no memory, domains that are other names of a domain, and many regions
 * at once. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

static void windows_take_any_key(void **state)
{
	static const struct pair_how how[] = {{0}, {.send_ops = IBV_QP_EX_WITH_BIND_MW}};
	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct pair *pair = pair_open(&how[i]);
		struct side *a = &pair->a, *b = &pair->b;
		struct ibv_mw *mw = ibv_alloc_mw(b->pd, IBV_MW_TYPE_2);
		uint32_t before = mw->rkey;
		struct ibv_mw_bind_info info = {.mr = b->mr,
		                                .addr = (uintptr_t)b->bytes,
		                                .length = 64,
		                                .mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
		uint32_t low = (before + 5) & 0xff;
		if (how[i].send_ops != 0) {
			struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(b->qp);
			ibv_wr_start(qp);
			qp->wr_id = 1;
			qp->wr_flags = IBV_SEND_SIGNALED;
			ibv_wr_bind_mw(qp, mw, 0xabcdef00u | low, &info);
			assert_int_equal(ibv_wr_complete(qp), 0);
		} else {
			struct ibv_send_wr wr = {.opcode = IBV_WR_BIND_MW,
			                         .send_flags = IBV_SEND_SIGNALED,
			                         .bind_mw = {.mw = mw,
			                                     .rkey = 0xabcdef00u | low,
			                                     .bind_info = info}};
			pair_send(b, &wr);
		}
		pair_done(b);
		assert_true(mw->rkey == ((before & ~0xffu) | low));
		/* And with the whole key the window is there. */
		memset(a->bytes, 'w', 64);
		struct ibv_sge sge = pair_sge(a, 0, 64);
		struct ibv_send_wr wr = {
		        .sg_list = &sge,
		        .num_sge = 1,
		        .opcode = IBV_WR_RDMA_WRITE,
		        .send_flags = IBV_SEND_SIGNALED,
		        .wr.rdma = {.remote_addr = (uintptr_t)b->bytes, .rkey = mw->rkey}};
		if (how[i].send_ops == 0) {
			pair_send(a, &wr);
			pair_done(a);
			assert_int_equal(b->bytes[63], 'w');
		}
		assert_int_equal(ibv_dealloc_mw(mw), 0);
		pair_close(pair);
	}
}

static void a_region_of_no_bytes(void **state)
{
	struct pair *pair = pair_open(NULL);
	struct side *a = &pair->a, *b = &pair->b;
	const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	(void)state;
	struct ibv_mr *own = ibv_reg_mr(a->pd, a->bytes, 0, all),
	              *theirs = ibv_reg_mr(b->pd, b->bytes, 0, all),
	              *nowhere = ibv_reg_mr(a->pd, NULL, 0, 0),
	              *named = ibv_reg_mr_iova2(a->pd, a->bytes, 0, 0x1000, 0);
	assert_non_null(own);
	assert_non_null(theirs);
	assert_non_null(nowhere);
	assert_non_null(named);
	assert_int_equal(own->length, 0);
	struct ibv_sge sge = {.addr = (uintptr_t)a->bytes, .length = 0, .lkey = own->lkey};
	struct ibv_send_wr wr = {
	        .sg_list = &sge,
	        .num_sge = 1,
	        .send_flags = IBV_SEND_SIGNALED,
	        .opcode = IBV_WR_RDMA_WRITE,
	        .wr.rdma = {.remote_addr = (uintptr_t)b->bytes, .rkey = theirs->rkey}};
	pair_send(a, &wr);
	pair_done(a);
	wr.opcode = IBV_WR_RDMA_READ;
	pair_send(a, &wr);
	pair_done(a);
	pair_recv(b, 1, 0, 0);
	wr.opcode = IBV_WR_SEND;
	pair_send(a, &wr);
	pair_done(a);
	assert_int_equal(pair_done(b).byte_len, 0);
	/* One byte is one too many: of the peer's region, and of our own. */
	sge = pair_sge(a, 0, 1);
	wr.opcode = IBV_WR_RDMA_WRITE;
	pair_send(a, &wr);
	assert_int_equal(pair_wait(a).status, IBV_WC_REM_ACCESS_ERR);
	for (struct side *side = a;; side = b) {
		pair_reset(side);
		if (side == b)
			break;
	}
	pair_connect(a, b);
	pair_connect(b, a);
	sge.lkey = own->lkey;
	wr.wr.rdma.rkey = b->mr->rkey;
	pair_send(a, &wr);
	assert_int_equal(pair_wait(a).status, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(ibv_dereg_mr(own), 0);
	assert_int_equal(ibv_dereg_mr(theirs), 0);
	assert_int_equal(ibv_dereg_mr(nowhere), 0);
	assert_int_equal(ibv_dereg_mr(named), 0);
	pair_close(pair);
}

/* A null region takes what nobody wants, of any length at any address, and reads as zeroes. */
static void a_null_region(void **state)
{
	struct pair *pair = pair_open(NULL);
	struct side *a = &pair->a, *b = &pair->b;
	(void)state;
	struct ibv_mr *null = ibv_alloc_null_mr(a->pd);
	assert_non_null(null);
	assert_int_equal((int)null->length, (int)SIZE_MAX);
	static const uint64_t addresses[] = {0, 4095, (uint64_t)1 << 47, UINT64_MAX - PAIR_BYTES};
	for (size_t i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++)
		for (uint32_t length = 1; length <= PAIR_BYTES; length = length * 16) {
			struct ibv_sge sge = {
			        .addr = addresses[i], .length = length, .lkey = null->lkey};
			struct ibv_send_wr wr = {.sg_list = &sge,
			                         .num_sge = 1,
			                         .send_flags = IBV_SEND_SIGNALED,
			                         .opcode = IBV_WR_RDMA_READ,
			                         .wr.rdma = {.remote_addr = (uintptr_t)b->bytes,
			                                     .rkey = b->mr->rkey}};
			memset(b->bytes, 'x', PAIR_BYTES);
			pair_send(a, &wr);
			pair_done(a);
			wr.opcode = IBV_WR_RDMA_WRITE;
			pair_send(a, &wr);
			pair_done(a);
			for (uint32_t at = 0; at < length; at++)
				assert_int_equal(b->bytes[at], 0);
			assert_true(length == PAIR_BYTES || b->bytes[length] == 'x');
			/* A message, which the receiver pulls where it is long. */
			memset(b->bytes, 'x', PAIR_BYTES);
			pair_recv(b, 1, 0, PAIR_BYTES);
			wr.opcode = IBV_WR_SEND;
			pair_send(a, &wr);
			pair_done(a);
			assert_true(pair_done(b).byte_len == length);
			assert_int_equal(b->bytes[length - 1], 0);
			/* And one that comes, half of which is wanted. */
			struct ibv_sge halves[2] = {pair_sge(a, 0, 1), sge};
			struct ibv_recv_wr recv = {.sg_list = halves, .num_sge = 2}, *bad;
			memset(b->bytes, 'y', PAIR_BYTES);
			a->bytes[0] = 0;
			assert_int_equal(ibv_post_recv(a->qp, &recv, &bad), 0);
			struct ibv_sge from = pair_sge(b, 0, length);
			wr.sg_list = &from;
			pair_send(b, &wr);
			pair_done(b);
			assert_true(pair_done(a).byte_len == length);
			assert_int_equal(a->bytes[0], 'y');
		}
	/* It is for the program's own requests. */
	struct ibv_sge sge = pair_sge(b, 0, 8);
	struct ibv_send_wr wr = {.sg_list = &sge,
	                         .num_sge = 1,
	                         .opcode = IBV_WR_RDMA_WRITE,
	                         .wr.rdma = {.remote_addr = 0, .rkey = null->rkey}};
	pair_send(b, &wr);
	assert_int_equal(pair_wait(b).status, IBV_WC_REM_ACCESS_ERR);
	assert_int_not_equal(ibv_rereg_mr(null, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0), 0);
	REFUSED(ibv_dealloc_pd(a->pd), EBUSY);
	assert_int_equal(ibv_dereg_mr(null), 0);
	pair_close(pair);
}

/* --- thread domains --- */

static void parent_domains_are_domains(void **state)
{
	struct pair *pair = pair_open(NULL);
	struct side *a = &pair->a;
	struct ibv_td_init_attr td_init = {0};
	(void)state;
	struct ibv_td *td = ibv_alloc_td(a->context, &td_init);
	assert_non_null(td);
	struct ibv_parent_domain_init_attr init = {.pd = a->pd, .td = td};
	struct ibv_pd *parent = ibv_alloc_parent_domain(a->context, &init);
	assert_non_null(parent);
	REFUSED(ibv_dealloc_td(td), EBUSY);
	/* Whoever brings allocators counts on their being called. */
	init.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
	FAILS(ibv_alloc_parent_domain(a->context, &init), EOPNOTSUPP);
	struct ibv_cq_init_attr_ex cq_init = {.cqe = 8,
	                                      .wc_flags = IBV_WC_STANDARD_FLAGS,
	                                      .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS |
	                                                   IBV_CQ_INIT_ATTR_MASK_PD,
	                                      .flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
	                                      .parent_domain = parent};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(a->context, &cq_init);
	assert_non_null(cq);
	cq_init.parent_domain = a->pd; /* which is none */
	FAILS(ibv_create_cq_ex(a->context, &cq_init), EINVAL);
	/* The queue pair is the parent's, the memory the domain's: they are one. */
	struct ibv_qp_init_attr qp_init = {
	        .send_cq = ibv_cq_ex_to_cq(cq),
	        .recv_cq = ibv_cq_ex_to_cq(cq),
	        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
	        .qp_type = IBV_QPT_RC};
	struct ibv_qp *before = a->qp;
	struct ibv_cq *cq_before = a->cq;
	a->qp = ibv_create_qp(parent, &qp_init);
	a->cq = ibv_cq_ex_to_cq(cq);
	assert_non_null(a->qp);
	assert_ptr_equal(a->qp->pd, parent);
	pair_connect(a, &pair->b);
	pair_reset(&pair->b);
	pair_connect(&pair->b, a);
	struct ibv_sge sge = pair_sge(a, 0, 64);
	struct ibv_send_wr wr = {
	        .sg_list = &sge,
	        .num_sge = 1,
	        .send_flags = IBV_SEND_SIGNALED,
	        .opcode = IBV_WR_RDMA_WRITE,
	        .wr.rdma = {.remote_addr = (uintptr_t)pair->b.bytes, .rkey = pair->b.mr->rkey}};
	memset(a->bytes, 'p', 64);
	pair_send(a, &wr);
	pair_done(a);
	assert_int_equal(pair->b.bytes[63], 'p');
	REFUSED(ibv_dealloc_pd(parent), EBUSY);
	assert_int_equal(ibv_destroy_qp(a->qp), 0);
	a->qp = before;
	REFUSED(ibv_dealloc_pd(parent), EBUSY);
	assert_int_equal(ibv_destroy_cq(a->cq), 0);
	a->cq = cq_before;
	assert_int_equal(ibv_dealloc_pd(parent), 0);
	assert_int_equal(ibv_dealloc_td(td), 0);
	pair_close(pair);
}

/* --- what it costs --- */

enum { ROUNDS = 40, SECTIONS = 2 };

/* For whoever counts our system calls: a section begins, or ends. */
static void section_mark(void)
{
	(void)getppid();
}

/* Register and deregister one of @count memory files, each of which has a descriptor and a mapping;
 * first while there is room for another one that peers map, then where there is none. */
static void register_among(struct ibv_pd *pd, unsigned count)
{
	enum { BYTES = 4096, HELD = 64 };
	int *fds = calloc(count, sizeof(*fds));
	void **rooms = calloc(count, sizeof(*rooms));
	struct ibv_mr *held[HELD], *mr;
	for (unsigned i = 0; i < count; i++) {
		fds[i] = memfd_create("habits", MFD_CLOEXEC);
		assert_true(fds[i] >= 0 && ftruncate(fds[i], BYTES) == 0);
		rooms[i] = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fds[i], 0);
		assert_true(rooms[i] != MAP_FAILED);
	}
	for (int full = 0; full < SECTIONS; full++) {
		for (unsigned i = 0; full && i < HELD; i++)
			assert_non_null(held[i] = ibv_reg_mr(pd, rooms[i], BYTES, 0));
		for (unsigned i = 0; i <= ROUNDS; i++) {
			if (i == 1) /* the first one looks at all descriptors */
				section_mark();
			mr = ibv_reg_mr(pd, rooms[count - 1 - i], BYTES, 0);
			assert_non_null(mr);
			assert_int_equal(ibv_dereg_mr(mr), 0);
		}
		section_mark();
		for (unsigned i = 0; full && i < HELD; i++)
			assert_int_equal(ibv_dereg_mr(held[i]), 0);
	}
	for (unsigned i = 0; i < count; i++) {
		munmap(rooms[i], BYTES);
		close(fds[i]);
	}
	free(fds);
	free(rooms);
}

/* In a child that its parent traces. */
static void register_traced(unsigned count)
{
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
		_exit(77);
	raise(SIGSTOP);
	struct pair *pair = pair_open(NULL);
	register_among(pair->a.pd, count);
	pair_close(pair);
	_exit(0);
}

/* The system calls of each section. False: we may not trace. */
static bool count_calls(unsigned count, unsigned calls[SECTIONS])
{
	int status = 0;
	unsigned marks = 0, stops = 0;
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		register_traced(count);
	memset(calls, 0, SECTIONS * sizeof(calls[0]));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status))
		return false;
	assert_int_equal(
	        ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL), 0);
	for (long signal = 0; ptrace(PTRACE_SYSCALL, pid, NULL, signal) == 0;) {
		struct user_regs_struct registers;
		if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
			break;
		signal = WSTOPSIG(status) == (SIGTRAP | 0x80) ? 0 : WSTOPSIG(status);
		/* Each call stops it twice: before and after. */
		if (signal != 0 || stops++ % 2 == 1)
			continue;
		assert_int_equal(ptrace(PTRACE_GETREGS, pid, NULL, &registers), 0);
		if (registers.orig_rax == SYS_getppid)
			marks++;
		else if (marks % 2 == 1 && marks / 2 < SECTIONS)
			calls[marks / 2]++;
	}
	assert_int_equal(status, 0);
	assert_int_equal(marks, 2 * SECTIONS);
	return true;
}

/* Shared memory costs the same to register whether there is little of it or a lot: the system calls
 * do not grow with the number of mappings and descriptors. */
static void registering_shared_memory_is_flat(void **state)
{
	unsigned few[SECTIONS], many[SECTIONS];
	(void)state;
#ifdef __SANITIZE_THREAD__
	skip(); /* its runtime allows a child of a process with threads none of its own */
#endif
	if (!count_calls(110, few) || !count_calls(880, many)) {
		print_message("no process may be traced here\n");
		skip();
	}
	for (unsigned i = 0; i < SECTIONS; i++) {
		print_message("system calls per registration: %u among few, %u among many\n",
		              few[i] / ROUNDS, many[i] / ROUNDS);
		assert_true(few[i] >= ROUNDS);
		assert_true(many[i] <= few[i] + few[i] / 2);
		assert_true(many[i] <= 30 * ROUNDS);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(windows_take_any_key),
	        cmocka_unit_test(a_region_of_no_bytes),
	        cmocka_unit_test(a_null_region),
	        cmocka_unit_test(parent_domains_are_domains),
	        cmocka_unit_test(registering_shared_memory_is_flat),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
