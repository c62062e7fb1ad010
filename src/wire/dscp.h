/* The traffic class of an IP header (RFC 2474: six bits of DSCP above two of ECN), and the class of
 * service that Heddle gives a packet for it. Each class has its own queue and its own turn
 * (docs/wire.md, "Classes of service"). */
#ifndef WIRE_DSCP_H
#define WIRE_DSCP_H

#include <stdint.h>

#define DSCP_LE  1u /* lower effort (RFC 8622) */
#define DSCP_CS1 8u /* low-priority data (RFC 4594) */
/* Class selector 4: from here on are interactive traffic, telephony (EF) and network control. */
#define DSCP_CS4 32u

/* A queue pair that is all zero is in the normal class. */
enum service_class { SERVICE_NORMAL, SERVICE_URGENT, SERVICE_BULK, SERVICE_CLASSES };

/* The classes in the order of their turns. */
static const uint8_t service_order[SERVICE_CLASSES] = {SERVICE_URGENT, SERVICE_NORMAL,
                                                       SERVICE_BULK};

static inline uint8_t service_class(uint8_t traffic_class)
{
	uint8_t dscp = traffic_class >> 2;
	if (dscp >= DSCP_CS4)
		return SERVICE_URGENT;
	return dscp == DSCP_LE || dscp == DSCP_CS1 ? SERVICE_BULK : SERVICE_NORMAL;
}

#endif
