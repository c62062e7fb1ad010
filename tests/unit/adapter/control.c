/* The control blocks of apertures, between two adapters of one process (AP6, APERTURE columns 16
 * and 17): what is stored to the pages of the application is what counts, without a call, and
 * nothing can be stored to the pages that say what an aperture offers and to whom. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <heddle/control.h>
#include <heddle/eventq.h>

#include "adapter/adapter.h"
#include "adapter/aperture/aperture.h"
#include "base/memfile.h"

#define PORT  77u
#define WAIT  20000
#define BYTES 4096u
#define NONCE 0x1122334455667788ull
#define FIRST 0xfffffffbu

/* --- a system without memory files for rows --- */

static bool no_files;
int __real_memfile_make(const char *name, uint64_t bytes);
int __wrap_memfile_make(const char *name, uint64_t bytes);
int __wrap_memfile_make(const char *name, uint64_t bytes)
{
	if (no_files && strcmp(name, "heddle-apertures") == 0) {
		errno = ENOSYS;
		return -1;
	}
	return __real_memfile_make(name, bytes);
}

/* --- two ends --- */

struct end {
	struct hdl_adapter *adapter;
	struct hdl_gid gid;
	struct hdl_port *port;
	struct hdl_eventq *events;
	struct hdl_aperture *aperture;
	struct hdl_aperture_user *user;
	const struct hdl_aperture_fixed *fixed;
};

struct pair {
	struct end a, b;
	struct hdl_aperture *second; /* of b, too */
};

static void end_open(struct end *end, uint16_t port)
{
	struct hdl_limits limits;
	struct hdl_port_attr attr = {.port = port};
	assert_int_equal(hdl_open(NULL, &end->adapter), 0);
	assert_int_equal(hdl_adapter_query(end->adapter, &limits), 0);
	end->gid = limits.gid;
	assert_int_equal(hdl_port_open(end->adapter, &attr, &end->port), 0);
	assert_int_equal(hdl_eventq_open(end->port, NULL, &end->events), 0);
}

static void end_close(struct end *end)
{
	if (end->aperture != NULL)
		assert_int_equal(hdl_aperture_free(end->aperture), 0);
	assert_int_equal(hdl_eventq_close(end->events), 0);
	assert_int_equal(hdl_port_close(end->port), 0);
	assert_int_equal(hdl_close(end->adapter), 0);
}

static void end_make(struct end *end, struct hdl_aperture_attr attr)
{
	attr.port = end->port;
	assert_int_equal(hdl_aperture_open(end->adapter, &attr, &end->aperture), 0);
	assert_int_equal(hdl_aperture_control(end->aperture, &end->user, &end->fixed), 0);
}

static int pair_open(void **state)
{
	struct pair *p = calloc(1, sizeof(*p));
	end_open(&p->a, PORT + 1);
	end_open(&p->b, PORT);
	assert_int_equal(hdl_join(p->a.adapter, p->b.adapter), 0);
	*state = p;
	return 0;
}

static int pair_close(void **state)
{
	struct pair *p = *state;
	if (p->second != NULL)
		assert_int_equal(hdl_aperture_free(p->second), 0);
	end_close(&p->a);
	end_close(&p->b);
	free(p);
	return 0;
}

static void pair_connect(struct pair *p)
{
	assert_int_equal(hdl_aperture_connect(p->a.aperture, &p->b.gid, PORT, 0), -HDL_EAGAIN);
	assert_int_equal(hdl_aperture_accept(p->b.aperture, p->b.port, 0, NULL, WAIT), 0);
	assert_int_equal(hdl_aperture_wait(p->a.aperture, WAIT), 0);
}

static void store_nonce(struct end *end, uint64_t nonce)
{
	__atomic_store_n(&end->user->nonce, nonce, __ATOMIC_RELAXED);
}

static void aim(struct end *end, const struct hdl_aperture_target *target)
{
	end->user->target = *target;
	__atomic_store_n(&end->user->generation, end->user->generation + 1, __ATOMIC_RELEASE);
}

