/* Record what goes through an adapter. Packets come from the engine, with the drive lock held, and
 * wait in memory until the driving thread has nothing else to do. The exit of the program is the
 * last chance to write them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "adapter/adapter.h"
#include "base/log.h"

#define FLUSH_SPINS 100000u /* how long program exit waits for the driving thread */

/* Where Ethernet frames go: to the same file, by an interface of another kind. A pipe has one
 * writer, so they are missing there. */
static struct pcapng *capture_frames(struct recorder *recorder)
{
	if (recorder->has_frames)
		return &recorder->frames;
	recorder->has_frames = true;
	recorder->frames = (struct pcapng){.fd = -1, .broken = true};
	int error = recorder->file.regular
	                    ? pcapng_open(&recorder->frames, recorder->path, PCAPNG_ETHERNET,
	                                  recorder->name, recorder->description)
	                    : -ENOTSUP;
	if (error != 0)
		log_warn("Ethernet frames are missing in the capture: %s",
		         error == -ENOTSUP ? "a pipe has room for one kind of packets; record to a "
		                             "file"
		                           : strerror(-error));
	return &recorder->frames;
}

/* What a packet has to do with our queue pairs. A request that arrives belongs to a work request of
 * the peer, which has no number here. */
static void capture_comment(const struct capture_record *record, char *comment, size_t room)
{
	char id[32] = "";
	comment[0] = '\0';
	if (record->has_wr_id)
		snprintf(id, sizeof(id), "wr_id %#llx, ", (unsigned long long)record->wr_id);
	if (record->has_wr_id || record->qpn != 0)
		snprintf(comment, room, "%squeue pair 0x%06x, %s%s%s", id, record->qpn,
		         record->operation, record->again ? ", again" : "",
		         record->captured < record->length ? ", its memory is gone" : "");
}

static void capture_take(void *context, const struct capture_record *record)
{
	struct recorder *recorder = context;
	char comment[PCAPNG_COMMENT_BYTES];
	struct pcapng_packet packet = {.time_ns = clock_wall_ns(),
	                               .bytes = record->bytes,
	                               .captured = record->captured,
	                               .length = record->length,
	                               .direction =
	                                       record->inbound ? PCAPNG_INBOUND : PCAPNG_OUTBOUND};
	capture_comment(record, comment, sizeof(comment));
	packet.comment = comment[0] != '\0' ? comment : NULL;
	pcapng_put(record->ethernet ? capture_frames(recorder) : &recorder->file, &packet);
}

static int capture_look_at(const char *path, int (*look)(const char *))
{
	if (path == NULL)
		return -HDL_EINVAL;
	int error = -look(path);
	if (error != 0)
		errno = error;
	return error == 0 ? 0 : -HDL_EIO;
}

int hdl_capture_prepare(const char *path)
{
	return capture_look_at(path, pcapng_prepare);
}

int hdl_capture_check(const char *path)
{
	return capture_look_at(path, pcapng_check);
}

int recorder_open(struct hdl_adapter *adapter, const char *path)
{
	if (path == NULL || path[0] == '\0')
		return 0;
	struct recorder *recorder = calloc(1, sizeof(*recorder));
	if (recorder == NULL)
		return -HDL_ENOMEM;
	recorder->path = strdup(path);
	snprintf(recorder->name, sizeof(recorder->name), "%s-%ld", adapter->name, (long)getpid());
	snprintf(recorder->description, sizeof(recorder->description), "%s, process %ld",
	         program_invocation_short_name, (long)getpid());
	int error = recorder->path == NULL ? -ENOMEM
	                                   : pcapng_open(&recorder->file, path, PCAPNG_RAW,
	                                                 recorder->name, recorder->description);
	if (error != 0) {
		free(recorder->path);
		free(recorder);
		errno = -error;
		log_error("capture to %s: %s", path,
		          error == -EEXIST ? "it exists and is no capture" : strerror(-error));
		return -HDL_EIO;
	}
	recorder->capture.take = capture_take;
	recorder->capture.context = recorder;
	adapter->recorder = recorder;
	adapter->engine.capture = &recorder->capture;
	return 0;
}

void recorder_write(struct hdl_adapter *adapter)
{
	struct recorder *recorder = adapter->recorder;
	struct pcapng *files[] = {&recorder->file, recorder->has_frames ? &recorder->frames : NULL};
	for (unsigned i = 0; i < 2 && files[i] != NULL; i++)
		if (files[i]->fd >= 0 &&
		    (files[i]->used > 0 || files[i]->dropped != files[i]->told))
			pcapng_flush(files[i], clock_wall_ns());
}

/* Write what is left, and end. */
static void capture_end(struct recorder *recorder)
{
	pcapng_close(&recorder->file, clock_wall_ns());
	if (recorder->has_frames)
		pcapng_close(&recorder->frames, clock_wall_ns());
}

void recorder_close(struct hdl_adapter *adapter)
{
	if (adapter->recorder == NULL)
		return;
	adapter->engine.capture = NULL;
	capture_end(adapter->recorder);
	free(adapter->recorder->path);
	free(adapter->recorder);
	adapter->recorder = NULL;
}

void recorder_forget(struct hdl_adapter *adapter)
{
	if (adapter->recorder == NULL)
		return;
	adapter->engine.capture = NULL;
	pcapng_forget(&adapter->recorder->file);
	if (adapter->recorder->has_frames)
		pcapng_forget(&adapter->recorder->frames);
}

static void flush_recorder(struct hdl_adapter *adapter, void *context)
{
	(void)context;
	if (adapter->recorder == NULL)
		return;
	for (unsigned spins = 0; spins < FLUSH_SPINS; spins++) {
		if (lock_try(&adapter->drive.lock)) {
			/* Other threads may still run; from here on they record nothing. */
			adapter->engine.capture = NULL;
			capture_end(adapter->recorder);
			lock_drop(&adapter->drive.lock);
			return;
		}
		lock_relax(spins);
	}
}

/* Programs exit without closing what they opened. */
__attribute__((destructor)) static void at_exit(void)
{
	(void)fork_each(flush_recorder, NULL);
}
