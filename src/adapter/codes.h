/* Every code that a user meets, with its name, what it means and what to do about it: the one list
 * of these texts. strings.c makes tables of it (hdl_codes(), hdl_wc_status_str() and the rest),
 * tools/mkman the manual page heddle-codes(7). Errors have the same columns in heddle/error.h.
 *
 * Statuses are numbered as in libibverbs; events are not: their last two columns are the name and
 * the number there, NULL and 0 where it has none. */
#ifndef ADAPTER_CODES_H
#define ADAPTER_CODES_H

/* clang-format off */

/* enum hdl_wc_status: name, meaning, what to do */
#define CODES_STATUS(X) \
	X(SUCCESS, "success", "nothing: the request was executed") \
	X(LOC_LEN_ERR, "local length error: the receive buffer is too small", \
	  "post receives as long as the longest message that the peer sends; for a datagram " \
	  "add 40 bytes for the global route header, and send no more than the path MTU") \
	X(LOC_QP_OP_ERR, "local queue pair operation error", \
	  "compare the request with what the type and the capabilities of the queue pair allow " \
	  "(hdl_post_send(3))") \
	X(LOC_EEC_OP_ERR, "local end-to-end context operation error", \
	  "the context failed before the message: look at its own first error, then reset and " \
	  "connect it again") \
	X(LOC_PROT_ERR, "local protection error: a piece of the list failed a check", \
	  "look at vendor_err, which names the check: the key, range or rights of a piece of " \
	  "the local list are wrong") \
	X(WR_FLUSH_ERR, "flushed: the queue pair is in an error state", \
	  "look for the first completion with another status, which is the cause; if there is " \
	  "none the program itself or the peer ended the connection") \
	X(MEM_MGT_ERR, "memory management error: bind, register or invalidate refused", \
	  "look at vendor_err, which names the check that the window, region or page list " \
	  "failed") \
	X(BAD_RESP_ERR, "bad response", \
	  "the answer fits no request: capture both ends (heddle run --capture) and suspect " \
	  "the other implementation") \
	X(LOC_ACCESS_ERR, "local access error: registered memory has gone", \
	  "do not unmap or truncate memory while it is registered; deregister it first") \
	X(REM_INV_REQ_ERR, "remote invalid request error", \
	  "the peer does not allow this operation: its queue pair lacks the access right " \
	  "(HDL_QP_ACCESS), its receive is too short, or an atomic is not aligned; its own " \
	  "event or completion says which") \
	X(REM_ACCESS_ERR, "remote access error: the peer's checks said no", \
	  "look at vendor_err: check the key and address that the peer sent, and the rights " \
	  "that it registered with") \
	X(REM_OP_ERR, "remote operation error: the peer could not do it", \
	  "look at the peer: the memory of its receive or region is gone or was refused there") \
	X(RETRY_EXC_ERR, "retries exceeded: the peer does not answer", \
	  "see whether the peer still runs and its queue pair is in RTR or RTS (heddle " \
	  "status); over a network also whether UDP port 4791 is let through; a longer timeout " \
	  "and a higher retry_cnt wait longer") \
	X(RNR_RETRY_EXC_ERR, "receiver-not-ready retries exceeded: no receive was posted", \
	  "let the peer post receives before you send, or set rnr_retry to 7 to wait for it " \
	  "forever") \
	X(REM_INV_RD_REQ_ERR, "remote invalid reliable datagram request", \
	  "there is no queue pair of that number in the domain of the peer's context, or the " \
	  "Q_Key is another one") \
	X(REM_ABORT_ERR, "the sender gave the message up", \
	  "post the receive again; the sender's completion says why it stopped") \
	X(INV_EECN_ERR, "no such end-to-end context", \
	  "the context was destroyed while requests named it: destroy it after the last " \
	  "completion") \
	X(INV_EEC_STATE_ERR, "the end-to-end context is not ready to send", \
	  "bring the context to RTS before you post, and look at its first error if it has " \
	  "failed") \
	X(FATAL_ERR, "fatal error", \
	  "destroy the queue pair; HEDDLE_LOG=debug says what the adapter ran into")

