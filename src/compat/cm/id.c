/* Identifiers of connections, and librdmacm's commands on them. */
#include <stdlib.h>
#include <string.h>

#include "base/prng.h"
#include "compat/cm/cm.h"

#define MAX_PSN    0xffffffu
#define PORT_TRIES 16u /* ports that the agent finds free, until one is free on the wire, too */

static void release_port(struct cm_id *id);

static struct cm_id *ids[CM_MAX_IDS];
static uint32_t rover,
        end; /* where to look for the next free handle; one more than the highest that was ever
                used */

/* A number that no live identifier has. It is a secret between us and the peer: a forged message
 * would have to contain it. A number is reused so rarely that late messages for a former identifier
 * are recognized. There are 64 times as many numbers as identifiers. */
static uint32_t new_number(void)
{
	uint32_t number;
	do
		number = (uint32_t)prng_secret() & ((1u << CM_NUMBER_BITS) - 1);
	while (number == 0 || cm_id_numbered(number) != NULL);
	return number;
}

struct cm_id *cm_id_new(struct cm_channel *channel, uint16_t space, uint8_t qp_type)
{
	uint32_t handle = CM_MAX_IDS;
	for (uint32_t i = 0; i < CM_MAX_IDS && handle == CM_MAX_IDS; i++)
		if (ids[(rover + i) % CM_MAX_IDS] == NULL)
			handle = (rover + i) % CM_MAX_IDS;
	struct cm_id *id = handle < CM_MAX_IDS ? calloc(1, sizeof(*id)) : NULL;
	if (id == NULL)
		return NULL;
	/* Reuse handles as late as possible, but librdmacm allocates tables of 1024: do not touch
	 * all of them. */
	rover = (handle + 1) % (handle < 1024 ? 1024 : CM_MAX_IDS);
	end = handle >= end ? handle + 1 : end;
	*id = (struct cm_id){.handle = handle,
	                     .number = new_number(),
	                     .channel = channel,
	                     .space = space,
	                     .qp_type = qp_type,
	                     .manager = &cm_local,
	                     .own_psn = (uint32_t)prng_secret() & MAX_PSN};
	ids[handle] = id;
	cm_index_enter(id, CM_BY_NUMBER, id->number);
	return id;
}

struct cm_id *cm_id_of(uint32_t handle)
{
	return handle < CM_MAX_IDS ? ids[handle] : NULL;
}

struct cm_id *cm_id_numbered(uint32_t number)
{
	return cm_index_find(CM_BY_NUMBER, number);
}

uint64_t cm_process_key(uint64_t guid, uint32_t slot, uint32_t number)
{
	uint8_t process[16] = {0};
	memcpy(process, &guid, sizeof(guid));
	memcpy(process + sizeof(guid), &slot, sizeof(slot));
	return cm_peer_key(process, number);
}

struct cm_id *cm_id_next(uint32_t *at)
{
	while (*at < end && ids[*at] == NULL)
		++*at;
	return *at < end ? ids[*at] : NULL;
}

void cm_id_end(struct cm_id *id)
{
	cm_part(id);
	cm_leave_all(id);
	cm_wait_end(id);
	for (unsigned i = 0; i < CM_INDICES; i++)
		cm_index_leave(id, (enum cm_index)i);
	ids[id->handle] = NULL;
	cm_move_events(id, NULL);
	release_port(id);
	free(id->sent);
	free(id);
}

void cm_use(struct cm_id *id, const struct cm_manager *manager)
{
	if (id->manager == manager)
		return;
	id->manager->part(id);
	if (id->wait == CM_WAIT_MANAGER)
		cm_wait_end(id);
	id->manager = manager;
}

/* --- ports --- */

/* Who may use the port of @id. The any-address of one family includes the other family, unless the
 * program says otherwise. */
static uint32_t port_options(const struct cm_id *id)
{
	return HDL_CM_DEAF | cm_family_of(&id->src) |
	       (id->has_device || id->afonly ? HDL_CM_ONLY : 0u) | (id->reuse ? HDL_CM_REUSE : 0u);
}

