#include "conform.h"

static const struct CMUnitTest tests[] = {{0}};
const struct theme bad_call_theme = {tests, 0};
