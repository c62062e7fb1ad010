/* Any bytes as a management datagram: what is taken comes out of the encoder again as it came,
 * reserved bits excepted, and has an addressee; what is refused is refused in words that decode. */
#include <stdlib.h>
#include <string.h>

#include "wire/ib_cm.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct ib_cm_message message, again, answer;
	struct ib_cm_ip ip;
	uint8_t out[MAD_BYTES];
	uint32_t to;
	uint64_t service;
	if (ib_cm_decode(&message, data, bytes) != IB_CM_OK)
		return 0;
	ib_cm_encode(&message, out);
	if (ib_cm_decode(&again, out, sizeof(out)) != IB_CM_OK ||
	    memcmp(&message, &again, sizeof(message)) != 0)
		abort();
	for (size_t i = MAD_HEADER_BYTES; i < MAD_BYTES; i++)
		if (out[i] & ~data[i])
			abort();
	ib_cm_addressee(&message, &to, &service);
	if (ib_cm_refuse(&message, IB_CM_NO_RESOURCES, &answer)) {
		ib_cm_encode(&answer, out);
		if (ib_cm_decode(&again, out, sizeof(out)) != IB_CM_OK)
			abort();
	}
	if (message.kind == IB_CM_REQ && ib_cm_ip_decode(&ip, message.u.req.private_data))
		ib_cm_ip_encode(&ip, out);
	return 0;
}
