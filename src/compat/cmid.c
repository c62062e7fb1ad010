/* Identifiers of connections, and the commands of librdmacm on them. */
#include <stdlib.h>
#include <string.h>

#include "compat/cm.h"

#define MAX_IDS 65536u /* what librdmacm can number */

static struct cm_id *ids[MAX_IDS];
static uint16_t uses[MAX_IDS]; /* so that a late message for a former one is known as such */
static uint32_t rover;

struct cm_id *cm_id_new(struct cm_channel *channel, uint16_t space, uint8_t qp_type)
{
	uint32_t handle = MAX_IDS;
	for (uint32_t i = 0; i < MAX_IDS && handle == MAX_IDS; i++)
		if (ids[(rover + i) % MAX_IDS] == NULL)
			handle = (rover + i) % MAX_IDS;
	struct cm_id *id = handle < MAX_IDS ? calloc(1, sizeof(*id)) : NULL;
	if (id == NULL)
		return NULL;
	/* Numbers are taken anew as late as possible, but librdmacm keeps tables of 1024: do not touch all of them. */
	rover = (handle + 1) % (handle < 1024 ? 1024 : MAX_IDS);
	uses[handle]++;
	*id = (struct cm_id){.handle = handle,
	                     .number = (uint32_t)uses[handle] << 16 | handle,
	                     .channel = channel,
	                     .space = space,
	                     .qp_type = qp_type,
	                     .own_psn = (uint32_t)rand() & 0xffffffu};
	ids[handle] = id;
	return id;
}

struct cm_id *cm_id_of(uint32_t handle)
{
	return handle < MAX_IDS ? ids[handle] : NULL;
}

struct cm_id *cm_id_next(uint32_t *at)
{
	while (*at < MAX_IDS && ids[*at] == NULL)
		++*at;
	return *at < MAX_IDS ? ids[*at] : NULL;
}

/* Who holds the port of @id for the addresses of the other family? Programs that listen on both take a port twice; to the agent
 * it is one, which the last of the two gives back. */
static struct cm_id *other_family(struct cm_id *id)
{
	struct cm_id *other;
	if (!id->one_family || id->has_device)
		return NULL;
	for (uint32_t at = 0; (other = cm_id_next(&at)) != NULL; at++)
		if (other->holds_port && other->for_all && other->one_family &&
		    other->space == id->space && other->src.sin6_family != id->src.sin6_family &&
		    *cm_port_of(&other->src) == *cm_port_of(&id->src))
			return other;
	return NULL;
}

void cm_id_end(struct cm_id *id)
{
	cm_part(id);
	ids[id->handle] = NULL;
	cm_move_events(id, NULL);
	struct hdl_adapter *adapter = compat_adapter();
	if (id->holds_port && adapter != NULL && other_family(id) == NULL)
		hdl_cm_unbind(adapter, id->space, id->for_all ? NULL : &id->sgid,
		              ntohs(*cm_port_of(&id->src)));
	free(id->request);
	free(id);
}

/* --- ports --- */

/* Take the port in @id->src, or any if it is 0. The lock is given up meanwhile. 0 or an error. */
static int take_port(struct cm_id *id)
{
	uint32_t number = id->number, handle = id->handle;
	uint16_t space = id->space, port = ntohs(*cm_port_of(&id->src));
	bool for_all = !id->has_device;
	struct hdl_gid gid = id->sgid;
	struct hdl_adapter *adapter = compat_adapter();
	if (adapter == NULL)
		return ENODEV;
	if (port != 0 && other_family(id) != NULL) {
		id->holds_port = id->for_all = true;
		return 0;
	}
	cm_unlock();
	int error = -hdl_cm_bind(adapter, space, for_all ? NULL : &gid, &port);
	cm_lock();
	if (error != 0)
		return error;
	id = cm_id_of(handle);
	if (id == NULL || id->number != number) { /* destroyed by another thread */
		hdl_cm_unbind(adapter, space, for_all ? NULL : &gid, port);
		return EINVAL;
	}
	*cm_port_of(&id->src) = htons(port);
	id->holds_port = true;
	id->for_all = for_all;
	return 0;
}

static int bind_to(struct cm_id *id, const struct sockaddr_in6 *address)
{
	if (id->state != CM_IDLE || id->holds_port)
		return EINVAL;
	if (address->sin6_family != AF_INET && address->sin6_family != AF_INET6)
		return EAFNOSUPPORT;
	if (!cm_is_any(address)) {
		if (!cm_local_gid(address, &id->sgid))
			return EADDRNOTAVAIL;
		id->has_device = true;
	}
	id->src = *address;
	int error = take_port(id);
	if (error != 0)
		id->has_device = false;
	return error;
}

