/* Which record answers a request: see answer.h. */
#include "fabric/answer.h"

#include <string.h>

/* The first application port that @route names, beginning with the next port: there it ends,
 * whatever the destination is. -1: none. */
static int application_on(const struct ibc_route *route)
{
	int step = route->reverse ? -1 : 1;
	for (int at = route->pointer; at >= 1 && at <= route->hops; at += step)
		if (!vswitch_is_hardware(route->ports[at - 1]))
			return route->ports[at - 1];
	return -1;
}

void answer_want(struct answer_wanted *wanted, const struct ibc_packet *request, uint8_t asker,
                 int outport)
{
	bool own = outport < 0 && !ibc_at_end(&request->route); /* our switch uses a port */
	int application = application_on(&request->route);
	*wanted = (struct answer_wanted){
	        .transaction = request->transaction,
	        .asker = asker,
	        .asked = application >= 0 ? (uint8_t)application : request->dest_apid,
	        .dest = request->dest_apid,
	        .inport = outport >= 0 ? (uint8_t)outport
	                  : own        ? request->route.ports[request->route.pointer - 1]
	                               : request->dest_apid,
	        .by_route = own,
	        .route = ibc_turn_around(&request->route)};
}

/* Has it come the way back? Without ports there is only one way. */
static bool came_back(const struct ibc_route *wanted, const struct ibc_route *route)
{
	return wanted->hops == route->hops &&
	       (wanted->hops == 0 ||
	        (wanted->reverse == route->reverse && wanted->pointer == route->pointer &&
	         memcmp(wanted->ports, route->ports, wanted->hops) == 0));
}

bool answer_is_wanted(const struct answer_wanted *wanted, const struct record *record)
{
	const struct ibc_packet *packet = &record->packet;
	bool nack = packet->type == IBC_TYPE_NACK;
	if ((packet->type != IBC_TYPE_READ_RESPONSE && packet->type != IBC_TYPE_WRITE_RESPONSE &&
	     !nack) ||
	    packet->transaction != wanted->transaction || record->outport != wanted->asker)
		return false;
	/* We have rejected it ourselves: nobody else may send through our own port. */
	if (record->inport == wanted->asker)
		return true;
	bool here = wanted->inport == VSWITCH_APID_ALL && !vswitch_is_hardware(record->inport);
	if (!here && record->inport != wanted->inport)
		return false;
	if (record->by_route != wanted->by_route || !came_back(&wanted->route, &packet->route))
		return false;
	return wanted->asked == VSWITCH_APID_ALL || packet->source_apid == wanted->asked ||
	       (nack && packet->source_apid == wanted->dest);
}
