/* Apertures between two processes: on one host through lanes, over UDP on the loopback
 * (HEDDLE_LOCAL=off), or between two addresses. The first argument is the part:
 *
 *   serve               offer memory at a port, print it, check what comes, until the peer closes
 *   use GID PORT        connect, store, read, store to the mapped range, close
 *   stay GID PORT       connect and wait for the end; print why
 *   flood GID PORT      the same, and store all the time
 *   keep                offer memory twice at a port, print it, and stay
 *   again GID PORT      connect and wait for the end, twice; print why
 *   watch GID PORT      connect; then each line of the input is an order: "store BYTES", "placed"
 *                       (print whether all has arrived), "error" (print the next error)
 *   ip GID PORT OWN     store a datagram to an IP aperture
 *   hear OWN GID BITS   print datagrams to an IP aperture from sources that match, until "end"
 *   link                print whether the link address of a sender can be checked
 *   trust               print whether we are trusted, and whether we may point an aperture
 *   none                serve and use, as processes of their own
 *
 * With APERTURE_LINK, both ends check the link address of each packet's sender. */
#include <arpa/inet.h>
#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <heddle/aperture.h>
#include <heddle/eventq.h>

#define BYTES 65536u
#define WAIT  20000

#define must(call) must_be_zero((call), #call, __LINE__)
static void must_be_zero(int result, const char *what, int line)
{
	if (result == 0)
		return;
	fprintf(stderr, "line %d: %s: %s\n", line, what, hdl_strerror(-result));
	exit(1);
}

static uint32_t checks(void)
{
	return HDL_CHECK_DEFAULT | (getenv("APERTURE_LINK") != NULL ? HDL_CHECK_LINK : 0u);
}

static struct hdl_adapter *open_adapter(void)
{
	struct hdl_open_attr attr = {.on_node = true};
	struct hdl_adapter *adapter;
	must(hdl_open(&attr, &adapter));
	return adapter;
}

static void print_counters(struct hdl_adapter *adapter, const char *who)
{
	struct hdl_counter list[HDL_APERTURE_COUNTER_COUNT];
	hdl_aperture_counters(adapter, list, HDL_APERTURE_COUNTER_COUNT);
	printf("%s:", who);
	for (unsigned i = 0; i < HDL_APERTURE_COUNTER_COUNT; i++)
		if (list[i].value > 0)
			printf(" %s %llu", list[i].name, (unsigned long long)list[i].value);
	printf("\n");
	fflush(stdout);
}

static int serve(int tell)
{
	struct hdl_adapter *adapter = open_adapter();
	struct hdl_limits limits;
	struct hdl_port *port;
	struct hdl_aperture *aperture;
	struct hdl_aperture_attr attr = {.length = BYTES, .checks = checks()};
	char text[INET6_ADDRSTRLEN];
	must(hdl_adapter_query(adapter, &limits));
	must(hdl_port_open(adapter, NULL, &port));
	must(hdl_aperture_open(adapter, &attr, &aperture));
	inet_ntop(AF_INET6, limits.gid.raw, text, sizeof(text));
	dprintf(tell, "%s %u\n", text, hdl_port_number(port));
	must(hdl_aperture_accept(aperture, port, 0, NULL, WAIT));
	/* The peer stores its pattern, reads it, then a mark; we answer with one. */
	volatile uint8_t *memory = hdl_aperture_memory(aperture, NULL);
	time_t end = time(NULL) + 60;
	while (memory[BYTES - 1] != 0xa5 && time(NULL) < end)
		(void)hdl_progress(adapter);
	if (memory[BYTES - 1] != 0xa5) {
		fprintf(stderr, "the mark never came\n");
		return 1;
	}
	for (uint32_t i = 0; i < BYTES - 1; i++)
		if (memory[i] != (uint8_t)(i * 13)) {
			fprintf(stderr, "byte %u is %u\n", i, memory[i]);
			return 1;
		}
	must(hdl_aperture_store(aperture, 9, "seen", 4, WAIT));
	/* The peer may close as soon as it sees this. */
	for (int i = 0; i < WAIT && hdl_aperture_state(aperture) == HDL_APERTURE_OPEN; i++)
		usleep(1000);
	if (hdl_aperture_reason(aperture) != HDL_REASON_CLOSED) {
		fprintf(stderr, "ended: %s\n",
		        hdl_aperture_reason_str(hdl_aperture_reason(aperture)));
		return 1;
	}
	print_counters(adapter, "server");
	must(hdl_aperture_free(aperture));
	must(hdl_port_close(port));
	must(hdl_close(adapter));
	return 0;
}

