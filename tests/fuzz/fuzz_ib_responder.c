/* An attacker who sends requests to the queue pairs of an adapter. The input is a row of records,
 * each a packet with plausible headers (so that the fuzzer gets past the first checks) or something
 * that the application does meanwhile. Whatever comes: no crash, no byte outside registered memory,
 * answers that are packets, and not many times more of them than requests. */
#include <assert.h>
#include <string.h>

#include "ib_end.h"

#define RECORD_BYTES 10u
/* A read of the whole region, for each request; and what repetitions add. */
#define MOST_ANSWERS (END_REGION / END_MTU + 8)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct attacker {
	struct end end;
	uint32_t psn[END_QPS];
	uint64_t packets_in;
};

static uint32_t length_of(uint8_t code)
{
	static const uint32_t edges[] = {0,           1,          END_MTU - 1,    END_MTU,
	                                 END_MTU + 1, END_REGION, END_REGION + 1, UINT32_MAX};
	return code < 248 ? code * 5u : edges[code - 248];
}

static void aim(const struct end *end, const uint8_t *in, struct ib_packet *packet)
{
	uint64_t addr = end_address(end, in[5] * 32u);
	uint32_t key = in[6] & 8 ? end->window.v : hdl_mr_key(end->mr).v;
	if (in[6] & 1)
		key ^= in[7] + 1u;
	if (in[6] & 2)
		addr += in[7];
	if (in[6] & 4)
		addr = 0 - (uint64_t)in[7];
	packet->reth = (struct ib_reth){addr, key, length_of(in[4])};
	packet->atomiceth = (struct ib_atomiceth){addr, key, in[7], in[4]};
	packet->ieth.rkey = key;
	packet->immdt.data = in[7];
	packet->deth = (struct ib_deth){.qkey = in[6] & 16 ? in[7] : END_QKEY, .src_qp = END_PEER};
	packet->xrceth.srq = in[6] & 32 ? in[7] : hdl_srq_number(end->srq);
	packet->aeth = (struct ib_aeth){in[7], in[4]};
}

/* How many PSNs a request takes. */
static uint32_t psns(const struct ib_packet *packet, uint8_t operation)
{
	uint32_t length = packet->reth.length_bytes;
	return operation != IB_OP_READ_REQUEST || length == 0 || length > END_REGION
	               ? 1
	               : (length + END_MTU - 1) / END_MTU;
}

static void send_packet(struct attacker *a, const uint8_t *in, int which)
{
	static const uint8_t transports[END_QPS] = {IB_RC, IB_UC, IB_UD, IB_XRC, IB_XRC, IB_RD};
	static uint8_t payload[END_MTU + 4];
	uint8_t operation = in[0] & 31;
	struct ib_packet packet;
	memset(&packet, 0, sizeof(packet));
	packet.bth.opcode =
	        (uint8_t)((in[3] & 0x80 ? in[9] & 0xe0 : transports[which]) | operation);
	const struct ib_opcode *op = ib_opcode(packet.bth.opcode);
	if (op == NULL)
		return;
	aim(&a->end, in, &packet);
	packet.bth.solicited = in[3] & 1;
	packet.bth.ack_request = in[3] & 2;
	packet.bth.migreq = !(in[3] & 4);
	packet.bth.pkey = in[3] & 8 ? 0x1234 : 0xffff;
	int32_t ahead = (int8_t)in[2];
	packet.bth.psn = (a->psn[which] + (uint32_t)ahead) & IB_PSN_MASK;
	if (op->payload) {
		memset(payload, in[8], sizeof(payload));
		packet.payload = payload;
		packet.payload_bytes = in[8] & 1 ? in[9] % (sizeof(payload) + 1u)
		                       : op->part == IB_FIRST || op->part == IB_MIDDLE
		                               ? END_MTU
		                               : length_of(in[4]) % (END_MTU + 1);
	}
	a->end.second_way = in[3] & 64;
	end_take(&a->end, which, &packet, in[3] & 16, in[3] & 32);
	a->packets_in++;
	if (in[2] == 0 && !(in[3] & (8 | 16 | 32)))
		a->psn[which] = (packet.bth.psn + psns(&packet, operation)) & IB_PSN_MASK;
}

/* What the application does. */
static void act(struct attacker *a, const uint8_t *in, int which)
{
	struct end *end = &a->end;
	switch (in[2] % 6) {
	case 0:
	case 1:
		end_receive(end, which, in[5] * 16u, length_of(in[4]) % 1024);
		break;
	case 2:
		end->striped = in[5] & 1;
		end_connect(end, which);
		a->psn[which] = END_PSN;
		break;
	case 3:
		end->full = !end->full;
		break;
	case 4: { /* the window is granted anew */
		struct hdl_bind bind = {.mr = end->mr,
		                        .addr = end_address(end, in[5] * 16u),
		                        .length = 1 + in[4],
		                        .access = HDL_ACCESS_REMOTE_WRITE | HDL_ACCESS_ONE_TOUCH};
		hdl_mw_bind(end->mw, &bind, &end->window);
		break;
	}
	default:
		end_run(end, 1ull << (in[4] % 28));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct attacker a;
	memset(&a, 0, sizeof(a));
	end_open(&a.end);
	for (int i = 0; i < END_QPS; i++) {
		a.psn[i] = END_PSN;
		end_receive(&a.end, i, 1024, 600);
	}
	for (; size >= RECORD_BYTES; data += RECORD_BYTES, size -= RECORD_BYTES) {
		int which = data[1] % END_QPS;
		if (data[0] & 0x80)
			act(&a, data, which);
		else
			send_packet(&a, data, which);
		end_run(&a.end, data[1] & 0x40 ? 1000 : 0);
	}
	end_close(&a.end);
	assert(a.end.packets_out <= (a.packets_in + 1) * MOST_ANSWERS);
	return 0;
}
