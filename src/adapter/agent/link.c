/* The adapter's side of the node agent: find or start it, get links to other processes, learn when
 * they end. The agent is never in the data path. When it dies, links keep working, and the next
 * call that needs an agent starts another one. */
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "adapter/adapter.h"
#include "adapter/aperture/aperture.h"
#include "adapter/net/sctp_port.h"
#include "base/cancel.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/thread.h"
#include "port/agentstart.h"
#include "port/bell.h"
#include "port/rundir.h"
#include "port/unixsock.h"

/* On a busy machine, what usually takes milliseconds may take seconds. */
#define FIND_WAIT_NS   5000000000u
#define ANSWER_WAIT_NS 10000000000u

/* --- registering --- */

static void greeting(const struct hdl_adapter *adapter, struct agent_msg *msg, bool again)
{
	*msg = (struct agent_msg){
	        .version = AGENT_VERSION,
	        .kind = AGENT_HELLO,
	        .u.hello = {.sizes = adapter->peers.tables.sizes,
	                    .slot = again ? (int32_t)adapter->slot : -1,
	                    .lid = adapter->lid,
	                    .lmc = again ? adapter->lmc : adapter->agent.lmc_wanted}};
	memcpy(msg->u.hello.node, adapter->agent.node_name, sizeof(msg->u.hello.node));
	net_ask(adapter, msg);
	FILE *comm = fopen("/proc/self/comm", "re");
	if (comm == NULL) {
		snprintf(msg->u.hello.program, sizeof(msg->u.hello.program), "%s",
		         program_invocation_short_name);
	} else {
		if (fgets(msg->u.hello.program, sizeof(msg->u.hello.program), comm) != NULL)
			msg->u.hello.program[strcspn(msg->u.hello.program, "\n")] = '\0';
		fclose(comm);
	}
}

/* Receive the answer to HELLO. Returns 0 for a welcome, and @fds are the sockets that came with it;
 * 1: the agent is gone, try again; else an error that has already been logged. */
static int hear_welcome(int sock, bool cells, struct agent_msg *msg, int fds[UNIXSOCK_MAX_FDS],
                        int *fd_count)
{
	int ready;
	*fd_count = 0;
	struct pollfd answer = {.fd = sock, .events = POLLIN};
	do
		ready = poll(&answer, 1, (int)(ANSWER_WAIT_NS / 1000000));
	while (ready < 0 && errno == EINTR);
	if (ready <= 0) {
		pid_t pid = 0;
		uid_t uid;
		unixsock_peer(sock, &pid, &uid);
		log_error("the node agent, process %d, does not answer; end it (\"kill -9 %d\"), "
		          "then try again",
		          (int)pid, (int)pid);
		return -HDL_EIO;
	}
	ssize_t got = unixsock_receive(sock, msg, sizeof(*msg), fds, fd_count);
	if (got == -EMFILE) {
		log_error("too many open files for the network sockets; close some files, or "
		          "raise \"ulimit -n\"");
		return -HDL_EIO;
	}
	if (got == 0 || (got < 0 && got != -EMSGSIZE))
		return 1;
	/* An agent of another version may refuse with a message of another length. */
	if (got >= (ssize_t)(offsetof(struct agent_msg, u) + sizeof(msg->u.refused)) &&
	    msg->kind == AGENT_REFUSED) {
		msg->u.refused.why[sizeof(msg->u.refused.why) - 1] = '\0';
		log_error("the node agent refused us: %s", msg->u.refused.why);
		return -HDL_EIO;
	}
	if (got == (ssize_t)sizeof(*msg) && msg->version == AGENT_VERSION &&
	    msg->kind == AGENT_WELCOME && msg->u.welcome.gid_count > 0 &&
	    msg->u.welcome.gid_count <= AGENT_MAX_GIDS && msg->u.welcome.slot < AGENT_MAX_SLOTS &&
	    msg->u.welcome.wire_count <= UDP_MAX_ADDRESSES && msg->u.welcome.lmc <= AGENT_MAX_LMC &&
	    (int)agent_wire_socks(&msg->u.welcome, cells) == *fd_count &&
	    (msg->u.welcome.wire_mtu != 0) == (msg->u.welcome.wire_count > 0))
		return 0;
	log_error("the node agent is of another version of Heddle; end its programs (\"heddle "
	          "status\" of that version lists them), or set HEDDLE_DIR to another directory");
	return -HDL_EIO;
}

