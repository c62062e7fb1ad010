/* Runs every behaviour over the port named by the first argument; the second argument filters by
 * test name. */
#include <stdio.h>
#include <stdlib.h>

#include "conform.h"

const struct port *conform_port;

static const struct theme *const themes[] = {
        &send_theme,     &rdma_theme,     &datagram_theme,  &retry_theme,    &error_theme,
        &window_theme,   &register_theme, &gone_theme,      &state_theme,    &cq_theme,
        &channel_theme,  &srq_theme,      &xrc_theme,       &limit_theme,    &death_theme,
        &bad_call_theme, &stress_theme,   &multicast_theme, &reliable_theme, &turns_theme,
};

static const struct port *find(const char *name)
{
	for (size_t i = 0; i < port_count; i++)
		if (strcmp(ports[i].name, name) == 0)
			return &ports[i];
	return NULL;
}

int main(int argc, char **argv)
{
	conform_port = argc > 1 ? find(argv[1]) : NULL;
	if (conform_port == NULL) {
		fprintf(stderr, "usage: %s PORT [FILTER]; ports:\n", argv[0]);
		for (size_t i = 0; i < port_count; i++)
			fprintf(stderr, "  %s\n", ports[i].name);
		return 2;
	}
	size_t count = 0;
	for (size_t i = 0; i < COUNT(themes); i++)
		count += themes[i]->count;
	struct CMUnitTest *all = calloc(count, sizeof(*all));
	if (all == NULL)
		return 2;
	count = 0;
	for (size_t i = 0; i < COUNT(themes); i++) {
		memcpy(all + count, themes[i]->tests, themes[i]->count * sizeof(*all));
		count += themes[i]->count;
	}
	if (argc > 2)
		cmocka_set_test_filter(argv[2]);
	int failed = _cmocka_run_group_tests(conform_port->name, all, count, NULL, NULL);
	free(all);
	return failed != 0;
}
