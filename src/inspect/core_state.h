/* The state of a core, for the layers above: statistics, lists of its blocks and pages, and the text for an
   allocation that failed.

   Nouns. A *snapshot* is all statistics at one moment. A *piece* is a row of addresses in one state. A *mark* is a
   row of pages that may not move. A *cause* is the first change without which a failed allocation would have been
   served.

   Why apart from the core: the core calls none of this and decides nothing by it. All of it reads under a device's
   `lock`. The one exception is sg_core_mem_info(), which joins free memory first and says so in the trace, since that
   changes later decisions.

   Limits. A list is a copy: the next moment it may be out of date. With fixed segments there are no pieces.

   For example, a card of 24 GiB has two blocks of 1,000 bytes and one of 300 MiB and 1 byte. sg_core_placed() returns
   five pieces. The two come first, then 2,046 KiB free behind them in their page of 2 MiB. Then come the large one
   and 4,095.5 KiB free in its last page of 4 MiB. sg_core_stats() says that 306 MiB are reserved. */
#ifndef SG_CORE_STATE_H
#define SG_CORE_STATE_H

#include "inspect/free_memory.h"
#include "inspect/inventory.h"
#include "inspect/oom_text.h"
#include "inspect/stats_snapshot.h"

#endif
