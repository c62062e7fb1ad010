/* Where frames come from and go to at the ends of a split driver: the interface of a host, or the
 * LAN of a unit. Each frame begins with a virtio_net_hdr of LAN_HEADER_BYTES, which says what is
 * left to do about checksums and segments; kinds that know no such header see none. */
#ifndef TAP_LAN_H
#define TAP_LAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tap/link.h"

#define LAN_HEADER_BYTES 10u
#define LAN_MAX_FRAME    (LAN_HEADER_BYTES + 14u + 4u + 65535u)
#define LAN_MAC_BYTES    6u
#define LAN_WHY_BYTES    384u

struct lan;

struct lan_kind {
	const char *name;
	/* Which offloads it takes (enum hdl_push_offload). */
	uint32_t offloads;
	/* False: lan->why tells what to do. */
	bool (*open)(struct lan *lan);
	void (*close)(struct lan *lan);
	/* One frame. Returns its length with the header; 0: there is none now; -1: it is not there
	 * any more. */
	ssize_t (*read)(struct lan *lan, uint8_t *frame, size_t capacity);
	/* False: not now. A frame that can never be written counts as written. */
	bool (*write)(struct lan *lan, const uint8_t *frame, size_t bytes);
	/* The following are NULL where they do not apply. There are news of its interface. */
	void (*changed)(struct lan *lan);
	/* Nobody is at the other end: look again. True: somebody is there. */
	bool (*again)(struct lan *lan);
	bool (*set_mtu)(struct lan *lan, uint32_t mtu);
	void (*carrier)(struct lan *lan, bool on);
	bool (*set_mac)(struct lan *lan, const uint8_t mac[LAN_MAC_BYTES]);
	void (*set_offloads)(struct lan *lan, uint32_t offloads);
	/* Its interface is not needed any more, after a regular end. */
	void (*forget)(struct lan *lan);
};

struct lan_stream;

struct lan {
	const struct lan_kind *kind;
	char where[108]; /* interface or path */
	pid_t netns;     /* make it in the namespaces of this process; 0: here */
	uint16_t mtu;    /* to begin with; 0: leave it */
	bool has_mac;
	uint8_t mac[LAN_MAC_BYTES];
	int fd;         /* -1: none at present */
	int listening;  /* a stream that waits for its other end; -1 */
	int watch;      /* news of the interface; -1 */
	int groups;     /* list of its multicast groups; -1 */
	bool gone;      /* its interface was removed, and will not come back */
	uint32_t peers; /* how many other ends it has had */
	uint32_t bound; /* packet: number of the interface; 0: none */
	struct link_state link;
	bool want_write;
	struct lan_stream *stream;
	char why[LAN_WHY_BYTES];
	uint64_t rx_frames, rx_bytes, tx_frames, tx_bytes, dropped;
};

extern const struct lan_kind lan_tap, lan_packet, lan_unix;

/* @text is tap:NAME, packet:IFACE or unix:PATH. False: lan->why. */
bool lan_parse(struct lan *lan, const char *text);
bool lan_open(struct lan *lan);
void lan_close(struct lan *lan);
/* For kinds that have one descriptor. */
void lan_close_fd(struct lan *lan);
/* Counting read and write. */
ssize_t lan_read(struct lan *lan, uint8_t *frame, size_t capacity);
bool lan_write(struct lan *lan, const uint8_t *frame, size_t bytes);
/* Are these offloads more than a checksum that is already right? */
bool lan_needs_offload(const uint8_t *frame);
/* Is a frame, or each segment that it is to become, longer than @mtu allows? */
bool lan_is_too_long(const uint8_t *frame, size_t bytes, uint32_t mtu);
/* The watch has news. */
void lan_news(struct lan *lan);
/* May frames leave through it, as far as is known? */
bool lan_is_up(const struct lan *lan);

/* --- netns.c --- */

/* Run @make(@context) in the user and network namespaces of @pid, as a process of its own, and take
 * the descriptors that it stores in @fds (UNIXSOCK_MAX_FDS). Returns how many they are; 0: why was
 * written. */
int netns_make(pid_t pid, int (*make)(void *context, int *fds, char *why), void *context, int *fds,
               char *why);
/* The network namespace of @pid; 0: there is no such process, or not for us. */
ino_t netns_of(pid_t pid);
/* A pidfd of a process in @space, of @first if it is there; -1: nobody is. Our own descriptors keep
 * a namespace alive, so this is how to know that it is used. */
int netns_hold(ino_t space, pid_t first);

#endif
