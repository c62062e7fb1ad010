/* A remote manager: reads the state of the hardware ports of a switch, along a source route.
 *     HEDDLE_NODE=n102 ibc_manager KEY 1 1 3      NIC 1, its port 1, port 3 of a switch
 * KEY is the 32 digits of the switch's key in the topology file. heddle-ibc(7) has the commands. */
#include <heddle/ibc.h>
#include <stdio.h>
#include <stdlib.h>

#define SWITCH_ITSELF 31 /* the APID of a switch */
#define READ_PORTS    2  /* operation: port, state of each hardware port */

int main(int argc, char **argv)
{
	static const char *const states[] = {"absent", "down", "up"};
	unsigned char command[20] = {[16] = READ_PORTS}, answer[IBC_LIMIT_PAYLOAD];
	struct IBC_Target target = {.Destination = SWITCH_ITSELF, .Route = {.Pointer = 1}};
	struct IBC_Info info;
	unsigned key[16], own;
	if (argc < 4) {
		fprintf(stderr, "usage: %s KEY NIC PORT [PORT...]\n", argv[0]);
		return 2;
	}
	for (int i = 0; i < 16 && sscanf(argv[1] + 2 * i, "%2x", &key[i]) == 1; i++)
		command[i] = (unsigned char)key[i];
	target.GUID = strtoull(argv[2], NULL, 0);
	target.OutPort = (unsigned)atoi(argv[3]);
	for (int i = 4; i < argc; i++)
		target.Route.Ports[target.Route.Hops++] = (uint8_t)atoi(argv[i]);

	int result = IBC_Init(IBC_CLIENTANY, &own, NULL, NULL);
	if (result == 0) /* three tries, a second each */
		result = IBC_Request(&target, IBC_READ_REQUEST, command, sizeof(command), NULL, 0,
		                     answer, sizeof(answer), &info);
	if (result != 0) {
		fprintf(stderr, "%s%s%s\n", IBC_ResultName(result),
		        result == IBC_NACKED ? ": " : "",
		        result == IBC_NACKED ? IBC_ReasonName(info.Reason) : "");
		return 1;
	}
	for (int i = 0; i < answer[3]; i++)
		printf("port %u: %s\n", answer[12 + 2 * i], states[answer[13 + 2 * i] % 3]);
	return IBC_Finish();
}
