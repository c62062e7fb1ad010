/* A host that does what it is told, through heddle/push.h alone: for what `heddle tap host' would
 * never do.
 *
 *   station NODE NAME     connects to the unit of that node, prints "open", and then answers
 *                         commands from standard input, one line each
 *
 *   init|mac|more MAC     configures that address; prints the status
 *   get|set ITEM          asks for an item, or sets it without a value; prints the status
 *   frame FROM TO COUNT   sends frames with these addresses; prints "sent"
 *   stat                  prints what the unit has counted: frames from us, frames to us, dropped,
 *                         forged */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#include <heddle/push.h>

#define HEADER_BYTES 10u
#define FRAME_BYTES  2048u

static struct hdl_adapter *adapter;
static struct hdl_push_port *port;
static struct hdl_push *connection;
static struct hdl_push_cfg answer;
static bool is_open, is_answered, is_silent;
static int epoll;

static void on_opened(void *context, struct hdl_push *push)
{
	(void)context;
	connection = push;
	is_open = true;
}

static void on_closed(void *context, struct hdl_push *push, const char *why)
{
	(void)context;
	(void)push;
	printf("closed: %s\n", why);
	exit(2);
}

static bool on_frame(void *context, struct hdl_push *push, const uint8_t *frame, uint32_t bytes)
{
	(void)context;
	(void)push;
	(void)frame;
	(void)bytes;
	return true;
}

static void on_request(void *context, struct hdl_push *push, const struct hdl_push_cfg *request,
                       struct hdl_push_cfg *reply)
{
	(void)context;
	(void)push;
	reply->has_value = request->code == 0;
}

static void on_answer(void *context, struct hdl_push *push, uint64_t token,
                      const struct hdl_push_cfg *reply)
{
	(void)context;
	(void)push;
	(void)token;
	is_silent = reply == NULL;
	if (reply != NULL)
		answer = *reply;
	is_answered = true;
}

static const struct hdl_push_ops ops = {.opened = on_opened,
                                        .closed = on_closed,
                                        .deliver = on_frame,
                                        .configure = on_request,
                                        .configured = on_answer};

/* One turn; sleeps when there is nothing to do, until something happens or @also is readable. */
static void turn(int also)
{
	struct epoll_event event;
	struct timespec timeout = {.tv_nsec = 10000000};
	struct pollfd input = {.fd = also, .events = POLLIN};
	if (hdl_push_run(port) == 0 && (also < 0 || poll(&input, 1, 0) == 0))
		hdl_epoll_wait(adapter, epoll, &event, 1, &timeout, NULL);
}

static void wait_for(const bool *what)
{
	time_t end = time(NULL) + 60;
	while (!*what) {
		if (time(NULL) > end) {
			puts("nothing happens");
			exit(3);
		}
		turn(-1);
	}
}

static void ask(const struct hdl_push_cfg *request)
{
	static const char *const words[] = {"ok", "unknown", "malformed", "refused", "read-only"};
	is_answered = false;
	if (!hdl_push_configure(connection, request, 1)) {
		puts("not asked");
		return;
	}
	wait_for(&is_answered);
	if (request->item == HDL_PUSH_CFG_STATISTICS && request->code == 0 && answer.has_value)
		printf("%llu %llu %llu %llu\n",
		       (unsigned long long)answer.statistics[HDL_PUSH_STAT_RX_FRAMES],
		       (unsigned long long)answer.statistics[HDL_PUSH_STAT_TX_FRAMES],
		       (unsigned long long)answer.statistics[HDL_PUSH_STAT_TX_DROPPED],
		       (unsigned long long)answer.statistics[HDL_PUSH_STAT_FORGED]);
	else
		puts(is_silent ? "silent" : answer.code < 5 ? words[answer.code] : "?");
}

