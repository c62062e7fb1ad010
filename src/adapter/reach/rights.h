/* The program changes the rights of memory that peers map: mprotect(2). The peer's mapping has
 * rights of its own, and the kernel tells nobody. So calls of mprotect() come to us
 * (base/imports.h): if they take rights from memory of a segment, its peers are left with the way
 * through the kernel, which respects them. What calls the kernel without the C library is not
 * noticed. */
#ifndef ADAPTER_RIGHTS_H
#define ADAPTER_RIGHTS_H

/* Memory that peers can map is about to be registered: from now on hear of changes. */
void rights_watch(void);

#endif
