/* IBC: source-routed messages between applications, over the virtual switch of each node. The eight
 * calls of the founding document ("Application programming interface for a virtual switch", table
 * 1) have the names and parameters that it gives them; calls below "more" add what it leaves open.
 * heddle-ibc(7) describes packets and routes.
 *
 * A process is one client. It registers with the virtual switch of its node (HEDDLE_NODE) and gets
 * an application port identifier, APID, by which others reach it. Packets between clients of one
 * node pass through shared memory: the sending process forwards them itself, and there is no system
 * call while the receiver polls.
 *
 * All calls may be made from several threads. A child of fork() is not registered. */
#ifndef HEDDLE_IBC_H
#define HEDDLE_IBC_H

#include <stdbool.h>
#include <stdint.h>

#include <heddle/ibc_limits.h>

#ifdef __cplusplus
extern "C" {
#endif

struct timespec; /* <time.h> */

#define IBC_API __attribute__((visibility("default")))

/* Results. */
enum {
	IBC_SUCCESS = 0,
	IBC_BADPARAM,        /* a parameter is invalid */
	IBC_ATTACH_FAILED,   /* the virtual switch cannot register the client */
	IBC_MALLOC_FAILED,   /* out of memory */
	IBC_ID_NOTAVAILABLE, /* the requested APID is taken, or needs the administrator's right */
	IBC_NOT_INITIALIZED, /* no IBC_Init() before */
	IBC_HARDWARE_ERROR,  /* the port is down, or its process has gone */
	IBC_MAXHANDLE_USED,  /* IBC_LIMIT_HANDLES are open */
	IBC_RECVDONE,        /* a packet was copied */
	IBC_TIMEDOUT,
	IBC_READYFORCOPY, /* a packet waits in the handle */
	IBC_RECVNOTDONE,  /* none does */
	IBC_NACKED        /* IBC_Request(): the answer is a NACK */
};

/* Message types. */
enum {
	IBC_READ_REQUEST = 1,
	IBC_WRITE_REQUEST,        /* the recipient acknowledges it */
	IBC_WRITE_REQUEST_NO_ACK, /* the recipient does not */
	IBC_READ_RESPONSE,
	IBC_WRITE_RESPONSE,
	IBC_NACK
};

/* Why a packet was rejected. */
enum {
	IBC_NACK_NO_APPLICATION = 1, /* no application has the destination APID */
	IBC_NACK_NO_PORT,
	IBC_NACK_PORT_DOWN,
	IBC_NACK_POINTER,
	IBC_NACK_TOO_LONG,
	IBC_NACK_LOOP, /* the next port is the one through which the packet came */
	IBC_NACK_NOT_ALLOWED,
	IBC_NACK_NO_RECEIVE /* the application did not accept the packet in time */
};

typedef uint64_t IBC_GUID;
typedef int32_t IBC_HANDLE;

#define IBC_CLIENTANY  0xffu             /* IBC_Init(): any general APID */
#define IBC_WISH(apid) ((apid) | 0x100u) /* IBC_Init(): this one, or else any general one */
#define IBC_CLIENTALL  63u               /* IBC_Send(): all applications of the node */

/* OutPort: a port of the NIC, or as the first port of the route says. */
#define PORT_0         0u
#define PORT_1         1u
#define IBC_PORT_ROUTE 0xffu

/* A source route: the output port of each switch on the way. Pointer counts from 1 and names the
 * next port to use; a new route begins with Reverse false and Pointer 1. Every switch replaces the
 * port that it uses with the port of arrival, so the route of a packet that has arrived leads
 * back. */
struct IBC_Route {
	bool Reverse;
	uint8_t Pointer;
	uint8_t Hops;
	uint8_t Ports[IBC_LIMIT_HOPS];
};

/* IBC_Init - register this process with the virtual switch of its node
 *
 * @RequestedID is an APID, IBC_CLIENTANY, or IBC_WISH(APID). *GrantedID is the APID that was
 * granted. @GUIDList gets the GUIDs of the NICs of the node to which the client has access with any
 * of its APIDs, at most *NumGUIDs; *NumGUIDs becomes the number of these NICs. All three may be
 * NULL. A process that calls it again gets one more APID: packets for any of them arrive, and
 * IBC_Send() sends from the first one. From 63 (IBC_CLIENTALL) nothing can be sent, because it is
 * the end mark of routes: a client that has it sends from the first of its other APIDs.
 *
 * A process belongs to the node that HEDDLE_NODE names. Any name will do for clients that only talk
 * to each other; if no process runs the hardware ports of that node, it has no NICs, and a warning
 * is logged.
 *
 * APIDs 16 to 30 and 63 are special: they are granted to clients with the administrator's right,
 * which have the administrator's key in the environment variable HEDDLE_IBC_KEY: "heddle ibc key"
 * prints it (heddle-ibc(7), "Administrators").
 *
 * Owner: the process is registered until IBC_Finish(), or until it ends.
 * Threads: any.
 * Blocks: yes, until the node agent answers; it is started if there is none.
 * Returns: 0; IBC_BADPARAM, no such APID; IBC_ATTACH_FAILED, no agent, or too many clients, and the
 * reason is logged; IBC_MALLOC_FAILED, out of memory; IBC_ID_NOTAVAILABLE, the APID is taken, or
 * needs the administrator's right. */
IBC_API int IBC_Init(unsigned RequestedID, unsigned *GrantedID, IBC_GUID *GUIDList,
                     unsigned *NumGUIDs);

/* IBC_Finish - deregister from the virtual switch
 *
 * Threads that wait return IBC_BADPARAM. Requests that have not been fetched are answered with a
 * NACK.
 *
 * Owner: all APIDs and handles are released.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; IBC_NOT_INITIALIZED, no IBC_Init() before. */
IBC_API int IBC_Finish(void);

/* IBC_Send - send a packet
 *
 * It returns when the packet has been handed over: to the process that receives it on this node, or
 * to the process that runs the hardware ports.
 *
 * @Message_Type is one of the message types; with IBC_WRITE_RESPONSE and IBC_READ_REQUEST, @Message
 * is ignored, as in the founding document (IBC_SendTo() sends it with a read request). *GUID names
 * the NIC through which the packet leaves and @OutPort the port of that NIC (PORT_0, PORT_1, ...);
 * the first port of @SourceRoute is then used by the switch at the other end of the link. With
 * IBC_PORT_ROUTE the packet enters this node's own virtual switch, which uses the first port of the
 * route; @GUID may be NULL. Without any route it is for an application of this node. @SourceRoute
 * NULL means no ports. @Destination_ID is the identifier of the destination node (0: any),
 * @Destination_Cl the APID there, @IBCLen the length of @Message.
 *
 * A packet that the switch rejects is answered by an IBC_NACK, which arrives like any other packet;
 * a receiver on this node that leaves its lane full for IBC_LIMIT_SEND_MS rejects it, too.
 *
 * Owner: @Message may be reused when the call returns.
 * Threads: any.
 * Blocks: for at most IBC_LIMIT_SEND_MS, while the lane of the receiver is full.
 * Returns: 0; IBC_BADPARAM, a parameter is out of range, the APID has no access to the NIC, or the
 * client has APID 63 alone; IBC_HARDWARE_ERROR, the port is down, or no process runs the node's
 * hardware ports, and then the log says so; IBC_NOT_INITIALIZED, no IBC_Init() before. */
IBC_API int IBC_Send(int Message_Type, const IBC_GUID *GUID, uint64_t Destination_ID,
                     unsigned Destination_Cl, const void *Message, uint32_t IBCLen,
                     const struct IBC_Route *SourceRoute, unsigned OutPort);

/* IBC_RecvPost - open a handle and post a receive on it
 *
 * Its buffer of IBC_LIMIT_PAYLOAD bytes can take one packet, and keeps it until it is fetched.
 * Packets go to free handles in the order in which receives were posted. Without a free handle they
 * wait: some are kept (IBC_LIMIT_KEPT), others stay with their sender.
 *
 * Owner: the handle is the caller's until IBC_CloseHandle().
 * Threads: any.
 * Blocks: no.
 * Returns: 0; IBC_BADPARAM, @Handle is NULL; IBC_MALLOC_FAILED, out of memory; IBC_MAXHANDLE_USED,
 * IBC_LIMIT_HANDLES are open; IBC_NOT_INITIALIZED, no IBC_Init() before. */
IBC_API int IBC_RecvPost(IBC_HANDLE *Handle);

/* IBC_RecvWait - wait until a packet is in a handle, and fetch it
 *
 * The packet is copied and the receive is posted again. @Timeout NULL waits for ever, zero does not
 * wait. @Buffer has room for the payload (the size of the handle's buffer). *GUID and *Port are the
 * NIC and the port of it through which the packet came; from an application of the same node, 0 and
 * its APID. *Source is the APID of the sender. All but @Handle and @Timeout may be NULL. If several
 * threads wait, each packet goes to one of them.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: until a packet comes, or for @Timeout.
 * Returns: IBC_RECVDONE, a packet was copied; IBC_TIMEDOUT, none came, also with a zero time-out;
 * IBC_BADPARAM, no such handle, or it was closed meanwhile. */
IBC_API int IBC_RecvWait(IBC_HANDLE Handle, const struct timespec *Timeout, void *Buffer,
                         IBC_GUID *GUID, unsigned *Port, unsigned *Source);

/* IBC_RecvWaitAny - wait until a packet is in any of several handles
 *
 * Every one of the @ListLength handles that has a packet is completed. For each of these, element i
 * of @ReceivedList becomes true and element i of the other lists is filled as by IBC_RecvWait().
 * All other elements of @ReceivedList become false; nothing else of these is touched. Lists may be
 * NULL, elements of @BufferList too.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: until a packet comes, or for @Timeout.
 * Returns: IBC_RECVDONE, at least one packet was copied; IBC_TIMEDOUT, none came; IBC_BADPARAM, at
 * least one handle is invalid, and no packet was taken. */
IBC_API int IBC_RecvWaitAny(const IBC_HANDLE *HandleList, unsigned ListLength,
                            const struct timespec *Timeout, IBC_GUID *GUIDList, bool *ReceivedList,
                            unsigned *PortList, void *const *BufferList, unsigned *SourceList);

/* IBC_RecvPoll - is a packet in a handle?
 *
 * It changes nothing: IBC_RecvWait() or IBC_RecvWaitAny() fetches the packet.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: IBC_READYFORCOPY, a packet waits; IBC_RECVNOTDONE, none does; IBC_BADPARAM, no such
 * handle. */
IBC_API int IBC_RecvPoll(IBC_HANDLE Handle);

/* IBC_CloseHandle - close a handle
 *
 * A request that is in it gets a NACK. Threads that wait for it return IBC_BADPARAM.
 *
 * Owner: the handle is released.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; IBC_BADPARAM, no such handle. */
IBC_API int IBC_CloseHandle(IBC_HANDLE Handle);

/* --- more --- */

/* Everything about a packet that has arrived. */
struct IBC_Info {
	int Type;
	int Reason;                   /* of an IBC_NACK */
	unsigned Source, Destination; /* APIDs */
	unsigned Client;              /* the APID of this process through which it came */
	uint32_t Transaction;
	uint32_t Length; /* of the payload */
	IBC_GUID GUID;   /* as IBC_RecvWait() */
	unsigned Port;
	bool ByRoute; /* the last port of the route named this application; otherwise Destination
	                 did */
	struct IBC_Route Route;
};

/* IBC_RecvWaitInfo - as IBC_RecvWait(), with everything about the packet
 *
 * *Info describes the packet; it may be NULL.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: until a packet comes, or for @Timeout.
 * Returns: as IBC_RecvWait(). */
IBC_API int IBC_RecvWaitInfo(IBC_HANDLE Handle, const struct timespec *Timeout, void *Buffer,
                             struct IBC_Info *Info);

/* IBC_RecvPostLength - as IBC_RecvPost(), with a buffer of another length
 *
 * A packet that is longer than @Length goes to another handle. If none that is open can take it,
 * its sender gets a NACK: nothing is truncated.
 *
 * Owner: the handle is the caller's until IBC_CloseHandle().
 * Threads: any.
 * Blocks: no.
 * Returns: as IBC_RecvPost(). */
IBC_API int IBC_RecvPostLength(uint32_t Length, IBC_HANDLE *Handle);

/* Where a message goes. */
struct IBC_Target {
	unsigned Client;      /* the APID from which it is sent; 0: the first one */
	IBC_GUID GUID;        /* with OutPort */
	unsigned OutPort;     /* a port of the NIC, or IBC_PORT_ROUTE */
	uint64_t DestNode;    /* 0: any */
	unsigned Destination; /* APID */
	struct IBC_Route Route;
};

/* IBC_SendTo - as IBC_Send(), with the transaction number that the answer will have
 *
 * *Target says where the message goes, and from which APID. Only with IBC_WRITE_RESPONSE is
 * @Message ignored: a read request may say what is to be read.
 *
 * Owner: @Message may be reused when the call returns.
 * Threads: any.
 * Blocks: as IBC_Send().
 * Returns: as IBC_Send(). */
IBC_API int IBC_SendTo(const struct IBC_Target *Target, int Type, uint32_t Transaction,
                       const void *Message, uint32_t Length);

/* IBC_Respond - answer a packet
 *
 * The answer takes the way back to the sender of the packet that *Request describes, with its
 * transaction number. @Type is IBC_READ_RESPONSE, IBC_WRITE_RESPONSE or IBC_NACK; then @Reason says
 * why.
 *
 * Owner: @Message may be reused when the call returns.
 * Threads: any.
 * Blocks: as IBC_Send().
 * Returns: as IBC_Send(). */
IBC_API int IBC_Respond(const struct IBC_Info *Request, int Type, int Reason, const void *Message,
                        uint32_t Length);

/* IBC_Request - send a request and wait for its answer
 *
 * The answer is a response or a NACK with the transaction number of the request, which is random,
 * from the one that was asked: it has come the way back that the request took, from its destination
 * APID or from a switch. A packet that only has the number goes to another handle, as any other
 * (heddle-ibc(7), "Answers"). If none comes within @Timeout (NULL: a second), the request is sent
 * again, @Tries times in all (0: three). The recipient may see a request more than once, with the
 * same number. *Answer describes the answer, and its payload is copied to @Buffer, which has @Room
 * bytes. Both may be NULL. Other packets stay where they are. IBC_WRITE_REQUEST_NO_ACK has no
 * answer: the call returns 0 when the packet was handed over.
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: until the answer comes, or for @Timeout as often as it tries.
 * Returns: 0, the response came; IBC_NACKED, the answer is a NACK, and Answer->Reason says why;
 * IBC_TIMEDOUT, none came; IBC_BADPARAM, a parameter is out of range, or the answer is longer than
 * @Room; IBC_MAXHANDLE_USED, IBC_LIMIT_HANDLES are open; IBC_MALLOC_FAILED, out of memory;
 * IBC_HARDWARE_ERROR, as IBC_Send(); IBC_NOT_INITIALIZED, no IBC_Init() before. */
IBC_API int IBC_Request(const struct IBC_Target *Target, int Type, const void *Message,
                        uint32_t Length, const struct timespec *Timeout, unsigned Tries,
                        void *Buffer, uint32_t Room, struct IBC_Info *Answer);

/* IBC_Descriptor - a descriptor for poll()
 *
 * It is readable while a packet waits for one of the client's handles, or the client has something
 * else to do. Then call IBC_RecvPoll() or a call that waits, with time-out zero. From the first
 * call on, calls that find no packet cost a system call now and then.
 *
 * Owner: the library owns it; do not close it.
 * Threads: any.
 * Blocks: no.
 * Returns: the descriptor, or -1 without IBC_Init(). */
IBC_API int IBC_Descriptor(void);

struct IBC_Counters {
	uint64_t Sent, Received;
	uint64_t Nacks;     /* packets that this client rejected, as a sender or as a receiver */
	uint64_t Forged;    /* packets that their writer was not entitled to send */
	uint64_t Damaged;   /* not packets, or with a wrong check */
	uint64_t Discarded; /* kept too long, too many, or too long for every handle */
	uint64_t Kept;      /* waiting for a handle now */
	uint64_t Agents;    /* how often the node agent was replaced */
};

/* IBC_Statistics - the counters of this client
 *
 * Owner: nothing changes hands.
 * Threads: any.
 * Blocks: no.
 * Returns: 0; IBC_BADPARAM, @Counters is NULL; IBC_NOT_INITIALIZED, no IBC_Init() before. */
IBC_API int IBC_Statistics(struct IBC_Counters *Counters);

/* IBC_ResultName - the name of a result
 *
 * Owner: the text is constant.
 * Threads: any.
 * Blocks: no.
 * Returns: the name, or words for a number that has none. */
IBC_API const char *IBC_ResultName(int Result);

/* IBC_TypeName - the name of a message type
 *
 * Owner: the text is constant.
 * Threads: any.
 * Blocks: no.
 * Returns: the name, or words for a number that has none. */
IBC_API const char *IBC_TypeName(int Type);

/* IBC_ReasonName - the name of a reason of a NACK
 *
 * Owner: the text is constant.
 * Threads: any.
 * Blocks: no.
 * Returns: the name, or words for a number that has none. */
IBC_API const char *IBC_ReasonName(int Reason);

#ifdef __cplusplus
}
#endif

#endif
