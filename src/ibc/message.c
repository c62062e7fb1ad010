/* Sending messages, answering them, and requests that wait for their answer: see heddle/ibc.h. */
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "ibc/gate.h"

#define REQUEST_NS    1000000000u
#define REQUEST_TRIES 3u

static bool route_is_good(const struct IBC_Route *route)
{
	if (route->Hops > IBC_MAX_HOPS)
		return false;
	for (unsigned i = 0; i < route->Hops; i++)
		if (route->Ports[i] >= IBC_END_OF_ROUTE)
			return false;
	return route->Reverse ? route->Pointer <= route->Hops
	                      : route->Pointer >= 1 && route->Pointer <= route->Hops + 1;
}

/* Fill in the route of @packet. @direct: it leaves through a hardware port that the caller names,
 * so nothing of the route may have been used yet. */
static bool take_route(struct ibc_packet *packet, const struct IBC_Route *route, bool direct)
{
	static const struct IBC_Route none = {.Pointer = 1};
	if (route == NULL || (route->Hops == 0 && route->Pointer == 0 && !route->Reverse))
		route = &none;
	if (!route_is_good(route))
		return false;
	packet->route = (struct ibc_route){
	        .reverse = route->Reverse, .pointer = route->Pointer, .hops = route->Hops};
	memcpy(packet->route.ports, route->Ports, route->Hops);
	return !direct || route_last_used(&packet->route) < 0;
}

static bool has_payload(int type)
{
	return type != IBC_WRITE_RESPONSE;
}

/* A packet that is ready to leave: from which APID, and out of which hardware port, or -1 as its
 * route says. */
struct outgoing {
	struct ibc_packet packet;
	uint8_t from;
	int outport;
};

/* Make the packet that the caller wants to send. IBC_SUCCESS, or what the call returns. */
static int client_prepare(struct client *client, const struct IBC_Target *target, int type,
                          int reason, uint32_t transaction, const void *message, uint32_t length,
                          struct outgoing *out)
{
	unsigned from = target->Client != 0 ? target->Client : client->first;
	if (from == 0 && !client->told_mute) {
		client->told_mute = true;
		log_error("this client only has APID %u, from which no packet can come; call "
		          "IBC_Init() again for another one",
		          IBC_CLIENTALL);
	}
	*out = (struct outgoing){.packet = {.type = (enum ibc_type)type,
	                                    .reason = (enum ibc_reason)reason,
	                                    .source_apid = (uint8_t)from,
	                                    .dest_apid = (uint8_t)target->Destination,
	                                    .dest_node = target->DestNode,
	                                    .transaction = transaction},
	                         .from = (uint8_t)from,
	                         .outport = -1};
	bool direct = target->OutPort != IBC_PORT_ROUTE;
	if (type < IBC_READ_REQUEST || type > IBC_NACK ||
	    (type == IBC_NACK) != (reason > 0 && reason < (int)IBC_REASON_COUNT) ||
	    target->Destination >= IBC_LIMIT_PORTS || from == 0 || from >= IBC_CLIENTALL ||
	    (client->member.apids >> from & 1) == 0 ||
	    !take_route(&out->packet, &target->Route, direct))
		return IBC_BADPARAM;
	if (has_payload(type)) {
		if (length > IBC_LIMIT_PAYLOAD || (message == NULL && length > 0))
			return IBC_BADPARAM;
		out->packet.payload = message;
		out->packet.payload_bytes = (uint16_t)length;
	}
	member_look(&client->member); /* it may bring another board */
	if (direct) {
		const struct vswitch *vswitch = &client->member.board->vswitch;
		out->outport =
		        target->OutPort < IBC_LIMIT_PORTS
		                ? vswitch_port_of(vswitch, target->GUID, (uint8_t)target->OutPort)
		                : -1;
		if (out->outport < 0) /* without the process nobody knows which ports there are */
			return target->OutPort < IBC_LIMIT_PORTS && !client_has_ports(client)
			               ? IBC_HARDWARE_ERROR
			               : IBC_BADPARAM;
		if (!vswitch_may_use(vswitch, from, (unsigned)out->outport))
			return IBC_BADPARAM; /* IBC_Init() does not list that NIC */
		if (vswitch->states[out->outport] != VSWITCH_PORT_UP)
			return IBC_HARDWARE_ERROR;
	}
	return client->member.lost ? IBC_HARDWARE_ERROR : IBC_SUCCESS;
}

static int client_send_out(struct client *client, struct outgoing *out)
{
	bool sent = client_emit(client, &out->packet, out->from, out->outport, true);
	if (client->signalled > 0)
		client_wake(client); /* it may have been for ourselves */
	return sent ? IBC_SUCCESS : IBC_HARDWARE_ERROR;
}

static int client_send_packet(struct client *client, const struct IBC_Target *target, int type,
                              int reason, uint32_t transaction, const void *message,
                              uint32_t length)
{
	struct outgoing out;
	int result =
	        client_prepare(client, target, type, reason, transaction, message, length, &out);
	return result == IBC_SUCCESS ? client_send_out(client, &out) : result;
}

/* A number for a request, which nobody can tell from those that he has seen. */
static uint32_t draw_number(struct client *client)
{
	return (uint32_t)prng_pool_next(&client->numbers);
}

