/* Descriptions of codes: the tables of codes.h and heddle/error.h. */
#include <heddle/heddle.h>

#include "adapter/adapter.h"
#include "adapter/codes.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* In the order in which the lists of codes.h have them; bad_call.c sees that none is missing. */
static const struct hdl_code errors[] = {
#define ROW(name, text, advice) {#name, HDL_##name, text, advice, NULL, 0},
        HDL_ERRORS(ROW)
#undef ROW
};

static const struct hdl_code statuses[] = {
#define ROW(name, text, advice) \
	{"HDL_WC_" #name, HDL_WC_##name, text, advice, "IBV_WC_" #name, HDL_WC_##name},
        CODES_STATUS(ROW)
#undef ROW
};

static const struct hdl_code details[] = {
#define ROW(name, counter, text, advice) \
	{"HDL_DETAIL_" #name, HDL_DETAIL_##name, text, advice, NULL, 0},
        CODES_DETAIL(ROW)
#undef ROW
};

static const struct hdl_code events[] = {
#define ROW(name, text, advice, alias, alias_value) \
	{"HDL_EVENT_" #name, HDL_EVENT_##name, text, advice, alias, alias_value},
        CODES_EVENT(ROW)
#undef ROW
};

/* As hdl_counters() numbers them. */
static const struct hdl_code counters[] = {
#define ROW(name, lower, text, advice) {lower, ENGINE_##name, text, advice, NULL, 0},
        CODES_COUNTER(ROW)
#undef ROW
#define ROW(name, lower, text, advice) \
	{"refused_" lower, ENGINE_COUNTER_COUNT + HDL_DETAIL_##name, text, advice, NULL, 0},
                CODES_DETAIL(ROW)
#undef ROW
};
_Static_assert(COUNT(counters) == COUNTER_COUNT, "every counter has its words");

static const struct hdl_code types[] = {
#define ROW(name) {"HDL_QP_" #name, HDL_QP_##name, #name, NULL, NULL, 0},
        CODES_QP_TYPE(ROW)
#undef ROW
};

static const struct hdl_code states[] = {
#define ROW(name) {"HDL_QPS_" #name, HDL_QPS_##name, #name, NULL, "IBV_QPS_" #name, HDL_QPS_##name},
        CODES_QP_STATE(ROW)
#undef ROW
};

static const struct hdl_code attributes[] = {
#define ROW(name) {"HDL_QP_" #name, HDL_QP_##name, #name, NULL, NULL, 0},
        CODES_QP_ATTR(ROW)
#undef ROW
};
#define BIT(name) | HDL_QP_##name
_Static_assert((0 CODES_QP_ATTR(BIT)) == HDL_QP_ATTR_ALL, "every attribute has its name");
#undef BIT

static const struct {
	const struct hdl_code *list;
	size_t count;
} tables[HDL_CODES_KIND_COUNT] = {
        [HDL_CODES_ERROR] = {errors, COUNT(errors)},
        [HDL_CODES_STATUS] = {statuses, COUNT(statuses)},
        [HDL_CODES_DETAIL] = {details, COUNT(details)},
        [HDL_CODES_EVENT] = {events, COUNT(events)},
        [HDL_CODES_COUNTER] = {counters, COUNT(counters)},
        [HDL_CODES_QP_TYPE] = {types, COUNT(types)},
        [HDL_CODES_QP_STATE] = {states, COUNT(states)},
        [HDL_CODES_QP_ATTR] = {attributes, COUNT(attributes)},
};

const struct hdl_code *hdl_codes(uint32_t kind, size_t *count)
{
	*count = kind < HDL_CODES_KIND_COUNT ? tables[kind].count : 0;
	return kind < HDL_CODES_KIND_COUNT ? tables[kind].list : NULL;
}

static const char *code_words(uint32_t kind, uint32_t value, const char *otherwise)
{
	for (size_t i = 0; i < tables[kind].count; i++)
		if (tables[kind].list[i].value == value)
			return tables[kind].list[i].text;
	return otherwise;
}

const char *counter_name(size_t counter)
{
	return counters[counter].name;
}

const char *hdl_strerror(int error)
{
	uint32_t value = error < 0 ? 0u - (uint32_t)error : (uint32_t)error;
	return value == 0 ? "success"
	                  : code_words(HDL_CODES_ERROR, value, "not an error of Heddle");
}

const char *hdl_wc_status_str(uint32_t status)
{
	return code_words(HDL_CODES_STATUS, status, "unknown");
}

const char *hdl_detail_str(uint32_t detail)
{
	return code_words(HDL_CODES_DETAIL, detail, "unknown");
}

const char *hdl_event_str(uint32_t type)
{
	return code_words(HDL_CODES_EVENT, type, "unknown");
}

const char *qp_type_name(uint32_t type)
{
	return code_words(HDL_CODES_QP_TYPE, type, "?");
}

const char *qp_state_name(uint32_t state)
{
	return code_words(HDL_CODES_QP_STATE, state, "?");
}
