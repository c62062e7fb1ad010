/* One end of the service tests: an adapter with a queue pair and a region, on the loopback; and the
 * other programs that are its peers. */
#ifndef INTEROP_SERVICES_END_H
#define INTEROP_SERVICES_END_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/types.h>

#include <heddle/heddle.h>

#define END_WAIT_MS 20000
#define END_BYTES   (4u << 20)
#define END_RECVS   64u

struct end {
	struct hdl_adapter *adapter;
	struct hdl_pd *pd;
	struct hdl_cq *cq;
	struct hdl_mr *mr;
	struct hdl_qp *qp;
	struct hdl_conn *conn;
	uint8_t *memory;
};

/* Another program, with pipes to its standard input and from its standard output. */
struct program {
	pid_t pid;
	int in, out;
};

extern const struct hdl_gid end_loopback;

/* @type: enum hdl_qp_type. */
void end_open(struct end *e, uint32_t type);
void end_open_on(struct end *e, uint32_t type, bool on_node);
void end_close(struct end *e);
/* A queue pair in INIT. */
struct hdl_qp *end_qp(struct end *e, uint32_t type);
void end_receive(struct end *e, uint64_t id, size_t offset, uint32_t length);
void end_send(struct end *e, uint64_t id, size_t offset, uint32_t length);
struct hdl_wc end_wc(struct end *e);
struct hdl_conn_event end_event(struct end *e, enum hdl_conn_event_type type);
uint64_t end_now_ms(void);

/* Is there a program of this name? If not, the test is skipped. */
void program_need(const char *name);
struct program program_start(const char *const *argv);
/* All that it prints, up to @max. Returns how much. */
size_t program_read(struct program *p, uint8_t *to, size_t max);
/* Its exit status. */
int program_end(struct program *p);
/* A TCP or UDP port that nobody has at the moment. */
uint16_t free_port(int type);

#endif