/* enum hdl_detail: name, name of its counter (after "refused_"), meaning, what to do */
#define CODES_DETAIL(X) \
	X(NONE, "other", "no check said no", \
	  "the status alone says what happened; with a remote status of another implementation " \
	  "there is no more to know") \
	X(NOT_VALID, "not_valid", "the key is not valid", \
	  "the region or window was deregistered or invalidated, or the key was never one: " \
	  "exchange keys anew") \
	X(TYPE, "type", "the key is of a kind that cannot be used here", \
	  "use a region's key for local pieces; towards a queue pair made with " \
	  "remote_windows_only use a window's") \
	X(PD, "pd", "the key belongs to another protection domain", \
	  "register the memory in the protection domain of the queue pair that it is used with") \
	X(QP, "qp", "the window is bound for another queue pair", \
	  "bind the window through the queue pair whose peer uses it; a type 2 window is for " \
	  "that one alone") \
	X(INSTANCE, "instance", "the key's instance is stale", \
	  "the key was bound or registered anew since: send the peer the new one") \
	X(BOUNDS, "bounds", "outside the range of the key", \
	  "compare address and length with what was registered; with ZERO_BASED addresses " \
	  "count from 0") \
	X(ACCESS, "access", "the key does not grant the right", \
	  "register or bind with the right that the operation needs: LOCAL_WRITE to receive or " \
	  "read into, REMOTE_* for peers") \
	X(BIND, "bind", "the region does not allow windows", \
	  "register the region with HDL_ACCESS_BIND (IBV_ACCESS_MW_BIND)") \
	X(TOUCHED, "touched", "the one-touch key was used before", \
	  "a key with ONE_TOUCH is good for one message: bind or register anew for the next, " \
	  "and send the peer the new key") \
	X(OUT_OF_WINDOW, "out_of_window", "a segment or request with a number that may not come now", \
	  "the peer counts wrongly, so the connection ended: look for the fault in the " \
	  "program at the other end, or in its network stack") \
	X(GONE, "gone", "the memory behind the key was unmapped", \
	  "keep memory mapped, and files as long as they were, until the key is deregistered") \
	X(MISALIGNED, "misaligned", "an atomic needs 8 aligned bytes", \
	  "give compare-and-swap and fetch-and-add an address that is a multiple of 8") \
	X(BUSY, "busy", "windows are bound to the region", \
	  "unbind or free the windows of the region first") \
	X(PAGES, "pages", "the page list does not fit", \
	  "compare page size, count, offset and length with each other and with what " \
	  "hdl_mr_alloc() was asked for") \
	X(LIMIT, "limit", "a limit was reached", \
	  "a completion queue was overrun, or a table is full: size it for all outstanding " \
	  "work (hdl_adapter_query(3)); where the peer was refused, it has more reads and " \
	  "atomics open than max_dest_rd_atomic (IRD) allows, or no receive was posted for its " \
	  "message in time") \
	X(ALREADY, "already", "the entry is valid already", \
	  "invalidate the region (HDL_OP_INVALIDATE) before it is registered again; unbind a " \
	  "type 2 window before it is bound again")

