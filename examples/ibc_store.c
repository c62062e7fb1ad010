/* A key-value service: a write request stores NAME=VALUE, a read request asks for NAME.
 * ibc_lookup.c is a client.
 *     ibc_store           at APID 55
 *     ibc_store 20        at APID 20, which needs the administrator's key (HEDDLE_IBC_KEY) */
#include <heddle/ibc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STORE = 55, NAMES = 64 };

static char entries[NAMES + 1][IBC_LIMIT_PAYLOAD + 1]; /* the last one stays empty */

/* The entry of the name in @text; if there is none, the first that is empty. */
static char *entry_of(const char *text, size_t length)
{
	char(*at)[IBC_LIMIT_PAYLOAD + 1] = entries;
	while ((*at)[0] != '\0' && (strncmp(*at, text, length) != 0 || (*at)[length] != '='))
		at++;
	return *at;
}

int main(int argc, char **argv)
{
	static char text[IBC_LIMIT_PAYLOAD + 1];
	struct IBC_Info info;
	IBC_HANDLE handle;
	int result = IBC_Init(argc > 1 ? (unsigned)atoi(argv[1]) : STORE, NULL, NULL, NULL);
	if (result != 0 || IBC_RecvPost(&handle) != 0) {
		fprintf(stderr, "%s\n", IBC_ResultName(result));
		return 1;
	}
	while (IBC_RecvWaitInfo(handle, NULL, text, &info) == IBC_RECVDONE) {
		text[info.Length] = '\0';
		size_t length = strcspn(text, "=");
		char *entry = entry_of(text, length);
		if (info.Type == IBC_WRITE_REQUEST && text[length] == '=' &&
		    entry != entries[NAMES])
			strcpy(entry, text);
		const char *value = entry[0] != '\0' ? entry + length + 1 : "";
		int type = info.Type == IBC_READ_REQUEST ? IBC_READ_RESPONSE : IBC_WRITE_RESPONSE;
		IBC_Respond(&info, entry[0] != '\0' ? type : IBC_NACK, IBC_NACK_NOT_ALLOWED, value,
		            (uint32_t)strlen(value));
	}
}
