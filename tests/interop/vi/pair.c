/* Virtual interfaces between two processes (PP1): messages, RDMA, both ways to learn that a
 * descriptor is done, connections that end, and those that are refused. Also run over the network,
 * and between the nodes of two agents. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "side.h"

#define BOTH (HDL_VI_ACKNOWLEDGED | HDL_VI_CONNECTED)

static const uint32_t sizes[] = {0, 1, 255, 256, 257, 512, 4096, 65537, 1u << 20};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static void pattern(unsigned char *at, size_t bytes, unsigned seed)
{
	for (size_t i = 0; i < bytes; i++)
		at[i] = (unsigned char)(i * 7 + i / 251 + seed);
}

static bool is_pattern(const unsigned char *at, size_t bytes, unsigned seed)
{
	for (size_t i = 0; i < bytes; i++)
		if (at[i] != (unsigned char)(i * 7 + i / 251 + seed))
			return false;
	return true;
}

static struct hdl_vi *accept_one(struct side *side, const char *name, uint32_t channel)
{
	struct hdl_vi_listener *listener;
	struct hdl_vi *vi = side_vi(side, channel);
	MUST(hdl_vi_listen(side->adapter, name, NULL, &listener));
	MUST(hdl_vi_accept(listener, vi, SIDE_WAIT_MS));
	MUST(hdl_vi_unlisten(listener));
	return vi;
}

static struct hdl_vi *connect_one(struct side *side, const char *name, const struct hdl_gid *to,
                                  uint32_t channel)
{
	struct hdl_vi *vi = side_vi(side, channel);
	uint32_t state;
	MUST(hdl_vi_query(vi, &state));
	CHECK(state == HDL_VI_IDLE);
	MUST(hdl_vi_connect(vi, to, name, SIDE_WAIT_MS));
	MUST(hdl_vi_query(vi, &state));
	CHECK(state == HDL_VI_READY);
	return vi;
}

/* Wait until the peer has left, then destroy. */
static void leave_last(struct hdl_vi *vi)
{
	uint32_t state = HDL_VI_READY;
	for (int i = 0; i < 2000 && state == HDL_VI_READY; i++) {
		void *done;
		hdl_vi_wait(vi, HDL_VI_SEND_QUEUE, 10, &done);
		MUST(hdl_vi_query(vi, &state));
	}
	CHECK(state == HDL_VI_ERROR);
	MUST(hdl_vi_destroy(vi));
}

/* --- messages --- */

static void messages_server(struct side *side, const char *name)
{
	struct hdl_vi *vi = side_vi(side, BOTH);
	struct hdl_vi_listener *listener;
	/* Before there is a connection. */
	for (uint32_t i = 0; i < SIZES; i++)
		side_post(side, vi, HDL_VI_RECEIVE_QUEUE,
		          side_fill(side, i, HDL_VI_SENDRECV, 0, 1u << 20));
	MUST(hdl_vi_listen(side->adapter, name, NULL, &listener));
	MUST(hdl_vi_accept(listener, vi, -1)); /* for ever */
	for (uint32_t i = 0; i < SIZES; i++) {
		struct hdl_vi_descriptor *descriptor = &side->descriptors[i];
		uint32_t status = side_wait(vi, HDL_VI_RECEIVE_QUEUE, descriptor);
		bool immediate = i % 2 == 1;
		CHECK(status == (HDL_VI_DONE | HDL_VI_DONE_RECEIVE |
		                 (immediate ? HDL_VI_DONE_IMMEDIATE : 0u)));
		CHECK(descriptor->control.length == sizes[i]);
		if (immediate)
			CHECK(descriptor->control.immediate == 0x01020304u + 100 + i);
		CHECK(is_pattern(side->data, sizes[i], i));
		/* An answer lets the next one come into the same buffer. */
		side_post(side, vi, HDL_VI_SEND_QUEUE,
		          side_fill(side, 200 + i, HDL_VI_SENDRECV, 0, 4));
		CHECK(side_wait(vi, HDL_VI_SEND_QUEUE, &side->descriptors[200 + i]) ==
		      (HDL_VI_DONE | HDL_VI_DONE_SEND));
	}
	MUST(hdl_vi_unlisten(listener));
	leave_last(vi);
}

