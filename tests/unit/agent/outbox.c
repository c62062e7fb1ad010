/* The outbox of a process that does not read: the kernel counts descriptors in unread messages per
 * user, so one message with descriptors lies in its socket at most. The others wait in the agent,
 * in order, and follow one by one as the process reads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/agent.h"
#include "port/unixsock.h"

#define MESSAGES 40u

struct rig {
	struct agent agent;
	struct client client;
	int process; /* the other end */
	int fd;      /* what is passed */
};

static struct rig rig;

static int rig_begin(void **state)
{
	int ends[2];
	(void)state;
	memset(&rig, 0, sizeof(rig));
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
		return -1;
	rig.client = (struct client){.sock = ends[0], .agent = &rig.agent, .tables = -1};
	rig.agent.clients = &rig.client;
	rig.process = ends[1];
	rig.fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	rig.agent.epoll = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event interest = {.events = EPOLLIN, .data.ptr = &rig.client};
	return rig.fd < 0 || epoll_ctl(rig.agent.epoll, EPOLL_CTL_ADD, ends[0], &interest) != 0 ? -1
	                                                                                        : 0;
}

static int rig_end(void **state)
{
	(void)state;
	outbox_clear(&rig.client);
	close(rig.client.sock);
	close(rig.process);
	close(rig.fd);
	close(rig.agent.epoll);
	return 0;
}

/* Message number @number with @fd_count descriptors. */
static void rig_tell(uint32_t number, int fd_count)
{
	struct agent_msg msg = {.kind = AGENT_GONE, .u.gone = {.link_id = number}};
	int fds[2] = {rig.fd, rig.fd};
	assert_int_equal(outbox_send(&rig.client, &msg, fds, fd_count), 0);
}

/* What the event loop does, until it would wait. Returns how often it was woken. */
static unsigned rig_turn(void)
{
	struct epoll_event event;
	unsigned woken = 0;
	while (epoll_wait(rig.agent.epoll, &event, 1, 0) == 1) {
		assert_true((event.events & EPOLLOUT) != 0);
		outbox_flush(&rig.client);
		assert_true(++woken <= 2); /* or the loop would never sleep */
	}
	return woken;
}

/* The process reads one message, which has to be number @number. Returns its descriptors. */
static int rig_read(uint32_t number)
{
	struct agent_msg msg;
	int fds[UNIXSOCK_MAX_FDS], count;
	assert_int_equal(unixsock_receive(rig.process, &msg, sizeof(msg), fds, &count),
	                 sizeof(msg));
	assert_int_equal(msg.u.gone.link_id, number);
	for (int i = 0; i < count; i++)
		close(fds[i]);
	return count;
}

static int unread_bytes(void)
{
	int bytes;
	assert_int_equal(ioctl(rig.client.sock, SIOCOUTQ, &bytes), 0);
	return bytes;
}

static int buffer_bytes(void)
{
	int bytes;
	socklen_t length = sizeof(bytes);
	assert_int_equal(getsockopt(rig.client.sock, SOL_SOCKET, SO_SNDBUF, &bytes, &length), 0);
	return bytes;
}

static void one_message_with_descriptors_lies_unread(void **state)
{
	(void)state;
	int buffer = buffer_bytes();
	for (uint32_t i = 0; i < MESSAGES; i++)
		rig_tell(i, 2);
	rig_turn();
	int first = unread_bytes();
	assert_int_equal(rig_turn(), 0); /* an idle process costs nothing */
	for (uint32_t i = 0; i < MESSAGES; i++) {
		assert_int_equal(unread_bytes(), first);
		assert_int_equal(rig_read(i), 2);
		rig_turn();
	}
	assert_int_equal(unread_bytes(), 0);
	assert_null(rig.client.queue);
	assert_int_equal(buffer_bytes(), buffer);
}

static void messages_stay_in_order(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < MESSAGES; i++)
		rig_tell(i, i % 3 == 0 ? 1 : 0);
	for (uint32_t i = 0; i < MESSAGES; i++) {
		rig_turn();
		assert_int_equal(rig_read(i), i % 3 == 0 ? 1 : 0);
	}
	assert_null(rig.client.queue);
}

static void a_process_that_reads_gets_everything_at_once(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < MESSAGES; i++) {
		rig_tell(i, 2);
		assert_null(rig.client.queue);
		assert_int_equal(rig_read(i), 2);
	}
	for (uint32_t i = 0; i < MESSAGES; i++) /* these need not be read one by one */
		rig_tell(i, 0);
	assert_null(rig.client.queue);
}

#define LIMIT 32u /* descriptors that the user may have in flight */

/* Without privileges: put descriptors into a socket that nobody reads until the kernel refuses
 * more. Returns 0 if the outbox waits until there is room, else which step failed. */
static int jam(void)
{
	struct rlimit limit = {LIMIT, LIMIT};
	int ends[2], fds[UNIXSOCK_MAX_FDS] = {rig.fd, rig.fd, rig.fd, rig.fd}, count;
	char bytes[8] = "";
	if (setrlimit(RLIMIT_NOFILE, &limit) != 0 ||
	    (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends) != 0)
		return 2;
	int result = 0;
	for (unsigned i = 0; i < 2 * LIMIT && result == 0; i++)
		result = unixsock_send(ends[0], bytes, sizeof(bytes), fds, 4);
	if (result != -ETOOMANYREFS)
		return 3;
	struct agent_msg msg = {.kind = AGENT_GONE, .u.gone = {.link_id = 1}};
	if (outbox_send(&rig.client, &msg, &rig.fd, 1) != 0 || !rig.client.jammed ||
	    rig.agent.again_ns == 0 || unread_bytes() != 0)
		return 4;
	if (outbox_service.sweep(&rig.agent, rig.agent.again_ns) == SERVICES_NEVER)
		return 5; /* the socket is still full of them: it must try again */
	while (unixsock_receive(ends[1], bytes, sizeof(bytes), fds, &count) > 0)
		while (count > 0)
			close(fds[--count]);
	if (outbox_service.sweep(&rig.agent, rig.agent.again_ns) != SERVICES_NEVER)
		return 6;
	return unread_bytes() > 0 && rig.client.queue == NULL ? 0 : 7;
}

static void a_jam_of_the_user_is_waited_for(void **state)
{
	(void)state;
	int status;
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(jam());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(one_message_with_descriptors_lies_unread, rig_begin,
	                                        rig_end),
	        cmocka_unit_test_setup_teardown(messages_stay_in_order, rig_begin, rig_end),
	        cmocka_unit_test_setup_teardown(a_jam_of_the_user_is_waited_for, rig_begin,
	                                        rig_end),
	        cmocka_unit_test_setup_teardown(a_process_that_reads_gets_everything_at_once,
	                                        rig_begin, rig_end),
	};
	return cmocka_run_group_tests_name("outbox", tests, NULL, NULL);
}
