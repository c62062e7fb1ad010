/* A peer that has forgotten a connection asks for another one with the same queue pair: the old one
 * ends (IBTA volume 1, 12.9.8.3.1). Nobody else can end it so.
 *
 * An unmodified server, rping, waits under heddle run; this process is its peer across the wire,
 * and a stranger at another address. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cmpeer.h"
#include "end.h"

#define WAIT_MS  20000
#define QUIET_MS 1000
#define SKIPPED  77
#define SPACE    0x106u /* RDMA_PS_TCP */
#define PORT     "7174"
#define GUID     0x0002c90300abcdefu
#define QPN      0x4711u

static const char *heddle;
static char here[32];
static struct udp_address there;
static struct cm_peer peer, stranger;
static pid_t server;

/* Ask for a connection to the queue pair @qpn, as number @id. */
static void request(struct cm_peer *from, uint32_t id, uint32_t qpn)
{
	struct ib_cm_message message = {.kind = IB_CM_REQ, .transaction_id = id};
	struct ib_cm_ip ip = {.family = 4, .port = 4000};
	struct ib_cm_req *req = &message.u.req;
	memcpy(ip.src + 12, from->address.gid + 12, 4);
	memcpy(ip.dst + 12, there.gid + 12, 4);
	*req = (struct ib_cm_req){.local_id = id,
	                          .service_id = ib_cm_service(SPACE, (uint16_t)atoi(PORT)),
	                          .ca_guid = GUID,
	                          .qpn = qpn,
	                          .responder_resources = 1,
	                          .initiator_depth = 1,
	                          .remote_response_timeout = IB_CM_RESPONSE_TIMEOUT,
	                          .local_response_timeout = IB_CM_RESPONSE_TIMEOUT,
	                          .transport = IB_CM_RC,
	                          .retry_count = 7,
	                          .rnr_retry_count = 7,
	                          .max_retries = IB_CM_MAX_RETRIES,
	                          .pkey = 0xffff,
	                          .mtu = 3,
	                          .primary = {.hop_limit = 64, .ack_timeout = 14}};
	memcpy(req->primary.local_gid, from->address.gid, 16);
	memcpy(req->primary.remote_gid, there.gid, 16);
	ib_cm_ip_encode(&ip, req->private_data);
	cm_peer_say(from, &message, &there);
}

/* Hear a message of @kind that is for number @id, and pass over others. */
static bool hear(struct cm_peer *by, enum ib_cm_kind kind, uint32_t id,
                 struct ib_cm_message *message, double ms)
{
	struct udp_address from;
	double until = now_ms() + ms;
	while (cm_peer_hear(by, message, &from, until - now_ms())) {
		uint32_t number;
		uint64_t service;
		assert_true(ib_cm_addressee(message, &number, &service));
		if (message->kind == kind && number == id)
			return true;
	}
	return false;
}

/* Connect, as number @id, within @ms. Returns the server's number; 0: it does not answer so. */
static uint32_t connect_as(struct cm_peer *by, uint32_t id, uint32_t qpn, double ms)
{
	struct ib_cm_message message;
	request(by, id, qpn);
	if (!hear(by, IB_CM_REP, id, &message, ms))
		return 0;
	struct ib_cm_message rtu = {.kind = IB_CM_RTU, .transaction_id = id};
	rtu.u.rtu.local_id = id;
	rtu.u.rtu.remote_id = message.u.rep.local_id;
	cm_peer_say(by, &rtu, &there);
	return message.u.rep.local_id;
}

static void test_forgotten(void **state)
{
	(void)state;
	struct ib_cm_message message;
	uint32_t first = connect_as(&peer, 1, QPN, WAIT_MS);
	assert_int_not_equal(first, 0);

	/* Another one may have a queue pair of the same number, and an adapter that says the same
	 * of itself. */
	assert_int_not_equal(connect_as(&stranger, 2, QPN, WAIT_MS), 0);
	assert_false(hear(&peer, IB_CM_DREQ, 1, &message, QUIET_MS));

	request(&peer, 3, QPN);
	bool ended = false, refused = false;
	struct udp_address from;
	while (!ended || !refused) {
		assert_true(cm_peer_hear(&peer, &message, &from, WAIT_MS));
		if (message.kind == IB_CM_DREQ) {
			assert_int_equal(message.u.dreq.remote_id, 1);
			assert_int_equal(message.u.dreq.local_id, first);
			assert_int_equal(message.u.dreq.remote_qpn, QPN);
			struct ib_cm_message drep = {.kind = IB_CM_DREP,
			                             .transaction_id = message.transaction_id};
			drep.u.drep.local_id = 1;
			drep.u.drep.remote_id = first;
			cm_peer_say(&peer, &drep, &there);
			ended = true;
		} else {
			assert_int_equal(message.kind, IB_CM_REJ);
			assert_int_equal(message.u.rej.remote_id, 3);
			assert_int_equal(message.u.rej.reason, IB_CM_STALE_CONNECTION);
			refused = true;
		}
	}
	assert_int_not_equal(connect_as(&peer, 4, QPN, WAIT_MS), 0);
	assert_false(hear(&stranger, IB_CM_DREQ, 2, &message, QUIET_MS));
}

static int begin(void **state)
{
	(void)state;
	char own[2][32];
	int low = getpid() & 255, high = getpid() >> 8 & 255;
	snprintf(here, sizeof(here), "127.81.%d.%d", high, low);
	for (int i = 0; i < 2; i++)
		snprintf(own[i], sizeof(own[i]), "127.%d.%d.%d", 82 + i, high, low);
	if (!udp_address_parse(here, &there) || !cm_peer_open(&peer, own[0]) ||
	    !cm_peer_open(&stranger, own[1]))
		return -1;
	server = fork();
	if (server == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setenv("HEDDLE_LOCAL", "off", 1);
		execl(heddle, heddle, "run", "--addr", here, "--", "rping", "-s", "-P", "-a", here,
		      "-p", PORT, (char *)NULL);
		_exit(127);
	}
	/* It listens when it does not refuse any more. */
	for (double until = now_ms() + WAIT_MS; now_ms() < until;)
		if (connect_as(&stranger, 9, QPN + 1, QUIET_MS) != 0)
			return 0;
	return -1;
}

static int end(void **state)
{
	(void)state;
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
	cm_peer_close(&peer);
	cm_peer_close(&stranger);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_forgotten)};
	heddle = argc > 1 ? argv[1] : "heddle";
	if (system("command -v rping > /dev/null") != 0) {
		printf("skipped: rping is not installed\n");
		return SKIPPED;
	}
	return cmocka_run_group_tests(tests, begin, end);
}
