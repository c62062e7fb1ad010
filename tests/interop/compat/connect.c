/* Connections through stock librdmacm, in one process and with one that dies: what programs on it
 * rely on and the examples do not show. */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <infiniband/ib.h>
#include <rdma/rdma_cma.h>

static struct sockaddr_in loopback(uint16_t port)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
	                            .sin_port = htons(port),
	                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static struct rdma_cm_event *next_event(struct rdma_event_channel *channel,
                                        enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	struct pollfd ready = {.fd = channel->fd, .events = POLLIN};
	assert_int_equal(poll(&ready, 1, 10000), 1);
	assert_int_equal(rdma_get_cm_event(channel, &event), 0);
	assert_int_equal(event->event, type);
	return event;
}

static void expect_event(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	assert_int_equal(rdma_ack_cm_event(next_event(channel, type)), 0);
}

static struct rdma_cm_id *new_id(struct rdma_event_channel *channel, enum rdma_port_space space)
{
	struct rdma_cm_id *id;
	assert_int_equal(rdma_create_id(channel, &id, NULL, space), 0);
	return id;
}

static struct rdma_cm_id *listen_at(struct rdma_event_channel *channel, uint16_t port, int backlog)
{
	struct rdma_cm_id *id = new_id(channel, RDMA_PS_TCP);
	struct sockaddr_in address = loopback(port);
	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&address), 0);
	assert_int_equal(rdma_listen(id, backlog), 0);
	assert_int_not_equal(rdma_get_src_port(id), 0);
	return id;
}

