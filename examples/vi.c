/* Virtual interfaces: a server takes a message of a client, and answers.
 *
 * A descriptor says what is to be done: here, to send or receive one piece of memory. It lies in
 * registered memory itself, so that whoever does the work can read it, and write its status there.
 * The doorbell, hdl_vi_post(), hands it over. Nobody exchanges addresses: the client asks the node
 * agent for the name. */
#include <heddle/vi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAME       "vi example"
#define BYTES      64u
#define TIMEOUT_MS 10000

/* One process: a virtual interface, and memory that holds descriptors and data. */
struct side {
	struct hdl_adapter *adapter;
	struct hdl_pd *pd;
	struct hdl_mr *mr;
	struct hdl_vi *vi;
	struct {
		struct hdl_vi_descriptor receive, send;
		char in[BYTES], out[BYTES];
	} * memory;
};

static void must(int result)
{
	if (result >= 0)
		return;
	fprintf(stderr, "%s\n", hdl_strerror(result));
	exit(1);
}

static void post(struct side *side, uint32_t queue, struct hdl_vi_descriptor *descriptor,
                 const char *data)
{
	struct hdl_key handle = hdl_mr_key(side->mr);
	memset(descriptor, 0, sizeof(*descriptor));
	descriptor->control.control = HDL_VI_SENDRECV;
	descriptor->control.segments = 1;
	descriptor->control.length = BYTES;
	descriptor->segment[0].data.addr = (uintptr_t)data;
	descriptor->segment[0].data.handle = handle;
	descriptor->segment[0].data.length = BYTES;
	must(hdl_vi_post(side->vi, queue, descriptor, handle));
}

/* Wait until the oldest descriptor of a queue is done. */
static void wait_done(struct side *side, uint32_t queue)
{
	void *done;
	must(hdl_vi_wait(side->vi, queue, TIMEOUT_MS, &done));
	uint32_t status = ((struct hdl_vi_descriptor *)done)->control.status;
	if ((status & HDL_VI_ERROR_MASK) != 0) {
		fprintf(stderr, "a descriptor failed, status %#x\n", status);
		exit(1);
	}
}

static void open_side(struct side *side)
{
	struct hdl_open_attr open = {.on_node = true};
	struct hdl_vi_attr attr = {.channel = HDL_VI_CONNECTED | HDL_VI_ACKNOWLEDGED,
	                           .max_send = 1,
	                           .max_receive = 1,
	                           .max_segments = 1};
	void *memory;
	must(hdl_open(&open, &side->adapter));
	must(hdl_pd_create(side->adapter, &side->pd));
	must(hdl_mem_alloc(sizeof(*side->memory), &memory));
	must(hdl_mr_register(side->pd, memory, sizeof(*side->memory),
	                     HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE, &side->mr));
	must(hdl_vi_create(side->pd, &attr, &side->vi));
	side->memory = memory;
	/* Before anybody can send. */
	post(side, HDL_VI_RECEIVE_QUEUE, &side->memory->receive, side->memory->in);
}

static void close_side(struct side *side)
{
	must(hdl_vi_destroy(side->vi));
	must(hdl_mr_deregister(side->mr));
	must(hdl_mem_free(side->memory));
	must(hdl_pd_destroy(side->pd));
	must(hdl_close(side->adapter));
}

static int client(void)
{
	static struct side side;
	struct hdl_limits limits;
	open_side(&side);
	must(hdl_adapter_query(side.adapter, &limits)); /* the server is on our node */
	must(hdl_vi_connect(side.vi, &limits.gid, NAME, TIMEOUT_MS));
	snprintf(side.memory->out, BYTES, "a question");
	post(&side, HDL_VI_SEND_QUEUE, &side.memory->send, side.memory->out);
	wait_done(&side, HDL_VI_SEND_QUEUE);
	wait_done(&side, HDL_VI_RECEIVE_QUEUE);
	printf("client: received \"%s\"\n", side.memory->in);
	close_side(&side);
	return 0;
}

int main(void)
{
	static struct side side;
	struct hdl_vi_listener *listener;
	int talk[2], status;
	char byte;
	if (pipe(talk) != 0)
		return 1;
	pid_t child = fork(); /* before there is an adapter */
	if (child == 0)       /* the name can be found now */
		exit(read(talk[0], &byte, 1) == 1 ? client() : 1);
	open_side(&side);
	must(hdl_vi_listen(side.adapter, NAME, NULL, &listener));
	if (child < 0 || write(talk[1], "", 1) != 1)
		return 1;
	must(hdl_vi_accept(listener, side.vi, TIMEOUT_MS));
	wait_done(&side, HDL_VI_RECEIVE_QUEUE);
	printf("server: received \"%s\"\n", side.memory->in);
	fflush(stdout);
	snprintf(side.memory->out, BYTES, "an answer");
	post(&side, HDL_VI_SEND_QUEUE, &side.memory->send, side.memory->out);
	wait_done(&side, HDL_VI_SEND_QUEUE);
	waitpid(child, &status, 0);
	must(hdl_vi_unlisten(listener));
	close_side(&side);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