/* Store the names that the agent gave us. The next agent usually gives the same ones; then nothing
 * is written, because other threads may be reading. */
static void take_names(struct hdl_adapter *adapter, const struct agent_msg *msg)
{
	if (adapter->slot == msg->u.welcome.slot && adapter->guid == msg->u.welcome.guid &&
	    adapter->lid == msg->u.welcome.lid && adapter->lmc == msg->u.welcome.lmc &&
	    adapter->gid_count == msg->u.welcome.gid_count &&
	    memcmp(adapter->gids, msg->u.welcome.gids, sizeof(adapter->gids)) == 0)
		return;
	adapter_lock(adapter);
	adapter->slot = msg->u.welcome.slot;
	adapter->guid = msg->u.welcome.guid;
	adapter->lid = adapter->engine.lid = (uint16_t)msg->u.welcome.lid;
	adapter->lmc = adapter->engine.lmc = (uint16_t)msg->u.welcome.lmc;
	adapter->gid_count = msg->u.welcome.gid_count;
	memcpy(adapter->gids, msg->u.welcome.gids, sizeof(adapter->gids));
	adapter->engine.gid = adapter->gids[0];
	adapter_unlock(adapter);
}

/* Send HELLO on @sock and receive the answer. Returns 1 if the agent is gone: try again. */
static int greet(struct hdl_adapter *adapter, int sock, bool again)
{
	struct agent_msg msg;
	int reader = tables_reader_fd(&adapter->peers.tables);
	if (reader < 0) {
		log_error(adapter->peers.tables.fd < 0
		                  ? "cannot share memory with other processes: memfd_create() "
		                    "fails; if the seccomp filter of a container forbids it, "
		                    "allow it there"
		                  : "cannot share the tables: %m; is /proc mounted, and is "
		                    "\"ulimit -n\" high enough?");
		return -HDL_EIO;
	}
	int own[2] = {reader, bell_lend(adapter->drive.rope)}, wires[UNIXSOCK_MAX_FDS], wire_count;
	if (again)
		net_detach(adapter);
	greeting(adapter, &msg, again);
	if (own[1] < 0) {
		log_error("%m; close some files, or raise \"ulimit -n\"");
		close(reader);
		return -HDL_EIO;
	}
	int result = unixsock_hand_over(sock, &msg, sizeof(msg), own, 2);
	close(reader);
	close(own[1]);
	if (result != 0)
		return result == -ETOOMANYREFS ? -HDL_EIO : 1;
	result = hear_welcome(sock, adapter->net.cells, &msg, wires, &wire_count);
	for (int i = 0; i < wire_count; i++) {
		if (result != 0)
			close(wires[i]);
		else
			wires[i] = fd_aside(wires[i]);
	}
	if (result != 0)
		return result;
	take_names(adapter, &msg);
	return net_attach(adapter, &msg, wires);
}

