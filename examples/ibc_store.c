/* A key-value service, at APID 55. A write request stores NAME=VALUE, or selects NAME for the read
 * requests of its sender: a read request has no message. ibc_lookup.c is a client. */
#include <heddle/ibc.h>
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

int main(void)
{
	static char text[IBC_LIMIT_PAYLOAD + 1], *selected[IBC_LIMIT_PORTS];
	struct IBC_Info info;
	IBC_HANDLE handle;
	if (IBC_Init(STORE, NULL, NULL, NULL) != 0 || IBC_RecvPost(&handle) != 0)
		return 1;
	while (IBC_RecvWaitInfo(handle, NULL, text, &info) == IBC_RECVDONE) {
		text[info.Length] = '\0';
		if (info.Type == IBC_WRITE_REQUEST) {
			size_t length = strcspn(text, "=");
			char *entry = entry_of(text, length);
			if (text[length] == '=' && entry != entries[NAMES])
				strcpy(entry, text);
			selected[info.Source] = entry[0] != '\0' ? entry + length + 1 : NULL;
		}
		int type = info.Type == IBC_READ_REQUEST ? IBC_READ_RESPONSE : IBC_WRITE_RESPONSE;
		const char *value = selected[info.Source] != NULL ? selected[info.Source] : "";
		IBC_Respond(&info, value[0] != '\0' ? type : IBC_NACK, IBC_NACK_NOT_ALLOWED, value,
		            (uint32_t)strlen(value));
	}
}
