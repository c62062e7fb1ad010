/* The calls of IBC (VSWITCH table 1, paragraphs 34 to 53) between clients of one node: parameters,
 * results, figure 5, time-outs, identifiers, and what the text leaves open. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "ibc/observe.h"
#include "peer.h"

static unsigned own;

static int register_client(void **state)
{
	(void)state;
	return IBC_Init(IBC_CLIENTANY, &own, NULL, NULL);
}

static int finish(void **state)
{
	(void)state;
	return IBC_Finish();
}

static struct peer start_echo(void)
{
	struct peer peer = peer_start(IBC_CLIENTANY, peer_echo);
	assert_int_not_equal(peer.apid, 0);
	assert_int_equal(peer_hear(peer.channel), 'r');
	return peer;
}

static int send_to(unsigned apid, const char *text)
{
	return IBC_Send(IBC_WRITE_REQUEST_NO_ACK, NULL, 0, apid, text, (uint32_t)strlen(text), NULL,
	                IBC_PORT_ROUTE);
}

/* --- IBC_Init, IBC_Finish --- */

static void calls_need_init(void **state)
{
	(void)state;
	IBC_HANDLE handle = 1;
	bool received;
	struct IBC_Target target = peer_target(40);
	assert_int_equal(IBC_Finish(), IBC_NOT_INITIALIZED);
	assert_int_equal(send_to(40, "x"), IBC_NOT_INITIALIZED);
	assert_int_equal(IBC_RecvPost(&handle), IBC_NOT_INITIALIZED);
	assert_int_equal(IBC_RecvWait(1, &peer_now, NULL, NULL, NULL, NULL), IBC_BADPARAM);
	assert_int_equal(IBC_RecvWaitAny(&handle, 1, &peer_now, NULL, &received, NULL, NULL, NULL),
	                 IBC_BADPARAM);
	assert_int_equal(IBC_RecvPoll(1), IBC_BADPARAM);
	assert_int_equal(IBC_CloseHandle(1), IBC_BADPARAM);
	assert_int_equal(IBC_Request(&target, IBC_READ_REQUEST, NULL, 0, NULL, 0, NULL, 0, NULL),
	                 IBC_NOT_INITIALIZED);
	assert_int_equal(IBC_Descriptor(), -1);
}

static void vs8_identifiers(void **state)
{
	(void)state;
	unsigned apid = 0, count = 7;
	uint64_t guids[7];
	assert_int_equal(IBC_Init(IBC_CLIENTANY, &apid, guids, &count), 0);
	assert_in_range(apid, 32, 62);
	assert_int_equal(count, 0);                           /* no NIC */
	assert_int_equal(IBC_Init(50, &apid, NULL, NULL), 0); /* one more */
	assert_int_equal(apid, 50);
	assert_int_equal(IBC_Init(50, &apid, NULL, NULL), IBC_ID_NOTAVAILABLE);
	assert_int_equal(IBC_Init(IBC_WISH(50), &apid, NULL, NULL), 0);
	assert_int_not_equal(apid, 50);
	assert_in_range(apid, 32, 62);
	assert_int_equal(IBC_Init(0, &apid, NULL, NULL), IBC_BADPARAM);
	assert_int_equal(IBC_Init(15, &apid, NULL, NULL), IBC_BADPARAM);
	assert_int_equal(IBC_Init(64, &apid, NULL, NULL), IBC_BADPARAM);
	assert_int_equal(IBC_Init(0x200, &apid, NULL, NULL), IBC_BADPARAM);
	assert_int_equal(IBC_Init(IBC_CLIENTANY, &apid, guids, NULL), IBC_BADPARAM);
	/* Without the right */
	for (unsigned special = 16; special < 32; special++)
		assert_int_equal(IBC_Init(special, &apid, NULL, NULL), IBC_ID_NOTAVAILABLE);
	assert_int_equal(IBC_Init(63, &apid, NULL, NULL), IBC_ID_NOTAVAILABLE);
	assert_int_equal(IBC_Init(IBC_WISH(20), &apid, NULL, NULL), 0);
	assert_in_range(apid, 32, 62);
	assert_int_equal(IBC_Finish(), 0);
	assert_int_equal(IBC_Finish(), IBC_NOT_INITIALIZED);
}

static void vs8_special_identifiers_need_the_key(void **state)
{
	(void)state;
	unsigned apid = 0;
	setenv("HEDDLE_IBC_KEY", "00000000000000000000000000000000", 1);
	assert_int_equal(IBC_Init(20, &apid, NULL, NULL), IBC_ID_NOTAVAILABLE);
	setenv("HEDDLE_IBC_KEY", "0123456789abcdef0123456789abcdef", 1);
	assert_int_equal(IBC_Init(20, &apid, NULL, NULL), IBC_ID_NOTAVAILABLE);
	setenv("HEDDLE_IBC_KEY", "nonsense", 1);
	assert_int_equal(IBC_Init(20, &apid, NULL, NULL), IBC_ATTACH_FAILED);
	peer_take_key();
	for (unsigned special = 16; special < 31; special++) {
		assert_int_equal(IBC_Init(special, &apid, NULL, NULL), 0);
		assert_int_equal(apid, special);
	}
	assert_int_equal(IBC_Init(31, &apid, NULL, NULL), IBC_ID_NOTAVAILABLE);
	assert_int_equal(IBC_Init(63, &apid, NULL, NULL), 0);
	assert_int_equal(IBC_Finish(), 0);
	unsetenv("HEDDLE_IBC_KEY");
}

/* Nothing can come from 63, the end mark of routes: whoever holds it sends from another one. */
static void all_applications_is_no_source(void **state)
{
	(void)state;
	unsigned apid = 0;
	IBC_HANDLE handle;
	struct IBC_Info info;
	struct peer agent_stays = peer_start(IBC_CLIENTANY, peer_silent);
	assert_int_equal(peer_hear(agent_stays.channel), 'r');
	peer_take_key();
	assert_int_equal(IBC_Init(63, &apid, NULL, NULL), 0);
	assert_int_equal(IBC_RecvPost(&handle), 0);
	assert_int_equal(send_to(63, "from nowhere"), IBC_BADPARAM);
	assert_int_equal(IBC_Init(40, &apid, NULL, NULL), 0);
	assert_int_equal(IBC_Init(41, &apid, NULL, NULL), 0);
	assert_int_equal(send_to(41, "from the first that can"), 0);
	assert_int_equal(IBC_RecvWaitInfo(handle, &peer_soon, NULL, &info), IBC_RECVDONE);
	assert_int_equal(info.Source, 40);
	struct IBC_Target target = peer_target(41);
	target.Client = 63;
	assert_int_equal(IBC_SendTo(&target, IBC_WRITE_REQUEST, 1, "x", 1), IBC_BADPARAM);
	/* What came for 63 is answered by that one, too. */
	target.Client = 41;
	target.Destination = 63;
	assert_int_equal(IBC_SendTo(&target, IBC_WRITE_REQUEST, 7, "x", 1), 0);
	do {
		assert_int_equal(IBC_RecvWaitInfo(handle, &peer_soon, NULL, &info), IBC_RECVDONE);
	} while (info.Client != 63);
	assert_int_equal(IBC_Respond(&info, IBC_WRITE_RESPONSE, 0, NULL, 0), 0);
	do {
		assert_int_equal(IBC_RecvWaitInfo(handle, &peer_soon, NULL, &info), IBC_RECVDONE);
	} while (info.Type != IBC_WRITE_RESPONSE);
	assert_int_equal(info.Source, 40);
	assert_int_equal(info.Transaction, 7);
	assert_int_equal(IBC_Finish(), 0);
	unsetenv("HEDDLE_IBC_KEY");
	peer_end(&agent_stays, 0);
}

