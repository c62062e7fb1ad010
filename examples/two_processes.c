/* Two processes: a client writes into the memory of a server, then sends a message to say so.
 *
 * RDMA needs an introduction. Each side must learn the address, the queue pair number and the key
 * of the other by some other channel. Real programs use TCP or rdma_cm; here a socket pair does, so
 * that one command starts both sides. The adapters are opened on the node, so the node agent
 * (heddled) introduces the processes to each other; the first of them starts it. */
#include "endpoint.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Send our address, take the other side's. */
static struct address exchange(int channel, const struct endpoint *e)
{
	struct address own = endpoint_address(e), peer;
	if (write(channel, &own, sizeof(own)) != sizeof(own) ||
	    read(channel, &peer, sizeof(peer)) != sizeof(peer)) {
		fprintf(stderr, "the other process has gone\n");
		exit(1);
	}
	return peer;
}

static void server(int channel)
{
	static struct endpoint e;
	endpoint_open(&e, true);
	struct address client = exchange(channel, &e);
	endpoint_connect(&e, &client);

	/* The message goes to the upper half; the write goes to the lower one. */
	struct hdl_sge buffer = {(uintptr_t)e.memory + 32, 32, hdl_mr_key(e.mr)};
	struct hdl_recv_wr receive = {.sg_list = &buffer, .num_sge = 1};
	const struct hdl_recv_wr *bad;
	must(hdl_post_recv(e.qp, &receive, &bad));
	exchange(channel, &e); /* the client may send now */

	endpoint_wait(&e); /* messages and writes of one queue pair arrive in order */
	printf("server: received \"%s\", and found \"%s\"\n", e.memory + 32, e.memory);
	exchange(channel, &e); /* leave together: a peer that goes first is an error */
	exit(strcmp(e.memory, "by RDMA write") != 0);
}

static void client(int channel)
{
	static struct endpoint e;
	endpoint_open(&e, true);
	struct address to = exchange(channel, &e);
	endpoint_connect(&e, &to);
	exchange(channel, &e); /* the server has posted its receive */

	snprintf(e.memory, 32, "by RDMA write");
	snprintf(e.memory + 32, 32, "look at your memory");
	struct hdl_sge data[] = {{(uintptr_t)e.memory, 32, hdl_mr_key(e.mr)},
	                         {(uintptr_t)e.memory + 32, 32, hdl_mr_key(e.mr)}};
	struct hdl_send_wr message = {.sg_list = &data[1],
	                              .num_sge = 1,
	                              .opcode = HDL_OP_SEND,
	                              .flags = HDL_SEND_SIGNALED};
	struct hdl_send_wr write_first = {.next = &message,
	                                  .sg_list = &data[0],
	                                  .num_sge = 1,
	                                  .opcode = HDL_OP_WRITE,
	                                  .u.rdma = {.addr = to.memory, .key = to.key}};
	const struct hdl_send_wr *bad;
	must(hdl_post_send(e.qp, &write_first, &bad));
	endpoint_wait(&e); /* the message alone is signaled; the write came before it */
	printf("client: the server has both\n");
	exchange(channel, &e);
	exit(0);
}

int main(void)
{
	int channel[2], status = 0, failed = 0;
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, channel) != 0)
		return 1;
	for (int side = 0; side < 2; side++)
		if (fork() == 0) {
			close(channel[!side]); /* so that each side sees the end of the other */
			(side == 0 ? server : client)(channel[side]);
		}
	close(channel[0]);
	close(channel[1]);
	while (wait(&status) > 0)
		failed |= status;
	return failed != 0;
}
