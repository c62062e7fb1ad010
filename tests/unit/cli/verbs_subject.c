/* A program of libibverbs that asks for what is refused; for command.py, which reads why. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void *must(void *object)
{
	if (object == NULL) {
		perror("verbs_subject");
		exit(EXIT_FAILURE);
	}
	return object;
}

int main(void)
{
	struct ibv_device **list = must(ibv_get_device_list(NULL));
	struct ibv_context *context = must(ibv_open_device(must(list[0])));
	struct ibv_pd *pd = must(ibv_alloc_pd(context));
	struct ibv_cq *cq = must(ibv_create_cq(context, 16, NULL, NULL, 0));
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC,
	                                .send_cq = cq,
	                                .recv_cq = cq,
	                                .cap = {.max_send_wr = 1, .max_recv_wr = 1}};
	struct ibv_qp *qp = must(ibv_create_qp(pd, &init));
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	const int to_init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	printf("missing: %d\n", ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT));
	printf("capabilities: %d\n", ibv_modify_qp(qp, &attr, to_init | IBV_QP_CAP));
	printf("init: %d\n", ibv_modify_qp(qp, &attr, to_init));
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
	                            .path_mtu = IBV_MTU_1024,
	                            .dest_qp_num = 7,
	                            .max_dest_rd_atomic = 1,
	                            .ah_attr = {.dlid = 1, .port_num = 1}};
	const int to_rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
	                   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	printf("no GID: %d\n", ibv_modify_qp(qp, &attr, to_rtr));
	attr.ah_attr.is_global = 1;
	attr.ah_attr.grh.sgid_index = 99;
	printf("no such index: %d\n", ibv_modify_qp(qp, &attr, to_rtr));
	init.send_cq = NULL;
	printf("no queue: %d\n", ibv_create_qp(pd, &init) == NULL);
	struct ibv_sge piece = {0};
	struct ibv_send_wr send = {.wr_id = 7, .opcode = IBV_WR_SEND}, *bad_send;
	struct ibv_recv_wr receive = {.wr_id = 8, .sg_list = &piece, .num_sge = 100}, *bad_receive;
	printf("send: %d\n", ibv_post_send(qp, &send, &bad_send));
	printf("receive: %d\n", ibv_post_recv(qp, &receive, &bad_receive));
	send.opcode = (enum ibv_wr_opcode)77;
	printf("opcode: %d\n", ibv_post_send(qp, &send, &bad_send));
	/* Its objects end with the process; leak checkers need not look for them. */
	fflush(stdout);
	_exit(EXIT_SUCCESS);
}
