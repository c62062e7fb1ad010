/* A client of ibc_store.c on the same node: "ibc_lookup colour=blue" stores, "ibc_lookup colour"
 * asks. "ibc_lookup colour 20" asks the one at APID 20. */
#include <heddle/ibc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
	static char value[IBC_LIMIT_PAYLOAD + 1];
	struct IBC_Target store = {.OutPort = IBC_PORT_ROUTE, .Destination = 55};
	struct IBC_Info info;
	int result = 0;
	if (argc < 2)
		fprintf(stderr, "usage: %s NAME[=VALUE] [APID]\n", argv[0]);
	if (argc < 2 || IBC_Init(IBC_CLIENTANY, NULL, NULL, NULL) != 0)
		return 2;
	if (argc > 2)
		store.Destination = (unsigned)atoi(argv[2]);
	/* Requests that nobody answers are sent again, three times in all. */
	uint32_t name = (uint32_t)strcspn(argv[1], "=");
	if (argv[1][name] != '\0')
		result = IBC_Request(&store, IBC_WRITE_REQUEST, argv[1], (uint32_t)strlen(argv[1]),
		                     NULL, 0, NULL, 0, &info);
	if (result == 0)
		result = IBC_Request(&store, IBC_READ_REQUEST, argv[1], name, NULL, 0, value,
		                     IBC_LIMIT_PAYLOAD, &info);
	printf("%s\n", result == IBC_NACKED ? IBC_ReasonName(info.Reason)
	               : result == 0        ? value
	                                    : IBC_ResultName(result));
	return result != 0 || IBC_Finish() != 0;
}