static void every_apid_can_be_held(void **state)
{
	(void)state;
	unsigned apid;
	for (unsigned i = 0; i < IBC_LIMIT_GENERAL_APIDS; i++)
		assert_int_equal(IBC_Init(IBC_CLIENTANY, &apid, NULL, NULL), 0);
	assert_int_equal(IBC_Init(IBC_CLIENTANY, &apid, NULL, NULL), IBC_ATTACH_FAILED);
	IBC_HANDLE handle;
	struct IBC_Info info;
	assert_int_equal(IBC_RecvPost(&handle), 0);
	for (unsigned i = 32; i <= 62; i++) {
		assert_int_equal(send_to(i, "to each"), 0);
		assert_int_equal(IBC_RecvWaitInfo(handle, &peer_soon, NULL, &info), IBC_RECVDONE);
		assert_int_equal(info.Client, i);
	}
	assert_int_equal(IBC_Finish(), 0);
}

/* --- IBC_Send --- */

static void send_checks_its_parameters(void **state)
{
	(void)state;
	static char text[IBC_LIMIT_PAYLOAD + 1];
	struct IBC_Route route = {.Pointer = 1, .Hops = 1, .Ports = {63}};
	IBC_GUID guid = 1;
	assert_int_equal(IBC_Send(0, NULL, 0, own, text, 1, NULL, IBC_PORT_ROUTE), IBC_BADPARAM);
	assert_int_equal(IBC_Send(7, NULL, 0, own, text, 1, NULL, IBC_PORT_ROUTE), IBC_BADPARAM);
	assert_int_equal(IBC_Send(2, NULL, 0, 64, text, 1, NULL, IBC_PORT_ROUTE), IBC_BADPARAM);
	assert_int_equal(IBC_Send(2, NULL, 0, own, NULL, 1, NULL, IBC_PORT_ROUTE), IBC_BADPARAM);
	assert_int_equal(IBC_Send(2, NULL, 0, own, text, sizeof(text), NULL, IBC_PORT_ROUTE),
	                 IBC_BADPARAM);
	assert_int_equal(IBC_Send(2, NULL, 0, own, text, 1, &route, IBC_PORT_ROUTE), IBC_BADPARAM);
	route.Ports[0] = 40;
	route.Pointer = 3;
	assert_int_equal(IBC_Send(2, NULL, 0, own, text, 1, &route, IBC_PORT_ROUTE), IBC_BADPARAM);
	route.Hops = 63;
	assert_int_equal(IBC_Send(2, NULL, 0, own, text, 1, &route, IBC_PORT_ROUTE), IBC_BADPARAM);
	/* No process runs hardware ports here, which could tell whether there is such a NIC. */
	assert_int_equal(IBC_Send(2, &guid, 0, own, text, 1, NULL, PORT_0), IBC_HARDWARE_ERROR);
	assert_int_equal(IBC_Send(2, &guid, 0, own, text, 1, NULL, 200), IBC_BADPARAM);
}

static void messages_of_every_type_and_length(void **state)
{
	(void)state;
	static char out[IBC_LIMIT_PAYLOAD], in[IBC_LIMIT_PAYLOAD];
	IBC_HANDLE handle;
	assert_int_equal(IBC_RecvPost(&handle), 0);
	for (unsigned i = 0; i < sizeof(out); i++)
		out[i] = (char)(i * 7);
	for (int type = IBC_READ_REQUEST; type <= IBC_NACK; type++)
		for (uint32_t length = 0; length <= IBC_LIMIT_PAYLOAD;
		     length = length == 0 ? 1 : length * 2) {
			struct IBC_Info info;
			uint64_t guid = 99;
			unsigned port = 99, source = 99;
			bool payload = type != IBC_WRITE_RESPONSE && type != IBC_READ_REQUEST;
			assert_int_equal(IBC_Send(type, NULL, 0, own, payload ? out : NULL, length,
			                          NULL, IBC_PORT_ROUTE),
			                 0);
			assert_int_equal(IBC_RecvWaitInfo(handle, &peer_soon, in, &info),
			                 IBC_RECVDONE);
			assert_int_equal(info.Type, type);
			assert_int_equal(info.Length, payload ? length : 0);
			assert_memory_equal(in, out, info.Length);
			assert_int_equal(send_to(own, "again"), 0);
			assert_int_equal(
			        IBC_RecvWait(handle, &peer_soon, in, &guid, &port, &source),
			        IBC_RECVDONE);
			assert_int_equal(guid, 0);
			assert_int_equal(port, own);
			assert_int_equal(source, own);
		}
}

static void nobody_there_is_a_nack(void **state)
{
	(void)state;
	IBC_HANDLE handle;
	struct IBC_Info info;
	struct IBC_Route route = {.Pointer = 1, .Hops = 1, .Ports = {(uint8_t)own}};
	static const struct {
		unsigned apid;
		uint8_t port;
		int reason;
	} rows[] = {{61, 0xff, IBC_NACK_NO_APPLICATION},
	            {31, 0xff, IBC_NACK_NO_APPLICATION},
	            {40, 61, IBC_NACK_NO_APPLICATION},
	            {40, 3, IBC_NACK_PORT_DOWN}};
	assert_int_equal(IBC_RecvPost(&handle), 0);
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		route.Ports[0] = rows[i].port;
		assert_int_equal(IBC_Send(IBC_WRITE_REQUEST, NULL, 0, rows[i].apid, "x", 1,
		                          rows[i].port != 0xff ? &route : NULL, IBC_PORT_ROUTE),
		                 0);
		assert_int_equal(IBC_RecvWaitInfo(handle, &peer_soon, NULL, &info), IBC_RECVDONE);
		assert_int_equal(info.Type, IBC_NACK);
		assert_int_equal(info.Reason, rows[i].reason);
	}
	route.Ports[0] = (uint8_t)own; /* back to where it came from */
	assert_int_equal(IBC_Send(IBC_WRITE_REQUEST, NULL, 0, 0, "x", 1, &route, IBC_PORT_ROUTE),
	                 0);
	assert_int_equal(IBC_RecvWaitInfo(handle, &peer_soon, NULL, &info), IBC_RECVDONE);
	assert_int_equal(info.Reason, IBC_NACK_LOOP);
	/* A NACK never answers a NACK. */
	assert_int_equal(IBC_Send(IBC_NACK, NULL, 0, 61, NULL, 0, NULL, IBC_PORT_ROUTE), 0);
	assert_int_equal(IBC_RecvWaitInfo(handle, &peer_now, NULL, &info), IBC_TIMEDOUT);
}

