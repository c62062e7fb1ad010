/* Stores, events and reads through apertures. See aperture.h. */
#include <string.h>

#include "adapter/adapter.h"
#include "adapter/aperture/aperture.h"

/* Is the range within what the other end grants? */
static bool aperture_grants(const struct hdl_aperture *aperture, uint64_t offset, uint64_t length)
{
	const struct outgoing *out = aperture->conn.out;
	return offset >= out->first && offset - out->first <= out->length &&
	       length <= out->length - (offset - out->first);
}

int aperture_put(struct hdl_aperture *aperture, uint64_t offset, const void *data, uint64_t length)
{
	if (!aperture_can_send(aperture) || length == 0)
		return 0; /* stores go nowhere */
	return ap_put(&aperture->conn, CI_DATA, offset, data, (uint32_t)length) ? 0 : -HDL_EAGAIN;
}

struct put_wait {
	struct hdl_aperture *aperture;
	uint8_t kind;
	uint64_t offset;
	const void *data;
	uint32_t length;
	int result;
};

/* Put it, if there is room now. */
static bool put_done(void *object)
{
	struct put_wait *put = object;
	struct hdl_aperture *aperture = put->aperture;
	struct apertures *apertures = aperture->adapter->apertures;
	aperture_follow(aperture);
	if (!aperture_can_send(aperture)) {
		put->result = -HDL_EPERM;
		return true;
	}
	/* An event comes behind what was stored to the mapped range. A look behind the peer's
	 * memory asks the kernel about every page, so events look now and then. */
	uint64_t now_ns = put->kind == CI_EVENT ? clock_read(&aperture->adapter->clock) : 0;
	if (put->kind == CI_EVENT && now_ns - aperture->looked_ns > APERTURE_LOOK_NS) {
		aperture->looked_ns = now_ns;
		aperture_look_behind(aperture);
	}
	if (put->kind == CI_EVENT && aperture_collect(aperture) != 0)
		return false;
	bool placed = ap_put(&aperture->conn, put->kind, put->offset, put->data, put->length);
	apertures_run(apertures);
	put->result = 0;
	return placed;
}

static int aperture_send(struct put_wait *put, int timeout_ms)
{
	struct hdl_adapter *adapter = put->aperture->adapter;
	adapter_touch(adapter);
	adapter_lock(adapter);
	bool done = put_done(put);
	adapter_unlock(adapter);
	int result = done ? 0
	             : timeout_ms == 0
	                     ? -HDL_EAGAIN
	                     : apertures_wait(adapter, put_done, put, apertures_until(timeout_ms));
	return result != 0 ? result : put->result;
}

int hdl_aperture_store(struct hdl_aperture *aperture, uint64_t offset, const void *data,
                       size_t length, int timeout_ms)
{
	if (!is_aperture(aperture) || (data == NULL && length > 0) || length > AP_MAX_PUT)
		return -HDL_EINVAL;
	if (aperture->is_ip)
		return offset != 0 ? -HDL_EINVAL : apertures_ip_send(aperture, data, length);
	struct hdl_adapter *adapter = aperture->adapter;
	adapter_lock(adapter);
	aperture_follow(aperture);
	bool open = aperture_can_send(aperture);
	bool fits = aperture_grants(aperture, offset, length);
	adapter_unlock(adapter);
	if (!open)
		return -HDL_EPERM;
	if (!fits)
		return -HDL_EINVAL;
	if (length == 0)
		return 0;
	bool event = aperture->conn.own.type == HDL_APERTURE_EVENT;
	if (event && length > HDL_APERTURE_EVENT_BYTES)
		return -HDL_EINVAL;
	struct put_wait put = {.aperture = aperture,
	                       .kind = event ? CI_EVENT : CI_DATA,
	                       .offset = offset,
	                       .data = data,
	                       .length = (uint32_t)length};
	return aperture_send(&put, timeout_ms);
}

int hdl_aperture_event(struct hdl_aperture *aperture, uint64_t offset, const void *data,
                       size_t length, int timeout_ms)
{
	if (!is_aperture(aperture) || length > HDL_APERTURE_EVENT_BYTES ||
	    (data == NULL && length > 0) || offset > UINT32_MAX || aperture->is_ip)
		return -HDL_EINVAL;
	struct put_wait put = {.aperture = aperture,
	                       .kind = CI_EVENT,
	                       .offset = offset,
	                       .data = data,
	                       .length = (uint32_t)length};
	return aperture_send(&put, timeout_ms);
}

