/* Calls that give a stream work: handed on as they are, and the stream is noted after them, so that whoever knows of
   the work finds it noted. A block that is freed while its free may not ask for every stream waits only for those. The
   first launch of a kernel, and a graph's, may take memory.
   Whether a call tells the host of its stream's work is decided by NVIDIA's "API synchronization behavior" (CUDA Driver
   API): see submit.def. */
#include <stddef.h>

#include "beside.h"
#include "hooks.h"
#include "life.h"
#include "memory.h"
#include "streams.h"

/* What is written to an address that is none of ours may be written for the host to see: pinned or managed memory. */
static bool is_seen_at(CUdeviceptr address)
{
    return sg_following() && sg_memory_guesses() && !sg_life_owns(address);
}

#define HAND_ON(symbol, parameters, arguments, stream, own, tells) \
    CUresult symbol parameters \
    { \
        const bool telling = tells; \
        if (telling) \
            sg_streams_tell(stream, own); \
        CUresult result = sg_real()->symbol arguments; \
        if (sg_beside_ran_out(result)) \
            result = sg_real()->symbol arguments; \
        sg_touched(stream, own); \
        if (telling) \
            sg_streams_tell(stream, own); \
        return result; \
    }
#define SUBMIT(symbol, per_thread, base, version, parameters, arguments, stream) \
    HAND_ON(symbol, parameters, arguments, stream, false, false) \
    HAND_ON(per_thread, parameters, arguments, stream, true, false)
#define SUBMIT_TELLING(symbol, per_thread, base, version, parameters, arguments, stream) \
    HAND_ON(symbol, parameters, arguments, stream, false, sg_following()) \
    HAND_ON(per_thread, parameters, arguments, stream, true, sg_following())
#define SUBMIT_WRITING(symbol, per_thread, base, version, parameters, arguments, stream) \
    HAND_ON(symbol, parameters, arguments, stream, false, is_seen_at(dst)) \
    HAND_ON(per_thread, parameters, arguments, stream, true, is_seen_at(dst))
#include "submit.def"