/* --- commands --- */

static void answer(const struct rdma_ucm_cmd_hdr *header, uint64_t where, const void *what,
                   size_t bytes)
{
	memcpy((void *)(uintptr_t)where, what, header->out < bytes ? header->out : bytes);
}

static int create_id(struct cm_channel *channel, const struct rdma_ucm_cmd_hdr *header,
                     const struct rdma_ucm_create_id *command)
{
	struct cm_id *id = cm_id_new(channel, command->ps, command->qp_type);
	if (id == NULL)
		return ENOMEM;
	id->uid = command->uid;
	struct rdma_ucm_create_id_resp resp = {.id = id->handle};
	answer(header, command->response, &resp, sizeof(resp));
	return 0;
}

static int destroy_id(const struct rdma_ucm_cmd_hdr *header,
                      const struct rdma_ucm_destroy_id *command)
{
	struct cm_id *id = cm_id_of(command->id);
	if (id == NULL)
		return ENOENT;
	struct rdma_ucm_destroy_id_resp resp = {.events_reported = id->events_reported};
	cm_id_end(id);
	answer(header, command->response, &resp, sizeof(resp));
	return 0;
}

static int resolve_ip(struct cm_id *id, const struct rdma_ucm_resolve_ip *command)
{
	uint32_t handle = id->handle;
	int error = 0;
	if (id->state != CM_IDLE)
		return EINVAL;
	if (!id->holds_port && command->src_addr.sin6_family != 0)
		error = bind_to(id, &command->src_addr);
	id = cm_id_of(handle);
	if (error != 0 || id == NULL)
		return error != 0 ? error : EINVAL;
	id->dst = command->dst_addr;
	error = cm_route(id);
	if (error == 0 && !id->holds_port) {
		error = take_port(id);
		id = cm_id_of(handle);
		if (id == NULL)
			return EINVAL;
	}
	cm_raise(id, error == 0 ? CM_ADDR_RESOLVED : CM_ADDR_ERROR, -error);
	return 0;
}

static int resolve_route(struct cm_id *id)
{
	if (!id->has_device || id->dst.sin6_family == 0)
		return EINVAL;
	id->has_path = true;
	cm_raise(id, CM_ROUTE_RESOLVED, 0);
	return 0;
}

static int query_route(const struct cm_id *id, const struct rdma_ucm_cmd_hdr *header,
                       const struct rdma_ucm_query *command)
{
	struct rdma_ucm_query_route_resp resp;
	cm_query_route(id, &resp);
	answer(header, command->response, &resp, sizeof(resp));
	return 0;
}

static int listen_on(struct cm_id *id, const struct rdma_ucm_listen *command)
{
	uint32_t handle = id->handle;
	if (id->state != CM_IDLE && id->state != CM_LISTENING)
		return EINVAL;
	if (!id->holds_port) {
		id->src.sin6_family = AF_INET;
		int error = take_port(id);
		if (error != 0)
			return error;
		id = cm_id_of(handle);
	}
	int backlog = (int)command->backlog;
	id->backlog = backlog > 0 && backlog < CM_MAX_BACKLOG ? backlog : CM_MAX_BACKLOG;
	id->state = CM_LISTENING;
	return 0;
}

static int init_qp_attr(const struct cm_id *id, const struct rdma_ucm_cmd_hdr *header,
                        const struct rdma_ucm_init_qp_attr *command)
{
	struct ib_uverbs_qp_attr attr;
	int error = cm_init_qp_attr(id, command->qp_state, &attr);
	if (error == 0)
		answer(header, command->response, &attr, sizeof(attr));
	return error;
}

static int migrate_id(struct cm_channel *channel, struct cm_id *id,
                      const struct rdma_ucm_cmd_hdr *header,
                      const struct rdma_ucm_migrate_id *command)
{
	if (cm_channel_of((int)command->fd) != id->channel)
		return EINVAL;
	struct rdma_ucm_migrate_resp resp = {.events_reported = id->events_reported};
	if (channel != id->channel)
		cm_move_events(id, channel);
	id->channel = channel;
	answer(header, command->response, &resp, sizeof(resp));
	return 0;
}

static int accept_it(struct cm_id *id, const struct rdma_ucm_accept *command)
{
	if (command->conn_param.valid) /* else the answer to a response: nothing is new */
		id->uid = command->uid;
	return cm_accept(id, &command->conn_param);
}

