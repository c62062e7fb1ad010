/* Thousands of connected queue pairs of one program that may have 1,024 open files (SN1; SAN figure
 * 2, MEMMGT column 7): each of them is there, and writes where it should. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "end.h"

#define MANY  4096u
#define PAGE  4096u
#define PAGES 65536u

static void make_queue_pairs(struct end *end, struct hdl_qp *out[MANY])
{
	for (uint32_t i = 0; i < MANY; i++) {
		struct hdl_qp_init_attr init = {.type = HDL_QP_RC,
		                                .send_cq = end->cq,
		                                .recv_cq = end->cq,
		                                .cap = {2, 2 * END_RECEIVES, 1, 1, 0}};
		MUST(hdl_qp_create(end->pd, &init, &out[i]));
	}
}

static void sn1_thousands_of_queue_pairs(void **state)
{
	(void)state;
	static struct hdl_qp *here[MANY], *there[MANY];
	const struct rlimit files = {1024, 1024};
	struct end a, b;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
	end_open(&a, MANY * 8, 16);
	end_open(&b, MANY * 8, 16);
	struct hdl_qp *first[2] = {a.qp, b.qp};
	make_queue_pairs(&a, here);
	make_queue_pairs(&b, there);
	a.peer = b.mine;
	b.peer = a.mine;
	for (uint32_t i = 0; i < MANY; i++) {
		a.qp = here[i];
		b.qp = there[i];
		a.peer.qpn = hdl_qp_number(b.qp);
		b.peer.qpn = hdl_qp_number(a.qp);
		end_connect(&a);
		end_connect(&b);
	}
	for (uint32_t i = MANY; i-- > 0;) { /* all at once are connected now */
		uint64_t word = 0x0102030405060708u * (i + 1);
		memcpy(a.room, &word, sizeof(word));
		a.qp = here[i];
		a.peer.addr = b.mine.addr + 8u * i;
		end_must(&a, HDL_OP_WRITE, 8);
	}
	for (uint32_t i = 0; i < MANY; i++) {
		uint64_t word;
		memcpy(&word, b.room + 8u * i, sizeof(word));
		assert_int_equal(word, 0x0102030405060708u * (i + 1));
		MUST(hdl_qp_destroy(here[i]));
		MUST(hdl_qp_destroy(there[i]));
	}
	a.qp = first[0];
	b.qp = first[1];
	end_close(&a);
	end_close(&b);
}

static long resident_kib(void)
{
	char line[128];
	long kib = 0;
	FILE *file = fopen("/proc/self/status", "re");
	while (file != NULL && fgets(line, sizeof(line), file) != NULL)
		if (strncmp(line, "VmRSS:", 6) == 0)
			kib = atol(line + 6);
	if (file != NULL)
		fclose(file);
	return kib;
}

/* SAN figure 17, 604: what the queue pairs of a process have in common is stored once. Here that is
 * a region with a list of 64 Ki pages, whose table alone has half a MiB. */
static void sn8_what_queue_pairs_share_is_stored_once(void **state)
{
	(void)state;
	static struct hdl_qp *all[MANY];
	static uint64_t pages[PAGES];
	struct end end;
	struct hdl_mr *mr;
	end_open(&end, 2 * PAGE, 16);
	uint64_t first = (end.mine.addr + PAGE - 1) / PAGE * PAGE;
	for (uint32_t i = 0; i < PAGES; i++)
		pages[i] = first;
	struct hdl_register list = {.pages = pages,
	                            .num_pages = PAGES,
	                            .page_shift = 12,
	                            .length = (uint64_t)PAGES * PAGE,
	                            .access = 0x1f};
	long empty = resident_kib();
	MUST(hdl_mr_register_pages(end.pd, &list, &mr));
	long table = resident_kib() - empty;
	assert_true(table >= PAGES * 8 / 1024);
	long before = resident_kib();
	make_queue_pairs(&end, all);
	long each = (resident_kib() - before) * 1024 / MANY;
	print_message("%ld bytes per queue pair, %ld KiB of table\n", each, table);
	assert_true(each < 64 * 1024);
	for (uint32_t i = 0; i < MANY; i++)
		MUST(hdl_qp_destroy(all[i]));
	MUST(hdl_mr_deregister(mr));
	end_close(&end);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(sn1_thousands_of_queue_pairs),
	        cmocka_unit_test(sn8_what_queue_pairs_share_is_stored_once),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
