/* Thousands of connected queue pairs of one program that may have 1,024 open files (SN1; SAN figure
 * 2, MEMMGT column 7): each of them is there, and writes where it should. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "end.h"

#define MANY 4096u

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

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(sn1_thousands_of_queue_pairs),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
