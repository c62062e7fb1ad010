/* The TCP port of an adapter: its listeners and its connections. Each queue pair that speaks iWARP
 * has a connection of its own.
 *
 *	hdl_listener   a bound port; listening, its peers become connections
 *	hdl_conn       CONNECTING  TCP connects
 *	               SETUP       MPA negotiates (transport/iwarp/mpa_setup.h)
 *	               UP          the queue pair runs on it (transport/iwarp/iwarp.h)
 *	               OVER        the socket is closed
 *
 * All sockets are in one epoll, edge-triggered, for their whole life. A thread that is woken asks
 * the epoll which sockets have news. A thread that polls reads the sockets that had data recently
 * (hot) directly, and asks the epoll now and then. An idle connection costs no system call.
 *
 * A connection that has something to do is in the list "woken". What it has to send leaves at the
 * end of the same turn (tcp_port_flush()); everything else is done by the next receive().
 *
 * A connection is freed when the program has destroyed it, the socket is closed and the queue pair
 * no longer refers to it, whichever comes last. Everything here happens with the drive lock. */
#ifndef ADAPTER_TCP_PORT_H
#define ADAPTER_TCP_PORT_H

#include <stdbool.h>
#include <stdint.h>

#include <heddle/heddle.h>

#include "adapter/net/port.h"
#include "adapter/net/sctp_port.h"
#include "adapter/net/tcp_flow.h"
#include "port/owner.h"
#include "port/udp.h"
#include "transport/capture_stream.h"
#include "transport/iwarp/iwarp.h"
#include "transport/iwarp/mpa_setup.h"
#include "transport/path.h"

#define TCP_CHUNKS     64u  /* of FPDUs on their way, shared by all connections */
#define TCP_HOT        8u   /* connections that a polling thread reads directly */
#define TCP_COLD_LOOKS 512u /* after so many empty reads a connection is no longer hot */
#define TCP_ASK_EVERY  16u  /* looks at hot connections between two questions to the epoll */
#define TCP_EVENTS     64u  /* of one question */
#define TCP_ACCEPTS    16u  /* connections accepted in one turn of a listener */
#define TCP_SILENT \
	128u               /* peers of a listener that have not sent a Request yet; then the
                               longest silent one is disconnected for the next */
#define TCP_BACKLOG    128 /* peers that the kernel keeps waiting, at least */
#define TCP_MAX_CONNS  65536u
#define TCP_READ_AHEAD 65536u /* bytes that hdl_conn_adopt() takes */

#define TCP_REQUEST_NS 10000000000ull /* until a peer that connects has sent its MPA Request */
#define TCP_REPLY_NS   30000000000ull /* until the peer has answered ours */
#define TCP_END_NS     10000000000ull /* until the peer has closed its direction after we did */
#define TCP_EXIT_NS    1000000000ull  /* that a program waits when it exits; see tcp_port.c */
#define TCP_FILES_NS   100000000ull   /* pause of a listener when descriptors are used up */
/* A responder that nobody has asked to speak first stays silent until the peer has acknowledged
 * the Reply, and for this long after that: Linux's siw drops a connection if it finds data behind
 * the Reply, which it reads some time after TCP has acknowledged it. An initiator stays silent for
 * as long after the Reply: siw sends it before it is ready to hear of data, and never looks at what
 * came in between until something else comes. A peer that takes an empty FPDU as the sign that the
 * initiator is ready, which siw does not, needs no pause. */
#define TCP_SILENCE_NS      20000000ull
#define TCP_SILENCE_LOOK_NS 1000000ull /* how often to look whether it is acknowledged */

enum conn_state { CONN_CONNECTING, CONN_SETUP, CONN_UP, CONN_OVER };

/* Which number of its listener a connection is part of. */
enum conn_counted { CONN_NOT_COUNTED, CONN_SILENT, CONN_ASKED };

struct tcp_port;
struct udp_sock;

struct hdl_listener {
	uint32_t magic;
	struct tcp_port *port;
	struct hdl_listener *next;
	void *context;
	uint8_t service; /* enum hdl_conn_service */
	uint16_t number; /* the TCP port */
	uint32_t count;  /* sockets, one per address */
	struct {
		int sock; /* -1: a connection has it */
		struct udp_address address;
	} socks[UDP_MAX_ADDRESSES];
	struct sctp_sock *sctp; /* while it listens for SCTP, which has no socket per address */
	int backlog;            /* 0: it does not listen */
	bool paused; /* it accepts nobody until resume_ns, or until a request is answered (0) */
	uint64_t resume_ns;
	uint32_t silent; /* its connections that have not sent a Request */
	uint32_t asked;  /* and those whose Request has not been answered */
};

