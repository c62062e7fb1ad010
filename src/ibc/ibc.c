/* The public calls of IBC: see heddle/ibc.h. */
#include "heddle/ibc.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/lock.h"
#include "base/log.h"
#include "ibc/client.h"
#include "port/agentstart.h"
#include "port/bell.h"
#include "port/vskey.h"

_Static_assert(IBC_LIMIT_PORTS == VSWITCH_PORTS, "one truth");
_Static_assert(IBC_LIMIT_HARDWARE_PORTS == VSWITCH_HARDWARE_PORTS, "one truth");
_Static_assert(IBC_LIMIT_GENERAL_APIDS == VSWITCH_GENERAL_LAST - VSWITCH_GENERAL_FIRST + 1,
               "one truth");
_Static_assert(IBC_LIMIT_HOPS == IBC_MAX_HOPS, "one truth");
_Static_assert(IBC_LIMIT_PAYLOAD == IBC_MAX_PAYLOAD, "one truth");
_Static_assert(IBC_LIMIT_CLIENTS < BOARD_MEMBERS, "and the process of the hardware ports");
_Static_assert(IBC_CLIENTANY == AGENT_VS_ANY, "one truth");
_Static_assert(IBC_CLIENTALL == VSWITCH_APID_ALL, "one truth");
_Static_assert(IBC_NACK == (int)IBC_TYPE_NACK, "one truth");
_Static_assert(IBC_NACK_NO_RECEIVE == (int)IBC_REASON_NO_RECEIVE, "one truth");

/* How long a thread that waits polls before it sleeps. */
#define POLL_NS       30000u
#define SLEEP_NS      1000000000u /* then it looks around */
#define REQUEST_NS    1000000000u
#define REQUEST_TRIES 3u

/* --- one client per process --- */

static struct lock client_lock;
static struct client *the_client; /* NULL: IBC_Init() was not called */
static unsigned users;            /* threads within a call that drops the lock */
static bool finishing, sleeping;  /* IBC_Finish() waits for them; one of them sleeps on the bell */
static _Atomic uint32_t news;     /* changes when a thread that waits should look again */
static unsigned waiters;

static void futex_sleep(uint32_t seen, uint64_t ns)
{
	struct timespec time = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
	syscall(SYS_futex, &news, FUTEX_WAIT_PRIVATE, seen, &time, NULL, 0);
}