static void messages_client(struct side *side, const char *name, const struct hdl_gid *to)
{
	struct hdl_vi *vi = side_vi(side, BOTH);
	for (uint32_t i = 0; i < SIZES; i++)
		side_post(side, vi, HDL_VI_RECEIVE_QUEUE,
		          side_fill(side, 200 + i, HDL_VI_SENDRECV, 2u << 20, 64));
	MUST(hdl_vi_connect(vi, to, name, -1));
	for (uint32_t i = 0; i < SIZES; i++) {
		struct hdl_vi_descriptor *descriptor =
		        side_fill(side, 100 + i,
		                  i % 2 == 1 ? HDL_VI_SENDRECV | HDL_VI_IMMEDIATE : HDL_VI_SENDRECV,
		                  0, sizes[i]);
		pattern(side->data, sizes[i], i);
		side_post(side, vi, HDL_VI_SEND_QUEUE, descriptor);
		/* Nothing but memory tells that it is done: no call on our side is needed. */
		for (long spins = 0; side_status(descriptor) == 0; spins++)
			CHECK(spins < 20000000000l);
		CHECK(side_status(descriptor) == HDL_VI_DONE);
		CHECK(descriptor->control.length == sizes[i]);
		void *done;
		MUST(hdl_vi_done(vi, HDL_VI_SEND_QUEUE, &done));
		CHECK(done == descriptor);
		CHECK((side_wait(vi, HDL_VI_RECEIVE_QUEUE, &side->descriptors[200 + i]) &
		       HDL_VI_ERROR_MASK) == 0);
	}
	MUST(hdl_vi_destroy(vi));
}

static void vi_messages(void **state)
{
	(void)state;
	assert_true(side_run(messages_server, messages_client));
}

/* --- RDMA --- */

struct offer {
	uint64_t addr;
	struct hdl_key handle;
};

static void rdma_server(struct side *side, const char *name)
{
	struct hdl_vi *vi = accept_one(side, name, BOTH);
	struct offer offer = {(uint64_t)(uintptr_t)side->data, side->handle};
	for (uint32_t i = 0; i < SIZES; i++)
		side_post(side, vi, HDL_VI_RECEIVE_QUEUE,
		          side_fill(side, i, HDL_VI_SENDRECV, 0, 0));
	memcpy(side->data + SIDE_BYTES - sizeof(offer), &offer, sizeof(offer));
	side_post(side, vi, HDL_VI_SEND_QUEUE,
	          side_fill(side, 100, HDL_VI_SENDRECV, SIDE_BYTES - sizeof(offer), sizeof(offer)));
	CHECK(side_wait(vi, HDL_VI_SEND_QUEUE, &side->descriptors[100]) == HDL_VI_DONE);
	for (uint32_t i = 0; i < SIZES; i++) {
		uint32_t status = side_wait(vi, HDL_VI_RECEIVE_QUEUE, &side->descriptors[i]);
		CHECK(status == (HDL_VI_DONE | HDL_VI_DONE_REMOTE_WRITE | HDL_VI_DONE_IMMEDIATE));
		CHECK(side->descriptors[i].control.length == sizes[i]);
		CHECK(side->descriptors[i].control.immediate == 0x01020304u + 100 + i);
	}
	leave_last(vi);
}

static void rdma_client(struct side *side, const char *name, const struct hdl_gid *to)
{
	struct hdl_vi *vi = side_vi(side, BOTH);
	struct offer offer;
	side_post(side, vi, HDL_VI_RECEIVE_QUEUE,
	          side_fill(side, 0, HDL_VI_SENDRECV, 0, sizeof(offer)));
	MUST(hdl_vi_connect(vi, to, name, SIDE_WAIT_MS));
	side_wait(vi, HDL_VI_RECEIVE_QUEUE, &side->descriptors[0]);
	memcpy(&offer, side->data, sizeof(offer));
	for (uint32_t i = 0; i < SIZES; i++) {
		pattern(side->data, sizes[i], 50 + i);
		memset(side->data + (1u << 20), 0, sizes[i]);
		struct hdl_vi_descriptor *out =
		        side_fill_rdma(side, 100 + i, HDL_VI_RDMA_WRITE | HDL_VI_IMMEDIATE, 0,
		                       sizes[i], offer.addr, offer.handle);
		struct hdl_vi_descriptor *back =
		        side_fill_rdma(side, 200 + i, HDL_VI_RDMA_READ | HDL_VI_FENCE, 1u << 20,
		                       sizes[i], offer.addr, offer.handle);
		side_post(side, vi, HDL_VI_SEND_QUEUE, out);
		side_post(side, vi, HDL_VI_SEND_QUEUE, back);
		CHECK(side_wait(vi, HDL_VI_SEND_QUEUE, out) ==
		      (HDL_VI_DONE | HDL_VI_DONE_RDMA_WRITE));
		CHECK(side_wait(vi, HDL_VI_SEND_QUEUE, back) ==
		      (HDL_VI_DONE | HDL_VI_DONE_RDMA_READ));
		CHECK(back->control.length == sizes[i]);
		CHECK(is_pattern(side->data + (1u << 20), sizes[i], 50 + i));
	}
	/* Beyond what the handle grants: the peer refuses, and the connection fails. */
	struct hdl_vi_descriptor *wrong = side_fill_rdma(
	        side, 300, HDL_VI_RDMA_WRITE, 0, 64, offer.addr + SIDE_BYTES - 32, offer.handle);
	side_post(side, vi, HDL_VI_SEND_QUEUE, wrong);
	CHECK(side_wait(vi, HDL_VI_SEND_QUEUE, wrong) ==
	      (HDL_VI_DONE | HDL_VI_RDMA_PROT_ERROR | HDL_VI_DONE_RDMA_WRITE));
	uint32_t now;
	MUST(hdl_vi_query(vi, &now));
	CHECK(now == HDL_VI_ERROR);
	MUST(hdl_vi_destroy(vi));
}

