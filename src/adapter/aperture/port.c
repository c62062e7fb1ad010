/* The calls of ports. See aperture.h. */
#include <stdlib.h>
#include <string.h>

#include "adapter/adapter.h"
#include "adapter/aperture/aperture.h"
#include "adapter/eventq/eventq.h"

int hdl_port_open(struct hdl_adapter *adapter, const struct hdl_port_attr *attr,
                  struct hdl_port **out)
{
	uint16_t number = attr != NULL ? attr->port : 0;
	int result = 0;
	if (adapter == NULL || adapter->magic != MAGIC_ADAPTER || out == NULL ||
	    (attr != NULL && (attr->waiting > HDL_MAX_PORT_WAITING ||
	                      (attr->signals & ~(uint32_t)HDL_SIGNAL_ALL) != 0)))
		return -HDL_EINVAL;
	if (number == 0 && !adapter->agent.on_node)
		return -HDL_EHOSTUNREACH;
	struct apertures *apertures = apertures_begin(adapter);
	struct hdl_port *port = apertures != NULL ? calloc(1, sizeof(*port)) : NULL;
	if (port == NULL)
		return -HDL_ENOMEM;
	if (adapter->agent.on_node) {
		result = hdl_cm_bind(adapter, APERTURE_SPACE, NULL, &number, 0);
		port->bound = result == 0;
	}
	adapter_lock(adapter);
	if (result == 0 && apertures->port_count == HDL_MAX_PORTS)
		result = -HDL_ENOMEM;
	if (result == 0 && ap_port_find(&apertures->node, number) != NULL)
		result = -HDL_EADDRINUSE;
	if (result == 0) {
		port->magic = MAGIC_PORT;
		port->adapter = adapter;
		port->context = attr != NULL ? attr->context : NULL;
		ap_port_open(&apertures->node, &port->port, number);
		port->port.owner = port;
		port->port.signals = attr != NULL ? attr->signals : 0;
		if (attr != NULL && attr->waiting != 0)
			port->port.waiting_most = attr->waiting;
		apertures->port_count++;
	}
	adapter_unlock(adapter);
	if (result != 0) {
		if (port->bound)
			(void)hdl_cm_unbind(adapter, APERTURE_SPACE, NULL, number, 0);
		free(port);
		return result;
	}
	atomic_fetch_add(&adapter->objects.count, 1);
	*out = port;
	return 0;
}

int hdl_port_close(struct hdl_port *port)
{
	if (!is_port(port))
		return -HDL_EINVAL;
	struct hdl_adapter *adapter = port->adapter;
	adapter_lock(adapter);
	if (port->users > 0 || port->port.offer_count > 0) {
		adapter_unlock(adapter);
		return -HDL_EBUSY;
	}
	ap_port_close(&adapter->apertures->node, &port->port);
	adapter->apertures->port_count--;
	apertures_run(adapter->apertures); /* REJECTs */
	adapter_unlock(adapter);
	if (port->bound)
		(void)hdl_cm_unbind(adapter, APERTURE_SPACE, NULL, port->port.number, 0);
	atomic_fetch_sub(&adapter->objects.count, 1);
	port->magic = 0;
	free(port);
	return 0;
}

uint16_t hdl_port_number(const struct hdl_port *port)
{
	return is_port(port) ? port->port.number : 0;
}

void *hdl_port_context(const struct hdl_port *port)
{
	return is_port(port) ? port->context : NULL;
}

int hdl_port_rules(struct hdl_port *port, const struct hdl_port_rule *rules, uint32_t count)
{
	if (!is_port(port) || count > HDL_MAX_PORT_RULES || (rules == NULL && count > 0))
		return -HDL_EINVAL;
	for (uint32_t i = 0; i < count; i++)
		if (rules[i].action > HDL_RULE_ACCEPT)
			return -HDL_EINVAL;
	adapter_lock(port->adapter);
	if (count > 0)
		memcpy(port->port.rules, rules, count * sizeof(*rules));
	memset(port->port.by_rule, 0, sizeof(port->port.by_rule));
	port->port.rule_count = count;
	adapter_unlock(port->adapter);
	return 0;
}

