/* A message of 8 bytes across one transit switch and back, halved. Every way has a process at each
 * end, and something between them that forwards:
 *
 *   UDP                 nothing: two sockets on the loopback, the floor of one hop
 *   UDP, one relay      a process that receives and sends, and nothing else: the floor
 *   IBC, UDP links      a plain switch, with a port process on each end's node
 *   IBC, shared memory  the same, with links through shared memory
 *   Linux bridge        UDP between two network namespaces, if there may be some
 *   VDE                 Ethernet frames through vde_switch, if it is installed
 *
 * They take turns, so that all see the same noise. All ends wait as their kind does: sockets block,
 * clients and port processes of IBC poll for some microseconds before they sleep. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "figures.h"
#include "heddle/ibc.h"

#define TURNS      7u
#define TRIPS      2000u
#define PAYLOAD    8u
#define CHILDREN   16u
#define PATIENCE_S 10

static pid_t children[CHILDREN];
static unsigned child_count;
static char folder[] = "/tmp/bench-transit-XXXXXX";

static void must(bool good, const char *what)
{
	if (good)
		return;
	perror(what);
	exit(1);
}

static void end_children(void)
{
	for (unsigned i = 0; i < child_count; i++)
		kill(children[i], SIGTERM);
	for (unsigned i = 0; i < child_count; i++)
		waitpid(children[i], NULL, 0);
	child_count = 0;
}

/* A child that ends with us. True in the child. */
static bool in_child(void)
{
	pid_t pid = fork();
	must(pid >= 0 && child_count < CHILDREN, "fork");
	if (pid > 0) {
		children[child_count++] = pid;
		return false;
	}
	child_count = 0;
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	signal(SIGTERM, SIG_DFL);
	return true;
}

static void start(char *const argv[])
{
	if (!in_child())
		return;
	/* A switch that reads commands must not find the end of them. */
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), silence[2];
	must(null >= 0 && pipe(silence) == 0, "pipe");
	dup2(silence[0], 0);
	dup2(null, 1);
	dup2(null, 2);
	execvp(argv[0], argv);
	_exit(127);
}

/* --- UDP --- */

static int udp_socket(const char *address)
{
	struct sockaddr_in own = {.sin_family = AF_INET};
	struct timeval patience = {.tv_sec = PATIENCE_S};
	int sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	inet_pton(AF_INET, address, &own.sin_addr);
	must(sock >= 0 && bind(sock, (struct sockaddr *)&own, sizeof(own)) == 0, "bind");
	setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	return sock;
}

static void udp_join(int sock, int other)
{
	struct sockaddr_in to;
	socklen_t bytes = sizeof(to);
	must(getsockname(other, (struct sockaddr *)&to, &bytes) == 0 &&
	             connect(sock, (struct sockaddr *)&to, bytes) == 0,
	     "connect");
}

/* Send everything that comes from @from to @to, for ever. */
static void relay(int from, int to)
{
	char room[2048];
	for (;;) {
		ssize_t got = recv(from, room, sizeof(room), 0);
		if (got > 0 && send(to, room, (size_t)got, 0) < 0)
			_exit(1);
	}
}

/* One process for both directions, as a switch has. */
static void relay_both(int a, int b)
{
	struct pollfd in[2] = {{a, POLLIN, 0}, {b, POLLIN, 0}};
	char room[2048];
	while (poll(in, 2, -1) > 0)
		for (unsigned i = 0; i < 2; i++) {
			ssize_t got = recv(in[i].fd, room, sizeof(room), MSG_DONTWAIT);
			if (got > 0 && send(in[1 - i].fd, room, (size_t)got, 0) < 0)
				_exit(1);
		}
}

static int direct = -1, relayed = -1, bridged = -1;

static bool socket_trip(int sock)
{
	char room[64];
	return send(sock, "payload", PAYLOAD, 0) == PAYLOAD &&
	       recv(sock, room, sizeof(room), 0) == PAYLOAD;
}

static void start_udp(void)
{
	int far = udp_socket("127.0.0.1");
	direct = udp_socket("127.0.0.1");
	udp_join(direct, far);
	udp_join(far, direct);
	if (in_child())
		relay(far, far);
	int middle[2] = {udp_socket("127.0.0.1"), udp_socket("127.0.0.1")};
	int end = udp_socket("127.0.0.1");
	relayed = udp_socket("127.0.0.1");
	udp_join(relayed, middle[0]);
	udp_join(middle[0], relayed);
	udp_join(middle[1], end);
	udp_join(end, middle[1]);
	if (in_child())
		relay_both(middle[0], middle[1]);
	if (in_child())
		relay(end, end);
}