static void routes_through_applications(void **state)
{
	(void)state;
	IBC_HANDLE handle;
	struct IBC_Info info;
	char in[IBC_LIMIT_PAYLOAD];
	struct peer echo = start_echo();
	struct IBC_Route route = {.Pointer = 1, .Hops = 1, .Ports = {(uint8_t)echo.apid}};
	assert_int_equal(IBC_RecvPost(&handle), 0);
	/* The route names the application; whatever the packet's destination is. */
	assert_int_equal(IBC_Send(IBC_WRITE_REQUEST_NO_ACK, NULL, 0, 5, "by route", 8, &route,
	                          IBC_PORT_ROUTE),
	                 0);
	assert_int_equal(IBC_RecvWaitInfo(handle, &peer_soon, in, &info), IBC_RECVDONE);
	assert_memory_equal(in, "by route", 8);
	assert_true(info.ByRoute && info.Route.Reverse);
	assert_int_equal(info.Route.Pointer, 0);
	assert_int_equal(info.Route.Ports[0], echo.apid);
	/* Routes may have as many ports as they like, as long as nobody uses them. */
	route.Hops = IBC_LIMIT_HOPS;
	assert_int_equal(
	        IBC_Send(IBC_WRITE_REQUEST_NO_ACK, NULL, 0, 5, "long", 4, &route, IBC_PORT_ROUTE),
	        0);
	assert_int_equal(IBC_RecvWaitInfo(handle, &peer_soon, in, &info), IBC_RECVDONE);
	assert_int_equal(info.Route.Hops, IBC_LIMIT_HOPS);
	assert_int_equal(peer_end(&echo, 0), 0);
}

static void all_applications_at_once(void **state)
{
	(void)state;
	struct peer a = start_echo(), b = start_echo();
	IBC_HANDLE handle;
	struct IBC_Info info;
	unsigned seen = 0;
	assert_int_equal(IBC_RecvPost(&handle), 0);
	assert_int_equal(send_to(IBC_CLIENTALL, "all"), 0);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(IBC_RecvWaitInfo(handle, &peer_soon, NULL, &info), IBC_RECVDONE);
		seen |= info.Source == own      ? 1u
		        : info.Source == a.apid ? 2u
		        : info.Source == b.apid ? 4u
		                                : 8u;
	}
	assert_int_equal(seen, 7);
	peer_end(&a, 0);
	peer_end(&b, 0);
}

/* --- figure 5 --- */

/* Each state of a handle, and each call: what the call returns, and the state after it. */
static void vs7_figure_5(void **state)
{
	(void)state;
	enum { CALL_POLL, CALL_WAIT, CALL_ANY };
	static const struct {
		bool signalled;
		int call, result;
		bool after;
	} rows[] = {
	        {false, CALL_POLL, IBC_RECVNOTDONE, false},
	        {true, CALL_POLL, IBC_READYFORCOPY, true},
	        {false, CALL_WAIT, IBC_TIMEDOUT, false},
	        {true, CALL_WAIT, IBC_RECVDONE, false},
	        {false, CALL_ANY, IBC_TIMEDOUT, false},
	        {true, CALL_ANY, IBC_RECVDONE, false},
	};
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		IBC_HANDLE handle;
		bool received = true;
		char in[IBC_LIMIT_PAYLOAD] = "";
		void *buffers[1] = {in};
		int result = -1;
		assert_int_equal(IBC_RecvPost(&handle), 0); /* non-signalled */
		assert_int_equal(IBC_RecvPoll(handle), IBC_RECVNOTDONE);
		if (rows[i].signalled) {
			assert_int_equal(send_to(own, "packet"), 0);
			assert_int_equal(IBC_RecvPoll(handle), IBC_READYFORCOPY);
		}
		if (rows[i].call == CALL_POLL)
			result = IBC_RecvPoll(handle);
		else if (rows[i].call == CALL_WAIT)
			result = IBC_RecvWait(handle, &peer_now, in, NULL, NULL, NULL);
		else
			result = IBC_RecvWaitAny(&handle, 1, &peer_now, NULL, &received, NULL,
			                         buffers, NULL);
		assert_int_equal(result, rows[i].result);
		assert_string_equal(in, rows[i].result == IBC_RECVDONE ? "packet" : "");
		if (rows[i].call == CALL_ANY)
			assert_int_equal(received, rows[i].signalled);
		assert_int_equal(IBC_RecvPoll(handle),
		                 rows[i].after ? IBC_READYFORCOPY : IBC_RECVNOTDONE);
		/* The receive is posted again: another packet arrives in the same handle. */
		if (!rows[i].after) {
			assert_int_equal(send_to(own, "next"), 0);
			assert_int_equal(IBC_RecvPoll(handle), IBC_READYFORCOPY);
		}
		assert_int_equal(IBC_RecvWait(handle, &peer_now, NULL, NULL, NULL, NULL),
		                 IBC_RECVDONE);
		assert_int_equal(IBC_CloseHandle(handle), 0);
		assert_int_equal(IBC_CloseHandle(handle), IBC_BADPARAM);
		assert_int_equal(IBC_RecvPoll(handle), IBC_BADPARAM);
	}
}

static void a_packet_stays_until_it_is_fetched(void **state)
{
	(void)state;
	IBC_HANDLE a, b;
	char in[IBC_LIMIT_PAYLOAD] = "";
	assert_int_equal(IBC_RecvPost(&a), 0);
	assert_int_equal(IBC_RecvPost(&b), 0);
	assert_int_equal(send_to(own, "first"), 0);
	assert_int_equal(send_to(own, "second"), 0);
	assert_int_equal(send_to(own, "third"), 0); /* no free handle: it is kept */
	struct IBC_Counters counters;
	assert_int_equal(IBC_Statistics(&counters), 0);
	assert_int_equal(counters.Kept, 1);
	for (int i = 0; i < 3; i++)
		assert_int_equal(IBC_RecvPoll(a), IBC_READYFORCOPY);
	assert_int_equal(IBC_RecvWait(b, &peer_now, in, NULL, NULL, NULL), IBC_RECVDONE);
	assert_memory_equal(in, "second", 6);
	assert_int_equal(IBC_RecvWait(b, &peer_now, in, NULL, NULL, NULL), IBC_RECVDONE);
	assert_memory_equal(in, "third", 5);
	assert_int_equal(IBC_RecvWait(a, &peer_now, in, NULL, NULL, NULL), IBC_RECVDONE);
	assert_memory_equal(in, "first", 5);
}