static uint64_t counter(const struct end *end, enum hdl_aperture_counter which)
{
	struct hdl_counter list[HDL_APERTURE_COUNTER_COUNT];
	assert_int_equal(hdl_aperture_counters(end->adapter, list, HDL_APERTURE_COUNTER_COUNT),
	                 HDL_APERTURE_COUNTER_COUNT);
	return list[which].value;
}

static char byte_of(const struct end *end, size_t at)
{
	return ((const volatile char *)hdl_aperture_memory(end->aperture, NULL))[at];
}

/* Until @end has refused more packets than @before. */
static void await_refused(const struct end *end, enum hdl_aperture_counter which, uint64_t before)
{
	for (int i = 0; i < WAIT && counter(end, which) == before; i++) {
		hdl_progress(end->adapter);
		usleep(100);
	}
	assert_true(counter(end, which) > before);
}

/* --- numbers --- */

static void ap6_own_numbers_are_offered(void **state)
{
	struct pair *p = *state;
	end_make(&p->a, (struct hdl_aperture_attr){.length = BYTES});
	end_make(&p->b, (struct hdl_aperture_attr){.length = BYTES});
	uint64_t drawn = p->a.user->nonce;
	assert_int_not_equal(drawn, 0);
	store_nonce(&p->a, NONCE);
	p->a.user->sequence = FIRST;
	store_nonce(&p->b, NONCE + 1);
	p->b.user->sequence = FIRST - 1;
	pair_connect(p);
	/* What CONNECT and ACCEPT said, as the other end heard it. */
	const struct ci_offer *connect = &p->b.aperture->conn.peer;
	const struct ci_offer *accept = &p->a.aperture->conn.peer;
	assert_true(connect->nonce == NONCE && connect->sequence == FIRST);
	assert_true(accept->nonce == NONCE + 1 && accept->sequence == FIRST - 1);
	assert_true(p->a.user->nonce == NONCE && p->a.user->sequence == FIRST);
	for (int i = 0; i < 10; i++) /* across the wrap of the number */
		assert_int_equal(hdl_aperture_store(p->a.aperture, (uint64_t)i, "x", 1, WAIT), 0);
	assert_int_equal(hdl_aperture_flush(p->a.aperture, HDL_FLUSH_PLACED, WAIT), 0);
	assert_int_equal(byte_of(&p->b, 9), 'x');
	/* They are used up: the next connection has others. */
	assert_int_equal(hdl_aperture_close(p->a.aperture, WAIT), 0);
	assert_int_equal(hdl_aperture_wait(p->b.aperture, WAIT), -HDL_EPERM);
	pair_connect(p);
	assert_true(connect->nonce != NONCE && connect->nonce != drawn);
	assert_true(connect->nonce == p->a.user->nonce && connect->nonce != 0);
	assert_int_not_equal(connect->sequence, FIRST);
	/* So has one by rule; the numbers of an offer are those of before it. */
	assert_int_equal(hdl_aperture_close(p->a.aperture, WAIT), 0);
	assert_int_equal(hdl_aperture_wait(p->b.aperture, WAIT), -HDL_EPERM);
	struct hdl_port_rule rule = {.action = HDL_RULE_ACCEPT};
	assert_int_equal(hdl_port_rules(p->b.port, &rule, 1), 0);
	store_nonce(&p->b, NONCE + 2);
	assert_int_equal(hdl_port_offer(p->b.port, p->b.aperture, NULL), 0);
	assert_int_equal(p->b.fixed->state, HDL_APERTURE_OFFERED);
	store_nonce(&p->a, 0);
	assert_int_equal(hdl_aperture_connect(p->a.aperture, &p->b.gid, PORT, WAIT), 0);
	assert_int_equal(accept->nonce, NONCE + 2);
	assert_int_not_equal(connect->nonce, 0);
}

/* A packet with the former nonce is refused, and nothing is lost: the sender repeats it until the
 * nonce is right again. */
