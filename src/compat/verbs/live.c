/* The table of live objects. Every destroy call, and every control call that takes an object, looks
 * here first. A program that destroys an object twice, or passes a copy of one, gets an error, as
 * it would from the kernel for an unknown handle. Nothing behind a pointer is read before the
 * pointer is found here: it may point to freed memory. */
#include "compat/compat.h"

#include <assert.h>
#include <stdlib.h>

#define MIN_BUCKETS 1024u /* a power of two; doubled when there are more objects than buckets */

static pthread_mutex_t live_lock = PTHREAD_MUTEX_INITIALIZER;
static struct live *few[MIN_BUCKETS];
static struct live **buckets = few;
static size_t bucket_count = MIN_BUCKETS, live_count;
static uint32_t last_handle;

static struct live **verbs_live_bucket_of(const void *seen)
{
	uint64_t hash = (uint64_t)(uintptr_t)seen * 0x9e3779b97f4a7c15u;
	return &buckets[(hash >> 32) & (bucket_count - 1)];
}

static void verbs_live_link_in(struct live *live)
{
	struct live **bucket = verbs_live_bucket_of(live->seen);
	live->next = *bucket;
	*bucket = live;
}

/* Without memory for more buckets the chains get longer. With the lock. */
static void verbs_live_grow(void)
{
	struct live **old = buckets, **more = calloc(bucket_count * 2, sizeof(*more));
	size_t old_count = bucket_count;
	if (more == NULL)
		return;
	buckets = more;
	bucket_count *= 2;
	for (size_t i = 0; i < old_count; i++)
		for (struct live *at = old[i], *next; at != NULL; at = next) {
			next = at->next;
			verbs_live_link_in(at);
		}
	if (old != few)
		free(old);
}

/* With the lock. */
static struct live **verbs_live_find(enum object_kind kind, const void *seen)
{
	struct live **at = verbs_live_bucket_of(seen);
	while (*at != NULL && ((*at)->seen != seen || (*at)->kind != kind))
		at = &(*at)->next;
	return at;
}

uint32_t compat_live_add(struct live *live, enum object_kind kind, const void *seen)
{
	pthread_mutex_lock(&live_lock);
	live->kind = kind;
	live->seen = seen;
	if (live_count++ >= bucket_count)
		verbs_live_grow();
	verbs_live_link_in(live);
	uint32_t handle = ++last_handle;
	pthread_mutex_unlock(&live_lock);
	return handle;
}

bool compat_live(enum object_kind kind, const void *seen)
{
	pthread_mutex_lock(&live_lock);
	bool there = *verbs_live_find(kind, seen) != NULL;
	pthread_mutex_unlock(&live_lock);
	return there;
}

struct live *compat_live_take(enum object_kind kind, const void *seen)
{
	pthread_mutex_lock(&live_lock);
	struct live **at = verbs_live_find(kind, seen), *live = *at;
	if (live != NULL) {
		assert(live_count > 0);
		*at = live->next;
		live_count--;
	}
	pthread_mutex_unlock(&live_lock);
	return live;
}

int compat_live_end(struct live *live, int error)
{
	if (error == 0)
		return 0;
	pthread_mutex_lock(&live_lock);
	live_count++;
	verbs_live_link_in(live);
	pthread_mutex_unlock(&live_lock);
	return compat_error(error);
}

void compat_live_fork(enum fork_step step)
{
	if (step == FORK_BEFORE)
		pthread_mutex_lock(&live_lock);
	else if (step == FORK_PARENT)
		pthread_mutex_unlock(&live_lock);
	else
		pthread_mutex_init(&live_lock, NULL);
}
