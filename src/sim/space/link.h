/* The link: bytes that a device reaches outside its own memory.

   Nouns. A mapping is *far* for a device that has access to it where the page is not in that device's memory. It lies in the
   host's, or in another device's. Every byte of it goes over PCIe or NVLink, each time that work touches it.

   Why counted: nothing else shows what such a page costs. How: mappings that are far for some device are counted, and while
   there are any, work notes what it touches (streams/work.h). When it runs, the part on far pages adds to its device's bytes, the
   host's apart from other devices'. A kernel that says nothing may touch any of them, so these are counted too: where there
   were some, the bytes are too few. Limits: memory of cuMemAlloc that a peer reaches is not counted. Work that was
   submitted while no mapping was far is not counted.

   For example, a block of 6 MiB has its last page of 2 MiB in the host's memory. A set of all of it, and a copy of its last
   3 MiB to the host, add 2 MiB each. */
#ifndef SIM_LINK_H
#define SIM_LINK_H

#include "space/mapping.h"

struct sim_work;

/* True while a mapping is far for some device. No lock. */
bool sim_link_any(void);

/* All locked. A mapping begins, has been given access, or ends. */
void sim_link_begin(struct sim_mapping *mapping);
void sim_link_access(struct sim_mapping *mapping, const CUmemAccessDesc *access, size_t count);
void sim_link_end(const struct sim_mapping *mapping);

/* A piece of work is about to run: what it touches on far pages counts. */
void sim_link_work(const struct sim_work *work);

#endif