/* An identifier with a route to @address. */
static struct rdma_cm_id *resolve(struct rdma_event_channel *channel, enum rdma_port_space space,
                                  void *address)
{
	struct rdma_cm_id *id = new_id(channel, space);
	assert_int_equal(rdma_resolve_addr(id, NULL, address, 1000), 0);
	expect_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_int_equal(rdma_resolve_route(id, 1000), 0);
	expect_event(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	return id;
}

static struct rdma_cm_id *route_to(struct rdma_event_channel *channel, uint16_t port)
{
	struct sockaddr_in address = loopback(port);
	return resolve(channel, RDMA_PS_TCP, &address);
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
	        .qp_type = IBV_QPT_RC,
	        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
	assert_int_equal(rdma_create_qp(id, NULL, &attr), 0);
}

static void end(struct rdma_cm_id *id)
{
	if (id->qp != NULL)
		rdma_destroy_qp(id);
	assert_int_equal(rdma_destroy_id(id), 0);
}

static void ask(struct rdma_cm_id *id)
{
	struct rdma_conn_param param = {.retry_count = 7};
	make_qp(id);
	assert_int_equal(rdma_connect(id, &param), 0);
}

/* The identifier of a request that @listener hears. */
static struct rdma_cm_id *asked(struct rdma_cm_id *listener)
{
	struct rdma_cm_event *event = next_event(listener->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = event->id;
	assert_ptr_equal(event->listen_id, listener);
	rdma_ack_cm_event(event);
	return id;
}

/* Two that talk, each with a channel of its own. */
struct sides {
	struct rdma_event_channel *here, *there;
	struct rdma_cm_id *listener; /* there */
	struct rdma_cm_id *active;   /* here, with a route to the listener */
	struct rdma_cm_id *passive;  /* there, once it was asked */
};

static struct sides meet(void)
{
	struct sides s = {rdma_create_event_channel(), rdma_create_event_channel(), NULL, NULL,
	                  NULL};
	s.listener = listen_at(s.there, 0, 1);
	s.active = route_to(s.here, ntohs(rdma_get_src_port(s.listener)));
	return s;
}

static void part(const struct sides *s)
{
	end(s->active);
	end(s->passive);
	end(s->listener);
	rdma_destroy_event_channel(s->here);
	rdma_destroy_event_channel(s->there);
}

static void a_port_is_held_once(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	(void)state;
	assert_non_null(channel);
	struct rdma_cm_id *first = listen_at(channel, 0, 1), *second = new_id(channel, RDMA_PS_TCP);
	struct sockaddr_in same = loopback(ntohs(rdma_get_src_port(first)));
	assert_int_equal(rdma_bind_addr(second, (struct sockaddr *)&same), -1);
	assert_int_equal(errno, EADDRINUSE);
	end(first);
	assert_int_equal(rdma_bind_addr(second, (struct sockaddr *)&same), 0);
	end(second);
	rdma_destroy_event_channel(channel);
}

static struct rdma_cm_id *bind_any(struct rdma_event_channel *channel, sa_family_t family,
                                   uint16_t port, int only)
{
	struct rdma_cm_id *id = new_id(channel, RDMA_PS_TCP);
	struct sockaddr_in6 address = {.sin6_family = family, .sin6_port = htons(port)};
	assert_int_equal(
	        rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only, sizeof(only)), 0);
	if (rdma_bind_addr(id, (struct sockaddr *)&address) == 0)
		return id;
	end(id);
	return NULL;
}

/* As tgtd does: two listeners, one a family; the port is free when both are gone. */
static void a_port_is_held_once_a_family(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	(void)state;
	struct rdma_cm_id *four = bind_any(channel, AF_INET, 0, 1);
	uint16_t port = ntohs(rdma_get_src_port(four));
	assert_null(bind_any(channel, AF_INET6, port, 0)); /* both families */
	assert_null(bind_any(channel, AF_INET, port, 1));
	struct rdma_cm_id *six = bind_any(channel, AF_INET6, port, 1);
	assert_non_null(six);
	assert_int_equal(rdma_listen(four, 1), 0);
	assert_int_equal(rdma_listen(six, 1), 0);
	struct rdma_cm_id *active = route_to(channel, port);
	ask(active);
	struct rdma_cm_id *passive = asked(four);
	assert_int_equal(rdma_reject(passive, NULL, 0), 0);
	expect_event(channel, RDMA_CM_EVENT_REJECTED);
	end(passive);
	end(active);
	end(four);
	assert_null(bind_any(channel, AF_INET6, port, 0));
	end(six);
	four = bind_any(channel, AF_INET6, port, 0);
	assert_non_null(four);
	end(four);
	rdma_destroy_event_channel(channel);
}

/* IBTA volume 1, 12.9.8.4: after the end of a connection its time runs out, on both sides. */
static void accepted_and_disconnected_in_order(void **state)
{
	struct sides s = meet();
	struct rdma_conn_param param = {.private_data = "hello",
	                                .private_data_len = 6,
	                                .responder_resources = 3,
	                                .initiator_depth = 2,
	                                .retry_count = 15};
	(void)state;
	make_qp(s.active);
	assert_int_equal(rdma_connect(s.active, &param), 0);
	struct rdma_cm_event *event = next_event(s.there, RDMA_CM_EVENT_CONNECT_REQUEST);
	s.passive = event->id;
	assert_ptr_equal(event->listen_id, s.listener);
	assert_memory_equal(event->param.conn.private_data, "hello", 6);
	assert_int_equal(event->param.conn.responder_resources, 2);
	assert_int_equal(event->param.conn.initiator_depth, 3);
	rdma_ack_cm_event(event);
	make_qp(s.passive);
	assert_int_equal(rdma_accept(s.passive, &(struct rdma_conn_param){.private_data = "yes",
	                                                                  .private_data_len = 4}),
	                 0);
	event = next_event(s.here, RDMA_CM_EVENT_ESTABLISHED);
	assert_memory_equal(event->param.conn.private_data, "yes", 4);
	rdma_ack_cm_event(event);
	expect_event(s.there, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(rdma_get_dst_port(s.passive), rdma_get_src_port(s.active));
	assert_int_equal(rdma_disconnect(s.active), 0);
	/* Who is left hears of it before the other one hears that it has. */
	struct pollfd none = {.fd = s.here->fd, .events = POLLIN};
	assert_int_equal(poll(&none, 1, 300), 0);
	expect_event(s.there, RDMA_CM_EVENT_DISCONNECTED);
	expect_event(s.here, RDMA_CM_EVENT_DISCONNECTED);
	expect_event(s.there, RDMA_CM_EVENT_TIMEWAIT_EXIT);
	expect_event(s.here, RDMA_CM_EVENT_TIMEWAIT_EXIT);
	part(&s);
}

/* A program that does not look at its events does not keep the other one for long. */
static void disconnected_though_the_peer_looks_away(void **state)
{
	struct sides s = meet();
	(void)state;
	ask(s.active);
	s.passive = asked(s.listener);
	make_qp(s.passive);
	assert_int_equal(rdma_accept(s.passive, &(struct rdma_conn_param){0}), 0);
	expect_event(s.here, RDMA_CM_EVENT_ESTABLISHED);
	expect_event(s.there, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(rdma_disconnect(s.active), 0);
	expect_event(s.here, RDMA_CM_EVENT_DISCONNECTED);
	part(&s);
}

/* Who accepts and changes its mind before the other one has established the connection has rejected
 * it. */
static void left_before_it_was_established(void **state)
{
	struct sides s = meet();
	struct rdma_conn_param param = {.retry_count = 7, .qp_num = 0x123456};
	(void)state;
	assert_int_equal(rdma_connect(s.active, &param),
	                 0); /* it has no queue pair: establishing is ours */
	s.passive = asked(s.listener);
	make_qp(s.passive);
	assert_int_equal(rdma_accept(s.passive, &(struct rdma_conn_param){0}), 0);
	expect_event(s.here, RDMA_CM_EVENT_CONNECT_RESPONSE);
	assert_int_equal(rdma_disconnect(s.passive), 0);
	expect_event(s.here, RDMA_CM_EVENT_REJECTED);
	expect_event(s.there, RDMA_CM_EVENT_DISCONNECTED);
	assert_int_equal(rdma_establish(s.active), -1);
	part(&s);
}

static void rejected_with_private_data(void **state)
{
	struct sides s = meet();
	(void)state;
	ask(s.active);
	s.passive = asked(s.listener);
	assert_int_equal(rdma_reject(s.passive, "no", 3), 0);
	struct rdma_cm_event *event = next_event(s.here, RDMA_CM_EVENT_REJECTED);
	assert_int_equal(event->status, 28); /* by the consumer: IBTA 12.6.7.2 */
	assert_memory_equal(event->param.conn.private_data, "no", 3);
	rdma_ack_cm_event(event);
	part(&s);
}

static void expect_rejection_of(struct rdma_cm_id *id)
{
	struct rdma_cm_event *event = next_event(id->channel, RDMA_CM_EVENT_REJECTED);
	assert_ptr_equal(event->id, id);
	rdma_ack_cm_event(event);
}

static void a_full_backlog_rejects(void **state)
{
	struct sides s = meet();
	(void)state;
	struct rdma_cm_id *second = route_to(s.here, ntohs(rdma_get_src_port(s.listener)));
	ask(s.active);
	ask(second);
	expect_rejection_of(second);
	end(s.listener); /* with a request that nobody took */
	expect_rejection_of(s.active);
	end(s.active);
	end(second);
	rdma_destroy_event_channel(s.here);
	rdma_destroy_event_channel(s.there);
}

static void an_empty_channel_does_not_wait_unless_told(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_event *event;
	(void)state;
	assert_int_equal(fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(rdma_get_cm_event(channel, &event), -1);
	assert_int_equal(errno, EAGAIN);
	rdma_destroy_event_channel(channel);
}

/* The child connects to @port and waits to be killed. */
static void connect_and_wait(uint16_t port)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	ask(route_to(channel, port));
	expect_event(channel, RDMA_CM_EVENT_ESTABLISHED);
	pause();
}

static void a_peer_that_dies_is_disconnected(void **state)
{
	(void)state;
	int told[2];
	assert_int_equal(pipe(told), 0);
	/* Before we have opened anything: the two share nothing. */
	pid_t child = fork();
	if (child == 0) {
		uint16_t port = 0;
		if (read(told[0], &port, sizeof(port)) == sizeof(port))
			connect_and_wait(port);
		_exit(1);
	}
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener = listen_at(channel, 0, 1);
	uint16_t port = ntohs(rdma_get_src_port(listener));
	assert_int_equal(write(told[1], &port, sizeof(port)), sizeof(port));
	struct rdma_cm_id *passive = asked(listener);
	make_qp(passive);
	assert_int_equal(rdma_accept(passive, NULL), 0);
	expect_event(channel, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(kill(child, SIGKILL), 0);
	expect_event(channel, RDMA_CM_EVENT_DISCONNECTED);
	assert_int_equal(waitpid(child, NULL, 0), child);
	end(passive);
	end(listener);
	rdma_destroy_event_channel(channel);
	close(told[0]);
	close(told[1]);
}

static double now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

struct waiter {
	struct rdma_event_channel *channel;
	_Atomic pid_t thread;
	_Atomic bool back;
};

static void *wait_for_any(void *context)
{
	struct waiter *waiter = context;
	struct rdma_cm_event *event;
	atomic_store(&waiter->thread, (pid_t)syscall(SYS_gettid));
	rdma_get_cm_event(waiter->channel, &event);
	atomic_store(&waiter->back, true);
	return NULL;
}

static void ignore(int number)
{
	(void)number;
}

/* Does it wait in the kernel? */
static bool waits(const struct waiter *waiter)
{
	char path[64], call[64] = "";
	pid_t thread = atomic_load(&waiter->thread);
	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", (int)thread);
	int fd = thread != 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	ssize_t got = fd >= 0 ? read(fd, call, sizeof(call) - 1) : -1;
	if (fd >= 0)
		close(fd);
	return got > 0 && atoi(call) == SYS_poll;
}

/* As with a kernel, whose call has the file: programs close a channel at their end, with a thread
 * that waits. */
static void who_waits_does_not_hear_that_the_channel_is_closed(void **state)
{
	(void)state;
	struct waiter waiter = {.channel = rdma_create_event_channel()};
	const struct timespec moment = {.tv_nsec = 1000000};
	uint64_t one = 1;
	pthread_t thread;
	assert_non_null(waiter.channel);
	int copy = dup(waiter.channel->fd);
	assert_int_equal(pthread_create(&thread, NULL, wait_for_any, &waiter), 0);
	for (int i = 0; i < 10000 && !waits(&waiter); i++)
		nanosleep(&moment, NULL);
	rdma_destroy_event_channel(waiter.channel);
	assert_int_equal(write(copy, &one, sizeof(one)), sizeof(one)); /* an event that is gone */
	for (int i = 0; i < 50; i++)
		nanosleep(&moment, NULL);
	assert_false(atomic_load(&waiter.back));
	/* Only a signal ends it. */
	struct sigaction before, action = {.sa_handler = ignore};
	assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
	for (int i = 0; i < 10000 && !atomic_load(&waiter.back); i++) {
		pthread_kill(thread, SIGUSR1);
		nanosleep(&moment, NULL);
	}
	assert_true(atomic_load(&waiter.back));
	assert_int_equal(pthread_join(thread, NULL), 0);
	sigaction(SIGUSR1, &before, NULL);
	close(copy);
}

struct acceptor {
	struct rdma_cm_id *id;
	_Atomic bool answers;
	int result;
};

static void *accept_late(void *context)
{
	struct acceptor *acceptor = context;
	const struct timespec moment = {.tv_nsec = 50000000};
	struct rdma_conn_param param = {.retry_count = 7};
	nanosleep(&moment, NULL);
	atomic_store(&acceptor->answers, true);
	acceptor->result = rdma_accept(acceptor->id, &param);
	return NULL;
}

/* A program that keeps the last request in one place must get to it before the next takes its
 * place, however busy the machine is. One that wants all of them first gets them. */
static void requests_are_given_out_one_after_the_other(void **state)
{
	(void)state;
	struct rdma_event_channel *here = rdma_create_event_channel(),
	                          *there = rdma_create_event_channel();
	struct rdma_cm_id *listener = listen_at(there, 0, 4), *clients[4], *servers[4];
	pthread_t thread;
	for (int i = 0; i < 4; i++) {
		clients[i] = route_to(here, ntohs(rdma_get_src_port(listener)));
		ask(clients[i]);
	}
	servers[0] = asked(listener);
	make_qp(servers[0]);
	struct acceptor acceptor = {.id = servers[0]};
	assert_int_equal(pthread_create(&thread, NULL, accept_late, &acceptor), 0);
	servers[1] = asked(listener);
	assert_true(atomic_load(&acceptor.answers));
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(acceptor.result, 0);
	servers[2] = asked(listener);
	servers[3] = asked(listener);
	for (int i = 0; i < 4; i++) {
		end(clients[i]);
		end(servers[i]);
	}
	end(listener);
	rdma_destroy_event_channel(here);
	rdma_destroy_event_channel(there);
}

static void a_request_without_answer_times_out(void **state)
{
	(void)state;
	setenv("HEDDLE_CM_TIMEOUT_MS", "200", 1);
	struct sides s = meet();
	double start = now_ms();
	ask(s.active);
	s.passive = asked(s.listener);
	struct rdma_cm_event *event = next_event(s.here, RDMA_CM_EVENT_UNREACHABLE);
	assert_int_equal(event->status, -ETIMEDOUT);
	assert_true(now_ms() - start >= 200);
	rdma_ack_cm_event(event);
	part(&s);
	unsetenv("HEDDLE_CM_TIMEOUT_MS");
}

/* 127.72.0.0/16 are nodes of this machine; no LID is above 0xbfff. */
static void an_address_that_nobody_has_is_sought_for_as_long_as_told(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_in nobody = loopback(7);
	struct rdma_cm_id *id = new_id(channel, RDMA_PS_TCP);
	(void)state;
	nobody.sin_addr.s_addr = htonl(127u << 24 | 72u << 16 | 0xfffe);
	double start = now_ms();
	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&nobody, 150), 0);
	struct rdma_cm_event *event = next_event(channel, RDMA_CM_EVENT_ADDR_ERROR);
	assert_int_equal(event->status, -ETIMEDOUT);
	assert_true(now_ms() - start >= 150 && now_ms() - start < 5000);
	rdma_ack_cm_event(event);
	end(id);
	rdma_destroy_event_channel(channel);
}

static struct rdma_cm_id *with_option(struct rdma_event_channel *channel, int option)
{
	struct rdma_cm_id *id = new_id(channel, RDMA_PS_TCP);
	int on = 1;
	assert_int_equal(rdma_set_option(id, RDMA_OPTION_ID, option, &on, sizeof(on)), 0);
	return id;
}

/* All addresses of one family are those of the other too, unless AFONLY is set. Those of IPv4
 * (@only: with it or without) give way to who wants those of IPv6 alone. */
static void families_apart(bool only)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_in any4 = {.sin_family = AF_INET};
	struct sockaddr_in6 any6 = {.sin6_family = AF_INET6},
	                    to6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	struct rdma_cm_id *four =
	        only ? with_option(channel, RDMA_OPTION_ID_AFONLY) : new_id(channel, RDMA_PS_TCP);
	struct rdma_cm_id *both = new_id(channel, RDMA_PS_TCP);
	assert_int_equal(rdma_bind_addr(four, (struct sockaddr *)&any4), 0);
	any6.sin6_port = to6.sin6_port = rdma_get_src_port(four);
	assert_int_equal(rdma_bind_addr(both, (struct sockaddr *)&any6), -1);
	assert_int_equal(errno, EADDRINUSE);
	struct rdma_cm_id *six = with_option(channel, RDMA_OPTION_ID_AFONLY);
	assert_int_equal(rdma_bind_addr(six, (struct sockaddr *)&any6), 0);
	assert_int_equal(rdma_listen(four, 1), 0);
	assert_int_equal(rdma_listen(six, 1), 0);
	for (int i = 0; i < 2; i++) {
		struct rdma_event_channel *here = rdma_create_event_channel();
		struct rdma_cm_id *id = i == 0 ? route_to(here, ntohs(any6.sin6_port))
		                               : resolve(here, RDMA_PS_TCP, &to6);
		ask(id);
		struct rdma_cm_id *passive = asked(i == 0 ? four : six);
		end(passive);
		end(id);
		rdma_destroy_event_channel(here);
	}
	end(four);
	end(six);
	end(both);
	rdma_destroy_event_channel(channel);
}

static void families_alone(void **state)
{
	(void)state;
	families_apart(true);
	families_apart(false);
}

/* Ports that are used again are shared by those who say so, until one listens. */
static void ports_are_shared(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_in address = loopback(0);
	struct rdma_cm_id *third = new_id(channel, RDMA_PS_TCP);
	int on = 1;
	(void)state;
	struct rdma_cm_id *first = with_option(channel, RDMA_OPTION_ID_REUSEADDR);
	struct rdma_cm_id *second = with_option(channel, RDMA_OPTION_ID_REUSEADDR);
	assert_int_equal(rdma_bind_addr(first, (struct sockaddr *)&address), 0);
	address.sin_port = rdma_get_src_port(first);
	assert_int_equal(rdma_bind_addr(second, (struct sockaddr *)&address), 0);
	assert_int_equal(rdma_bind_addr(third, (struct sockaddr *)&address), -1);
	assert_int_equal(errno, EADDRINUSE);
	assert_int_equal(rdma_listen(first, 1), -1);
	assert_int_equal(errno, EADDRINUSE);
	end(second);
	assert_int_equal(rdma_listen(first, 1), 0);
	assert_int_equal(
	        rdma_set_option(third, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)),
	        0);
	assert_int_equal(rdma_bind_addr(third, (struct sockaddr *)&address), -1);
	assert_int_equal(errno, EADDRINUSE);
	end(first);
	assert_int_equal(rdma_bind_addr(third, (struct sockaddr *)&address), 0);
	end(third);
	rdma_destroy_event_channel(channel);
}

