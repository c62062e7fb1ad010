/* Plain UDP on a queue pair (MEMMGT figure 10): a queue pair of unreliable datagrams whose peers
 * are programs with UDP sockets. Where others have a queue pair number, these have a UDP port.
 * Whoever opened the socket owns the struct. */
#ifndef TRANSPORT_UDP_H
#define TRANSPORT_UDP_H

#include <stdint.h>

#include <heddle/limits.h>
#include <heddle/types.h>

struct engine;
struct qp;

struct udp_service {
	/* Send one datagram. 0; -EAGAIN: there is no room at the moment; another -errno. */
	int (*send)(void *context, const uint8_t to[16], uint16_t port, const uint8_t *bytes,
	            uint32_t length);
	/* The queue pair is RESET: it needs the service no longer. */
	void (*release)(void *context);
	void *context;
	const struct transport *before; /* the transport that the queue pair had */
	uint8_t room[HDL_MAX_UDP];      /* for the datagram that is sent */
};

extern const struct transport udp_transport;

/* From now on @qp, in INIT, sends and receives through @service, with send, release and context
 * set. */
void udp_service_begin(struct qp *qp, struct udp_service *service);
/* A datagram came from @port of @from to @to. */
void udp_service_take(struct engine *engine, struct qp *qp, const uint8_t from[16], uint16_t port,
                      const uint8_t to[16], uint8_t *bytes, uint32_t length);

#endif