static int use(const char *gid_text, uint16_t number)
{
	struct hdl_adapter *adapter = open_adapter();
	struct hdl_aperture *aperture, *other;
	struct hdl_aperture_attr attr = {.length = 4096, .checks = checks()};
	struct hdl_port_status status;
	struct hdl_gid gid;
	static uint8_t out[BYTES], in[BYTES];
	assert(inet_pton(AF_INET6, gid_text, gid.raw) == 1);
	must(hdl_aperture_open(adapter, &attr, &aperture));
	must(hdl_aperture_open(adapter, NULL, &other));
	must(hdl_port_status(adapter, &gid, number, &status, WAIT));
	must(hdl_aperture_connect(aperture, &gid, number, WAIT));
	if (hdl_aperture_connect(other, &gid, 1, WAIT) != -HDL_ECONNREFUSED ||
	    hdl_aperture_reason(other) != HDL_REASON_NO_PORT ||
	    hdl_port_status(adapter, &gid, 1, &status, WAIT) != -HDL_ECONNREFUSED) {
		fprintf(stderr, "port 1: %s\n",
		        hdl_aperture_reason_str(hdl_aperture_reason(other)));
		return 1;
	}
	for (uint32_t i = 0; i < BYTES; i++)
		out[i] = (uint8_t)(i * 13);
	out[BYTES - 1] = 0;
	must(hdl_aperture_store(aperture, 0, out, BYTES, WAIT));
	must(hdl_aperture_read(aperture, 0, in, BYTES, WAIT));
	if (memcmp(in, out, BYTES) != 0) {
		fprintf(stderr, "read something else\n");
		return 1;
	}
	/* An ordinary store to the mapped range, and no call: it arrives. */
	void *mapped;
	uint64_t mapped_bytes;
	must(hdl_aperture_map(aperture, 16, &mapped, &mapped_bytes));
	volatile uint8_t *range = mapped;
	if (mapped_bytes != BYTES || range[1] != 13) {
		fprintf(stderr, "the mapped range shows something else\n");
		return 1;
	}
	range[BYTES - 1] = 0xa5;
	const volatile char *answer = (char *)hdl_aperture_memory(aperture, NULL) + 9;
	time_t end = time(NULL) + 60;
	while (answer[3] != 'n' && time(NULL) < end)
		(void)hdl_progress(adapter);
	if (answer[0] != 's' || answer[3] != 'n') {
		fprintf(stderr, "no answer\n");
		return 1;
	}
	must(hdl_aperture_close(aperture, WAIT));
	print_counters(adapter, "client");
	must(hdl_aperture_free(aperture));
	must(hdl_aperture_free(other));
	must(hdl_close(adapter));
	return 0;
}

/* The peer ends without a word: how soon is it known? */
static int stay(const char *gid_text, uint16_t number, bool flood)
{
	struct hdl_adapter *adapter = open_adapter();
	struct hdl_aperture *aperture;
	struct hdl_gid gid;
	assert(inet_pton(AF_INET6, gid_text, gid.raw) == 1);
	must(hdl_aperture_open(adapter, NULL, &aperture));
	must(hdl_aperture_connect(aperture, &gid, number, WAIT));
	printf("connected\n");
	fflush(stdout);
	static const uint8_t bytes[4096];
	for (int i = 0; i < WAIT && hdl_aperture_state(aperture) == HDL_APERTURE_OPEN; i++) {
		if (flood)
			(void)hdl_aperture_store(aperture, 0, bytes, sizeof(bytes), 0);
		usleep(1000);
	}
	printf("%s\n", hdl_aperture_reason_str(hdl_aperture_reason(aperture)));
	must(hdl_aperture_free(aperture));
	must(hdl_close(adapter));
	return 0;
}