struct hdl_conn {
	uint32_t magic;
	uint8_t state; /* enum conn_state */
	bool initiator;
	bool orphan;     /* the program has destroyed it */
	bool woken;      /* it is in port.woken */
	bool in_over;    /* nothing comes any more */
	bool in_held;    /* the transport wanted no more when it was asked last */
	bool out_held;   /* the socket takes no more */
	bool out_more;   /* the last turn did not send everything */
	bool out_over;   /* we have closed our direction */
	bool broken;     /* the connection broke */
	bool hung_up;    /* the epoll has said that nothing comes behind what is in the socket */
	bool more;       /* the last turn did not take everything that has arrived */
	bool begun;      /* iwarp is in use */
	bool quiet;      /* an initiator that does not send yet */
	uint8_t counted; /* enum conn_counted */
	bool held;       /* the program has a pointer to it */
	bool reported;   /* HDL_CONN_REQUEST has been raised */
	uint8_t events;  /* bits of enum hdl_conn_event_type that it has not taken */
	uint8_t heat;    /* 1 + its place in port.hot; 0: none */
	uint8_t traffic_class;
	uint8_t peer_class; /* that the peer began it with */
	uint8_t service;    /* enum hdl_conn_service */
	uint16_t own_port, peer_port;
	uint16_t ird, ord; /* agreed */
	uint32_t cold;     /* reads in a row that found nothing */
	uint32_t qpn;      /* 0: none yet */
	struct hdl_qp *qp; /* during the set-up; its joining is this connection */
	int error;
	struct tcp_port *port;
	struct hdl_listener *listener; /* that it came from, until its request is answered */
	void *context;
	uint32_t turn;                   /* of the port in which it was served last */
	struct hdl_conn *next, **before; /* all of the port */
	struct hdl_conn *woken_next;
	struct hdl_conn *event_next;
	uint64_t due_ns;    /* UINT64_MAX: it waits for nothing */
	uint64_t silent_ns; /* a responder may speak at this time; 0: the Reply is not acknowledged;
	                       UINT64_MAX: no need to wait */
	struct udp_address own, peer;
	struct mpa_setup *setup; /* until its events are taken */
	struct mpa_offer offer;
	struct tcp_flow flow;
	struct sctp_conn *sctp;         /* of a connection on SCTP, instead of a socket in flow */
	struct capture_stream *capture; /* NULL: it is not recorded */
	struct iwarp iwarp;
};

struct tcp_port {
	struct net_port port;   /* must be first */
	struct carrier carrier; /* carries no packets; flush() */
	struct hdl_conn *conns; /* newest first */
	uint32_t conn_count;
	struct hdl_listener *listeners;
	struct hdl_conn *woken, **woken_end;
	struct hdl_conn *dead; /* to be freed; by woken_next */
	struct hdl_conn *hot[TCP_HOT];
	unsigned hot_count;
	unsigned looks;
	uint32_t turn;      /* of receive() */
	struct owner owner; /* which user is at the other end of a connection on this machine */
	bool files_said;    /* that descriptors are used up */
	uint8_t *staging;
	struct sctp_port *sctp; /* NULL: nobody has used it */
	struct udp_sock *udps;  /* sockets of plain UDP */
	struct iwarp_pool pool;
	struct iwarp_chunk *chunks;
	uint8_t *chunk_memory;

	/* Events for the program. */
	int event_fd;
	struct hdl_conn *events, **events_end;
	void (*handler)(void *context);
	void *handler_context;
};

/* --- tcp_port.c --- */
/* The TCP port of @adapter, which is opened if there is none. NULL: no memory, or no descriptors
 * (errno says which). */
struct tcp_port *tcp_port_of(struct hdl_adapter *adapter);
/* The same, or NULL if there is none. */
struct tcp_port *tcp_port_find(const struct hdl_adapter *adapter);
/* @conn has something to do. */
void tcp_port_wake(struct tcp_port *port, struct hdl_conn *conn);
/* Something is to be done at that time. */
void tcp_port_at(struct tcp_port *port, uint64_t ns);
/* Report the news of @sock for @conn or @listener (the other is NULL). 0 or -errno. */
int tcp_port_watch(struct tcp_port *port, int sock, struct hdl_conn *conn,
                   struct hdl_listener *listener);
