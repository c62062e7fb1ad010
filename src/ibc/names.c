/* The names of results, message types and reasons. */
#include "heddle/ibc.h"

static const char *name_in(const char *const *names, unsigned count, int value)
{
	return value >= 0 && (unsigned)value < count && names[value] != 0 ? names[value]
	                                                                  : "unknown";
}

#define NAME_IN(names, value) name_in(names, sizeof(names) / sizeof((names)[0]), value)

IBC_API const char *IBC_ResultName(int Result)
{
	static const char *const names[] = {
	        [IBC_SUCCESS] = "success",
	        [IBC_BADPARAM] = "bad parameter",
	        [IBC_ATTACH_FAILED] = "the virtual switch cannot register the client",
	        [IBC_MALLOC_FAILED] = "out of memory",
	        [IBC_ID_NOTAVAILABLE] = "the APID is not available",
	        [IBC_NOT_INITIALIZED] = "not initialized",
	        [IBC_HARDWARE_ERROR] = "the port is down",
	        [IBC_MAXHANDLE_USED] = "too many handles",
	        [IBC_RECVDONE] = "received",
	        [IBC_TIMEDOUT] = "timed out",
	        [IBC_READYFORCOPY] = "a packet is ready",
	        [IBC_RECVNOTDONE] = "no packet",
	        [IBC_NACKED] = "rejected",
	};
	return NAME_IN(names, Result);
}

IBC_API const char *IBC_TypeName(int Type)
{
	static const char *const names[] = {
	        [IBC_READ_REQUEST] = "read request",
	        [IBC_WRITE_REQUEST] = "write request",
	        [IBC_WRITE_REQUEST_NO_ACK] = "unacknowledged write request",
	        [IBC_READ_RESPONSE] = "read response",
	        [IBC_WRITE_RESPONSE] = "write response",
	        [IBC_NACK] = "NACK",
	};
	return NAME_IN(names, Type);
}

IBC_API const char *IBC_ReasonName(int Reason)
{
	static const char *const names[] = {
	        [0] = "none",
	        [IBC_NACK_NO_APPLICATION] = "no such application",
	        [IBC_NACK_NO_PORT] = "no such port",
	        [IBC_NACK_PORT_DOWN] = "port down",
	        [IBC_NACK_POINTER] = "pointer out of range",
	        [IBC_NACK_TOO_LONG] = "too long",
	        [IBC_NACK_LOOP] = "loop",
	        [IBC_NACK_NOT_ALLOWED] = "not allowed",
	        [IBC_NACK_NO_RECEIVE] = "no receive in time",
	};
	return NAME_IN(names, Reason);
}
