/* Calls that give a stream work. They pass through as they are, and the stream is noted after them. So a thread that
   knows of the work finds it noted. A block that is freed while its free may not ask for every stream waits only for
   noted ones. The first launch of a kernel, and a graph's, may take memory.

   NVIDIA's "API synchronization behavior" (CUDA Driver API) decides whether the host may observe a stream's work after
   a call: see launch_hooks.def. */
#include <stddef.h>

#include "check/faults.h"
#include "check/guard.h"
#include "serve/make_room.h"
#include "hooks/copy_hooks.h"
#include "process/hooks.h"
#include "process/process.h"
#include "report/refusals.h"
#include "hooks/work_note.h"
#include "track/streams.h"

/* Bytes that are written to an address that is none of ours may be meant for the host: the memory may be pinned or
   managed. */
static bool launch_is_seen_at(CUdeviceptr address)
{
    return sg_streams_shown_matters() && !sg_process_owns(address);
}

/* Calls of CUDA 2 to 12 that programs for CUDA 12 still look up. The first three work in the legacy stream unless
   they name one. */
static CUresult launch_note(CUresult result, CUstream stream)
{
    sg_fault_seen(result, "cuLaunch");
    sg_work_note(stream, /* per_thread */ false);
    return result;
}

CUresult cuLaunch(CUfunction function)
{
    return launch_note(sg_real()->cuLaunch(function), NULL);
}

CUresult cuLaunchGrid(CUfunction function, int width, int height)
{
    return launch_note(sg_real()->cuLaunchGrid(function, width, height), NULL);
}

CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream)
{
    return launch_note(sg_real()->cuLaunchGridAsync(function, width, height, stream), stream);
}

CUresult cuLaunchCooperativeKernelMultiDevice(const CUDA_LAUNCH_PARAMS *launches, unsigned count, unsigned flags)
{
    CUresult result = sg_real()->cuLaunchCooperativeKernelMultiDevice(launches, count, flags);
    for (unsigned i = 0; result == CUDA_SUCCESS && i < count; i++)
        sg_work_note(launches[i].hStream, /* per_thread */ false);
    return result;
}

/* A function of the host may wait for the program: `check` is to know while one runs. The parameters `call` and `user` are replaced. */
#define WRAPS_NOTHING (void)0
#define WRAPS_FUNCTION (sg_check_on() ? sg_held_wrap_function(&call, &user) : (void)0)
#define WRAPS_CALLBACK (sg_check_on() ? sg_held_wrap_callback(&call, &user) : (void)0)

/* `of`: what is wrapped. `address`: what may be memory of ours; 0 where nothing is. */
#define HAND_ON(symbol, parameters, arguments, stream, own, shows, of, address) \
    CUresult symbol parameters                                                  \
    {                                                                           \
        const bool visible = shows;                                             \
        if (visible)                                                            \
            sg_streams_host_may_observe(stream, own);                           \
        WRAPS_##of;                                                             \
        sg_guard_uses(address, #symbol);                                        \
        CUresult result = sg_real()->symbol arguments;                          \
        sg_fault_seen(result, #symbol);                                         \
        SG_MAKE_ROOM_FOR(result, sg_real()->symbol arguments)                   \
        sg_refusals_note_outside(result, 0, SEGALLOC_OUTSIDE_MODULES, 0);       \
        sg_work_note(stream, own);                                              \
        sg_work_used(address);                                                  \
        if (address)                                                            \
            sg_copies_used(address, stream, own);                               \
        if (visible)                                                            \
            sg_streams_host_may_observe(stream, own);                           \
        return result;                                                          \
    }
#define BOTH(symbol, per_thread, parameters, arguments, stream, shows, of, address) \
    HAND_ON(symbol, parameters, arguments, stream, false, shows, of, address)       \
    HAND_ON(per_thread, parameters, arguments, stream, true, shows, of, address)
#define SUBMIT(symbol, per_thread, base, version, parameters, arguments, stream) \
    BOTH(symbol, per_thread, parameters, arguments, stream, false, NOTHING, 0)
#define SUBMIT_VISIBLE(symbol, per_thread, base, version, parameters, arguments, stream) \
    BOTH(symbol, per_thread, parameters, arguments, stream, sg_following(), NOTHING, 0)
#define SUBMIT_FUNCTION(symbol, per_thread, base, version, parameters, arguments, stream) \
    BOTH(symbol, per_thread, parameters, arguments, stream, sg_following(), FUNCTION, 0)
#define SUBMIT_CALLBACK(symbol, per_thread, base, version, parameters, arguments, stream) \
    BOTH(symbol, per_thread, parameters, arguments, stream, sg_following(), CALLBACK, 0)
#define SUBMIT_VISIBLE_FROM(symbol, per_thread, base, version, parameters, arguments, stream) \
    BOTH(symbol, per_thread, parameters, arguments, stream, sg_following(), NOTHING, src)
#define SUBMIT_VISIBLE_TO(symbol, per_thread, base, version, parameters, arguments, stream) \
    BOTH(symbol, per_thread, parameters, arguments, stream, sg_following(), NOTHING, dst)
#define SUBMIT_WRITING(symbol, per_thread, base, version, parameters, arguments, stream) \
    BOTH(symbol, per_thread, parameters, arguments, stream, launch_is_seen_at(dst), NOTHING, dst)
#include "process/launch_hooks.def"
