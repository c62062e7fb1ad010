/* The one table of errors that Heddle's control calls return, negated. The values are the host's
 * errno numbers, so that a caller may hand them on; the second column is what hdl_strerror() says.
 */
#ifndef HEDDLE_ERROR_H
#define HEDDLE_ERROR_H

#include <errno.h>

#define HDL_ERRORS(X)                                                                             \
	X(EINVAL, "an argument is out of range or contradicts another one")                       \
	X(ENOMEM, "out of memory, or a limit of the adapter is reached; see hdl_adapter_query()") \
	X(EBUSY, "the object is still in use; destroy or unbind what refers to it first")         \
	X(EFAULT, "the address range is not mapped, or not with the rights that were asked for")  \
	X(EACCES, "the object does not grant the rights that were asked for")                     \
	X(EPERM, "the state of the queue pair does not allow this call")                          \
	X(EAGAIN, "nothing is there yet; try again or wait on the file descriptor")               \
	X(ENOSPC, "the queue is full; reap completions first")                                    \
	X(EMSGSIZE, "the message, list or inline data is larger than the queue pair allows")      \
	X(ENOTSUP, "this kind of queue pair or adapter does not offer that operation")            \
	X(EHOSTUNREACH, "no adapter with that address is joined to this one")                     \
	X(EADDRINUSE, "another process or object of the node holds that port")                    \
	X(ECONNREFUSED, "nobody holds that port")                                                 \
	X(ESTALE, "the key's instance is out of date: it was bound again or invalidated")         \
	X(EINTR, "a signal came while the call waited; call again")                               \
	X(ETIMEDOUT, "the time given ran out")                                                    \
	X(EOVERFLOW, "a completion queue was overrun; size it for all outstanding work")          \
	X(EIO, "the operating system refused a resource; errno of the failed call was logged")

#define HDL_ERROR_ENUM(name, text) HDL_##name = name,
enum hdl_error { HDL_OK = 0, HDL_ERRORS(HDL_ERROR_ENUM) };
#undef HDL_ERROR_ENUM

#endif