static bool direct_trip(void)
{
	return socket_trip(direct);
}

static bool relay_trip(void)
{
	return socket_trip(relayed);
}

/* --- IBC --- */

static IBC_HANDLE handle;

/* A client that sends everything back. */
static void ibc_echo(const char *node, unsigned apid)
{
	char room[IBC_LIMIT_PAYLOAD];
	struct IBC_Info info;
	IBC_HANDLE mine;
	setenv("HEDDLE_NODE", node, 1);
	if (IBC_Init(apid, NULL, NULL, NULL) != 0 || IBC_RecvPost(&mine) != 0)
		_exit(1);
	while (IBC_RecvWaitInfo(mine, NULL, room, &info) == IBC_RECVDONE)
		IBC_Respond(&info, IBC_READ_RESPONSE, 0, room, info.Length);
	_exit(1);
}

/* Out of @port of our NIC, then out of port 1 of the switch. */
static bool ibc_trip(unsigned port)
{
	static const struct timespec patience = {PATIENCE_S, 0};
	const IBC_GUID guid = 1;
	const struct IBC_Route route = {.Pointer = 1, .Hops = 1, .Ports = {1}};
	char room[IBC_LIMIT_PAYLOAD];
	return IBC_Send(IBC_WRITE_REQUEST, &guid, 0, 40, "payload", PAYLOAD, &route, port) == 0 &&
	       IBC_RecvWait(handle, &patience, room, NULL, NULL, NULL) == IBC_RECVDONE;
}

static bool ibc_udp_trip(void)
{
	return ibc_trip(PORT_0);
}

static bool ibc_memory_trip(void)
{
	return ibc_trip(PORT_1);
}

/* Does an echo come back? Links need a moment to come up. */
static bool ibc_answers(unsigned port)
{
	static const struct timespec patience = {0, 100000000};
	struct IBC_Target target = {.GUID = 1,
	                            .OutPort = port,
	                            .Destination = 40,
	                            .Route = {.Pointer = 1, .Hops = 1, .Ports = {1}}};
	for (unsigned i = 0; i < 100; i++) {
		if (IBC_Request(&target, IBC_WRITE_REQUEST, "hello", 5, &patience, 1, NULL, 0,
		                NULL) == 0)
			return true;
		usleep(20000);
	}
	return false;
}

static bool start_ibc(void)
{
	static const char *const nodes[] = {"here", "there", "udp", "memory"};
	char file[64], program[4096];
	unsigned base = 10000 + (unsigned)getpid() % 2000 * 8;
	ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 64);
	must(length > 0, "readlink");
	program[length] = '\0';
	char *slash = strrchr(program, '/');
	strcpy(slash, "/../heddle-vport");
	snprintf(file, sizeof(file), "%s/net.conf", folder);
	FILE *out = fopen(file, "we");
	must(out != NULL, file);
	fprintf(out,
	        "node here id 1\nnic guid 1 ports 0 1\nnode there id 2\nnic guid 2 ports 0 1\n"
	        "switch udp id 3 ports 0 1\nswitch memory id 4 ports 0 1\n"
	        "link here:0 udp:0 udp 127.0.0.1:%u 127.0.0.1:%u\n"
	        "link udp:1 there:0 udp 127.0.0.1:%u 127.0.0.1:%u\n"
	        "link here:1 memory:0 shm\nlink memory:1 there:1 shm\n",
	        base, base + 1, base + 2, base + 3);
	fclose(out);
	for (unsigned i = 0; i < 4; i++)
		start((char *[]){program, (char *)(uintptr_t) "--foreground",
		                 (char *)(uintptr_t) "--node", (char *)(uintptr_t)nodes[i], file,
		                 NULL});
	if (in_child())
		ibc_echo("there", 40);
	setenv("HEDDLE_NODE", "here", 1);
	return IBC_Init(33, NULL, NULL, NULL) == 0 && ibc_answers(PORT_0) && ibc_answers(PORT_1) &&
	       IBC_RecvPost(&handle) == 0;
}

/* --- a bridge of Linux --- */

static bool shell(const char *command)
{
	return system(command) == 0;
}

/* In a process of its own: two namespaces joined by a bridge. Sends the socket of the near end to
 * @channel, and echoes at the far end. */