/* Give the port back. */
static void release_port(struct cm_id *id)
{
	const struct cm_manager *manager = cm_wire_manager();
	struct hdl_adapter *adapter = compat_adapter();
	if (manager != NULL && manager->unbind != NULL)
		manager->unbind(id);
	if (id->holds_port && adapter != NULL)
		hdl_cm_unbind(adapter, id->space, id->for_all ? NULL : &id->port_gid,
		              ntohs(*cm_port_of(&id->src)), id->port_options);
	id->holds_port = false;
}

/* The same port on the wire, if the device has ports there. 0 or an error; then @id has none. */
static int take_wire_port(struct cm_id *id)
{
	const struct cm_manager *manager = cm_wire_manager();
	int error = manager != NULL && manager->bind != NULL ? manager->bind(id) : 0;
	if (error != 0)
		release_port(id);
	return error;
}

/* Take the port in @id->src from the agent, or any if it is 0. The lock is released meanwhile. 0 or
 * an error. */
static int take_agent_port(struct cm_id *id, uint32_t options)
{
	uint32_t number = id->number, handle = id->handle;
	uint16_t space = id->space, port = ntohs(*cm_port_of(&id->src));
	bool for_all = !id->has_device;
	struct hdl_gid gid = id->sgid;
	struct hdl_adapter *adapter = compat_adapter();
	if (adapter == NULL)
		return ENODEV;
	cm_unlock();
	int error = -hdl_cm_bind(adapter, space, for_all ? NULL : &gid, &port, options);
	cm_lock();
	if (error != 0)
		return error;
	id = cm_id_of(handle);
	if (id == NULL || id->number != number) { /* another thread has destroyed it */
		hdl_cm_unbind(adapter, space, for_all ? NULL : &gid, port, options);
		return EINVAL;
	}
	*cm_port_of(&id->src) = htons(port);
	id->holds_port = true;
	id->for_all = for_all;
	id->port_gid = gid;
	id->port_options = options;
	return 0;
}

/* Take the port in @id->src everywhere. One that the agent chose may be in use on the wire, by
 * programs that are not ours: then try another. */
static int take_port(struct cm_id *id, uint32_t options)
{
	bool any = *cm_port_of(&id->src) == 0;
	uint32_t handle = id->handle;
	int error;
	for (unsigned tries = 0; tries < PORT_TRIES; tries++) {
		error = take_agent_port(id, options);
		id = error == 0 ? cm_id_of(handle) : NULL;
		if (id == NULL)
			return error != 0 ? error : EINVAL;
		error = take_wire_port(id);
		if (error != EADDRINUSE || !any)
			break;
		*cm_port_of(&id->src) = 0;
	}
	return error;
}

static int cm_id_bind_to(struct cm_id *id, const struct sockaddr_in6 *address)
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
	if (id->has_device)
		cm_show_node(&id->src);
	int error = take_port(id, port_options(id));
	if (error != 0)
		id->has_device = false;
	return error;
}

/* --- commands --- */

static void cm_id_answer(const struct rdma_ucm_cmd_hdr *header, uint64_t where, const void *what,
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
	cm_id_answer(header, command->response, &resp, sizeof(resp));
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
	cm_id_answer(header, command->response, &resp, sizeof(resp));
	return 0;
}

void cm_seek(struct cm_id *id, bool last_time)
{
	uint32_t number = id->number, handle = id->handle;
	struct hdl_gid gid = id->dgid;
	struct hdl_adapter *adapter = compat_adapter();
	uint16_t lid = 0;
	cm_unlock();
	bool found = adapter != NULL && hdl_node_find(adapter, &gid, &lid) == 0;
	cm_lock();
	id = cm_id_of(handle);
	if (id == NULL || id->number != number)
		return;
	if (!found && id->may_cross && id->state == CM_IDLE) {
		cm_cross(id);
		cm_raise(id, CM_ADDR_RESOLVED, 0);
	} else if (found) {
		if (id->manager->across)
			cm_lid_address(lid, &id->dgid);
		id->dlid = cm_own_lid() != 0 ? lid : 0;
		cm_raise(id, CM_ADDR_RESOLVED, 0);
	} else if (last_time) {
		cm_raise(id, CM_ADDR_ERROR, -ETIMEDOUT);
	} else {
		cm_wait_node(id);
	}
}

