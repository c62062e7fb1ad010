/* Whether the adapter's thread looks a little longer before it sleeps. To be woken costs more than it takes to handle what came, on
 * both ends, and where packets come one train after the other that happens each time: so after packets from a network the
 * thread goes on looking for a moment, as long as nobody else could use the processor. Who has a processor waiting for it is told by
 * the operating system: of the threads that want to run there are no more than processors. */
#include "adapter/wakeful.h"

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

void wakeful_begin(struct wakeful *wakeful, uint64_t now_ns)
{
	wakeful->until_ns = now_ns + WAKEFUL_NS;
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
