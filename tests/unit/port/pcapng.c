/* The writer of captures: blocks that a reader finds its way through, several writers in one file,
 * and what happens where there is no room. What the blocks mean to tshark is seen in
 * tests/interop/capture. */
#include "port/pcapng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECTION    0x0a0d0d0au
#define INTERFACE  1u
#define STATISTICS 5u
#define PACKET     6u
#define RESERVE    0x80484c44u
#define MAX_BLOCKS 4096u

struct place {
	char folder[64];
	char file[96];
};

/* A file, cut into its blocks. */
struct reading {
	uint8_t *bytes;
	size_t size;
	size_t count;
	struct {
		uint32_t type, length;
		const uint8_t *body;
	} blocks[MAX_BLOCKS];
};

static int setup(void **state)
{
	struct place *place = calloc(1, sizeof(*place));
	strcpy(place->folder, "/tmp/heddle-pcapng-XXXXXX");
	assert_non_null(mkdtemp(place->folder));
	snprintf(place->file, sizeof(place->file), "%s/capture", place->folder);
	*state = place;
	return 0;
}

static int teardown(void **state)
{
	struct place *place = *state;
	unlink(place->file);
	rmdir(place->folder);
	free(place);
	return 0;
}

static uint32_t word(const uint8_t *at)
{
	uint32_t value;
	memcpy(&value, at, sizeof(value));
	return value;
}

static uint16_t half(const uint8_t *at)
{
	uint16_t value;
	memcpy(&value, at, sizeof(value));
	return value;
}

/* Every block is as long at its end as at its beginning, and nothing is left over. */
static void cut(struct reading *reading)
{
	reading->count = 0;
	for (size_t at = 0; at < reading->size;) {
		assert_true(reading->size - at >= 12);
		uint32_t length = word(reading->bytes + at + 4);
		assert_true(length % 4 == 0 && length >= 12 && length <= reading->size - at);
		assert_int_equal(word(reading->bytes + at + length - 4), length);
		assert_true(reading->count < MAX_BLOCKS);
		reading->blocks[reading->count].type = word(reading->bytes + at);
		reading->blocks[reading->count].length = length - 12;
		reading->blocks[reading->count++].body = reading->bytes + at + 8;
		at += length;
	}
}

static struct reading *read_file(const char *path)
{
	static struct reading reading;
	struct stat status;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0 && fstat(fd, &status) == 0);
	free(reading.bytes);
	reading.size = (size_t)status.st_size;
	reading.bytes = malloc(reading.size + 1);
	assert_int_equal(read(fd, reading.bytes, reading.size), reading.size);
	close(fd);
	cut(&reading);
	return &reading;
}

/* The option @code behind @at in a block that ends at @end; NULL: there is none. */
static const uint8_t *option(const uint8_t *at, const uint8_t *end, uint16_t code, uint16_t *length)
{
	while (at < end) {
		uint16_t found = half(at);
		*length = half(at + 2);
		if (found == 0) {
			assert_true(at + 4 == end && *length == 0);
			return NULL;
		}
		assert_true(at + 4 + *length <= end);
		if (found == code)
			return at + 4;
		at += 4 + (*length + 3) / 4 * 4;
	}
	return NULL;
}

static void put(struct pcapng *to, const void *bytes, size_t captured, size_t length,
                const char *comment)
{
	pcapng_put(to, &(struct pcapng_packet){.time_ns = 0x123456789abcdefu,
	                                       .bytes = bytes,
	                                       .captured = captured,
	                                       .length = length,
	                                       .direction = PCAPNG_OUTBOUND,
	                                       .comment = comment});
}

