/* For programs that leave as soon as they are done, by LD_PRELOAD: the first connection ends a
 * second later. Where packets get lost the other end may not know yet that its last message
 * arrived, and asks again; nobody answers for one that has left. siw takes what it has sent last
 * along. */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <unistd.h>

/* @name of the library behind us, after the second is over. */
static void *real(const char *name)
{
	static unsigned calls;
	if (calls++ == 0)
		sleep(1);
	return dlsym(RTLD_NEXT, name);
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	return ((int (*)(struct ibv_qp *))real("ibv_destroy_qp"))(qp);
}

int rdma_disconnect(struct rdma_cm_id *id)
{
	return ((int (*)(struct rdma_cm_id *))real("rdma_disconnect"))(id);
}

/* On iWARP this is how librdmacm disconnects. */
int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	const char *name = "ibv_modify_qp";
	const int ends = (mask & IBV_QP_STATE) != 0 &&
	                 (attr->qp_state == IBV_QPS_SQD || attr->qp_state == IBV_QPS_ERR);
	void *call = ends ? real(name) : dlsym(RTLD_NEXT, name);
	return ((int (*)(struct ibv_qp *, struct ibv_qp_attr *, int))call)(qp, attr, mask);
}