/* Accept two connections, and be there. */
_Noreturn static void keep(void)
{
	struct hdl_adapter *adapter = open_adapter();
	struct hdl_port_rule rule = {.action = HDL_RULE_ACCEPT};
	struct hdl_aperture_attr attr = {.length = BYTES};
	struct hdl_aperture *aperture;
	struct hdl_limits limits;
	struct hdl_port *port;
	char text[INET6_ADDRSTRLEN];
	must(hdl_adapter_query(adapter, &limits));
	must(hdl_port_open(adapter, NULL, &port));
	must(hdl_port_rules(port, &rule, 1));
	for (int i = 0; i < 2; i++) {
		must(hdl_aperture_open(adapter, &attr, &aperture));
		must(hdl_port_offer(port, aperture, NULL));
	}
	inet_ntop(AF_INET6, limits.gid.raw, text, sizeof(text));
	printf("%s %u\n", text, hdl_port_number(port));
	fflush(stdout);
	for (;;)
		pause();
}

/* The way to the peer is lost: it is known, and found again. */
static int again(const char *gid_text, uint16_t number)
{
	struct hdl_adapter *adapter = open_adapter();
	struct hdl_aperture *aperture;
	struct hdl_gid gid;
	assert(inet_pton(AF_INET6, gid_text, gid.raw) == 1);
	must(hdl_aperture_open(adapter, NULL, &aperture));
	for (int round = 0; round < 2; round++) {
		must(hdl_aperture_connect(aperture, &gid, number, WAIT));
		must(hdl_aperture_store(aperture, 0, "again", 5, WAIT));
		must(hdl_aperture_flush(aperture, HDL_FLUSH_PLACED, WAIT));
		printf("connected\n");
		fflush(stdout);
		while (hdl_aperture_state(aperture) == HDL_APERTURE_OPEN)
			usleep(1000);
		printf("%s\n", hdl_aperture_reason_str(hdl_aperture_reason(aperture)));
		fflush(stdout);
	}
	return 0;
}

/* Print the next error at the port: who found it, what it is, and whether the check knows it. */
static void print_error(struct hdl_aperture *aperture, struct hdl_eventq *queue)
{
	static const char *const elements[] = {[HDL_ELEMENT_RECEIVER] = "receiver",
	                                       [HDL_ELEMENT_AGENT] = "agent",
	                                       [HDL_ELEMENT_CARRIER] = "carrier",
	                                       [HDL_ELEMENT_SENDER] = "sender"};
	struct hdl_port_event event;
	do
		must(hdl_eventq_wait(queue, WAIT));
	while (hdl_eventq_take(queue, &event, 1) != 1 || event.type != HDL_PORT_ERROR);
	assert(event.value <= HDL_ELEMENT_SENDER);
	printf("%s: %s, %s\n", elements[event.value],
	       hdl_aperture_reason_str(hdl_aperture_reason(aperture)),
	       hdl_aperture_check(aperture) == -HDL_EIO ? "checked" : "unchecked");
}

