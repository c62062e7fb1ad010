/* A stream in memory: see stream.h. */
#include "stream.h"

#include <string.h>

void stream_cable_init(struct stream_cable *cable, struct prng *prng,
                       const struct stream_ops *ops_a, void *a, const struct stream_ops *ops_b,
                       void *b)
{
	memset(cable, 0, sizeof(*cable));
	cable->prng = prng;
	cable->ends[0] = (struct stream_end_point){.ops = ops_a, .context = a, .open = true};
	cable->ends[1] = (struct stream_end_point){.ops = ops_b, .context = b, .open = true};
	cable->lines[0].cut_at = cable->lines[1].cut_at = UINT64_MAX;
}

static void cable_end(struct stream_end_point *end, enum stream_end why)
{
	if (!end->ended)
		end->ops->ended(end->context, why);
	end->ended = true;
}

static size_t step_line(struct stream_cable *cable, unsigned from)
{
	struct stream_end_point *to = &cable->ends[1 - from];
	typeof(&cable->lines[0]) line = &cable->lines[from];
	size_t room = STREAM_CABLE_BYTES - line->count, moved = 0;
	if (room > 0 && !cable->ends[from].ended)
		moved = stream_drain(cable->ends[from].ops, cable->ends[from].context,
		                     line->bytes + line->count,
		                     (size_t)prng_below(cable->prng, room + 1));
	line->count += moved;
	uint64_t left = line->cut_at - line->passed;
	size_t some = (size_t)prng_below(cable->prng, line->count + 1);
	if (some > left)
		some = (size_t)left;
	if (some > 0 && to->open && !to->ended) {
		size_t fed = to->feed != NULL ? to->feed(to->context, line->bytes, some, &to->open)
		                              : stream_feed(to->ops, to->context, line->bytes, some,
		                                            &to->open);
		memmove(line->bytes, line->bytes + fed, line->count - fed);
		line->count -= fed;
		line->passed += fed;
		moved += fed;
	}
	if (line->passed == line->cut_at) {
		cable_end(&cable->ends[0], STREAM_BROKEN);
		cable_end(&cable->ends[1], STREAM_BROKEN);
	}
	return moved;
}

size_t stream_cable_step(struct stream_cable *cable)
{
	return step_line(cable, 0) + step_line(cable, 1);
}

void stream_cable_run(struct stream_cable *cable, unsigned quiet)
{
	for (unsigned still = 0; still < quiet;)
		still = stream_cable_step(cable) > 0 ? 0 : still + 1;
}
