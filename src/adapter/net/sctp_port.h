/* The SCTP side of the TCP port: UDP sockets that carry SCTP packets, and what connections on SCTP
 * do in other ways than those on TCP. conn.c has their life, which is the same.
 *
 * usrsctp wants to be called at least every SCTP_TICK_NS while it has sockets; it is, by the tick
 * of the port. What happens to a socket meanwhile, perhaps on the thread of another adapter, sets
 * sctp_sock.news, and the next receive or tick looks for it. */
#ifndef ADAPTER_SCTP_PORT_H
#define ADAPTER_SCTP_PORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "port/sctp.h"
#include "transport/iwarp/iwarp.h"

#define SCTP_MAX_ENDS   8u  /* addresses of an adapter that carry SCTP */
#define SCTP_EARLY      64u /* segments that may come before the Accept of their session */
#define SCTP_TURN_MSGS  256u
#define SCTP_NO_CONTROL 0x10000u
#define SCTP_FIRST_SSN  1u /* of segments: the control message of each direction has number 0 */

struct agent_msg;
struct hdl_adapter;
struct hdl_conn;
struct hdl_listener;
struct hdl_gid;
struct tcp_port;

/* SCTP ports that the agent has given to this process: one of a listener, or a block for
 * connections. */
struct sctp_held {
	struct sctp_held *next;
	struct udp_address own; /* zero: on all addresses */
	uint16_t first, count;
	uint32_t users; /* of one port: the listener, and connections that came to it */
	uint64_t used;  /* of a block: ports in use, by bits */
};

struct sctp_port {
	struct sctp_end *ends[SCTP_MAX_ENDS];
	uint32_t end_count;
	uint32_t socks;         /* in use */
	struct sctp_held *held; /* sctp_share.c */
	atomic_bool news;
};

/* A message that waits. */
struct sctp_kept {
	struct sctp_kept *next;
	uint32_t ppid;
	size_t bytes;
	uint8_t data[];
};

struct sctp_conn {
	struct sctp_sock sock;
	struct sctp_end *end;
	struct sctp_held *held; /* its port; NULL: the process has the UDP port to itself */
	struct sctp_kept *kept, **kept_end; /* oldest first */
	uint32_t kept_count;
	uint32_t terminate; /* DDP-SSN of the peer's session Terminate; SCTP_NO_CONTROL: none */
	struct iwarp_window window;
};

/* The UDP socket on @address; opened if there is none. @listening: it must be on the port of RFC
 * 6951, else any will do. Returns 0 or -errno. */
int sctp_port_end(struct tcp_port *port, const struct udp_address *address, bool listening,
                  struct sctp_end **out);
/* A new one on @sock, which it takes over, also if it fails. */
int sctp_port_add(struct tcp_port *port, const struct udp_address *address, int sock,
                  struct sctp_end **out);
/* The SCTP side of @port; NULL: no memory. */
struct sctp_port *sctp_port_of(struct tcp_port *port);
/* Packets have come for @end. */
unsigned sctp_port_packets(struct tcp_port *port, struct sctp_end *end);
/* Serve the sockets that have news. */
unsigned sctp_port_serve(struct tcp_port *port);
unsigned sctp_port_tick(struct tcp_port *port, uint64_t now_ns);
/* Close the UDP sockets: nothing is sent any more. */
void sctp_port_mute(struct tcp_port *port);
/* All sockets have been closed. */
void sctp_port_end_all(struct tcp_port *port);

/* --- connections --- */
/* What @conn has for SCTP. False: no memory. */
bool sctp_conn_new(struct hdl_conn *conn);
int sctp_conn_connect(struct hdl_conn *conn, const struct udp_address *own,
                      const struct udp_address *peer, uint16_t port, uint16_t from_port);
/* 0; -EINPROGRESS; another -errno: it failed. */
int sctp_conn_connected(struct hdl_conn *conn);
unsigned sctp_conn_receive(struct hdl_conn *conn);
void sctp_conn_send(struct hdl_conn *conn);
/* Send with the traffic class of @conn. */
void sctp_conn_set_class(struct hdl_conn *conn);
/* May the session be ended? If not, the next news may change that. */
bool sctp_conn_may_finish(struct hdl_conn *conn);
/* Nothing more is sent: end the session, then the association. */
void sctp_conn_finish(struct hdl_conn *conn);
void sctp_conn_close(struct hdl_conn *conn, bool reset);

/* --- sctp_share.c: the UDP port of a node --- */
/* Is @adapter on a node, whose agent has the UDP port? */
bool sctp_share_is_on(const struct hdl_adapter *adapter);
/* Without a lock. Before connecting: make sure that there are sockets and a port. Before listening,
 * or connecting from a given port: take @number on @own. 0 or an error (-EADDRINUSE ...). */
int sctp_share_ready(struct hdl_adapter *adapter);
int sctp_share_bind(struct hdl_adapter *adapter, const struct udp_address *own, uint16_t number);
/* Give back the ports that nobody uses any more. Without a lock. */
void sctp_share_tidy(struct hdl_adapter *adapter);
/* With the drive lock. A port for a connection; NULL: there is none. */
struct sctp_held *sctp_share_take(struct tcp_port *port, uint16_t *number);
/* The one that was taken on @own, for one user more; NULL: it was not. */
struct sctp_held *sctp_share_use(struct tcp_port *port, const struct udp_address *own,
                                 uint16_t number);
/* One user less. NULL: nothing happens. */
void sctp_share_drop(struct sctp_held *held, uint16_t number);
/* The same for what sctp_share_bind() took. */
void sctp_share_unbind(struct tcp_port *port, const struct udp_address *own, uint16_t number);
void sctp_share_forget(struct sctp_port *sctp);
/* The agent has sent sockets; it has ended (with the drive lock); there is another one. */
void sctp_share_opened(struct hdl_adapter *adapter, const struct agent_msg *msg, int *fds,
                       int fd_count);
void sctp_share_detach(struct hdl_adapter *adapter);
void sctp_share_again(struct hdl_adapter *adapter);

/* --- listeners --- */
/* Listen on the number that @listener has. 0 or -errno. */
int sctp_listener_begin(struct hdl_listener *listener, int backlog);
void sctp_listener_accept(struct hdl_listener *listener);
void sctp_listener_close(struct hdl_listener *listener);

#endif