static int watch(const char *gid_text, uint16_t number)
{
	struct hdl_adapter *adapter = open_adapter();
	struct hdl_aperture *aperture;
	struct hdl_port *port;
	struct hdl_eventq *queue;
	struct hdl_gid gid;
	char line[32];
	static const uint8_t bytes[4096];
	assert(inet_pton(AF_INET6, gid_text, gid.raw) == 1);
	must(hdl_port_open(adapter, NULL, &port));
	must(hdl_eventq_open(port, NULL, &queue));
	struct hdl_aperture_attr attr = {.port = port};
	must(hdl_aperture_open(adapter, &attr, &aperture));
	must(hdl_aperture_connect(aperture, &gid, number, WAIT));
	printf("connected\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin) != NULL) {
		size_t length = strncmp(line, "store ", 6) == 0 ? (size_t)atoi(line + 6) : 0;
		assert(length <= sizeof(bytes));
		if (length > 0)
			must(hdl_aperture_store(aperture, 0, bytes, length, WAIT));
		else if (strcmp(line, "placed\n") == 0)
			printf("%d\n", hdl_aperture_flush(aperture, HDL_FLUSH_PLACED, WAIT));
		else
			print_error(aperture, queue);
		fflush(stdout);
	}
	must(hdl_aperture_free(aperture));
	must(hdl_eventq_close(queue));
	must(hdl_port_close(port));
	must(hdl_close(adapter));
	return 0;
}

static int datagrams(const char *gid_text, uint16_t number, uint16_t own)
{
	struct hdl_adapter *adapter = open_adapter();
	struct hdl_aperture *aperture;
	struct hdl_gid gid;
	assert(inet_pton(AF_INET6, gid_text, gid.raw) == 1);
	must(hdl_aperture_open_ip(adapter, NULL, own, &gid, number, &aperture));
	must(hdl_aperture_store(aperture, 0, "hello, socat\n", 13, WAIT));
	must(hdl_aperture_free(aperture));
	must(hdl_close(adapter));
	return 0;
}

/* Datagrams from a program that knows nothing of Heddle come to the variable queue of the port. */
static int hear(uint16_t own, const char *gid_text, int bits)
{
	struct hdl_adapter *adapter = open_adapter();
	struct hdl_aperture *aperture;
	struct hdl_port *port;
	struct hdl_eventq *queue;
	struct hdl_eventq_attr words = {.words = 16384};
	struct hdl_aperture_attr attr = {0};
	struct hdl_port_event event;
	char data[65536] = "", text[INET6_ADDRSTRLEN];
	size_t bytes = 0;
	assert(inet_pton(AF_INET6, gid_text, attr.source.raw) == 1);
	for (int i = 0; i < bits; i++)
		attr.source_mask.raw[i / 8] |= (uint8_t)(0x80 >> i % 8);
	must(hdl_port_open(adapter, NULL, &port));
	must(hdl_eventq_open(port, &words, &queue));
	attr.port = port;
	must(hdl_aperture_open_ip(adapter, &attr, own, &attr.source, 9, &aperture));
	printf("ready\n");
	fflush(stdout);
	while (bytes != 3 || memcmp(data, "end", 3) != 0) {
		must(hdl_eventq_wait(queue, WAIT));
		while (hdl_eventq_take(queue, &event, 1) == 1) {
			assert(event.type == HDL_PORT_VAR);
			must(hdl_eventq_read(queue, &event, data, sizeof(data), &bytes));
			assert(bytes == event.value);
			inet_ntop(AF_INET6, event.source.raw, text, sizeof(text));
			unsigned sum = 0;
			for (size_t i = 0; i < bytes; i++)
				sum = sum * 31 + (uint8_t)data[i];
			printf("%s %u %zu %u\n", text, event.source_port, bytes, sum);
			fflush(stdout);
		}
	}
	print_counters(adapter, "heard");
	must(hdl_aperture_free(aperture));
	must(hdl_eventq_close(queue));
	must(hdl_port_close(port));
	must(hdl_close(adapter));
	return 0;
}

/* Only some carriers can check link addresses. The others refuse, when an aperture is opened or, in
 * the end, when it is connected to a process of this machine. */
