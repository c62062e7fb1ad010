/* One process of a test of virtual interfaces: an adapter on the node, registered memory with room
 * for descriptors and data, and what every test does with them. A call that fails ends the process
 * with status 3 and says which. */
#ifndef VI_SIDE_H
#define VI_SIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <heddle/vi.h>

#define SIDE_DESCRIPTORS 1024u
#define SIDE_BYTES       (4u << 20) /* of data */
#define SIDE_WAIT_MS     20000

struct side {
	struct hdl_adapter *adapter;
	struct hdl_pd *pd;
	struct hdl_mr *mr;
	struct hdl_gid gid;
	struct hdl_key handle; /* of descriptors and data */
	struct hdl_vi_descriptor *descriptors;
	unsigned char *data;
};

void side_must(int result, const char *what, int line);
#define MUST(call)  side_must(call, #call, __LINE__)
#define CHECK(that) side_must((that) ? 0 : -HDL_EIO, #that, __LINE__)

void side_open(struct side *side);
void side_close(struct side *side);
struct hdl_vi_attr side_attr(uint32_t channel);
struct hdl_vi *side_vi(const struct side *side, uint32_t channel);

/* Fill descriptor @index: @control, @bytes of our data from @offset on. RDMA: to or from @remote;
 * a VI without connection: to @to. Returns it. */
struct hdl_vi_descriptor *side_fill(struct side *side, uint32_t index, uint16_t control,
                                    uint32_t offset, uint32_t bytes);
struct hdl_vi_descriptor *side_fill_rdma(struct side *side, uint32_t index, uint16_t control,
                                         uint32_t offset, uint32_t bytes, uint64_t remote,
                                         struct hdl_key handle);
struct hdl_vi_descriptor *side_fill_to(struct side *side, uint32_t index, uint32_t offset,
                                       uint32_t bytes, const struct hdl_vi_destination *to);
/* Post it; wait for the oldest of the queue, which must be it. Returns its status. */
void side_post(struct side *side, struct hdl_vi *vi, uint32_t queue,
               struct hdl_vi_descriptor *descriptor);
uint32_t side_wait(struct hdl_vi *vi, uint32_t queue, const struct hdl_vi_descriptor *descriptor);
uint32_t side_status(const struct hdl_vi_descriptor *descriptor);

/* Two processes run @server and @client, each with a side of its own; @tag makes their names
 * unique. True: both ended well. */
bool side_run(void (*server)(struct side *side, const char *name),
              void (*client)(struct side *side, const char *name, const struct hdl_gid *to));
/* The same; the server is killed when @client has ended, if it has not ended by then. */
bool side_run_kill(void (*server)(struct side *side, const char *name),
                   void (*client)(struct side *side, const char *name, const struct hdl_gid *to));
/* Ends the server process of side_run_kill() now. */
void side_kill_server(void);

#endif
