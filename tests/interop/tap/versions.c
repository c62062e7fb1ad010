/* An end of another version of the set-up (src/ulp/setup.c).
 *
 *   versions NODE     a host of another version: prints what the unit on that node answers
 *   versions          a unit of another version, until standard input ends */
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <heddle/push.h>

#include "ulp/internal.h"
#include "wire/be.h"

#define OTHER_VERSION 77u

static struct hdl_adapter *adapter;
static sem_t answered;
static char text[HDL_PUSH_NAME_BYTES + 1];

static void put(uint8_t *body, enum setup_kind kind, uint32_t to)
{
	memset(body, 0, SETUP_BYTES);
	memcpy(body, "HDPU", 4);
	be16_store(body + 4, OTHER_VERSION);
	body[6] = (uint8_t)kind;
	body[7] = 3; /* both own pools */
	be32_store(body + 12, 2048);
	be16_store(body + 16, 10);
	be32_store(body + 20, 1);
	be32_store(body + 24, to);
}

static void heard(void *context, const struct hdl_cm_msg *msg)
{
	struct hdl_cm_msg reply = {.guid = msg->guid, .slot = msg->slot, .length = SETUP_BYTES};
	(void)context;
	if (msg->kind != HDL_CM_MESSAGE || msg->length != SETUP_BYTES)
		return;
	if (msg->data[6] == SETUP_REQUEST) {
		put(reply.data, SETUP_ANSWER, be32_load(msg->data + 20));
		hdl_cm_send(adapter, &reply);
	} else if (msg->data[6] == SETUP_REFUSAL) {
		memcpy(text, msg->data + 60, HDL_PUSH_NAME_BYTES);
		sem_post(&answered);
	}
}

static int call(const char *node)
{
	struct hdl_cm_msg msg = {.to_port = 1,
	                         .space = HDL_PUSH_SPACE,
	                         .port = HDL_PUSH_SERVICE,
	                         .length = SETUP_BYTES};
	struct timespec end;
	struct hdl_process *list;
	size_t count;
	if (hdl_observe(&list, &count) != 0)
		return 2;
	for (size_t i = 0; i < count; i++)
		if (strcmp(list[i].node, node) == 0)
			msg.gid = list[i].gid;
	hdl_observe_free(list, count);
	put(msg.data, SETUP_REQUEST, 0);
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += 30;
	if (hdl_cm_send(adapter, &msg) != 0 || sem_timedwait(&answered, &end) != 0)
		return 3;
	puts(text);
	return 0;
}

int main(int argc, char **argv)
{
	struct hdl_open_attr attr = {.on_node = true};
	uint16_t port = HDL_PUSH_SERVICE;
	char byte;
	sem_init(&answered, 0, 0);
	if (hdl_open(&attr, &adapter) != 0 || hdl_cm_receive(adapter, heard, NULL) != 0)
		return 1;
	int status = 0;
	if (argc > 1) {
		status = call(argv[1]);
	} else if (hdl_cm_bind(adapter, HDL_PUSH_SPACE, NULL, &port, 0) == 0) {
		puts("ready");
		fflush(stdout);
		status = read(0, &byte, 1) == 0 ? 0 : 4;
	} else {
		status = 5;
	}
	hdl_close(adapter);
	return status;
}
