/* Both ends of communication management against an attacker who says anything at any time, and
 * programs that do anything: each byte of the input is a step, messages take their fields from the
 * bytes that follow. No state may be reached that is none, what is to be sent must decode, and
 * whoever waits knows until when. */
#include <stdlib.h>
#include <string.h>

#include "compat/cm/ibcm.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

struct input {
	const uint8_t *data;
	size_t bytes;
};

static uint8_t next(struct input *in)
{
	if (in->bytes == 0)
		return 0;
	in->bytes--;
	return *in->data++;
}

/* A message whose numbers are now and then the right ones. */
static void message_in(struct input *in, const struct ibcm *end, struct ib_cm_message *message)
{
	uint8_t mad[MAD_BYTES];
	uint8_t how = next(in);
	*message = (struct ib_cm_message){
	        .kind = (enum ib_cm_kind)(IB_CM_REQ + next(in) % (IB_CM_KIND_END - IB_CM_REQ))};
	ib_cm_encode(message, mad);
	for (size_t i = 0; i < 16; i++)
		mad[MAD_HEADER_BYTES + i] = next(in);
	if (ib_cm_decode(message, mad, sizeof(mad)) != IB_CM_OK)
		abort();
	if (how & 1)
		message->u.rtu.local_id = end->remote_id;
	if (how & 2)
		message->transaction_id = end->transaction_id;
	if (how & 4 && message->kind == IB_CM_DREQ)
		message->u.dreq.remote_qpn = end->local_qpn;
}

static void check(const struct ibcm *end, const struct ibcm_out *out, uint64_t now_ns)
{
	struct ib_cm_message message;
	bool waits = end->state == IBCM_REQ_SENT || end->state == IBCM_REP_SENT ||
	             end->state == IBCM_DREQ_SENT || end->state == IBCM_TIMEWAIT;
	if (end->state > IBCM_OVER || (end->due_ns != 0) != waits)
		abort();
	if (end->due_ns > now_ns + ib_cm_time_ns(31) * 4)
		abort();
	if (out->any && ib_cm_decode(&message, out->mad, sizeof(out->mad)) != IB_CM_OK)
		abort();
}

static void step(struct input *in, struct ibcm *end, uint64_t *now_ns)
{
	struct ibcm_out out = {0};
	struct ib_cm_message message;
	message_in(in, end, &message);
	switch (next(in) % 10) {
	case 0:
		message.kind = next(in) & 1 ? IB_CM_REQ : IB_CM_SIDR_REQ;
		if (end->state == IBCM_IDLE || end->state == IBCM_OVER)
			ibcm_ask(end, &message, *now_ns, &out);
		if (next(in) & 1)
			ibcm_give_up_at(end, *now_ns + next(in) * 10000000ull);
		break;
	case 1:
		message.kind = next(in) & 1 ? IB_CM_REQ : IB_CM_SIDR_REQ;
		if (end->state == IBCM_IDLE || end->state == IBCM_OVER)
			ibcm_asked(end, &message, 7);
		break;
	case 2:
		ibcm_reply(end, &message, *now_ns, &out);
		break;
	case 3:
		ibcm_confirm(end, &out);
		break;
	case 4:
		ibcm_reject(end, next(in), NULL, &out);
		break;
	case 5:
		ibcm_disconnect(end, *now_ns, &out);
		break;
	case 6:
		ibcm_established(end);
		break;
	case 7:
		if (end->due_ns != 0)
			*now_ns = end->due_ns;
		ibcm_expire(end, *now_ns, &out);
		break;
	case 8:
		ibcm_part(end, &out);
		break;
	default:
		ibcm_receive(end, &message, *now_ns, &out);
		break;
	}
	check(end, &out, *now_ns);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct input in = {data, bytes};
	struct ibcm end = {0};
	uint64_t now_ns = 1;
	while (in.bytes > 0)
		step(&in, &end, &now_ns);
	return 0;
}