static void vi_rdma(void **state)
{
	(void)state;
	assert_true(side_run(rdma_server, rdma_client));
}

/* --- one completion queue for many --- */

#define MANY 16u

static void many_server(struct side *side, const char *name)
{
	struct hdl_vi_listener *listener;
	struct hdl_channel *channel;
	struct hdl_vi_attr attr = side_attr(BOTH);
	struct hdl_vi *vis[MANY];
	bool seen[MANY] = {false};
	struct hdl_cq *cq;
	MUST(hdl_channel_create(side->adapter, &channel));
	MUST(hdl_cq_create(side->adapter, 4 * MANY, channel, NULL, &cq));
	attr.receive_cq = cq;
	MUST(hdl_vi_listen(side->adapter, name, NULL, &listener));
	for (uint32_t i = 0; i < MANY; i++) {
		void *done;
		MUST(hdl_vi_create(side->pd, &attr, &vis[i]));
		side_post(side, vis[i], HDL_VI_RECEIVE_QUEUE,
		          side_fill(side, i, HDL_VI_SENDRECV, 64 * i, 64));
		CHECK(hdl_vi_done(vis[i], HDL_VI_RECEIVE_QUEUE, &done) == -HDL_EINVAL);
		MUST(hdl_vi_accept(listener, vis[i], SIDE_WAIT_MS));
	}
	for (uint32_t got = 0; got < MANY;) {
		struct hdl_wc wc;
		struct hdl_cq *which;
		MUST(hdl_cq_arm(cq, false));
		if (hdl_channel_get(channel, &which, NULL, SIDE_WAIT_MS) == 0)
			hdl_cq_ack(which, 1);
		while (hdl_cq_poll(cq, &wc, 1) == 1) {
			const struct hdl_vi_descriptor *descriptor =
			        (const void *)(uintptr_t)wc.wr_id;
			uint32_t i = (uint32_t)(descriptor - side->descriptors);
			CHECK(i < MANY && !seen[i] && wc.qpn == hdl_vi_number(vis[i]));
			CHECK(side_status(descriptor) == (HDL_VI_DONE | HDL_VI_DONE_RECEIVE));
			CHECK(is_pattern(side->data + 64 * i, 64, i));
			seen[i] = true;
			got++;
		}
	}
	for (uint32_t i = 0; i < MANY; i++)
		MUST(hdl_vi_destroy(vis[i]));
	MUST(hdl_vi_unlisten(listener));
	MUST(hdl_cq_destroy(cq));
	MUST(hdl_channel_destroy(channel));
}

static void many_client(struct side *side, const char *name, const struct hdl_gid *to)
{
	struct hdl_vi *vis[MANY];
	for (uint32_t i = 0; i < MANY; i++)
		vis[i] = connect_one(side, name, to, BOTH);
	for (uint32_t i = MANY; i-- > 0;) {
		pattern(side->data, 64, i);
		side_post(side, vis[i], HDL_VI_SEND_QUEUE,
		          side_fill(side, i, HDL_VI_SENDRECV, 0, 64));
		CHECK(side_wait(vis[i], HDL_VI_SEND_QUEUE, &side->descriptors[i]) == HDL_VI_DONE);
	}
	for (uint32_t i = 0; i < MANY; i++)
		leave_last(vis[i]);
}

static void vi_many_one_queue(void **state)
{
	(void)state;
	assert_true(side_run(many_server, many_client));
}

/* --- unacknowledged --- */

