/* What calls of the driver's memory management cost on a device: statistics sum it up. The cost is measured once,
   when the device is first used, and stands in the trace, so a replay uses it too. Otherwise cost.def is assumed. */
#ifndef SG_COST_H
#define SG_COST_H

#include <stdint.h>

#include "pages.h"

enum sg_cost_call {
#define COST(call, call_ns, handle_ns) SG_COST_##call,
#include "cost.def"
    SG_COST_CALLS
};

/* Of a call over n handles, each counted once for every device that is given access: call_ns + n x handle_ns. */
struct sg_cost {
    uint32_t call_ns, handle_ns;
};

/* Pages that a measurement takes at once: enough to tell a handle's cost from a call's. */
enum { SG_COST_PAGES = 16 };

/* Sets what cost.def assumes. */
void sg_cost_assume(struct sg_cost cost[SG_COST_CALLS]);

/* Measures on 1 and SG_COST_PAGES pages of `page` bytes what the calls cost, by a clock in ns. False, with nothing
   set: the driver refused one of them. */
bool sg_cost_measure(struct sg_pages *pages, uint64_t page, uint64_t (*now_ns)(void), struct sg_cost ret[SG_COST_CALLS]);

/* ns of `calls` calls over `handles` handles together. */
static inline uint64_t sg_cost_ns(const struct sg_cost cost[SG_COST_CALLS], enum sg_cost_call call, uint64_t calls,
    uint64_t handles)
{
    return calls * cost[call].call_ns + handles * cost[call].handle_ns;
}

#endif
