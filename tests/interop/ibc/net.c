/* Networks of virtual switches for the tests of IBC. See net.h. */
#include "net.h"

#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "peer.h"

uint16_t net_udp_port(unsigned port)
{
	return (uint16_t)(10000u + (unsigned)getpid() % 2500u * 8u + port - 7100u);
}

void net_write(char file[NET_FILE_BYTES], const char *nodes, const char *links)
{
	snprintf(file, NET_FILE_BYTES, "/tmp/ibc-net-%d.conf", (int)getpid());
	FILE *out = fopen(file, "we");
	MUST(out != NULL);
	fputs(nodes, out);
	for (const char *at = links, *next; *at != '\0'; at = next) {
		unsigned port = 0;
		next = at + 1;
		if (*at == ':' && sscanf(at, ":%4u", &port) == 1 && port > 7100) {
			fprintf(out, ":%u", net_udp_port(port));
			next = at + 5;
		} else {
			fputc(*at, out);
		}
	}
	fclose(out);
}

pid_t net_start(const char *file, const char *name)
{
	const char *program = getenv("HEDDLE_VPORT");
	char *argv[] = {(char *)(uintptr_t)program,   (char *)(uintptr_t) "--foreground",
	                (char *)(uintptr_t) "--node", (char *)(uintptr_t)name,
	                (char *)(uintptr_t)file,      NULL};
	pid_t pid = 0;
	MUST(program != NULL);
	MUST(posix_spawn(&pid, program, NULL, NULL, argv, environ) == 0);
	return pid;
}

int net_end(pid_t pid, int signal)
{
	int status = 0;
	kill(pid, signal);
	MUST(waitpid(pid, &status, 0) == pid);
	return status;
}