/* Let every thread that sleeps look again. */
static void wake_waiters(const struct client *client)
{
	atomic_fetch_add(&news, 1);
	if (waiters > 0)
		syscall(SYS_futex, &news, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
	if (sleeping)
		bell_ring(client->member.rope);
}

static void ibc_before_fork(void)
{
	lock_take(&client_lock);
}

static void ibc_after_fork(void)
{
	lock_drop(&client_lock);
}

static void client_free(struct client *client)
{
	if (client->epoll >= 0)
		close(client->epoll);
	member_end(&client->member);
	for (unsigned i = 0; i < IBC_LIMIT_HANDLES; i++) {
		if (client->handles[i] != NULL)
			free(client->handles[i]->buffer);
		free(client->handles[i]);
	}
	client_drop_kept(client);
	free(client);
}

/* The child has no part in what its parent registered. */
static void in_forked_child(void)
{
	struct client *client = the_client;
	the_client = NULL;
	users = waiters = 0;
	finishing = sleeping = false;
	ibc_after_fork();
	if (client != NULL)
		client_free(client);
}

__attribute__((constructor)) static void ibc_watch_forks(void)
{
	pthread_atfork(ibc_before_fork, ibc_after_fork, in_forked_child);
}

/* The client, with the lock; NULL, without it. */
static struct client *client_enter(void)
{
	lock_take(&client_lock);
	if (the_client != NULL && !finishing)
		return the_client;
	lock_drop(&client_lock);
	return NULL;
}

/* The descriptor also tells of the agent, which may be another one by now. */
static void descriptor_watch(struct client *client)
{
	struct epoll_event interest = {.events = EPOLLIN};
	member_hear(&client->member);
	if (client->watched == client->member.agents && client->watches)
		return;
	client->watched = client->member.agents;
	client->watches =
	        client->member.agent >= 0 &&
	        epoll_ctl(client->epoll, EPOLL_CTL_ADD, client->member.agent, &interest) == 0;
}

/* Make the descriptor readable while there are packets, and only then. */
static void descriptor_settle(struct client *client)
{
	for (;;) {
		descriptor_watch(client);
		bool ready = client->signalled > 0 || client->kept_count > 0;
		if (ready && !client->rung)
			bell_ring(client->member.rope);
		client->rung = ready;
		if (ready)
			return;
		bell_hear(client->member.bell);
		if (member_arm(&client->member, client_blocked(client)))
			return;
		client_drive(client); /* something came while we armed */
	}
}

static void client_exit(struct client *client)
{
	if (client->has_descriptor)
		descriptor_settle(client);
	lock_drop(&client_lock);
}

void client_pause(struct client *client, unsigned spins)
{
	users++;
	lock_drop(&client_lock);
	lock_relax(spins);
	lock_take(&client_lock);
	users--;
	if (client_drive(client))
		wake_waiters(client);
}

/* The key of the administrator, if the user gave one. */
static bool key_given(uint8_t key[AGENT_VS_KEY_BYTES])
{
	const char *text = secure_getenv("HEDDLE_IBC_KEY");
	memset(key, 0, AGENT_VS_KEY_BYTES);
	if (text == NULL || text[0] == '\0' || vskey_parse(text, key))
		return true;
	log_error("HEDDLE_IBC_KEY: expected 32 hexadecimal digits, the line in vswitch.key of the "
	          "agent's directory; correct it, or unset it");
	return false;
}

static struct client *client_make(void)
{
	uint8_t key[AGENT_VS_KEY_BYTES];
	struct client *client = calloc(1, sizeof(*client));
	if (client == NULL)
		return NULL;
	client->epoll = -1;
	if (!key_given(key) || !member_begin(&client->member, &client_owner, NULL, key)) {
		free(client);
		errno = EINVAL;
		return NULL;
	}
	return client;
}

static int attach_result(int apid)
{
	switch (-apid) {
	case EADDRINUSE:
		return IBC_ID_NOTAVAILABLE;
	case EINVAL:
		return IBC_BADPARAM;
	case ENOMEM:
		return IBC_MALLOC_FAILED;
	case ECONNREFUSED: /* logged */
		return IBC_ATTACH_FAILED;
	default:
		log_error("the virtual switch does not accept this client: %s; %s", strerror(-apid),
		          apid == -EOPNOTSUPP ? "it is a plain switch, use another node "
		                                "(HEDDLE_NODE)"
		                              : "end some of its clients, then try again");
		return IBC_ATTACH_FAILED;
	}
}

IBC_API int IBC_Init(unsigned RequestedID, unsigned *GrantedID, IBC_GUID *GUIDList,
                     unsigned *NumGUIDs)
{
	unsigned wanted = RequestedID & 0xffu;
	uint32_t flags = (RequestedID & 0x100u) != 0 ? AGENT_VS_WISH : 0;
	uint64_t guids[VSWITCH_HARDWARE_PORTS];
	if (RequestedID > 0x1ffu || (GUIDList != NULL && NumGUIDs == NULL) ||
	    (wanted != IBC_CLIENTANY && (wanted >= VSWITCH_PORTS || vswitch_is_hardware(wanted))))
		return IBC_BADPARAM;
	lock_take(&client_lock);
	struct client *client = the_client;
	if (client == NULL && (client = client_make()) == NULL) {
		lock_drop(&client_lock);
		return errno == EINVAL ? IBC_ATTACH_FAILED : IBC_MALLOC_FAILED;
	}
	int apid = finishing ? -ECONNREFUSED : member_attach(&client->member, wanted, flags);
	if (apid < 0) {
		if (client != the_client)
			client_free(client);
		lock_drop(&client_lock);
		return attach_result(apid);
	}
	if (the_client == NULL) {
		client->first = (unsigned)apid;
		client->next_transaction = (uint32_t)clock_now_ns();
		the_client = client;
	}
	unsigned count = board_guids(&client->member.board->vswitch, guids);
	lock_drop(&client_lock);
	if (GrantedID != NULL)
		*GrantedID = (unsigned)apid;
	if (NumGUIDs != NULL) {
		for (unsigned i = 0; GUIDList != NULL && i < count && i < *NumGUIDs; i++)
			GUIDList[i] = guids[i];
		*NumGUIDs = count;
	}
	return IBC_SUCCESS;
}

IBC_API int IBC_Finish(void)
{
	struct client *client = client_enter();
	if (client == NULL)
		return IBC_NOT_INITIALIZED;
	finishing = true;
	for (unsigned spins = 0; users > 0; spins++) {
		wake_waiters(client);
		lock_drop(&client_lock);
		lock_relax(spins);
		lock_take(&client_lock);
	}
	the_client = NULL;
	finishing = false;
	lock_drop(&client_lock);
	client_free(client);
	return IBC_SUCCESS;
}

/* --- sending --- */

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
	return type != IBC_WRITE_RESPONSE && type != IBC_READ_REQUEST;
}

