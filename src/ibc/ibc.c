/* Registering with the virtual switch, and the gate to the one client of a process: see
 * heddle/ibc.h. */
#include "heddle/ibc.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "ibc/gate.h"
#include "port/vskey.h"

_Static_assert(IBC_LIMIT_PORTS == VSWITCH_PORTS, "one truth");
_Static_assert(IBC_LIMIT_HARDWARE_PORTS == VSWITCH_HARDWARE_PORTS, "one truth");
_Static_assert(IBC_LIMIT_GENERAL_APIDS == VSWITCH_GENERAL_LAST - VSWITCH_GENERAL_FIRST + 1,
               "one truth");
_Static_assert(IBC_LIMIT_HOPS == IBC_MAX_HOPS, "one truth");
_Static_assert(IBC_LIMIT_PAYLOAD == IBC_MAX_PAYLOAD, "one truth");
_Static_assert(IBC_LIMIT_CLIENTS < BOARD_MEMBERS, "and the process of the hardware ports");
_Static_assert(IBC_CLIENTANY == AGENT_VS_ANY, "one truth");
_Static_assert(IBC_CLIENTALL == VSWITCH_APID_ALL, "one truth");
_Static_assert(IBC_NACK == (int)IBC_TYPE_NACK, "one truth");
_Static_assert(IBC_NACK_NO_RECEIVE == (int)IBC_REASON_NO_RECEIVE, "one truth");

struct gate gate;

static void ibc_before_fork(void)
{
	lock_take(&gate.lock);
}

static void ibc_after_fork(void)
{
	lock_drop(&gate.lock);
}

static void client_free(struct client *client, bool forked)
{
	if (client->epoll >= 0)
		close(client->epoll);
	member_end(&client->member);
	ibc_capture_close(client->capture, forked);
	for (unsigned i = 0; i < IBC_LIMIT_HANDLES; i++) {
		if (client->handles[i] != NULL)
			free(client->handles[i]->buffer);
		free(client->handles[i]);
	}
	client_drop_kept(client);
	free(client);
}

/* The child has no part in what its parent registered. */
static void in_forked_child(void)
{
	struct client *client = gate.client;
	gate.client = NULL;
	gate.users = gate.waiters = 0;
	gate.finishing = gate.sleeping = false;
	ibc_after_fork();
	if (client != NULL)
		client_free(client, true);
}

__attribute__((constructor)) static void ibc_watch_forks(void)
{
	pthread_atfork(ibc_before_fork, ibc_after_fork, in_forked_child);
}

/* The client, with the lock; NULL, without it. */
struct client *client_enter(void)
{
	lock_take(&gate.lock);
	if (gate.client != NULL && !gate.finishing)
		return gate.client;
	lock_drop(&gate.lock);
	return NULL;
}

void client_exit(struct client *client)
{
	if (client->has_descriptor)
		client_settle_descriptor(client);
	lock_drop(&gate.lock);
}

void client_pause(struct client *client, unsigned spins)
{
	gate.users++;
	lock_drop(&gate.lock);
	lock_relax(spins);
	lock_take(&gate.lock);
	gate.users--;
	if (client_drive(client))
		client_wake(client);
}

/* The key of the administrator, if the user gave one. */
static bool key_given(uint8_t key[AGENT_VS_KEY_BYTES])
{
	const char *text = secure_getenv("HEDDLE_IBC_KEY");
	memset(key, 0, AGENT_VS_KEY_BYTES);
	if (text == NULL || text[0] == '\0' || vskey_parse(text, key))
		return true;
	log_error("HEDDLE_IBC_KEY: expected 32 hexadecimal digits, as \"heddle ibc key\" prints "
	          "them; correct it, or unset it");
	return false;
}

static struct client *client_make(void)
{
	uint8_t key[AGENT_VS_KEY_BYTES];
	struct client *client = calloc(1, sizeof(*client));
	if (client == NULL)
		return NULL;
	client->epoll = -1;
	if (!key_given(key) || !member_begin(&client->member, &client_owner, NULL, key)) {
		free(client);
		errno = EINVAL;
		return NULL;
	}
	return client;
}