static bool port_has_waiting(void *object)
{
	const struct hdl_port *port = object;
	return port->port.waiting != NULL;
}

int hdl_port_waiting(struct hdl_port *port, struct hdl_connect *connect, int timeout_ms)
{
	if (!is_port(port) || connect == NULL)
		return -HDL_EINVAL;
	int result =
	        apertures_wait(port->adapter, port_has_waiting, port, apertures_until(timeout_ms));
	adapter_lock(port->adapter);
	const struct ap_waiting *waiting = port->port.waiting;
	if (waiting != NULL) {
		*connect = (struct hdl_connect){.id = waiting->id,
		                                .length = waiting->offer.length,
		                                .type = waiting->offer.type,
		                                .index = waiting->offer.index};
		memcpy(connect->source.raw, waiting->from.host, 16);
		result = 0;
	}
	adapter_unlock(port->adapter);
	return result;
}

int hdl_port_reject(struct hdl_port *port, uint64_t id, uint32_t reason)
{
	if (!is_port(port) || reason == HDL_REASON_NONE || reason >= HDL_REASON_TICKET || id == 0)
		return -HDL_EINVAL;
	struct apertures *apertures = port->adapter->apertures;
	adapter_lock(port->adapter);
	struct ap_waiting *waiting = ap_waiting_find(&port->port, id);
	if (waiting != NULL)
		ap_reject(&apertures->node, &port->port, waiting, (uint8_t)reason);
	apertures_run(apertures);
	adapter_unlock(port->adapter);
	return waiting != NULL ? 0 : -HDL_ESTALE;
}

/* --- STATUS --- */

struct status_wait {
	struct hdl_aperture *aperture;
	uint32_t token;
};

static bool status_came(void *object)
{
	const struct status_wait *wait = object;
	return wait->aperture->status_token == wait->token || !wait->aperture->conn.asks_status;
}

int hdl_port_status(struct hdl_adapter *adapter, const struct hdl_gid *host, uint16_t number,
                    struct hdl_port_status *status, int timeout_ms)
{
	struct hdl_aperture *aperture;
	struct ap_path path;
	if (host == NULL || status == NULL || number == 0)
		return -HDL_EINVAL;
	uint64_t until = apertures_until(timeout_ms);
	/* The reply needs an entry to come to; it has no memory. */
	int result = hdl_aperture_open(adapter, NULL, &aperture);
	if (result != 0)
		return result;
	struct aperture_numbers numbers;
	result = apertures_find(adapter, host, number, &path);
	if (result == 0)
		result = aperture_ask_numbers(aperture, &numbers);
	struct status_wait wait = {.aperture = aperture};
	while (result == 0) {
		adapter_lock(adapter);
		wait.token = ++adapter->apertures->next_token;
		if (!numbers.given)
			numbers = (struct aperture_numbers){
			        true, prng_pool_next(&adapter->apertures->secrets), 0};
		ap_arm(&aperture->conn, numbers.nonce, numbers.sequence);
		ap_ask_status(&aperture->conn, &path, number, wait.token);
		apertures_run(adapter->apertures);
		adapter_unlock(adapter);
		uint64_t again = clock_now_ns() + 200000000u; /* it may get lost */
		result = apertures_wait(adapter, status_came, &wait, again < until ? again : until);
		if (result != -HDL_EAGAIN)
			break;
		result = clock_now_ns() >= until ? -HDL_ETIMEDOUT : 0;
	}
	adapter_lock(adapter);
	bool answered = aperture->status_token == wait.token;
	adapter_unlock(adapter);
	if (result == 0 && answered)
		*status = aperture->status;
	else if (result == 0)
		result = -HDL_ECONNREFUSED; /* REJECT came */
	(void)hdl_aperture_free(aperture);
	return result;
}
