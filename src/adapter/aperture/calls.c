/* The calls that open, connect and close apertures. See aperture.h. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "adapter/adapter.h"
#include "adapter/aperture/aperture.h"
#include "base/mac.h"

#define KEPT_BYTES (HDL_APERTURE_KEPT_BYTES + HDL_APERTURE_KEPT * sizeof(struct ap_kept))

static uint8_t bits_for(uint64_t length)
{
	uint8_t bits = HDL_APERTURE_MIN_BITS;
	while (bits < HDL_APERTURE_MAX_BITS && 1ull << bits < length)
		bits++;
	return length == 0 ? 0 : bits;
}

/* Our address on an Ethernet interface; NULL: there is none. */
static const struct udp_address *aperture_frames(const struct hdl_adapter *adapter)
{
	for (uint32_t i = 0; i < adapter->net.address_count; i++)
		if (adapter->net.addresses[i].frames)
			return &adapter->net.addresses[i];
	return NULL;
}

static bool link_is_clear(const uint8_t link[6])
{
	static const uint8_t clear[6];
	return memcmp(link, clear, sizeof(clear)) == 0;
}

static int aperture_judge_attr(const struct hdl_adapter *adapter,
                               const struct hdl_aperture_attr *attr, uint32_t checks)
{
	uint32_t remote = HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE;
	uint32_t known = HDL_CHECK_DEFAULT | HDL_CHECK_LINK;
	if (attr->length > 1ull << HDL_APERTURE_MAX_BITS || attr->type > HDL_APERTURE_EVENT ||
	    (attr->access & ~remote) != 0 || (checks & ~known) != 0 ||
	    (attr->nonce_every != 0 && (checks & HDL_CHECK_SEQUENCE) == 0) ||
	    attr->nonce_step > UINT16_MAX || (attr->memory != NULL && attr->length == 0) ||
	    (attr->type == HDL_APERTURE_EVENT && attr->port == NULL) ||
	    (attr->port != NULL && (!is_port(attr->port) || attr->port->adapter != adapter)))
		return -HDL_EINVAL;
	/* Neither lanes nor UDP sockets know link addresses; frames do. */
	if ((checks & HDL_CHECK_LINK) != 0 && aperture_frames(adapter) == NULL)
		return -HDL_ENOTSUP;
	if (attr->memory != NULL)
		return fault_probe((uint64_t)(uintptr_t)attr->memory, attr->length, true);
	return 0;
}

/* The memory, and its entry in the protection table. */
static int aperture_make_memory(struct hdl_aperture *aperture, const struct hdl_aperture_attr *attr)
{
	void *memory = attr->memory;
	if (attr->length == 0)
		return 0;
	if (memory == NULL) {
		int result = hdl_mem_alloc((attr->length + 4095) & ~(uint64_t)4095, &memory);
		if (result != 0)
			return result;
		aperture->own_memory = true;
	}
	aperture->memory = memory;
	aperture->length = attr->length;
	aperture->access =
	        attr->access != 0 ? attr->access : HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE;
	const struct tpt_region region = {.type = TPT_APERTURE,
	                                  .access = aperture->access,
	                                  .host = (uint64_t)(uintptr_t)memory,
	                                  .length = attr->length};
	return tpt_insert_run(&aperture->adapter->tpt, &region, &aperture->key);
}

static void aperture_drop_memory(struct hdl_aperture *aperture)
{
	struct hdl_adapter *adapter = aperture->adapter;
	if (aperture->key.v != 0) {
		adapter_lock(adapter);
		aperture_conceal(aperture);
		(void)tpt_retire(&adapter->tpt, aperture->key);
		adapter_quiesce(adapter);
		tpt_free(&adapter->tpt, aperture->key);
		adapter_unlock(adapter);
	}
	if (aperture->own_memory)
		(void)hdl_mem_free(aperture->memory);
}

