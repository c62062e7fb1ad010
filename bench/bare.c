/* The least that a verbs library can do for perftest: floors that include the program itself and
 * its buffers. Preloaded before libibverbs, it lets that library make the connection, then replaces
 * three calls. A send stores eight bytes and a number in a cache line that both processes map; a
 * completion is read off that number. A write or read is a memcpy if the target's memory is mapped
 * here, else one process_vm_writev() or process_vm_readv(). Nothing is checked, ordered,
 * acknowledged or counted. It works for one queue pair only, with RDMA or with messages of eight
 * bytes, one at a time.
 *
 *   BARE_FILE   the shared memory, a file of at least one page
 *   BARE_END    0 or 1: which of the two processes this is
 *   BARE_OWN, BARE_PEER   the files with the buffers of both processes (perftest --mmap), if they
 *                         use files */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define BYTES  8u
#define SHARED 4096u
#define MEMORY (1u << 20) /* of BARE_PEER */
#define RING   4096u      /* more than the program has posted at a time */

struct line {
	_Alignas(128) uint64_t data;
	_Atomic uint64_t number;
};

/* What one end tells the other. */
struct card {
	_Alignas(128) _Atomic uint64_t base; /* where BARE_OWN is mapped */
	_Atomic int task;                    /* the task for the kernel to copy to */
};

static struct line *in, *out;
static struct card *own_card, *peer_card;
static unsigned char *memory; /* the peer's; NULL: not mapped here */
static const struct ibv_cq *send_cq, *recv_cq;
static struct ibv_recv_wr posted[RING];
static struct ibv_sge pieces[RING];
static uint64_t sent, posts, taken;
static struct ibv_wc done[RING]; /* requests that were sent */
static uint64_t dones, told;

static void give_up(const char *why)
{
	fprintf(stderr, "bench-bare: %s\n", why);
	exit(1);
}

static void rdma(const struct ibv_send_wr *wr)
{
	struct iovec here = {(void *)(uintptr_t)wr->sg_list->addr, wr->sg_list->length},
	             there = {(void *)(uintptr_t)wr->wr.rdma.remote_addr, here.iov_len};
	bool read = wr->opcode == IBV_WR_RDMA_READ;
	if (memory != NULL) {
		void *at = memory + (wr->wr.rdma.remote_addr -
		                     atomic_load_explicit(&peer_card->base, memory_order_relaxed));
		memcpy(read ? here.iov_base : at, read ? at : here.iov_base, here.iov_len);
		return;
	}
	pid_t task = atomic_load_explicit(&peer_card->task, memory_order_relaxed);
	ssize_t moved = read ? process_vm_readv(task, &here, 1, &there, 1, 0)
	                     : process_vm_writev(task, &here, 1, &there, 1, 0);
	if (moved != (ssize_t)here.iov_len)
		give_up("the kernel did not copy");
}

static int bare_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	(void)qp, (void)bad;
	for (; wr != NULL; wr = wr->next) {
		enum ibv_wc_opcode as = IBV_WC_SEND;
		if (wr->opcode == IBV_WR_SEND) {
			memcpy(&out->data, (const void *)(uintptr_t)wr->sg_list->addr, BYTES);
			atomic_store_explicit(&out->number, ++sent, memory_order_release);
		} else {
			rdma(wr);
			as = wr->opcode == IBV_WR_RDMA_READ ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE;
		}
		if (wr->send_flags & IBV_SEND_SIGNALED)
			done[dones++ % RING] = (struct ibv_wc){.wr_id = wr->wr_id, .opcode = as};
	}
	return 0;
}

static int bare_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)qp, (void)bad;
	for (; wr != NULL; wr = wr->next) {
		posted[posts % RING] = *wr;
		pieces[posts++ % RING] = *wr->sg_list;
	}
	return 0;
}

static int bare_poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc)
{
	(void)count;
	if (cq == send_cq && told != dones) {
		const struct ibv_wc *next = &done[told++ % RING];
		wc->wr_id = next->wr_id;
		wc->opcode = next->opcode;
	} else {
		if (cq != recv_cq ||
		    atomic_load_explicit(&in->number, memory_order_acquire) == taken)
			return 0;
		uint64_t at = taken++ % RING;
		memcpy((void *)(uintptr_t)pieces[at].addr, &in->data, BYTES);
		wc->wr_id = posted[at].wr_id;
		wc->opcode = IBV_WC_RECV;
		wc->byte_len = BYTES;
		wc->wc_flags = 0;
	}
	wc->status = IBV_WC_SUCCESS;
	return 1;
}

static void *map_file(const char *file, size_t bytes)
{
	int fd = file != NULL ? open(file, O_RDWR | O_CLOEXEC) : -1;
	void *at =
	        fd >= 0 ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
	if (at == MAP_FAILED)
		give_up("BARE_FILE or BARE_PEER is not set or cannot be used");
	close(fd);
	return at;
}

/* Where this process has mapped @file. */
static uint64_t base_of(const char *file)
{
	char line[512];
	uint64_t base = 0;
	FILE *maps = fopen("/proc/self/maps", "re");
	while (maps != NULL && base == 0 && fgets(line, sizeof(line), maps) != NULL)
		if (strstr(line, file) != NULL)
			base = strtoull(line, NULL, 16);
	if (base == 0)
		give_up("BARE_OWN is not mapped");
	fclose(maps);
	return base;
}

/* A sleeping thread of this process, which belongs to the library below. The kernel's copy uses
 * counters of the task that it is asked for. */
static int sleeper(void)
{
	int own = getpid(), task = own;
	DIR *tasks = opendir("/proc/self/task");
	for (struct dirent *at; tasks != NULL && (at = readdir(tasks)) != NULL;)
		if (atoi(at->d_name) > own)
			task = atoi(at->d_name);
	if (tasks != NULL)
		closedir(tasks);
	return task;
}

/* The last call of the program before it posts. The two ends synchronize once more here, and both
 * cards are filled in. */
static void begin(const struct ibv_qp *qp)
{
	const char *end = getenv("BARE_END"), *own = getenv("BARE_OWN");
	struct line *lines = map_file(getenv("BARE_FILE"), SHARED);
	if (end == NULL)
		give_up("BARE_END is not set");
	in = &lines[*end != '0'];
	out = &lines[*end == '0'];
	struct card *cards = (struct card *)(void *)&lines[2];
	own_card = &cards[*end != '0'];
	peer_card = &cards[*end == '0'];
	own_card->task = sleeper();
	if (own != NULL) {
		own_card->base = base_of(own);
		memory = map_file(getenv("BARE_PEER"), MEMORY);
	}
	send_cq = qp->send_cq;
	recv_cq = qp->recv_cq;
	qp->context->ops.post_send = bare_post_send;
	qp->context->ops.post_recv = bare_post_recv;
	qp->context->ops.poll_cq = bare_poll_cq;
}

__attribute__((visibility("default"))) int ibv_modify_qp(struct ibv_qp *qp,
                                                         struct ibv_qp_attr *attr, int mask)
{
	int (*next)(struct ibv_qp *, struct ibv_qp_attr *, int);
	*(void **)&next = dlsym(RTLD_NEXT, "ibv_modify_qp");
	if (in == NULL)
		begin(qp);
	return next(qp, attr, mask);
}
