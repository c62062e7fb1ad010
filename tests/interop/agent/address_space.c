/* What belongs to a process (SN8): the keys of one are no keys of another, and its pages need not
 * stay in memory for a peer to reach them (SAN figures 12 and 17). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "end.h"

#define BYTES 65536u

static unsigned char byte_at(size_t i)
{
	return (unsigned char)(i * 7 + i / 256 + 1);
}

/* --- keys --- */

/* Grants its memory, and compares it when the peer is through. */
static void live_with_a_key(int talk, const char *node, const char *address)
{
	(void)node;
	(void)address;
	struct end end;
	char done;
	end_open(&end, BYTES, 16);
	if (!end_meet(&end, talk, talk))
		_exit(4);
	end_connect(&end);
	if (write(talk, "r", 1) != 1 || read(talk, &done, 1) != 1)
		_exit(5);
	for (size_t i = 0; i < BYTES; i++)
		if (end.room[i] != (i < 8 ? byte_at(i) : 0))
			_exit(6);
	if (write(talk, "s", 1) != 1)
		_exit(7);
	pause();
}

static void sn8_a_key_of_another_process_opens_nothing(void **state)
{
	(void)state;
	static const uint32_t opcodes[] = {HDL_OP_WRITE, HDL_OP_READ, HDL_OP_FETCH_ADD};
	for (unsigned i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++) {
		struct child child = child_start(live_with_a_key, NULL, NULL);
		struct end end;
		char said = 0;
		end_open(&end, BYTES, 16);
		assert_true(end_meet(&end, child.talk, child.talk));
		end_connect(&end);
		assert_int_equal(read(child.talk, &said, 1), 1);
		for (size_t k = 0; k < BYTES; k++)
			end.room[k] = byte_at(k);
		end_must(&end, HDL_OP_WRITE, 8);
		end.peer.key = end.mine.key; /* it opens our memory, not the peer's */
		assert_int_equal(end_do(&end, opcodes[i], 64), HDL_WC_REM_ACCESS_ERR);
		assert_int_equal(write(child.talk, "d", 1), 1);
		assert_int_equal(read(child.talk, &said, 1), 1);
		assert_int_equal(said, 's');
		for (size_t k = 0; k < BYTES; k++)
			assert_int_equal(end.room[k], byte_at(k));
		end_close(&end);
		child_kill(&child);
	}
}

/* --- pages --- */

static long status_kib(const char *name)
{
	char line[256];
	long value = -1;
	FILE *file = fopen("/proc/self/status", "re");
	while (file != NULL && fgets(line, sizeof(line), file) != NULL)
		if (strncmp(line, name, strlen(name)) == 0)
			value = atol(line + strlen(name));
	if (file != NULL)
		fclose(file);
	return value;
}

/* Grants the mapping of a file, none of whose pages is mapped any more. */
static void live_without_pages(int talk, const char *node, const char *address)
{
	(void)node;
	(void)address;
	struct end end;
	struct hdl_mr *mr;
	FILE *file = tmpfile();
	end_open(&end, BYTES, 16);
	if (file == NULL || ftruncate(fileno(file), BYTES) != 0)
		_exit(4);
	unsigned char *room =
	        mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
	if (room == MAP_FAILED)
		_exit(5);
	for (size_t i = 0; i < BYTES; i++)
		room[i] = byte_at(i);
	MUST(hdl_mr_register(end.pd, room, BYTES, 0x1f, &mr));
	if (status_kib("VmLck:") != 0 || status_kib("VmPin:") != 0)
		_exit(6);
	end.mine.addr = (uint64_t)(uintptr_t)room;
	end.mine.key = hdl_mr_key(mr);
	if (msync(room, BYTES, MS_SYNC) != 0 || madvise(room, BYTES, MADV_DONTNEED) != 0)
		_exit(7);
	if (!end_meet(&end, talk, talk))
		_exit(8);
	end_connect(&end);
	if (write(talk, "r", 1) != 1)
		_exit(9);
	pause();
}

static void sn8_pages_come_back_when_a_peer_asks(void **state)
{
	(void)state;
	struct child child = child_start(live_without_pages, NULL, NULL);
	struct end end;
	char said;
	end_open(&end, BYTES, 16);
	assert_true(end_meet(&end, child.talk, child.talk));
	end_connect(&end);
	assert_int_equal(read(child.talk, &said, 1), 1);
	memset(end.room, 0, BYTES);
	end_must(&end, HDL_OP_READ, BYTES);
	for (size_t i = 0; i < BYTES; i++)
		assert_int_equal(end.room[i], byte_at(i));
	end_close(&end);
	child_kill(&child);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(sn8_a_key_of_another_process_opens_nothing),
	        cmocka_unit_test(sn8_pages_come_back_when_a_peer_asks),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
