/* A fuzz harness without a fuzzer: runs every file of the corpus through it, and every prefix of a
 * short file, since a truncated packet is what a decoder meets most. Arguments are files and
 * directories; that nothing crashes is the test, and the sanitizers make it a sharp one: each input
 * lies in a block of exactly its own size. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PREFIXES_UP_TO 4096u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned long inputs;

static void run(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);
	if (!copy)
		abort();
	if (size)
		memcpy(copy, data, size);
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
	inputs++;
}

static int run_file(const char *path, size_t size)
{
	FILE *file = fopen(path, "rb");
	uint8_t *data = malloc(size ? size : 1);
	int bad = !file || !data || fread(data, 1, size, file) != size;
	if (bad) {
		perror(path);
	} else {
		run(data, size);
		for (size_t prefix = 0; size <= PREFIXES_UP_TO && prefix < size; prefix++)
			run(data, prefix);
	}
	if (file)
		fclose(file);
	free(data);
	return bad;
}

static int run_path(const char *path)
{
	struct stat st;
	if (stat(path, &st) != 0) {
		perror(path);
		return 1;
	}
	if (!S_ISDIR(st.st_mode))
		return run_file(path, (size_t)st.st_size);

	struct dirent **entries;
	int count = scandir(path, &entries, NULL, alphasort);
	if (count < 0) {
		perror(path);
		return 1;
	}
	int bad = 0;
	for (int i = 0; i < count; i++) {
		char inner[4096];
		int length = snprintf(inner, sizeof(inner), "%s/%s", path, entries[i]->d_name);
		if (entries[i]->d_name[0] != '.' && length > 0 && (size_t)length < sizeof(inner))
			bad |= run_path(inner);
		free(entries[i]);
	}
	free(entries);
	return bad;
}

int main(int argc, char **argv)
{
	int bad = 0;
	run((const uint8_t *)"", 0);
	for (int i = 1; i < argc; i++)
		bad |= run_path(argv[i]);
	printf("%lu inputs\n", inputs);
	return bad || inputs < 2; /* a harness without a corpus tests nothing */
}