/* A path that the program found elsewhere takes the place of resolving the route. */
static int set_option(struct cm_id *id, const struct rdma_ucm_set_option *command)
{
	if (command->level == RDMA_OPTION_IB && command->optname == RDMA_OPTION_IB_PATH)
		return resolve_route(id);
	if (command->level != RDMA_OPTION_ID)
		return ENOSYS;
	if (command->optname == RDMA_OPTION_ID_ACK_TIMEOUT && command->optlen == 1)
		memcpy(&id->ack_timeout, (const void *)(uintptr_t)command->optval, 1);
	if (command->optname == RDMA_OPTION_ID_AFONLY && command->optlen == sizeof(int)) {
		int value;
		memcpy(&value, (const void *)(uintptr_t)command->optval, sizeof(value));
		id->one_family = value != 0;
	}
	return 0;
}

/* How long each command is, and where in it the identifier is. */
#define COMMAND(number, type) \
	[RDMA_USER_CM_CMD_##  \
	        number] = {sizeof(struct rdma_ucm_##type), offsetof(struct rdma_ucm_##type, id)}
static const struct {
	size_t bytes, id;
} commands[] = {
        COMMAND(DESTROY_ID, destroy_id),
        COMMAND(BIND_IP, bind_ip),
        COMMAND(RESOLVE_IP, resolve_ip),
        COMMAND(RESOLVE_ROUTE, resolve_route),
        COMMAND(QUERY_ROUTE, query),
        /* Before the fields of extended connection establishment were added. */
        [RDMA_USER_CM_CMD_CONNECT] = {offsetof(struct rdma_ucm_connect, ece),
                                      offsetof(struct rdma_ucm_connect, id)},
        COMMAND(LISTEN, listen),
        [RDMA_USER_CM_CMD_ACCEPT] = {offsetof(struct rdma_ucm_accept, ece),
                                     offsetof(struct rdma_ucm_accept, id)},
        COMMAND(REJECT, reject),
        COMMAND(DISCONNECT, disconnect),
        COMMAND(INIT_QP_ATTR, init_qp_attr),
        COMMAND(SET_OPTION, set_option),
        COMMAND(NOTIFY, notify),
        COMMAND(MIGRATE_ID, migrate_id),
};

static int on_id(struct cm_channel *channel, struct cm_id *id,
                 const struct rdma_ucm_cmd_hdr *header, const void *body)
{
	const struct rdma_ucm_reject *reject = body;
	const struct rdma_ucm_connect *connect = body;
	switch (header->cmd) {
	case RDMA_USER_CM_CMD_DESTROY_ID:
		return destroy_id(header, body);
	case RDMA_USER_CM_CMD_BIND_IP:
		return bind_to(id, &((const struct rdma_ucm_bind_ip *)body)->addr);
	case RDMA_USER_CM_CMD_RESOLVE_IP:
		return resolve_ip(id, body);
	case RDMA_USER_CM_CMD_RESOLVE_ROUTE:
		return resolve_route(id);
	case RDMA_USER_CM_CMD_QUERY_ROUTE:
		return query_route(id, header, body);
	case RDMA_USER_CM_CMD_CONNECT:
		return cm_request(id, &connect->conn_param);
	case RDMA_USER_CM_CMD_LISTEN:
		return listen_on(id, body);
	case RDMA_USER_CM_CMD_ACCEPT:
		return accept_it(id, body);
	case RDMA_USER_CM_CMD_REJECT:
		return cm_reject(id, reject->reason != 0 ? reject->reason : CM_REASON_CONSUMER,
		                 reject->private_data, reject->private_data_len);
	case RDMA_USER_CM_CMD_DISCONNECT:
		return cm_disconnect(id);
	case RDMA_USER_CM_CMD_INIT_QP_ATTR:
		return init_qp_attr(id, header, body);
	case RDMA_USER_CM_CMD_SET_OPTION:
		return set_option(id, body);
	case RDMA_USER_CM_CMD_NOTIFY: /* data came before the last message did, which never gets lost here */
		return 0;
	default:
		return migrate_id(channel, id, header, body);
	}
}

int cm_command(struct cm_channel *channel, const struct rdma_ucm_cmd_hdr *header, const void *body)
{
	if (header->cmd == RDMA_USER_CM_CMD_CREATE_ID)
		return header->in >= sizeof(struct rdma_ucm_create_id)
		               ? create_id(channel, header, body)
		               : EINVAL;
	/* librdmacm tries addresses of InfiniBand once (BIND), and without them uses the older commands alone. */
	if (header->cmd >= sizeof(commands) / sizeof(commands[0]) ||
	    commands[header->cmd].bytes == 0)
		return EOPNOTSUPP;
	if (header->in < commands[header->cmd].bytes)
		return EINVAL;
	uint32_t handle;
	memcpy(&handle, (const char *)body + commands[header->cmd].id, sizeof(handle));
	struct cm_id *id = cm_id_of(handle);
	if (id == NULL)
		return ENOENT;
	return on_id(channel, id, header, body);
}
