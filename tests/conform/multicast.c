/* SN1: multicast. A datagram to a group reaches every member once, wherever it is, including the
 * sender if it is a member; a member that is not ready for it affects only itself. */
#include "conform.h"

#define QKEY 0x11223344u
static const struct qp_options ud = {.type = HDL_QP_UD, .qkey = QKEY};
static const struct hdl_gid ipv6_group = {{0xff, 0x12, [15] = 7}};
static const struct hdl_gid ipv4_group = {{[10] = 0xff, [11] = 0xff, 239, 1, 2, 3}};

static struct hdl_qp *make_ud(struct side *s)
{
	struct hdl_qp *qp = make_qp(s, &ud);
	qp_to_init(qp, &ud);
	qp_to_rtr(qp, &ud, &s->gid, 0);
	qp_to_rts(qp, &ud);
	return qp;
}

static struct hdl_qp *make_member(struct side *s, const struct hdl_gid *group)
{
	struct hdl_qp *qp = make_ud(s);
	assert_int_equal(hdl_qp_attach(qp, group), 0);
	return qp;
}

static void leave(struct hdl_qp *qp, const struct hdl_gid *group)
{
	assert_int_equal(hdl_qp_detach(qp, group), 0);
}

static struct hdl_ah *group_ah(struct side *s, const struct hdl_gid *group)
{
	return make_ah(s,
	               &(struct hdl_ah_attr){
	                       .dgid = *group, .port_num = 1, .is_global = true, .hop_limit = 1});
}

/* Send @length bytes to the group. Only the handle determines the destination of the request. */
static void send_to(struct side *s, struct hdl_qp *qp, uint64_t wr_id, struct hdl_ah *ah,
                    uint32_t length)
{
	post_datagram(qp, wr_id, HDL_OP_SEND, piece(s, 0, length), ah, 0xffffff, QKEY);
	expect_sent(s->world, s->scq, qp, wr_id, HDL_WC_SEND, length);
}

/* @qp, with a receive at @offset, has received @length bytes from @from. */
static void expect_copy_of(struct side *s, struct hdl_qp *qp, const struct side *sender,
                           struct hdl_qp *from, const struct hdl_gid *group, size_t offset,
                           uint32_t length)
{
	struct hdl_ah_attr to = {.dgid = *group, .is_global = true, .hop_limit = 1};
	expect_wc(s->world, s->rcq,
	          &(struct hdl_wc){.wr_id = offset,
	                           .opcode = HDL_WC_RECV,
	                           .byte_len = length + HDL_GRH_BYTES,
	                           .flags = HDL_WC_GRH,
	                           .imm = 0x600d,
	                           .qpn = hdl_qp_number(qp),
	                           .src_qpn = hdl_qp_number(from)});
	expect_grh(s, offset, &to, &sender->gid, 24 + (length + 3) / 4 * 4);
	expect_copy(s, offset + HDL_GRH_BYTES, sender, 0, length);
}

/* Datagrams to a group do not go over a wire yet (docs/STATUS.md): only lanes carry them. */
static void needs_groups(const struct world *w)
{
	if (w->port->wire)
		skip();
}

/* Members on both sides, the sender among them. */
static void reaches_every_member_once(void **state)
{
	static const uint32_t sizes[] = {0, 1, 64, HDL_UD_MTU};
	static const struct hdl_gid *groups[] = {&ipv6_group, &ipv4_group};
	enum { MEMBERS = 3 };
	struct world *w = *state;
	needs_groups(w);
	for (uint32_t g = 0; g < COUNT(groups); g++) {
		struct hdl_qp *here[MEMBERS], *there[MEMBERS];
		for (uint32_t i = 0; i < MEMBERS; i++) {
			here[i] = make_member(&w->a, groups[g]);
			there[i] = make_member(&w->b, groups[g]);
		}
		struct hdl_qp *stranger = make_ud(&w->b);
		post_recv(stranger, 99, &w->b, 0, 64);
		struct hdl_ah *ah = group_ah(&w->a, groups[g]);
		for (uint32_t s = 0; s < COUNT(sizes); s++) {
			for (uint32_t i = 0; i < MEMBERS; i++) {
				post_recv(here[i], 8192 + 4200 * i, &w->a, 8192 + 4200 * i, 4136);
				post_recv(there[i], 32768 + 4200 * i, &w->b, 32768 + 4200 * i,
				          4136);
			}
			send_to(&w->a, here[0], s, ah, sizes[s]);
			/* In the order in which they joined, on each side; a single adapter has
			 * both in turn. */
			for (uint32_t i = 0; i < MEMBERS; i++) {
				expect_copy_of(&w->a, here[i], &w->a, here[0], groups[g],
				               8192 + 4200 * i, sizes[s]);
				expect_copy_of(&w->b, there[i], &w->a, here[0], groups[g],
				               32768 + 4200 * i, sizes[s]);
			}
			check_memory(w);
		}
		expect_nothing(w, w->b.rcq);
		for (uint32_t i = 0; i < MEMBERS; i++) {
			leave(here[i], groups[g]);
			leave(there[i], groups[g]);
		}
		drop_qp(w, stranger);
	}
	expect_no_event(w);
}

