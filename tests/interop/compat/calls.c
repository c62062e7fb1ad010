/* MISSION X1: what calls answer that do not move a byte. Attributes, errors as the manual pages
 * name them, what is not supported, and the files below /sys and /dev. */
#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

static void the_device_and_its_port(void **state)
{
	struct pair *pair = pair_open(NULL);
	struct ibv_device_attr attr;
	struct ibv_device_attr_ex attr_ex;
	struct ibv_port_attr port;
	(void)state;
	assert_int_equal(ibv_query_device(pair->a.context, &attr), 0);
	assert_int_equal(attr.phys_port_cnt, 1);
	assert_true(attr.max_srq_wr >= 4095); /* UCX asks for as many */
	assert_int_equal(attr.node_guid, ibv_get_device_guid(pair->a.context->device));
	assert_int_equal(ibv_query_device_ex(pair->a.context, NULL, &attr_ex), 0);
	/* Up to the last field: what pads the structure is nobody's. */
	assert_memory_equal(&attr, &attr_ex.orig_attr,
	                    offsetof(struct ibv_device_attr, phys_port_cnt) + 1);
	assert_int_equal(ibv_query_port(pair->a.context, 1, &port), 0);
	assert_int_equal(port.state, IBV_PORT_ACTIVE);
	assert_int_equal(port.link_layer, IBV_LINK_LAYER_ETHERNET);
	assert_int_equal(port.active_mtu, IBV_MTU_4096);
	assert_int_equal(ibv_query_port(pair->a.context, 2, &port), EINVAL);
	pair_close(pair);
}

/* What cannot be opened is not listed, and the call says why. */
static void no_device_where_none_can_be_opened(void **state)
{
	static const struct {
		const char *name, *value;
		int error;
	} rows[] = {{"HEDDLE_ADDR", "nonsense", EINVAL},
	            {"HEDDLE_ADDR", "198.51.100.7", EIO},
	            {"HEDDLE_CAPTURE", "/nonexistent/x", EIO},
	            {"HEDDLE_LOCAL", "OFF", EINVAL}};
	int count, status;
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		pid_t child = fork(); /* which has no adapter yet */
		if (child == 0) {
			count = 7;
			setenv(rows[i].name, rows[i].value, 1);
			errno = 0;
			bool none = ibv_get_device_list(&count) == NULL && count == 0 &&
			            errno == rows[i].error;
			/* It is looked for anew each time. */
			unsetenv(rows[i].name);
			struct ibv_device **list = ibv_get_device_list(&count);
			bool back = list != NULL && count == 3 && ibv_get_device_guid(list[0]) != 0;
			_exit(none ? back ? 0 : 2 : 1);
		}
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_int_equal(status, 0);
	}
}

/* The exported call is for programs older than the last fields of the structure. */
static void the_short_port_attributes(void **state)
{
	struct pair *pair = pair_open(NULL);
	int (*query)(struct ibv_context *, uint8_t, void *);
	*(void **)&query = dlsym(RTLD_DEFAULT, "ibv_query_port");
	(void)state;
	assert_non_null(query);
	struct ibv_port_attr port;
	memset(&port, 0x5a, sizeof(port));
	assert_int_equal(query(pair->a.context, 1, &port), 0);
	assert_int_equal(port.state, IBV_PORT_ACTIVE);
	assert_int_equal(port.port_cap_flags2, 0x5a5a); /* untouched */
	pair_close(pair);
}

