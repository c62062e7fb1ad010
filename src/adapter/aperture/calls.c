/* The calls that open, connect and close apertures. See aperture.h. */
#include <stdlib.h>
#include <string.h>

#include "adapter/adapter.h"
#include "adapter/aperture/aperture.h"
#include "base/mac.h"

static uint8_t bits_for(uint64_t length)
{
	uint8_t bits = HDL_APERTURE_MIN_BITS;
	while (bits < HDL_APERTURE_MAX_BITS && 1ull << bits < length)
		bits++;
	return length == 0 ? 0 : bits;
}

static int aperture_judge_attr(const struct hdl_adapter *adapter,
                               const struct hdl_aperture_attr *attr, uint32_t checks)
{
	uint32_t remote = HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE;
	uint32_t known = HDL_CHECK_DEFAULT | HDL_CHECK_LINK | HDL_CHECK_CLUSTER;
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
	adapter_lock(aperture->adapter);
	aperture_give_kept(aperture->adapter->apertures, aperture);
	adapter_unlock(aperture->adapter);
	pthread_mutex_destroy(&aperture->read_lock);
	aperture->magic = 0;
	free(aperture);
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
	conn->in->access = (uint8_t)aperture->access;
	conn->in->base = (uint64_t)(uintptr_t)aperture->memory;
	conn->in->length = conn->in->granted = aperture->length;
	conn->in->host = aperture->adapter->engine.gid;
	conn->in->cluster = conn->node->lid;
	conn->own = (struct ci_offer){.bits = bits_for(attr->length),
	                              .type = (uint8_t)attr->type,
	                              .checks = (uint8_t)(checks & ~(uint32_t)HDL_CHECK_CLUSTER),
	                              .nonce_every = attr->nonce_every,
	                              .length = (uint32_t)attr->length};
	if (attr->nonce_every != 0)
		conn->own.nonce_step =
		        attr->nonce_step != 0 ? (uint16_t)attr->nonce_step : (uint16_t)1;
	conn->own_source = !gid_is_clear(&attr->source_mask);
	conn->in->source = attr->source;
	conn->in->mask = attr->source_mask;
	conn->own_link = !mac_is_clear(attr->link);
	memcpy(conn->in->link, attr->link, sizeof(conn->in->link));
	conn->own_cluster = attr->cluster_mask != 0;
	conn->in->source_cluster = attr->cluster;
	conn->in->cluster_mask = attr->cluster_mask;
	aperture->port = attr->port;
	if (attr->port != NULL) {
		conn->port = &attr->port->port;
		attr->port->users++;
	}
}

/* What the application stored since the last set-up, which showed @before; else a random number. */
static uint64_t aperture_draw(struct prng_pool *secrets, uint64_t stored, uint64_t before)
{
	if (stored != 0 && stored != before)
		return stored;
	uint64_t drawn = prng_pool_next(secrets);
	return drawn != 0 ? drawn : 1; /* with nonce 0 no packet gets in */
}

/* New numbers for the next connection. */
static void aperture_arm(struct hdl_aperture *aperture, const struct aperture_numbers *numbers)
{
	struct prng_pool *secrets = &aperture->adapter->apertures->secrets;
	struct ap_conn *conn = &aperture->conn;
	aperture_follow(aperture);       /* the set-up comes behind what was stored */
	(void)aperture_revoke(aperture); /* a former peer has nothing to do with the next one */
	if (numbers->given)
		ap_arm(conn, numbers->nonce, numbers->sequence);
	else
		ap_arm(conn, aperture_draw(secrets, incoming_nonce(conn->user), conn->own.nonce),
		       (uint32_t)aperture_draw(
		               secrets, __atomic_load_n(&conn->user->sequence, __ATOMIC_RELAXED),
		               conn->own.sequence));
	aperture_publish(aperture);
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
	bool opened = result == 0 && aperture_take_kept(apertures, aperture) &&
	              ap_open(&apertures->node, &aperture->conn);
	if (opened) {
		aperture_fill_entry(aperture, attr, checks);
		aperture_arm(aperture, &(struct aperture_numbers){.given = false});
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
	aperture_follow(aperture);
	(void)aperture_collect(aperture);
	apertures_ip_close(aperture);
	ap_close(&aperture->conn, true);
	apertures_run(adapter->apertures);
	adapter_unlock(adapter);
	aperture_unmap(aperture);
	adapter_lock(adapter);
	ap_free(&aperture->conn);
	if (aperture->new_port != NULL)
		aperture->new_port->users--;
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

int hdl_aperture_peer(const struct hdl_aperture *aperture, struct hdl_aperture_peer *peer)
{
	if (!is_aperture(aperture) || peer == NULL)
		return -HDL_EINVAL;
	adapter_lock(aperture->adapter);
	const struct ap_conn *conn = &aperture->conn;
	bool leads = aperture->is_ip || aperture_can_send(aperture);
	*peer = (struct hdl_aperture_peer){.type = conn->in->type};
	if (aperture->is_ip) {
		memcpy(peer->host.raw, aperture->ip_peer.gid, 16);
		peer->index = aperture->ip_port;
	} else if (leads) {
		memcpy(peer->host.raw, conn->path.host, 16);
		peer->first = conn->out->first;
		peer->length = conn->out->length;
		peer->index = conn->out->index;
		peer->port = conn->pointed ? 0 : conn->to_port;
		peer->bits = conn->peer.bits;
		peer->cluster = conn->out->cluster;
	}
	adapter_unlock(aperture->adapter);
	return leads ? 0 : -HDL_EPERM;
}

/* The port that the next connection has, apart from that of the aperture; NULL: none. With the
 * lock. */
static void aperture_take_port(struct hdl_aperture *aperture, struct hdl_port *port)
{
	struct hdl_port *events = port != NULL ? port : aperture->port;
	if (port != NULL)
		port->users++;
	if (aperture->new_port != NULL)
		aperture->new_port->users--;
	aperture->new_port = port;
	aperture->conn.new_port = port != NULL ? &port->port : NULL;
	aperture->conn.port = events != NULL ? &events->port : NULL;
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
	case HDL_REASON_TICKET:
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

/* Why no connection was begun. */
static void aperture_note_reason(struct hdl_aperture *aperture, enum hdl_aperture_reason reason)
{
	adapter_lock(aperture->adapter);
	if (aperture_is_free(aperture))
		aperture->conn.reason = (uint8_t)reason;
	adapter_unlock(aperture->adapter);
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
	if (result != 0) {
		/* The agent of this machine knows that before CONNECT is sent. */
		aperture_note_reason(aperture, result == -HDL_ECONNREFUSED ? HDL_REASON_NO_PORT
		                                                           : HDL_REASON_NONE);
		return result;
	}
	adapter_lock(adapter);
	if (!aperture_is_free(aperture)) {
		adapter_unlock(adapter);
		return -HDL_EBUSY;
	}
	adapter->apertures->node.now_ns = clock_read(&adapter->clock);
	aperture_arm(aperture, &numbers);
	aperture_take_port(aperture, NULL);
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
	    (new_port != NULL && (!is_port(new_port) || new_port->adapter != aperture->adapter)) ||
	    aperture->is_ip)
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
		aperture_take_port(aperture, new_port);
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
	    (new_port != NULL && (!is_port(new_port) || new_port->adapter != aperture->adapter)) ||
	    aperture->is_ip)
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
		aperture_take_port(aperture, new_port);
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
	aperture_follow(aperture);
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
	        [HDL_REASON_TICKET] = "the port wants a ticket",
	};
	return reason < HDL_REASON_COUNT ? texts[reason] : "unknown";
}
