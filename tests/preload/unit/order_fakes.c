/* See order_fakes.h. */
#include "order_fakes.h"

#include <string.h>

#include "balance.h"

struct fake fake;

static struct sg_core *core(void)
{
    return (struct sg_core *)&fake;
}

CUstream stream_of(uintptr_t number)
{
    return (CUstream)(number * 16);
}

CUevent event_of(uintptr_t number)
{
    return (CUevent)(number * 64);
}

/* Each call of the driver by the program answers the same. */
static uint64_t answer(const struct fakes_function *function, uint64_t result)
{
    void (*meanwhile)(void) = fake.meanwhile;
    if (strcmp(function->name, "sg_core_host_observed") == 0) {
        bool all = function->argument[2] == 0; /* no clock */
        fake.tolds += all;
        fake.told_some += !all;
        fake.told_devices |= all ? 1u << function->argument[1] : 0;
    }
    if (function->kind != FAKES_REAL)
        return result;
    fake.meanwhile = NULL;
    if (meanwhile)
        balance_elsewhere(meanwhile);
    return fake.answer;
}

void capture(bool begins)
{
    ANSWER(sg_captures_active, begins);
    ANSWER(sg_captures_capturing, begins);
}

/* The driver. */
static CUresult get_id(CUstream stream, unsigned long long *ret)
{
    uintptr_t others = fake.current ? fake.current - 1 : 0;
    *ret = (uintptr_t)stream < 16 ? 900 + (uintptr_t)stream + 10 * others : fake.ids[(uintptr_t)stream / 16];
    return fake.id_answer;
}

static CUresult get_context(CUstream stream, CUcontext *ret)
{
    uintptr_t number = (uintptr_t)stream / 16;
    *ret = number < THIRD ? (CUcontext)1 : number < SECOND ? (CUcontext)3 : (CUcontext)2;
    return fake.context_answer;
}

static CUresult get_flags(CUstream stream, unsigned *ret)
{
    void (*meanwhile)(void) = fake.when_asked;
    (void)stream;
    fake.when_asked = NULL;
    if (meanwhile) {
        sg_leave();
        balance_elsewhere(meanwhile);
        (void)sg_enter();
    }
    *ret = fake.flags;
    return fake.flags_answer;
}

static CUresult get_current(CUcontext *ret)
{
    *ret = (CUcontext)(fake.current ? fake.current : 1);
    return fake.current_answer;
}

const struct sg_driver *sg_process_driver(void)
{
    static const struct sg_driver old = {.ctx_get_current = get_current};
    return fake.old ? &old : &fake_driver;
}

struct sg_core *sg_process_core(void)
{
    return fake.live ? core() : NULL;
}

struct sg_core *sg_enter(void)
{
    return balance_begin(sg_self.inside ? NULL : core());
}

bool sg_thread_inside(void)
{
    return sg_self.inside;
}

/* The contexts. */
CUcontext sg_contexts_only(void)
{
    return fake.current ? NULL : (CUcontext)1;
}

bool sg_contexts_device(CUcontext context, int *ret)
{
    *ret = context == (CUcontext)2; /* the second context is the second device's */
    return !fake.strange;
}

bool sg_contexts_stands_for_all(CUcontext context)
{
    return context == (CUcontext)1;
}

CUresult cuCtxFromGreenCtx(CUcontext *ret, CUgreenCtx green)
{
    (void)ret, (void)green;
    return CUDA_ERROR_NOT_SUPPORTED;
}

const struct sg_conf *sg_process_conf(void)
{
    static struct sg_conf conf;
    conf.free_sync = fake.free_sync;
    return &conf;
}

/* The core. */
sg_slot sg_core_slot(struct sg_core *unused, int device, const struct sg_stream_id *id)
{
    (void)unused, (void)device;
    fake.id = *id;
    if (!fake.no_slots && !fake.slots[id->key])
        fake.slots[id->key] = ++fake.next_slot;
    return fake.slots[id->key];
}

void sg_core_clock(struct sg_core *unused, int device, sg_slot slot, struct sg_vector_clock *ret)
{
    (void)unused, (void)device;
    *ret = (struct sg_vector_clock){{0}};
    ret->at[slot] = ++fake.time;
}

void sg_core_idle_clock(struct sg_core *unused, int device, sg_slot slot, struct sg_vector_clock *ret_told,
    uint64_t *ret_done)
{
    sg_core_clock(unused, device, slot, ret_told);
    *ret_done = ret_told->at[slot];
}

void sg_core_context_clock(struct sg_core *unused, int device, CUcontext context, struct sg_vector_clock *ret)
{
    (void)RECORD(sg_core_context_clock, (uintptr_t)unused, (uint64_t)device, (uintptr_t)context);
    *ret = (struct sg_vector_clock){{++fake.time}};
}

static struct latest latest_of(struct sg_vector_clock clock)
{
    struct latest ret = {.all = clock.at[0] != 0};
    for (sg_slot i = 1; i < SG_SLOTS; i++)
        ret.slot = clock.at[i] > clock.at[ret.slot] ? i : ret.slot;
    ret.time = clock.at[ret.slot];
    return ret;
}

struct latest latest_waited(void)
{
    return latest_of(BEHIND(sg_core_ordered_after, struct sg_vector_clock));
}

struct latest latest_completed(void)
{
    return latest_of(BEHIND(sg_core_completed, struct sg_vector_clock));
}

static int start(bool late)
{
    unsigned long long ids;
    for (uintptr_t i = 1; i < 64; i++) { /* the streams and events of the test before are gone */
        for (uintptr_t context = 1; fake.next_slot && context <= 3; context++)
            sg_streams_context_gone((CUcontext)context);
        cuEventDestroy_v2(event_of(i));
    }
    ids = fake.next_id;
    memset(&fake, 0, sizeof fake);
    fakes_reset(answer);
    fake_driver.stream_get_id = get_id;
    fake_driver.stream_get_ctx = get_context;
    fake_driver.stream_get_flags = get_flags;
    fake_driver.ctx_get_current = get_current;
    ANSWER(sg_process_owns, true);
    ANSWER(sg_memory_guesses, true);
    ANSWER(sg_contexts_primary_of, 1);
    ANSWER(sg_contexts_of_green, 1);
    fake.next_id = ids;
    fake.flags = CU_STREAM_NON_BLOCKING;
    fake.live = late;
    for (int i = 1; i < 64; i++)
        fake.ids[i] = ++fake.next_id % 800 + 1;
    sg_follow();
    fake.live = true;
    sg_streams_serve(0);
    sg_streams_serve(1);
    CUevent event;
    for (uintptr_t i = 1; i < 64; i++) {
        event = event_of(i);
        cuEventCreate(&event, 0);
    }
    return 0;
}

int start_afresh(void **state)
{
    (void)state;
    return start(/* late */ false);
}

int start_late(void **state)
{
    (void)state;
    return start(/* late */ true);
}

sg_slot slot_of(uintptr_t number)
{
    return fake.slots[fake.ids[number]];
}