/* The LID of another node of the agent that has this address of the host; 0: there is none, and it
 * stands for our own. Without the lock meanwhile. */
static uint16_t node_with(const struct sockaddr_in6 *address)
{
	struct hdl_adapter *adapter = compat_adapter();
	struct hdl_gid gid;
	uint16_t lid = 0;
	if (adapter == NULL || !cm_addr_may_be_of_another(address, &gid))
		return 0;
	cm_unlock();
	if (hdl_node_find(adapter, &gid, &lid) != 0)
		lid = 0;
	cm_lock();
	return lid;
}

static int resolve_ip(struct cm_id *id, const struct sockaddr_in6 *src,
                      const struct sockaddr_in6 *dst, uint32_t timeout_ms)
{
	uint32_t handle = id->handle;
	int error = 0;
	bool elsewhere = false;
	if (id->state != CM_IDLE || id->wait == CM_WAIT_NODE)
		return EINVAL;
	if (!id->holds_port && src->sin6_family != 0)
		error = cm_id_bind_to(id, src);
	id = cm_id_of(handle);
	if (error != 0 || id == NULL)
		return error != 0 ? error : EINVAL;
	uint16_t node_lid = node_with(dst);
	id = cm_id_of(handle);
	if (id == NULL || id->state != CM_IDLE)
		return EINVAL;
	id->dst = *dst;
	id->node_lid = node_lid;
	error = cm_route(id, &elsewhere);
	if (error == 0 && !id->holds_port) {
		error = take_port(id, port_options(id));
		id = cm_id_of(handle);
		if (id == NULL)
			return EINVAL;
	}
	if (error == 0 && elsewhere) {
		cm_give_up_in(id, timeout_ms);
		cm_seek(id, false);
	} else {
		cm_raise(id, error == 0 ? CM_ADDR_RESOLVED : CM_ADDR_ERROR, -error);
	}
	return 0;
}

/* An InfiniBand address includes the port space. */
static int take_address(struct cm_id *id, const void *from, size_t size, struct sockaddr_in6 *to)
{
	uint16_t space;
	int error = cm_address_in(from, size, to, &space);
	if (error == 0 && space != 0) {
		id->is_ib = true;
		if (id->space == RDMA_PS_IB)
			id->space = space;
	}
	return error;
}

static int bind_any(struct cm_id *id, const struct rdma_ucm_bind *command)
{
	struct sockaddr_in6 address;
	if (command->addr_size > sizeof(command->addr))
		return EINVAL;
	int error = take_address(id, &command->addr, command->addr_size, &address);
	return error != 0 ? error : cm_id_bind_to(id, &address);
}

static int resolve_any(struct cm_id *id, const struct rdma_ucm_resolve_addr *command)
{
	struct sockaddr_in6 src, dst;
	if (command->src_size > sizeof(command->src_addr) ||
	    command->dst_size > sizeof(command->dst_addr))
		return EINVAL;
	int error = take_address(id, &command->src_addr, command->src_size, &src);
	if (error == 0)
		error = take_address(id, &command->dst_addr, command->dst_size, &dst);
	return error != 0 ? error : resolve_ip(id, &src, &dst, command->timeout_ms);
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
	cm_id_answer(header, command->response, &resp, sizeof(resp));
	return 0;
}

static int query(const struct cm_id *id, const struct rdma_ucm_cmd_hdr *header,
                 const struct rdma_ucm_query *command)
{
	struct rdma_ucm_query_addr_resp addresses;
	struct cm_path_resp path;
	switch (command->option) {
	case RDMA_USER_CM_QUERY_ADDR:
	case RDMA_USER_CM_QUERY_GID:
		cm_query_addr(id, command->option == RDMA_USER_CM_QUERY_GID, &addresses);
		cm_id_answer(header, command->response, &addresses, sizeof(addresses));
		return 0;
	case RDMA_USER_CM_QUERY_PATH:
		cm_query_path(id, &path);
		cm_id_answer(header, command->response, &path, sizeof(path));
		return 0;
	default:
		return ENOSYS;
	}
}