/* Connect to the agent, and start it if necessary. Returns the socket or an error. */
static int find_and_greet(struct hdl_adapter *adapter, bool again)
{
	char directory[RUNDIR_MAX], path[RUNDIR_MAX + 16], passed[RUNDIR_MAX];
	int result = rundir_open(directory, passed);
	if (result != 0) {
		log_error("%s: %s; %s", directory, strerror(-result), rundir_advice(result));
		return -HDL_EIO;
	}
	if (passed[0] != '\0' && !again)
		log_warn("%s belongs to another user; your programs use %s instead, and programs "
		         "that were started earlier may not be found",
		         passed, directory);
	rundir_file(directory, AGENT_SOCKET, path, sizeof(path));
	/* However long the start of an agent took, look for it once more after that. */
	for (uint64_t end = clock_now_ns() + FIND_WAIT_NS;;) {
		bool last = clock_now_ns() >= end;
		int sock = fd_aside(unixsock_connect(path));
		if (sock >= 0) {
			result = agentstart_is_ours(sock) ? greet(adapter, sock, again) : -HDL_EIO;
			if (result == 0)
				return sock;
			close(sock);
			if (result < 0)
				return result;
		}
		if (last)
			break;
		if (!agentstart_run((const void *)(uintptr_t)&agent_join))
			return -HDL_EIO;
	}
	log_error("the node agent keeps exiting; remove %s, then try again", directory);
	return -HDL_EIO;
}

static void watch_agent(struct hdl_adapter *adapter)
{
	struct epoll_event interest = {.events = EPOLLIN, .data.u64 = EPOLL_AGENT};
	epoll_ctl(adapter->drive.epoll, EPOLL_CTL_ADD, adapter->agent.sock, &interest);
}

int agent_join(struct hdl_adapter *adapter, const char *node)
{
	int result = settings_take(adapter, node);
	if (result != 0)
		return result;
	adapter->agent.on_node = true;
	adapter->agent.sock = find_and_greet(adapter, false);
	if (adapter->agent.sock < 0)
		return adapter->agent.sock;
	watch_agent(adapter);
	return 0;
}

void agent_leave(struct hdl_adapter *adapter)
{
	/* The thread that would hear an answer has ended. */
	if (pthread_mutex_lock(&adapter->agent.lock) == 0) {
		adapter->agent.leaving = true;
		pthread_cond_broadcast(&adapter->agent.answered);
		pthread_mutex_unlock(&adapter->agent.lock);
	}
	if (adapter->agent.mending)
		pthread_join(adapter->agent.mender, NULL);
	adapter->agent.mending = false;
	if (adapter->agent.sock >= 0)
		close(adapter->agent.sock);
	adapter->agent.sock = -1;
}

/* --- listening --- */

static void agent_link_answered(struct hdl_adapter *adapter, uint32_t token, int answer,
                                uint64_t guid)
{
	if (token == 0)
		return;
	pthread_mutex_lock(&adapter->agent.lock);
	adapter->agent.answered_token = token;
	adapter->agent.answer = answer;
	adapter->agent.answer_guid = guid;
	pthread_cond_broadcast(&adapter->agent.answered);
	pthread_mutex_unlock(&adapter->agent.lock);
}

/* We cannot use a link that the agent offered. The other side must not wait for us. */
static void agent_link_part(struct hdl_adapter *adapter, uint32_t link_id)
{
	struct agent_msg msg = {
	        .version = AGENT_VERSION, .kind = AGENT_PART, .u.gone = {.link_id = link_id}};
	/* Without agent.lock, which a thread that waits for an answer may hold. This is the
	 * receiving thread, and only this thread closes the socket. */
	unixsock_send(__atomic_load_n(&adapter->agent.sock, __ATOMIC_RELAXED), &msg, sizeof(msg),
	              NULL, 0);
}