static void x6_blocks_are_well_formed(void **state)
{
	const struct place *place = *state;
	struct pcapng file;
	static const char bytes[] = "0123456789";
	assert_int_equal(pcapng_prepare(place->file), 0);
	assert_int_equal(pcapng_open(&file, place->file, PCAPNG_RAW, "first", "of its kind"), 0);
	for (size_t length = 0; length <= 8; length++)
		put(&file, bytes, length, length + 1, length % 2 ? "odd" : NULL);
	pcapng_close(&file, 7);
	const struct reading *reading = read_file(place->file);
	assert_int_equal(reading->count, 13);
	assert_int_equal(reading->blocks[0].type, SECTION);
	assert_int_equal(word(reading->blocks[0].body), 0x1a2b3c4d);
	assert_int_equal(reading->blocks[1].type, INTERFACE);
	assert_int_equal(half(reading->blocks[1].body), 101);
	uint16_t length = 0;
	const uint8_t *body = reading->blocks[1].body, *end = body + reading->blocks[1].length;
	const uint8_t *name = option(body + 8, end, 2, &length);
	assert_true(length == 5 && memcmp(name, "first", 5) == 0);
	name = option(body + 8, end, 3, &length);
	assert_true(length == 11 && memcmp(name, "of its kind", 11) == 0);
	for (uint32_t i = 0; i <= 8; i++) {
		assert_int_equal(reading->blocks[4 + i].type, PACKET);
		body = reading->blocks[4 + i].body;
		end = body + reading->blocks[4 + i].length;
		assert_int_equal(word(body), 0);
		assert_int_equal(word(body + 4), 0x01234567);
		assert_int_equal(word(body + 8), 0x89abcdef);
		assert_int_equal(word(body + 12), i);
		assert_int_equal(word(body + 16), i + 1);
		assert_memory_equal(body + 20, bytes, i);
		const uint8_t *options = body + 20 + (i + 3) / 4 * 4;
		const uint8_t *comment = option(options, end, 1, &length);
		assert_true(i % 2 ? comment != NULL && length == 3 : comment == NULL);
		const uint8_t *flags = option(options, end, 2, &length);
		assert_true(length == 4 && word(flags) == PCAPNG_OUTBOUND);
	}
	assert_int_equal(reading->blocks[2].type, RESERVE);
	assert_int_equal(reading->blocks[3].type, STATISTICS);
}

static void x6_a_comment_that_is_too_long_is_cut(void **state)
{
	const struct place *place = *state;
	struct pcapng file;
	char comment[4 * PCAPNG_COMMENT_BYTES];
	memset(comment, 'c', sizeof(comment) - 1);
	comment[sizeof(comment) - 1] = '\0';
	assert_int_equal(pcapng_open(&file, place->file, PCAPNG_RAW, comment, comment), 0);
	put(&file, "x", 1, 1, comment);
	pcapng_close(&file, 0);
	uint16_t length;
	const struct reading *reading = read_file(place->file);
	const uint8_t *body = reading->blocks[4].body;
	assert_non_null(option(body + 24, body + reading->blocks[4].length, 1, &length));
	assert_int_equal(length, PCAPNG_COMMENT_BYTES);
}

/* Writers number themselves by those before them, and each packet names its own. */
static void x6_writers_share_a_file(void **state)
{
	const struct place *place = *state;
	struct pcapng files[3];
	char large[5000];
	memset(large, 'l', sizeof(large));
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(pcapng_open(&files[i], place->file, PCAPNG_RAW, "one", "of three"),
		                 0);
		assert_int_equal(files[i].interface, i);
		large[0] = (char)i;
		put(&files[i], large, sizeof(large), sizeof(large), NULL);
		pcapng_flush(&files[i], 0);
	}
	/* Enough that each has to write more than once. */
	for (uint32_t i = 0; i < 3 * 300; i++) {
		large[0] = (char)(i % 3);
		put(&files[i % 3], large, sizeof(large), sizeof(large), NULL);
	}
	for (uint32_t i = 0; i < 3; i++)
		pcapng_close(&files[i], 0);
	const struct reading *reading = read_file(place->file);
	uint32_t interfaces = 0, packets[3] = {0};
	for (size_t i = 0; i < reading->count; i++) {
		const uint8_t *body = reading->blocks[i].body;
		interfaces += reading->blocks[i].type == INTERFACE;
		if (reading->blocks[i].type != PACKET)
			continue;
		assert_int_equal(word(body), body[20]);
		assert_true(word(body) < interfaces);
		packets[word(body)]++;
	}
	assert_int_equal(interfaces, 3);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(packets[i], 301);
}