/* A GID and a service name a listener as well as an IP address and a port do. */
static void addresses_of_infiniband(void **state)
{
	struct rdma_event_channel *here = rdma_create_event_channel(),
	                          *there = rdma_create_event_channel();
	struct sockaddr_ib address = {.sib_family = AF_IB,
	                              .sib_sid = htobe64(0x01060000), /* of TCP, any port */
	                              .sib_sid_mask = htobe64(0xffffffffffff0000)};
	struct rdma_cm_id *listener = new_id(there, RDMA_PS_IB);
	union ibv_gid gid;
	(void)state;
	assert_int_equal(rdma_bind_addr(listener, (struct sockaddr *)&address), 0);
	assert_int_equal(rdma_listen(listener, 1), 0);
	assert_int_equal(rdma_get_local_addr(listener)->sa_family, AF_IB);
	uint16_t port = ntohs(rdma_get_src_port(listener));
	assert_int_not_equal(port, 0);

	/* What IP calls it is the same port; from it we learn the GID. */
	struct rdma_cm_id *active = route_to(here, port);
	assert_int_equal(ibv_query_gid(active->verbs, 1, 0, &gid), 0);
	end(active);
	memcpy(&address.sib_addr, &gid, sizeof(gid));
	address.sib_sid = htobe64(0x01060000u | port);
	active = resolve(here, RDMA_PS_IB, &address);
	assert_int_equal(active->route.num_paths, 1);
	assert_memory_equal(&active->route.path_rec->dgid, &gid, sizeof(gid));
	assert_int_equal(active->route.path_rec->mtu, IBV_MTU_4096);
	ask(active);
	struct rdma_cm_id *passive = asked(listener);
	assert_int_equal(rdma_get_peer_addr(passive)->sa_family, AF_IB);
	make_qp(passive);
	assert_int_equal(rdma_accept(passive, NULL), 0);
	expect_event(here, RDMA_CM_EVENT_ESTABLISHED);
	expect_event(there, RDMA_CM_EVENT_ESTABLISHED);
	end(active);
	expect_event(there, RDMA_CM_EVENT_DISCONNECTED);
	end(passive);
	end(listener);
	/* A service that is no port. */
	address.sib_sid = htobe64(0x1234567890ull);
	active = new_id(here, RDMA_PS_IB);
	assert_int_equal(rdma_bind_addr(active, (struct sockaddr *)&address), -1);
	assert_int_equal(errno, EADDRNOTAVAIL);
	end(active);
	rdma_destroy_event_channel(here);
	rdma_destroy_event_channel(there);
}