/* enum hdl_event_type: name, meaning, what to do, in libibverbs: name, number */
#define CODES_EVENT(X) \
	X(CQ_OVERRUN, "completion queue overrun", \
	  "make the completion queue as long as all work queues that use it together, and poll " \
	  "it", "IBV_EVENT_CQ_ERR", 0) \
	X(QP_FATAL, "queue pair failed", \
	  "destroy or reset the queue pair; the peer gave the connection up, or a " \
	  "completion queue was overrun", "IBV_EVENT_QP_FATAL", 1) \
	X(QP_REQUEST_ERR, "the peer's request was invalid", \
	  "look at the peer's request: an operation that this queue pair does not allow " \
	  "(HDL_QP_ACCESS), a message longer than the receive, an atomic that is not aligned", \
	  "IBV_EVENT_QP_REQ_ERR", 2) \
	X(QP_ACCESS_ERR, "the peer's request was refused", \
	  "look at the detail: the key, range or rights that the peer used do not fit what was " \
	  "registered here", "IBV_EVENT_QP_ACCESS_ERR", 3) \
	X(COMM_EST, "communication established", \
	  "bring the queue pair to RTS: a message of the peer came while it was in RTR", \
	  "IBV_EVENT_COMM_EST", 4) \
	X(SQ_DRAINED, "send queue drained", "change what has to be changed, then return to RTS", \
	  "IBV_EVENT_SQ_DRAINED", 5) \
	X(QP_LAST_WQE, "last shared receive taken", \
	  "the queue pair may now be destroyed without losing receives of the shared queue", \
	  "IBV_EVENT_QP_LAST_WQE_REACHED", 16) \
	X(SRQ_LIMIT, "shared receive queue below its limit", \
	  "post receives, then set the limit again with hdl_srq_modify(3): the event comes " \
	  "once", "IBV_EVENT_SRQ_LIMIT_REACHED", 15) \
	X(SRQ_ERR, "shared receive queue error", \
	  "destroy the queue pairs that use it, then the shared receive queue", \
	  "IBV_EVENT_SRQ_ERR", 14) \
	X(MEMORY_GONE, "registered memory has gone", \
	  "deregister the region of the key; do not unmap or truncate memory while it is " \
	  "registered", NULL, 0) \
	X(PEER_GONE, "the peer has gone", \
	  "its process ended: destroy or reset the queue pairs that were connected to it", NULL, \
	  0) \
	X(AGENT_CHANGED, "another node agent took over", \
	  "nothing: connections go on; through rdma_cm what was left with the old agent is " \
	  "left again", NULL, 0) \
	X(PATH_MIG, "the path was changed", \
	  "load a new alternate path and arm it, so that there is one for the next failure", \
	  "IBV_EVENT_PATH_MIG", 6) \
	X(PATH_MIG_ERR, "the peer's change of path was refused", \
	  "give both ends the same pair of paths: the peer moved to one that is not the " \
	  "alternate path here", "IBV_EVENT_PATH_MIG_ERR", 7) \
	X(LOST, "events were lost", \
	  "read events sooner; state that events tell of has to be asked for again " \
	  "(hdl_qp_query(3))", NULL, 0)