/* One writer after the other, so that packets are in the file before most of them come. */
static const struct reading *many_writers(const char *path, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		struct pcapng file;
		assert_int_equal(pcapng_open(&file, path, PCAPNG_RAW, "one", "of many"), 0);
		assert_int_equal(file.interface, i);
		put(&file, &i, sizeof(i), sizeof(i), NULL);
		pcapng_close(&file, i);
	}
	const struct reading *reading = read_file(path);
	uint32_t interfaces = 0, packets = 0, told = 0;
	for (size_t i = 0; i < reading->count; i++) {
		uint16_t length;
		const uint8_t *body = reading->blocks[i].body;
		interfaces += reading->blocks[i].type == INTERFACE;
		if (reading->blocks[i].type == STATISTICS) {
			const uint8_t *end = body + reading->blocks[i].length;
			assert_int_equal(word(option(body + 12, end, 4, &length)), 1);
			assert_int_equal(word(body), word(body + 8)); /* the time of its close */
			told++;
		}
		if (reading->blocks[i].type != PACKET)
			continue;
		assert_int_equal(word(body), packets);
		assert_int_equal(word(body + 20), packets);
		assert_true(word(body) < interfaces);
		packets++;
	}
	assert_int_equal(interfaces, count);
	assert_int_equal(packets, count);
	assert_int_equal(told, count);
	return reading;
}

static void x6_interfaces_come_before_the_first_packet(void **state)
{
	const struct place *place = *state;
	const struct reading *reading = many_writers(place->file, 150);
	for (size_t i = 1; i <= 150; i++)
		assert_int_equal(reading->blocks[i].type, INTERFACE);
	assert_int_equal(reading->blocks[151].type, RESERVE);
	for (size_t i = 152; i < 152 + 150; i++)
		assert_int_equal(reading->blocks[i].type, STATISTICS);
}

static void x6_more_writers_than_the_reserve_holds(void **state)
{
	const struct place *place = *state;
	const struct reading *reading = many_writers(place->file, 600);
	assert_true(reading->size > PCAPNG_RESERVE_BYTES);
	/* The last one is behind packets; a shorter name does not get in front of it. */
	struct pcapng file;
	assert_int_equal(pcapng_open(&file, place->file, PCAPNG_RAW, "", ""), 0);
	assert_int_equal(file.interface, 600);
	pcapng_close(&file, 0);
	reading = read_file(place->file);
	assert_int_equal(reading->blocks[reading->count - 2].type, INTERFACE);
	assert_int_equal(reading->blocks[reading->count - 1].type, STATISTICS);
}

/* A reserve that is longer than any of ours, in a file that somebody else made: it is left alone,
 * and so is memory. */
