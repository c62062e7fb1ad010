/* Captures of IBC packets: see capture.h. */
#include "ibc/capture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

struct pcapng *ibc_capture_open(const char *name)
{
	const char *path = secure_getenv("HEDDLE_CAPTURE");
	char whole[PCAPNG_NAME_BYTES], description[PCAPNG_NAME_BYTES];
	if (path == NULL || path[0] == '\0')
		return NULL;
	struct pcapng *capture = calloc(1, sizeof(*capture));
	snprintf(whole, sizeof(whole), "%s-%ld", name[0] != '\0' ? name : "node", (long)getpid());
	snprintf(description, sizeof(description), "%s, process %ld", program_invocation_short_name,
	         (long)getpid());
	int error = capture == NULL ? -ENOMEM
	                            : pcapng_open(capture, path, PCAPNG_IBC, whole, description);
	if (error == 0)
		return capture;
	log_error("capture to %s: %s; nothing is captured", path,
	          error == -EEXIST ? "it exists and is no capture" : strerror(-error));
	free(capture);
	return NULL;
}

void ibc_capture_put(struct pcapng *capture, const uint8_t *packet, size_t bytes, bool inbound,
                     const char *comment)
{
	struct pcapng_packet record = {.time_ns = clock_wall_ns(),
	                               .bytes = packet,
	                               .captured = bytes,
	                               .length = bytes,
	                               .direction = inbound ? PCAPNG_INBOUND : PCAPNG_OUTBOUND,
	                               .comment = comment};
	pcapng_put(capture, &record);
}

void ibc_capture_flush(struct pcapng *capture)
{
	pcapng_flush(capture, clock_wall_ns());
}

void ibc_capture_close(struct pcapng *capture, bool forget)
{
	if (capture == NULL)
		return;
	if (forget)
		pcapng_forget(capture);
	else
		pcapng_close(capture, clock_wall_ns());
	free(capture);
}