/* A listener does not share its port. */
static int take_alone(struct cm_id *id)
{
	struct hdl_adapter *adapter = compat_adapter();
	uint32_t shared = id->port_options;
	if (adapter == NULL)
		return ENODEV;
	release_port(id);
	int error = take_port(id, shared & ~(uint32_t)HDL_CM_REUSE);
	if (error == EADDRINUSE)
		take_port(id, shared);
	return error;
}

static int listen_on(struct cm_id *id, const struct rdma_ucm_listen *command)
{
	uint32_t handle = id->handle;
	if (id->state != CM_IDLE && id->state != CM_LISTENING)
		return EINVAL;
	if (!id->holds_port) {
		id->src.sin6_family = AF_INET;
		int error = take_port(id, port_options(id));
		if (error != 0)
			return error;
		id = cm_id_of(handle);
	} else if (id->port_options & HDL_CM_REUSE) {
		int error = take_alone(id);
		if (error != 0)
			return error;
		id = cm_id_of(handle);
	}
	int backlog = (int)command->backlog;
	bool again = id->state == CM_LISTENING;
	id->backlog = backlog > 0 && backlog < CM_MAX_BACKLOG ? backlog : CM_MAX_BACKLOG;
	id->state = CM_LISTENING;
	cm_index_enter(id, CM_BY_PORT, cm_port_key(id->space, ntohs(*cm_port_of(&id->src))));
	if (compat_adapter() == NULL)
		return ENODEV;
	const struct cm_manager *manager = cm_wire_manager();
	int error = manager != NULL && manager->listen != NULL && !again ? manager->listen(id) : 0;
	return error != 0 ? error
	                  : -hdl_cm_listen(compat_adapter(), id->space,
	                                   id->for_all ? NULL : &id->port_gid,
	                                   ntohs(*cm_port_of(&id->src)), id->port_options);
}

static int init_qp_attr(const struct cm_id *id, const struct rdma_ucm_cmd_hdr *header,
                        const struct rdma_ucm_init_qp_attr *command)
{
	struct ib_uverbs_qp_attr attr;
	int error = cm_init_qp_attr(id, command->qp_state, &attr);
	if (error == 0)
		cm_id_answer(header, command->response, &attr, sizeof(attr));
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
	cm_id_answer(header, command->response, &resp, sizeof(resp));
	return 0;
}

static int accept_it(struct cm_id *id, const struct rdma_ucm_accept *command)
{
	if (command->conn_param.valid) /* else it confirms a response: nothing new */
		id->uid = command->uid;
	return cm_accept(id, &command->conn_param);
}

static int join_ip_mcast(struct cm_id *id, const struct rdma_ucm_cmd_hdr *header,
                         const struct rdma_ucm_join_ip_mcast *command)
{
	struct rdma_ucm_create_id_resp resp;
	int error = cm_join(id, &command->addr, false, command->uid, &resp.id);
	if (error == 0)
		cm_id_answer(header, command->response, &resp, sizeof(resp));
	return error;
}

/* A program that only sends joins as well: the group exists for everyone, and librdmacm does not
 * attach a queue pair that only sends. */
static int join_mcast(struct cm_id *id, const struct rdma_ucm_cmd_hdr *header,
                      const struct rdma_ucm_join_mcast *command)
{
	struct rdma_ucm_create_id_resp resp;
	struct sockaddr_in6 address;
	uint16_t space;
	if (command->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED ||
	    command->addr_size > sizeof(command->addr))
		return EINVAL;
	int error = cm_address_in(&command->addr, command->addr_size, &address, &space);
	if (error == 0)
		error = cm_join(id, &address, space != 0, command->uid, &resp.id);
	if (error == 0)
		cm_id_answer(header, command->response, &resp, sizeof(resp));
	return error;
}