/* The same for a UDP socket of SCTP. */
int tcp_port_watch_end(struct tcp_port *port, struct sctp_end *end);
/* Before its socket is replaced: other processes have it, too, so that closing would not do. */
void tcp_port_unwatch_end(struct tcp_port *port, const struct sctp_end *end);
/* The same for a socket of plain UDP. */
int tcp_port_watch_udp(struct tcp_port *port, struct udp_sock *sock, int fd);
/* @conn had data: a polling thread reads it directly from now on. */
void tcp_port_heat(struct tcp_port *port, struct hdl_conn *conn);
void tcp_port_cool(struct tcp_port *port, struct hdl_conn *conn);

/* --- conn.c: the life of a connection --- */
/* A connection on @sock, which it owns; -1: it will be on SCTP. NULL: no memory. */
struct hdl_conn *conn_new(struct tcp_port *port, int sock);
/* @conn is being set up to carry @qp, which no other connection gets from now on; that is over: it
 * carries it, or failed, or @qp goes. */
void conn_claim(struct hdl_conn *conn, struct hdl_qp *qp);
void conn_release(struct hdl_conn *conn);
/* How its queue pair wakes it; from now on the queue pair runs on it (iwarp_begin()). */
struct iwarp_owner conn_owner(struct hdl_conn *conn);
void conn_up(struct hdl_conn *conn);
/* Do everything that there is to do. Returns how much was done. */
unsigned conn_service(struct hdl_conn *conn);
/* due_ns has come. */
void conn_expire(struct hdl_conn *conn, uint64_t now_ns);
/* The kernel reports an error or the end of both directions. */
void conn_hung_up(struct hdl_conn *conn);
/* Reset it now. */
void conn_abort(struct hdl_conn *conn, int error);
/* Answer its request with no. False: there is too much private data. */
bool conn_refuse(struct hdl_conn *conn, const uint8_t *data, size_t bytes);
/* The program needs it no longer. */
void conn_orphan(struct hdl_conn *conn);
/* Close its socket, and free it unless the program has a pointer to it: the port ends, perhaps in a
 * child of fork(). */
void conn_drop(struct hdl_conn *conn);
/* Free it, but leave its socket open: hdl_conn_adopt() fails. */
void conn_give_back(struct hdl_conn *conn);
/* The program has closed it in order, and the peer has not acknowledged everything yet. */
bool conn_lingers(const struct hdl_conn *conn);
/* It is not one of its listener's any more that wait for something. */
void conn_uncount(struct hdl_conn *conn);

/* --- conn_io.c: its bytes --- */
/* Receive only. Returns how much came. */
unsigned conn_receive(struct hdl_conn *conn);
/* Send what there is, at the end of a turn. */
void conn_send(struct hdl_conn *conn);
/* Is there nothing to do for it until its socket has news, or it is woken again? */
bool conn_is_quiet(const struct hdl_conn *conn);
/* Nothing comes any more. */
void conn_ended(struct hdl_conn *conn, enum stream_end why);
/* Is there still something to send? */
bool conn_offers(struct hdl_conn *conn);
/* It is connected: record it, if this adapter records. */
void conn_record(struct hdl_conn *conn, bool initiated);
/* One direction has ended in order, or (@broken) the connection. */
void conn_record_end(struct hdl_conn *conn, bool inbound, bool broken);

/* --- listener.c --- */
void listener_accept(struct hdl_listener *listener);
/* A peer has connected: @conn waits for its Request. */
void listener_admit(struct hdl_listener *listener, struct hdl_conn *conn);
/* Pause if as many requests as it wants wait for an answer. */
void listener_check(struct hdl_listener *listener);
/* Accept peers again, if the reason for the pause is over. */
void listener_resume(struct hdl_listener *listener, uint64_t now_ns);
/* Close its sockets. The program, which has a pointer to it, frees it: hdl_listener_close(). */
void listener_drop(struct hdl_listener *listener);

/* The address to connect to @to from: @from, if the adapter may use it, or (NULL) one of the family
 * of @to. False: there is none. */
bool listener_source(const struct hdl_adapter *adapter, const struct hdl_gid *from,
                     const struct hdl_gid *to, struct udp_address *out);
/* The error of a call for -errno; what is unusual is logged. */
int listener_error(int error);

/* --- udp_service.c --- */
/* Take the datagrams that have come. Returns how many. */
unsigned udp_service_receive(struct udp_sock *sock);
/* Close the sockets of plain UDP. */
void udp_service_end(struct tcp_port *port);

/* --- conn_event.c --- */
void conn_raise(struct hdl_conn *conn, enum hdl_conn_event_type type, int error);
/* Drop the events of @conn. */
void conn_forget_events(struct hdl_conn *conn);
/* Call the program's handler: net.handler_due was set. By the adapter's thread, without a lock. */
void conn_call_handler(struct hdl_adapter *adapter);

#endif
