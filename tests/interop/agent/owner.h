/* Two processes: one owns memory, its child works on it as it is told. */
#ifndef AGENT_OWNER_H
#define AGENT_OWNER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <heddle/heddle.h>

#define ROOM   (64u << 10)
#define RIGHTS 0x1fu /* everything, but binding */
#define NAME   "the-room"

/* One end: an adapter, and a queue pair that is made anew for every scenario that breaks it. */
struct end {
	struct hdl_adapter *adapter;
	struct hdl_pd *pd;
	struct hdl_cq *cq;
	struct hdl_qp *qp;
	struct hdl_gid gid;
};

struct card {
	struct hdl_gid gid;
	uint32_t qpn;
};

/* What the child is to do: an operation, @count times or until it fails. */
enum order { CONNECT, WORK, QUIT };
struct task {
	enum order order;
	struct card card;
	uint32_t opcode, length, count;
	uint64_t addr;
	struct hdl_key key;
	uint64_t value; /* to write, or to add */
};
struct outcome {
	struct card card;
	uint32_t status, detail, done;
	uint64_t value; /* that was read, or was there before */
	bool mapped;
};

struct owner {
	struct end end;
	pid_t child;
	int sock;
};

struct hdl_qp *new_qp(struct end *end);
void connect_qp(struct hdl_qp *qp, const struct card *peer);
/* Post one request and wait for its end. */
void work(struct end *end, const struct task *task, struct hdl_sge piece, struct outcome *outcome);

/* For cmocka: the two, connected; and the end of both. */
int owner_setup(void **state);
int owner_teardown(void **state);
/* A new connection between the two. */
void reconnect(struct owner *o);
/* Give the child an order; wait for what became of it; both. */
void say(const struct owner *o, struct task task);
struct outcome hear(const struct owner *o);
struct outcome tell(const struct owner *o, struct task task);

#endif