static void parse_mac(const char *text, uint8_t mac[HDL_PUSH_MAC_BYTES])
{
	unsigned parts[6] = {0};
	sscanf(text, "%2x:%2x:%2x:%2x:%2x:%2x", &parts[0], &parts[1], &parts[2], &parts[3],
	       &parts[4], &parts[5]);
	for (unsigned i = 0; i < 6; i++)
		mac[i] = (uint8_t)parts[i];
}

static void send_frames(const char *from, const char *to, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		uint8_t *frame = hdl_push_take(connection);
		while (frame == NULL) {
			turn(-1);
			frame = hdl_push_take(connection);
		}
		memset(frame, 0, HEADER_BYTES + 60);
		parse_mac(to, frame + HEADER_BYTES);
		parse_mac(from, frame + HEADER_BYTES + HDL_PUSH_MAC_BYTES);
		frame[HEADER_BYTES + 12] = 0x88; /* IEEE 802: for experiments */
		frame[HEADER_BYTES + 13] = 0xb5;
		hdl_push_send(connection, HEADER_BYTES + 60);
	}
	puts("sent");
}

static void command(const char *line)
{
	struct hdl_push_cfg request = {.code = 1, .has_value = true, .mtu = 1500, .version = 1};
	char word[16] = "", one[32] = "", two[32] = "";
	unsigned count = 0;
	sscanf(line, "%15s %31s %31s %u", word, one, two, &count);
	parse_mac(one, request.mac);
	if (strcmp(word, "frame") == 0) {
		send_frames(one, two, count);
		return;
	}
	if (strcmp(word, "init") == 0)
		request.item = HDL_PUSH_CFG_INIT;
	else if (strcmp(word, "mac") == 0)
		request.item = HDL_PUSH_CFG_MAC;
	else if (strcmp(word, "more") == 0)
		request.item = HDL_PUSH_CFG_MORE_MAC;
	else if (strcmp(word, "stat") == 0)
		request = (struct hdl_push_cfg){.item = HDL_PUSH_CFG_STATISTICS};
	else
		request = (struct hdl_push_cfg){.item = (uint16_t)strtoul(one, NULL, 10),
		                                .code = strcmp(word, "set") == 0};
	ask(&request);
}

int main(int argc, char **argv)
{
	struct hdl_open_attr attr = {.on_node = true};
	struct hdl_push_terms terms = {.host_owns = true,
	                               .unit_owns = true,
	                               .header_bytes = HEADER_BYTES,
	                               .frame_bytes = FRAME_BYTES};
	struct hdl_push *push;
	struct hdl_process *list;
	struct hdl_gid gid = {{0}};
	size_t count;
	char line[128];
	int fds[HDL_PUSH_FDS];
	epoll = epoll_create1(EPOLL_CLOEXEC);
	if (argc != 3 || hdl_open(&attr, &adapter) != 0 || hdl_observe(&list, &count) != 0)
		return 64;
	for (size_t i = 0; i < count; i++)
		if (strcmp(list[i].node, argv[1]) == 0)
			gid = list[i].gid;
	hdl_observe_free(list, count);
	if (hdl_push_open(adapter, 0, &ops, NULL, fds, &port) != 0 ||
	    hdl_push_connect(port, &gid, HDL_PUSH_SERVICE, argv[2], &terms, &push) != 0)
		return 1;
	for (unsigned i = 0; i < HDL_PUSH_FDS; i++) {
		struct epoll_event event = {.events = EPOLLIN};
		epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &event);
	}
	/* Lines are read one at a time: none waits in a buffer while poll() says that there is
	 * nothing. */
	setvbuf(stdin, NULL, _IONBF, 0);
	setvbuf(stdout, NULL, _IOLBF, 0);
	wait_for(&is_open);
	puts("open");
	for (;;) {
		struct pollfd input = {.fd = 0, .events = POLLIN};
		while (poll(&input, 1, 0) == 0)
			turn(0);
		if (fgets(line, sizeof(line), stdin) == NULL)
			break;
		command(line);
	}
	hdl_push_shut(port);
	hdl_close(adapter);
	hdl_push_free(port);
	return 0;
}