static void plain_server(struct side *side, const char *name)
{
	struct hdl_vi_listener *listener;
	struct hdl_vi *vi = side_vi(side, HDL_VI_CONNECTED), *other = side_vi(side, BOTH);
	side_post(side, vi, HDL_VI_RECEIVE_QUEUE, side_fill(side, 0, HDL_VI_SENDRECV, 0, 4096));
	MUST(hdl_vi_listen(side->adapter, name, NULL, &listener));
	/* The first request is for an acknowledged channel: it is refused. */
	MUST(hdl_vi_accept(listener, vi, SIDE_WAIT_MS));
	CHECK(hdl_vi_accept(listener, vi, 0) == -HDL_EPERM);
	CHECK(hdl_vi_accept(listener, other, 10) == -HDL_ETIMEDOUT);
	CHECK(side_wait(vi, HDL_VI_RECEIVE_QUEUE, &side->descriptors[0]) ==
	      (HDL_VI_DONE | HDL_VI_DONE_RECEIVE));
	CHECK(side->descriptors[0].control.length == 3000 && is_pattern(side->data, 3000, 9));
	MUST(hdl_vi_destroy(other));
	MUST(hdl_vi_unlisten(listener));
	MUST(hdl_vi_destroy(vi));
}

static void plain_client(struct side *side, const char *name, const struct hdl_gid *to)
{
	struct hdl_vi *wrong = side_vi(side, BOTH);
	struct hdl_vi_descriptor *stays = side_fill(side, 5, HDL_VI_SENDRECV, 8192, 64);
	void *done;
	side_post(side, wrong, HDL_VI_RECEIVE_QUEUE, stays);
	CHECK(hdl_vi_connect(wrong, to, name, SIDE_WAIT_MS) == -HDL_ECONNREFUSED);
	CHECK(side_status(stays) == 0);
	CHECK(hdl_vi_done(wrong, HDL_VI_RECEIVE_QUEUE, &done) == -HDL_EAGAIN);
	uint32_t now;
	MUST(hdl_vi_query(wrong, &now));
	CHECK(now == HDL_VI_IDLE);
	struct hdl_vi *vi = connect_one(side, name, to, HDL_VI_CONNECTED);
	struct hdl_vi_descriptor *read =
	        side_fill_rdma(side, 1, HDL_VI_RDMA_READ, 0, 8, 0, (struct hdl_key){0});
	CHECK(hdl_vi_post(vi, HDL_VI_SEND_QUEUE, read, side->handle) == -HDL_ENOTSUP);
	pattern(side->data, 3000, 9);
	side_post(side, vi, HDL_VI_SEND_QUEUE, side_fill(side, 0, HDL_VI_SENDRECV, 0, 3000));
	CHECK(side_wait(vi, HDL_VI_SEND_QUEUE, &side->descriptors[0]) == HDL_VI_DONE);
	MUST(hdl_vi_destroy(wrong));
	leave_last(vi);
}

static void vi_unacknowledged(void **state)
{
	(void)state;
	assert_true(side_run(plain_server, plain_client));
}

/* --- without connection --- */

static uint32_t datagram_channel; /* 0, or HDL_VI_ACKNOWLEDGED */

static void datagram_server(struct side *side, const char *name)
{
	struct hdl_vi_listener *listener;
	struct hdl_vi *vi = side_vi(side, datagram_channel);
	for (uint32_t i = 0; i < 2; i++)
		side_post(side, vi, HDL_VI_RECEIVE_QUEUE,
		          side_fill_to(side, i, 1024 * i, 512, NULL));
	MUST(hdl_vi_listen(side->adapter, name, vi, &listener));
	CHECK(hdl_vi_destroy(vi) == -HDL_EBUSY);
	for (uint32_t i = 0; i < 2; i++) {
		struct hdl_vi_descriptor *came = &side->descriptors[i];
		CHECK(side_wait(vi, HDL_VI_RECEIVE_QUEUE, came) ==
		      (HDL_VI_DONE | HDL_VI_DONE_RECEIVE));
		CHECK(came->control.length == 256 && is_pattern(side->data + 1024 * i, 256, i));
		/* The descriptor says who sent: answer. */
		side_post(side, vi, HDL_VI_SEND_QUEUE,
		          side_fill_to(side, 10 + i, 1024 * i, 256, &came->segment[0].peer));
		CHECK(side_wait(vi, HDL_VI_SEND_QUEUE, &side->descriptors[10 + i]) == HDL_VI_DONE);
	}
	MUST(hdl_vi_unlisten(listener));
	MUST(hdl_vi_destroy(vi));
}

