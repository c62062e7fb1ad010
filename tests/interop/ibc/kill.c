/* Kill -9 at any moment: a client talks with one of its own node and with one of another node, and
 * one of these, a port process or the agent is killed. Whatever did not need the victim goes on, a
 * dead client's port answers with a NACK within a second, and what is started again works. In the
 * end nothing is left: no descriptor, no process, no file. Usage: kill ROUNDS [SEED]. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/prng.h"
#include "peer.h"
#include "port/rundir.h"

#define LIMIT_NS 1000000000u
#define AGAIN_NS 20000000000u /* until everything works again, on a busy machine */
#define WARM_UP  5            /* rounds until everything that is made once has been made */

enum victim { NEAR, FAR, OWN_PORTS, FAR_PORTS, AGENT, VICTIMS };

static const char *const victim_names[VICTIMS] = {"the client on this node",
                                                  "the client on the other node", "our ports",
                                                  "the other ports", "the agent"};
static char file[64];
static struct peer clients[2]; /* NEAR, FAR */
static pid_t ports[2];
static struct IBC_Target targets[2];

static const char *const nodes[2] = {"k1", "k2"};

static void start_ports(unsigned node)
{
	char *argv[] = {getenv("HEDDLE_VPORT"),
	                (char *)(uintptr_t) "--foreground",
	                (char *)(uintptr_t) "--node",
	                (char *)(uintptr_t)nodes[node],
	                file,
	                NULL};
	MUST(argv[0] != NULL && posix_spawn(&ports[node], argv[0], NULL, NULL, argv, environ) == 0);
}

static void start_client(unsigned which)
{
	setenv("HEDDLE_NODE", nodes[which], 1);
	/* The agent may need a moment to notice that the former one has gone. */
	for (unsigned tries = 0;; tries++) {
		clients[which] = peer_start(40, peer_echo);
		if (clients[which].apid == 40)
			break;
		MUST(tries < 200);
		peer_end(&clients[which], SIGKILL);
		usleep(10000);
	}
	MUST(peer_hear(clients[which].channel) == 'r');
	setenv("HEDDLE_NODE", nodes[0], 1);
}

static int ask(unsigned which, struct IBC_Info *answer)
{
	struct timespec time = {0, 100000000};
	return IBC_Request(&targets[which], IBC_READ_REQUEST, NULL, 0, &time, 1, NULL, 0, answer);
}

/* Ask until the answer comes. */
static void must_answer(unsigned which, uint64_t limit_ns)
{
	struct IBC_Info answer;
	uint64_t begin = clock_now_ns();
	for (int result; (result = ask(which, &answer)) != 0;) {
		if (clock_now_ns() - begin > limit_ns) {
			fprintf(stderr, "client %u does not answer: %s, %s\n", which,
			        IBC_ResultName(result),
			        result == IBC_NACKED ? IBC_ReasonName(answer.Reason) : "");
			exit(1);
		}
		usleep(1000);
	}
}

/* The client is dead: a NACK says so. */
static void must_be_gone(unsigned which)
{
	struct IBC_Info answer;
	uint64_t begin = clock_now_ns();
	while (ask(which, &answer) != IBC_NACKED || answer.Reason != IBC_NACK_NO_APPLICATION)
		MUST(clock_now_ns() - begin < LIMIT_NS);
}

static void end_process(pid_t pid, int signal)
{
	kill(pid, signal);
	MUST(waitpid(pid, NULL, 0) == pid);
}

static unsigned count_files(const char *path)
{
	unsigned count = 0;
	DIR *dir = opendir(path);
	while (dir != NULL && readdir(dir) != NULL)
		count++;
	if (dir != NULL)
		closedir(dir);
	return count;
}

static void kill_one(enum victim victim)
{
	switch (victim) {
	case NEAR:
	case FAR:
		peer_end(&clients[victim], SIGKILL);
		must_answer(victim == NEAR ? 1 : 0, LIMIT_NS);
		must_be_gone(victim);
		start_client(victim);
		break;
	case OWN_PORTS:
	case FAR_PORTS:
		end_process(ports[victim - OWN_PORTS], SIGKILL);
		must_answer(0, LIMIT_NS);
		start_ports(victim - OWN_PORTS);
		break;
	default:
		kill(peer_agent(), SIGKILL);
		for (unsigned i = 0; i < 20; i++) {
			must_answer(0, LIMIT_NS);
			must_answer(1, LIMIT_NS);
			usleep(10000);
		}
	}
	must_answer(0, AGAIN_NS);
	must_answer(1, AGAIN_NS);
}

/* The agent leaves when it has been idle for some seconds, and takes its files along. */
static void must_leave_nothing(void)
{
	char directory[RUNDIR_MAX];
	MUST(rundir_open(directory, NULL) == 0);
	uint64_t end = clock_now_ns() + AGAIN_NS;
	while (count_files(directory) > 2 && clock_now_ns() < end)
		usleep(50000);
	if (count_files(directory) > 2) {
		fprintf(stderr, "something is left in %s\n", directory);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 10, files = 0;
	struct prng prng;
	prng_seed(&prng, argc > 2 ? strtoull(argv[2], NULL, 0) : 1);
	snprintf(file, sizeof(file), "/tmp/ibc-kill-%d.conf", (int)getpid());
	FILE *out = fopen(file, "we");
	MUST(out != NULL);
	fputs("node k1 id 1\nnic guid 1 ports 0\nnode k2 id 2\nnic guid 2 ports 0\n"
	      "link k1:0 k2:0 shm\n",
	      out);
	fclose(out);
	targets[0] = peer_target(40);
	targets[1] = (struct IBC_Target){
	        .GUID = 1, .OutPort = PORT_0, .Destination = 40, .Route = {.Pointer = 1}};
	for (unsigned i = 0; i < 2; i++) {
		start_client(i);
		start_ports(i);
	}
	MUST(IBC_Init(33, NULL, NULL, NULL) == 0);
	must_answer(0, AGAIN_NS);
	must_answer(1, AGAIN_NS);
	for (unsigned round = 0; round < rounds; round++) {
		/* Each once, then at random. */
		enum victim victim = round < VICTIMS ? (enum victim)round
		                                     : (enum victim)prng_below(&prng, VICTIMS);
		uint64_t end = clock_now_ns() + prng_below(&prng, 20000000);
		while (clock_now_ns() < end) {
			must_answer(0, LIMIT_NS);
			must_answer(1, LIMIT_NS);
		}
		printf("round %u: %s\n", round, victim_names[victim]);
		fflush(stdout);
		kill_one(victim);
		if (round == WARM_UP)
			files = count_files("/proc/self/fd");
	}
	unsigned now = count_files("/proc/self/fd");
	if (rounds > WARM_UP && now > files + 4) {
		fprintf(stderr, "%u descriptors after %u, %u after %u rounds\n", files, WARM_UP,
		        now, rounds);
		return 1;
	}
	IBC_Finish();
	for (unsigned i = 0; i < 2; i++) {
		peer_end(&clients[i], 0);
		end_process(ports[i], SIGTERM);
	}
	unlink(file);
	must_leave_nothing();
	return 0;
}