/* A group is joined and left; what is not one is refused. */
static void groups_are_joined(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_in group = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xef010203)},
	                   one = loopback(0);
	struct rdma_cm_id *id = new_id(channel, RDMA_PS_UDP);
	int context;
	(void)state;
	assert_int_equal(rdma_join_multicast(id, (struct sockaddr *)&group, NULL), -1);
	assert_int_equal(errno, EINVAL); /* not bound to a device yet */
	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&group, 1000), 0);
	expect_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_int_equal(rdma_join_multicast(id, (struct sockaddr *)&one, NULL), -1);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(rdma_join_multicast(id, (struct sockaddr *)&group, &context), 0);
		if (i == 0) { /* and left before anybody looked */
			struct rdma_cm_event *event =
			        next_event(channel, RDMA_CM_EVENT_MULTICAST_JOIN);
			assert_ptr_equal(event->param.ud.private_data, &context);
			assert_int_equal(event->param.ud.qp_num, 0xffffff);
			assert_memory_equal(event->param.ud.ah_attr.grh.dgid.raw + 10,
			                    "\xff\xff\xef\x01\x02\x03", 6);
			rdma_ack_cm_event(event);
		}
		assert_int_equal(rdma_leave_multicast(id, (struct sockaddr *)&group), 0);
	}
	struct pollfd ready = {.fd = channel->fd, .events = POLLIN};
	assert_int_equal(poll(&ready, 1, 0), 0);
	end(id);
	rdma_destroy_event_channel(channel);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_peer_that_dies_is_disconnected), /* first: it forks */
	        cmocka_unit_test(a_port_is_held_once),
	        cmocka_unit_test(a_port_is_held_once_a_family),
	        cmocka_unit_test(accepted_and_disconnected_in_order),
	        cmocka_unit_test(disconnected_though_the_peer_looks_away),
	        cmocka_unit_test(left_before_it_was_established),
	        cmocka_unit_test(rejected_with_private_data),
	        cmocka_unit_test(a_full_backlog_rejects),
	        cmocka_unit_test(an_empty_channel_does_not_wait_unless_told),
	        cmocka_unit_test(who_waits_does_not_hear_that_the_channel_is_closed),
	        cmocka_unit_test(requests_are_given_out_one_after_the_other),
	        cmocka_unit_test(a_request_without_answer_times_out),
	        cmocka_unit_test(an_address_that_nobody_has_is_sought_for_as_long_as_told),
	        cmocka_unit_test(families_alone),
	        cmocka_unit_test(ports_are_shared),
	        cmocka_unit_test(addresses_of_infiniband),
	        cmocka_unit_test(groups_are_joined),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
