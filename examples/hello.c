/* Two adapters in one process: a message, then a write straight into the other one's memory. */
#include "node.h" /* must(), node_open(), node_connect(), node_wait(): 80 lines */

int main(void)
{
	static struct node alice, bob;
	node_open(&alice);
	node_open(&bob);
	must(hdl_join(alice.adapter, bob.adapter));
	node_connect(&alice, &bob);
	node_connect(&bob, &alice);

	struct hdl_sge here = {(uintptr_t)alice.memory, 32, hdl_mr_key(alice.mr)};
	struct hdl_sge there = {(uintptr_t)bob.memory, 32, hdl_mr_key(bob.mr)};
	struct hdl_recv_wr receive = {.sg_list = &there, .num_sge = 1};
	const struct hdl_recv_wr *bad_receive;
	must(hdl_post_recv(bob.qp, &receive, &bad_receive));

	snprintf(alice.memory, sizeof(alice.memory), "a message");
	struct hdl_send_wr request = {
	        .sg_list = &here, .num_sge = 1, .opcode = HDL_OP_SEND, .flags = HDL_SEND_SIGNALED};
	const struct hdl_send_wr *bad;
	must(hdl_post_send(alice.qp, &request, &bad));
	node_wait(&bob);   /* he has received it */
	node_wait(&alice); /* and she knows */
	printf("bob received: %s\n", bob.memory);

	snprintf(alice.memory, sizeof(alice.memory), "written, and bob did nothing");
	request.opcode = HDL_OP_WRITE;
	request.u.rdma.addr = (uintptr_t)bob.memory + 32;
	request.u.rdma.key = hdl_mr_key(bob.mr);
	must(hdl_post_send(alice.qp, &request, &bad));
	node_wait(&alice);
	printf("bob's memory: %s\n", bob.memory + 32);
	return 0;
}