static void stored_nonce(struct pair *p, uint64_t nonce)
{
	uint64_t before = counter(&p->b, HDL_APERTURE_COUNTER_BAD_NONCE), right = p->b.user->nonce;
	char now = byte_of(&p->b, 7), next = (char)(now + 1);
	store_nonce(&p->b, nonce);
	assert_int_equal(hdl_aperture_store(p->a.aperture, 7, &next, 1, WAIT), 0);
	await_refused(&p->b, HDL_APERTURE_COUNTER_BAD_NONCE, before);
	assert_int_equal(byte_of(&p->b, 7), now);
	store_nonce(&p->b, right);
	assert_int_equal(hdl_aperture_flush(p->a.aperture, HDL_FLUSH_PLACED, WAIT), 0);
	assert_int_equal(byte_of(&p->b, 7), next);
	assert_int_equal(p->b.fixed->state, HDL_APERTURE_OPEN);
}

static void ap6_a_stored_nonce_counts_immediately(void **state)
{
	struct pair *p = *state;
	end_make(&p->a, (struct hdl_aperture_attr){.length = BYTES});
	end_make(&p->b, (struct hdl_aperture_attr){.length = BYTES});
	pair_connect(p);
	stored_nonce(p, NONCE);
	stored_nonce(p, 0);
}

static void ap6_a_nonce_rolls_from_what_is_stored(void **state)
{
	struct pair *p = *state;
	end_make(&p->a, (struct hdl_aperture_attr){.length = BYTES});
	end_make(&p->b,
	         (struct hdl_aperture_attr){.length = BYTES, .nonce_every = 3, .nonce_step = 9});
	store_nonce(&p->b, NONCE);
	pair_connect(p);
	for (unsigned i = 0; i < 3; i++) {
		for (unsigned j = 0; j < 10; j++)
			assert_int_equal(hdl_aperture_store(p->a.aperture, j, "r", 1, WAIT), 0);
		assert_int_equal(hdl_aperture_flush(p->a.aperture, HDL_FLUSH_PLACED, WAIT), 0);
		assert_int_equal(p->b.user->nonce, NONCE);
		stored_nonce(p, NONCE + 1);
	}
	assert_true(p->b.fixed->expected - p->b.user->sequence > 30);
}

/* --- pages that can only be read --- */

static sigjmp_buf after_fault;
static int fault_code;

static void on_fault(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	fault_code = info->si_code;
	siglongjmp(after_fault, 1);
}

/* Does a store to @byte fault because the page cannot be written? */
static bool is_protected(const void *byte)
{
	struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO}, before;
	volatile unsigned char *at = (volatile unsigned char *)(uintptr_t)byte;
	assert_int_equal(sigaction(SIGSEGV, &action, &before), 0);
	fault_code = 0;
	if (sigsetjmp(after_fault, 1) == 0)
		*at = (unsigned char)(*at ^ 1);
	assert_int_equal(sigaction(SIGSEGV, &before, NULL), 0);
	return fault_code == SEGV_ACCERR;
}

static void ap6_base_and_source_can_only_be_read(void **state)
{
	struct pair *p = *state;
	end_make(&p->a, (struct hdl_aperture_attr){.length = BYTES});
	end_make(&p->b, (struct hdl_aperture_attr){.length = BYTES});
	pair_connect(p);
	const struct hdl_aperture_fixed *fixed = p->b.fixed, before = *fixed;
	const void *fields[] = {&fixed->base,     &fixed->source,
	                        &fixed->mask,     &fixed->checks,
	                        &fixed->key,      &fixed->link,
	                        &fixed->length,   &fixed->connected,
	                        &fixed->expected, &fixed->generation,
	                        &fixed->host,     &fixed->reserved[sizeof(fixed->reserved) - 1]};
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		assert_true(is_protected(fields[i]));
	assert_memory_equal(fixed, &before, sizeof(before));
	assert_false(is_protected(&p->b.user->reserved));
	assert_int_equal(hdl_aperture_store(p->a.aperture, 0, "s", 1, WAIT), 0);
	assert_int_equal(hdl_aperture_flush(p->a.aperture, HDL_FLUSH_PLACED, WAIT), 0);
	assert_int_equal(byte_of(&p->b, 0), 's');
	assert_int_equal(fixed->expected, before.expected + 1);
	/* These are the fields that packets are checked by: the adapter's own store shows here, and
	 * counts. */
	uint64_t refused = counter(&p->b, HDL_APERTURE_COUNTER_BAD_SOURCE);
	p->b.aperture->conn.in->source.raw[3] ^= 1;
	assert_int_not_equal(fixed->source.raw[3], before.source.raw[3]);
	assert_int_equal(hdl_aperture_store(p->a.aperture, 0, "t", 1, WAIT), 0);
	await_refused(&p->b, HDL_APERTURE_COUNTER_BAD_SOURCE, refused);
	assert_int_equal(byte_of(&p->b, 0), 's');
	p->b.aperture->conn.in->source.raw[3] ^= 1;
	assert_int_equal(hdl_aperture_flush(p->a.aperture, HDL_FLUSH_PLACED, WAIT), 0);
}

