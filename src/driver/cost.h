/* The cost of the driver's memory management calls on a device, in ns.

   A call over n handles costs call_ns + n * handle_ns. Two numbers a call are enough, because the driver repeats the same
   steps for each handle. Statistics sum costs up (growth_cost_ns, move_cost_ns), and the tuner compares settings by them.

   The cost is measured once, when the device is first used, and stands in the trace, so a replay uses the device's own
   numbers. Otherwise cost.def is assumed.

   Example, the assumed cost of access for 10 pages, call_ns 5000 and handle_ns 36000:
     one call over 10 handles    5000 + 10 * 36000 =  365000 ns
     10 calls over one each       10 * (5000 + 36000) =  410000 ns
   A measurement goes the other way. One page took 41000 ns and 16 pages took 581000 ns: a handle costs
   (581000 - 41000) / 15 = 36000 ns, and the call 41000 - 36000 = 5000 ns.

   Limits: a call that takes one handle (create, map, release) has no call_ns of its own, since nothing tells the two
   apart. The fastest of three rounds counts; other processes can only make a round slower. */
#ifndef SG_COST_H
#define SG_COST_H

#include <stdint.h>

#include "pages.h"

enum sg_cost_call {
#define COST(call, call_ns, handle_ns) SG_COST_##call,
#include "cost.def"
    SG_COST_CALLS
};

/* The cost of one kind of call. A handle counts once for every device that is given access. */
struct sg_cost {
    uint32_t call_ns, handle_ns;
};

/* Pages that a measurement takes at once: enough to tell a handle's cost from a call's. */
enum { SG_COST_PAGES = 16 };

/* Sets the costs of cost.def. */
void sg_cost_assume(struct sg_cost cost[SG_COST_CALLS]);

/* Measures the calls on 1 and on SG_COST_PAGES pages of `page` bytes, by a clock in ns, and gives all memory back. The
   caller holds what sg_pages asks for. False, with nothing set: the driver refused a call, for want of memory perhaps. */
bool sg_cost_measure(struct sg_pages *pages, uint64_t page, uint64_t (*now_ns)(void), struct sg_cost ret[SG_COST_CALLS]);

/* The cost in ns of `calls` calls over `handles` handles together. */
static inline uint64_t sg_cost_ns(const struct sg_cost cost[SG_COST_CALLS], enum sg_cost_call call, uint64_t calls,
    uint64_t handles)
{
    return calls * cost[call].call_ns + handles * cost[call].handle_ns;
}

#endif
