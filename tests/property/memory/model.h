/* A slow, obvious model of the protection table: an array of everything that was asked for, sums in
 * 128 bits, windows that ask their region, counting by looking at every entry. It knows nothing of
 * slots, arenas or sequence locks. */
#ifndef TESTS_PROPERTY_MODEL_H
#define TESTS_PROPERTY_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/tpt.h"

#define MODEL_CAPACITY  120u
#define MODEL_MAX_PAGES 700u

struct model_entry {
	bool taken, retired, valid, gone, touched, used;
	uint8_t instance, type;
	uint32_t pd, qpn, access, sn;
	uint64_t base, length;
	uint32_t room; /* pages kept for registration by work request */
	/* A region or task: a run at @host, or with @page_bytes a list. A window: byte @offset of
	 * entry @region. */
	uint64_t host, page_bytes, first_offset;
	uint64_t pages[MODEL_MAX_PAGES];
	uint32_t region;
	uint64_t offset;
};

/* By index of the table; index 0 is never used. */
struct model {
	struct model_entry entries[MODEL_CAPACITY + 1];
};

uint32_t model_taken(const struct model *m);
/* The entry of a key's index, or NULL where the table has no such index. */
struct model_entry *model_entry(struct model *m, struct hdl_key key);
/* Windows bound to the entry. */
uint32_t model_windows(const struct model *m, const struct model_entry *e);
/* Where byte @at of the entry lies. */
uint64_t model_host(const struct model *m, const struct model_entry *e, uint64_t at);

enum hdl_detail model_check(struct model *m, const struct tpt_request *req, uint64_t *offset);

/* Would the insertion be refused for what it asks, whatever room there is? 0 or a negative error.
 */
int model_refuse_run(const struct tpt_region *region);
int model_refuse_pages(enum tpt_type type, uint64_t cookie, const struct hdl_register *reg);
int model_refuse_shared(struct model *m, struct hdl_key of, uint32_t access);

/* The insertion went well and gave @key. */
struct model_entry *model_take(struct model *m, struct hdl_key key, uint32_t pd, uint8_t type);
void model_set_run(struct model_entry *e, const struct tpt_region *region);
void model_set_pages(struct model_entry *e, uint64_t cookie, const struct hdl_register *reg);
void model_set_shared(struct model_entry *e, const struct model_entry *of, uint32_t access);

enum hdl_detail model_register(struct model *m, struct hdl_key key, uint32_t pd,
                               const struct hdl_register *reg);
enum hdl_detail model_bind(struct model *m, const struct tpt_bind *bind);
enum hdl_detail model_invalidate(struct model *m, struct hdl_key key, uint32_t pd, uint32_t qpn,
                                 bool exact);
enum hdl_detail model_retire(struct model *m, struct hdl_key key);
void model_free(struct model *m, struct hdl_key key);
enum tpt_action model_touch(struct model *m, struct hdl_key key, const struct tpt_segment *segment);
bool model_line_up(struct model *m, struct hdl_key key, uint32_t next_sn);
uint32_t model_segment_gone(struct model *m, uint64_t host, uint64_t length);

#endif
