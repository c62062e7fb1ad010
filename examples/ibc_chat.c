/* A chat between two nodes: lines of standard input go along a source route to the other side.
 *     HEDDLE_NODE=n102 ibc_chat 1 1 3 2      out of port 1 of NIC 1, then ports 3 and 2 of switches
 *     HEDDLE_NODE=n104 ibc_chat 2 0 1 2      (examples/two-switches.conf) */
#include <heddle/ibc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHAT 50 /* the APID of both sides */

int main(int argc, char **argv)
{
	static char line[IBC_LIMIT_PAYLOAD + 1];
	IBC_GUID nic;
	struct IBC_Route route = {.Pointer = 1};
	struct IBC_Info info;
	IBC_HANDLE handle;
	const struct timespec now = {0, 0};
	if (argc < 3) {
		fprintf(stderr, "usage: %s NIC PORT [PORT...]\n", argv[0]);
		return 2;
	}
	nic = strtoull(argv[1], NULL, 0);
	for (int i = 3; i < argc; i++)
		route.Ports[route.Hops++] = (uint8_t)atoi(argv[i]);
	if (IBC_Init(CHAT, NULL, NULL, NULL) != 0 || IBC_RecvPost(&handle) != 0)
		return 1;
	struct pollfd in[2] = {{0, POLLIN, 0}, {IBC_Descriptor(), POLLIN, 0}};
	while (poll(in, 2, -1) > 0) {
		while (IBC_RecvWaitInfo(handle, &now, line, &info) == IBC_RECVDONE)
			printf("> %.*s%s\n", (int)info.Length, line,
			       info.Type == IBC_NACK ? IBC_ReasonName(info.Reason) : "");
		fflush(stdout);
		if (in[0].revents == 0)
			continue;
		if (fgets(line, sizeof(line), stdin) == NULL)
			return IBC_Finish();
		int result =
		        IBC_Send(IBC_WRITE_REQUEST, &nic, 0, CHAT, line,
		                 (uint32_t)strcspn(line, "\n"), &route, (unsigned)atoi(argv[2]));
		if (result != 0) {
			fprintf(stderr, "%s\n", IBC_ResultName(result));
			return 1;
		}
	}
	return 1;
}
