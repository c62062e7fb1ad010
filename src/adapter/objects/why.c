/* Why something was refused or failed, for HEDDLE_LOG=debug. The layers below log nothing and the
 * calls only return an error: what they had to go by is looked at again here, and put in words. */
#include <arpa/inet.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "adapter/adapter.h"
#include "base/log.h"
#include "queue/qp_state.h"

#define NAMES_BYTES 512 /* of all attributes with commas between them */

int why_not(int error, const char *format, ...)
{
	char text[LOG_LINE_BYTES];
	va_list arguments;
	if (!log_enabled(LOG_LEVEL_DEBUG))
		return error;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	log_debug("%s (%s)", text, hdl_strerror(error));
	return error;
}

static const char *gid_words(const struct hdl_gid *gid, char text[INET6_ADDRSTRLEN])
{
	return inet_ntop(AF_INET6, gid->raw, text, INET6_ADDRSTRLEN);
}

/* The names of the attributes in @mask. */
static const char *attribute_names(uint32_t mask, char text[NAMES_BYTES])
{
	size_t count, used = 0;
	const struct hdl_code *list = hdl_codes(HDL_CODES_QP_ATTR, &count);
	text[0] = '\0';
	for (size_t i = 0; i < count && used < NAMES_BYTES; i++)
		if (mask & list[i].value)
			used += (size_t)snprintf(text + used, NAMES_BYTES - used, "%s%s",
			                         used == 0 ? "" : ", ", list[i].text);
	return text;
}

/* Those in @mask whose value is out of range: each is judged by itself. */
static uint32_t wrong_values(const struct hdl_qp_attr *attr, uint32_t mask)
{
	uint32_t wrong = 0;
	for (uint32_t bit = 1; bit != 0 && bit <= HDL_QP_ATTR_ALL; bit <<= 1)
		if ((mask & bit) && !qp_values_fit(attr, bit))
			wrong |= bit;
	return wrong;
}

/* Other programs of the node have put it on a network, and this one did not ask for that: it has
 * their addresses and no port. The user has to know, so this is logged at the default level, once.
 */
static bool why_without_network(const struct hdl_adapter *adapter)
{
	static atomic_bool told;
	char text[INET6_ADDRSTRLEN];
	const struct hdl_gid *first = &adapter->gids[0];
	bool local = first->raw[0] == 0xfe && (first->raw[1] & 0xc0) == 0x80;
	if (net_has_packets(&adapter->net) || adapter->gid_count == 0 || local)
		return false;
	if (!atomic_exchange(&told, true))
		log_warn("other programs of this node use the network at %s, and this one does "
		         "not: start it with the same --addr (HEDDLE_ADDR) to reach other "
		         "machines",
		         gid_words(first, text));
	return true;
}

void why_unreachable(const struct hdl_adapter *adapter, const char *what,
                     const struct hdl_ah_attr *attr, int error)
{
	char text[INET6_ADDRSTRLEN];
	struct hdl_gid to = adapter_address(attr);
	bool without = error == -HDL_EHOSTUNREACH && why_without_network(adapter);
	if (!log_enabled(LOG_LEVEL_DEBUG))
		return;
	if (error == -HDL_EACCES)
		log_debug("%s refused: the process at %s belongs to another user", what,
		          gid_words(&to, text));
	else if (without)
		log_debug("%s refused: no process of user %u is known at %s on this machine, and "
		          "this program uses no network (--addr, HEDDLE_ADDR)",
		          what, (unsigned)geteuid(), gid_words(&to, text));
	else
		log_debug("%s refused: no process of user %u is known at %s; it does not run, "
		          "belongs to another user, has another HEDDLE_DIR, or is on a network "
		          "that this node has no address on",
		          what, (unsigned)geteuid(), gid_words(&to, text));
}

void why_too_large(const char *what, uint32_t path_mtu, uint32_t most)
{
	log_debug("%s refused: PATH_MTU is %u, and packets on the network of this node carry %u "
	          "bytes at most, because of the MTU of its interface (\"ip link\"): choose "
	          "hdl_limits.mtu or less, the same at both ends",
	          what, path_mtu, most);
}

