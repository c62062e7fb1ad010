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
	if (record->has_wr_id) {
		snprintf(comment, sizeof(comment), "wr_id %#llx, queue pair %#x, %s%s",
		         (unsigned long long)record->wr_id, record->qpn, record->operation,
		         record->captured < record->length ? ", its memory is gone" : "");
		packet.comment = comment;
	}
	pcapng_put(&recorder->file, &packet);
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
	char name[PCAPNG_NAME_BYTES], description[PCAPNG_NAME_BYTES];
	snprintf(name, sizeof(name), "%s-%ld", adapter->name, (long)getpid());
	snprintf(description, sizeof(description), "%s, process %ld", program_invocation_short_name,
	         (long)getpid());
	int error = pcapng_open(&recorder->file, path, PCAPNG_RAW, name, description);
	if (error != 0) {
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
	struct pcapng *file = &adapter->recorder->file;
	if (file->used > 0 || file->dropped != file->told)
		pcapng_flush(file, clock_wall_ns());
}

void recorder_close(struct hdl_adapter *adapter)
{
	if (adapter->recorder == NULL)
		return;
	adapter->engine.capture = NULL;
	pcapng_close(&adapter->recorder->file, clock_wall_ns());
	free(adapter->recorder);
	adapter->recorder = NULL;
}

void recorder_forget(struct hdl_adapter *adapter)
{
	if (adapter->recorder == NULL)
		return;
	adapter->engine.capture = NULL;
	pcapng_forget(&adapter->recorder->file);
}

static void flush_recorder(struct hdl_adapter *adapter)
{
	if (adapter->recorder == NULL)
		return;
	for (unsigned spins = 0; spins < FLUSH_SPINS; spins++) {
		if (lock_try(&adapter->drive.lock)) {
			/* Other threads may still run; from here on they record nothing. */
			adapter->engine.capture = NULL;
			pcapng_close(&adapter->recorder->file, clock_wall_ns());
			lock_drop(&adapter->drive.lock);
			return;
		}
		lock_relax(spins);
	}
}

/* Programs exit without closing what they opened. */
__attribute__((destructor)) static void at_exit(void)
{
	fork_each(flush_recorder);
}
