/* Handles and waiting for packets: see heddle/ibc.h. */
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "ibc/gate.h"
#include "port/bell.h"

/* How long a thread that waits polls before it sleeps. */
#define POLL_NS     30000u
#define QUIET_SPINS 200u        /* without a system call */
#define SLEEP_NS    1000000000u /* then it looks around */

static void futex_sleep(uint32_t seen, uint64_t ns)
{
	struct timespec time = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
	syscall(SYS_futex, &gate.news, FUTEX_WAIT_PRIVATE, seen, &time, NULL, 0);
}

/* Let every thread that sleeps look again. */
void client_wake(const struct client *client)
{
	atomic_fetch_add(&gate.news, 1);
	if (gate.waiters > 0)
		syscall(SYS_futex, &gate.news, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
	if (gate.sleeping)
		bell_ring(client->member.rope);
}

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
		client_wake(client);
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
			client_wake(client);
		result = handle->state == HANDLE_SIGNALLED ? IBC_READYFORCOPY : IBC_RECVNOTDONE;
	}
	client_exit(client);
	return result;
}

/* The moment when a wait ends; UINT64_MAX: never. False: the time is not valid. */
bool client_end_of_wait(const struct timespec *timeout, uint64_t *end_ns)
{
	*end_ns = UINT64_MAX;
	if (timeout == NULL)
		return true;
	if (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec >= 1000000000)
		return false;
	if (timeout->tv_sec == 0 && timeout->tv_nsec == 0) {
		*end_ns = 0; /* does not wait at all, and needs no clock */
		return true;
	}
	uint64_t now = clock_now_ns();
	if ((uint64_t)timeout->tv_sec < (UINT64_MAX - now) / 1000000000u - 1)
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
	if (gate.sleeping) { /* another thread listens for all of us */
		uint32_t seen = atomic_load(&gate.news);
		gate.waiters++;
		lock_drop(&gate.lock);
		futex_sleep(seen, ns);
		lock_take(&gate.lock);
		gate.waiters--;
		return;
	}
	if (!member_arm(&client->member, client_blocked(client))) {
		member_disarm(&client->member);
		return;
	}
	struct pollfd fds[2] = {{.fd = client->member.bell, .events = POLLIN},
	                        {.fd = client->member.agent, .events = POLLIN}};
	struct timespec time = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
	gate.sleeping = true;
	lock_drop(&gate.lock);
	ppoll(fds, 2, &time, NULL);
	lock_take(&gate.lock);
	gate.sleeping = false;
	if ((fds[0].revents & POLLIN) != 0 && !client->has_descriptor)
		bell_hear(client->member.bell);
	if (fds[1].revents != 0)
		member_hear(&client->member);
	member_disarm(&client->member);
	client_wake(client); /* one of them is the next to sleep on the bell */
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
int client_await(struct client *client, const IBC_HANDLE *list, unsigned count, uint64_t end_ns)
{
	uint64_t sleep_ns = 0;
	for (unsigned spins = 0;; spins++) {
		int ready = gate.finishing ? -1 : any_signalled(client, list, count);
		if (ready != 0)
			return ready < 0 ? IBC_BADPARAM : IBC_RECVDONE;
		if (client_drive(client)) {
			client_wake(client);
			continue;
		}
		uint64_t now = end_ns != 0 ? clock_now_ns() : 0;
		if (now >= end_ns)
			return IBC_TIMEDOUT;
		if (sleep_ns == 0)
			sleep_ns = now + POLL_NS;
		gate.users++;
		if (now < sleep_ns) {
			lock_drop(&gate.lock);
			if (spins < QUIET_SPINS)
				__builtin_ia32_pause();
			else
				sched_yield(); /* the sender may need this processor */
			lock_take(&gate.lock);
		} else {
			client_sleep(client, end_ns);
		}
		gate.users--;
	}
}

IBC_API int IBC_RecvWaitInfo(IBC_HANDLE Handle, const struct timespec *Timeout, void *Buffer,
                             struct IBC_Info *Info)
{
	uint64_t end_ns;
	struct client *client = client_end_of_wait(Timeout, &end_ns) ? client_enter() : NULL;
	if (client == NULL)
		return IBC_BADPARAM;
	int result = client_await(client, &Handle, 1, end_ns);
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
	    !client_end_of_wait(Timeout, &end_ns))
		return IBC_BADPARAM;
	struct client *client = client_enter();
	if (client == NULL)
		return IBC_BADPARAM;
	int result = client_await(client, HandleList, ListLength, end_ns);
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