static void gids_and_pkeys(void **state)
{
	struct pair *pair = pair_open(NULL);
	static const union ibv_gid zero;
	struct ibv_port_attr port;
	struct ibv_gid_entry entry, table[16];
	union ibv_gid gid;
	__be16 pkey;
	(void)state;
	assert_int_equal(ibv_query_port(pair->a.context, 1, &port), 0);
	for (int i = 0; i < port.gid_tbl_len; i++)
		assert_int_equal(ibv_query_gid(pair->a.context, 1, i, &gid), 0);
	assert_memory_equal(&gid, &zero, sizeof(gid));
	assert_int_equal(ibv_query_gid(pair->a.context, 1, port.gid_tbl_len, &gid), -1);
	assert_int_equal(ibv_query_gid_ex(pair->a.context, 1, 0, &entry, 0), 0);
	assert_int_equal(entry.gid_type, IBV_GID_TYPE_ROCE_V2);
	assert_memory_equal(&entry.gid, &pair->b.gid, sizeof(gid)); /* one adapter in the process */
	assert_int_equal(
	        ibv_query_gid_ex(pair->a.context, 1, (uint32_t)port.gid_tbl_len - 1, &entry, 0),
	        ENODATA);
	assert_true(ibv_query_gid_table(pair->a.context, table, 16, 0) > 0);
	assert_int_equal(ibv_query_gid_table(pair->a.context, table, 0, 0), -EINVAL);
	assert_int_equal(ibv_query_pkey(pair->a.context, 1, 0, &pkey), 0);
	assert_int_equal(ntohs(pkey), 0xffff);
	assert_int_equal(ibv_get_pkey_index(pair->a.context, 1, htons(0xffff)), 0);
	assert_int_equal(ibv_get_pkey_index(pair->a.context, 1, htons(5)), -1);
	pair_close(pair);
}

static void refusals(void **state)
{
	struct pair *pair = pair_open(NULL);
	struct side *a = &pair->a;
	struct ibv_qp_init_attr init = {.send_cq = a->cq,
	                                .recv_cq = a->cq,
	                                .cap = {.max_send_wr = 1, .max_recv_wr = 1},
	                                .qp_type = IBV_QPT_RC};
	struct ibv_ah_attr ah = {.port_num = 1};
	(void)state;
	FAILS(ibv_create_cq(a->context, 0, NULL, NULL, 0), EINVAL);
	FAILS(ibv_create_cq(a->context, 1 << 30, NULL, NULL, 0), EINVAL);
	FAILS(ibv_create_cq(a->context, 1, NULL, NULL, 1000), EINVAL);
	init.cap.max_send_wr = 1u << 30;
	FAILS(ibv_create_qp(a->pd, &init), EINVAL);
	init.cap.max_send_wr = 1;
	init.qp_type = IBV_QPT_RAW_PACKET;
	FAILS(ibv_create_qp(a->pd, &init), EOPNOTSUPP);
	FAILS(ibv_reg_mr(a->pd, NULL, 4096, IBV_ACCESS_LOCAL_WRITE), EFAULT);
	FAILS(ibv_reg_mr(a->pd, a->bytes, 4096, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	FAILS(ibv_reg_mr(a->pd, a->bytes, 4096, IBV_ACCESS_ON_DEMAND), EOPNOTSUPP);
	FAILS(ibv_create_ah(a->pd, &ah), EINVAL); /* no global route */
	ah.is_global = 1;
	memset(&ah.grh.dgid, 0x55, sizeof(ah.grh.dgid));
	FAILS(ibv_create_ah(a->pd, &ah), EHOSTUNREACH);
	assert_int_equal(ibv_dealloc_pd(a->pd), EBUSY);
	assert_int_equal(ibv_destroy_cq(a->cq), EBUSY);
	assert_int_equal(ibv_destroy_comp_channel(a->channel), EBUSY);

	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
	assert_int_equal(ibv_modify_qp(a->qp, &attr, IBV_QP_STATE), EINVAL);    /* RTS to INIT */
	assert_int_equal(ibv_modify_qp(a->qp, &attr, IBV_QP_ALT_PATH), EINVAL); /* without a port */
	pair_reset(a);
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND}, *bad = NULL;
	assert_int_equal(ibv_post_send(a->qp, &wr, &bad), EINVAL);
	assert_ptr_equal(bad, &wr);
	pair_close(pair);
}

/* Lists of requests: which one was refused, why, and that those before it were taken
 * (ibv_post_send(3)). */
static void bad_requests(void **state)
{
	struct pair *pair = pair_open(NULL);
	struct side *a = &pair->a;
	struct ibv_sge pieces[64];
	struct ibv_send_wr *bad;
	(void)state;
	for (size_t i = 0; i < 64; i++)
		pieces[i] = pair_sge(a, 0, 1024);
	const struct {
		struct ibv_send_wr wr;
		int error;
	} refused[] = {
	        {{.opcode = IBV_WR_SEND, .sg_list = pieces, .num_sge = 64}, EINVAL},
	        {{.opcode = IBV_WR_SEND, .sg_list = pieces, .num_sge = -1}, EINVAL},
	        {{.opcode = (enum ibv_wr_opcode)99, .sg_list = pieces, .num_sge = 1}, EINVAL},
	        {{.opcode = IBV_WR_SEND,
	          .sg_list = pieces,
	          .num_sge = 1,
	          .send_flags = IBV_SEND_INLINE},
	         EINVAL}, /* longer than may be inline */
	        {{.opcode = IBV_WR_RDMA_READ,
	          .sg_list = pieces,
	          .num_sge = 1,
	          .send_flags = IBV_SEND_INLINE},
	         EINVAL},
	        {{.opcode = IBV_WR_TSO, .sg_list = pieces, .num_sge = 1}, EINVAL},
	};
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		struct ibv_send_wr wr = refused[i].wr;
		struct ibv_send_wr first = {
		        .wr_id = 7,
		        .next = &wr,
		        .opcode = IBV_WR_RDMA_WRITE,
		        .sg_list = pieces,
		        .num_sge = 1,
		        .send_flags = IBV_SEND_SIGNALED,
		        .wr.rdma = {(uintptr_t)pair->b.bytes, pair->b.mr->rkey}};
		bad = NULL;
		int error = ibv_post_send(a->qp, &first, &bad);
		if (error != refused[i].error)
			fail_msg("row %zu: %d, not %d", i, error, refused[i].error);
		assert_ptr_equal(bad, &wr);
		assert_int_equal(pair_done(a).wr_id, 7);
	}
	pair_close(pair);
}