static void agent_link_hear(struct hdl_adapter *adapter, const struct agent_msg *msg, int *fds,
                            int fd_count)
{
	int result;
	uint32_t index;
	uint64_t guid;
	switch (msg->kind) {
	case AGENT_PEER:
		if (fd_count < 3 || fd_count > 4)
			break;
		result = peers_attach(adapter, msg, fds, fd_count == 4 ? fds[3] : -1);
		for (int i = 0; i < fd_count; i++)
			fds[i] = -1;
		if (result != 0)
			agent_link_part(adapter, msg->u.peer.link_id);
		memcpy(&guid, msg->u.peer.node_guid, sizeof(guid));
		agent_link_answered(adapter, msg->u.peer.token, result, guid);
		break;
	case AGENT_KNOWN:
		pthread_mutex_lock(&adapter->agent.lock);
		adapter->agent.answer_number = msg->u.known.lid;
		pthread_mutex_unlock(&adapter->agent.lock);
		agent_link_answered(adapter, msg->u.known.token, 0, msg->u.known.node_guid);
		break;
	case AGENT_NO_PEER:
		agent_link_answered(adapter, msg->u.known.token, -HDL_EHOSTUNREACH,
		                    msg->u.known.node_guid);
		break;
	case AGENT_GONE:
		adapter_lock(adapter);
		index = peers_by_id(adapter, msg->u.gone.link_id);
		if (index != LINK_NONE)
			peers_drop(adapter, index);
		else /* we saw it die before the agent did, and may have asked in between */
			peers_doubt(adapter, 0);
		adapter_unlock(adapter);
		break;
	case AGENT_CM_BOUND:
		pthread_mutex_lock(&adapter->agent.lock);
		adapter->agent.answer_number = msg->u.cm.port;
		pthread_mutex_unlock(&adapter->agent.lock);
		agent_link_answered(adapter, msg->u.cm.token, -msg->u.cm.error, 0);
		break;
	case AGENT_GROUP_MEMBER:
		group_hear(adapter, msg);
		break;
	case AGENT_GROUP_DONE:
		agent_link_answered(adapter, msg->u.group.token, -msg->u.group.error, 0);
		break;
	case AGENT_CI_OPENED:
		apertures_udp_opened(adapter, msg, fds, fd_count);
		agent_link_answered(adapter, msg->u.cm.token, -msg->u.cm.error, 0);
		break;
	case AGENT_SCTP_OPENED:
		sctp_share_opened(adapter, msg, fds, fd_count);
		agent_link_answered(adapter, msg->u.sctp.token, -msg->u.sctp.error, 0);
		break;
	case AGENT_SCTP_BOUND:
		pthread_mutex_lock(&adapter->agent.lock);
		adapter->agent.answer_number = msg->u.sctp.port;
		pthread_mutex_unlock(&adapter->agent.lock);
		agent_link_answered(adapter, msg->u.sctp.token, -msg->u.sctp.error, 0);
		break;
	case AGENT_CI_FRAME:
		apertures_udp_frame(adapter, msg);
		break;
	case AGENT_CI_CONTROL:
		apertures_control(adapter, msg);
		break;
	case AGENT_CI_ARMED:
		pthread_mutex_lock(&adapter->agent.lock);
		adapter->agent.answer_number = msg->u.cm.slot;
		pthread_mutex_unlock(&adapter->agent.lock);
		agent_link_answered(adapter, msg->u.cm.token, -msg->u.cm.error, msg->u.cm.guid);
		break;
	case AGENT_CM_SEND:
	case AGENT_CM_RETURN:
	case AGENT_CM_GONE:
	case AGENT_CM_MAD:
		cm_hear(adapter, msg);
		break;
	case AGENT_OOB_ATTACHED:
		if (fd_count == 2)
			oob_take(adapter, fds);
		break;
	case AGENT_OOB_STATUS:
		pthread_mutex_lock(&adapter->agent.lock);
		adapter->agent.answer_oob = msg->u.oob;
		pthread_mutex_unlock(&adapter->agent.lock);
		agent_link_answered(adapter, msg->u.oob.token, 0, 0);
		break;
	case AGENT_STRIPED:
		pthread_mutex_lock(&adapter->agent.lock);
		adapter->agent.answer_number =
		        msg->u.cm.length <= UDP_MAX_ADDRESSES ? msg->u.cm.length : 0;
		memcpy(adapter->agent.answer_gids, msg->u.cm.data,
		       sizeof(adapter->agent.answer_gids));
		pthread_mutex_unlock(&adapter->agent.lock);
		agent_link_answered(adapter, msg->u.cm.token, 0, 0);
		break;
	case AGENT_CM_SAID:
	case AGENT_CM_DONE:
		cm_confirmed(adapter, msg);
		break;
	default:
		break;
	}
}

