/* Calls that give a stream work: handed on as they are, and the stream is noted after them, so that whoever knows of
   the work finds it noted. A block that is freed while its free may not ask for every stream waits only for those. The
   first launch of a kernel, and a graph's, may take memory. */
#include <stddef.h>

#include "beside.h"
#include "hooks.h"
#include "streams.h"

static void told(CUstream stream, bool per_thread)
{
    sg_touched(stream, per_thread);
    if (sg_following())
        sg_streams_tell(stream, per_thread);
}

#define HAND_ON(symbol, parameters, arguments, stream, own, note) \
    CUresult symbol parameters \
    { \
        CUresult result = sg_real()->symbol arguments; \
        if (sg_beside_ran_out(result)) \
            result = sg_real()->symbol arguments; \
        note(stream, own); \
        return result; \
    }
#define SUBMIT(symbol, per_thread, base, version, parameters, arguments, stream) \
    HAND_ON(symbol, parameters, arguments, stream, false, sg_touched) \
    HAND_ON(per_thread, parameters, arguments, stream, true, sg_touched)
#define SUBMIT_TELLING(symbol, per_thread, base, version, parameters, arguments, stream) \
    HAND_ON(symbol, parameters, arguments, stream, false, told) \
    HAND_ON(per_thread, parameters, arguments, stream, true, told)
#include "submit.def"
