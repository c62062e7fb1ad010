/* Every queue, table, retry and wait of Heddle has a limit. These are the ones that a user can run
 * into. */
#ifndef HEDDLE_LIMITS_H
#define HEDDLE_LIMITS_H

#define HDL_MAX_QP             65536u
#define HDL_MAX_QP_WR          32768u
#define HDL_MAX_SGE            32u
#define HDL_MAX_INLINE         1024u
#define HDL_MAX_CQ             65536u
#define HDL_MAX_CQE            4194304u
#define HDL_MAX_SRQ            4096u
#define HDL_MAX_SRQ_WR         32768u
#define HDL_MAX_PD             65536u
#define HDL_MAX_MR             1048576u /* entries of the protection table: regions and windows */
#define HDL_MAX_AH             65536u
#define HDL_MAX_GROUPS         64u /* multicast groups that an adapter has members in or sends to */
#define HDL_MAX_GROUP_MEMBERS  128u  /* queue pairs of an adapter in one group */
#define HDL_MAX_GROUP_PEERS    256u  /* adapters that one datagram to a group reaches */
#define HDL_MAX_STRIPE         1024u /* packets in flight on a connection over two paths */
#define HDL_MAX_RD_ATOMIC      128u
#define HDL_MAX_PEERS          1024u
#define HDL_MAX_MESSAGE        (1ull << 30)
#define HDL_MAX_MR_LENGTH      (1ull << 47)
#define HDL_MAX_REGISTER_PAGES 4096u
#define HDL_MAX_EVENTS         1024u /* asynchronous events kept until they are read */
#define HDL_UD_MTU             4096u /* bytes per datagram; on a network hdl_limits.mtu */
#define HDL_RAW_MTU            4096u /* bytes of a raw datagram, its IPv6 header included */
#define HDL_MAX_RAW            256u  /* registrations of an adapter for raw datagrams */
#define HDL_GRH_BYTES          40u
#define HDL_MAX_UDP            65507u /* bytes of a datagram of plain UDP */

/* Virtual interfaces (vi.h). */
#define HDL_VI_MAX_SEGMENTS (HDL_MAX_SGE + 1u) /* of a descriptor: address and data */
#define HDL_VI_MAX_NAME     64u                /* characters of a name to listen under */
#define HDL_VI_BACKLOG      64u                /* requests that wait for hdl_vi_accept() */
#define HDL_VI_MAX_PEERS    256u               /* that a VI without connection knows */
#define HDL_VI_DATAGRAM     256u               /* bytes of a message without connection */

#endif