void why_not_modified(const struct hdl_qp *qp, const struct hdl_qp_attr *attr, uint32_t mask,
                      int error)
{
	char what[128], names[NAMES_BYTES];
	uint32_t need, allow, given = mask & ~(uint32_t)(HDL_QP_STATE | HDL_QP_CUR_STATE), wrong;
	enum hdl_qp_state from = qp_state(&qp->qp);
	enum hdl_qp_state to = mask & HDL_QP_STATE ? (enum hdl_qp_state)attr->state : from;
	if (!log_enabled(LOG_LEVEL_DEBUG)) {
		if (error == -HDL_EHOSTUNREACH)
			why_without_network(qp->pd->adapter);
		return;
	}
	snprintf(what, sizeof(what), "queue pair 0x%06x (%s): %s to %s", qp->qp.qpn,
	         qp_type_name(qp->qp.type), qp_state_name(from), qp_state_name(to));
	bool exists = to <= HDL_QPS_ERR &&
	              qp_attributes((enum hdl_qp_type)qp->qp.type, from, to, &need, &allow);
	if (mask & ~(uint32_t)HDL_QP_ATTR_ALL)
		log_debug("%s refused: the mask 0x%x has bits that mean nothing", what, mask);
	else if (to > HDL_QPS_ERR)
		log_debug("%s refused: there is no state %u", what, attr->state);
	else if ((mask & HDL_QP_CUR_STATE) && attr->cur_state != from)
		log_debug("%s refused: CUR_STATE is given as %s, but it is in %s", what,
		          qp_state_name(attr->cur_state), qp_state_name(from));
	else if (!exists)
		log_debug("%s refused: there is no such transition", what);
	else if ((need & ~given) != 0)
		log_debug("%s refused: it needs %s", what, attribute_names(need & ~given, names));
	else if ((given & ~(need | allow)) != 0)
		log_debug("%s refused: it does not take %s", what,
		          attribute_names(given & ~(need | allow), names));
	else if ((wrong = wrong_values(attr, mask)) != 0)
		log_debug("%s refused: out of range is %s", what, attribute_names(wrong, names));
	else if (error == -HDL_EHOSTUNREACH || error == -HDL_EACCES)
		why_unreachable(qp->pd->adapter, what, &attr->ah, error);
	else if ((mask & HDL_QP_PATH_MTU) && error == -HDL_EINVAL &&
	         attr->path_mtu > net_mtu(qp->pd->adapter))
		why_too_large(what, attr->path_mtu, net_mtu(qp->pd->adapter));
	else if ((mask & HDL_QP_AV) && attr->ah.src_path_bits >> qp->pd->adapter->lmc != 0)
		log_debug("%s refused: src_path_bits is %u, and the node has %u LIDs (HEDDLE_LMC)",
		          what, attr->ah.src_path_bits, 1u << qp->pd->adapter->lmc);
	else if ((mask & HDL_QP_PATH_MIG_STATE) && error == -HDL_EINVAL)
		log_debug("%s refused: PATH_MIG_STATE is REARM, and there is no alternate path to "
		          "arm",
		          what);
	else
		log_debug("%s refused: %s", what, hdl_strerror(error));
}

void why_ended(const struct hdl_qp *qp)
{
	log_debug("queue pair 0x%06x (%s) is in ERR: the program put it there", qp->qp.qpn,
	          qp_type_name(qp->qp.type));
}

/* "; " and the detail, if there is one. */
static const char *detail_words(uint32_t detail, const char **separator)
{
	*separator = detail != HDL_DETAIL_NONE ? "; " : "";
	return detail != HDL_DETAIL_NONE ? hdl_detail_str(detail) : "";
}

void why_failed(void *context, const struct qp *qp, struct qp_fault fault)
{
	char peer[64 + INET6_ADDRSTRLEN] = "", text[INET6_ADDRSTRLEN];
	const char *separator, *detail;
	(void)context;
	if (!log_enabled(LOG_LEVEL_DEBUG))
		return;
	struct hdl_gid to = adapter_address(&qp->attr.ah);
	if (qp->attr.dest_qpn != 0)
		snprintf(peer, sizeof(peer), " to 0x%06x at %s", qp->attr.dest_qpn,
		         gid_words(&to, text));
	detail = detail_words(fault.status != HDL_WC_SUCCESS ? fault.detail : fault.event_detail,
	                      &separator);
	/* What becomes of it: request.c. */
	bool ends = qp_reliable(qp) && !(fault.status == HDL_WC_MEM_MGT_ERR &&
	                                 qp->register_error == HDL_REGISTER_ERROR_DRAIN);
	if (fault.status != HDL_WC_SUCCESS)
		log_debug("queue pair 0x%06x (%s%s)%s: a request failed: %s%s%s", qp->qpn,
		          qp_type_name(qp->type), peer, ends ? " goes to ERR" : "",
		          hdl_wc_status_str(fault.status), separator, detail);
	else
		log_debug("queue pair 0x%06x (%s%s) goes to ERR: %s%s%s", qp->qpn,
		          qp_type_name(qp->type), peer, hdl_event_str(fault.event - 1u), separator,
		          detail);
}

void why_event(const struct hdl_event *event)
{
	char text[INET6_ADDRSTRLEN];
	if (!log_enabled(LOG_LEVEL_DEBUG))
		return;
	if (event->type == HDL_EVENT_PEER_GONE)
		log_debug("the peer at %s has gone; its queue pairs fail",
		          gid_words(&event->u.gid, text));
	else if (event->type == HDL_EVENT_MEMORY_GONE)
		log_debug("the memory behind the key 0x%08x was unmapped while registered",
		          event->u.key.v);
	else if (event->type == HDL_EVENT_CQ_OVERRUN)
		log_debug("a completion queue of %u was overrun; its queue pairs fail",
		          event->u.cq->cq.depth);
}
