/* The devices: several names for the same queue pairs (compat/devices.h). Listing, opening and
 * closing them, and the one adapter of the process behind all of them.
 *
 * Listing the devices opens the adapter, so that a device that cannot be opened is not listed; so
 * does any other call that needs it. The adapter stays open until the process ends, so that the GID
 * and GUID that a program has seen remain valid when it closes the device and opens it again. The
 * library is linked so that dlclose() does not unload it, because the adapter's thread runs its
 * code. */
#include "compat/cm/cm.h"
#include "compat/compat.h"
#include "compat/devices.h"

#include <endian.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
	pthread_mutex_t lock;
	pthread_once_t once;
	struct hdl_adapter *adapter;
} process = {.lock = PTHREAD_MUTEX_INITIALIZER, .once = PTHREAD_ONCE_INIT};

/* Is it the GID by which InfiniBand knows the port? */
static bool is_port_gid(const struct hdl_gid *gid, const struct hdl_limits *limits)
{
	return memcmp(gid, &limits->ib_gid, sizeof(*gid)) == 0;
}

/* All other GIDs are IP addresses of the node. */
static bool is_address_gid(const struct hdl_gid *gid, const struct hdl_limits *limits)
{
	return !is_port_gid(gid, limits);
}

#define DEVICE_OF_ROW(name_, uverbs, numbers, node, transport, ...) \
	{.ibv = {.node_type = (node),                               \
	         .transport_type = (transport),                     \
	         .name = (name_),                                   \
	         .dev_name = (uverbs),                              \
	         .dev_path = "/sys/class/infiniband_verbs/" uverbs, \
	         .ibdev_path = "/sys/class/infiniband/" name_},     \
	 __VA_ARGS__},

static struct compat_device devices[] = {COMPAT_DEVICE_ROWS(DEVICE_OF_ROW)};
#define DEVICES (sizeof(devices) / sizeof(devices[0]))

/* How many network addresses the program asks for. Without asking the agent: the table of devices
 * is looked at before there is an adapter. */
static unsigned addresses_wanted(void)
{
	const char *list = secure_getenv("HEDDLE_ADDR");
	unsigned count = list != NULL && list[0] != '\0';
	for (; list != NULL && *list != '\0'; list++)
		count += *list == ',';
	return count;
}

/* HEDDLE_DEVICE (heddle run --device) hides all devices but one. A device of one address exists if
 * the program asks for that many. */
static bool is_shown(const struct compat_device *device)
{
	const char *chosen = secure_getenv("HEDDLE_DEVICE");
	if (device->address > 0 && device->address >= addresses_wanted())
		return false;
	return chosen == NULL || chosen[0] == '\0' || strcmp(chosen, device->ibv.name) == 0;
}

const struct compat_device *compat_device(unsigned index)
{
	for (size_t i = 0; i < DEVICES; i++)
		if (is_shown(&devices[i]) && index-- == 0)
			return &devices[i];
	return NULL;
}

const struct compat_device *compat_device_named(const char *name)
{
	for (size_t i = 0; i < DEVICES; i++)
		if (strcmp(name, devices[i].ibv.name) == 0)
			return is_shown(&devices[i]) ? &devices[i] : NULL;
	return NULL;
}

/* A child of fork() has the memory of the adapter but not its thread, and the peers know only the
 * parent. The child may not use what it inherited (ibv_fork_init(3)); when it opens the device, it
 * gets an adapter of its own. */
static void before_fork(void)
{
	pthread_mutex_lock(&process.lock);
	compat_live_fork(FORK_BEFORE);
}

static void after_fork_parent(void)
{
	compat_live_fork(FORK_PARENT);
	pthread_mutex_unlock(&process.lock);
}

static void after_fork_child(void)
{
	compat_live_fork(FORK_CHILD);
	pthread_mutex_init(&process.lock, NULL);
	process.adapter = NULL;
	compat_events_forget();
	compat_wait_forget();
	compat_cm_forget();
	compat_xrc_forget();
}

static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

static int open_adapter(void)
{
	struct hdl_open_attr attr = {.name = HDL_DEVICE_ETHERNET, .on_node = true};
	struct hdl_adapter *adapter;
	int error = -hdl_open(&attr, &adapter);
	if (error != 0)
		return error;
	error = compat_events_start(adapter);
	if (error == 0)
		process.adapter = adapter;
	else
		hdl_close(adapter);
	return error;
}

