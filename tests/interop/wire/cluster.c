/* Cluster addresses between two nodes of one machine (AP1, AP4, AP5; APERTURE figures 10 and 11):
 * the owner tells the number of its node and nothing else, the other connects by it, both see the
 * other's number, and an aperture that wants senders under a mask of numbers takes data of those
 * alone. On lanes, and over UDP (HEDDLE_LOCAL=off). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <heddle/control.h>

#define BYTES 4096u
#define WAIT  20000 /* ms */
#define ENDS  3     /* any sender, this one, another one */

#define CHECK(condition) check(condition, #condition, __LINE__)
static void check(bool holds, const char *what, int line)
{
	if (holds)
		return;
	fprintf(stderr, "line %d: %s\n", line, what);
	_exit(1);
}
#define MUST(call) must((call), #call, __LINE__)
static void must(int result, const char *what, int line)
{
	if (result == 0)
		return;
	fprintf(stderr, "line %d: %s: %s\n", line, what, hdl_strerror(-result));
	_exit(1);
}

struct offer {
	uint16_t address, port;
};

static uint16_t own_address(struct hdl_adapter *adapter)
{
	struct hdl_gid gid;
	MUST(hdl_aperture_cluster(adapter, 0, &gid));
	return (uint16_t)(gid.raw[14] << 8 | gid.raw[15]);
}

static uint64_t counted(struct hdl_adapter *adapter, enum hdl_aperture_counter counter)
{
	struct hdl_counter list[HDL_APERTURE_COUNTER_COUNT];
	(void)hdl_aperture_counters(adapter, list, HDL_APERTURE_COUNTER_COUNT);
	return list[counter].value;
}

/* What a spectator sees of @aperture, which is of this process. */
static void observed(const struct hdl_aperture *aperture, uint16_t own, uint16_t peer, bool by_it)
{
	struct hdl_aperture_process *list;
	struct hdl_aperture_target target;
	size_t count, seen = 0;
	MUST(hdl_aperture_own(aperture, &target));
	CHECK(target.lid == own);
	MUST(hdl_aperture_observe(&list, &count));
	for (size_t i = 0; i < count; i++)
		for (size_t k = 0; list[i].pid == getpid() && k < list[i].count; k++) {
			const struct hdl_aperture_info *info = &list[i].apertures[k];
			CHECK(list[i].cluster == own);
			if (info->index != target.index)
				continue;
			CHECK(info->cluster == peer && info->by_cluster == by_it);
			seen++;
		}
	hdl_aperture_observe_free(list, count);
	CHECK(seen == 1);
}

static int connect_all(int in, int out)
{
	struct hdl_open_attr open = {.on_node = true, .node = "cluster-near"};
	struct hdl_adapter *adapter;
	struct hdl_aperture *ends[ENDS];
	struct hdl_aperture_attr attr = {.length = BYTES};
	struct hdl_aperture_peer peer;
	struct hdl_port_status status;
	struct hdl_gid gid;
	struct offer offer;
	char go;
	MUST(hdl_open(&open, &adapter));
	uint16_t own = own_address(adapter);
	CHECK(write(out, &own, sizeof(own)) == sizeof(own));
	CHECK(read(in, &offer, sizeof(offer)) == sizeof(offer));
	CHECK(own != 0 && offer.address != 0 && own != offer.address);
	MUST(hdl_aperture_cluster(adapter, offer.address, &gid));
	for (int i = 0; i < ENDS; i++) {
		MUST(hdl_aperture_open(adapter, &attr, &ends[i]));
		MUST(hdl_aperture_connect(ends[i], &gid, offer.port, WAIT));
		MUST(hdl_aperture_peer(ends[i], &peer));
		CHECK(peer.cluster == offer.address);
		MUST(hdl_aperture_store(ends[i], 0, "stored", 6, WAIT));
		int flushed = hdl_aperture_flush(ends[i], HDL_FLUSH_PLACED, i < 2 ? WAIT : 300);
		CHECK((flushed == 0) == (i < 2));
	}
	observed(ends[0], own, offer.address, true);
	MUST(hdl_port_status(adapter, &gid, offer.port, &status, WAIT));
	CHECK(write(out, "s", 1) == 1 && read(in, &go, 1) == 1);
	for (int i = 0; i < ENDS; i++)
		MUST(hdl_aperture_free(ends[i]));
	/* A number that nobody has. */
	MUST(hdl_aperture_cluster(adapter, 0xbfff, &gid));
	MUST(hdl_aperture_open(adapter, &attr, &ends[0]));
	CHECK(hdl_aperture_connect(ends[0], &gid, offer.port, 300) == -HDL_EHOSTUNREACH);
	MUST(hdl_aperture_free(ends[0]));
	MUST(hdl_close(adapter));
	return 0;
}