static int leave_mcast(const struct rdma_ucm_cmd_hdr *header,
                       const struct rdma_ucm_destroy_id *command)
{
	struct rdma_ucm_destroy_id_resp resp;
	int error = cm_leave(command->id, &resp.events_reported);
	if (error == 0)
		cm_id_answer(header, command->response, &resp, sizeof(resp));
	return error;
}

/* Options of the identifier (rdma_set_option(3)). */
static int set_id_option(struct cm_id *id, const struct rdma_ucm_set_option *command)
{
	const void *value = (const void *)(uintptr_t)command->optval;
	int number = 0;
	if (command->optlen == sizeof(number))
		memcpy(&number, value, sizeof(number));
	switch (command->optname) {
	case RDMA_OPTION_ID_TOS:
		if (command->optlen != 1)
			return EINVAL;
		memcpy(&id->tos, value, 1);
		return 0;
	case RDMA_OPTION_ID_REUSEADDR:
		if (command->optlen != sizeof(number) || id->holds_port)
			return EINVAL;
		id->reuse = number != 0;
		return 0;
	case RDMA_OPTION_ID_AFONLY:
		if (command->optlen != sizeof(number) || id->holds_port)
			return EINVAL;
		id->afonly = number != 0;
		return 0;
	case RDMA_OPTION_ID_ACK_TIMEOUT:
		if (command->optlen != 1)
			return EINVAL;
		memcpy(&id->ack_timeout, value, 1);
		return 0;
	default:
		return ENOSYS;
	}
}

/* A path that the program got elsewhere replaces resolving the route. */
static int set_option(struct cm_id *id, const struct rdma_ucm_set_option *command)
{
	if (command->level == RDMA_OPTION_IB && command->optname == RDMA_OPTION_IB_PATH)
		return resolve_route(id);
	return command->level == RDMA_OPTION_ID ? set_id_option(id, command) : ENOSYS;
}

/* The length of each command, and the offset of the identifier in it. */
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
        /* As it was before the fields of enhanced connection establishment were added. */
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
        COMMAND(JOIN_IP_MCAST, join_ip_mcast),
        COMMAND(BIND, bind),
        COMMAND(RESOLVE_ADDR, resolve_addr),
        COMMAND(QUERY, query),
        COMMAND(JOIN_MCAST, join_mcast),
};

static int on_id(struct cm_channel *channel, struct cm_id *id,
                 const struct rdma_ucm_cmd_hdr *header, const void *body)
{
	const struct rdma_ucm_reject *reject = body;
	const struct rdma_ucm_connect *connect = body;
	const struct rdma_ucm_resolve_ip *resolve = body;
	switch (header->cmd) {
	case RDMA_USER_CM_CMD_DESTROY_ID:
		return destroy_id(header, body);
	case RDMA_USER_CM_CMD_BIND_IP:
		return cm_id_bind_to(id, &((const struct rdma_ucm_bind_ip *)body)->addr);
	case RDMA_USER_CM_CMD_RESOLVE_IP:
		return resolve_ip(id, &resolve->src_addr, &resolve->dst_addr, resolve->timeout_ms);
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
	case RDMA_USER_CM_CMD_NOTIFY:
		if (id->manager->notify != NULL)
			id->manager->notify(id);
		return 0;
	case RDMA_USER_CM_CMD_BIND:
		return bind_any(id, body);
	case RDMA_USER_CM_CMD_RESOLVE_ADDR:
		return resolve_any(id, body);
	case RDMA_USER_CM_CMD_QUERY:
		return query(id, header, body);
	case RDMA_USER_CM_CMD_JOIN_IP_MCAST:
		return join_ip_mcast(id, header, body);
	case RDMA_USER_CM_CMD_JOIN_MCAST:
		return join_mcast(id, header, body);
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
	if (header->cmd ==
	    RDMA_USER_CM_CMD_LEAVE_MCAST) /* there it is the identifier of the group */
		return header->in >= sizeof(struct rdma_ucm_destroy_id) ? leave_mcast(header, body)
		                                                        : EINVAL;
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
