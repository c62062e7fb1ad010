/* Busy polling: how soon the adapter's thread sees packets from a network.
 *
 * Waking a thread costs more than handling a packet, on both ends, and when packets arrive one
 * train after the other, each train pays for it. So after it has received packets, the thread keeps
 * polling for a moment, as long as no other thread could use the processor. The operating system
 * knows: no more threads want to run than there are processors.
 *
 * An active application, which posts and polls, receives its packets itself, and waking the thread
 * for them would disturb both. But an application may post and poll, and then wait for a peer to
 * change bytes in its memory. So the thread watches who receives the packets. The thread polls once
 * per millisecond. If it finds about as many packets as the application took, several times in a
 * row, and never finds the application driving, the next packets wake the thread. (An application
 * that has much to send leaves answers waiting for a while, but then the thread finds it
 * driving.) */
#include "adapter/drive/busy_poll.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

/* The number of threads on this machine that run or want to run; 0: unknown. */
static unsigned wanting(void)
{
	char text[64];
	unsigned running;
	int fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
	ssize_t got = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
	if (fd >= 0)
		close(fd);
	text[got > 0 ? got : 0] = '\0';
	return sscanf(text, "%*s %*s %*s %u/", &running) == 1 ? running : 0;
}

/* The number of processors that this thread may run on. */
static unsigned processors(void)
{
	cpu_set_t set;
	return sched_getaffinity(0, sizeof(set), &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
}

void busy_poll_took(struct busy_poll *poll, uint64_t now_ns, uint64_t mine, uint64_t all)
{
	if (mine > 0)
		poll->until_ns = now_ns + BUSY_POLL_NS;
	poll->mine += mine;
	poll->theirs += all - mine - poll->seen;
	poll->seen = all;
	if (now_ns < poll->window_ns)
		return;
	/* While packets wake the thread, it takes what the application would have taken, so the
	 * counts prove nothing. */
	if (!poll->wake_on_packet) {
		bool lay = poll->mine > 0 && poll->theirs <= 4 * poll->mine;
		poll->proofs = lay ? poll->proofs + 1 : 0;
		poll->wake_on_packet = poll->proofs >= BUSY_POLL_PROOFS;
		poll->age = 0;
	} else if (++poll->age >= BUSY_POLL_WINDOWS) {
		poll->wake_on_packet = false;
		poll->proofs = BUSY_POLL_PROOFS - 1;
	}
	poll->mine = poll->theirs = 0;
	poll->window_ns = now_ns + BUSY_POLL_WINDOW_NS;
}

void busy_poll_leave(struct busy_poll *poll)
{
	poll->proofs = 0;
}

bool busy_poll_stay(struct busy_poll *poll, uint64_t now_ns)
{
	if (now_ns >= poll->until_ns)
		return false;
	if (now_ns - poll->asked_ns >= BUSY_POLL_ASK_NS) {
		unsigned count = wanting();
		poll->asked_ns = now_ns;
		poll->alone = count > 0 && count <= processors();
	}
	return poll->alone;
}