static void wait_any_completes_every_ready_handle(void **state)
{
	(void)state;
	enum { COUNT = 5 };
	IBC_HANDLE list[COUNT];
	static char room[COUNT][IBC_LIMIT_PAYLOAD];
	void *buffers[COUNT];
	uint64_t guids[COUNT];
	unsigned ports[COUNT], sources[COUNT];
	bool received[COUNT];
	for (unsigned i = 0; i < COUNT; i++) {
		assert_int_equal(IBC_RecvPost(&list[i]), 0);
		buffers[i] = room[i];
		memset(room[i], '-', 4);
		guids[i] = ports[i] = sources[i] = 77;
		received[i] = true;
	}
	assert_int_equal(send_to(own, "p0"), 0);
	assert_int_equal(send_to(own, "p1"), 0);
	assert_int_equal(send_to(own, "p2"), 0);
	/* Handle 1 is fetched alone before. */
	assert_int_equal(IBC_RecvWait(list[1], NULL, NULL, NULL, NULL, NULL), IBC_RECVDONE);
	assert_int_equal(
	        IBC_RecvWaitAny(list, COUNT, NULL, guids, received, ports, buffers, sources),
	        IBC_RECVDONE);
	for (unsigned i = 0; i < COUNT; i++) {
		bool has = i == 0 || i == 2;
		assert_int_equal(received[i], has);
		assert_int_equal(guids[i], has ? 0 : 77);
		assert_int_equal(ports[i], has ? own : 77);
		assert_int_equal(sources[i], has ? own : 77);
		assert_int_equal(room[i][0], has ? 'p' : '-');
		assert_int_equal(IBC_RecvPoll(list[i]), IBC_RECVNOTDONE);
	}
	assert_int_equal(
	        IBC_RecvWaitAny(list, COUNT, &peer_now, guids, received, ports, buffers, sources),
	        IBC_TIMEDOUT);
	for (unsigned i = 0; i < COUNT; i++)
		assert_false(received[i]);
	/* One that is not valid: no packet is taken. */
	assert_int_equal(send_to(own, "p3"), 0);
	IBC_HANDLE closed = list[COUNT - 1];
	assert_int_equal(IBC_CloseHandle(closed), 0);
	assert_int_equal(
	        IBC_RecvWaitAny(list, COUNT, &peer_now, guids, received, ports, buffers, sources),
	        IBC_BADPARAM);
	assert_int_equal(IBC_RecvWaitAny(list, 0, &peer_now, NULL, NULL, NULL, NULL, NULL),
	                 IBC_BADPARAM);
	assert_int_equal(
	        IBC_RecvWaitAny(list, COUNT - 1, &peer_now, NULL, received, NULL, NULL, NULL),
	        IBC_RECVDONE);
}

/* --- time-outs --- */

static void time_outs(void **state)
{
	(void)state;
	IBC_HANDLE handle;
	struct timespec time = {0, 30000000}, wrong = {0, 1000000000};
	assert_int_equal(IBC_RecvPost(&handle), 0);
	uint64_t begin = clock_now_ns();
	assert_int_equal(IBC_RecvWait(handle, &peer_now, NULL, NULL, NULL, NULL), IBC_TIMEDOUT);
	assert_true(clock_now_ns() - begin < 1000000000u);
	begin = clock_now_ns();
	assert_int_equal(IBC_RecvWait(handle, &time, NULL, NULL, NULL, NULL), IBC_TIMEDOUT);
	assert_true(clock_now_ns() - begin >= 30000000u);
	assert_int_equal(IBC_RecvPoll(handle), IBC_RECVNOTDONE);
	assert_int_equal(IBC_RecvWait(handle, &wrong, NULL, NULL, NULL, NULL), IBC_BADPARAM);
	/* NULL waits until somebody else sends. */
	struct peer echo = start_echo();
	assert_int_equal(send_to(echo.apid, "x"), 0);
	assert_int_equal(IBC_RecvWait(handle, NULL, NULL, NULL, NULL, NULL), IBC_RECVDONE);
	peer_end(&echo, 0);
}

/* --- what the text leaves open --- */

static void longer_than_every_buffer(void **state)
{
	(void)state;
	IBC_HANDLE small, large;
	struct IBC_Info info;
	char in[IBC_LIMIT_PAYLOAD] = "";
	assert_int_equal(IBC_RecvPostLength(8, &small), 0);
	assert_int_equal(send_to(own, "more than eight"), 0);
	/* Nothing is truncated: the sender, which is us, gets a NACK; it fits. */
	assert_int_equal(IBC_RecvWaitInfo(small, &peer_soon, in, &info), IBC_RECVDONE);
	assert_int_equal(info.Type, IBC_NACK);
	assert_int_equal(info.Reason, IBC_NACK_NO_RECEIVE);
	/* With a longer one beside it, that gets the packet, although it was posted later. */
	assert_int_equal(IBC_RecvPostLength(100, &large), 0);
	assert_int_equal(send_to(own, "more than eight"), 0);
	assert_int_equal(IBC_RecvPoll(small), IBC_RECVNOTDONE);
	assert_int_equal(IBC_RecvWaitInfo(large, &peer_soon, in, &info), IBC_RECVDONE);
	assert_memory_equal(in, "more than eight", info.Length);
	assert_int_equal(IBC_RecvPostLength(IBC_LIMIT_PAYLOAD + 1, &large), IBC_BADPARAM);
	assert_int_equal(IBC_RecvPost(NULL), IBC_BADPARAM);
}

static void *wait_for_ever(void *context)
{
	IBC_HANDLE handle = *(IBC_HANDLE *)context;
	return (void *)(intptr_t)IBC_RecvWait(handle, NULL, NULL, NULL, NULL, NULL);
}

static int outcome(pthread_t thread)
{
	void *result = NULL;
	assert_int_equal(pthread_join(thread, &result), 0);
	return (int)(intptr_t)result;
}

static void two_threads_on_one_handle(void **state)
{
	(void)state;
	IBC_HANDLE handle;
	pthread_t threads[2];
	uint64_t begin = clock_now_ns();
	assert_int_equal(IBC_RecvPost(&handle), 0);
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 2; i++)
			assert_int_equal(pthread_create(&threads[i], NULL, wait_for_ever, &handle),
			                 0);
		if (round % 2 == 0)
			usleep(2000); /* they sleep by now */
		assert_int_equal(send_to(own, "for one"), 0);
		assert_int_equal(send_to(own, "for the other"), 0);
		for (int i = 0; i < 2; i++)
			assert_int_equal(outcome(threads[i]), IBC_RECVDONE);
		assert_int_equal(IBC_RecvPoll(handle), IBC_RECVNOTDONE);
	}
	assert_true(clock_now_ns() - begin < 5000000000u); /* nobody is left to sleep */
}

static void close_while_threads_wait(void **state)
{
	(void)state;
	pthread_t threads[2];
	for (int round = 0; round < 10; round++) {
		IBC_HANDLE handle;
		assert_int_equal(IBC_RecvPost(&handle), 0);
		for (int i = 0; i < 2; i++)
			assert_int_equal(pthread_create(&threads[i], NULL, wait_for_ever, &handle),
			                 0);
		if (round % 2 == 0)
			usleep(2000);
		assert_int_equal(IBC_CloseHandle(handle), 0);
		for (int i = 0; i < 2; i++)
			assert_int_equal(outcome(threads[i]), IBC_BADPARAM);
	}
}

static void finish_while_threads_wait(void **state)
{
	(void)state;
	for (int round = 0; round < 4; round++) {
		pthread_t threads[2];
		IBC_HANDLE handle;
		assert_int_equal(IBC_Init(IBC_CLIENTANY, NULL, NULL, NULL), 0);
		assert_int_equal(IBC_RecvPost(&handle), 0);
		for (int i = 0; i < 2; i++)
			assert_int_equal(pthread_create(&threads[i], NULL, wait_for_ever, &handle),
			                 0);
		if (round % 2 == 0)
			usleep(2000);
		assert_int_equal(IBC_Finish(), 0);
		for (int i = 0; i < 2; i++)
			assert_int_equal(outcome(threads[i]), IBC_BADPARAM);
	}
}

static void closing_a_handle_rejects_its_packet(void **state)
{
	(void)state;
	IBC_HANDLE a, b;
	struct IBC_Info info;
	assert_int_equal(IBC_RecvPost(&a), 0);
	assert_int_equal(send_to(own, "nobody reads it"), 0);
	assert_int_equal(IBC_RecvPost(&b), 0);
	assert_int_equal(IBC_CloseHandle(a), 0);
	assert_int_equal(IBC_RecvWaitInfo(b, &peer_now, NULL, &info), IBC_RECVDONE);
	assert_int_equal(info.Reason, IBC_NACK_NO_RECEIVE);
}

