/* Memory that lies at the same address every time. Packets carry addresses, and the same seed is to
 * be the same run packet by packet. */
#ifndef SIM_PLACE_H
#define SIM_PLACE_H

#include <stddef.h>
#include <stdint.h>

#define PLACE_ANYWHERE UINT32_MAX
#define PLACE_ROOM     (256ull << 20) /* the most that one takes */

/* @bytes, all zero, at the place @number, where the kernel puts nothing that is not asked for.
 * NULL: there is no memory. */
void *place_take(uint32_t number, size_t bytes);
void place_give(void *memory, size_t bytes);

#endif