static int link_address(void)
{
	struct hdl_adapter *adapter = open_adapter();
	struct hdl_aperture *aperture, *other;
	struct hdl_aperture_attr attr = {.length = 4096, .checks = HDL_CHECK_LINK};
	struct hdl_aperture_target target;
	struct hdl_limits limits;
	struct hdl_port *port;
	int result = hdl_aperture_open(adapter, &attr, &aperture);
	if (result != 0) {
		printf("open: %s\n", hdl_strerror(-result));
		must(hdl_close(adapter));
		return 0;
	}
	must(hdl_adapter_query(adapter, &limits));
	must(hdl_port_open(adapter, NULL, &port));
	must(hdl_aperture_open(adapter, NULL, &other));
	must(hdl_aperture_own(aperture, &target));
	result = hdl_aperture_connect(aperture, &limits.gid, hdl_port_number(port), WAIT);
	printf("connect: %s\n", hdl_strerror(-result));
	/* The other way round: it is not accepted. */
	result = hdl_aperture_connect(other, &limits.gid, hdl_port_number(port), 0);
	printf("accept: %s\n", hdl_strerror(-hdl_aperture_accept(aperture, port, 0, NULL, WAIT)));
	(void)hdl_aperture_wait(other, WAIT);
	printf("%s\n", hdl_aperture_reason_str(hdl_aperture_reason(other)));
	printf("%02x:%02x:%02x:%02x:%02x:%02x\n", target.link[0], target.link[1], target.link[2],
	       target.link[3], target.link[4], target.link[5]);
	must(hdl_aperture_free(aperture));
	must(hdl_aperture_free(other));
	must(hdl_port_close(port));
	must(hdl_close(adapter));
	return result == -HDL_EAGAIN ? 0 : 1;
}

/* An untrusted program may not set a destination itself. */
static int trust(void)
{
	struct hdl_adapter *adapter = open_adapter();
	struct hdl_aperture *aperture;
	struct hdl_aperture_target nowhere = {.index = 1};
	uint32_t level = hdl_aperture_trust(adapter); /* before anything else */
	must(hdl_aperture_open(adapter, NULL, &aperture));
	int result = hdl_aperture_point(aperture, &nowhere);
	printf("%s %s\n", level == HDL_TRUST_USER ? "trusted" : "untrusted",
	       result == -HDL_EACCES ? "refused" : "allowed");
	must(hdl_aperture_free(aperture));
	must(hdl_close(adapter));
	return 0;
}

int main(int argc, char **argv)
{
	int ends[2];
	char gid[INET6_ADDRSTRLEN];
	unsigned number;
	if (argc == 2 && strcmp(argv[1], "serve") == 0)
		return serve(1);
	if (argc == 2 && strcmp(argv[1], "keep") == 0)
		keep();
	if (argc == 2 && strcmp(argv[1], "trust") == 0)
		return trust();
	if (argc == 2 && strcmp(argv[1], "link") == 0)
		return link_address();
	if (argc == 4 && strcmp(argv[1], "use") == 0)
		return use(argv[2], (uint16_t)atoi(argv[3]));
	if (argc == 4 && (strcmp(argv[1], "stay") == 0 || strcmp(argv[1], "flood") == 0))
		return stay(argv[2], (uint16_t)atoi(argv[3]), argv[1][0] == 'f');
	if (argc == 4 && strcmp(argv[1], "again") == 0)
		return again(argv[2], (uint16_t)atoi(argv[3]));
	if (argc == 4 && strcmp(argv[1], "watch") == 0)
		return watch(argv[2], (uint16_t)atoi(argv[3]));
	if (argc == 5 && strcmp(argv[1], "ip") == 0)
		return datagrams(argv[2], (uint16_t)atoi(argv[3]), (uint16_t)atoi(argv[4]));
	if (argc == 5 && strcmp(argv[1], "hear") == 0)
		return hear((uint16_t)atoi(argv[2]), argv[3], atoi(argv[4]));
	if (pipe(ends) != 0)
		return 1;
	pid_t child = fork();
	if (child == 0)
		return serve(ends[1]);
	close(ends[1]);
	FILE *from = fdopen(ends[0], "r");
	if (from == NULL || fscanf(from, "%45s %u", gid, &number) != 2) {
		fprintf(stderr, "the server did not begin\n");
		return 1;
	}
	int result = use(gid, (uint16_t)number), status = 0;
	waitpid(child, &status, 0);
	return result != 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}