/* --- reading --- */

static bool aperture_read_done(void *object)
{
	const struct hdl_aperture *aperture = object;
	return aperture->read_got == aperture->read_bytes ||
	       aperture->conn.refused != aperture->refused_seen || !aperture_can_send(aperture);
}

/* One request of at most CI_MAX_READ bytes. */
static int read_part(struct hdl_aperture *aperture, uint64_t offset, uint8_t *to, uint32_t bytes,
                     uint64_t until_ns)
{
	struct hdl_adapter *adapter = aperture->adapter;
	for (;;) {
		uint8_t body[8];
		adapter_lock(adapter);
		struct ci_read read = {.token = ++adapter->apertures->next_token, .bytes = bytes};
		ci_set_read(&read, body);
		aperture_follow(aperture);
		(void)aperture_collect(aperture);
		aperture->read_token = read.token;
		aperture->read_offset = offset;
		aperture->read_bytes = bytes;
		aperture->read_got = 0;
		aperture->read_to = to;
		aperture->refused_seen = aperture->conn.refused;
		bool open = aperture_can_send(aperture);
		bool put = open && ap_put(&aperture->conn, CI_READ, offset, body, sizeof(body));
		apertures_run(adapter->apertures);
		adapter_unlock(adapter);
		if (!open)
			return -HDL_EPERM;
		/* Where packets have no numbers, request or responses may get lost: ask again. */
		uint64_t again = clock_now_ns() + (put ? AP_TIMEOUT_NS : APERTURE_WAIT_NS);
		int result = apertures_wait(adapter, aperture_read_done, aperture,
		                            again < until_ns ? again : until_ns);
		adapter_lock(adapter);
		bool whole = aperture->read_got == bytes;
		bool failed = aperture->conn.refused != aperture->refused_seen;
		open = aperture_can_send(aperture);
		aperture->read_to = NULL;
		adapter_unlock(adapter);
		if (whole)
			return 0;
		if (failed)
			return -HDL_EACCES;
		if (!open)
			return -HDL_EPERM;
		if (result != -HDL_EAGAIN && result != 0)
			return result;
		if (clock_now_ns() >= until_ns)
			return -HDL_ETIMEDOUT;
	}
}

int hdl_aperture_read(struct hdl_aperture *aperture, uint64_t offset, void *data, size_t length,
                      int timeout_ms)
{
	if (!is_aperture(aperture) || (data == NULL && length > 0) || aperture->is_ip ||
	    offset > UINT32_MAX || length > UINT32_MAX - offset)
		return -HDL_EINVAL;
	uint64_t until = apertures_until(timeout_ms);
	uint8_t *to = data;
	int result = 0;
	pthread_mutex_lock(&aperture->read_lock);
	for (size_t done = 0; done < length && result == 0;) {
		uint32_t part =
		        length - done < CI_MAX_READ ? (uint32_t)(length - done) : CI_MAX_READ;
		result = read_part(aperture, offset + done, to + done, part, until);
		done += part;
	}
	pthread_mutex_unlock(&aperture->read_lock);
	return result;
}

/* --- flush, check --- */

struct flush_wait {
	struct hdl_aperture *aperture;
	uint32_t level, number;
	bool collected;
	int result;
};

static bool flush_done(void *object)
{
	struct flush_wait *flush = object;
	struct hdl_aperture *aperture = flush->aperture;
	const struct ap_conn *conn = &aperture->conn;
	if (!aperture_can_send(aperture)) {
		flush->result = -HDL_EPERM;
		return true;
	}
	if (!flush->collected) {
		aperture_look_behind(aperture);
		flush->collected = aperture_collect(aperture) == 0;
		flush->number = conn->next;
		apertures_run(aperture->adapter->apertures);
		if (!flush->collected)
			return false;
	}
	uint32_t reached = flush->level == HDL_FLUSH_SENT ? conn->cursor : conn->una;
	return (int32_t)(reached - flush->number) >= 0;
}

