/* Tracking by mprotect() and SIGSEGV, where filters forbid userfaultfd. Each run of pages with
 * other rights than its neighbours is a mapping of its own, and a process has 65,530 at most.
 * When they run out, more pages are opened at a time, so that runs join. */
#include <sys/mman.h>

#include <heddle/error.h>

#include "adapter/adapter.h"
#include "adapter/track/track.h"

#define GRAIN_STEP 8u

static bool protect_set(struct track *track, uint64_t page, uint64_t count, int rights)
{
	return mprotect(track->view + page * TRACK_PAGE, count * TRACK_PAGE, rights) == 0;
}

static int protect_begin(struct track *track)
{
	if (fault_install() != 0 ||
	    !protect_set(track, 0, track->pages, track->lazy ? PROT_NONE : PROT_READ))
		return -HDL_EIO;
	return 0;
}

static void protect_end(struct track *track)
{
	protect_set(track, 0, track->pages, PROT_READ | PROT_WRITE);
}

static bool protect_pages(struct track *track, uint64_t page, uint64_t count)
{
	return protect_set(track, page, count, PROT_READ);
}

/* Open every page that is known in the block of track->grain pages around @page. */
static bool open_block(struct track *track, uint64_t page)
{
	uint64_t first = page / track->grain * track->grain, last = first + track->grain;
	bool opened = false;
	if (last > track->pages)
		last = track->pages;
	for (uint64_t i = first; i < last;) {
		uint64_t run = 0;
		while (i + run < last && track->states[i + run] >= TRACK_CLEAN) {
			if (track->states[i + run] == TRACK_CLEAN)
				track_stored(track, i + run);
			run++;
		}
		bool ok = run > 0 && protect_set(track, i, run, PROT_READ | PROT_WRITE);
		opened |= ok && page >= i && page < i + run;
		i += run > 0 ? run : 1;
	}
	return opened;
}

static bool protect_open(struct track *track, uint64_t page, uint64_t count)
{
	if (track->grain == 1 && protect_set(track, page, count, PROT_READ | PROT_WRITE))
		return true;
	for (uint64_t i = page; i < page + count; i++) {
		bool opened = open_block(track, i);
		while (!opened && track->grain < track->pages) {
			track->grain *= GRAIN_STEP;
			opened = open_block(track, i);
		}
		if (!opened)
			return false;
	}
	return true;
}

/* Of a page that cannot be shown alone, the neighbours that are known are shown, too. */
static bool protect_show(struct track *track, uint64_t page, uint64_t count)
{
	if (protect_set(track, page, count, PROT_READ))
		return true;
	return protect_open(track, page, count);
}

static bool protect_hide(struct track *track, uint64_t page, uint64_t count)
{
	return protect_set(track, page, count, PROT_NONE);
}

static void protect_reset(struct track *track)
{
	track_reset_states(track);
	protect_set(track, 0, track->pages, track->lazy ? PROT_NONE : PROT_READ);
}

const struct track_ops track_protect = {.name = "protect",
                                        .begin = protect_begin,
                                        .end = protect_end,
                                        .protect = protect_pages,
                                        .open = protect_open,
                                        .show = protect_show,
                                        .hide = protect_hide,
                                        .reset = protect_reset};