/* enum engine_counter: name, in lower case, meaning, what to do */
#define CODES_COUNTER(X) \
	X(FRAMES_IN, "frames_in", "frames taken from the lanes of processes on this machine", \
	  "nothing: it grows with traffic") \
	X(FRAMES_OUT, "frames_out", \
	  "frames put into lanes; a short write or read may need none", \
	  "nothing: it grows with traffic") \
	X(BYTES_SENT, "bytes_sent", \
	  "payload bytes of messages sent: sends, and writes that the peer executes", \
	  "nothing: it grows with traffic") \
	X(BYTES_RECEIVED, "bytes_received", "payload bytes placed into receives", \
	  "nothing: it grows with traffic") \
	X(BYTES_WRITTEN, "bytes_written", \
	  "payload bytes of RDMA writes executed here: on one machine mostly those that this " \
	  "process asked for, on a network those of its peers", \
	  "nothing: it grows with traffic") \
	X(BYTES_READ, "bytes_read", "payload bytes of RDMA reads that this process asked for", \
	  "nothing: it grows with traffic") \
	X(ATOMICS, "atomics", \
	  "atomic operations executed here, for this process or, on its memory, for a peer", \
	  "nothing: it grows with traffic") \
	X(RNR_SENT, "rnr_sent", \
	  "messages that found no receive here and were put off (receiver not ready)", \
	  "post receives earlier, or more of them") \
	X(RETRIES, "retries", "messages that this process sent again", \
	  "on a network look for loss; on one machine for a peer that posts its receives late") \
	X(TIMEOUTS, "timeouts", "requests that were not answered within the timeout", \
	  "see whether the peer runs and has processor time; over a network look for loss") \
	X(REPEATED, "repeated", "messages that came again after they had been executed", \
	  "nothing, unless it grows fast: then the peer's timeout is shorter than an answer " \
	  "takes") \
	X(DROPPED, "dropped", "messages for a queue pair that does not exist or is not ready", \
	  "bring the queue pair to RTR before the peer sends; after a connection ended a few " \
	  "are normal") \
	X(DROPPED_QKEY, "dropped_qkey", "datagrams whose Q_Key is not that of the queue pair", \
	  "use the Q_Key that the receiver gave its queue pair") \
	X(DROPPED_NO_RECV, "dropped_no_recv", "unreliable messages that found no receive", \
	  "post more receives: nobody repeats these messages") \
	X(BAD_FRAMES, "bad_frames", "frames of a lane that make no sense", \
	  "suspect the process at the other end: it is broken or hostile") \
	X(MEMORY_GONE, "memory_gone", "accesses to registered memory that had been unmapped", \
	  "deregister memory before it is unmapped") \
	X(PACKETS_IN, "packets_in", "packets taken from the network", \
	  "nothing: it grows with traffic") \
	X(PACKETS_OUT, "packets_out", "packets sent to the network", \
	  "nothing: it grows with traffic") \
	X(BAD_PACKETS, "bad_packets", \
	  "packets that are damaged, or that no correct sender sends", \
	  "capture them (heddle run --capture): a wrong checksum points to the network, the " \
	  "rest to the sender") \
	X(SEQUENCE_NAKS, "sequence_naks", \
	  "times that this process told a peer that a packet was missing", \
	  "look for loss on the network, or a socket buffer that is too small " \
	  "(net.core.rmem_max)") \
	X(PROBES, "probes", \
	  "packets sent again before the timeout, since answers usually come sooner", \
	  "nothing: a few follow every loss") \
	X(CNP_SENT, "cnp_sent", \
	  "congestion notifications sent, because packets came marked by a switch", \
	  "nothing: the sender slows down") \
	X(CNP_RECEIVED, "cnp_received", "congestion notifications received", \
	  "nothing: this process has slowed down") \
	X(CNP_UNPROVED, "cnp_unproved", \
	  "congestion notifications that anybody could have sent: they name no packet in flight", \
	  "nothing, where the peer is an adapter of another make; else look for a forger") \
	X(DROPPED_KEYS, "dropped_keys", \
	  "unreliable writes that were dropped unjudged, because too many keys were wrong", \
	  "see which peer sends stale keys, or who guesses them") \
	X(DROPPED_TOO_LONG, "dropped_too_long", \
	  "unreliable messages that were longer than the receive", \
	  "post longer receives, or have the peer send shorter messages")

/* enum hdl_qp_type and enum hdl_qp_state: names. enum hdl_qp_attr_mask: names, one bit each. */
#define CODES_QP_TYPE(X) X(RC) X(UC) X(UD) X(XRC_INI) X(XRC_TGT) X(RD) X(RAW)
#define CODES_QP_STATE(X) X(RESET) X(INIT) X(RTR) X(RTS) X(SQD) X(SQE) X(ERR)
#define CODES_QP_ATTR(X) \
	X(STATE) X(ACCESS) X(PORT) X(QKEY) X(AV) X(PATH_MTU) X(TIMEOUT) X(RETRY_CNT) \
	X(RNR_RETRY) X(RQ_PSN) X(MAX_RD_ATOMIC) X(MIN_RNR_TIMER) X(SQ_PSN) \
	X(MAX_DEST_RD_ATOMIC) X(DEST_QPN) X(PKEY_INDEX) X(CUR_STATE) X(ALT_PATH) \
	X(PATH_MIG_STATE) X(STRIPE)

/* clang-format on */

#endif