static void ap6_the_page_shows_what_is_in_use(void **state)
{
	struct pair *p = *state;
	static char memory[5000];
	end_make(&p->a, (struct hdl_aperture_attr){.length = BYTES});
	end_make(&p->b, (struct hdl_aperture_attr){.memory = memory,
	                                           .length = sizeof(memory),
	                                           .access = HDL_ACCESS_REMOTE_WRITE});
	const struct hdl_aperture_fixed *fixed = p->b.fixed;
	struct hdl_aperture_target own;
	assert_int_equal(hdl_aperture_own(p->b.aperture, &own), 0);
	assert_int_equal(fixed->index, own.index);
	assert_int_equal(p->b.user->nonce, own.nonce);
	assert_int_equal(fixed->base, (uintptr_t)memory);
	assert_true(fixed->length == sizeof(memory) && fixed->granted == sizeof(memory));
	assert_true(fixed->bits == 13 && fixed->type == HDL_APERTURE_DATA);
	assert_true(fixed->checks == HDL_CHECK_DEFAULT && !fixed->connected);
	assert_int_equal(fixed->access, HDL_ACCESS_REMOTE_WRITE);
	assert_memory_equal(&fixed->host, &p->b.gid, sizeof(p->b.gid));
	assert_int_equal(fixed->state, HDL_APERTURE_CLOSED);
	assert_int_equal(hdl_aperture_narrow(p->b.aperture, 100, 50), 0);
	assert_true(fixed->first == 100 && fixed->granted == 50 && fixed->length == sizeof(memory));
	pair_connect(p);
	assert_true(fixed->state == HDL_APERTURE_OPEN && fixed->connected);
	assert_memory_equal(&fixed->source, &p->a.gid, sizeof(p->a.gid));
	for (size_t i = 0; i < 16; i++)
		assert_int_equal(fixed->mask.raw[i], 0xff);
	uint32_t next = p->a.fixed->next;
	assert_int_equal(next, fixed->expected);
	assert_int_equal(hdl_aperture_store(p->a.aperture, 100, "n", 1, WAIT), 0);
	assert_int_equal(p->a.fixed->next, next + 1);
	assert_int_equal(hdl_aperture_close(p->b.aperture, WAIT), 0);
	assert_true(fixed->state == HDL_APERTURE_CLOSED && !fixed->connected);
	assert_int_equal(hdl_aperture_control(p->b.aperture, NULL, NULL), 0);
	assert_int_equal(hdl_aperture_control(NULL, &p->b.user, NULL), -HDL_EINVAL);
}