int agent_find_another(struct hdl_adapter *adapter)
{
	int sock = find_and_greet(adapter, true);
	if (sock < 0)
		return sock;
	__atomic_store_n(&adapter->agent.sock, sock, __ATOMIC_RELAXED); /* agent_listen() */
	watch_agent(adapter);
	cm_again(adapter);
	groups_again(adapter);
	oob_again(adapter);
	events_push(&adapter->drive.events, &(struct hdl_event){.type = HDL_EVENT_AGENT_CHANGED});
	return 0;
}

static void *mend(void *context)
{
	struct hdl_adapter *adapter = context;
	pthread_mutex_lock(&adapter->agent.lock);
	do {
		adapter->agent.mend_again = false;
		if (adapter->agent.sock < 0) /* a thread with a request may have found one */
			agent_find_another(adapter);
		bool found = adapter->agent.sock >= 0;
		pthread_mutex_unlock(&adapter->agent.lock);
		if (found)
			cm_mended(adapter);
		pthread_mutex_lock(&adapter->agent.lock);
	} while (adapter->agent.mend_again);
	adapter->agent.mender_runs = false;
	pthread_mutex_unlock(&adapter->agent.lock);
	return NULL;
}

/* Register with the next agent immediately, so that other processes can get links to us. This runs
 * in a separate thread, because it can take a while, and the adapter's thread must keep watching
 * for peers that die. */
static void start_mending(struct hdl_adapter *adapter)
{
	pthread_mutex_lock(&adapter->agent.lock);
	bool runs = adapter->agent.mender_runs;
	adapter->agent.mend_again = adapter->agent.mender_runs = true;
	pthread_mutex_unlock(&adapter->agent.lock);
	/* The agent that it found has ended, too. Do not wait for it: it may wait for an answer of
	 * the next one, which only we can hear. */
	if (runs)
		return;
	if (adapter->agent.mending)
		pthread_join(adapter->agent.mender, NULL);
	adapter->agent.mending = thread_start(&adapter->agent.mender, mend, adapter) == 0;
	if (!adapter->agent.mending)
		mend(adapter);
}

