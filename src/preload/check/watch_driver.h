/* The core's driver, watched: which page stands at which address.

   Why here. The core knows of no check, and asks its driver for every page. So the calls by which pages come, go and
   move are seen in its table. Each is made first, and noted where it succeeded; unmapping is noted before, since another
   thread may map something else there as soon as it is done.

   The order matters. A handle that is released may be given to another page at once, and addresses that are unmapped may
   be mapped anew by another thread. Were these noted afterwards, the news of the new page could come first, and the old
   one's end would take it away again.

   For example, the core unmaps page P at A and maps it at B. The shadow hears that A has no page, then that B has P. */
#ifndef SG_WATCH_DRIVER_H
#define SG_WATCH_DRIVER_H

#include "driver/driver.h"

/* Replaces the calls of the table that bring, take or move pages. Once; the table is not in use yet. */
void sg_watch_driver(struct sg_driver *driver);

#endif
