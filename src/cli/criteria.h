/* The node agent's own queue, as heddle aperture shows and sets it. */
#ifndef CLI_CRITERIA_H
#define CLI_CRITERIA_H

#include <jansson.h>
#include <stdbool.h>

#include <heddle/eventq.h>

#include "port/oob.h"

/* Print the criteria of process @pid; 0: of all, and of those to come. Returns the exit status. */
int criteria_show(int pid, bool json);
/* Set them. Returns the exit status. */
int criteria_set(int pid, const struct oob_criteria *criteria);

/* The last error that the agent has heard of; none: null, and nothing. */
json_t *oob_error_json(const struct hdl_oob_status *status);
void oob_error_print(const struct hdl_oob_status *status);

#endif