struct hdl_adapter *compat_adapter(void)
{
	pthread_once(&process.once, watch_forks);
	pthread_mutex_lock(&process.lock);
	int error = 0;
	if (process.adapter == NULL)
		error = open_adapter();
	struct hdl_adapter *adapter = error == 0 ? process.adapter : NULL;
	pthread_mutex_unlock(&process.lock);
	if (error != 0)
		errno = error;
	return adapter;
}

__be64 compat_guid(const struct compat_device *device)
{
	struct hdl_limits limits;
	struct hdl_adapter *adapter = compat_adapter();
	if (adapter == NULL || hdl_adapter_query(adapter, &limits) != 0)
		return 0;
	return htobe64(limits.guid + device->guid_offset);
}

/* Is @gid, number @index of the node's, in the GID table of @device? */
static bool has_gid(const struct compat_device *device, unsigned index, const struct hdl_gid *gid,
                    const struct hdl_limits *limits)
{
	if (device->address == 0)
		return device->has_gid(gid, limits);
	if (index >= 32) /* wire_gids has a bit for each that is on a network */
		return false;
	uint32_t before = limits->wire_gids & ((1u << index) - 1);
	return (limits->wire_gids >> index & 1) &&
	       __builtin_popcount(before) == (int)device->address;
}

/* Walk through the node's GIDs that @device has, up to entry @index of its table or the one with
 * the index @below for hdl_gid_query(). */
static bool find_gid(const struct compat_device *device, unsigned *index, unsigned *below)
{
	struct hdl_limits limits;
	struct hdl_gid gid;
	struct hdl_adapter *adapter = compat_adapter();
	unsigned at = 0;
	if (adapter == NULL || hdl_adapter_query(adapter, &limits) != 0)
		return false;
	for (unsigned i = 0; hdl_gid_query(adapter, i, &gid) == 0; i++) {
		if (!has_gid(device, i, &gid, &limits))
			continue;
		if (at == *index || i == *below) {
			*index = at;
			*below = i;
			return true;
		}
		at++;
	}
	return false;
}

unsigned compat_gid_above(const struct compat_device *device, unsigned below)
{
	unsigned index = UINT_MAX;
	return find_gid(device, &index, &below) ? index : UINT_MAX;
}

unsigned compat_gid_below(const struct compat_device *device, unsigned index)
{
	unsigned below = UINT_MAX;
	return find_gid(device, &index, &below) ? below : UINT_MAX;
}

bool compat_gid(const struct compat_device *device, unsigned index, union ibv_gid *gid)
{
	struct hdl_gid found;
	struct hdl_adapter *adapter = compat_adapter();
	memset(gid, 0, sizeof(*gid));
	unsigned below = adapter != NULL ? compat_gid_below(device, index) : UINT_MAX;
	if (below == UINT_MAX || hdl_gid_query(adapter, below, &found) != 0)
		return false;
	memcpy(gid->raw, found.raw, sizeof(gid->raw));
	return true;
}

bool compat_inherited(struct ibv_context *context)
{
	return compat_context(context)->adapter != process.adapter;
}

static void print_none_shown(void)
{
	fprintf(stderr, "heddle: there is no device '%s'; there are",
	        secure_getenv("HEDDLE_DEVICE"));
	unsigned addresses = addresses_wanted();
	for (size_t i = 0; i < DEVICES; i++)
		if (devices[i].address == 0 || devices[i].address < addresses)
			fprintf(stderr, "%s %s", i > 0 ? "," : "", devices[i].ibv.name);
	fputc('\n', stderr);
}

struct ibv_device **ibv_get_device_list(int *count)
{
	compat_redirect();
	if (count != NULL)
		*count = 0;
	if (compat_adapter() == NULL) /* the reason has been logged */
		return NULL;
	struct ibv_device **list = calloc(DEVICES + 1, sizeof(*list));
	if (list == NULL)
		return compat_fail(ENOMEM);
	int shown = 0;
	for (size_t i = 0; i < DEVICES; i++)
		if (is_shown(&devices[i]))
			list[shown++] = &devices[i].ibv;
	if (shown == 0)
		print_none_shown();
	if (count != NULL)
		*count = shown;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *dev)
{
	return dev->name;
}

