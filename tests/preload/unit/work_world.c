/* See work_world.h. */
#include "work_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "balance.h"
#include "track/free_policy.h"
#include "serve/make_room.h"
#include "serve/used_streams.h"
#include "track/captures.h"
#include "track/contexts.h"
#include "track/events.h"
#include "process/process.h"
#include "track/streams.h"

struct seen seen;
union thing thing;
struct given given;
atomic_bool sg_following_order = true;

static CUresult answer(const char *name)
{
    seen.calls++;
    seen.called = name;
    seen.early |= seen.touches || seen.opaques;
    seen.shown_early = seen.shows + seen.shows_all;
    return seen.out-- > 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static CUresult attribute_of(void *ret, CUpointer_attribute attribute, CUdeviceptr address)
{
    bool type = attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    assert_true(address == given.theirs && (type || attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL));
    memcpy(ret, type ? (void *)&given.type : (void *)&given.device, 4);
    return type ? given.type_answer : given.device_answer;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define HOOK(symbol, base, version, threads, parameters) \
    static CUresult real_##symbol parameters { return answer(#symbol); }
#include "process/hooks.def"
#pragma GCC diagnostic pop

/* The program's has an argument, or nothing at all; a step of ours has none. */
static CUresult launch_host(CUstream stream, CUhostFn call, void *user)
{
    if (user || !call)
        return real_cuLaunchHostFunc(stream, call, user);
    call(user);
    seen.host_steps++;
    seen.stepped = stream;
    return CUDA_SUCCESS;
}

const struct sg_real *sg_real(void)
{
    static const struct sg_real real = {
#define HOOK(symbol, base, version, threads, parameters) .symbol = real_##symbol,
#include "process/hooks.def"
    };
    static struct sg_real asking;
    asking = real;
    asking.cuPointerGetAttribute = attribute_of;
    asking.cuLaunchHostFunc = launch_host;
    return &asking;
}

bool sg_made_room(enum sg_room whose)
{
    seen.asked_for_room += whose == SG_ROOM_OWN;
    seen.asked_others += whose == SG_ROOM_OTHERS;
    return whose == SG_ROOM_OWN ? seen.room : seen.room_of_others;
}

/* What is noted. */
void sg_streams_submitted(CUstream stream, bool per_thread)
{
    seen.touches++;
    seen.touched = stream;
    seen.touched_own = per_thread;
}

void sg_streams_host_may_observe(CUstream stream, bool per_thread)
{
    seen.shows++;
    seen.shown = stream;
    seen.shown_own = per_thread;
}

void sg_streams_host_may_observe_all(void)
{
    seen.shows_all++;
}

void sg_streams_untrack(const char *by)
{
    seen.untracked = by;
}

void sg_streams_host_observed_all(struct sg_core *core)
{
    (void)core;
    seen.shown_all++;
}

bool sg_streams_track(struct sg_core *core, CUstream stream, bool per_thread, struct sg_tracked_stream *ret)
{
    (void)core;
    *ret = (struct sg_tracked_stream){0, 1, 0};
    seen.opaque = stream;
    seen.opaque_own = per_thread;
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
    (void)core;
    assert_true(device == 2 && slot == 3);
    bool aliased = seen.aliased;
    seen.asked_for_aliases++;
    seen.aliased = false;
    return aliased;
}

static CUresult create(CUevent *ret, unsigned flags)
{
    (void)flags;
    *ret = (CUevent)&seen;
    return given.create;
}

static CUresult record(CUevent event, CUstream stream)
{
    (void)event;
    if (given.record != CUDA_SUCCESS)
        return given.record;
    seen.steps++;
    seen.steps_late += seen.calls > 0;
    seen.stepped = stream;
    return CUDA_SUCCESS;
}

static CUresult destroy(CUevent event)
{
    (void)event;
    return CUDA_SUCCESS;
}

const struct sg_driver *sg_process_driver(void)
{
    static const struct sg_driver driver = {.event_create = create, .event_record = record, .event_destroy = destroy};
    return &driver;
}

bool sg_captures_capturing(CUstream stream, bool per_thread)
{
    (void)stream, (void)per_thread;
    return seen.capturing;
}

void sg_streams_waited_early(void)
{
    seen.waited_early++;
}

void sg_streams_untracked_order(struct sg_core *core, const struct sg_tracked_stream *place)
{
    (void)core, (void)place;
    seen.opaques++;
}

void sg_core_slot_submitted(struct sg_core *core, int device, sg_slot slot)
{
    (void)core, (void)device, (void)slot;
    seen.touches++;
    seen.touched = seen.opaque;
    seen.touched_own = seen.opaque_own;
}

void sg_events_distrust(CUevent event)
{
    seen.taints++;
    seen.late |= seen.calls > 0;
    seen.tainted = event;
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

void sg_core_used_cross_device(struct sg_core *core, CUdeviceptr address)
{
    (void)core, (void)address;
    seen.abroad++;
}

void sg_memory_served_cross_device(void)
{
    seen.served_abroad++;
}

CUresult sg_memory_record_stream(struct sg_core *core, CUdeviceptr address, CUstream stream)
{
    (void)core, (void)address, (void)stream;
    seen.recorded++;
    return CUDA_SUCCESS;
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
    sg_following_order = true;
    return 0;
}
