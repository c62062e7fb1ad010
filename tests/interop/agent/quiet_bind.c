/* No system call for a window that is bound or unbound, by a call or by a work request (SN9; SAN
 * figure 18): "without a trap into the operating system". What remains is waking the adapter's own
 * thread, which is per millisecond, not per window. */
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "end.h"
#include "forbid.h"

#define BYTES    4096u
#define CALLS    1000u /* of hdl_mw_bind(), each with its hdl_mw_unbind() */
#define REQUESTS 500u  /* HDL_OP_BIND, each with its HDL_OP_INVALIDATE */
#define PER_CALL 200u  /* windows for each system call, at least, */
#define PER_MS   1u    /* besides this many for each millisecond: others run, too */

static struct report {
	uint64_t calls, windows;
	double ms;
	int last;
} * report;

static struct end a, b;
static struct hdl_mr *mr;
static struct hdl_mw *by_call, *by_request;

static struct hdl_bind part(uint32_t i)
{
	return (struct hdl_bind){.mr = mr,
	                         .addr = (uint64_t)(uintptr_t)a.room + i % 100,
	                         .length = 1 + i % 50,
	                         .access = HDL_ACCESS_REMOTE_READ | HDL_ACCESS_REMOTE_WRITE};
}

static bool call(uint32_t i)
{
	struct hdl_bind bind = part(i);
	struct hdl_key key;
	return hdl_mw_bind(by_call, &bind, &key) == 0 && key.v == hdl_mw_key(by_call).v &&
	       hdl_mw_unbind(by_call) == 0;
}

static bool request(uint32_t i)
{
	struct hdl_key key = hdl_key_with_instance(hdl_mw_key(by_request), (uint8_t)(i + 1));
	struct hdl_send_wr wr = {.opcode = HDL_OP_BIND,
	                         .flags = HDL_SEND_SIGNALED,
	                         .bind = {by_request, key, part(i)}};
	struct hdl_wc wc;
	if (hdl_post_send(a.qp, &wr, NULL) != 0 || !end_wait(&a, &wc, 10000) ||
	    wc.status != HDL_WC_SUCCESS || wc.opcode != HDL_WC_BIND)
		return false;
	wr = (struct hdl_send_wr){
	        .opcode = HDL_OP_INVALIDATE, .flags = HDL_SEND_SIGNALED, .invalidate_key = key};
	return hdl_post_send(a.qp, &wr, NULL) == 0 && end_wait(&a, &wc, 10000) &&
	       wc.status == HDL_WC_SUCCESS && wc.opcode == HDL_WC_INVALIDATE;
}

static int bind_windows(void)
{
	end_open(&a, BYTES, 16);
	end_open_on(&b, a.adapter, BYTES, 16);
	a.peer = b.mine;
	b.peer = a.mine;
	end_connect(&a);
	end_connect(&b);
	MUST(hdl_mr_register(a.pd, a.room, BYTES,
	                     HDL_ACCESS_LOCAL_READ | HDL_ACCESS_LOCAL_WRITE | HDL_ACCESS_BIND,
	                     &mr));
	MUST(hdl_mw_alloc(a.pd, HDL_MW_TYPE_1, &by_call));
	MUST(hdl_mw_alloc(a.pd, HDL_MW_TYPE_2, &by_request));
	for (uint32_t i = 0; i < 20; i++) /* what happens once has happened then */
		if (!call(i) || !request(i))
			return 3;
	forbid_calls();
	double begin = now_ms();
	for (uint32_t i = 0; i < CALLS; i++, report->windows++)
		if (!call(i))
			return 4;
	for (uint32_t i = 0; i < REQUESTS; i++, report->windows++)
		if (!request(i))
			return 5;
	report->ms = now_ms() - begin;
	report->calls = calls;
	report->last = last_call;
	return (double)calls <= (double)report->windows / PER_CALL + PER_MS * report->ms ? 0 : 6;
}

int main(void)
{
	int status;
	report = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (report == MAP_FAILED)
		return 1;
	pid_t child = fork();
	if (child == 0) /* who is forbidden to call anything cannot print */
		_exit(bind_windows());
	if (waitpid(child, &status, 0) != child || !WIFEXITED(status))
		return 1;
	if (WEXITSTATUS(status) == 77)
		printf("no seccomp filters here: not tested\n");
	else
		printf("%llu windows: %llu system calls in %.1f ms; the last was %d\n",
		       (unsigned long long)report->windows, (unsigned long long)report->calls,
		       report->ms, report->last);
	return WEXITSTATUS(status);
}