static void x6_a_reserve_of_others_is_not_used(void **state)
{
	const struct place *place = *state;
	const uint32_t bytes = 4u << 20;
	const uint32_t section[] = {0x0a0d0d0a, 28, 0x1a2b3c4d, 1, UINT32_MAX, UINT32_MAX, 28};
	const uint32_t reserve = 0x80484c44;
	int fd = open(place->file, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	const struct reading *ours = NULL;
	struct pcapng file;
	/* The magic as our own files have it. */
	assert_int_equal(pcapng_open(&file, place->file, PCAPNG_RAW, "one", "ours"), 0);
	pcapng_close(&file, 0);
	ours = read_file(place->file);
	assert_true(ours->size > sizeof(section));
	uint32_t head[3];
	off_t at = 0;
	do { /* the block of the reserve */
		assert_int_equal(pread(fd, head, sizeof(head), at), sizeof(head));
		at += head[1];
	} while (head[0] != reserve);
	head[1] = bytes;
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(pwrite(fd, section, sizeof(section), 0), sizeof(section));
	assert_int_equal(pwrite(fd, head, sizeof(head), sizeof(section)), sizeof(head));
	assert_int_equal(pwrite(fd, &bytes, 4, (off_t)(sizeof(section) + bytes - 4)), 4);
	assert_int_equal(pcapng_open(&file, place->file, PCAPNG_RAW, "two", "late"), 0);
	pcapng_close(&file, 0);
	assert_int_equal(pread(fd, head, sizeof(head), sizeof(section)), sizeof(head));
	assert_int_equal(head[1], bytes); /* what follows is behind it */
	close(fd);
}

static void x6_a_file_in_use_is_not_emptied(void **state)
{
	const struct place *place = *state;
	struct pcapng file;
	assert_int_equal(pcapng_open(&file, place->file, PCAPNG_RAW, "one", "alone"), 0);
	put(&file, "x", 1, 1, NULL);
	pcapng_flush(&file, 0);
	assert_int_equal(pcapng_prepare(place->file), 0);
	assert_int_equal(read_file(place->file)->count, 5);
	pcapng_close(&file, 0);
	assert_int_equal(read_file(place->file)->count, 5);
	assert_int_equal(pcapng_prepare(place->file), 0);
	assert_int_equal(read_file(place->file)->count, 0);
}

static void x6_what_is_no_capture_is_left_alone(void **state)
{
	static const struct {
		const char *bytes;
		size_t count;
	} rows[] = {{"a letter", 8},
	            {"\n\r\r\n\x1c\0\0\0\x1a\x2b\x3c\x4d", 12}, /* the other order of bytes */
	            {"\n\r\r\n\x1c\0\0\0\x4d\x3c\x2b\x1a", 12}, /* longer than the file */
	            {"\n\r\r\n\x00\0\0\0\x4d\x3c\x2b\x1a", 12}};
	const struct place *place = *state;
	struct pcapng file;
	struct stat status;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int fd = open(place->file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		assert_int_equal(write(fd, rows[i].bytes, rows[i].count), rows[i].count);
		close(fd);
		assert_int_equal(pcapng_prepare(place->file), -EEXIST);
		assert_int_equal(pcapng_open(&file, place->file, PCAPNG_RAW, "one", "more"),
		                 -EEXIST);
		assert_int_equal(stat(place->file, &status), 0);
		assert_int_equal(status.st_size, rows[i].count);
	}
	assert_int_equal(pcapng_prepare(place->folder), -EISDIR);
	assert_int_equal(pcapng_open(&file, "/no/such/folder/file", PCAPNG_RAW, "", ""), -ENOENT);
}

/* Nobody reads: what does not fit is left out, counted and told when there is room again; nobody
 * waits. */
static void x6_a_full_pipe_leaves_packets_out(void **state)
{
	const struct place *place = *state;
	const size_t bytes = 4000;
	uint8_t *packet = calloc(1, bytes);
	struct pcapng file;
	assert_int_equal(mkfifo(place->file, 0600), 0);
	assert_int_equal(pcapng_open(&file, place->file, PCAPNG_RAW, "pipe", "unread"), -ENXIO);
	int reader = open(place->file, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	assert_true(reader >= 0);
	assert_int_equal(pcapng_open(&file, place->file, PCAPNG_RAW, "pipe", "read late"), 0);
	const uint64_t sent = 2 * PCAPNG_BUFFER_BYTES / bytes;
	for (uint64_t i = 0; i < sent; i++)
		put(&file, packet, bytes, bytes, NULL);
	assert_true(file.dropped > 0);
	assert_int_equal(file.taken + file.dropped, sent);
	uint64_t dropped = file.dropped;

	struct reading reading = {.bytes = malloc(2 * PCAPNG_BUFFER_BYTES)};
	for (unsigned turns = 0; turns < 1000 && (file.used > 0 || file.told != dropped); turns++) {
		ssize_t got;
		pcapng_flush(&file, 5);
		while ((got = read(reader, reading.bytes + reading.size, 65536)) > 0)
			reading.size += (size_t)got;
	}
	cut(&reading);
	uint32_t packets = 0, told = 0;
	for (size_t i = 0; i < reading.count; i++) {
		uint16_t length;
		const uint8_t *body = reading.blocks[i].body;
		packets += reading.blocks[i].type == PACKET;
		if (reading.blocks[i].type == STATISTICS)
			told = word(option(body + 12, body + reading.blocks[i].length, 5, &length));
	}
	assert_int_equal(packets, sent - dropped);
	assert_int_equal(told, dropped);
	/* A reader that is gone ends the capture, not the program. */
	close(reader);
	put(&file, packet, bytes, bytes, NULL);
	pcapng_flush(&file, 5);
	assert_true(file.broken);
	put(&file, packet, bytes, bytes, NULL);
	assert_int_equal(file.dropped, dropped + 1);
	pcapng_close(&file, 5);
	free(reading.bytes);
	free(packet);
}

/* Much waits for no flush: a program that is killed loses half of the buffer at most. */
static void x6_a_file_grows_while_packets_come(void **state)
{
	const struct place *place = *state;
	const size_t bytes = 4000;
	uint8_t *packet = calloc(1, bytes);
	struct pcapng file;
	struct stat status;
	assert_int_equal(pcapng_open(&file, place->file, PCAPNG_RAW, "one", ""), 0);
	for (size_t put_bytes = 0; put_bytes < 4 * PCAPNG_BUFFER_BYTES; put_bytes += bytes) {
		put(&file, packet, bytes, bytes, NULL);
		assert_int_equal(stat(place->file, &status), 0);
		assert_true((size_t)status.st_size + PCAPNG_BUFFER_BYTES / 2 > put_bytes);
	}
	pcapng_close(&file, 5);
	free(packet);
}

/* The disk is full: what is there is whole, the statistics tell what is not, and the program lives.
 */
static void x6_a_full_disk_leaves_packets_out(void **state)
{
	const struct place *place = *state;
	const size_t bytes = 4000;
	/* Ends within a packet, and is reached within the first and within a later write. */
	static const rlim_t limits[] = {100000, 3000001};
	uint8_t *packet = calloc(1, bytes);
	struct rlimit before;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		struct pcapng file, other;
		const uint64_t sent = 4 * PCAPNG_BUFFER_BYTES / bytes;
		unlink(place->file);
		assert_int_equal(pcapng_open(&file, place->file, PCAPNG_RAW, "one", ""), 0);
		assert_int_equal(pcapng_open(&other, place->file, PCAPNG_RAW, "other", ""), 0);
		setrlimit(RLIMIT_FSIZE, &(struct rlimit){limits[i], before.rlim_max});
		for (uint64_t n = 0; n < sent; n++)
			put(&file, packet, bytes, bytes, NULL);
		put(&other, packet, bytes, bytes, NULL);
		pcapng_flush(&other, 5);
		pcapng_close(&file, 5);
		setrlimit(RLIMIT_FSIZE, &before);
		/* There is room again: the other one goes on. */
		put(&other, packet, 40, 40, NULL);
		pcapng_close(&other, 6);
		const struct reading *reading = read_file(place->file);
		uint32_t packets[2] = {0}, received[2] = {0}, dropped[2] = {0};
		for (size_t n = 0; n < reading->count; n++) {
			uint16_t length;
			const uint8_t *body = reading->blocks[n].body;
			const uint8_t *end = body + reading->blocks[n].length;
			if (reading->blocks[n].type == PACKET)
				packets[word(body)]++;
			if (reading->blocks[n].type != STATISTICS)
				continue;
			received[word(body)] += word(option(body + 12, end, 4, &length));
			dropped[word(body)] += word(option(body + 12, end, 5, &length));
		}
		assert_true(packets[0] > 0 && packets[0] < sent);
		assert_int_equal(received[0], sent);
		assert_int_equal(packets[0] + dropped[0], sent);
		assert_int_equal(received[1], 2);
		assert_int_equal(dropped[1], 1);
		assert_int_equal(packets[1], 1);
	}
	free(packet);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	        TEST(x6_blocks_are_well_formed),
	        TEST(x6_a_comment_that_is_too_long_is_cut),
	        TEST(x6_writers_share_a_file),
	        TEST(x6_interfaces_come_before_the_first_packet),
	        TEST(x6_more_writers_than_the_reserve_holds),
	        TEST(x6_a_reserve_of_others_is_not_used),
	        TEST(x6_a_file_in_use_is_not_emptied),
	        TEST(x6_what_is_no_capture_is_left_alone),
	        TEST(x6_a_full_pipe_leaves_packets_out),
	        TEST(x6_a_file_grows_while_packets_come),
	        TEST(x6_a_full_disk_leaves_packets_out),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