static void bridge_echo(int channel)
{
	char command[256];
	int sock, pipes[2];
	if ((unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) ||
	    !shell("{ ip link add br0 type bridge && ip link add a0 type veth peer name a1 && "
	           "ip link add b0 type veth peer name b1 && ip link set a1 master br0 && "
	           "ip link set b1 master br0 && ip link set br0 up && ip link set a1 up && "
	           "ip link set b1 up && ip link set a0 up && ip address add 10.97.5.1/24 dev a0; "
	           "} >/dev/null 2>&1") ||
	    pipe2(pipes, O_CLOEXEC) != 0)
		_exit(1);
	pid_t far = fork();
	if (far == 0) {
		char byte;
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (unshare(CLONE_NEWNET) != 0 || write(pipes[1], "", 1) != 1 ||
		    read(channel, &byte, 1) != 1 ||
		    !shell("ip address add 10.97.5.2/24 dev b0 && ip link set b0 up"))
			_exit(1);
		struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(7001)};
		inet_pton(AF_INET, "10.97.5.1", &to.sin_addr);
		struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(7001)};
		sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		if (bind(sock, (struct sockaddr *)&own, sizeof(own)) != 0 ||
		    connect(sock, (struct sockaddr *)&to, sizeof(to)) != 0)
			_exit(1);
		relay(sock, sock);
	}
	char byte;
	snprintf(command, sizeof(command), "ip link set b0 netns %d >/dev/null 2>&1", (int)far);
	struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(7001)}, to = own;
	inet_pton(AF_INET, "10.97.5.1", &own.sin_addr);
	inet_pton(AF_INET, "10.97.5.2", &to.sin_addr);
	sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (read(pipes[0], &byte, 1) != 1 || !shell(command) ||
	    bind(sock, (struct sockaddr *)&own, sizeof(own)) != 0 ||
	    connect(sock, (struct sockaddr *)&to, sizeof(to)) != 0)
		_exit(1);
	/* Our socket stays in this namespace, whoever holds it. */
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {.header = {.cmsg_len = CMSG_LEN(sizeof(int)),
	                        .cmsg_level = SOL_SOCKET,
	                        .cmsg_type = SCM_RIGHTS}};
	struct iovec part = {&byte, 1};
	struct msghdr msg = {.msg_iov = &part,
	                     .msg_iovlen = 1,
	                     .msg_control = &control,
	                     .msg_controllen = sizeof(control.room)};
	memcpy(CMSG_DATA(&control.header), &sock, sizeof(sock));
	if (sendmsg(channel, &msg, 0) != 1)
		_exit(1);
	pause();
	_exit(0);
}

static bool bridge_trip(void)
{
	return socket_trip(bridged);
}

