/* Two processes and a circular queue between them: lines go one way, their lengths come back. Each
 * end opens an aperture, one connects it to the other's port, and both make a queue of it. On two
 * machines (HEDDLE_ADDR) the same calls send packets; here they store to each other's memory. */
#include <heddle/aperture.h>
#include <heddle/cqueue.h>
#include <heddle/eventq.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES 4096u
#define WAIT  10000 /* ms */

#define must(call) must_be((call), #call)
static long must_be(long result, const char *what)
{
	if (result >= 0)
		return result;
	fprintf(stderr, "%s: %s\n", what, hdl_strerror((int)result));
	exit(1);
}

struct end {
	struct hdl_adapter *adapter;
	struct hdl_port *port;
	struct hdl_eventq *events; /* calls that wait sleep here */
	struct hdl_aperture *aperture;
	struct hdl_cqueue *queue;
};

/* Where the other process is: what a name service or a command line would tell. */
struct place {
	struct hdl_gid gid;
	uint16_t port;
};

static void end_open(struct end *end)
{
	must(hdl_open(&(struct hdl_open_attr){.on_node = true}, &end->adapter));
	must(hdl_port_open(end->adapter, NULL, &end->port));
	must(hdl_eventq_open(end->port, NULL, &end->events));
	struct hdl_aperture_attr attr = {.length = hdl_cqueue_length(BYTES), .port = end->port};
	must(hdl_aperture_open(end->adapter, &attr, &end->aperture));
}

static void end_close(struct end *end)
{
	must(hdl_cqueue_close(end->queue));
	must(hdl_aperture_free(end->aperture));
	must(hdl_eventq_close(end->events));
	must(hdl_port_close(end->port));
	must(hdl_close(end->adapter));
}

/* Takes lines apart as they come: the queue carries bytes, and knows nothing of lines. */
static int reader(int tell)
{
	struct end end;
	struct hdl_limits limits;
	struct place place = {0};
	char data[64];
	int64_t bytes;
	uint32_t lines = 0;
	end_open(&end);
	must(hdl_adapter_query(end.adapter, &limits));
	place.gid = limits.gid;
	place.port = hdl_port_number(end.port);
	must(write(tell, &place, sizeof(place)));
	must(hdl_aperture_accept(end.aperture, end.port, 0, NULL, WAIT));
	must(hdl_cqueue_open(end.aperture, BYTES, end.events, &end.queue));
	while ((bytes = must(hdl_cqueue_read(end.queue, data, sizeof(data), WAIT))) > 0)
		for (int64_t i = 0; i < bytes; i++)
			lines += data[i] == '\n';
	printf("the reader: %u lines\n", lines); /* 0: the writer has ended */
	must(hdl_cqueue_write(end.queue, &lines, sizeof(lines), WAIT));
	must(hdl_cqueue_end(end.queue, WAIT));
	(void)hdl_cqueue_read(end.queue, data, 1, WAIT); /* until the writer has gone */
	end_close(&end);
	return 0;
}

static void write_all(struct hdl_cqueue *queue, const char *data, size_t length)
{
	while (length > 0) { /* a full queue takes a part, as soon as there is any room */
		size_t written = (size_t)must(hdl_cqueue_write(queue, data, length, WAIT));
		data += written;
		length -= written;
	}
}

static int writer(const struct place *place)
{
	struct end end;
	char line[32];
	uint32_t answer = 0;
	end_open(&end);
	must(hdl_aperture_connect(end.aperture, &place->gid, place->port, WAIT));
	must(hdl_cqueue_open(end.aperture, BYTES, end.events, &end.queue));
	for (int i = 0; i < 1000; i++) {
		snprintf(line, sizeof(line), "this is line %d\n", i);
		write_all(end.queue, line, strlen(line));
	}
	must(hdl_cqueue_end(end.queue, WAIT));
	must(hdl_cqueue_read(end.queue, &answer, sizeof(answer), WAIT));
	must(hdl_aperture_close(end.aperture, WAIT));
	end_close(&end);
	return answer == 1000 ? 0 : 1;
}

int main(void)
{
	int ends[2], status;
	struct place place;
	must(pipe(ends));
	pid_t child = fork(); /* before an adapter is open: it belongs to one process */
	if (child == 0)
		return reader(ends[1]);
	if (must(read(ends[0], &place, sizeof(place))) != (long)sizeof(place))
		return 1;
	int result = writer(&place);
	waitpid(child, &status, 0);
	return result != 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}