IBC_API int IBC_Send(int Message_Type, const IBC_GUID *GUID, uint64_t Destination_ID,
                     unsigned Destination_Cl, const void *Message, uint32_t IBCLen,
                     const struct IBC_Route *SourceRoute, unsigned OutPort)
{
	struct IBC_Target target = {.GUID = GUID != NULL ? *GUID : 0,
	                            .OutPort = OutPort,
	                            .DestNode = Destination_ID,
	                            .Destination = Destination_Cl};
	if (SourceRoute != NULL)
		target.Route = *SourceRoute;
	struct client *client = client_enter();
	if (client == NULL)
		return IBC_NOT_INITIALIZED;
	if (Message_Type == IBC_READ_REQUEST) /* paragraph 39 */
		IBCLen = 0;
	/* A NACK needs a reason, which this call has no parameter for. */
	int result = client_send_packet(client, &target, Message_Type,
	                                Message_Type == IBC_NACK ? IBC_NACK_NOT_ALLOWED : 0,
	                                client->next_sent++, Message, IBCLen);
	client_exit(client);
	return result;
}

IBC_API int IBC_SendTo(const struct IBC_Target *Target, int Type, uint32_t Transaction,
                       const void *Message, uint32_t Length)
{
	struct client *client = client_enter();
	if (client == NULL)
		return IBC_NOT_INITIALIZED;
	int result = Target == NULL
	                     ? IBC_BADPARAM
	                     : client_send_packet(client, Target, Type,
	                                          Type == IBC_NACK ? IBC_NACK_NOT_ALLOWED : 0,
	                                          Transaction, Message, Length);
	client_exit(client);
	return result;
}

IBC_API int IBC_Respond(const struct IBC_Info *Request, int Type, int Reason, const void *Message,
                        uint32_t Length)
{
	struct client *client = client_enter();
	if (client == NULL)
		return IBC_NOT_INITIALIZED;
	int result = IBC_BADPARAM;
	if (Request != NULL && Type >= IBC_READ_RESPONSE && Type <= IBC_NACK &&
	    route_is_good(&Request->Route) && !(Type == IBC_NACK && Request->Type == IBC_NACK)) {
		bool direct = !Request->ByRoute && Request->GUID != 0;
		struct IBC_Target target = {.Client = Request->Client,
		                            .GUID = Request->GUID,
		                            .OutPort = direct ? Request->Port : IBC_PORT_ROUTE,
		                            .Destination = Request->Source,
		                            .Route = Request->Route};
		target.Route.Reverse = !Request->Route.Reverse;
		target.Route.Pointer =
		        (uint8_t)(Request->Route.Reverse ? Request->Route.Pointer + 1
		                                         : Request->Route.Pointer - 1);
		/* What came for all applications is answered by the first of them. */
		if (target.Client == IBC_CLIENTALL)
			target.Client = 0;
		result = client_send_packet(client, &target, Type, Type == IBC_NACK ? Reason : 0,
		                            Request->Transaction, Message, Length);
	}
	client_exit(client);
	return result;
}

IBC_API int IBC_Request(const struct IBC_Target *Target, int Type, const void *Message,
                        uint32_t Length, const struct timespec *Timeout, unsigned Tries,
                        void *Buffer, uint32_t Room, struct IBC_Info *Answer)
{
	static const struct timespec usual = {REQUEST_NS / 1000000000u, REQUEST_NS % 1000000000u};
	struct IBC_Info info;
	uint64_t end_ns;
	if (Target == NULL || Type < IBC_READ_REQUEST || Type > IBC_WRITE_REQUEST_NO_ACK)
		return IBC_BADPARAM;
	struct client *client = client_enter();
	if (client == NULL)
		return IBC_NOT_INITIALIZED;
	uint32_t transaction = draw_number(client);
	int result;
	if (Type == IBC_WRITE_REQUEST_NO_ACK) {
		result = client_send_packet(client, Target, Type, 0, transaction, Message, Length);
		client_exit(client);
		return result;
	}
	struct handle *handle = client_open_handle(client, IBC_LIMIT_PAYLOAD, &result);
	if (handle == NULL) {
		client_exit(client);
		return result;
	}
	IBC_HANDLE number = client_handle_number(client, handle);
	handle->matches = true;
	result = IBC_TIMEDOUT;
	for (unsigned i = 0; i < (Tries != 0 ? Tries : REQUEST_TRIES) && result == IBC_TIMEDOUT;
	     i++) {
		struct outgoing out;
		result = client_end_of_wait(Timeout != NULL ? Timeout : &usual, &end_ns)
		                 ? client_prepare(client, Target, Type, 0, transaction, Message,
		                                  Length, &out)
		                 : IBC_BADPARAM;
		if (result != IBC_SUCCESS)
			break;
		answer_want(&handle->wanted, &out.packet, out.from, out.outport);
		result = client_send_out(client, &out);
		if (result == IBC_SUCCESS)
			result = client_await(client, &number, 1, end_ns);
	}
	handle = client_find_handle(client, number);
	if (result == IBC_RECVDONE) {
		info = handle->info;
		bool fits = Buffer == NULL || info.Length <= Room;
		client_fetch(client, handle, fits ? Buffer : NULL, Answer);
		result = info.Type == IBC_NACK ? IBC_NACKED : fits ? IBC_SUCCESS : IBC_BADPARAM;
	}
	if (handle != NULL)
		client_close_handle(client, handle);
	client_exit(client);
	return result;
}