/* A member that leaves receives nothing more; one that joins after the handle was created is
 * found. */
static void members_come_and_go(void **state)
{
	struct world *w = *state;
	needs_groups(w);
	struct hdl_qp *from = make_ud(&w->a);
	struct hdl_ah *ah = group_ah(&w->a, &ipv6_group);
	send_to(&w->a, from, 1, ah, 8); /* to nobody */
	for (uint32_t round = 0; round < 3; round++) {
		struct hdl_qp *late = make_member(&w->b, &ipv6_group);
		assert_int_equal(hdl_qp_attach(late, &ipv6_group), 0); /* again */
		post_recv(late, 512, &w->b, 512, 128);
		/* On a node the agent has to tell the sender first. */
		struct hdl_wc wc;
		uint64_t start = world_now(w);
		while (hdl_cq_poll(w->b.rcq, &wc, 1) == 0) {
			assert_false(world_expired(w, start));
			send_to(&w->a, from, 2, ah, 8);
			world_pump(w);
		}
		assert_int_equal(wc.wr_id, 512);
		assert_int_equal(wc.qpn, hdl_qp_number(late));
		leave(late, &ipv6_group);
		post_recv(late, 1024, &w->b, 1024, 128);
		send_to(&w->a, from, 3, ah, 8);
		expect_nothing(w, w->b.rcq);
		drop_qp(w, late);
	}
	expect_no_event(w);
}

/* A wrong Q_Key, no receive, a state that accepts none, a buffer that is too small: each affects
 * only that member. */
static void one_member_cannot_spoil_it(void **state)
{
	struct world *w = *state;
	needs_groups(w);
	struct hdl_qp *from = make_ud(&w->a), *good = make_member(&w->b, &ipv6_group);
	struct hdl_qp *other_key = make_member(&w->b, &ipv6_group);
	struct hdl_qp *empty = make_member(&w->b, &ipv6_group);
	struct hdl_qp *not_ready = make_qp(&w->b, &ud), *small = make_member(&w->b, &ipv6_group);
	struct hdl_qp *all[] = {good, other_key, empty, not_ready, small};
	qp_to_init(not_ready, &ud);
	assert_int_equal(hdl_qp_attach(not_ready, &ipv6_group), 0);
	struct hdl_qp_attr attr = {.qkey = QKEY + 1};
	assert_int_equal(hdl_qp_modify(other_key, &attr, HDL_QP_QKEY), 0);
	struct hdl_ah *ah = group_ah(&w->a, &ipv6_group);
	post_recv(other_key, 1, &w->b, 1024, 128);
	post_recv(not_ready, 2, &w->b, 2048, 128);
	post_recv(small, 3, &w->b, 3072, HDL_GRH_BYTES + 7);
	post_recv(good, 4096, &w->b, 4096, 128);
	send_to(&w->a, from, 9, ah, 8);
	expect_copy_of(&w->b, good, &w->a, from, &ipv6_group, 4096, 8);
	expect_nothing(w, w->b.rcq);
	assert_int_equal(qp_state_of(small), HDL_QPS_RTS);
	assert_int_equal(counter_of(&w->b, "dropped_too_long"), 1);
	assert_int_equal(counter_of(&w->b, "dropped_qkey"), 1);
	assert_int_equal(counter_of(&w->b, "dropped_no_recv"), 1);
	check_memory(w);
	for (uint32_t i = 0; i < COUNT(all); i++)
		leave(all[i], &ipv6_group);
}