static int client_send_packet(struct client *client, const struct IBC_Target *target, int type,
                              int reason, uint32_t transaction, const void *message,
                              uint32_t length)
{
	const struct vswitch *vswitch = &client->member.board->vswitch;
	unsigned from = target->Client != 0 ? target->Client : client->first;
	struct ibc_packet packet = {.type = (enum ibc_type)type,
	                            .reason = (enum ibc_reason)reason,
	                            .source_apid = (uint8_t)from,
	                            .dest_apid = (uint8_t)target->Destination,
	                            .dest_node = target->DestNode,
	                            .transaction = transaction};
	bool direct = target->OutPort != IBC_PORT_ROUTE;
	int outport = -1;
	if (type < IBC_READ_REQUEST || type > IBC_NACK ||
	    (type == IBC_NACK) != (reason > 0 && reason < (int)IBC_REASON_COUNT) ||
	    target->Destination >= IBC_LIMIT_PORTS || from >= IBC_CLIENTALL ||
	    (client->member.apids >> from & 1) == 0 || !take_route(&packet, &target->Route, direct))
		return IBC_BADPARAM;
	if (has_payload(type)) {
		if (length > IBC_LIMIT_PAYLOAD || (message == NULL && length > 0))
			return IBC_BADPARAM;
		packet.payload = message;
		packet.payload_bytes = (uint16_t)length;
	}
	member_look(&client->member);
	if (direct) {
		outport = target->OutPort < IBC_LIMIT_PORTS
		                  ? vswitch_port_of(vswitch, target->GUID, (uint8_t)target->OutPort)
		                  : -1;
		if (outport < 0)
			return IBC_BADPARAM;
		if (vswitch->states[outport] != VSWITCH_PORT_UP)
			return IBC_HARDWARE_ERROR;
	}
	if (client->member.lost)
		return IBC_HARDWARE_ERROR;
	bool sent = client_emit(client, &packet, (uint8_t)from, outport, true);
	if (client->signalled > 0)
		wake_waiters(client); /* it may have been for ourselves */
	return sent ? IBC_SUCCESS : IBC_HARDWARE_ERROR;
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
	/* A NACK needs a reason, which this call has no parameter for. */
	int result = client_send_packet(client, &target, Message_Type,
	                                Message_Type == IBC_NACK ? IBC_NACK_NOT_ALLOWED : 0,
	                                client->next_transaction++, Message, IBCLen);
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

/* --- receiving --- */

IBC_API int IBC_RecvPostLength(uint32_t Length, IBC_HANDLE *Handle)
{
	if (Handle == NULL || Length > IBC_LIMIT_PAYLOAD)
		return IBC_BADPARAM;
	struct client *client = client_enter();
	if (client == NULL)
		return IBC_NOT_INITIALIZED;
	int result;
	const struct handle *handle = client_open_handle(client, Length, &result);
	if (handle != NULL)
		*Handle = client_handle_number(client, handle);
	client_exit(client);
	return result;
}

IBC_API int IBC_RecvPost(IBC_HANDLE *Handle)
{
	return IBC_RecvPostLength(IBC_LIMIT_PAYLOAD, Handle);
}

IBC_API int IBC_CloseHandle(IBC_HANDLE Handle)
{
	struct client *client = client_enter();
	if (client == NULL)
		return IBC_BADPARAM;
	struct handle *handle = client_find_handle(client, Handle);
	if (handle != NULL) {
		client_close_handle(client, handle);
		wake_waiters(client);
	}
	client_exit(client);
	return handle != NULL ? IBC_SUCCESS : IBC_BADPARAM;
}

IBC_API int IBC_RecvPoll(IBC_HANDLE Handle)
{
	struct client *client = client_enter();
	if (client == NULL)
		return IBC_BADPARAM;
	const struct handle *handle = client_find_handle(client, Handle);
	int result = IBC_BADPARAM;
	if (handle != NULL) {
		if (handle->state != HANDLE_SIGNALLED && client_drive(client))
			wake_waiters(client);
		result = handle->state == HANDLE_SIGNALLED ? IBC_READYFORCOPY : IBC_RECVNOTDONE;
	}
	client_exit(client);
	return result;
}

/* The moment when a wait ends; UINT64_MAX: never. False: the time is not valid. */
static bool end_of_wait(const struct timespec *timeout, uint64_t *end_ns)
{
	*end_ns = UINT64_MAX;
	if (timeout == NULL)
		return true;
	if (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec >= 1000000000)
		return false;
	uint64_t now = clock_now_ns();
	if (timeout->tv_sec == 0 && timeout->tv_nsec == 0)
		*end_ns = 0; /* does not wait at all */
	else if ((uint64_t)timeout->tv_sec < (UINT64_MAX - now) / 1000000000u - 1)
		*end_ns =
		        now + (uint64_t)timeout->tv_sec * 1000000000u + (uint64_t)timeout->tv_nsec;
	return true;
}

/* Sleep until there may be news, or @end_ns. With the lock, which is dropped meanwhile. */
static void client_sleep(struct client *client, uint64_t end_ns)
{
	uint64_t now = clock_now_ns();
	uint64_t ns = end_ns > now ? end_ns - now : 0;
	if (ns > SLEEP_NS)
		ns = SLEEP_NS;
	/* Packets without a handle have a time limit. */
	if (client->kept_count > 0 && ns > SLEEP_NS / 10)
		ns = SLEEP_NS / 10;
	if (sleeping) { /* another thread listens for all of us */
		uint32_t seen = atomic_load(&news);
		waiters++;
		lock_drop(&client_lock);
		futex_sleep(seen, ns);
		lock_take(&client_lock);
		waiters--;
		return;
	}
	if (!member_arm(&client->member, client_blocked(client))) {
		member_disarm(&client->member);
		return;
	}
	struct pollfd fds[2] = {{.fd = client->member.bell, .events = POLLIN},
	                        {.fd = client->member.agent, .events = POLLIN}};
	struct timespec time = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
	sleeping = true;
	lock_drop(&client_lock);
	ppoll(fds, 2, &time, NULL);
	lock_take(&client_lock);
	sleeping = false;
	if ((fds[0].revents & POLLIN) != 0 && !client->has_descriptor)
		bell_hear(client->member.bell);
	if (fds[1].revents != 0)
		member_hear(&client->member);
	member_disarm(&client->member);
	wake_waiters(client); /* one of them is the next to sleep on the bell */
}

/* Is there a packet in any of @count handles? -1: one of them is not valid. */
static int any_signalled(struct client *client, const IBC_HANDLE *list, unsigned count)
{
	int ready = 0;
	for (unsigned i = 0; i < count; i++) {
		const struct handle *handle = client_find_handle(client, list[i]);
		if (handle == NULL)
			return -1;
		ready += handle->state == HANDLE_SIGNALLED;
	}
	return ready;
}

/* Wait until one of the handles has a packet. With the lock, which is dropped meanwhile. Returns
 * IBC_RECVDONE, IBC_TIMEDOUT or IBC_BADPARAM. */
static int await_any(struct client *client, const IBC_HANDLE *list, unsigned count, uint64_t end_ns)
{
	uint64_t sleep_ns = 0;
	for (unsigned spins = 0;; spins++) {
		int ready = finishing ? -1 : any_signalled(client, list, count);
		if (ready != 0)
			return ready < 0 ? IBC_BADPARAM : IBC_RECVDONE;
		if (client_drive(client)) {
			wake_waiters(client);
			continue;
		}
		uint64_t now = end_ns != 0 ? clock_now_ns() : 0;
		if (now >= end_ns)
			return IBC_TIMEDOUT;
		if (sleep_ns == 0)
			sleep_ns = now + POLL_NS;
		users++;
		if (now < sleep_ns) {
			lock_drop(&client_lock);
			__builtin_ia32_pause();
			lock_take(&client_lock);
		} else {
			client_sleep(client, end_ns);
		}
		users--;
	}
}

IBC_API int IBC_RecvWaitInfo(IBC_HANDLE Handle, const struct timespec *Timeout, void *Buffer,
                             struct IBC_Info *Info)
{
	uint64_t end_ns;
	struct client *client = end_of_wait(Timeout, &end_ns) ? client_enter() : NULL;
	if (client == NULL)
		return IBC_BADPARAM;
	int result = await_any(client, &Handle, 1, end_ns);
	if (result == IBC_RECVDONE)
		client_fetch(client, client_find_handle(client, Handle), Buffer, Info);
	client_exit(client);
	return result;
}

IBC_API int IBC_RecvWait(IBC_HANDLE Handle, const struct timespec *Timeout, void *Buffer,
                         IBC_GUID *GUID, unsigned *Port, unsigned *Source)
{
	struct IBC_Info info;
	int result = IBC_RecvWaitInfo(Handle, Timeout, Buffer, &info);
	if (result != IBC_RECVDONE)
		return result;
	if (GUID != NULL)
		*GUID = info.GUID;
	if (Port != NULL)
		*Port = info.Port;
	if (Source != NULL)
		*Source = info.Source;
	return result;
}

/* Complete element @i of the lists. */
static bool fetch_one(struct client *client, IBC_HANDLE number, unsigned i, IBC_GUID *guids,
                      unsigned *ports, void *const *buffers, unsigned *sources)
{
	struct IBC_Info info;
	struct handle *handle = client_find_handle(client, number);
	if (handle->state != HANDLE_SIGNALLED) /* or the list names it twice */
		return false;
	client_fetch(client, handle, buffers != NULL ? buffers[i] : NULL, &info);
	if (guids != NULL)
		guids[i] = info.GUID;
	if (ports != NULL)
		ports[i] = info.Port;
	if (sources != NULL)
		sources[i] = info.Source;
	return true;
}

IBC_API int IBC_RecvWaitAny(const IBC_HANDLE *HandleList, unsigned ListLength,
                            const struct timespec *Timeout, IBC_GUID *GUIDList, bool *ReceivedList,
                            unsigned *PortList, void *const *BufferList, unsigned *SourceList)
{
	uint64_t end_ns;
	if (HandleList == NULL || ListLength == 0 || ListLength > IBC_LIMIT_HANDLES ||
	    !end_of_wait(Timeout, &end_ns))
		return IBC_BADPARAM;
	struct client *client = client_enter();
	if (client == NULL)
		return IBC_BADPARAM;
	int result = await_any(client, HandleList, ListLength, end_ns);
	for (unsigned i = 0; i < ListLength && result != IBC_BADPARAM; i++) {
		bool received =
		        result == IBC_RECVDONE && fetch_one(client, HandleList[i], i, GUIDList,
		                                            PortList, BufferList, SourceList);
		if (ReceivedList != NULL)
			ReceivedList[i] = received;
	}
	client_exit(client);
	return result;
}

/* --- requests --- */

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
	uint32_t transaction = client->next_transaction++;
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
	handle->transaction = transaction;
	result = IBC_TIMEDOUT;
	for (unsigned i = 0; i < (Tries != 0 ? Tries : REQUEST_TRIES) && result == IBC_TIMEDOUT;
	     i++) {
		result = end_of_wait(Timeout != NULL ? Timeout : &usual, &end_ns)
		                 ? client_send_packet(client, Target, Type, 0, transaction, Message,
		                                      Length)
		                 : IBC_BADPARAM;
		if (result == IBC_SUCCESS)
			result = await_any(client, &number, 1, end_ns);
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

/* --- events and figures --- */

IBC_API int IBC_Descriptor(void)
{
	struct client *client = client_enter();
	if (client == NULL)
		return -1;
	if (client->epoll < 0) {
		struct epoll_event interest = {.events = EPOLLIN};
		client->epoll = fd_aside(epoll_create1(EPOLL_CLOEXEC));
		if (client->epoll >= 0 &&
		    epoll_ctl(client->epoll, EPOLL_CTL_ADD, client->member.bell, &interest) != 0) {
			close(client->epoll);
			client->epoll = -1;
		}
		client->has_descriptor = client->epoll >= 0;
	}
	if (client->has_descriptor)
		client_drive(client);
	int descriptor = client->epoll;
	client_exit(client);
	return descriptor;
}

IBC_API int IBC_Statistics(struct IBC_Counters *Counters)
{
	if (Counters == NULL)
		return IBC_BADPARAM;
	struct client *client = client_enter();
	if (client == NULL)
		return IBC_NOT_INITIALIZED;
	*Counters = client->counters;
	Counters->Kept = client->kept_count;
	Counters->Agents = client->member.agents;
	client_exit(client);
	return IBC_SUCCESS;
}
