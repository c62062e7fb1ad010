/* heddle pipe between two machines, as far as they can see (AP8): what goes in at one end comes
 * out at the other, on a line whose queue overflows all the time.
 *
 *   pipe HEDDLE */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net.h"

#define BYTES  (24u << 20)
#define PORT   "7331"
#define WAIT_S 100.0

static const char *heddle;
static char data_path[256];

/* A hash of the whole file, and its length. */
struct sum {
	uint64_t hash, bytes;
};

static struct sum sum_file(const char *path)
{
	struct sum sum = {.hash = 0xcbf29ce484222325ull};
	static unsigned char block[65536];
	size_t got;
	FILE *file = fopen(path, "re");
	CHECK(file != NULL);
	while ((got = fread(block, 1, sizeof(block), file)) > 0)
		for (size_t i = 0; i < got; i++, sum.bytes++)
			sum.hash = (sum.hash ^ block[i]) * 0x100000001b3ull;
	fclose(file);
	return sum;
}

static void make_file(const char *path)
{
	FILE *file = fopen(path, "we");
	uint64_t value = 0x9e3779b97f4a7c15ull;
	CHECK(file != NULL);
	for (uint32_t i = 0; i < BYTES / 8; i++) {
		value ^= value << 13;
		value ^= value >> 7;
		value ^= value << 17;
		CHECK(fwrite(&value, 8, 1, file) == 1);
	}
	CHECK(fclose(file) == 0);
}

/* Run heddle pipe with @in and @out as its standard input and output. */
static int pipe_program(const char *first, const char *second, const char *in, const char *out)
{
	int status = -1;
	pid_t pid = fork();
	if (pid == 0) {
		int from = open(in, O_RDONLY), to = open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600);
		dup2(from, 0);
		dup2(to, 1);
		execl(heddle, "heddle", "pipe", first, second, (char *)NULL);
		_exit(127);
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

int main(int argc, char **argv)
{
	int talk, status = 1;
	if (argc != 2)
		return 2;
	heddle = argv[1];
	bool first = net_begin(&talk);
	snprintf(data_path, sizeof(data_path), "%s/data", getenv("HEDDLE_DIR"));
	/* A short queue, so that bursts overflow it: packets get lost. */
	CHECK(net_narrow(0, "rate 800mbit burst 20kb limit 60kb"));
	if (!first)
		make_file(data_path);
	struct sum mine = {0}, theirs;
	CHECK(net_exchange(talk, &mine, &theirs, sizeof(mine)));
	if (first) {
		status = pipe_program("--listen", PORT, "/dev/null", data_path);
	} else {
		for (double end = net_now_s() + WAIT_S; status != 0 && net_now_s() < end;) {
			/* It is refused until the other one listens. */
			status = pipe_program("10.72.0.1:" PORT, NULL, data_path, "/dev/null");
			if (status != 0)
				usleep(100000);
		}
	}
	CHECK(status == 0);
	mine = sum_file(data_path);
	CHECK(net_exchange(talk, &mine, &theirs, sizeof(mine)));
	CHECK(mine.bytes == BYTES);
	CHECK(mine.bytes == theirs.bytes && mine.hash == theirs.hash);
	return 0;
}
