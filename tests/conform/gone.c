/* SN8: the caller's address space. Memory that does not exist cannot be registered; memory that has
 * gone since makes the operation fail with an asynchronous error, never a crash. */
#include <sys/mman.h>
#include <unistd.h>

#include "conform.h"

#define ROOM (4 * PAGE)

/* The thread sanitizer executes atomics under locks of its own, which a fault inside one would
 * leave held. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SANITIZED_THREADS 1
#endif
#endif
#ifdef __SANITIZE_THREAD__
#define SANITIZED_THREADS 1
#endif
#ifndef SANITIZED_THREADS
#define SANITIZED_THREADS 0
#endif

/* The kernel may reuse an unmapped address for the next mapping of any thread. It puts nothing here
 * unless asked to, so what is unmapped here stays gone. The thread sanitizer allows no mapping
 * here. */
#define LONELY (SANITIZED_THREADS ? NULL : (void *)(uintptr_t)0x200000000000)

static unsigned char *map_room(int rights)
{
	unsigned char *room = mmap(LONELY, ROOM, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(room != MAP_FAILED);
	return room;
}

static void sn8_unmapped_memory_is_refused(void **state)
{
	struct world *w = *state;
	struct hdl_mr *mr;
	unsigned char *room = map_room(PROT_READ | PROT_WRITE);
	assert_int_equal(munmap(room + PAGE, PAGE), 0);
	assert_int_equal(hdl_mr_register(w->a.pd, room, PAGE, LOCAL_BOTH, &mr), 0);
	assert_int_equal(hdl_mr_deregister(mr), 0);
	assert_int_equal(hdl_mr_register(w->a.pd, room, PAGE + 1, LOCAL_BOTH, &mr), -HDL_EFAULT);
	assert_int_equal(hdl_mr_register(w->a.pd, room + PAGE, 1, HDL_ACCESS_LOCAL_READ, &mr),
	                 -HDL_EFAULT);
	assert_int_equal(hdl_mr_register(w->a.pd, room + PAGE + 7, 2 * PAGE, 0, &mr), -HDL_EFAULT);
	assert_int_equal(hdl_mr_register(w->a.pd, (void *)(uintptr_t)16, 64, LOCAL_BOTH, &mr),
	                 -HDL_EFAULT);
	assert_int_equal(hdl_mr_register(w->a.pd, (void *)(UINTPTR_MAX - 64), 32, LOCAL_BOTH, &mr),
	                 -HDL_EFAULT);
	assert_int_equal(hdl_mr_register(w->a.pd, (void *)(UINTPTR_MAX - 64), 128, LOCAL_BOTH, &mr),
	                 -HDL_EINVAL);
	munmap(room, ROOM);
}

static void sn8_rights_of_the_mapping_are_needed(void **state)
{
	struct world *w = *state;
	struct hdl_mr *mr;
	unsigned char *room = map_room(PROT_READ);
	assert_int_equal(hdl_mr_register(w->a.pd, room, ROOM,
	                                 HDL_ACCESS_LOCAL_READ | HDL_ACCESS_REMOTE_READ, &mr),
	                 0);
	assert_int_equal(hdl_mr_deregister(mr), 0);
	assert_int_equal(hdl_mr_register(w->a.pd, room, ROOM, LOCAL_BOTH, &mr), -HDL_EFAULT);
	assert_int_equal(mprotect(room, ROOM, PROT_NONE), 0);
	assert_int_equal(hdl_mr_register(w->a.pd, room, ROOM, HDL_ACCESS_LOCAL_READ, &mr),
	                 -HDL_EFAULT);
	munmap(room, ROOM);
	assert_int_equal(hdl_mr_register(w->a.pd, w->a.mem, 64, HDL_ACCESS_REMOTE_WRITE, &mr),
	                 -HDL_EINVAL);
	assert_int_equal(hdl_mr_register(w->a.pd, w->a.mem, 64, HDL_ACCESS_REMOTE_ATOMIC, &mr),
	                 -HDL_EINVAL);
	assert_int_equal(hdl_mr_register(w->a.pd, w->a.mem, 64, 0x100, &mr), -HDL_EINVAL);
}

/* How memory disappears: unmapped, made unreadable, its file truncated, or announced before it is
 * unmapped. */
enum how { UNMAPPED, PROTECTED, CUT_OFF, ANNOUNCED, HOW_COUNT };

/* Memory that can disappear in that way. A peer that maps the file itself notices a truncation.
 * That the owner unmaps it is tried between processes (tests/interop/agent/mapped.c), where the
 * kernel tells; what it does to the rights of its own mapping changes nothing for that peer. */
static unsigned char *map_room_to_go(int *fd, enum how how)
{
	*fd = memfd_create("room", MFD_CLOEXEC);
	assert_true(*fd >= 0);
	assert_int_equal(ftruncate(*fd, ROOM), 0);
	bool private = how == PROTECTED || (how == UNMAPPED && !SANITIZED_THREADS);
	unsigned char *room = mmap(LONELY, ROOM, PROT_READ | PROT_WRITE,
	                           private ? MAP_PRIVATE : MAP_SHARED, *fd, 0);
	assert_true(room != MAP_FAILED);
	return room;
}

static struct hdl_mr *register_room(struct side *s, unsigned char *room)
{
	struct hdl_mr *mr;
	assert_int_equal(
	        hdl_mr_register(s->pd, room, ROOM, LOCAL_BOTH | REMOTE_ALL | HDL_ACCESS_BIND, &mr),
	        0);
	keep_mr(s->world, mr);
	return mr;
}

/* The memory disappears; if that is announced, the event comes immediately. */
static void room_goes(struct world *w, struct side *s, unsigned char *room, int fd,
                      struct hdl_mr *mr, enum how how)
{
	if (how == ANNOUNCED) {
		assert_int_equal(hdl_segment_update(s->adapter, room, ROOM), 1);
		expect_gone_event(w, s, hdl_mr_key(mr));
	}
	if (how == PROTECTED)
		assert_int_equal(mprotect(room, ROOM, PROT_NONE), 0);
	else if (how == CUT_OFF || (how == UNMAPPED && SANITIZED_THREADS))
		assert_int_equal(ftruncate(fd, 0), 0);
	else
		assert_int_equal(munmap(room, ROOM), 0);
}

/* Clean up what is left of it. */
static void room_ends(unsigned char *room, int fd, enum how how)
{
	close(fd);
	if (how == PROTECTED || how == CUT_OFF || (how == UNMAPPED && SANITIZED_THREADS))
		munmap(room, ROOM);
}

static struct hdl_sge room_piece(unsigned char *room, struct hdl_mr *mr, uint32_t length)
{
	return (struct hdl_sge){
	        .addr = (uint64_t)(uintptr_t)(room + 100), .length = length, .key = hdl_mr_key(mr)};
}

/* Our own piece is gone: the request fails with a detail that only we know, and the event has the
 * key. */
static void sn8_gone_under_a_request(void **state)
{
	static const struct {
		uint32_t opcode, length;
	} rows[] = {{HDL_OP_SEND, 64},    {HDL_OP_SEND, 9000}, {HDL_OP_WRITE, 64},
	            {HDL_OP_WRITE, 9000}, {HDL_OP_READ, 64},   {HDL_OP_READ, 9000},
	            {HDL_OP_FETCH_ADD, 8}};
	struct world *w = *state;
	for (uint32_t i = 0; i < COUNT(rows) * HOW_COUNT; i++) {
		struct hdl_qp *qa, *qb;
		enum how how = i % HOW_COUNT;
		if (lacks(w, rows[i / HOW_COUNT].opcode))
			continue;
		make_pair(w, NULL, &qa, &qb);
		int fd;
		unsigned char *room = map_room_to_go(&fd, how);
		struct hdl_mr *mr = register_room(&w->a, room);
		struct hdl_sge own = room_piece(room, mr, rows[i / HOW_COUNT].length);
		struct hdl_send_wr wr = {.wr_id = 1,
		                         .sg_list = &own,
		                         .num_sge = 1,
		                         .opcode = rows[i / HOW_COUNT].opcode};
		set_target(&wr, address(&w->b, 4096), arena_key(&w->b));
		if (wr.opcode == HDL_OP_FETCH_ADD) {
			wr.u.atomic.compare_add = 0;
			own.addr += 4;
		}
		post_recv(qb, 9, &w->b, 32768, 9000);
		room_goes(w, &w->a, room, fd, mr, how);
		post_send(qa, wr);
		expect_failed(w, w->a.scq, qa, 1, HDL_WC_LOC_ACCESS_ERR, HDL_DETAIL_GONE);
		if (how != ANNOUNCED)
			expect_gone_event(w, &w->a, hdl_mr_key(mr));
		expect_terminated(w, &w->b, qb);
		assert_int_equal(qp_state_of(qa), HDL_QPS_ERR);
		assert_int_equal(qp_state_of(qb), w->port->stream ? HDL_QPS_ERR : HDL_QPS_RTS);
		check_memory(w);
		expect_no_event(w);
		room_ends(room, fd, how);
		forget_object(w, mr);
		assert_int_equal(hdl_mr_deregister(mr), 0);
		drop_qp(w, qa);
		drop_qp(w, qb);
	}
}

static void sn8_gone_under_a_receive(void **state)
{
	static const uint32_t sizes[] = {64, 9000};
	struct world *w = *state;
	for (uint32_t i = 0; i < COUNT(sizes) * HOW_COUNT; i++) {
		struct hdl_qp *qa, *qb;
		enum how how = i % HOW_COUNT;
		make_pair(w, NULL, &qa, &qb);
		int fd;
		unsigned char *room = map_room_to_go(&fd, how);
		struct hdl_mr *mr = register_room(&w->b, room);
		struct hdl_sge own = room_piece(room, mr, 9000);
		assert_int_equal(try_recv(qb, 1, &own, 1), 0);
		post_recv(qb, 2, &w->b, 0, 64);
		room_goes(w, &w->b, room, fd, mr, how);
		post_data(qa, 3, HDL_OP_SEND, &w->a, 0, sizes[i / HOW_COUNT]);
		expect_failed(w, w->b.rcq, qb, 1, HDL_WC_LOC_ACCESS_ERR, HDL_DETAIL_GONE);
		expect_flushed(w, w->b.rcq, qb, 2);
		expect_refused(w, w->a.scq, qa, 3, HDL_WC_REM_OP_ERR, HDL_DETAIL_GONE);
		if (how != ANNOUNCED)
			expect_gone_event(w, &w->b, hdl_mr_key(mr));
		check_memory(w);
		expect_no_event(w);
		room_ends(room, fd, how);
		drop_qp(w, qa);
		drop_qp(w, qb);
		forget_object(w, mr);
		assert_int_equal(hdl_mr_deregister(mr), 0);
	}
}

static void sn8_gone_under_a_peers_request(void **state)
{
	static const struct {
		uint32_t opcode, length;
	} rows[] = {{HDL_OP_WRITE, 64},
	            {HDL_OP_WRITE, 9000},
	            {HDL_OP_READ, 64},
	            {HDL_OP_READ, 9000},
	            {HDL_OP_FETCH_ADD, 8}};
	struct world *w = *state;
	for (uint32_t i = 0; i < 2 * COUNT(rows) * HOW_COUNT; i++) {
		struct hdl_qp *qa, *qb;
		enum how how = i % HOW_COUNT;
		uint32_t row = i / (2 * HOW_COUNT);
		bool window = i / HOW_COUNT % 2;
		if (window && how == ANNOUNCED)
			continue; /* the window's own event: see the next test */
		if (SANITIZED_THREADS && rows[row].opcode == HDL_OP_FETCH_ADD && how != ANNOUNCED)
			continue;
		if (lacks(w, rows[row].opcode))
			continue;
		make_pair(w, NULL, &qa, &qb);
		int fd;
		unsigned char *room = map_room_to_go(&fd, how);
		struct hdl_mr *mr = register_room(&w->b, room);
		struct hdl_key key = hdl_mr_key(mr);
		struct hdl_mw *mw = NULL;
		if (window) {
			struct hdl_bind bind = {.mr = mr,
			                        .addr = (uint64_t)(uintptr_t)room,
			                        .length = ROOM,
			                        .access = REMOTE_ALL};
			mw = make_mw(&w->b, HDL_MW_TYPE_1);
			assert_int_equal(hdl_mw_bind(mw, &bind, &key), 0);
		}
		room_goes(w, &w->b, room, fd, mr, how);
		struct hdl_sge own = piece(&w->a, 64, rows[row].length);
		struct hdl_send_wr wr = {.wr_id = 1,
		                         .sg_list = &own,
		                         .num_sge = 1,
		                         .opcode = rows[row].opcode,
		                         .flags = HDL_SEND_SIGNALED};
		set_target(&wr, (uint64_t)(uintptr_t)(room + 64), key);
		post_send(qa, wr);
		expect_refused(w, w->a.scq, qa, 1, HDL_WC_REM_OP_ERR, HDL_DETAIL_GONE);
		if (how != ANNOUNCED)
			expect_gone_event(w, &w->b, key);
		expect_event(w, &w->b, HDL_EVENT_QP_ACCESS_ERR, HDL_DETAIL_GONE, qb);
		assert_int_equal(qp_state_of(qa), HDL_QPS_ERR);
		assert_int_equal(qp_state_of(qb), HDL_QPS_ERR);
		check_memory(w);
		expect_no_event(w);
		room_ends(room, fd, how);
		drop_qp(w, qa);
		drop_qp(w, qb);
		if (mw != NULL) {
			assert_int_equal(hdl_mw_free(mw), 0);
			forget_object(w, mw);
		}
		assert_int_equal(hdl_mr_deregister(mr), 0);
		forget_object(w, mr);
	}
}

/* SegmentTableUpdate: it finds exactly the registrations that overlap the range, and their
 * windows. */
static void sn8_segment_update_finds_what_overlaps(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	struct hdl_mr *low = make_mr(&w->b, 0, 4096, LOCAL_BOTH | REMOTE_ALL | HDL_ACCESS_BIND);
	struct hdl_mr *high = make_mr(&w->b, 8192, 4096, LOCAL_BOTH | REMOTE_ALL | HDL_ACCESS_BIND);
	struct hdl_bind bind = {
	        .mr = high, .addr = address(&w->b, 9000), .length = 8, .access = REMOTE_ALL};
	struct hdl_key window;
	assert_int_equal(hdl_mw_bind(make_mw(&w->b, HDL_MW_TYPE_1), &bind, &window), 0);
	/* The region of the whole arena is there as well. */
	assert_int_equal(hdl_segment_update(w->b.adapter, w->b.mem + 8191, 1), 1);
	expect_gone_event(w, &w->b, arena_key(&w->b));
	assert_int_equal(hdl_segment_update(w->b.adapter, w->b.mem + 12287, 1), 2);
	expect_gone_event(w, &w->b, hdl_mr_key(high));
	expect_gone_event(w, &w->b, window);
	assert_int_equal(hdl_segment_update(w->b.adapter, w->b.mem, ARENA_BYTES), 1);
	expect_gone_event(w, &w->b, hdl_mr_key(low));
	assert_int_equal(hdl_segment_update(w->b.adapter, w->b.mem, ARENA_BYTES), 0);
	assert_int_equal(hdl_segment_update(w->b.adapter, (void *)(UINTPTR_MAX - 7), 64),
	                 -HDL_EINVAL);
	assert_int_equal(hdl_segment_update(w->b.adapter, w->b.mem, 0), 0);
	post_rdma(qa, 1, HDL_OP_READ, piece(&w->a, 0, 8), bind.addr, window);
	expect_refused(w, w->a.scq, qa, 1, HDL_WC_REM_OP_ERR, HDL_DETAIL_GONE);
	check_memory(w);
	/* No window can be bound to a region that has gone. */
	bind.mr = low;
	bind.addr = address(&w->b, 0);
	assert_int_equal(hdl_mw_bind(make_mw(&w->b, HDL_MW_TYPE_1), &bind, &window), -HDL_ESTALE);
}

/* Half of a large message is gone: what is reported must still be true, and no byte is written
 * elsewhere. */
static void sn8_half_gone(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qa, *qb;
	make_pair(w, NULL, &qa, &qb);
	int fd;
	unsigned char *room = map_room_to_go(&fd, CUT_OFF);
	struct hdl_mr *mr = register_room(&w->b, room);
	assert_int_equal(ftruncate(fd, 2 * PAGE), 0);
	post_rdma(qa, 1, HDL_OP_WRITE, piece(&w->a, 0, 3 * PAGE), (uint64_t)(uintptr_t)room,
	          hdl_mr_key(mr));
	expect_refused(w, w->a.scq, qa, 1, HDL_WC_REM_OP_ERR, HDL_DETAIL_GONE);
	expect_gone_event(w, &w->b, hdl_mr_key(mr));
	/* The other half is still there, and so is all of it when the pages come back. */
	drop_qp(w, qa);
	drop_qp(w, qb);
	make_pair(w, NULL, &qa, &qb);
	post_rdma(qa, 2, HDL_OP_WRITE, piece(&w->a, 0, 64), (uint64_t)(uintptr_t)room,
	          hdl_mr_key(mr));
	expect_sent(w, w->a.scq, qa, 2, HDL_WC_WRITE, 64);
	assert_int_equal(ftruncate(fd, ROOM), 0);
	post_rdma(qa, 3, HDL_OP_WRITE, piece(&w->a, 0, ROOM), (uint64_t)(uintptr_t)room,
	          hdl_mr_key(mr));
	expect_sent(w, w->a.scq, qa, 3, HDL_WC_WRITE, ROOM);
	assert_memory_equal(room, w->a.mem, ROOM);
	check_memory(w);
	munmap(room, ROOM);
	close(fd);
}

static const struct CMUnitTest tests[] = {
        BEHAVIOUR(sn8_unmapped_memory_is_refused),
        BEHAVIOUR(sn8_rights_of_the_mapping_are_needed),
        BEHAVIOUR(sn8_gone_under_a_request),
        BEHAVIOUR(sn8_gone_under_a_receive),
        BEHAVIOUR(sn8_gone_under_a_peers_request),
        BEHAVIOUR(sn8_segment_update_finds_what_overlaps),
        BEHAVIOUR(sn8_half_gone),
};
THEME(gone_theme, tests);
