/* Tracking without faults: every page has a twin all the time, and collecting compares all of them.
 * For small ranges, where neither userfaultfd nor signals can be used. There are no absent pages,
 * as a load cannot be noticed: everything is fetched when the range is opened. */
#include <string.h>

#include "adapter/track/track.h"

/* All pages are DIRTY, always. */
static void compare_dirty(struct track *track)
{
	memcpy(track->twins, track->alias, track->bytes);
	memset(track->states, TRACK_DIRTY, track->pages);
	for (uint64_t page = 0; page < track->pages; page++)
		track->dirty[page] = (uint32_t)page;
	track->dirty_count = track->pages;
}

static int compare_begin(struct track *track)
{
	if (track->source.fetch != NULL &&
	    !track->source.fetch(track->source.context, 0, track->alias, track->bytes))
		memset(track->alias, 0, track->bytes);
	compare_dirty(track);
	return 0;
}

static void compare_end(struct track *track)
{
	(void)track;
}

/* Nothing is ever protected: the pages stay DIRTY. */
static bool compare_protect(struct track *track, uint64_t page, uint64_t count)
{
	(void)track;
	(void)page;
	(void)count;
	return false;
}

static bool compare_open(struct track *track, uint64_t page, uint64_t count)
{
	(void)track;
	(void)page;
	(void)count;
	return true;
}

const struct track_ops track_compare = {.name = "compare",
                                        .begin = compare_begin,
                                        .end = compare_end,
                                        .protect = compare_protect,
                                        .open = compare_open,
                                        .show = compare_open,
                                        .reset = compare_dirty};