/* What IBC_Init() returns if the agent does not grant @wanted but says @apid. */
static int attach_result(unsigned wanted, int apid)
{
	switch (-apid) {
	case EADDRINUSE:
		if (vswitch_is_special(wanted) && wanted != VSWITCH_APID_CONFIG)
			log_warn("APID %u needs the key of the administrator, or is taken: set "
			         "HEDDLE_IBC_KEY to what \"heddle ibc key\" prints, or ask for "
			         "another one",
			         wanted);
		return IBC_ID_NOTAVAILABLE;
	case EINVAL:
		return IBC_BADPARAM;
	case ENOMEM:
		return IBC_MALLOC_FAILED;
	case ENOSPC:
		log_error(
		        "the virtual switch of this node is full: its %u general APIDs are taken, "
		        "it has %u clients, or there are too many nodes; end some clients "
		        "(\"heddle "
		        "vswitch show\" lists them), then try again",
		        IBC_LIMIT_GENERAL_APIDS, IBC_LIMIT_CLIENTS);
		return IBC_ATTACH_FAILED;
	case ECONNREFUSED: /* logged */
		return IBC_ATTACH_FAILED;
	default:
		log_error("the virtual switch does not accept this client: %s; %s", strerror(-apid),
		          apid == -EOPNOTSUPP ? "it is a plain switch, use another node "
		                                "(HEDDLE_NODE)"
		                              : "end some of its clients, then try again");
		return IBC_ATTACH_FAILED;
	}
}

IBC_API int IBC_Init(unsigned RequestedID, unsigned *GrantedID, IBC_GUID *GUIDList,
                     unsigned *NumGUIDs)
{
	unsigned wanted = RequestedID & 0xffu;
	uint32_t flags = (RequestedID & 0x100u) != 0 ? AGENT_VS_WISH : 0;
	uint64_t guids[VSWITCH_HARDWARE_PORTS];
	if (RequestedID > 0x1ffu || (GUIDList != NULL && NumGUIDs == NULL) ||
	    (wanted != IBC_CLIENTANY && (wanted >= VSWITCH_PORTS || vswitch_is_hardware(wanted))))
		return IBC_BADPARAM;
	lock_take(&gate.lock);
	struct client *client = gate.client;
	if (client == NULL && (client = client_make()) == NULL) {
		lock_drop(&gate.lock);
		return errno == EINVAL ? IBC_ATTACH_FAILED : IBC_MALLOC_FAILED;
	}
	int apid = gate.finishing ? -ECONNREFUSED : member_attach(&client->member, wanted, flags);
	if (apid < 0) {
		if (client != gate.client)
			client_free(client, false);
		lock_drop(&gate.lock);
		return attach_result(wanted, apid);
	}
	if (gate.client == NULL) {
		/* The only number that asks the kernel. */
		client->next_sent = (uint32_t)prng_pool_next(&client->numbers);
		client->capture = ibc_capture_open(client->member.node);
		gate.client = client;
	}
	if (client->first == 0 && apid != IBC_CLIENTALL)
		client->first = (unsigned)apid;
	if (client->member.node[0] != '\0')
		client_has_ports(client); /* whoever names a node wants to hear if it is not up */
	unsigned count = board_guids(&client->member.board->vswitch, client->member.apids, guids);
	lock_drop(&gate.lock);
	if (GrantedID != NULL)
		*GrantedID = (unsigned)apid;
	if (NumGUIDs != NULL) {
		for (unsigned i = 0; GUIDList != NULL && i < count && i < *NumGUIDs; i++)
			GUIDList[i] = guids[i];
		*NumGUIDs = count;
	}
	return IBC_SUCCESS;
}

IBC_API int IBC_Finish(void)
{
	struct client *client = client_enter();
	if (client == NULL)
		return IBC_NOT_INITIALIZED;
	gate.finishing = true;
	for (unsigned spins = 0; gate.users > 0; spins++) {
		client_wake(client);
		lock_drop(&gate.lock);
		lock_relax(spins);
		lock_take(&gate.lock);
	}
	client_reject_all(client);
	gate.client = NULL;
	gate.finishing = false;
	lock_drop(&gate.lock);
	client_free(client, false);
	return IBC_SUCCESS;
}

IBC_API int IBC_Statistics(struct IBC_Counters *Counters)
{
	if (Counters == NULL)
		return IBC_BADPARAM;
	struct client *client = client_enter();
	if (client == NULL)
		return IBC_NOT_INITIALIZED;
	*Counters = client->counters;
	Counters->Kept = client->kept_count;
	Counters->Agents = client->member.agents;
	client_exit(client);
	return IBC_SUCCESS;
}
