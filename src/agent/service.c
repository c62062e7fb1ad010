/* The table of services. See service.h. */
#include "agent/service.h"

#include <assert.h>
#include <string.h>

#include "base/log.h"

static void service_add(struct services *services, const struct agent_service *service,
                        const struct service_kind *kind)
{
	assert(kind->kind > 0 && kind->kind < AGENT_KIND_COUNT);
	assert(kind->min_bytes >= AGENT_MSG_HEADER_BYTES);
	assert(kind->min_bytes <= sizeof(struct agent_msg)); /* or it could never be long enough */
	assert(kind->hear != NULL);
	if (services->by_kind[kind->kind].service != NULL)
		log_error("services \"%s\" and \"%s\" both hear messages of kind %u",
		          services->by_kind[kind->kind].service->name, service->name,
		          (unsigned)kind->kind);
	assert(services->by_kind[kind->kind].service == NULL);
	services->by_kind[kind->kind].service = service;
	services->by_kind[kind->kind].kind = kind;
}

void services_begin(struct services *services, const struct agent_service *const *rows,
                    unsigned count)
{
	memset(services, 0, sizeof(*services));
	services->rows = rows;
	services->count = count;
	for (unsigned i = 0; i < count; i++)
		for (unsigned j = 0; j < rows[i]->kind_count; j++)
			service_add(services, rows[i], &rows[i]->kinds[j]);
}

bool services_hear(const struct services *services, struct agent *agent, struct client *client,
                   bool named, struct agent_request *request)
{
	/* The number comes from a process that may be hostile. */
	if (request->bytes < AGENT_MSG_HEADER_BYTES || request->msg.kind >= AGENT_KIND_COUNT)
		return false;
	const struct service_kind *kind = services->by_kind[request->msg.kind].kind;
	if (kind == NULL || request->bytes < kind->min_bytes || (!named && !kind->before_hello))
		return false;
	kind->hear(agent, client, request);
	return true;
}

void services_leave(const struct services *services, struct agent *agent, struct client *client)
{
	for (unsigned i = services->count; i-- > 0;)
		if (services->rows[i]->leave != NULL)
			services->rows[i]->leave(agent, client);
}

uint64_t services_sweep(const struct services *services, struct agent *agent, uint64_t now_ns)
{
	uint64_t first = SERVICES_NEVER;
	for (unsigned i = 0; i < services->count; i++) {
		if (services->rows[i]->sweep == NULL)
			continue;
		uint64_t due = services->rows[i]->sweep(agent, now_ns);
		first = due < first ? due : first;
	}
	return first;
}