static void aperture_release(struct hdl_aperture *aperture)
{
	aperture_drop_memory(aperture);
	if (aperture->conn.bytes != NULL)
		munmap(aperture->conn.bytes, KEPT_BYTES);
	pthread_mutex_destroy(&aperture->read_lock);
	aperture->magic = 0;
	free(aperture);
}

/* What is kept for repetition: address space, used as needed. */
static bool aperture_make_ring(struct hdl_aperture *aperture)
{
	void *block = mmap(NULL, KEPT_BYTES, PROT_READ | PROT_WRITE,
	                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (block == MAP_FAILED)
		return false;
	aperture->conn.bytes = block;
	aperture->conn.kept =
	        (struct ap_kept *)(void *)((uint8_t *)block + HDL_APERTURE_KEPT_BYTES);
	return true;
}

static bool gid_is_clear(const struct hdl_gid *gid)
{
	static const struct hdl_gid clear;
	return memcmp(gid, &clear, sizeof(clear)) == 0;
}

static void aperture_fill_entry(struct hdl_aperture *aperture, const struct hdl_aperture_attr *attr,
                                uint32_t checks)
{
	struct ap_conn *conn = &aperture->conn;
	conn->in->type = (uint8_t)attr->type;
	conn->in->bits = bits_for(attr->length);
	conn->in->checks = (uint8_t)checks;
	conn->in->key = aperture->key;
	conn->own = (struct ci_offer){.bits = bits_for(attr->length),
	                              .type = (uint8_t)attr->type,
	                              .checks = (uint8_t)checks,
	                              .nonce_every = attr->nonce_every,
	                              .length = (uint32_t)attr->length};
	if (attr->nonce_every != 0)
		conn->own.nonce_step =
		        attr->nonce_step != 0 ? (uint16_t)attr->nonce_step : (uint16_t)1;
	conn->own_source = !gid_is_clear(&attr->source_mask);
	memcpy(conn->in->source, attr->source.raw, 16);
	memcpy(conn->in->mask, attr->source_mask.raw, 16);
	conn->own_link = !link_is_clear(attr->link);
	memcpy(conn->in->link, attr->link, sizeof(conn->in->link));
	aperture->port = attr->port;
	if (attr->port != NULL) {
		conn->port = &attr->port->port;
		attr->port->users++;
	}
}

int hdl_aperture_open(struct hdl_adapter *adapter, const struct hdl_aperture_attr *attr,
                      struct hdl_aperture **out)
{
	static const struct hdl_aperture_attr defaults;
	if (adapter == NULL || adapter->magic != MAGIC_ADAPTER || out == NULL)
		return -HDL_EINVAL;
	if (attr == NULL)
		attr = &defaults;
	uint32_t checks = attr->checks != 0 ? attr->checks : (uint32_t)HDL_CHECK_DEFAULT;
	int result = aperture_judge_attr(adapter, attr, checks);
	if (result != 0)
		return result;
	struct apertures *apertures = apertures_begin(adapter);
	struct hdl_aperture *aperture = apertures != NULL ? calloc(1, sizeof(*aperture)) : NULL;
	if (aperture == NULL)
		return -HDL_ENOMEM;
	aperture->magic = MAGIC_APERTURE;
	aperture->adapter = adapter;
	aperture->context = attr->context;
	aperture->ip_sock = -1;
	aperture->conn.owner = aperture;
	pthread_mutex_init(&aperture->read_lock, NULL);
	adapter_lock(adapter);
	result = aperture_make_memory(aperture, attr);
	bool opened = result == 0 && aperture_make_ring(aperture) &&
	              ap_open(&apertures->node, &aperture->conn);
	if (opened) {
		aperture_fill_entry(aperture, attr, checks);
		ap_arm(&aperture->conn, prng_pool_next(&apertures->secrets),
		       (uint32_t)prng_pool_next(&apertures->secrets));
		aperture_publish(aperture);
		apertures->count++;
	}
	adapter_unlock(adapter);
	if (!opened) {
		aperture_release(aperture);
		return result != 0 ? result : -HDL_ENOMEM;
	}
	atomic_fetch_add(&adapter->objects.count, 1);
	*out = aperture;
	return 0;
}

int hdl_aperture_free(struct hdl_aperture *aperture)
{
	if (!is_aperture(aperture))
		return -HDL_EINVAL;
	struct hdl_adapter *adapter = aperture->adapter;
	uint32_t row = aperture->conn.row;
	adapter_lock(adapter);
	(void)aperture_collect(aperture);
	apertures_ip_close(aperture);
	ap_close(&aperture->conn, true);
	apertures_run(adapter->apertures);
	adapter_unlock(adapter);
	aperture_unmap(aperture);
	adapter_lock(adapter);
	ap_free(&aperture->conn);
	if (aperture->port != NULL)
		aperture->port->users--;
	adapter->apertures->count--;
	adapter_unlock(adapter);
	aperture_forget_numbers(adapter, row);
	atomic_fetch_sub(&adapter->objects.count, 1);
	aperture_release(aperture);
	return 0;
}

void *hdl_aperture_memory(const struct hdl_aperture *aperture, uint64_t *length)
{
	if (!is_aperture(aperture))
		return NULL;
	if (length != NULL)
		*length = aperture->length;
	return aperture->memory;
}

void *hdl_aperture_context(const struct hdl_aperture *aperture)
{
	return is_aperture(aperture) ? aperture->context : NULL;
}

/* --- connections --- */

/* New numbers for the next connection. */
static void aperture_arm(struct hdl_aperture *aperture, const struct aperture_numbers *numbers)
{
	struct prng_pool *secrets = &aperture->adapter->apertures->secrets;
	(void)aperture_revoke(aperture); /* a former peer has nothing to do with the next one */
	if (numbers->given)
		ap_arm(&aperture->conn, numbers->nonce, numbers->sequence);
	else
		ap_arm(&aperture->conn, prng_pool_next(secrets), (uint32_t)prng_pool_next(secrets));
	aperture_publish(aperture);
}

static bool aperture_is_settled(void *object)
{
	const struct hdl_aperture *aperture = object;
	uint8_t state = aperture->conn.state;
	return state != HDL_APERTURE_OFFERED && state != HDL_APERTURE_CONNECTING &&
	       state != HDL_APERTURE_CLOSING;
}

int hdl_aperture_wait(struct hdl_aperture *aperture, int timeout_ms)
{
	if (!is_aperture(aperture))
		return -HDL_EINVAL;
	int result = apertures_wait(aperture->adapter, aperture_is_settled, aperture,
	                            apertures_until(timeout_ms));
	if (result != 0)
		return result;
	if (hdl_aperture_state(aperture) == HDL_APERTURE_OPEN)
		return 0;
	switch (hdl_aperture_reason(aperture)) {
	case HDL_REASON_NO_PORT:
	case HDL_REASON_RULE:
	case HDL_REASON_BUSY:
	case HDL_REASON_SIZE:
	case HDL_REASON_TYPE:
	case HDL_REASON_DECLINED:
		return -HDL_ECONNREFUSED;
	case HDL_REASON_SILENT:
		return -HDL_ETIMEDOUT;
	default:
		return -HDL_EPERM;
	}
}

static bool aperture_is_free(const struct hdl_aperture *aperture)
{
	return aperture->conn.state == HDL_APERTURE_CLOSED ||
	       aperture->conn.state == HDL_APERTURE_FAILED;
}

int hdl_aperture_connect(struct hdl_aperture *aperture, const struct hdl_gid *host, uint16_t port,
                         int timeout_ms)
{
	struct ap_path path;
	struct aperture_numbers numbers;
	if (!is_aperture(aperture) || host == NULL || port == 0 || aperture->is_ip)
		return -HDL_EINVAL;
	struct hdl_adapter *adapter = aperture->adapter;
	if (!aperture_is_free(aperture))
		return -HDL_EBUSY;
	int result = apertures_find(adapter, host, port, &path);
	if (result == 0 && (aperture->conn.in->checks & HDL_CHECK_LINK) != 0 && !path.has_link)
		result = -HDL_ENOTSUP;
	if (result == 0)
		result = aperture_ask_numbers(aperture, &numbers);
	if (result != 0)
		return result;
	adapter_lock(adapter);
	if (!aperture_is_free(aperture)) {
		adapter_unlock(adapter);
		return -HDL_EBUSY;
	}
	adapter->apertures->node.now_ns = clock_read(&adapter->clock);
	aperture_arm(aperture, &numbers);
	ap_connect(&aperture->conn, &path, port);
	apertures_run(adapter->apertures);
	adapter_unlock(adapter);
	result = timeout_ms == 0 ? -HDL_EAGAIN : hdl_aperture_wait(aperture, timeout_ms);
	if (result != -HDL_EAGAIN || timeout_ms == 0)
		return result;
	(void)hdl_aperture_close(aperture, 0);
	return -HDL_ETIMEDOUT;
}

int hdl_aperture_accept(struct hdl_aperture *aperture, struct hdl_port *port, uint64_t id,
                        struct hdl_port *new_port, int timeout_ms)
{
	struct hdl_connect connect;
	struct aperture_numbers numbers;
	if (!is_aperture(aperture) || !is_port(port) || port->adapter != aperture->adapter ||
	    (new_port != NULL && !is_port(new_port)) || aperture->is_ip)
		return -HDL_EINVAL;
	struct hdl_adapter *adapter = aperture->adapter;
	if (!aperture_is_free(aperture))
		return -HDL_EBUSY;
	int result = id == 0 ? hdl_port_waiting(port, &connect, timeout_ms) : 0;
	if (result == 0)
		result = aperture_ask_numbers(aperture, &numbers);
	if (result != 0)
		return result;
	adapter_lock(adapter);
	adapter->apertures->node.now_ns = clock_read(&adapter->clock);
	struct ap_waiting *waiting = ap_waiting_find(&port->port, id != 0 ? id : connect.id);
	if (waiting == NULL) {
		result = -HDL_ESTALE;
	} else {
		aperture_arm(aperture, &numbers);
		aperture->conn.new_port = new_port != NULL ? &new_port->port : NULL;
		result = ap_accept(&port->port, waiting, &aperture->conn) ? 0 : -HDL_EINVAL;
	}
	apertures_run(adapter->apertures);
	adapter_unlock(adapter);
	return result;
}

int hdl_port_offer(struct hdl_port *port, struct hdl_aperture *aperture, struct hdl_port *new_port)
{
	struct aperture_numbers numbers;
	if (!is_aperture(aperture) || !is_port(port) || port->adapter != aperture->adapter ||
	    (new_port != NULL && !is_port(new_port)) || aperture->is_ip)
		return -HDL_EINVAL;
	/* Not to be asked for an aperture in use: the agent would forget its connection. */
	if (!aperture_is_free(aperture))
		return -HDL_EBUSY;
	int result = aperture_ask_numbers(aperture, &numbers);
	if (result != 0)
		return result;
	adapter_lock(port->adapter);
	if (!aperture_is_free(aperture)) {
		result = -HDL_EBUSY;
	} else if (port->port.offer_count == HDL_MAX_PORT_OFFERS) {
		result = -HDL_ENOSPC;
	} else {
		aperture_arm(aperture, &numbers);
		aperture->conn.new_port = new_port != NULL ? &new_port->port : NULL;
		ap_offer(&port->port, &aperture->conn);
	}
	adapter_unlock(port->adapter);
	return result;
}

int hdl_aperture_close(struct hdl_aperture *aperture, int timeout_ms)
{
	if (!is_aperture(aperture))
		return -HDL_EINVAL;
	struct hdl_adapter *adapter = aperture->adapter;
	int result = 0;
	if (hdl_aperture_state(aperture) == HDL_APERTURE_OPEN && timeout_ms != 0)
		result = hdl_aperture_flush(aperture, HDL_FLUSH_SENT, timeout_ms);
	adapter_lock(adapter);
	adapter->apertures->node.now_ns = clock_read(&adapter->clock);
	ap_close(&aperture->conn, false);
	apertures_run(adapter->apertures);
	adapter_quiesce(adapter);
	adapter_unlock(adapter);
	if (timeout_ms != 0 && apertures_wait(adapter, aperture_is_settled, aperture,
	                                      apertures_until(timeout_ms)) != 0)
		result = -HDL_ETIMEDOUT;
	adapter_lock(adapter);
	if (!aperture_is_free(aperture)) {
		ap_close(&aperture->conn, true);
		apertures_run(adapter->apertures);
	}
	int revoked = aperture_revoke(aperture);
	aperture_publish(aperture);
	adapter_unlock(adapter);
	if (revoked != 0)
		return revoked;
	return result == -HDL_EPERM ? 0 : result;
}

uint32_t hdl_aperture_state(const struct hdl_aperture *aperture)
{
	if (!is_aperture(aperture))
		return HDL_APERTURE_CLOSED;
	adapter_lock(aperture->adapter);
	uint32_t state = aperture->conn.state;
	adapter_unlock(aperture->adapter);
	return state;
}

uint32_t hdl_aperture_reason(const struct hdl_aperture *aperture)
{
	if (!is_aperture(aperture))
		return HDL_REASON_NONE;
	adapter_lock(aperture->adapter);
	uint32_t reason = aperture->conn.reason;
	adapter_unlock(aperture->adapter);
	return reason;
}

const char *hdl_aperture_reason_str(uint32_t reason)
{
	static const char *const texts[HDL_REASON_COUNT] = {
	        [HDL_REASON_NONE] = "none",
	        [HDL_REASON_NO_PORT] = "nobody holds the port",
	        [HDL_REASON_RULE] = "a rule of the port refuses it",
	        [HDL_REASON_BUSY] = "too many wait, or nothing is offered",
	        [HDL_REASON_SIZE] = "the size is not allowed",
	        [HDL_REASON_TYPE] = "the ends want different types",
	        [HDL_REASON_DECLINED] = "the application declined",
	        [HDL_REASON_CLOSED] = "the peer closed",
	        [HDL_REASON_GONE] = "the peer has ended",
	        [HDL_REASON_SILENT] = "the peer does not answer",
	        [HDL_REASON_SEQUENCE] = "a packet was lost",
	        [HDL_REASON_EXTENT] = "an access outside the aperture",
	        [HDL_REASON_ACCESS] = "an access that the aperture does not grant",
	        [HDL_REASON_MEMORY] = "the memory behind the aperture is gone",
	        [HDL_REASON_PROTOCOL] = "a packet that makes no sense",
	        [HDL_REASON_CARRIER] = "the carrier cannot do that",
	        [HDL_REASON_DAMAGED] = "a packet was damaged on its way",
	};
	return reason < HDL_REASON_COUNT ? texts[reason] : "unknown";
}

/* --- pointing and narrowing --- */

int hdl_aperture_own(const struct hdl_aperture *aperture, struct hdl_aperture_target *target)
{
	if (!is_aperture(aperture) || target == NULL || aperture->length == 0)
		return -HDL_EINVAL;
	struct hdl_adapter *adapter = aperture->adapter;
	const struct ap_conn *conn = &aperture->conn;
	if (adapter->apertures->trust < HDL_TRUST_USER)
		return -HDL_EACCES;
	adapter_lock(adapter);
	*target = (struct hdl_aperture_target){.host = adapter->engine.gid,
	                                       .lid = adapter->lid,
	                                       .index = conn->own.index,
	                                       .nonce = conn->in->nonce.first,
	                                       .sequence = conn->in->expected,
	                                       .bits = conn->own.bits,
	                                       .checks = conn->own.checks,
	                                       .nonce_step = conn->own.nonce_step,
	                                       .nonce_every = conn->own.nonce_every,
	                                       .first = conn->own.first,
	                                       .length = conn->own.length};
	const struct udp_address *frames = aperture_frames(adapter);
	if (frames != NULL)
		(void)mac_from_gid(frames->gid, target->link);
	adapter_unlock(adapter);
	return 0;
}

/* A path to the process that has the slot of @index at @host. */
static bool aperture_path_to(struct apertures *apertures, const struct hdl_gid *host,
                             uint32_t index, struct ap_path *path)
{
	struct hdl_adapter *adapter = apertures->adapter;
	uint32_t qpn = adapter->agent.on_node ? ci_slot(index) << adapter->objects.qp_bits : 0;
	uint32_t link = adapter_find_link(adapter, host, qpn);
	if (link != LINK_NONE && adapter->peers.links[link].up) {
		*path = apertures_lane_path(adapter, link);
		return true;
	}
	return apertures_udp_path(apertures, host, path);
}

int hdl_aperture_point(struct hdl_aperture *aperture, const struct hdl_aperture_target *target)
{
	if (!is_aperture(aperture) || target == NULL)
		return -HDL_EINVAL;
	struct hdl_adapter *adapter = aperture->adapter;
	struct apertures *apertures = adapter->apertures;
	if (apertures->trust < HDL_TRUST_USER)
		return -HDL_EACCES;
	int result = 0;
	struct hdl_gid host = target->host;
	if (!link_is_clear(target->link) && aperture_frames(adapter) != NULL)
		mac_to_gid(target->link, host.raw);
	adapter_lock(adapter);
	struct ap_path path;
	(void)aperture_collect(aperture);
	if (aperture->is_ip) {
		memcpy(aperture->ip_peer.gid, target->host.raw, 16);
		aperture->ip_port = (uint16_t)target->index;
	} else if (aperture->entry != NULL && target->bits != aperture->entry->bits) {
		result = -HDL_EINVAL;
	} else if (!aperture_path_to(apertures, &host, target->index, &path)) {
		result = -HDL_EHOSTUNREACH;
	} else if (path.managed) {
		result = -HDL_EACCES; /* it has connections that its agent holds, and no others */
	} else {
		const struct ci_offer offer = {.index = target->index,
		                               .nonce = target->nonce,
		                               .sequence = target->sequence,
		                               .bits = target->bits,
		                               .checks = target->checks,
		                               .nonce_every = target->nonce_every,
		                               .nonce_step = target->nonce_step,
		                               .first = (uint32_t)target->first,
		                               .length = (uint32_t)target->length};
		apertures_run(apertures); /* what was stored goes to the former peer */
		ap_point(&aperture->conn, &offer, &path);
		aperture_map_opened(aperture);
	}
	apertures_run(apertures);
	adapter_unlock(adapter);
	return result;
}

int hdl_aperture_narrow(struct hdl_aperture *aperture, uint64_t offset, uint64_t length)
{
	if (!is_aperture(aperture) || offset > aperture->length ||
	    length > aperture->length - offset || length == 0)
		return -HDL_EINVAL;
	struct hdl_adapter *adapter = aperture->adapter;
	const struct tpt_region region = {.type = TPT_APERTURE,
	                                  .access = aperture->access,
	                                  .iova = offset,
	                                  .host = (uint64_t)(uintptr_t)aperture->memory + offset,
	                                  .length = length};
	adapter_lock(adapter);
	/* Peers that map the pages would not notice. */
	int result = aperture->published ? -HDL_ENOTSUP
	                                 : tpt_replace_run(&adapter->tpt, aperture->key, &region);
	if (result == 0) {
		aperture->conn.own.first = (uint32_t)offset;
		aperture->conn.own.length = (uint32_t)length;
		adapter_quiesce(adapter);
	}
	adapter_unlock(adapter);
	return result;
}
