/* The event queue of a port. */
#include "adapter/adapter.h"
#include "adapter/aperture/aperture.h"
#include "adapter/eventq/eventq.h"

int hdl_eventq_open(struct hdl_port *port, const struct hdl_eventq_attr *attr,
                    struct hdl_eventq **out)
{
	if (!is_port(port))
		return -HDL_EINVAL;
	return eventq_open(port_adapter(port), hdl_port_number(port), attr, out);
}
