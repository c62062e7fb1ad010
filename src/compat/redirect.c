/* placeholder */
#include "compat/compat.h"

#include <fcntl.h>
#include <unistd.h>

void compat_redirect(void)
{
}

int compat_read_file(const char *path, char *buffer, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	ssize_t length = read(fd, buffer, size);
	close(fd);
	return (int)length;
}
