/* DDP on SCTP; see ddp_sctp.h. */
#include "wire/ddp_sctp.h"

#include <string.h>

#include "wire/be.h"

static uint16_t function_of(const struct mpa_connect *c)
{
	if (c->frame == MPA_REQUEST)
		return c->enhanced ? DDP_SCTP_ENHANCED_INITIATE : DDP_SCTP_INITIATE;
	if (c->reject)
		return c->enhanced ? DDP_SCTP_ENHANCED_REJECT : DDP_SCTP_REJECT;
	return c->enhanced ? DDP_SCTP_ENHANCED_ACCEPT : DDP_SCTP_ACCEPT;
}

/* How long what precedes the private data of the application is. */
static size_t depths_bytes(const struct mpa_connect *c)
{
	return c->enhanced && !c->reject ? MPA_ENHANCED_BYTES : 0;
}

size_t ddp_sctp_control_encode(uint16_t ssn, const struct mpa_connect *c, uint8_t *out,
                               size_t out_bytes)
{
	size_t depths = depths_bytes(c);
	if (c->markers || c->crc || !mpa_connect_valid(c) ||
	    out_bytes < DDP_SCTP_CONTROL_BYTES + depths + c->private_bytes)
		return 0;
	be16_store(out, ssn);
	be16_store(out + 2, function_of(c));
	if (depths != 0)
		mpa_depths_encode(c, out + DDP_SCTP_CONTROL_BYTES);
	if (c->private_bytes != 0)
		memcpy(out + DDP_SCTP_CONTROL_BYTES + depths, c->private_data, c->private_bytes);
	return DDP_SCTP_CONTROL_BYTES + depths + c->private_bytes;
}

size_t ddp_sctp_terminate_encode(uint16_t ssn, uint8_t *out)
{
	be16_store(out, ssn);
	be16_store(out + 2, DDP_SCTP_TERMINATE);
	return DDP_SCTP_CONTROL_BYTES;
}

/* The function code of a message of session control; 0: it is too short for one. */
static unsigned sctp_function(const uint8_t *in, size_t in_bytes)
{
	return in_bytes < DDP_SCTP_CONTROL_BYTES ? 0 : be16_load(in + 2);
}

bool ddp_sctp_is_terminate(const uint8_t *in, size_t in_bytes, uint16_t *ssn)
{
	if (sctp_function(in, in_bytes) != DDP_SCTP_TERMINATE || in_bytes != DDP_SCTP_CONTROL_BYTES)
		return false;
	*ssn = be16_load(in);
	return true;
}

/* Which frame of MPA has this function? False: none. */
static bool frame_of(unsigned function, struct mpa_connect *c)
{
	switch (function) {
	case DDP_SCTP_INITIATE:
	case DDP_SCTP_ENHANCED_INITIATE:
		c->frame = MPA_REQUEST;
		break;
	case DDP_SCTP_ACCEPT:
	case DDP_SCTP_REJECT:
	case DDP_SCTP_ENHANCED_ACCEPT:
	case DDP_SCTP_ENHANCED_REJECT:
		c->frame = MPA_REPLY;
		break;
	default:
		return false;
	}
	c->reject = function == DDP_SCTP_REJECT || function == DDP_SCTP_ENHANCED_REJECT;
	c->enhanced = function >= DDP_SCTP_ENHANCED_INITIATE;
	c->revision = c->enhanced ? 2 : 1;
	return true;
}

enum mpa_connect_verdict ddp_sctp_control_decode(enum mpa_frame due, const uint8_t *in,
                                                 size_t in_bytes, uint16_t *ssn,
                                                 struct mpa_connect *c)
{
	*c = (struct mpa_connect){0};
	if (!frame_of(sctp_function(in, in_bytes), c))
		return MPA_CONNECT_BAD_KEY;
	if (c->frame != due)
		return MPA_CONNECT_CROSSED;
	size_t data = in_bytes - DDP_SCTP_CONTROL_BYTES;
	size_t depths = depths_bytes(c);
	if (data < depths)
		return MPA_CONNECT_ENHANCED_SHORT;
	if (data > MPA_MAX_PRIVATE_BYTES)
		return MPA_CONNECT_PRIVATE_TOO_LONG;
	if (depths != 0)
		mpa_depths_decode(in + DDP_SCTP_CONTROL_BYTES, c);
	*ssn = be16_load(in);
	c->private_data = in + DDP_SCTP_CONTROL_BYTES + depths;
	c->private_bytes = data - depths;
	return MPA_CONNECT_OK;
}
