/* Memory that programs take from the driver by themselves: from its pools, as physical allocations, as arrays.
   Modules, contexts, graphs and first launches of a kernel take some too. It stays the driver's own, but must not
   run out because of idle memory of ours. */
#include "process/hooks.h"
#include "track/make_room.h"

#define TAKES(symbol, base, version, threads, parameters, arguments) \
    CUresult symbol parameters                                       \
    {                                                                \
        CUresult result = sg_real()->symbol arguments;               \
        SG_MAKE_ROOM_FOR(result, sg_real()->symbol arguments)               \
        return result;                                               \
    }
#include "process/external_alloc_hooks.def"