static void datagram_client(struct side *side, const char *name, const struct hdl_gid *to)
{
	struct hdl_vi *vis[2];
	struct hdl_vi_destination whom;
	for (uint32_t i = 0; i < 2; i++) {
		vis[i] = side_vi(side, datagram_channel);
		uint32_t now;
		MUST(hdl_vi_query(vis[i], &now));
		CHECK(now == HDL_VI_READY);
		side_post(side, vis[i], HDL_VI_RECEIVE_QUEUE,
		          side_fill_to(side, 10 + i, 8192 + 512 * i, 512, NULL));
		CHECK(hdl_vi_connect(vis[i], to, name, 0) == -HDL_EPERM);
		struct hdl_vi_destination nobody = {.qpn = 77};
		CHECK(hdl_vi_post(vis[i], HDL_VI_SEND_QUEUE, side_fill_to(side, 0, 0, 1, &nobody),
		                  side->handle) == -HDL_EHOSTUNREACH);
		MUST(hdl_vi_resolve(vis[i], to, name, -1, &whom));
		/* One cell, not more. */
		CHECK(hdl_vi_post(vis[i], HDL_VI_SEND_QUEUE, side_fill_to(side, 0, 0, 257, &whom),
		                  side->handle) == -HDL_EMSGSIZE);
		pattern(side->data, 256, i);
		side_post(side, vis[i], HDL_VI_SEND_QUEUE, side_fill_to(side, i, 0, 256, &whom));
		CHECK(side_wait(vis[i], HDL_VI_SEND_QUEUE, &side->descriptors[i]) == HDL_VI_DONE);
		struct hdl_vi_descriptor *came = &side->descriptors[10 + i];
		CHECK(side_wait(vis[i], HDL_VI_RECEIVE_QUEUE, came) ==
		      (HDL_VI_DONE | HDL_VI_DONE_RECEIVE));
		CHECK(is_pattern(side->data + 8192 + 512 * i, 256, i));
		CHECK(memcmp(&came->segment[0].peer, &whom, sizeof(whom)) == 0);
	}
	MUST(hdl_vi_destroy(vis[0]));
	MUST(hdl_vi_destroy(vis[1]));
}

static void vi_without_connection(void **state)
{
	(void)state;
	datagram_channel = 0;
	assert_true(side_run(datagram_server, datagram_client));
}

static void vi_acknowledged_without_connection(void **state)
{
	(void)state;
	if (getenv("VI_CELLS") == NULL)
		skip(); /* only cells acknowledge datagrams */
	datagram_channel = HDL_VI_ACKNOWLEDGED;
	assert_true(side_run(datagram_server, datagram_client));
}

/* --- cells or RoCEv2, by the VI --- */

#define LONG 65536u

static struct hdl_vi *choosing(struct side *side, uint32_t packets)
{
	struct hdl_vi_attr attr = side_attr(BOTH);
	struct hdl_vi *vi;
	attr.packets = packets;
	MUST(hdl_vi_create(side->pd, &attr, &vi));
	return vi;
}

static uint64_t packets_sent(struct side *side)
{
	struct hdl_counter list[128];
	size_t count = hdl_counters(side->adapter, list, 128);
	for (size_t i = 0; i < count && i < 128; i++)
		if (strcmp(list[i].name, "packets_out") == 0)
			return list[i].value;
	CHECK(false);
	return 0;
}

static void choice_server(struct side *side, const char *name)
{
	struct hdl_vi_listener *listener;
	bool frames = getenv("VI_SERVER_ETHER") != NULL;
	MUST(hdl_vi_listen(side->adapter, name, NULL, &listener));
	for (uint32_t packets = HDL_PACKETS_CELLS; packets >= HDL_PACKETS_ROCEV2; packets--) {
		struct hdl_vi *vi = choosing(side, packets);
		side_post(side, vi, HDL_VI_RECEIVE_QUEUE,
		          side_fill(side, packets, HDL_VI_SENDRECV, 0, LONG));
		if (packets == HDL_PACKETS_ROCEV2 && frames) {
			MUST(hdl_vi_destroy(vi));
			break;
		}
		/* A request of the other kind came first, and is refused. */
		MUST(hdl_vi_accept(listener, vi, SIDE_WAIT_MS));
		CHECK(side_wait(vi, HDL_VI_RECEIVE_QUEUE, &side->descriptors[packets]) ==
		      (HDL_VI_DONE | HDL_VI_DONE_RECEIVE));
		CHECK(is_pattern(side->data, LONG, packets));
		leave_last(vi);
	}
	MUST(hdl_vi_unlisten(listener));
}