/* Gets one packet into its handle and leaves others in its lane; then it deregisters. */
static void leave_packets_behind(int channel)
{
	IBC_HANDLE handle;
	MUST(IBC_RecvPost(&handle) == 0);
	peer_say(channel, 'r');
	peer_hear(channel);
	MUST(IBC_RecvPoll(handle) == IBC_READYFORCOPY);
	MUST(IBC_Finish() == 0);
}

static void finish_rejects_what_nobody_fetched(void **state)
{
	(void)state;
	struct peer other = peer_start(IBC_CLIENTANY, leave_packets_behind);
	struct IBC_Target target = peer_target(other.apid);
	IBC_HANDLE handle;
	struct IBC_Info info;
	assert_int_equal(peer_hear(other.channel), 'r');
	assert_int_equal(IBC_RecvPost(&handle), 0);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(IBC_SendTo(&target, IBC_WRITE_REQUEST, i, "x", 1), 0);
	peer_end(&other, 0);
	uint32_t answered = 0;
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(IBC_RecvWaitInfo(handle, &peer_soon, NULL, &info), IBC_RECVDONE);
		assert_int_equal(info.Type, IBC_NACK);
		assert_int_equal(info.Reason, IBC_NACK_NO_RECEIVE);
		answered |= 1u << info.Transaction;
	}
	assert_int_equal(answered, 7);
}

/* --- limits --- */

static void limit_of_handles(void **state)
{
	(void)state;
	static IBC_HANDLE handles[IBC_LIMIT_HANDLES];
	IBC_HANDLE more;
	for (unsigned i = 0; i < IBC_LIMIT_HANDLES; i++)
		assert_int_equal(IBC_RecvPostLength(16, &handles[i]), 0);
	assert_int_equal(IBC_RecvPost(&more), IBC_MAXHANDLE_USED);
	assert_int_equal(IBC_CloseHandle(handles[500]), 0);
	assert_int_equal(IBC_RecvPost(&more), 0);
	assert_int_not_equal(more, handles[500]); /* an old number stays invalid */
	assert_int_equal(IBC_RecvPoll(handles[500]), IBC_BADPARAM);
	assert_int_equal(IBC_RecvPoll(more), IBC_RECVNOTDONE);
	/* Numbers that no handle has, before the first one and behind the last. */
	static const int strange[] = {0, -1, INT_MAX, INT_MIN};
	for (unsigned i = 0; i < sizeof(strange) / sizeof(strange[0]); i++)
		assert_int_equal(IBC_RecvPoll(strange[i]), IBC_BADPARAM);
	assert_int_equal(IBC_RecvPoll(handles[IBC_LIMIT_HANDLES - 1] + 1), IBC_BADPARAM);
	assert_int_equal(IBC_CloseHandle(handles[IBC_LIMIT_HANDLES - 1] + 1), IBC_BADPARAM);
}

static void limit_of_kept_packets(void **state)
{
	(void)state;
	struct IBC_Counters counters;
	IBC_HANDLE handle;
	unsigned got = 0;
	/* Ours, without a handle: what is too much is answered by a NACK, which is too much,
	 * too. */
	for (unsigned i = 0; i < IBC_LIMIT_KEPT + 10; i++)
		assert_int_equal(send_to(own, "kept"), 0);
	assert_int_equal(IBC_Statistics(&counters), 0);
	assert_int_equal(counters.Kept, IBC_LIMIT_KEPT);
	assert_int_equal(counters.Discarded, 20); /* ten, and their NACKs */
	assert_int_equal(IBC_RecvPost(&handle), 0);
	while (IBC_RecvWait(handle, &peer_now, NULL, NULL, NULL, NULL) == IBC_RECVDONE)
		got++;
	assert_int_equal(got, IBC_LIMIT_KEPT);
}

static void kept_packets_have_a_time_limit(void **state)
{
	(void)state;
	IBC_HANDLE large, small;
	struct IBC_Info info = {0};
	char in[IBC_LIMIT_PAYLOAD] = "";
	assert_int_equal(IBC_RecvPost(&large), 0);
	assert_int_equal(send_to(own, "first"), 0);
	assert_int_equal(send_to(own, "second"), 0); /* kept: the large one may become free */
	assert_int_equal(IBC_RecvPostLength(1, &small), 0);
	uint64_t begin = clock_now_ns();
	assert_int_equal(IBC_RecvWaitInfo(small, &peer_soon, NULL, &info), IBC_RECVDONE);
	assert_int_equal(info.Reason, IBC_NACK_NO_RECEIVE);
	assert_true(clock_now_ns() - begin > (IBC_LIMIT_KEPT_MS - 500) * UINT64_C(1000000));
	/* What is in a handle stays. */
	assert_int_equal(IBC_RecvWaitInfo(large, &peer_now, in, &info), IBC_RECVDONE);
	assert_memory_equal(in, "first", 5);
}

/* Gets a packet for all and one for itself, and tells of each; then waits for its end. */
static void get_two(int channel)
{
	IBC_HANDLE handle;
	char in[IBC_LIMIT_PAYLOAD];
	MUST(IBC_RecvPost(&handle) == 0);
	peer_say(channel, 'r');
	for (unsigned i = 0; i < 2; i++) {
		MUST(IBC_RecvWait(handle, NULL, in, NULL, NULL, NULL) == IBC_RECVDONE);
		peer_say(channel, in[0]);
	}
	peer_hear(channel);
}