/* What a child stored would be stored in its parent. */
static void ap6_a_child_has_no_control_block(void **state)
{
	struct pair *p = *state;
	end_make(&p->a, (struct hdl_aperture_attr){.length = BYTES});
	for (int part = 0; part < 2; part++) {
		int status;
		pid_t child = fork();
		assert_true(child >= 0);
		if (child == 0) {
			signal(SIGSEGV, SIG_DFL);
			(void)*(part == 0 ? (volatile const uint32_t *)&p->a.fixed->index
			                  : (volatile const uint32_t *)&p->a.user->sequence);
			_exit(0);
		}
		assert_int_equal(waitpid(child, &status, 0), child);
		/* A sanitizer ends it in its own way. */
		assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
}

static void ap6_without_memory_files_nothing_is_protected(void **state)
{
	(void)state;
	struct pair *p = NULL;
	no_files = true;
	pair_open((void **)&p);
	end_make(&p->a, (struct hdl_aperture_attr){.length = BYTES});
	end_make(&p->b, (struct hdl_aperture_attr){.length = BYTES});
	pair_connect(p);
	stored_nonce(p, NONCE);
	assert_ptr_equal(p->b.fixed, p->b.aperture->conn.in);
	pair_close((void **)&p);
	no_files = false;
}

/* --- destinations --- */

static void pump(struct pair *p, const struct end *end, size_t at, char value)
{
	for (int i = 0; i < WAIT && byte_of(end, at) != value; i++) {
		hdl_progress(p->b.adapter);
		hdl_progress(p->a.adapter);
	}
	assert_int_equal(byte_of(end, at), value);
}

/* Between two entries of b that are open to everybody who has their nonce. */
static void ap6_pointed_by_stores(void **state)
{
	struct pair *p = *state;
	struct hdl_aperture_attr open = {.length = BYTES,
	                                 .checks = HDL_CHECK_NONCE | HDL_CHECK_EXTENT};
	struct hdl_aperture_target targets[2];
	struct end second = p->b;
	char in[4];
	end_make(&p->a, open);
	end_make(&p->b, open);
	end_make(&second, open);
	p->second = second.aperture;
	assert_int_equal(hdl_aperture_own(p->b.aperture, &targets[0]), 0);
	assert_int_equal(hdl_aperture_own(second.aperture, &targets[1]), 0);
	aim(&p->a, &targets[0]);
	assert_int_equal(p->a.fixed->generation, p->a.user->generation - 1);
	assert_int_equal(hdl_aperture_store(p->a.aperture, 0, "a", 1, WAIT), 0);
	assert_int_equal(p->a.fixed->generation, p->a.user->generation);
	aim(&p->a, &targets[1]);
	assert_int_equal(hdl_aperture_flush(p->a.aperture, HDL_FLUSH_SENT, WAIT), 0);
	assert_int_equal(p->a.fixed->generation, p->a.user->generation);
	assert_int_equal(hdl_aperture_store(p->a.aperture, 1, "b", 1, WAIT), 0);
	aim(&p->a, &targets[0]);
	assert_int_equal(hdl_aperture_event(p->a.aperture, 5, "e", 1, WAIT), 0);
	assert_int_equal(p->a.fixed->generation, p->a.user->generation);
	aim(&p->a, &targets[1]);
	/* It answers where its own outgoing side leads, which is nowhere. */
	assert_int_equal(hdl_aperture_read(p->a.aperture, 0, in, 1, 1), -HDL_ETIMEDOUT);
	assert_int_equal(hdl_aperture_store(p->a.aperture, 3, "d", 1, WAIT), 0);
	pump(p, &second, 3, 'd');
	pump(p, &p->b, 0, 'a');
	assert_memory_equal(hdl_aperture_memory(p->b.aperture, NULL), "a\0\0\0", 4);
	assert_memory_equal(hdl_aperture_memory(second.aperture, NULL), "\0b\0d", 4);
	struct hdl_port_event event;
	assert_int_equal(hdl_eventq_take(p->b.events, &event, 1), 1);
	assert_true(event.type == HDL_PORT_DATA && event.index == targets[0].index);
	/* A nonce that is stored opens the entry to those who have it, and to nobody else. */
	uint64_t before = counter(&p->b, HDL_APERTURE_COUNTER_BAD_NONCE);
	store_nonce(&second, NONCE);
	assert_int_equal(hdl_aperture_store(p->a.aperture, 2, "!", 1, WAIT), 0);
	await_refused(&p->b, HDL_APERTURE_COUNTER_BAD_NONCE, before);
	targets[1].nonce = NONCE;
	aim(&p->a, &targets[1]);
	assert_int_equal(hdl_aperture_store(p->a.aperture, 4, "n", 1, WAIT), 0);
	pump(p, &second, 4, 'n');
	assert_int_equal(byte_of(&second, 2), 0);
}

/* A destination that leads nowhere: an event and an error, and nothing goes to the former one. */
static void ap6_a_stored_destination_that_is_not_there(void **state)
{
	struct pair *p = *state;
	struct hdl_aperture_target target, nowhere;
	struct hdl_port_event event;
	end_make(&p->a, (struct hdl_aperture_attr){.length = BYTES});
	end_make(&p->b, (struct hdl_aperture_attr){.length = BYTES});
	pair_connect(p);
	assert_int_equal(hdl_eventq_take(p->a.events, &event, 1), 1);
	assert_int_equal(event.type, HDL_PORT_ACCEPT);
	assert_int_equal(hdl_aperture_own(p->b.aperture, &target), 0);
	nowhere = target;
	memset(&nowhere.host, 0x77, sizeof(nowhere.host));
	aim(&p->a, &nowhere);
	assert_int_equal(hdl_aperture_store(p->a.aperture, 0, "x", 1, WAIT), -HDL_EPERM);
	assert_int_equal(hdl_aperture_check(p->a.aperture), -HDL_EIO);
	assert_int_equal(hdl_aperture_reason(p->a.aperture), HDL_REASON_CARRIER);
	assert_int_equal(hdl_eventq_take(p->a.events, &event, 1), 1);
	assert_true(event.type == HDL_PORT_ERROR && event.status == -HDL_EHOSTUNREACH);
	assert_int_equal(p->a.fixed->generation, p->a.user->generation);
	assert_int_equal(p->a.fixed->state, HDL_APERTURE_CLOSED);
	for (int i = 0; i < WAIT && p->b.fixed->state == HDL_APERTURE_OPEN; i++)
		hdl_progress(p->b.adapter);
	assert_int_equal(hdl_aperture_reason(p->b.aperture), HDL_REASON_CLOSED); /* it was told */
	assert_int_equal(byte_of(&p->b, 0), 0);
	/* The call is judged in the same way, and a set-up comes behind what was stored. */
	assert_int_equal(hdl_aperture_point(p->a.aperture, &nowhere), -HDL_EHOSTUNREACH);
	aim(&p->a, &target);
	pair_connect(p);
	assert_int_equal(hdl_aperture_store(p->a.aperture, 0, "y", 1, WAIT), 0);
	assert_int_equal(hdl_aperture_flush(p->a.aperture, HDL_FLUSH_PLACED, WAIT), 0);
	assert_int_equal(byte_of(&p->b, 0), 'y');
	/* hdl_aperture_check() looks as well. */
	aim(&p->a, &nowhere);
	assert_int_equal(hdl_aperture_check(p->a.aperture), -HDL_EIO);
}

/* What waits for room does not go to the former peer, and no call is needed for that. */
static void ap6_nothing_more_is_sent_to_the_former_peer(void **state)
{
	struct pair *p = *state;
	struct hdl_aperture_target nowhere = {.host.raw = {0x77}};
	unsigned stored = 0, arrived = 0;
	end_make(&p->a, (struct hdl_aperture_attr){.length = BYTES});
	end_make(&p->b, (struct hdl_aperture_attr){.length = BYTES});
	pair_connect(p);
	while (hdl_aperture_store(p->a.aperture, stored, "w", 1, 0) == 0)
		stored++;
	assert_true(stored > 100 && stored < BYTES);
	aim(&p->a, &nowhere);
	for (int i = 0; i < 1000; i++) {
		hdl_progress(p->b.adapter);
		hdl_progress(p->a.adapter);
	}
	assert_int_equal(p->a.fixed->generation, p->a.user->generation);
	for (unsigned i = 0; i < stored; i++)
		arrived += byte_of(&p->b, i) == 'w';
	assert_true(arrived > 0 && arrived < stored);
}

/* Who may not store to a control block is not looked at in each collection. */
static void ap6_a_block_that_is_refused_is_not_watched(void **state)
{
	struct end *end = &((struct pair *)*state)->a;
	struct apertures *apertures;
	assert_int_equal(hdl_aperture_open(end->adapter,
	                                   &(struct hdl_aperture_attr){.length = BYTES},
	                                   &end->aperture),
	                 0);
	apertures = end->adapter->apertures;
	apertures->trust = HDL_TRUST_NONE;
	assert_int_equal(hdl_aperture_control(end->aperture, &end->user, NULL), -HDL_EACCES);
	assert_false(end->aperture->controlled);
	apertures->trust = HDL_TRUST_USER;
	assert_int_equal(hdl_aperture_control(end->aperture, &end->user, NULL), 0);
	assert_true(end->aperture->controlled);
}

/* --- turns --- */

/* While a write is stalled, frames are held: not more than there is room for, however short. */
static void ap4_short_frames_that_are_held_have_a_limit(void **state)
{
	struct end *end = &((struct pair *)*state)->b;
	struct ap_path from = {.route = 0};
	end_make(end, (struct hdl_aperture_attr){.length = BYTES});
	struct apertures *apertures = end->adapter->apertures;
	adapter_lock(end->adapter);
	apertures->node.stalled = true;
	apertures_take_in(apertures, (const uint8_t *)"", 0, &from);
	bool nothing = apertures->held == NULL;
	for (size_t i = 0; i <= APERTURE_HELD_BYTES / sizeof(from); i++)
		apertures_take_in(apertures, (const uint8_t *)"x", 1, &from);
	size_t before = apertures->held_bytes;
	apertures_take_in(apertures, (const uint8_t *)"x", 1, &from);
	size_t after = apertures->held_bytes;
	apertures->node.stalled = false;
	apertures_drop_held(apertures);
	adapter_unlock(end->adapter);
	assert_true(nothing);
	assert_true(before <= APERTURE_HELD_BYTES);
	assert_int_equal(after, before);
}

/* What comes with a budget counts for one turn: the next drive begins another. */
static void ap4_a_frame_ends_the_rest_of_an_idle_port(void **state)
{
	struct end *end = &((struct pair *)*state)->b;
	struct ap_path from = {.route = 0};
	end_make(end, (struct hdl_aperture_attr){.length = BYTES});
	struct apertures *apertures = end->adapter->apertures;
	assert_int_equal(hdl_aperture_budget(end->adapter, 100), 0);
	adapter_lock(end->adapter);
	apertures->port.skip = PORT_LONG_SKIP;
	apertures_take_in(apertures, (const uint8_t *)"x", 1, &from);
	unsigned skip = apertures->port.skip;
	adapter_unlock(end->adapter);
	assert_int_equal(skip, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, pair_open, pair_close)

int main(void)
{
	const struct CMUnitTest all[] = {
	        TEST(ap6_own_numbers_are_offered),
	        TEST(ap6_a_stored_nonce_counts_immediately),
	        TEST(ap6_a_nonce_rolls_from_what_is_stored),
	        TEST(ap6_base_and_source_can_only_be_read),
	        TEST(ap6_the_page_shows_what_is_in_use),
	        TEST(ap6_a_child_has_no_control_block),
	        cmocka_unit_test(ap6_without_memory_files_nothing_is_protected),
	        TEST(ap6_pointed_by_stores),
	        TEST(ap6_a_stored_destination_that_is_not_there),
	        TEST(ap6_nothing_more_is_sent_to_the_former_peer),
	        TEST(ap6_a_block_that_is_refused_is_not_watched),
	        TEST(ap4_short_frames_that_are_held_have_a_limit),
	        TEST(ap4_a_frame_ends_the_rest_of_an_idle_port),
	};
	return cmocka_run_group_tests(all, NULL, NULL);
}