static void choice_client(struct side *side, const char *name, const struct hdl_gid *to)
{
	bool frames = getenv("VI_SERVER_ETHER") != NULL;
	for (uint32_t packets = HDL_PACKETS_CELLS; packets >= HDL_PACKETS_ROCEV2; packets--) {
		struct hdl_vi *other =
		        choosing(side, HDL_PACKETS_CELLS + HDL_PACKETS_ROCEV2 - packets);
		struct hdl_vi *vi = choosing(side, packets);
		if (packets == HDL_PACKETS_CELLS)
			CHECK(hdl_vi_connect(other, to, name, SIDE_WAIT_MS) == -HDL_ECONNREFUSED);
		MUST(hdl_vi_destroy(other));
		if (packets == HDL_PACKETS_ROCEV2 && frames) { /* which carry cells only */
			CHECK(hdl_vi_connect(vi, to, name, 1000) != 0);
			MUST(hdl_vi_destroy(vi));
			break;
		}
		MUST(hdl_vi_connect(vi, to, name, SIDE_WAIT_MS));
		pattern(side->data, LONG, packets);
		uint64_t before = packets_sent(side);
		side_post(side, vi, HDL_VI_SEND_QUEUE,
		          side_fill(side, packets, HDL_VI_SENDRECV, 0, LONG));
		CHECK(side_wait(vi, HDL_VI_SEND_QUEUE, &side->descriptors[packets]) == HDL_VI_DONE);
		uint64_t sent = packets_sent(side) - before;
		/* A cell has 256 bytes of data, a packet at least 1024; some may be sent again. */
		CHECK(packets == HDL_PACKETS_CELLS ? sent >= LONG / 256 : sent < LONG / 256);
		MUST(hdl_vi_destroy(vi));
	}
}

static void vi_chooses_packets(void **state)
{
	(void)state;
	if (getenv("VI_CELLS") == NULL)
		skip();
	assert_true(side_run(choice_server, choice_client));
}

static void vi_without_cells(void **state)
{
	(void)state;
	if (getenv("VI_CELLS") != NULL)
		skip();
	struct side side;
	struct hdl_vi_attr attr = side_attr(BOTH);
	struct hdl_vi *vi;
	attr.packets = HDL_PACKETS_CELLS;
	side_open(&side);
	assert_int_equal(hdl_vi_create(side.pd, &attr, &vi), -HDL_ENOTSUP);
	attr.packets = HDL_PACKETS_CELLS + 1;
	assert_int_equal(hdl_vi_create(side.pd, &attr, &vi), -HDL_ENOTSUP);
	side_close(&side);
}

/* --- the end of a connection --- */

static void again_server(struct side *side, const char *name)
{
	struct hdl_vi_listener *listener;
	struct hdl_vi *vi = side_vi(side, BOTH);
	MUST(hdl_vi_listen(side->adapter, name, NULL, &listener));
	CHECK(hdl_vi_disconnect(vi) == -HDL_EPERM);
	for (uint32_t round = 0; round < 3; round++) {
		struct hdl_vi_descriptor *first = side_fill(side, 0, HDL_VI_SENDRECV, 0, 64);
		struct hdl_vi_descriptor *second = side_fill(side, 1, HDL_VI_SENDRECV, 64, 64);
		side_post(side, vi, HDL_VI_RECEIVE_QUEUE, first);
		side_post(side, vi, HDL_VI_RECEIVE_QUEUE, second);
		MUST(hdl_vi_accept(listener, vi, SIDE_WAIT_MS));
		CHECK(side_wait(vi, HDL_VI_RECEIVE_QUEUE, first) ==
		      (HDL_VI_DONE | HDL_VI_DONE_RECEIVE));
		/* The peer leaves: what is still posted is flushed. */
		CHECK(side_wait(vi, HDL_VI_RECEIVE_QUEUE, second) ==
		      (HDL_VI_DONE | HDL_VI_DONE_RECEIVE | HDL_VI_FLUSHED));
		uint32_t now;
		MUST(hdl_vi_query(vi, &now));
		CHECK(now == HDL_VI_ERROR);
		MUST(hdl_vi_disconnect(vi));
		MUST(hdl_vi_query(vi, &now));
		CHECK(now == HDL_VI_IDLE);
	}
	MUST(hdl_vi_unlisten(listener));
	MUST(hdl_vi_destroy(vi));
}

static void again_client(struct side *side, const char *name, const struct hdl_gid *to)
{
	struct hdl_vi *vi = side_vi(side, BOTH);
	for (uint32_t round = 0; round < 3; round++) {
		struct hdl_vi_descriptor *unused = side_fill(side, 1, HDL_VI_SENDRECV, 64, 64);
		side_post(side, vi, HDL_VI_RECEIVE_QUEUE, unused);
		MUST(hdl_vi_connect(vi, to, name, SIDE_WAIT_MS));
		side_post(side, vi, HDL_VI_SEND_QUEUE, side_fill(side, 0, HDL_VI_SENDRECV, 0, 64));
		CHECK(side_wait(vi, HDL_VI_SEND_QUEUE, &side->descriptors[0]) == HDL_VI_DONE);
		MUST(hdl_vi_disconnect(vi));
		CHECK(side_status(unused) == (HDL_VI_DONE | HDL_VI_DONE_RECEIVE | HDL_VI_FLUSHED));
		void *done;
		MUST(hdl_vi_done(vi, HDL_VI_RECEIVE_QUEUE, &done));
		CHECK(done == unused);
	}
	MUST(hdl_vi_destroy(vi));
}