int ibv_get_device_index(struct ibv_device *dev)
{
	(void)dev;
	return -1; /* the kernel has no such device */
}

__be64 ibv_get_device_guid(struct ibv_device *dev)
{
	return compat_guid((const struct compat_device *)(const void *)dev);
}

static const struct ibv_context_ops context_ops = {
        ._compat_query_device = ibv_query_device,
        ._compat_query_port = ibv_query_port,
        .alloc_mw = compat_alloc_mw,
        .bind_mw = compat_bind_mw,
        .dealloc_mw = compat_dealloc_mw,
        .poll_cq = compat_poll_cq,
        .req_notify_cq = compat_req_notify_cq,
        .post_srq_recv = compat_post_srq_recv,
        .post_send = compat_post_send,
        .post_recv = compat_post_recv,
};

/* Calls that are not here are not supported: the inline functions of verbs.h return EOPNOTSUPP. */
static void verbs_device_fill_calls(struct compat_context *context, struct ibv_device *device)
{
	struct verbs_context *verbs = &context->verbs;
	verbs->sz = sizeof(*verbs);
	verbs->query_port = compat_query_port;
	verbs->query_device_ex = compat_query_device_ex;
	verbs->create_cq_ex = compat_create_cq_ex;
	verbs->create_qp_ex = compat_create_qp_ex;
	verbs->create_srq_ex = compat_create_srq_ex;
	verbs->open_xrcd = compat_open_xrcd;
	verbs->close_xrcd = compat_close_xrcd;
	verbs->get_srq_num = compat_get_srq_num;
	verbs->open_qp = compat_open_qp;
	verbs->alloc_td = compat_alloc_td;
	verbs->dealloc_td = compat_dealloc_td;
	verbs->alloc_parent_domain = compat_alloc_parent_domain;
	verbs->alloc_null_mr = compat_alloc_null_mr;
	verbs->context.device = device;
	verbs->context.ops = context_ops;
	verbs->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	verbs->context.num_comp_vectors = 1;
	pthread_mutex_init(&verbs->context.mutex, NULL);
}

static bool is_device(const struct ibv_device *device)
{
	for (size_t i = 0; i < DEVICES; i++)
		if (device == &devices[i].ibv)
			return true;
	return false;
}

struct ibv_context *ibv_open_device(struct ibv_device *dev)
{
	if (!is_device(dev))
		return compat_fail(ENODEV);
	struct hdl_adapter *adapter = compat_adapter();
	if (adapter == NULL)
		return NULL;
	struct compat_context *context = calloc(1, sizeof(*context));
	if (context == NULL)
		return compat_fail(ENOMEM);
	context->adapter = adapter;
	verbs_device_fill_calls(context, dev);
	/* Nothing reads it, but programs set flags on it and duplicate it. */
	context->verbs.context.cmd_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	int error = context->verbs.context.cmd_fd < 0 ? errno : compat_events_open(context);
	if (error != 0) {
		if (context->verbs.context.cmd_fd >= 0)
			close(context->verbs.context.cmd_fd);
		free(context);
		return compat_fail(error);
	}
	compat_live_add(&context->live, OBJECT_CONTEXT, &context->verbs.context);
	return &context->verbs.context;
}

int ibv_close_device(struct ibv_context *ibv)
{
	struct compat_context *context = compat_context(ibv);
	if (compat_live_take(OBJECT_CONTEXT, ibv) == NULL)
		return compat_error(EINVAL);
	compat_events_close(context);
	close(ibv->cmd_fd);
	pthread_mutex_destroy(&ibv->mutex);
	free(context);
	return 0;
}

struct ibv_context *ibv_import_device(int fd)
{
	(void)fd;
	return compat_fail(EOPNOTSUPP);
}

int ibv_fork_init(void)
{
	return 0;
}

enum ibv_fork_status ibv_is_fork_initialized(void)
{
	/* The adapter copies through the process's own mapping, so copy-on-write cannot separate
	 * the two. */
	return IBV_FORK_UNNEEDED;
}
