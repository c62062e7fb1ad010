/* The one table of errors that Heddle's control calls return, negated. The values are the host's
 * errno numbers, so that a caller may hand them on; the second column is what hdl_strerror() says,
 * the third what to do about it (hdl_codes()). */
#ifndef HEDDLE_ERROR_H
#define HEDDLE_ERROR_H

#include <errno.h>

/* clang-format off */
#define HDL_ERRORS(X) \
	X(EINVAL, "an argument is out of range or contradicts another one", \
	  "look the call up in its manual page; HEDDLE_LOG=debug names the attribute that " \
	  "was refused") \
	X(ENOMEM, \
	  "out of memory, or a limit of the adapter is reached; see hdl_adapter_query()", \
	  "destroy what is not needed, raise the limit that HEDDLE_LOG=debug names, or ask " \
	  "hdl_adapter_query(3) for what there is") \
	X(EBUSY, "the object is still in use; destroy or unbind what refers to it first", \
	  "destroy in the reverse order: windows and queue pairs first, then regions, " \
	  "completion queues, the domain") \
	X(EFAULT, "the address range is not mapped, or not with the rights that were asked for", \
	  "map the memory before it is registered, and writable if peers or receives write " \
	  "to it") \
	X(EACCES, "the object does not grant the rights that were asked for", \
	  "give the region or queue pair the right that is missing; a peer of another user " \
	  "cannot be reached on one machine: connect over a network address instead") \
	X(EPERM, "the state of the object does not allow this call, or it has ended", \
	  "take the queue pair through INIT, RTR and RTS in this order (hdl_qp_modify(3)); " \
	  "after an error reset it first") \
	X(EAGAIN, "nothing is there yet; try again or wait on the file descriptor", \
	  "wait on the file descriptor of the channel or of the events, then call again") \
	X(ENOSPC, "the queue is full; reap completions first", \
	  "poll the completion queue, or make the queue longer when it is made") \
	X(EMSGSIZE, "the message, list or inline data is larger than the queue pair allows", \
	  "cut the message, or make the queue pair with larger capabilities; a datagram is " \
	  "one packet at most") \
	X(ENOTSUP, "this kind of queue pair or adapter does not offer that operation", \
	  "choose another queue pair type or operation; raw datagrams need a network " \
	  "address (heddle run --addr)") \
	X(EHOSTUNREACH, "no adapter with that address is joined to this one", \
	  "see whether the peer runs, as the same user and with the same HEDDLE_DIR " \
	  "(heddle status), and whether the address is right") \
	X(EADDRINUSE, "another process or object of the node holds that port", \
	  "choose another port, or end the program that has it (heddle status)") \
	X(ECONNREFUSED, "the peer refuses, or nobody holds that port", \
	  "start the program that listens first; see whether node and port are right; " \
	  "hdl_aperture_reason(3) says why an aperture was refused") \
	X(ESTALE, "what the key or number names is gone, or something else has its place", \
	  "ask the owner of the region or window for its present key; look for the process " \
	  "or the event again") \
	X(EINTR, "a signal came while the call waited; call again", \
	  "call again; what came before the signal is not lost") \
	X(ETIMEDOUT, "the time given ran out", \
	  "see whether the peer or the node agent runs and has processor time, then try " \
	  "again") \
	X(EOVERFLOW, "a completion queue was overrun; size it for all outstanding work", \
	  "make the completion queue as long as all work queues that use it together") \
	X(EIO, "the operating system refused a resource, which was logged, or a transfer failed", \
	  "read the line on standard error, if there is one; it names the system call and " \
	  "what to do (ulimit, permissions, a directory); ask hdl_aperture_reason(3) after " \
	  "hdl_aperture_check(3)")
/* clang-format on */

#define HDL_ERROR_ENUM(name, text, advice) HDL_##name = name,
enum hdl_error { HDL_OK = 0, HDL_ERRORS(HDL_ERROR_ENUM) };
#undef HDL_ERROR_ENUM

#endif