static void vi_connects_again(void **state)
{
	(void)state;
	assert_true(side_run(again_server, again_client));
}

static void killed_server(struct side *side, const char *name)
{
	void *done;
	struct hdl_vi *vi = accept_one(side, name, BOTH);
	hdl_vi_wait(vi, HDL_VI_RECEIVE_QUEUE, SIDE_WAIT_MS, &done);
}

static void killed_client(struct side *side, const char *name, const struct hdl_gid *to)
{
	struct hdl_vi *vi = side_vi(side, BOTH);
	struct hdl_vi_descriptor *waiting = side_fill(side, 0, HDL_VI_SENDRECV, 0, 64);
	side_post(side, vi, HDL_VI_RECEIVE_QUEUE, waiting);
	MUST(hdl_vi_connect(vi, to, name, SIDE_WAIT_MS));
	side_kill_server();
	CHECK(side_wait(vi, HDL_VI_RECEIVE_QUEUE, waiting) ==
	      (HDL_VI_DONE | HDL_VI_DONE_RECEIVE | HDL_VI_FLUSHED));
	MUST(hdl_vi_disconnect(vi));
	MUST(hdl_vi_destroy(vi));
}

static void vi_peer_is_killed(void **state)
{
	(void)state;
	assert_true(side_run_kill(killed_server, killed_client));
}

/* --- limits of the rendezvous --- */

static void crowded_server(struct side *side, const char *name)
{
	struct hdl_vi_listener *listener, *second;
	struct hdl_vi *vi = side_vi(side, BOTH), *datagram = side_vi(side, 0);
	char longest[HDL_VI_MAX_NAME + 2];
	memset(longest, 'n', sizeof(longest));
	longest[HDL_VI_MAX_NAME + 1] = '\0';
	CHECK(hdl_vi_listen(side->adapter, longest, NULL, &second) == -HDL_EINVAL);
	CHECK(hdl_vi_listen(side->adapter, "", NULL, &second) == -HDL_EINVAL);
	CHECK(hdl_vi_listen(side->adapter, name, vi, &second) == -HDL_EINVAL);
	longest[HDL_VI_MAX_NAME] = '\0';
	MUST(hdl_vi_listen(side->adapter, longest, datagram, &second));
	MUST(hdl_vi_listen(side->adapter, name, NULL, &listener));
	/* Nobody is accepted until the backlog is full and one of them was refused. */
	MUST(hdl_vi_accept(listener, vi, SIDE_WAIT_MS));
	side_post(side, vi, HDL_VI_RECEIVE_QUEUE, side_fill(side, 0, HDL_VI_SENDRECV, 0, 64));
	side_wait(vi, HDL_VI_RECEIVE_QUEUE, &side->descriptors[0]);
	MUST(hdl_vi_unlisten(listener)); /* refuses those that wait */
	MUST(hdl_vi_unlisten(second));
	MUST(hdl_vi_destroy(datagram));
	MUST(hdl_vi_destroy(vi));
}

static void crowded_client(struct side *side, const char *name, const struct hdl_gid *to)
{
	struct hdl_vi *vi = side_vi(side, BOTH), *datagram = side_vi(side, 0);
	struct hdl_vi_destination whom;
	char longest[HDL_VI_MAX_NAME + 1];
	memset(longest, 'n', HDL_VI_MAX_NAME);
	longest[HDL_VI_MAX_NAME] = '\0';
	CHECK(hdl_vi_connect(vi, to, "a name that nobody has", 50) == -HDL_ETIMEDOUT);
	CHECK(hdl_vi_connect(vi, to, "", 50) == -HDL_EINVAL);
	MUST(hdl_vi_connect(vi, to, name, SIDE_WAIT_MS));
	MUST(hdl_vi_resolve(datagram, to, longest, SIDE_WAIT_MS, &whom));
	CHECK(hdl_vi_resolve(datagram, to, name, SIDE_WAIT_MS, &whom) == -HDL_ECONNREFUSED);
	struct hdl_vi *other = side_vi(side, BOTH);
	CHECK(hdl_vi_connect(other, to, longest, SIDE_WAIT_MS) == -HDL_ECONNREFUSED);
	/* A request that is given up makes room for the next. */
	for (uint32_t i = 0; i < HDL_VI_BACKLOG + 3; i++)
		CHECK(hdl_vi_connect(other, to, name, 1) == -HDL_ETIMEDOUT);
	side_post(side, vi, HDL_VI_SEND_QUEUE, side_fill(side, 0, HDL_VI_SENDRECV, 0, 64));
	side_wait(vi, HDL_VI_SEND_QUEUE, &side->descriptors[0]);
	MUST(hdl_vi_destroy(other));
	MUST(hdl_vi_destroy(datagram));
	leave_last(vi);
}

