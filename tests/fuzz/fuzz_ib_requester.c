/* An attacker who answers the requests of an adapter. The input is a row of records: requests that
 * the application posts, and answers (ACKs and NAKs of every kind, read responses of any length and
 * order, atomic responses, congestion notices), with PSNs around those that were sent. Whatever
 * comes: no crash, nothing written but where a read or atomic was told to, every request completed
 * once at most, and what is sent again has a limit. */
#include <assert.h>
#include <string.h>

#include "ib_end.h"

#define RECORD_BYTES 8u
#define TARGET       4096u /* reads and atomics write from here on */
#define MOST_PACKETS 64u   /* of one request, once */
#define MOST_TIMES   16u   /* that an answer, or silence, makes it be sent again */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void post(struct end *end, const uint8_t *in, int which)
{
	static const uint32_t opcodes[] = {
	        HDL_OP_SEND,         HDL_OP_SEND_IMM,  HDL_OP_WRITE,
	        HDL_OP_WRITE_IMM,    HDL_OP_READ,      HDL_OP_READ,
	        HDL_OP_COMPARE_SWAP, HDL_OP_FETCH_ADD, HDL_OP_SEND_INVALIDATE};
	uint32_t opcode = opcodes[in[2] % (sizeof(opcodes) / sizeof(opcodes[0]))];
	bool atomic = opcode == HDL_OP_COMPARE_SWAP || opcode == HDL_OP_FETCH_ADD;
	uint32_t length = atomic ? 8 : in[3] * 16u + in[4] % 16;
	struct hdl_sge piece = {end_address(end, atomic || opcode == HDL_OP_READ ? TARGET : in[4]),
	                        length, hdl_mr_key(end->mr)};
	struct hdl_send_wr wr = {.sg_list = &piece,
	                         .num_sge = 1,
	                         .opcode = opcode,
	                         .flags = HDL_SEND_SIGNALED | (in[5] & 1 ? HDL_SEND_FENCE : 0u),
	                         .remote_srq = 5,
	                         .rd = {end->eec, END_PEER, END_QKEY}};
	if (atomic) {
		wr.u.atomic.addr = 64;
		wr.u.atomic.compare_add = in[5];
	} else {
		wr.u.rdma.addr = in[5];
	}
	end->posted += hdl_post_send(end->qp[which], &wr, NULL) == 0;
}

static void answer(struct end *end, const uint8_t *in, int which)
{
	static const uint8_t operations[] = {
	        IB_OP_ACK,
	        IB_OP_ACK,
	        IB_OP_READ_RESPONSE_FIRST,
	        IB_OP_READ_RESPONSE_MIDDLE,
	        IB_OP_READ_RESPONSE_LAST,
	        IB_OP_READ_RESPONSE_ONLY,
	        IB_OP_ATOMIC_ACK,
	};
	static uint8_t payload[END_MTU + 4];
	uint8_t operation = operations[in[2] % sizeof(operations)];
	struct ib_packet packet;
	memset(&packet, 0, sizeof(packet));
	packet.bth.opcode = (uint8_t)((which == END_RC   ? IB_RC
	                               : which == END_RD ? IB_RD
	                                                 : IB_XRC) |
	                              operation);
	if (in[2] >= 0xf0)
		packet.bth.opcode = IB_OPCODE_CNP;
	const struct ib_opcode *op = ib_opcode(packet.bth.opcode);
	if (op == NULL)
		return;
	packet.bth.pkey = 0xffff;
	packet.bth.migreq = true;
	packet.bth.becn = op->operation == IB_CNP;
	int32_t ahead = (int8_t)in[3];
	packet.bth.psn = (end->last_psn[which] + (uint32_t)ahead) & IB_PSN_MASK;
	packet.aeth.syndrome =
	        in[5] & 0x80 ? in[5] : ib_aeth_syndrome(in[5] >> 5 & 3, in[5] & 0x1f);
	packet.aeth.msn = in[6];
	packet.atomicack.original = 0x0101010101010101u * in[4];
	if (op->payload) {
		memset(payload, in[4], sizeof(payload));
		packet.payload = payload;
		packet.payload_bytes = in[6] & 1 ? END_MTU : in[6] % (sizeof(payload) + 1u);
	}
	end->second_way = in[7] & 4;
	end_take(end, which, &packet, in[7] & 1, in[7] & 2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct end end;
	uint64_t steps = 1;
	end_open(&end);
	for (int i = 0; i < END_QPS; i++)
		end.last_psn[i] = END_PSN;
	for (; size >= RECORD_BYTES; data += RECORD_BYTES, size -= RECORD_BYTES, steps++) {
		int which = data[1] & 2 ? END_RD : data[1] & 1 ? END_INI : END_RC;
		switch (data[0] % 8) {
		case 0:
		case 1:
			post(&end, data, which);
			break;
		case 2:
			end_run(&end, 1ull << (data[2] % 28));
			break;
		case 3:
			end.striped = data[2] & 4;
			if (data[2] < 8)
				end_connect(&end, which);
			else if (data[2] < 24)
				end.full = !end.full;
			break;
		default:
			answer(&end, data, which);
		}
		end_run(&end, data[1] & 0x40 ? 1000 : 0);
	}
	for (uint32_t i = 0; i < TARGET; i++)
		assert(end.memory[i] == END_GUARD);
	end_close(&end);
	assert(end.packets_out <= (steps + 8) * 16 * MOST_PACKETS * MOST_TIMES);
	return 0;
}