/* A side that dies takes its members with it; the others continue. */
static void a_side_that_dies(void **state)
{
	struct world *w = *state;
	needs_groups(w);
	if (w->port->one_adapter)
		skip();
	struct hdl_open_attr attr = {.name = "third"};
	struct hdl_adapter *third;
	struct hdl_pd *pd;
	struct hdl_cq *cq;
	struct hdl_qp *from = make_member(&w->a, &ipv6_group), *qp;
	assert_int_equal(w->port->open(w, &third, &attr), 0);
	assert_int_equal(w->port->join(w, w->a.adapter, third), 0);
	assert_int_equal(hdl_pd_create(third, &pd), 0);
	assert_int_equal(hdl_cq_create(third, 4, NULL, NULL, &cq), 0);
	struct hdl_qp_init_attr init = {
	        .type = HDL_QP_UD, .send_cq = cq, .recv_cq = cq, .cap = {1, 1, 1, 1, 0}};
	assert_int_equal(hdl_qp_create(pd, &init, &qp), 0);
	assert_int_equal(hdl_qp_attach(qp, &ipv6_group), 0);
	struct hdl_ah *ah = group_ah(&w->a, &ipv6_group);
	for (uint32_t i = 0; i < 2; i++) {
		post_recv(from, 512, &w->a, 512, 128);
		send_to(&w->a, from, i, ah, 8);
		expect_copy_of(&w->a, from, &w->a, from, &ipv6_group, 512, 8);
		check_memory(w);
		if (i > 0)
			continue;
		/* Its handles are never used again; this tells LeakSanitizer that the leak is
		 * intended. */
		static void *volatile graves[3];
		graves[0] = pd;
		graves[1] = cq;
		graves[2] = qp;
		(void)graves;
		w->port->kill(third);
	}
	leave(from, &ipv6_group);
	w->seen_count = 0;
}

/* A side that no longer takes frames delays the others only for a while. */
static void a_full_lane_is_not_waited_for_long(void **state)
{
	enum { ENOUGH = 100000 };
	struct world *w = *state;
	if (w->port->one_adapter || w->port->threaded || w->port->wire)
		skip(); /* a side can only be stopped if it has no thread; and a wire has no lane */
	struct hdl_qp *from = make_ud(&w->a), *here = make_member(&w->a, &ipv6_group);
	struct hdl_qp *there = make_member(&w->b, &ipv6_group);
	struct hdl_ah *ah = group_ah(&w->a, &ipv6_group);
	uint32_t waits = 0, sent = 0;
	struct hdl_wc wc;
	for (; sent < ENOUGH && counter_of(&w->a, "dropped") < 10; sent++) {
		post_recv(here, 512, &w->a, 512, 128);
		post_datagram(from, sent, HDL_OP_SEND, piece(&w->a, 0, 64), ah, 0xffffff, QKEY);
		hdl_progress(w->a.adapter);
		if (hdl_cq_poll(w->a.scq, &wc, 1) == 0) {
			waits++;
			/* Time that passed before the first attempt does not count. */
			w->virtual_ns += 5000000000;
			hdl_progress(w->a.adapter);
			hdl_progress(w->a.adapter);
			assert_int_equal(hdl_cq_poll(w->a.scq, &wc, 1), 0);
			w->virtual_ns += 1100000000;
			hdl_progress(w->a.adapter);
			hdl_progress(w->a.adapter);
			assert_int_equal(hdl_cq_poll(w->a.scq, &wc, 1), 1);
		}
		assert_int_equal(wc.status, HDL_WC_SUCCESS);
		hdl_progress(w->a.adapter);
		assert_int_equal(hdl_cq_poll(w->a.rcq, &wc, 1), 1);
	}
	assert_int_equal(waits, 1);
	assert_true(sent < ENOUGH);
	/* When it runs again, it receives again. */
	world_settle(w);
	post_recv(there, 1024, &w->b, 1024, 128);
	post_recv(here, 512, &w->a, 512, 128);
	send_to(&w->a, from, 1, ah, 8);
	wait_wc(w, w->b.rcq, &wc);
	assert_int_equal(wc.wr_id, 1024);
	leave(here, &ipv6_group);
	leave(there, &ipv6_group);
	memcpy(w->a.shadow + 512, w->a.mem + 512, 128);
	memcpy(w->b.shadow + 1024, w->b.mem + 1024, 128);
}

