#include "conform.h"

static const struct CMUnitTest tests[] = {{0}};
const struct theme channel_theme = {tests, 0};