/* A datagram that is longer than the port carries (docs/COMPATIBILITY.md). */
static void datagrams_that_are_too_long(void **state)
{
	struct pair *pair = pair_open(&(struct pair_how){.type = IBV_QPT_UD});
	struct ibv_ah_attr attr = {
	        .grh = {.dgid = pair->b.gid, .hop_limit = 64}, .is_global = 1, .port_num = 1};
	struct ibv_ah *ah = ibv_create_ah(pair->a.pd, &attr);
	struct ibv_port_attr port;
	(void)state;
	assert_non_null(ah);
	assert_int_equal(ibv_query_port(pair->a.context, 1, &port), 0);
	uint32_t most = 128u << port.active_mtu;
	struct ibv_sge sge = pair_sge(&pair->a, 0, most + 1);
	struct ibv_send_wr *bad = NULL, wr = {.sg_list = &sge,
	                                      .num_sge = 1,
	                                      .opcode = IBV_WR_SEND,
	                                      .send_flags = IBV_SEND_SIGNALED,
	                                      .wr.ud = {.ah = ah,
	                                                .remote_qpn = pair->b.qp->qp_num,
	                                                .remote_qkey = PAIR_QKEY}};
	assert_int_equal(ibv_post_send(pair->a.qp, &wr, &bad), EMSGSIZE);
	assert_ptr_equal(bad, &wr);
	sge.length = most;
	assert_int_equal(ibv_post_send(pair->a.qp, &wr, &bad), 0);
	pair_done(&pair->a);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	pair_close(pair);
}

/* More than the queues hold. */
static void full_queues(void **state)
{
	struct pair *pair = pair_open(NULL);
	struct ibv_sge piece = pair_sge(&pair->a, 0, 64);
	struct ibv_recv_wr recv = {.sg_list = &piece, .num_sge = 1}, *bad_recv = NULL;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	int error = 0;
	(void)state;
	assert_int_equal(ibv_query_qp(pair->a.qp, &attr, IBV_QP_CAP, &init), 0);
	for (uint32_t i = 0; i <= init.cap.max_recv_wr && error == 0; i++)
		error = ibv_post_recv(pair->a.qp, &recv, &bad_recv);
	assert_int_equal(error, ENOMEM);
	assert_ptr_equal(bad_recv, &recv);
	/* Nobody receives: what is sent waits. */
	struct ibv_send_wr send = {.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND},
	                   *bad = NULL;
	error = 0;
	for (uint32_t i = 0; i <= init.cap.max_send_wr && error == 0; i++)
		error = ibv_post_send(pair->a.qp, &send, &bad);
	assert_int_equal(error, ENOMEM);
	assert_ptr_equal(bad, &send);
	recv.num_sge = 64;
	assert_int_equal(ibv_post_recv(pair->b.qp, &recv, &bad_recv), EINVAL);
	pair_reset(&pair->b);
	recv.num_sge = 1;
	assert_int_equal(ibv_post_recv(pair->b.qp, &recv, &bad_recv), EINVAL); /* in RESET */
	pair_close(pair);
}