static void vi_names_and_limits(void **state)
{
	(void)state;
	assert_true(side_run(crowded_server, crowded_client));
}

/* A name has one listener per node, whichever process or adapter of it asks (heddle/vi.h). */
static void taken_server(struct side *side, const char *name)
{
	struct hdl_vi_listener *listener, *second;
	struct hdl_vi *vi = side_vi(side, BOTH), *datagram = side_vi(side, 0);
	struct side other;
	char early[HDL_VI_MAX_NAME]; /* one that no request comes for */
	snprintf(early, sizeof(early), "%.40s early", name);
	MUST(hdl_vi_listen(side->adapter, early, NULL, &listener));
	side_open(&other);
	CHECK(hdl_vi_listen(side->adapter, early, NULL, &second) == -HDL_EADDRINUSE);
	CHECK(hdl_vi_listen(side->adapter, early, datagram, &second) == -HDL_EADDRINUSE);
	CHECK(hdl_vi_listen(other.adapter, early, NULL, &second) == -HDL_EADDRINUSE);
	/* Given up, another may have it, and keeps it. */
	uint16_t lid;
	MUST(hdl_vi_unlisten(listener));
	MUST(hdl_vi_listen(side->adapter, early, NULL, &listener));
	MUST(hdl_vi_unlisten(listener));
	hdl_node_find(side->adapter, &side->gid, &lid); /* now the agent has heard of it */
	MUST(hdl_vi_listen(other.adapter, early, NULL, &second));
	CHECK(hdl_vi_listen(side->adapter, early, NULL, &listener) == -HDL_EADDRINUSE);
	MUST(hdl_vi_unlisten(second));
	hdl_node_find(other.adapter, &other.gid, &lid);
	side_close(&other);
	MUST(hdl_vi_listen(side->adapter, name, NULL, &listener));
	MUST(hdl_vi_accept(listener, vi, SIDE_WAIT_MS));
	void *done;
	hdl_vi_wait(vi, HDL_VI_RECEIVE_QUEUE, SIDE_WAIT_MS, &done); /* until it is killed */
}

static void taken_client(struct side *side, const char *name, const struct hdl_gid *to)
{
	bool same_node = getenv("VI_SERVER_ADDR") == NULL && getenv("VI_SERVER_ETHER") == NULL;
	struct hdl_vi *vi = side_vi(side, BOTH);
	struct hdl_vi_descriptor *waiting = side_fill(side, 0, HDL_VI_SENDRECV, 0, 64);
	struct hdl_vi_listener *listener;
	side_post(side, vi, HDL_VI_RECEIVE_QUEUE, waiting);
	MUST(hdl_vi_connect(vi, to, name, SIDE_WAIT_MS));
	int result = hdl_vi_listen(side->adapter, name, NULL, &listener);
	CHECK(result == (same_node ? -HDL_EADDRINUSE : 0));
	if (result == 0)
		MUST(hdl_vi_unlisten(listener));
	side_kill_server();
	side_wait(vi, HDL_VI_RECEIVE_QUEUE, waiting); /* it is gone; the agent hears of it, too */
	result = -HDL_EADDRINUSE;
	for (int tries = 0; tries < 4000 && result == -HDL_EADDRINUSE; tries++) {
		result = hdl_vi_listen(side->adapter, name, NULL, &listener);
		if (result != 0)
			usleep(1000);
	}
	CHECK(result == 0);
	MUST(hdl_vi_unlisten(listener));
	MUST(hdl_vi_destroy(vi));
}

static void vi_a_name_has_one_listener(void **state)
{
	(void)state;
	assert_true(side_run_kill(taken_server, taken_client));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(vi_messages),
	        cmocka_unit_test(vi_rdma),
	        cmocka_unit_test(vi_many_one_queue),
	        cmocka_unit_test(vi_unacknowledged),
	        cmocka_unit_test(vi_without_connection),
	        cmocka_unit_test(vi_acknowledged_without_connection),
	        cmocka_unit_test(vi_chooses_packets),
	        cmocka_unit_test(vi_without_cells),
	        cmocka_unit_test(vi_connects_again),
	        cmocka_unit_test(vi_peer_is_killed),
	        cmocka_unit_test(vi_names_and_limits),
	        cmocka_unit_test(vi_a_name_has_one_listener),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
