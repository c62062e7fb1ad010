/* Captures of IBC packets (HEDDLE_CAPTURE): by clients, what they send and receive; by the process
 * of the hardware ports, what passes its links. */
#ifndef IBC_CAPTURE_H
#define IBC_CAPTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "port/pcapng.h"

/* Start to write to the file that HEDDLE_CAPTURE names, as the interface @name. NULL: it names
 * none, or the file cannot be written, which has been logged. */
struct pcapng *ibc_capture_open(const char *name);
/* The packet of @bytes at @packet has come or left; @comment says through which ports. */
void ibc_capture_put(struct pcapng *capture, const uint8_t *packet, size_t bytes, bool inbound,
                     const char *comment);
/* Write what is in memory. */
void ibc_capture_flush(struct pcapng *capture);
/* @forget: without writing, in a child of fork(). NULL does nothing. */
void ibc_capture_close(struct pcapng *capture, bool forget);

#endif