void agent_listen(struct hdl_adapter *adapter)
{
	struct agent_msg msg;
	int fds[UNIXSOCK_MAX_FDS], fd_count;
	/* Without agent.lock: a thread that looks for an agent holds it, and the handling of dead
	 * peers must not wait for that. */
	int sock = __atomic_load_n(&adapter->agent.sock, __ATOMIC_RELAXED);
	ssize_t got = unixsock_receive(sock, &msg, sizeof(msg), fds, &fd_count);
	if (got == (ssize_t)sizeof(msg) && msg.version == AGENT_VERSION)
		agent_link_hear(adapter, &msg, fds, fd_count);
	for (int i = 0; i < fd_count; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	if (got > 0)
		return;
	/* The agent has ended. Links keep working: a pidfd reports the death of a peer. A thread
	 * that waits for an answer asks the next agent. */
	pthread_mutex_lock(&adapter->agent.lock);
	lock_take(&adapter->agent.closing);
	close(adapter->agent.sock);
	__atomic_store_n(&adapter->agent.sock, -1, __ATOMIC_RELAXED);
	lock_drop(&adapter->agent.closing);
	adapter->agent.answered_token = adapter->agent.next_token;
	adapter->agent.answer = -HDL_EAGAIN;
	atomic_fetch_add(&adapter->agent.number, 1); /* the next agent may answer differently */
	pthread_cond_broadcast(&adapter->agent.answered);
	pthread_mutex_unlock(&adapter->agent.lock);
	apertures_agent_gone(adapter);
	start_mending(adapter);
}

/* --- requests --- */

/* Send the request @msg, whose token is at @place, and wait for the answer. With agent.lock. */
static int agent_link_ask(struct hdl_adapter *adapter, struct agent_msg *msg, uint32_t *place)
{
	if (adapter->agent.sock < 0) {
		int result = agent_find_another(adapter);
		if (result != 0)
			return result;
	}
	if (++adapter->agent.next_token == 0)
		adapter->agent.next_token = 1;
	uint32_t token = *place = adapter->agent.next_token;
	msg->version = AGENT_VERSION;
	if (unixsock_send(adapter->agent.sock, msg, sizeof(*msg), NULL, 0) != 0)
		return -HDL_EAGAIN;
	uint64_t end = clock_now_ns() + ANSWER_WAIT_NS;
	while (adapter->agent.answered_token != token && !adapter->agent.leaving &&
	       clock_cond_wait(&adapter->agent.answered, &adapter->agent.lock, end))
		;
	return adapter->agent.answered_token == token ? adapter->agent.answer : -HDL_ETIMEDOUT;
}

/* *heard: an agent answered. */
static int ask_and_hear(struct hdl_adapter *adapter, struct agent_msg *msg, uint32_t *place,
                        bool *heard)
{
	int result, cancel = cancel_forbid();
	pthread_mutex_lock(&adapter->agent.ask_lock);
	pthread_mutex_lock(&adapter->agent.lock);
	int tries = 3; /* an agent may end after we found it and before we ask it */
	do
		result = agent_link_ask(adapter, msg, place);
	while (result == -HDL_EAGAIN && --tries > 0);
	*heard = adapter->agent.sock >= 0 && *place != 0 &&
	         adapter->agent.answered_token == *place && result != -HDL_EAGAIN;
	if (msg->kind == AGENT_OOB_QUERY)
		msg->u.oob = adapter->agent.answer_oob;
	else if (msg->kind == AGENT_CM_BIND)
		msg->u.cm.port = (uint16_t)adapter->agent.answer_number;
	else if (msg->kind == AGENT_STRIPE) {
		msg->u.cm.length = adapter->agent.answer_number;
		memcpy(msg->u.cm.data, adapter->agent.answer_gids,
		       sizeof(adapter->agent.answer_gids));
	} else if (msg->kind == AGENT_CI_ARM)
		msg->u.cm = (struct agent_cm){.guid = adapter->agent.answer_guid,
		                              .slot = adapter->agent.answer_number};
	else if (msg->kind == AGENT_SCTP_BIND)
		msg->u.sctp.port = (uint16_t)adapter->agent.answer_number;
	else
		msg->u.known.node_guid = adapter->agent.answer_guid;
	if (msg->kind == AGENT_FIND)
		msg->u.known.lid = adapter->agent.answer_number;
	pthread_mutex_unlock(&adapter->agent.lock);
	pthread_mutex_unlock(&adapter->agent.ask_lock);
	cancel_restore(cancel);
	return result;
}

int agent_ask(struct hdl_adapter *adapter, struct agent_msg *msg, uint32_t *place)
{
	bool heard;
	return ask_and_hear(adapter, msg, place, &heard);
}

int agent_tell_locked(struct hdl_adapter *adapter, struct agent_msg *msg)
{
	msg->version = AGENT_VERSION;
	if (adapter->agent.sock < 0 && agent_find_another(adapter) != 0)
		return -HDL_EHOSTUNREACH;
	return unixsock_send(adapter->agent.sock, msg, sizeof(*msg), NULL, 0) == 0 ? 0
	                                                                           : -HDL_EAGAIN;
}

bool agent_tell_now(struct hdl_adapter *adapter, struct agent_msg *msg)
{
	msg->version = AGENT_VERSION;
	lock_take(&adapter->agent.closing);
	int sock = __atomic_load_n(&adapter->agent.sock, __ATOMIC_RELAXED);
	bool sent = sock >= 0 && unixsock_send_now(sock, msg, sizeof(*msg)) == 0;
	lock_drop(&adapter->agent.closing);
	return sent;
}

int agent_tell(struct hdl_adapter *adapter, struct agent_msg *msg)
{
	if (pthread_mutex_lock(&adapter->agent.lock) != 0)
		return -HDL_EHOSTUNREACH;
	int cancel = cancel_forbid(), result = agent_tell_locked(adapter, msg);
	pthread_mutex_unlock(&adapter->agent.lock);
	cancel_restore(cancel);
	return result == 0 ? 0 : -HDL_EHOSTUNREACH;
}

/* The agent says that @gid stands for the node @guid (0: for none), whose first LID is @lid (0: not
 * known). We asked when @number was the current agent number. */
static void learn_alias(struct hdl_adapter *adapter, const struct hdl_gid *gid, uint64_t guid,
                        uint16_t lid, uint32_t number)
{
	adapter_lock(adapter);
	adapter_learn(adapter, gid, guid, lid, number);
	adapter_unlock(adapter);
}

/* Is @gid one that only the agent can explain: a LID, or the link-local address of a node where no
 * network of ours has such addresses? With the drive lock. */
static bool needs_agent(const struct hdl_adapter *adapter, const struct hdl_gid *gid)
{
	if (agent_lid_of(gid->raw) != 0)
		return true;
	if (gid->raw[0] != 0xfe || (gid->raw[1] & 0xc0) != 0x80)
		return false;
	for (uint32_t i = 0; i < adapter->net.port_count; i++)
		if (adapter->net.ports[i]->mtu > 0 &&
		    !roce_gid_is_ipv4(adapter->net.ports[i]->gid.raw))
			return false;
	return true;
}

void agent_locate(struct hdl_adapter *adapter, const struct hdl_gid *gid)
{
	adapter_lock(adapter);
	bool known = adapter_sure_of_node(adapter, gid), heard;
	bool needed = needs_agent(adapter, gid);
	uint32_t number = atomic_load(&adapter->agent.number);
	adapter_unlock(adapter);
	if (known || !needed || !adapter->agent.on_node || !adapter->drive.has_thread)
		return;
	struct agent_msg msg = {.kind = AGENT_FIND};
	memcpy(msg.u.introduce.gid, gid->raw, 16);
	int result = ask_and_hear(adapter, &msg, &msg.u.introduce.token, &heard);
	if (heard && (result == 0 || result == -HDL_EHOSTUNREACH))
		learn_alias(adapter, gid, result == 0 ? msg.u.known.node_guid : 0,
		            result == 0 ? (uint16_t)msg.u.known.lid : 0, number);
}

static uint32_t agent_link_look_up(struct hdl_adapter *adapter, const struct hdl_gid *gid,
                                   uint32_t qpn)
{
	adapter_lock(adapter);
	uint32_t found = adapter_find_link(adapter, gid, qpn);
	adapter_unlock(adapter);
	return found;
}

int agent_reach(struct hdl_adapter *adapter, const struct hdl_gid *gid, uint32_t qpn)
{
	if (agent_link_look_up(adapter, gid, qpn) != LINK_NONE)
		return 0;
	if (!adapter->agent.on_node || !adapter->drive.has_thread)
		return -HDL_EHOSTUNREACH;
	struct agent_msg msg = {
	        .kind = AGENT_INTRODUCE,
	        .u.introduce = {.slot = (qpn & 0xffffffu) >> adapter->objects.qp_bits}};
	memcpy(msg.u.introduce.gid, gid->raw, 16);
	bool heard;
	uint32_t number = atomic_load(&adapter->agent.number);
	int result = ask_and_hear(adapter, &msg, &msg.u.introduce.token, &heard);
	uint64_t guid = msg.u.known.node_guid;
	if (heard && (result == 0 || result == -HDL_EHOSTUNREACH))
		learn_alias(adapter, gid, guid, 0, number);
	if (result != 0)
		return result == -HDL_EAGAIN ? -HDL_EHOSTUNREACH : result;
	return agent_link_look_up(adapter, gid, qpn) != LINK_NONE ? 0 : -HDL_EHOSTUNREACH;
}
