/* Programs that are not trusted, and other machines. See forward.h for the whole. */
#ifndef AGENT_REMOTE_H
#define AGENT_REMOTE_H

#include "agent/agent.h"
#include "wire/ci.h"

/* Start the forwarder of @client, with the @count sockets of its slot. Returns the program's end of
 * the channel, which the caller passes on and closes, or -errno. */
int remote_open(struct agent *agent, struct client *client, const int *socks,
                const struct udp_address *const *addresses, int count);
/* The forwarder of @client ends. */
void remote_leave(struct client *client);
/* An entry of @client's book may have changed: tell its forwarder. */
void remote_sync(struct client *client);
/* Out-of-band packets came for @client from @host, to the node's address @which. */
void remote_came(struct client *client, uint32_t which, const uint8_t host[16], const uint8_t *data,
                 size_t bytes);
/* @client sends out-of-band packets to a host. */
void remote_pass(struct agent *agent, struct client *client, const struct agent_cm *cm);

/* aperture.c: send a frame from the address @which of @node to @host; tell @host that what @packet
 * was for has gone; and pass on a frame of @client's that came back. */
void ci_send_to(const struct node_entry *node, uint32_t which, const uint8_t host[16],
                const uint8_t *frame, size_t bytes);
void ci_is_gone(const struct node_entry *node, uint32_t which, const uint8_t host[16],
                const struct ci_packet *packet);
void ci_returned_to(const struct client *client, const uint8_t host[16], int error,
                    const uint8_t *data, size_t bytes);
/* control.c: what the agent holds for @client, which is not trusted; NULL: no memory. */
struct managed *control_book(struct client *client);

#endif
