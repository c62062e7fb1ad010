/* How soon the adapter's thread sees what came from a network.
 *
 * To be woken costs more than it takes to handle what came, on both ends, and where packets come
 * one train after the other that happens each time: so after packets the thread goes on looking for
 * a moment, as long as nobody else could use the processor. That is told by the operating system:
 * of the threads that want to run there are no more than processors.
 *
 * An application that is at work, posting and polling, takes its packets itself, and waking the
 * thread for them would disturb both. But one may post and poll, and then wait for bytes in its
 * memory to change, which a peer writes. So it is watched who takes the packets: if the thread,
 * which looks once a millisecond, finds about as many as the application took, several times in a
 * row, and never the application at it, it is to be woken by the next ones. (One that has much to
 * send leaves answers lying for a while, but then it is at it when the thread comes.) */
#include "adapter/drive/busy_poll.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

/* Threads of this machine that run or want to; 0: cannot be told. */
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

/* Processors that this thread may run on. */
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
	/* While it is woken it takes what the application would have taken: that says nothing. */
	if (!poll->eager) {
		bool lay = poll->mine > 0 && poll->theirs <= 4 * poll->mine;
		poll->proofs = lay ? poll->proofs + 1 : 0;
		poll->eager = poll->proofs >= BUSY_POLL_PROOFS;
		poll->age = 0;
	} else if (++poll->age >= BUSY_POLL_WINDOWS) {
		poll->eager = false;
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
