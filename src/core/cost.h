/* What calls of the driver's memory management cost on a device: statistics sum it up. The cost is measured once,
   when the device is first used, and stands in the trace, so a replay uses it too. Otherwise cost.def is assumed. */
#ifndef SG_COST_H
#define SG_COST_H

#include <stdint.h>

enum sg_cost_call {
#define COST(call, call_ns, handle_ns) SG_COST_##call,
#include "cost.def"
    SG_COST_CALLS
};

/* Of a call over n handles, each counted once for every device that is given access: call_ns + n x handle_ns. */
struct sg_cost {
    uint32_t call_ns, handle_ns;
};

struct sg_device;

/* Sets what cost.def assumes. */
void sg_cost_assume(struct sg_device *device);

/* Measures on 1 and 16 pages what the calls cost, and emits it to the observer. Nothing changes where the device has
   no room for that, or no clock was given. The device is being made ready: nobody else has it. */
void sg_cost_measure(struct sg_device *device);

/* ns of `calls` calls over `handles` handles together. */
uint64_t sg_cost_ns(const struct sg_device *device, enum sg_cost_call call, uint64_t calls, uint64_t handles);

#endif