static bool start_bridge(void)
{
	int channel[2];
	char byte;
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec part = {&byte, 1};
	struct msghdr msg = {.msg_iov = &part,
	                     .msg_iovlen = 1,
	                     .msg_control = &control,
	                     .msg_controllen = sizeof(control.room)};
	struct timeval patience = {.tv_sec = PATIENCE_S};
	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) == 0, "socketpair");
	if (in_child()) {
		close(channel[0]);
		bridge_echo(channel[1]);
	}
	close(channel[1]);
	setsockopt(channel[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (recvmsg(channel[0], &msg, MSG_CMSG_CLOEXEC) != 1 ||
	    control.header.cmsg_type != SCM_RIGHTS || write(channel[0], "", 1) != 1)
		return false;
	memcpy(&bridged, CMSG_DATA(&control.header), sizeof(bridged));
	struct timeval soon = {.tv_usec = 100000};
	setsockopt(bridged, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon));
	for (unsigned i = 0; i < 50; i++) /* the far end is on its way */
		if (bridge_trip()) {
			setsockopt(bridged, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
			return true;
		}
	return false;
}

/* --- VDE --- */

/* Of libvdeplug.h, which need not be installed. */
static struct {
	void *(*open)(char *where, char *name, int version, void *arguments);
	ssize_t (*send)(void *plug, const void *bytes, size_t length, int flags);
	ssize_t (*receive)(void *plug, void *bytes, size_t length, int flags);
	int (*descriptor)(void *plug);
	void *plug;
} vde;

static bool load_vde(void)
{
	void *library = dlopen("libvdeplug.so.2", RTLD_NOW);
	if (library == NULL)
		return false;
	*(void **)&vde.open = dlsym(library, "vde_open_real");
	*(void **)&vde.send = dlsym(library, "vde_send");
	*(void **)&vde.receive = dlsym(library, "vde_recv");
	*(void **)&vde.descriptor = dlsym(library, "vde_datafd");
	return vde.open != NULL && vde.send != NULL && vde.receive != NULL &&
	       vde.descriptor != NULL;
}

#define VDE_FRAME_BYTES 60u
static const uint8_t near_mac[6] = {2, 0, 0, 0, 0, 1}, far_mac[6] = {2, 0, 0, 0, 0, 2};

static bool vde_put(const uint8_t *to, const uint8_t *from)
{
	uint8_t frame[VDE_FRAME_BYTES] = {0};
	memcpy(frame, to, 6);
	memcpy(frame + 6, from, 6);
	frame[12] = 0x88;
	frame[13] = 0xb5;
	memcpy(frame + 14, "payload", PAYLOAD);
	return vde.send(vde.plug, frame, sizeof(frame), 0) == (ssize_t)sizeof(frame);
}

static bool vde_get(const uint8_t *own, int ms)
{
	uint8_t frame[2048];
	struct pollfd in = {.fd = vde.descriptor(vde.plug), .events = POLLIN};
	while (poll(&in, 1, ms) > 0)
		if (vde.receive(vde.plug, frame, sizeof(frame), 0) >= (ssize_t)VDE_FRAME_BYTES &&
		    memcmp(frame, own, 6) == 0)
			return true;
	return false;
}

static bool vde_trip(void)
{
	return vde_put(far_mac, near_mac) && vde_get(near_mac, 1000 * PATIENCE_S);
}

static bool start_vde(void)
{
	char directory[64];
	snprintf(directory, sizeof(directory), "%s/vde", folder);
	if (!load_vde())
		return false;
	start((char *[]){(char *)(uintptr_t) "vde_switch", (char *)(uintptr_t) "-s", directory,
	                 NULL});
	for (unsigned i = 0; i < 100 && access(directory, F_OK) != 0; i++)
		usleep(20000);
	usleep(100000);
	if (access(directory, F_OK) != 0)
		return false;
	if (in_child()) {
		vde.plug = vde.open(directory, (char *)(uintptr_t) "far", 1, NULL);
		while (vde.plug != NULL)
			if (vde_get(far_mac, -1))
				vde_put(near_mac, far_mac);
		_exit(1);
	}
	vde.plug = vde.open(directory, (char *)(uintptr_t) "near", 1, NULL);
	for (unsigned i = 0; i < 50 && vde.plug != NULL; i++)
		if (vde_put(far_mac, near_mac) && vde_get(near_mac, 100))
			return true;
	return false;
}

/* --- all of them --- */

static struct way {
	const char *name;
	bool (*trip)(void);
	bool there;
	double turns[TURNS];
} ways[] = {{.name = "UDP, no switch", .trip = direct_trip},
            {.name = "UDP, one relay (the floor)", .trip = relay_trip},
            {.name = "IBC, one switch, UDP links", .trip = ibc_udp_trip},
            {.name = "IBC, one switch, shared memory", .trip = ibc_memory_trip},
            {.name = "UDP over a Linux bridge", .trip = bridge_trip},
            {.name = "Ethernet frames through VDE", .trip = vde_trip}};
#define WAYS (sizeof(ways) / sizeof(ways[0]))

static double measure(struct way *way)
{
	uint64_t begin = clock_now_ns();
	for (unsigned i = 0; i < TRIPS && way->there; i++)
		way->there = way->trip();
	return (double)(clock_now_ns() - begin) / TRIPS / 2 / 1e3;
}

int main(void)
{
	must(mkdtemp(folder) != NULL, folder);
	setenv("HEDDLE_DIR", folder, 1);
	start_udp();
	ways[0].there = ways[1].there = true;
	ways[2].there = ways[3].there = start_ibc();
	ways[4].there = start_bridge();
	ways[5].there = start_vde();
	for (unsigned turn = 0; turn < TURNS; turn++)
		for (unsigned i = 0; i < WAYS; i++)
			ways[i].turns[turn] = measure(&ways[i]);
	for (unsigned i = 0; i < WAYS; i++)
		if (ways[i].there)
			figures_report(ways[i].name, ways[i].turns, TURNS, "us");
		else
			printf("%s: not here\n", ways[i].name);
	IBC_Finish();
	end_children();
	for (unsigned i = 0; i < 100; i++) { /* the agent leaves when it is idle */
		char command[128];
		snprintf(command, sizeof(command), "rm -rf %s/vde %s/net.conf", folder, folder);
		if (shell(command) && rmdir(folder) == 0)
			break;
		usleep(100000);
	}
	return 0;
}