static void what_is_not_supported_says_so(void **state)
{
	struct pair *pair = pair_open(NULL);
	struct ibv_context *context = pair->a.context;
	struct ibv_alloc_dm_attr dm = {.length = 64};
	struct ibv_counters_init_attr counters = {0};
	struct ibv_wq_init_attr wq = {0};
	struct ibv_cq_init_attr_ex cq = {.cqe = 1, .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP};
	struct ibv_srq_init_attr_ex srq = {.comp_mask =
	                                           IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
	                                   .srq_type = IBV_SRQT_TM,
	                                   .pd = pair->a.pd};
	struct ibv_ece ece;
	(void)state;
	FAILS(ibv_alloc_dm(context, &dm), EOPNOTSUPP);
	FAILS(ibv_create_counters(context, &counters), EOPNOTSUPP);
	FAILS(ibv_create_wq(context, &wq), EOPNOTSUPP);
	FAILS(ibv_create_cq_ex(context, &cq), EOPNOTSUPP);
	FAILS(ibv_create_srq_ex(context, &srq), EOPNOTSUPP);
	FAILS(ibv_import_device(0), EOPNOTSUPP);
	FAILS(ibv_reg_dmabuf_mr(pair->a.pd, 0, 4096, 0, 0, 0), EOPNOTSUPP);
	assert_int_equal(ibv_attach_mcast(pair->a.qp, &pair->a.gid, 0), EINVAL); /* not a group */
	assert_int_equal(ibv_query_ece(pair->a.qp, &ece), EOPNOTSUPP);
	assert_null(ibv_qp_to_qp_ex(pair->a.qp));
	pair_close(pair);
}

static void a_queue_pair_remembers(void **state)
{
	struct pair *pair = pair_open(NULL);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	(void)state;
	assert_int_equal(
	        ibv_query_qp(pair->a.qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_CAP, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_RTS);
	assert_int_equal(attr.path_mtu, IBV_MTU_1024);
	assert_int_equal(attr.dest_qp_num, pair->b.qp->qp_num);
	assert_int_equal(attr.rq_psn, 7);
	assert_int_equal(attr.timeout, 14);
	assert_int_equal(attr.ah_attr.is_global, 1);
	assert_memory_equal(&attr.ah_attr.grh.dgid, &pair->b.gid, 16);
	assert_true(attr.cap.max_send_wr >= PAIR_DEPTH);
	assert_ptr_equal(init.send_cq, pair->a.cq);
	assert_int_equal(init.qp_type, IBV_QPT_RC);
	pair_close(pair);
}

static void rates(void **state)
{
	static const struct {
		enum ibv_rate rate;
		int mult, mbps;
	} rows[] = {{IBV_RATE_2_5_GBPS, 1, 2500},
	            {IBV_RATE_10_GBPS, 4, 10000},
	            {IBV_RATE_100_GBPS, 40, 103125},
	            {IBV_RATE_400_GBPS, 160, 425000},
	            {IBV_RATE_MAX, -1, -1}};
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(ibv_rate_to_mult(rows[i].rate), rows[i].mult);
		assert_int_equal(ibv_rate_to_mbps(rows[i].rate), rows[i].mbps);
		assert_int_equal(mult_to_ibv_rate(rows[i].mult), rows[i].rate);
		assert_int_equal(mbps_to_ibv_rate(rows[i].mbps), rows[i].rate);
	}
}

#define DEVICE "/sys/class/infiniband/heddle0"

