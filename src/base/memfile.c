/* Shared memory files. */
#include "base/memfile.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <linux/magic.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u /* Linux 6.3 */
#endif

#define SIZE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

int memfile_make(const char *name, uint64_t bytes)
{
	/* If vm.memfd_noexec is set, which a PID namespace may do for itself, only files that are
	 * never executable are allowed. Older kernels do not know the flag. */
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
	if (fd < 0 && errno == EINVAL)
		fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -1;
	if (ftruncate(fd, (off_t)bytes) == 0 && fcntl(fd, F_ADD_SEALS, SIZE_SEALS) == 0)
		return fd;
	int error = errno;
	close(fd);
	errno = error;
	return -1;
}

bool memfile_close_to_writers(int fd)
{
	return fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0;
}

bool memfile_seal(int fd)
{
	return fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL) == 0;
}

bool memfile_is_sealed(int fd, uint64_t bytes)
{
	const int wanted = SIZE_SEALS | F_SEAL_SEAL;
	struct stat st;
	struct statfs fs;
	/* Files of huge pages have seals too, but their pages may be unavailable: a process that
	 * touches such a page gets a signal. Ordinary pages are allocated when they are touched,
	 * and contain zeros. */
	if (fstatfs(fd, &fs) != 0 || fs.f_type != TMPFS_MAGIC)
		return false;
	/* Additional seals do no harm: what they forbid fails. */
	int seals = fcntl(fd, F_GET_SEALS);
	return seals >= 0 && (seals & wanted) == wanted && fstat(fd, &st) == 0 &&
	       (uint64_t)st.st_size == bytes;
}
