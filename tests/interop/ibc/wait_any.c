/* IBC_RecvWaitAny() with nothing there yet (VSWITCH paragraphs 49 to 52): it waits for a packet
 * that comes later, with a time-out and without, and tells which handle has it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "peer.h"

#define HANDLES 3u

/* Sends one packet to the APID that it is told, whenever that is. */
static void send_when_told(int channel)
{
	peer_say(channel, 'r');
	unsigned to = (unsigned char)peer_hear(channel);
	MUST(IBC_Send(IBC_WRITE_REQUEST_NO_ACK, NULL, 0, to, "later", 5, NULL, IBC_PORT_ROUTE) ==
	     0);
	IBC_Finish();
}

static void vs6_waits_for_what_comes_later(void **state)
{
	(void)state;
	unsigned own;
	assert_int_equal(IBC_Init(IBC_CLIENTANY, &own, NULL, NULL), 0);
	for (unsigned round = 0; round < 2; round++) {
		IBC_HANDLE list[HANDLES];
		char room[HANDLES][IBC_LIMIT_PAYLOAD];
		void *buffers[HANDLES];
		unsigned sources[HANDLES], ports[HANDLES];
		uint64_t guids[HANDLES];
		bool received[HANDLES];
		for (unsigned i = 0; i < HANDLES; i++) {
			assert_int_equal(IBC_RecvPost(&list[i]), 0);
			buffers[i] = room[i];
			memset(room[i], '-', 8);
			received[i] = true;
			sources[i] = 99;
		}
		struct peer peer = peer_start(IBC_CLIENTANY, send_when_told);
		assert_int_equal(peer_hear(peer.channel), 'r');
		assert_int_equal(IBC_RecvWaitAny(list, HANDLES, &peer_now, guids, received, ports,
		                                 buffers, sources),
		                 IBC_TIMEDOUT);
		/* It sends when we wait, or just before. */
		peer_say(peer.channel, (char)own);
		assert_int_equal(IBC_RecvWaitAny(list, HANDLES, round == 0 ? NULL : &peer_soon,
		                                 guids, received, ports, buffers, sources),
		                 IBC_RECVDONE);
		for (unsigned i = 0; i < HANDLES; i++) {
			assert_int_equal(received[i], i == 0);
			assert_int_equal(sources[i], i == 0 ? peer.apid : 99);
			assert_memory_equal(room[i], i == 0 ? "later" : "-----", 5);
			assert_int_equal(IBC_RecvPoll(list[i]), IBC_RECVNOTDONE);
			assert_int_equal(IBC_CloseHandle(list[i]), 0);
		}
		assert_int_equal(waitpid(peer.pid, NULL, 0), peer.pid);
		close(peer.channel);
	}
	assert_int_equal(IBC_Finish(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(vs6_waits_for_what_comes_later)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
