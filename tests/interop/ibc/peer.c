/* Other clients for the tests of IBC. See peer.h. */
#include "peer.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "port/agentmsg.h"
#include "port/rundir.h"

const struct timespec peer_now = {0, 0}, peer_soon = {5, 0};

void peer_say(int channel, char byte)
{
	MUST(write(channel, &byte, 1) == 1);
}

char peer_hear(int channel)
{
	char byte = 0;
	struct pollfd in = {.fd = channel, .events = POLLIN};
	MUST(poll(&in, 1, 20000) == 1);
	if (read(channel, &byte, 1) != 1)
		return 0;
	return byte;
}

struct peer peer_start(unsigned requested, void (*run)(int channel))
{
	int ends[2];
	struct peer peer;
	MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
	fflush(NULL);
	peer.pid = fork();
	MUST(peer.pid >= 0);
	if (peer.pid == 0) {
		unsigned apid = 0;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(ends[0]);
		int result = IBC_Init(requested, &apid, NULL, NULL);
		peer_say(ends[1], (char)(result == 0 ? (int)apid : -result));
		if (result == 0)
			run(ends[1]);
		_exit(0);
	}
	close(ends[1]);
	peer.channel = ends[0];
	char said = peer_hear(peer.channel);
	peer.apid = said > 0 ? (unsigned)said : 0;
	return peer;
}

int peer_end(struct peer *peer, int signal)
{
	int status = 0;
	if (signal != 0)
		kill(peer->pid, signal);
	else
		peer_say(peer->channel, 'q');
	MUST(waitpid(peer->pid, &status, 0) == peer->pid);
	close(peer->channel);
	return status;
}

static bool is_told_to_end(int channel)
{
	struct pollfd in = {.fd = channel, .events = POLLIN};
	return poll(&in, 1, 0) == 1;
}

void peer_echo(int channel)
{
	static char buffer[IBC_LIMIT_PAYLOAD];
	struct IBC_Info info;
	IBC_HANDLE handle;
	struct timespec time = {0, 20000000};
	MUST(IBC_RecvPost(&handle) == 0);
	peer_say(channel, 'r');
	while (!is_told_to_end(channel)) {
		if (IBC_RecvWaitInfo(handle, &time, buffer, &info) != IBC_RECVDONE)
			continue;
		if (info.Type == IBC_READ_REQUEST)
			IBC_Respond(&info, IBC_READ_RESPONSE, 0, "read", 4);
		else if (info.Type == IBC_WRITE_REQUEST)
			IBC_Respond(&info, IBC_WRITE_RESPONSE, 0, NULL, 0);
		else if (info.Type == IBC_WRITE_REQUEST_NO_ACK)
			IBC_Respond(&info, IBC_READ_RESPONSE, 0, buffer, info.Length);
	}
	IBC_Finish();
}

void peer_silent(int channel)
{
	peer_say(channel, 'r');
	peer_hear(channel);
}

void peer_take_key(void)
{
	char directory[RUNDIR_MAX], path[RUNDIR_MAX + 16], line[128] = "#";
	MUST(rundir_open(directory, NULL) == 0);
	rundir_file(directory, AGENT_VS_KEY, path, sizeof(path));
	FILE *file = fopen(path, "re");
	MUST(file != NULL);
	while (line[0] == '#')
		MUST(fgets(line, sizeof(line), file) != NULL);
	fclose(file);
	line[strcspn(line, "\n")] = '\0';
	setenv("HEDDLE_IBC_KEY", line, 1);
}

pid_t peer_agent(void)
{
	char directory[RUNDIR_MAX], path[RUNDIR_MAX + 16];
	int pid = 0;
	MUST(rundir_open(directory, NULL) == 0);
	rundir_file(directory, AGENT_LOCK, path, sizeof(path));
	FILE *file = fopen(path, "re");
	if (file == NULL)
		return 0;
	if (fscanf(file, "%d", &pid) != 1)
		pid = 0;
	fclose(file);
	return pid;
}

struct IBC_Target peer_target(unsigned apid)
{
	return (struct IBC_Target){
	        .OutPort = IBC_PORT_ROUTE, .Destination = apid, .Route = {.Pointer = 1}};
}
