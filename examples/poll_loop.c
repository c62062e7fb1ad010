/* A server that sleeps: it waits for messages and for a socket in one loop, and uses no processor
 * time in between. The client sends three messages by RDMA and says by the socket that there are no
 * more. docs/waiting.md says when to sleep and when to poll. */
#include "endpoint.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MESSAGES 3
#define BYTES    32u

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

static void receive(struct endpoint *e)
{
	struct hdl_sge buffer = {(uintptr_t)e->memory, BYTES, hdl_mr_key(e->mr)};
	struct hdl_recv_wr request = {.sg_list = &buffer, .num_sge = 1};
	must(hdl_post_recv(e->qp, &request, NULL));
}

/* Take what has completed. Arm first: what completes after the last poll raises an event. The other
 * way round, it might complete between the two, and nothing would wake us. */
static int take(struct endpoint *e)
{
	struct hdl_wc wc;
	int count, taken = 0;
	must(hdl_cq_arm(e->cq, false));
	while ((count = hdl_cq_poll(e->cq, &wc, 1)) > 0) {
		if (wc.status != HDL_WC_SUCCESS) {
			fprintf(stderr, "%s\n", hdl_wc_status_str(wc.status));
			exit(1);
		}
		printf("server: %s\n", e->memory);
		receive(e);
		taken++;
	}
	must(count);
	return taken;
}

static void server(int channel)
{
	static struct endpoint e;
	int taken = 0;
	bool last = false;
	endpoint_open(&e, true);
	struct address client = exchange(channel, &e);
	endpoint_connect(&e, &client);
	receive(&e);
	exchange(channel, &e); /* the client may send now */

	struct pollfd fds[] = {{.fd = hdl_channel_fd(e.channel), .events = POLLIN},
	                       {.fd = channel, .events = POLLIN}};
	while (taken += take(&e), !last) {
		/* As poll(), but messages wake this thread, not that of the adapter first. */
		must(hdl_poll(e.adapter, fds, 2, NULL, NULL));
		if (fds[0].revents != 0) {
			struct hdl_cq *cq;
			void *context;
			/* -HDL_EAGAIN: another thread has taken the event. */
			if (hdl_channel_get(e.channel, &cq, &context, 0) == 0)
				must(hdl_cq_ack(cq, 1));
		}
		if (fds[1].revents != 0) {
			exchange(channel, &e);
			last = true; /* everything before it has completed: take() once more */
		}
	}
	printf("server: that is all\n");
	exit(taken != MESSAGES);
}

static void client(int channel)
{
	static struct endpoint e;
	endpoint_open(&e, true);
	struct address to = exchange(channel, &e);
	endpoint_connect(&e, &to);
	exchange(channel, &e); /* the server has posted its receive */
	for (int i = 1; i <= MESSAGES; i++) {
		snprintf(e.memory, BYTES, "message %d", i);
		struct hdl_sge data = {(uintptr_t)e.memory, BYTES, hdl_mr_key(e.mr)};
		struct hdl_send_wr message = {.sg_list = &data,
		                              .num_sge = 1,
		                              .opcode = HDL_OP_SEND,
		                              .flags = HDL_SEND_SIGNALED};
		must(hdl_post_send(e.qp, &message, NULL));
		endpoint_wait(&e); /* the server has it */
	}
	exchange(channel, &e); /* no more */
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