static void limits_of_groups(void **state)
{
	struct world *w = *state;
	struct hdl_gid gid = ipv6_group;
	struct hdl_ah *ah;
	struct hdl_qp *qp = make_ud(&w->a);
	for (uint32_t i = 0; i < HDL_MAX_GROUPS; i++) {
		gid.raw[14] = (uint8_t)i;
		assert_int_equal(hdl_qp_attach(qp, &gid), 0);
	}
	gid.raw[14] = HDL_MAX_GROUPS;
	assert_int_equal(hdl_qp_attach(qp, &gid), -HDL_ENOMEM);
	struct hdl_ah_attr to = {.dgid = gid, .port_num = 1, .is_global = true};
	/* Between processes, sending takes up an entry as well; on a wire it needs none. */
	assert_int_equal(hdl_ah_create(w->a.pd, &to, &ah),
	                 w->port->wire && w->port->threaded ? 0 : -HDL_ENOMEM);
	if (w->port->wire && w->port->threaded)
		assert_int_equal(hdl_ah_destroy(ah), 0);
	gid.raw[14] = 5;
	leave(qp, &gid);
	assert_int_equal(hdl_ah_create(w->a.pd, &to, &ah), 0);
	if (!(w->port->wire && w->port->threaded))
		assert_int_equal(hdl_qp_attach(qp, &gid), -HDL_ENOMEM);
	assert_int_equal(hdl_ah_destroy(ah), 0);
	assert_int_equal(hdl_qp_attach(qp, &gid), 0);
	for (uint32_t i = 0; i < HDL_MAX_GROUPS; i++) {
		gid.raw[14] = (uint8_t)i;
		leave(qp, &gid);
	}

	struct hdl_qp *members[HDL_MAX_GROUP_MEMBERS + 1];
	struct hdl_qp_init_attr init = {.type = HDL_QP_UD,
	                                .send_cq = w->a.scq,
	                                .recv_cq = w->a.rcq,
	                                .cap = {1, 1, 1, 1, 0}};
	for (uint32_t i = 0; i <= HDL_MAX_GROUP_MEMBERS; i++) {
		assert_int_equal(hdl_qp_create(w->a.pd, &init, &members[i]), 0);
		assert_int_equal(hdl_qp_attach(members[i], &ipv6_group),
		                 i < HDL_MAX_GROUP_MEMBERS ? 0 : -HDL_ENOMEM);
	}
	leave(members[3], &ipv6_group);
	assert_int_equal(hdl_qp_attach(members[HDL_MAX_GROUP_MEMBERS], &ipv6_group), 0);
	for (uint32_t i = 0; i <= HDL_MAX_GROUP_MEMBERS; i++) {
		if (i != 3)
			leave(members[i], &ipv6_group);
		assert_int_equal(hdl_qp_destroy(members[i]), 0);
	}
}

static void refusals(void **state)
{
	struct world *w = *state;
	struct hdl_qp *qp = make_ud(&w->a), *rc = make_qp(&w->a, NULL);
	struct hdl_gid unicast = {{[10] = 0xff, [11] = 0xff, 223, 1, 2, 3}};
	assert_int_equal(hdl_qp_attach(rc, &ipv6_group), -HDL_EINVAL);
	assert_int_equal(hdl_qp_attach(qp, &w->b.gid), -HDL_EINVAL);
	assert_int_equal(hdl_qp_attach(qp, &unicast), -HDL_EINVAL);
	assert_int_equal(hdl_qp_attach(qp, NULL), -HDL_EINVAL);
	assert_int_equal(hdl_qp_attach(NULL, &ipv6_group), -HDL_EINVAL);
	assert_int_equal(hdl_qp_detach(qp, &ipv6_group), -HDL_EINVAL);
	assert_int_equal(hdl_qp_detach(NULL, &ipv6_group), -HDL_EINVAL);
	assert_int_equal(hdl_qp_detach(qp, NULL), -HDL_EINVAL);
	assert_int_equal(hdl_qp_attach(qp, &ipv6_group), 0);
	assert_int_equal(hdl_qp_detach(qp, &ipv4_group), -HDL_EINVAL);
	assert_int_equal(hdl_qp_destroy(qp), -HDL_EBUSY);
	leave(qp, &ipv6_group);
}

static const struct CMUnitTest tests[] = {
        BEHAVIOUR(reaches_every_member_once),
        BEHAVIOUR(members_come_and_go),
        BEHAVIOUR(one_member_cannot_spoil_it),
        BEHAVIOUR(a_side_that_dies),
        BEHAVIOUR(a_full_lane_is_not_waited_for_long),
        BEHAVIOUR(limits_of_groups),
        BEHAVIOUR(refusals),
};
THEME(multicast_theme, tests);
