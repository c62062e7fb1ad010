/* The key file of the virtual switches. See vskey.h. */
#include "port/vskey.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

#define MADE "# made by heddled, which removes it when it leaves\n"

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool vskey_parse(const char *text, uint8_t key[AGENT_VS_KEY_BYTES])
{
	for (unsigned i = 0; i < AGENT_VS_KEY_BYTES; i++) {
		int high = hex_digit(text[2 * i]), low = high < 0 ? -1 : hex_digit(text[2 * i + 1]);
		if (low < 0)
			return false;
		key[i] = (uint8_t)(high << 4 | low);
	}
	char end = text[2 * AGENT_VS_KEY_BYTES];
	return end == '\0' || end == '\n';
}

/* The contents of @path, cut at @bytes - 1; false: there is none that can be trusted. */
static bool vskey_load(const char *path, char *text, size_t bytes)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return false;
	ssize_t got = -1;
	if (fstat(fd, &st) != 0 || st.st_uid != geteuid() || (st.st_mode & 077) != 0)
		log_error("%s: it belongs to another user or is open to others, so no one has the "
		          "administrator's right; remove it, or \"chmod 600\" it",
		          path);
	else
		got = read(fd, text, bytes - 1);
	close(fd);
	text[got > 0 ? got : 0] = '\0';
	return got >= 0;
}

bool vskey_read(const char *path, uint8_t key[AGENT_VS_KEY_BYTES])
{
	char text[256];
	if (!vskey_load(path, text, sizeof(text)))
		return false;
	const char *line = text;
	while (line[0] == '#' && strchr(line, '\n') != NULL)
		line = strchr(line, '\n') + 1;
	if (vskey_parse(line, key))
		return true;
	log_error("%s: expected 32 hexadecimal digits; write them (\"openssl rand -hex 16\"), or "
	          "remove the file",
	          path);
	return false;
}

void vskey_make(const char *path)
{
	uint8_t key[AGENT_VS_KEY_BYTES];
	char text[sizeof(MADE) + 2 * AGENT_VS_KEY_BYTES + 1];
	int length = snprintf(text, sizeof(text), MADE);
	if (access(path, F_OK) == 0 || getrandom(key, sizeof(key), 0) != (ssize_t)sizeof(key))
		return;
	for (unsigned i = 0; i < AGENT_VS_KEY_BYTES; i++)
		length += snprintf(text + length, sizeof(text) - (size_t)length, "%02x", key[i]);
	text[length++] = '\n';
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, text, (size_t)length) != length)
		log_warn("%s: %m; no one has the administrator's right to virtual switches", path);
	if (fd >= 0)
		close(fd);
}

void vskey_remove(const char *path)
{
	char text[256];
	if (access(path, F_OK) == 0 && vskey_load(path, text, sizeof(text)) &&
	    strncmp(text, MADE, strlen(MADE)) == 0)
		unlink(path);
}

bool vskey_equal(const uint8_t a[AGENT_VS_KEY_BYTES], const uint8_t b[AGENT_VS_KEY_BYTES])
{
	uint8_t differ = 0, any = 0;
	for (unsigned i = 0; i < AGENT_VS_KEY_BYTES; i++) {
		differ = (uint8_t)(differ | (a[i] ^ b[i]));
		any = (uint8_t)(any | a[i]);
	}
	return differ == 0 && any != 0;
}