static void files_below_sys_and_dev(void **state)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct stat info;
	char line[64], path[4096];
	(void)state;
	ibv_free_device_list(list);
	FILE *file = fopen(DEVICE "/ports/1/gid_attrs/types/0", "r");
	assert_non_null(file);
	assert_non_null(fgets(line, sizeof(line), file));
	assert_string_equal(line, "RoCE v2\n");
	fclose(file);

	int fd = open(DEVICE "//ports/./1/../1/link_layer", O_RDONLY);
	assert_true(fd >= 0);
	assert_int_equal(read(fd, line, sizeof(line)), 9);
	assert_memory_equal(line, "Ethernet\n", 9);
	close(fd);
	assert_int_equal(open(DEVICE "/ports/2/state", O_RDONLY), -1);
	assert_int_equal(errno, ENOENT);
	assert_int_equal(open(DEVICE "/node_desc", O_WRONLY), -1);
	assert_int_equal(errno, EACCES);

	assert_int_equal(stat("/dev/infiniband/uverbs0", &info), 0);
	assert_true(S_ISCHR(info.st_mode));
	assert_int_equal(access("/dev/infiniband/uverbs0", R_OK | W_OK), 0);
	assert_int_equal(access("/dev/infiniband/uverbs3", F_OK), -1);
	assert_non_null(realpath(DEVICE "/", path));
	assert_string_equal(path, DEVICE);

	DIR *folder = opendir("/sys/class/infiniband");
	assert_non_null(folder);
	int found = 0;
	for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
		found += strcmp(entry->d_name, "heddle0") == 0;
	assert_int_equal(found, 1);
	closedir(folder);
	/* All other files are the system's. */
	assert_int_equal(access("/sys/class/infinibandage", F_OK), -1);
	folder = opendir("/proc/self/fd");
	assert_non_null(folder);
	assert_non_null(readdir(folder));
	closedir(folder);
}

static int is_device(const struct dirent *entry)
{
	return entry->d_name[0] == 'h';
}

static int backwards(const struct dirent **a, const struct dirent **b)
{
	return -alphasort(a, b);
}

/* As ls(1) and libibumad look at folders. */
static void folders_below_sys(void **state)
{
	struct dirent **names;
	struct statx info;
	struct stat root, held;
	(void)state;
	assert_int_equal(scandir("/sys/class/infiniband", &names, is_device, backwards), 3);
	assert_string_equal(names[0]->d_name, "heddle_iw0");
	assert_string_equal(names[1]->d_name, "heddle_ib0");
	assert_string_equal(names[2]->d_name, "heddle0");
	for (int i = 0; i < 3; i++)
		free(names[i]);
	free(names);
	assert_int_equal(scandir(DEVICE "/none", &names, NULL, NULL), -1);
	assert_int_equal(errno, ENOENT);

	assert_int_equal(statx(AT_FDCWD, DEVICE, 0, STATX_MODE, &info), 0);
	assert_true(S_ISDIR(info.stx_mode));
	assert_int_equal(statx(AT_FDCWD, DEVICE "/none", 0, STATX_MODE, &info), -1);
	/* What stands for an open folder is not the root, where there is something to remove. */
	int fd = open(DEVICE, O_RDONLY | O_DIRECTORY);
	assert_int_equal(fstat(fd, &held), 0);
	assert_int_equal(stat("/", &root), 0);
	assert_false(held.st_dev == root.st_dev && held.st_ino == root.st_ino);
	close(fd);
}

/* The GID table and the files name the same network interface; InfiniBand has none. */
static void the_interface_of_a_gid(void **state)
{
	struct pair *pair = pair_open(NULL);
	struct ibv_gid_entry entry;
	char line[64];
	(void)state;
	assert_int_equal(ibv_query_gid_ex(pair->a.context, 1, 0, &entry, 0), 0);
	FILE *file = fopen(DEVICE "/ports/1/gid_attrs/ndevs/0", "r");
	assert_non_null(file);
	assert_non_null(fgets(line, sizeof(line), file));
	fclose(file);
	line[strcspn(line, "\n")] = '\0';
	assert_int_not_equal(entry.ndev_ifindex, 0);
	assert_int_equal(entry.ndev_ifindex, if_nametoindex(line));
	pair_close(pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(no_device_where_none_can_be_opened), /* first: it forks */
	        cmocka_unit_test(the_device_and_its_port),
	        cmocka_unit_test(the_short_port_attributes),
	        cmocka_unit_test(gids_and_pkeys),
	        cmocka_unit_test(refusals),
	        cmocka_unit_test(bad_requests),
	        cmocka_unit_test(datagrams_that_are_too_long),
	        cmocka_unit_test(full_queues),
	        cmocka_unit_test(what_is_not_supported_says_so),
	        cmocka_unit_test(a_queue_pair_remembers),
	        cmocka_unit_test(rates),
	        cmocka_unit_test(folders_below_sys),
	        cmocka_unit_test(the_interface_of_a_gid),
	        cmocka_unit_test(files_below_sys_and_dev),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
