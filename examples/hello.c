/* Two adapters in one process: a message, then a write straight into the peer's memory. */
#include "endpoint.h" /* must(), endpoint_open(), endpoint_connect(), endpoint_wait() */

int main(void)
{
	static struct endpoint alice, bob;
	endpoint_open(&alice, false);
	endpoint_open(&bob, false);
	must(hdl_join(alice.adapter, bob.adapter));
	struct address to_alice = endpoint_address(&alice), to_bob = endpoint_address(&bob);
	endpoint_connect(&alice, &to_bob);
	endpoint_connect(&bob, &to_alice);

	struct hdl_sge buffer = {(uintptr_t)bob.memory, 32, hdl_mr_key(bob.mr)};
	struct hdl_recv_wr receive = {.sg_list = &buffer, .num_sge = 1};
	const struct hdl_recv_wr *bad_receive;
	must(hdl_post_recv(bob.qp, &receive, &bad_receive));

	snprintf(alice.memory, sizeof(alice.memory), "a message");
	struct hdl_sge data = {(uintptr_t)alice.memory, 32, hdl_mr_key(alice.mr)};
	struct hdl_send_wr request = {
	        .sg_list = &data, .num_sge = 1, .opcode = HDL_OP_SEND, .flags = HDL_SEND_SIGNALED};
	const struct hdl_send_wr *bad;
	must(hdl_post_send(alice.qp, &request, &bad));
	endpoint_wait(&bob);   /* the receive has completed */
	endpoint_wait(&alice); /* the send has completed */
	printf("bob received: %s\n", bob.memory);

	snprintf(alice.memory, sizeof(alice.memory), "written, and bob did nothing");
	request.opcode = HDL_OP_WRITE;
	request.u.rdma.addr = to_bob.memory + 32;
	request.u.rdma.key = to_bob.key;
	must(hdl_post_send(alice.qp, &request, &bad));
	endpoint_wait(&alice);
	printf("bob's memory: %s\n", bob.memory + 32);
	return 0;
}