static void limit_of_clients(void **state)
{
	(void)state;
	struct peer peers[IBC_LIMIT_CLIENTS];
	struct IBC_Counters counters;
	unsigned count = 0;
	peer_take_key();
	for (unsigned apid = 16; apid < 31; apid++)
		peers[count++] = peer_start(apid, get_two);
	peers[count++] = peer_start(63, get_two);
	unsetenv("HEDDLE_IBC_KEY");
	while (count < IBC_LIMIT_CLIENTS - 1)
		peers[count++] = peer_start(IBC_CLIENTANY, get_two);
	for (unsigned i = 0; i < count; i++) {
		assert_int_not_equal(peers[i].apid, 0);
		assert_int_equal(peer_hear(peers[i].channel), 'r');
	}
	/* With ourselves, the switch is full. */
	assert_int_equal(peer_start(IBC_CLIENTANY, peer_silent).apid, 0);
	/* Each of them gets what is for all, and what is for it alone. */
	assert_int_equal(send_to(IBC_CLIENTALL, "to everybody"), 0);
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(peer_hear(peers[i].channel), 't');
	for (unsigned i = 0; i < count; i++)
		if (peers[i].apid != IBC_CLIENTALL)
			assert_int_equal(send_to(peers[i].apid, "alone"), 0);
	for (unsigned i = 0; i < count; i++)
		if (peers[i].apid != IBC_CLIENTALL)
			assert_int_equal(peer_hear(peers[i].channel), 'a');
	assert_int_equal(IBC_Statistics(&counters), 0);
	assert_int_equal(counters.Nacks, 0);
	for (unsigned i = 0; i < count; i++)
		peer_end(&peers[i], SIGKILL);
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define LIMITED_MEMORY false /* a sanitizer needs terabytes of addresses */
#else
#define LIMITED_MEMORY true
#endif

/* No more memory than is in use now; or without a limit. */
static void limit_memory(bool limit)
{
	unsigned long pages = 0;
	struct rlimit room = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
	FILE *file = fopen("/proc/self/statm", "re");
	MUST(file != NULL && fscanf(file, "%lu", &pages) == 1);
	fclose(file);
	if (limit)
		room.rlim_cur = pages * (unsigned long)sysconf(_SC_PAGESIZE);
	MUST(setrlimit(RLIMIT_AS, &room) == 0);
}

/* What the allocator has in store, too. */
static void take_all_memory(void)
{
	limit_memory(true);
	for (size_t bytes = 1u << 20; bytes >= 16; bytes /= 2)
		while (malloc(bytes) != NULL)
			;
}

/* Registering, and posting receives, without memory: the calls say so, and work again later. */
static void without_memory(int channel)
{
	enum { SPARE = 64 };
	static void *spare[SPARE];
	static IBC_HANDLE handles[IBC_LIMIT_HANDLES];
	unsigned count = 0;
	int result;
	MUST(IBC_Finish() == 0);
	take_all_memory();
	MUST(IBC_Init(IBC_CLIENTANY, NULL, NULL, NULL) == IBC_MALLOC_FAILED);
	MUST(IBC_Finish() == IBC_NOT_INITIALIZED);
	limit_memory(false);
	MUST(IBC_Init(IBC_CLIENTANY, NULL, NULL, NULL) == 0);
	for (unsigned i = 0; i < SPARE; i++)
		MUST((spare[i] = malloc(2 * IBC_LIMIT_PAYLOAD)) != NULL);
	take_all_memory();
	MUST(IBC_RecvPost(&handles[0]) == IBC_MALLOC_FAILED);
	for (unsigned i = 0; i < SPARE; i++)
		free(spare[i]);
	while ((result = IBC_RecvPost(&handles[count])) == 0)
		count++;
	MUST(result == IBC_MALLOC_FAILED && count > 0);
	MUST(IBC_CloseHandle(handles[0]) == 0);
	MUST(IBC_RecvPost(&handles[0]) == 0); /* in its place */
	peer_say(channel, 'd');
}

static void memory_runs_out(void **state)
{
	(void)state;
	if (!LIMITED_MEMORY)
		skip();
	struct peer other = peer_start(IBC_CLIENTANY, without_memory);
	assert_int_not_equal(other.apid, 0);
	assert_int_equal(peer_hear(other.channel), 'd');
	peer_end(&other, SIGKILL);
}

/* Sends many packets as fast as it can, and ends when all of them have been handed over. */
static void burst(int channel)
{
	peer_say(channel, 'r');
	unsigned to = (unsigned char)peer_hear(channel);
	for (uint32_t i = 0; i < 2000; i++)
		MUST(IBC_Send(IBC_WRITE_REQUEST, NULL, 0, to, &i, sizeof(i), NULL,
		              IBC_PORT_ROUTE) == 0);
	IBC_Finish();
}

static void nothing_is_lost_while_somebody_reads(void **state)
{
	(void)state;
	IBC_HANDLE handle;
	struct IBC_Counters counters;
	uint32_t got = 0;
	struct peer other = peer_start(IBC_CLIENTANY, burst);
	assert_int_equal(peer_hear(other.channel), 'r');
	peer_say(other.channel, (char)own);
	assert_int_equal(IBC_RecvPost(&handle), 0);
	for (uint32_t i = 0; i < 2000; i++) {
		assert_int_equal(IBC_RecvWait(handle, &peer_soon, &got, NULL, NULL, NULL),
		                 IBC_RECVDONE);
		assert_int_equal(got, i);
	}
	assert_int_equal(IBC_Statistics(&counters), 0);
	assert_int_equal(counters.Discarded, 0);
	waitpid(other.pid, NULL, 0);
	close(other.channel);
}

/* Sends from one APID, and when it is told to, from another one that it only got then; and ends. */
static void sender_of_two(int channel)
{
	unsigned second = 0;
	peer_say(channel, 'r');
	unsigned to = (unsigned char)peer_hear(channel);
	MUST(send_to(to, "first") == 0);
	peer_hear(channel);
	MUST(IBC_Init(IBC_CLIENTANY, &second, NULL, NULL) == 0);
	struct IBC_Target target = peer_target(to);
	target.Client = second;
	MUST(IBC_SendTo(&target, IBC_WRITE_REQUEST_NO_ACK, 1, "second", 6) == 0);
	IBC_Finish();
}

struct sought {
	pid_t pid;
	int *found;
};

static void look_for(const struct observed_member *member, void *context)
{
	const struct sought *sought = context;
	*sought->found |= member->pid == sought->pid;
}

/* What a client sent before it ended arrives, also from an APID that nobody has heard of. */
static void a_packet_from_a_new_apid_outlives_its_sender(void **state)
{
	(void)state;
	IBC_HANDLE handle;
	struct IBC_Info first, second;
	struct IBC_Counters counters;
	struct peer other = peer_start(IBC_CLIENTANY, sender_of_two);
	assert_int_equal(peer_hear(other.channel), 'r');
	peer_say(other.channel, (char)own);
	assert_int_equal(IBC_RecvPost(&handle), 0);
	assert_int_equal(IBC_RecvWaitInfo(handle, &peer_soon, NULL, &first), IBC_RECVDONE);
	assert_int_equal(peer_end(&other, 0), 0);
	int there = other.pid;
	while (there != 0) { /* until the agent has noticed */
		there = 0;
		assert_int_equal(ibc_observe(look_for, &(struct sought){other.pid, &there}), 0);
	}
	assert_int_equal(IBC_RecvWaitInfo(handle, &peer_soon, NULL, &second), IBC_RECVDONE);
	assert_int_equal(second.Length, 6);
	assert_int_not_equal(second.Source, first.Source);
	assert_int_equal(IBC_Statistics(&counters), 0);
	assert_int_equal(counters.Forged, 0);
}

static void a_receiver_that_does_not_read(void **state)
{
	(void)state;
	struct peer silent = peer_start(IBC_CLIENTANY, peer_silent);
	IBC_HANDLE handle;
	struct IBC_Info info = {0};
	unsigned sent = 0;
	assert_int_equal(peer_hear(silent.channel), 'r');
	assert_int_equal(IBC_RecvPost(&handle), 0);
	/* Its lane fills up; then the sender waits IBC_LIMIT_SEND_MS, and gets a NACK. */
	while (IBC_RecvPoll(handle) != IBC_READYFORCOPY && sent < 1000) {
		assert_int_equal(send_to(silent.apid, "into the lane"), 0);
		sent++;
	}
	assert_in_range(sent, 50, 999);
	assert_int_equal(IBC_RecvWaitInfo(handle, &peer_now, NULL, &info), IBC_RECVDONE);
	assert_int_equal(info.Reason, IBC_NACK_NO_RECEIVE);
	assert_int_equal(info.Source, silent.apid);
	/* From now on nobody waits for it. */
	uint64_t begin = clock_now_ns();
	for (unsigned i = 0; i < 20; i++) {
		assert_int_equal(send_to(silent.apid, "into the lane"), 0);
		assert_int_equal(IBC_RecvWait(handle, &peer_now, NULL, NULL, NULL, NULL),
		                 IBC_RECVDONE);
	}
	assert_true(clock_now_ns() - begin < 20 * IBC_LIMIT_SEND_MS * UINT64_C(1000000) / 2);
	peer_end(&silent, 0);
}

/* --- requests --- */

static void requests_and_answers(void **state)
{
	(void)state;
	struct peer echo = start_echo();
	IBC_HANDLE ordinary;
	struct IBC_Info answer;
	char in[16];
	struct IBC_Target target = peer_target(echo.apid), nobody = peer_target(60);
	assert_int_equal(IBC_RecvPost(&ordinary), 0);
	assert_int_equal(
	        IBC_Request(&target, IBC_READ_REQUEST, NULL, 0, NULL, 0, in, sizeof(in), &answer),
	        0);
	assert_int_equal(answer.Type, IBC_READ_RESPONSE);
	assert_int_equal(answer.Length, 4);
	assert_memory_equal(in, "read", 4);
	assert_int_equal(IBC_Request(&target, IBC_WRITE_REQUEST, "w", 1, NULL, 0, NULL, 0, &answer),
	                 0);
	assert_int_equal(answer.Type, IBC_WRITE_RESPONSE);
	assert_int_equal(IBC_Request(&nobody, IBC_READ_REQUEST, NULL, 0, NULL, 0, NULL, 0, &answer),
	                 IBC_NACKED);
	assert_int_equal(answer.Reason, IBC_NACK_NO_APPLICATION);
	/* Too little room for the answer. */
	assert_int_equal(IBC_Request(&target, IBC_READ_REQUEST, NULL, 0, NULL, 0, in, 3, &answer),
	                 IBC_BADPARAM);
	/* Answers do not end up in ordinary handles, and others do not end up in requests. */
	assert_int_equal(IBC_RecvPoll(ordinary), IBC_RECVNOTDONE);
	assert_int_equal(send_to(own, "in between"), 0);
	assert_int_equal(
	        IBC_Request(&target, IBC_READ_REQUEST, NULL, 0, NULL, 0, in, sizeof(in), NULL), 0);
	assert_int_equal(IBC_RecvPoll(ordinary), IBC_READYFORCOPY);
	assert_int_equal(IBC_Request(&target, IBC_READ_RESPONSE, NULL, 0, NULL, 0, NULL, 0, NULL),
	                 IBC_BADPARAM);
	assert_int_equal(
	        IBC_Request(&target, IBC_WRITE_REQUEST_NO_ACK, "x", 1, NULL, 0, NULL, 0, NULL), 0);
	peer_end(&echo, 0);
}

/* IBC_Send() ignores the message of a read request, as the founding document has it; the other
 * calls send it, because a read request often says what is to be read. */
static void read_requests_carry_a_message(void **state)
{
	(void)state;
	IBC_HANDLE handle;
	struct IBC_Info info;
	char in[IBC_LIMIT_PAYLOAD] = "";
	struct IBC_Target target = peer_target(own);
	struct timespec time = {0, 1};
	assert_int_equal(IBC_RecvPost(&handle), 0);
	assert_int_equal(IBC_Send(IBC_READ_REQUEST, NULL, 0, own, "name", 4, NULL, IBC_PORT_ROUTE),
	                 0);
	assert_int_equal(IBC_RecvWaitInfo(handle, &peer_now, in, &info), IBC_RECVDONE);
	assert_int_equal(info.Length, 0);
	assert_int_equal(IBC_SendTo(&target, IBC_READ_REQUEST, 1, "name", 4), 0);
	assert_int_equal(IBC_RecvWaitInfo(handle, &peer_now, in, &info), IBC_RECVDONE);
	assert_int_equal(info.Type, IBC_READ_REQUEST);
	assert_int_equal(info.Length, 4);
	assert_memory_equal(in, "name", 4);
	assert_int_equal(
	        IBC_Request(&target, IBC_READ_REQUEST, "other", 5, &time, 1, NULL, 0, NULL),
	        IBC_TIMEDOUT);
	assert_int_equal(IBC_RecvWaitInfo(handle, &peer_now, in, &info), IBC_RECVDONE);
	assert_int_equal(info.Length, 5);
	assert_memory_equal(in, "other", 5);
	assert_int_equal(IBC_SendTo(&target, IBC_READ_REQUEST, 1, NULL, 4), IBC_BADPARAM);
	/* A write response has none in any call. */
	assert_int_equal(IBC_SendTo(&target, IBC_WRITE_RESPONSE, 1, "name", 4), 0);
	assert_int_equal(IBC_RecvWaitInfo(handle, &peer_now, in, &info), IBC_RECVDONE);
	assert_int_equal(info.Length, 0);
}

static void requests_are_repeated(void **state)
{
	(void)state;
	struct peer silent = peer_start(IBC_CLIENTANY, peer_silent);
	struct timespec time = {0, 10000000};
	struct IBC_Counters before, after;
	struct IBC_Target target = peer_target(silent.apid);
	assert_int_equal(peer_hear(silent.channel), 'r');
	assert_int_equal(IBC_Statistics(&before), 0);
	assert_int_equal(IBC_Request(&target, IBC_READ_REQUEST, NULL, 0, &time, 4, NULL, 0, NULL),
	                 IBC_TIMEDOUT);
	assert_int_equal(IBC_Statistics(&after), 0);
	assert_int_equal(after.Sent - before.Sent, 4);
	peer_end(&silent, 0);
}

/* --- descriptor, fork, deaths --- */

static bool is_readable(int fd, int ms)
{
	struct pollfd in = {.fd = fd, .events = POLLIN};
	return poll(&in, 1, ms) == 1;
}

static void the_descriptor_tells_of_packets(void **state)
{
	(void)state;
	struct peer echo = start_echo();
	IBC_HANDLE handle;
	int fd = IBC_Descriptor();
	assert_true(fd >= 0);
	assert_int_equal(IBC_RecvPost(&handle), 0);
	for (int i = 0; i < 100; i++) {
		assert_false(is_readable(fd, 0));
		assert_int_equal(send_to(echo.apid, "x"), 0);
		assert_true(is_readable(fd, 5000));
		while (IBC_RecvPoll(handle) != IBC_READYFORCOPY)
			assert_true(is_readable(fd, 5000));
		assert_true(is_readable(fd, 0)); /* until it is fetched */
		assert_int_equal(IBC_RecvWait(handle, &peer_now, NULL, NULL, NULL, NULL),
		                 IBC_RECVDONE);
	}
	assert_int_equal(send_to(own, "own"), 0);
	assert_true(is_readable(fd, 0));
	peer_end(&echo, 0);
}

static void a_child_is_not_registered(void **state)
{
	(void)state;
	IBC_HANDLE handle;
	int status = 0;
	assert_int_equal(IBC_RecvPost(&handle), 0);
	pid_t pid = fork();
	if (pid == 0) {
		unsigned apid = 0;
		MUST(IBC_RecvPoll(handle) == IBC_BADPARAM);
		MUST(send_to(own, "x") == IBC_NOT_INITIALIZED);
		MUST(IBC_Init(IBC_CLIENTANY, &apid, NULL, NULL) == 0 && apid != own);
		MUST(send_to(own, "from the child") == 0);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(IBC_RecvWait(handle, &peer_soon, NULL, NULL, NULL, NULL), IBC_RECVDONE);
}

static void a_dead_client_is_deregistered_within_a_second(void **state)
{
	(void)state;
	struct IBC_Info answer = {0};
	for (int round = 0; round < 5; round++) {
		struct peer echo = start_echo();
		struct IBC_Target target = peer_target(echo.apid);
		assert_int_equal(
		        IBC_Request(&target, IBC_READ_REQUEST, NULL, 0, NULL, 0, NULL, 0, &answer),
		        0);
		peer_end(&echo, SIGKILL);
		uint64_t begin = clock_now_ns();
		struct timespec time = {0, 10000000};
		int result;
		do
			result = IBC_Request(&target, IBC_READ_REQUEST, NULL, 0, &time, 1, NULL, 0,
			                     &answer);
		while (result == IBC_TIMEDOUT);
		assert_int_equal(result, IBC_NACKED);
		assert_int_equal(answer.Reason, IBC_NACK_NO_APPLICATION);
		assert_true(clock_now_ns() - begin < 1000000000u);
	}
}

static void clients_outlive_their_agent(void **state)
{
	(void)state;
	struct peer echo = start_echo();
	struct IBC_Target target = peer_target(echo.apid);
	struct timespec time = {0, 200000000};
	struct IBC_Counters counters;
	/* Whoever has met needs no agent. Others do, and wait for one for IBC_LIMIT_SEND_MS. */
	assert_int_equal(IBC_Request(&target, IBC_READ_REQUEST, NULL, 0, NULL, 0, NULL, 0, NULL),
	                 0);
	for (int round = 1; round <= 2; round++) {
		pid_t agent = peer_agent();
		assert_true(agent > 0);
		kill(agent, SIGKILL);
		uint64_t end = clock_now_ns() + 1000000000u;
		do { /* all the time, one after the other */
			assert_int_equal(IBC_Request(&target, IBC_READ_REQUEST, NULL, 0, &time, 5,
			                             NULL, 0, NULL),
			                 0);
			assert_int_equal(IBC_Statistics(&counters), 0);
		} while (clock_now_ns() < end);
		/* Where programs compete for starting the next one, another may have come first. */
		assert_true(counters.Agents >= (unsigned)round);
		/* The next agent knows everybody: a newcomer reaches us, and we reach it. */
		struct peer late = start_echo();
		struct IBC_Target newcomer = peer_target(late.apid);
		assert_int_not_equal(late.apid, echo.apid);
		assert_int_not_equal(late.apid, own);
		assert_int_equal(
		        IBC_Request(&newcomer, IBC_READ_REQUEST, NULL, 0, NULL, 0, NULL, 0, NULL),
		        0);
		peer_end(&late, 0);
	}
	assert_int_equal(peer_end(&echo, 0), 0);
}

/* A member that is slow to come back after the agent was killed, and that nobody has sent to yet,
 * keeps its APID: those that came back tell the agent that it was there. */
static void a_late_member_keeps_its_apid(void **state)
{
	(void)state;
	struct peer echo = start_echo();
	struct IBC_Counters counters = {0};
	IBC_HANDLE handle;
	assert_int_equal(IBC_RecvPost(&handle), 0);
	kill(echo.pid, SIGSTOP);
	kill(peer_agent(), SIGKILL);
	while (counters.Agents == 0) { /* until we have asked the next one */
		assert_int_equal(IBC_RecvPoll(handle), IBC_RECVNOTDONE);
		assert_int_equal(IBC_Statistics(&counters), 0);
	}
	pid_t waker = fork();
	if (waker == 0) {
		usleep(300000); /* longer than an agent waits for those that it has not heard of */
		kill(echo.pid, SIGCONT);
		_exit(0);
	}
	assert_int_equal(peer_start(echo.apid, peer_silent).apid, 0);
	assert_int_equal(waitpid(waker, NULL, 0), waker);
	struct IBC_Target target = peer_target(echo.apid);
	assert_int_equal(IBC_Request(&target, IBC_READ_REQUEST, NULL, 0, NULL, 0, NULL, 0, NULL),
	                 0);
	assert_int_equal(peer_end(&echo, 0), 0);
}

static void names_of_codes(void **state)
{
	(void)state;
	for (int i = 0; i <= IBC_NACKED; i++)
		assert_string_not_equal(IBC_ResultName(i), "unknown");
	for (int i = IBC_READ_REQUEST; i <= IBC_NACK; i++)
		assert_string_not_equal(IBC_TypeName(i), "unknown");
	for (int i = 0; i <= IBC_NACK_NO_RECEIVE; i++)
		assert_string_not_equal(IBC_ReasonName(i), "unknown");
	assert_string_equal(IBC_ResultName(-1), "unknown");
	assert_string_equal(IBC_TypeName(99), "unknown");
	assert_string_equal(IBC_ReasonName(99), "unknown");
}

#define WITH_CLIENT(test) cmocka_unit_test_setup_teardown(test, register_client, finish)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(calls_need_init),
	        cmocka_unit_test(vs8_identifiers),
	        cmocka_unit_test(vs8_special_identifiers_need_the_key),
	        cmocka_unit_test(all_applications_is_no_source),
	        cmocka_unit_test(every_apid_can_be_held),
	        WITH_CLIENT(send_checks_its_parameters),
	        WITH_CLIENT(messages_of_every_type_and_length),
	        WITH_CLIENT(nobody_there_is_a_nack),
	        WITH_CLIENT(routes_through_applications),
	        WITH_CLIENT(all_applications_at_once),
	        WITH_CLIENT(vs7_figure_5),
	        WITH_CLIENT(a_packet_stays_until_it_is_fetched),
	        WITH_CLIENT(wait_any_completes_every_ready_handle),
	        WITH_CLIENT(time_outs),
	        WITH_CLIENT(longer_than_every_buffer),
	        WITH_CLIENT(two_threads_on_one_handle),
	        WITH_CLIENT(close_while_threads_wait),
	        cmocka_unit_test(finish_while_threads_wait),
	        WITH_CLIENT(closing_a_handle_rejects_its_packet),
	        WITH_CLIENT(finish_rejects_what_nobody_fetched),
	        WITH_CLIENT(limit_of_handles),
	        WITH_CLIENT(limit_of_kept_packets),
	        WITH_CLIENT(kept_packets_have_a_time_limit),
	        WITH_CLIENT(limit_of_clients),
	        cmocka_unit_test(memory_runs_out),
	        WITH_CLIENT(nothing_is_lost_while_somebody_reads),
	        WITH_CLIENT(a_packet_from_a_new_apid_outlives_its_sender),
	        WITH_CLIENT(a_receiver_that_does_not_read),
	        WITH_CLIENT(requests_and_answers),
	        WITH_CLIENT(read_requests_carry_a_message),
	        WITH_CLIENT(requests_are_repeated),
	        WITH_CLIENT(the_descriptor_tells_of_packets),
	        WITH_CLIENT(a_child_is_not_registered),
	        WITH_CLIENT(a_dead_client_is_deregistered_within_a_second),
	        WITH_CLIENT(clients_outlive_their_agent),
	        WITH_CLIENT(a_late_member_keeps_its_apid),
	        cmocka_unit_test(names_of_codes),
	};
	return cmocka_run_group_tests_name("vs6_calls", tests, NULL, NULL);
}
