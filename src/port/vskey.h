/* The key file in the agent's directory: whoever presents this key may hold special APIDs of the
 * user's virtual switches and run their hardware ports. The owner may write the file before the
 * agent starts, 32 hexadecimal digits; otherwise the agent makes one from random numbers and
 * removes it when it leaves. Lines that begin with '#' are comments. */
#ifndef PORT_VSKEY_H
#define PORT_VSKEY_H

#include <stdbool.h>
#include <stdint.h>

#include "port/agentmsg.h"

/* Read 32 hexadecimal digits. False: @text is something else. */
bool vskey_parse(const char *text, uint8_t key[AGENT_VS_KEY_BYTES]);
/* Read the key in the file @path, which must belong to this user and be closed to others. False:
 * there is none; what is wrong with a file that is there has been logged. */
bool vskey_read(const char *path, uint8_t key[AGENT_VS_KEY_BYTES]);
/* Make @path with a random key, unless it exists. */
void vskey_make(const char *path);
/* Remove @path if vskey_make() made it. */
void vskey_remove(const char *path);
/* Without telling by the time that it takes where they differ. Zeroes are no key, and equal
 * nothing. */
bool vskey_equal(const uint8_t a[AGENT_VS_KEY_BYTES], const uint8_t b[AGENT_VS_KEY_BYTES]);

#endif
