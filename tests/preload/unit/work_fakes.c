/* See work_fakes.h. */
#include "work_fakes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "balance.h"
#include "serve/make_room.h"
#include "track/captures.h"
#include "track/contexts.h"
#include "track/free_policy.h"

struct seen seen;
union thing thing;
struct given given;

int touches(void)
{
    return CALLS(sg_streams_submitted) + CALLS(sg_core_slot_upkeep);
}

CUstream touched(bool *ret_own)
{
    bool by_slot = CALLS(sg_core_slot_upkeep) > 0; /* it waits, and is given nothing that others could come after */
    *ret_own = by_slot ? ARGUMENT(sg_streams_track, 2) : ARGUMENT(sg_streams_submitted, 1);
    return by_slot ? POINTER(sg_streams_track, 1) : POINTER(sg_streams_submitted, 0);
}

int shows(void)
{
    return CALLS(sg_streams_host_may_observe) + CALLS(sg_streams_host_may_observe_all);
}

/* Any call of the driver, by the program. */
static uint64_t answer(const struct fakes_function *function, uint64_t result)
{
    seen.late |= seen.calls > 0 && strcmp(function->name, "sg_events_distrust") == 0;
    if (function->kind != FAKES_REAL)
        return result;
    seen.calls++;
    seen.called = fakes_symbol(function);
    seen.early |= touches() || CALLS(sg_streams_untracked_order);
    seen.shown_early = shows();
    return seen.out-- > 0 ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

static CUresult attribute_of(void *ret, CUpointer_attribute attribute, CUdeviceptr address)
{
    bool type = attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    assert_true(address == given.theirs && (type || attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL));
    memcpy(ret, type ? (void *)&given.type : (void *)&given.device, 4);
    return type ? given.type_answer : given.device_answer;
}

/* The program's has an argument, or nothing at all; a step of ours has none. */
static CUresult launch_host(CUstream stream, CUhostFn call, void *user)
{
    if (user || !call)
        return (CUresult)RECORD(fake_real.cuLaunchHostFunc, (uintptr_t)stream);
    call(user);
    seen.host_steps++;
    seen.stepped = stream;
    return CUDA_SUCCESS;
}

static CUresult create(CUevent *ret, unsigned flags)
{
    *ret = (CUevent)&seen;
    return (CUresult)RECORD(fake_driver.event_create, flags);
}

static CUresult record(CUevent event, CUstream stream)
{
    CUresult result = (CUresult)RECORD(fake_driver.event_record, (uintptr_t)event, (uintptr_t)stream);
    if (result != CUDA_SUCCESS)
        return result;
    seen.steps++;
    seen.steps_late += seen.calls > 0;
    seen.stepped = stream;
    return CUDA_SUCCESS;
}

bool sg_made_room(enum sg_room whose)
{
    seen.asked_for_room += whose == SG_ROOM_OWN;
    seen.asked_others += whose == SG_ROOM_OTHERS;
    return whose == SG_ROOM_OWN ? seen.room : seen.room_of_others;
}

bool sg_streams_track(struct sg_core *core, CUstream stream, bool per_thread, struct sg_tracked_stream *ret)
{
    (void)RECORD(sg_streams_track, (uintptr_t)core, (uintptr_t)stream, per_thread);
    *ret = (struct sg_tracked_stream){0, 1, 0};
    return !seen.unfollowed;
}

bool sg_streams_find(struct sg_core *core, CUstream stream, bool per_thread, struct sg_tracked_stream *ret)
{
    (void)core, (void)stream, (void)per_thread;
    *ret = (struct sg_tracked_stream){2, 3, 0};
    return !seen.unfollowed;
}

bool sg_core_take_aliased(struct sg_core *core, int device, sg_slot slot)
{
    (void)RECORD(sg_core_take_aliased, (uintptr_t)core);
    assert_true(device == 2 && slot == 3);
    bool aliased = seen.aliased;
    seen.aliased = false;
    return aliased;
}

bool sg_captures_capturing(CUstream stream, bool per_thread)
{
    (void)stream, (void)per_thread;
    return seen.capturing;
}

/* The rest of the library. */
struct sg_core *sg_enter(void)
{
    return balance_begin(given.no_core ? NULL : (struct sg_core *)&seen);
}

bool sg_captures_active(void)
{
    return seen.capturing;
}

bool sg_contexts_devices(void)
{
    return seen.devices;
}

CUcontext context_of(int device)
{
    return (CUcontext)(uintptr_t)(64 * (device + 1));
}

CUcontext sg_contexts_primary_of(int device)
{
    return given.no_primary ? NULL : context_of(device);
}

bool sg_process_owns(CUdeviceptr address)
{
    bool theirs = given.theirs && address == given.theirs && !given.freed;
    return (seen.devices && !theirs) || (given.ours && address == given.ours);
}

bool sg_memory_guesses(void)
{
    return !seen.devices || given.guesses;
}

bool sg_streams_shown_matters(void)
{
    return sg_following() && sg_memory_guesses();
}

/* A graph shows the host what its stream does. */
void sg_streams_graph_launched(CUstream stream, bool per_thread)
{
    sg_streams_host_may_observe(stream, per_thread);
}

bool sg_memory_hooks_record_stream(void)
{
    return given.records;
}

CUresult sg_core_block(struct sg_core *core, CUdeviceptr address, struct sg_block_info *ret)
{
    (void)core;
    int device = address != (uintptr_t)&thing;
    *ret = (struct sg_block_info){.base = address, .device = device, .context = context_of(device)};
    if (given.theirs && address == given.theirs)
        return given.freed ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_FOUND;
    return seen.devices ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

bool sg_streams_device(CUstream stream, int *ret)
{
    (void)stream;
    *ret = !given.same_device;
    return seen.devices && !given.no_device;
}

int start_afresh(void **state)
{
    (void)state;
    memset(&thing, 0, sizeof thing);
    memset(&seen, 0, sizeof seen);
    memset(&given, 0, sizeof given);
    fakes_reset(answer);
    fake_real.cuPointerGetAttribute = attribute_of;
    fake_real.cuLaunchHostFunc = launch_host;
    fake_driver.event_create = create;
    fake_driver.event_record = record;
    sg_following_order = true;
    return 0;
}
