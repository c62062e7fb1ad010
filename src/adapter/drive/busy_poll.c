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

void wakeful_took(struct wakeful *wakeful, uint64_t now_ns, uint64_t mine, uint64_t all)
{
	if (mine > 0)
		wakeful->until_ns = now_ns + WAKEFUL_NS;
	wakeful->mine += mine;
	wakeful->theirs += all - mine - wakeful->seen;
	wakeful->seen = all;
	if (now_ns < wakeful->window_ns)
		return;
	/* While it is woken it takes what the application would have taken: that says nothing. */
	if (!wakeful->eager) {
		bool lay = wakeful->mine > 0 && wakeful->theirs <= 4 * wakeful->mine;
		wakeful->proofs = lay ? wakeful->proofs + 1 : 0;
		wakeful->eager = wakeful->proofs >= WAKEFUL_PROOFS;
		wakeful->age = 0;
	} else if (++wakeful->age >= WAKEFUL_WINDOWS) {
		wakeful->eager = false;
		wakeful->proofs = WAKEFUL_PROOFS - 1;
	}
	wakeful->mine = wakeful->theirs = 0;
	wakeful->window_ns = now_ns + WAKEFUL_WINDOW_NS;
}

void wakeful_leave(struct wakeful *wakeful)
{
	wakeful->proofs = 0;
}

bool wakeful_stay(struct wakeful *wakeful, uint64_t now_ns)
{
	if (now_ns >= wakeful->until_ns)
		return false;
	if (now_ns - wakeful->asked_ns >= WAKEFUL_ASK_NS) {
		unsigned count = wanting();
		wakeful->asked_ns = now_ns;
		wakeful->alone = count > 0 && count <= processors();
	}
	return wakeful->alone;
}