int hdl_aperture_flush(struct hdl_aperture *aperture, uint32_t level, int timeout_ms)
{
	if (!is_aperture(aperture) || level > HDL_FLUSH_PLACED)
		return -HDL_EINVAL;
	if (aperture->is_ip)
		return 0;
	struct hdl_adapter *adapter = aperture->adapter;
	adapter_lock(adapter);
	aperture_follow(aperture);
	bool numbered = aperture->conn.out->sequenced;
	bool pointed = aperture->conn.pointed;
	adapter_unlock(adapter);
	if (level == HDL_FLUSH_PLACED && (!numbered || pointed))
		return -HDL_ENOTSUP;
	struct flush_wait flush = {.aperture = aperture, .level = level};
	int result = apertures_wait(adapter, flush_done, &flush, apertures_until(timeout_ms));
	return result == -HDL_EAGAIN ? -HDL_ETIMEDOUT : result != 0 ? result : flush.result;
}

int hdl_aperture_check(struct hdl_aperture *aperture)
{
	if (!is_aperture(aperture))
		return -HDL_EINVAL;
	struct hdl_adapter *adapter = aperture->adapter;
	adapter_poll(adapter); /* an acknowledgement may wait */
	adapter_lock(adapter);
	aperture_follow(aperture);
	aperture_look_behind(aperture);
	const struct ap_conn *conn = &aperture->conn;
	int result = 0;
	if (conn->errors != aperture->errors_seen)
		result = -HDL_EIO;
	else if (!aperture_can_send(aperture))
		result = -HDL_EPERM;
	else if (!ap_all_acked(conn))
		result = -HDL_EAGAIN;
	aperture->errors_seen = conn->errors;
	adapter_unlock(adapter);
	return result;
}

/* --- ALIVE --- */

struct alive_wait {
	struct hdl_aperture *aperture;
	uint32_t first; /* the number of the first ALIVE of the call */
};

/* Answers to earlier questions do not count. */
static bool alive_is_answered(const struct alive_wait *wait)
{
	return (int32_t)(wait->aperture->conn.lives - wait->first) >= 0;
}

static bool alive_is_known(void *object)
{
	const struct alive_wait *wait = object;
	const struct ap_conn *conn = &wait->aperture->conn;
	return conn->state != HDL_APERTURE_OPEN || alive_is_answered(wait);
}

/* Send ALIVE. False: it is not OPEN. */
static bool alive_ask(struct hdl_aperture *aperture)
{
	struct apertures *apertures = aperture->adapter->apertures;
	if (aperture->conn.state != HDL_APERTURE_OPEN)
		return false;
	apertures->node.now_ns = clock_read(&aperture->adapter->clock);
	ap_ask_alive(&aperture->conn);
	apertures_run(apertures);
	return true;
}

/* The answer came, or the connection has ended. */
static int alive_result(const struct alive_wait *wait)
{
	const struct ap_conn *conn = &wait->aperture->conn;
	struct hdl_adapter *adapter = wait->aperture->adapter;
	adapter_lock(adapter);
	int result = alive_is_answered(wait)             ? 0
	             : conn->reason == HDL_REASON_SILENT ? -HDL_ETIMEDOUT
	                                                 : -HDL_EPERM;
	adapter_unlock(adapter);
	return result;
}

int hdl_aperture_alive(struct hdl_aperture *aperture, int timeout_ms)
{
	struct alive_wait wait = {.aperture = aperture};
	if (!is_aperture(aperture))
		return -HDL_EINVAL;
	struct hdl_adapter *adapter = aperture->adapter;
	uint64_t until = apertures_until(timeout_ms);
	adapter_touch(adapter);
	adapter_lock(adapter);
	wait.first = aperture->conn.asks + 1;
	bool open = alive_ask(aperture);
	adapter_unlock(adapter);
	if (!open)
		return -HDL_EPERM;
	while (timeout_ms != 0) {
		uint64_t again = clock_now_ns() + APERTURE_ALIVE_NS;
		int result = apertures_wait(adapter, alive_is_known, &wait,
		                            again < until ? again : until);
		if (result != -HDL_EAGAIN)
			return result != 0 ? result : alive_result(&wait);
		if (clock_now_ns() >= until)
			return -HDL_ETIMEDOUT;
		adapter_lock(adapter);
		(void)alive_ask(aperture); /* one of the two got lost, or the peer is slow */
		adapter_unlock(adapter);
	}
	return 0;
}
