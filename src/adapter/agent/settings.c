/* Settings in the environment. They are validated when an adapter joins a node, HEDDLE_FAST when
 * any adapter is opened: a misspelt value is refused, not silently replaced by the default. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/adapter.h"
#include "adapter/aperture/cluster.h"
#include "base/log.h"

#define VALUES_TEXT 64

/* The value of @name; NULL: not set, or empty. */
static const char *given(const char *name)
{
	const char *value = secure_getenv(name);
	return value != NULL && value[0] != '\0' ? value : NULL;
}

static bool is(const char *name, const char *value)
{
	const char *has = given(name);
	return has != NULL && strcmp(has, value) == 0;
}

bool settings_local_off(void)
{
	return is("HEDDLE_LOCAL", "off");
}

bool settings_copy_by_lane(void)
{
	return is("HEDDLE_COPY", "lane");
}

/* Is @name unset, or one of @values, which end with NULL? Otherwise logs the valid values. */
static bool settings_is_known(const char *name, const char *const values[])
{
	char all[VALUES_TEXT] = "";
	bool known = given(name) == NULL;
	for (size_t i = 0; values[i] != NULL && !known; i++) {
		size_t used = strlen(all);
		snprintf(all + used, sizeof(all) - used, "%s'%s'", i > 0 ? ", " : "", values[i]);
		known = is(name, values[i]);
	}
	if (!known)
		log_error("%s: '%s' is not a valid value; use %s, or unset it", name, given(name),
		          all);
	return known;
}

bool settings_fast_path(struct adapter_env *env)
{
	static const char *const values[] = {"on", "off", NULL};
	env->no_fast_path = is("HEDDLE_FAST", "off");
	return settings_is_known("HEDDLE_FAST", values);
}

/* Read HEDDLE_LMC, the number of LIDs of the node. */
static bool choose_lids(struct hdl_adapter *adapter)
{
	const char *lmc = given("HEDDLE_LMC");
	adapter->agent.lmc_wanted = -1;
	if (lmc == NULL)
		return true;
	if (lmc[0] < '0' || lmc[0] > '0' + (char)AGENT_MAX_LMC || lmc[1] != '\0') {
		log_error("HEDDLE_LMC: '%s' is not a number from 0 to %u; the node gets 2 to that "
		          "power LIDs",
		          lmc, AGENT_MAX_LMC);
		return false;
	}
	adapter->agent.lmc_wanted = lmc[0] - '0';
	return true;
}

/* Read HEDDLE_MPA, a list of words: what connections ask for that programs have no word for. */
static bool choose_mpa(struct hdl_adapter *adapter)
{
	static const struct {
		const char *word;
		enum hdl_conn_flag flag;
	} words[] = {{"no-crc", HDL_CONN_NO_CRC},
	             {"markers", HDL_CONN_MARKERS},
	             {"revision-1", HDL_CONN_REVISION_1},
	             {"client-server", HDL_CONN_CLIENT_SERVER}};
	const size_t count = sizeof(words) / sizeof(words[0]);
	const char *list = given("HEDDLE_MPA"), *at = list;
	adapter->net.conn_flags = 0;
	while (at != NULL) {
		size_t bytes = strcspn(at, ","), i = 0;
		while (i < count &&
		       (strlen(words[i].word) != bytes || strncmp(words[i].word, at, bytes) != 0))
			i++;
		if (i == count) {
			log_error("HEDDLE_MPA: '%s' is not a valid value; use 'no-crc', 'markers', "
			          "'revision-1', 'client-server', several with commas, or unset it",
			          list);
			return false;
		}
		adapter->net.conn_flags |= (uint32_t)words[i].flag;
		at = at[bytes] == ',' ? at + bytes + 1 : NULL;
	}
	return true;
}

/* A name that is too long is refused: truncated, different names could mean the same node. */
static bool choose_node(struct hdl_adapter *adapter, const char *node)
{
	if (node == NULL)
		node = given("HEDDLE_NODE");
	if (node == NULL)
		node = "";
	if (strlen(node) >= sizeof(adapter->agent.node_name)) {
		log_error("the node name '%.16s...' has %zu bytes; the maximum is %zu: "
		          "choose a shorter one (--node, HEDDLE_NODE)",
		          node, strlen(node), sizeof(adapter->agent.node_name) - 1);
		return false;
	}
	snprintf(adapter->agent.node_name, sizeof(adapter->agent.node_name), "%s", node);
	return true;
}

/* Read the table that HEDDLE_CLUSTER names. */
static bool choose_cluster(struct hdl_adapter *adapter)
{
	const char *path = given("HEDDLE_CLUSTER");
	return path == NULL || adapter->cluster != NULL ||
	       cluster_read(path, &adapter->cluster) == 0;
}

int settings_take(struct hdl_adapter *adapter, const char *node)
{
	static const char *const local[] = {"on", "off", NULL}, *const copy[] = {"lane", NULL};
	adapter->net.stripes = is("HEDDLE_STRIPE", "on");
	log_enabled(LOG_LEVEL_ERROR); /* reports an invalid HEDDLE_LOG now */
	if (!choose_node(adapter, node) || !choose_lids(adapter) || !choose_mpa(adapter) ||
	    !choose_cluster(adapter) || !settings_is_known("HEDDLE_LOCAL", local) ||
	    !settings_is_known("HEDDLE_STRIPE", local) || !settings_is_known("HEDDLE_COPY", copy))
		return -HDL_EINVAL;
	return net_choose(adapter);
}