static void accept_all(int in, int out)
{
	struct hdl_open_attr open = {.on_node = true, .node = "cluster-far"};
	struct hdl_adapter *adapter;
	struct hdl_port *port;
	struct hdl_aperture *ends[ENDS];
	struct hdl_aperture_peer peer;
	const struct hdl_aperture_fixed *fixed;
	struct offer offer;
	uint16_t theirs;
	char stored;
	MUST(hdl_open(&open, &adapter));
	MUST(hdl_port_open(adapter, NULL, &port));
	CHECK(read(in, &theirs, sizeof(theirs)) == sizeof(theirs));
	offer = (struct offer){own_address(adapter), hdl_port_number(port)};
	CHECK(write(out, &offer, sizeof(offer)) == sizeof(offer));
	for (int i = 0; i < ENDS; i++) {
		/* Bit 0 does not count; of the last, no bit is right. */
		struct hdl_aperture_attr attr = {.length = BYTES,
		                                 .checks = HDL_CHECK_DEFAULT |
		                                           (i > 0 ? HDL_CHECK_CLUSTER : 0),
		                                 .cluster = i == 1 ? theirs ^ 1 : (uint16_t)~theirs,
		                                 .cluster_mask = i > 0 ? 0xfffe : 0};
		MUST(hdl_aperture_open(adapter, &attr, &ends[i]));
		MUST(hdl_aperture_accept(ends[i], port, 0, NULL, WAIT));
		MUST(hdl_aperture_peer(ends[i], &peer));
		CHECK(peer.cluster == theirs);
		MUST(hdl_aperture_control(ends[i], NULL, &fixed));
		CHECK(fixed->cluster == offer.address);
		/* Without a wish it is the peer's that counts, all of it. */
		CHECK(fixed->cluster_mask == (i > 0 ? attr.cluster_mask : 0xffff));
		CHECK(fixed->source_cluster == (i > 0 ? attr.cluster : theirs));
	}
	CHECK(read(in, &stored, 1) == 1);
	observed(ends[0], offer.address, theirs, false);
	CHECK(memcmp(hdl_aperture_memory(ends[0], NULL), "stored", 6) == 0);
	CHECK(memcmp(hdl_aperture_memory(ends[1], NULL), "stored", 6) == 0);
	CHECK(*(const char *)hdl_aperture_memory(ends[2], NULL) == 0);
	CHECK(counted(adapter, HDL_APERTURE_COUNTER_BAD_SOURCE) > 0);
	CHECK(counted(adapter, HDL_APERTURE_COUNTER_WRONG_CLUSTER) == 0);
	CHECK(write(out, "e", 1) == 1);
	CHECK(read(in, &stored, 1) == 0);
	for (int i = 0; i < ENDS; i++)
		MUST(hdl_aperture_free(ends[i]));
	MUST(hdl_port_close(port));
	MUST(hdl_close(adapter));
}

int main(void)
{
	int there[2], back[2], status;
	CHECK(pipe(there) == 0 && pipe(back) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		close(there[1]);
		close(back[0]);
		_exit(connect_all(there[0], back[1]));
	}
	close(there[0]);
	close(back[1]);
	accept_all(back[0], there[1]);
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return 0;
}
