/* Calls that give a stream work: handed on as they are, and the stream is noted after them, so that whoever knows of the
   work finds it noted. A block that is freed while its free may not ask for every stream waits only for those. */
#include <stddef.h>

#include "hooks.h"
#include "streams.h"

#define SUBMIT(symbol, per_thread, base, version, parameters, arguments, stream) \
    CUresult symbol parameters \
    { \
        CUresult result = sg_real()->symbol arguments; \
        sg_touched(stream, false); \
        return result; \
    } \
    CUresult per_thread parameters \
    { \
        CUresult result = sg_real()->per_thread arguments; \
        sg_touched(stream, true); \
        return result; \
    }
#include "submit.def"
