/* Contexts as they come and end, against a driver and a core made up here: who is told, and in which order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "beside.h"
#include "captures.h"
#include "contexts.h"
#include "events.h"
#include "graphs.h"
#include "hooks.h"
#include "life.h"
#include "streams.h"
#include "users.h"

static CUcontext const primary = (CUcontext)64, made = (CUcontext)128, far = (CUcontext)192, of_green = (CUcontext)256;
static CUgreenCtx const green = (CUgreenCtx)320;

static struct {
    CUcontext current, next;  /* the context that is made next */
    CUdevice device;          /* of the current context */
    int active;               /* the primary context still is, after a release */
    CUresult destroyed;       /* what the driver answers */

    CUcontext seen, ending, ended; /* what the core was told of last */
    int ending_calls, gone;   /* calls under way that may end one; contexts that are gone */
    CUcontext streams, events, captures, graphs; /* who heard of its end */
    bool during;              /* the core knew while the driver was called */
    bool streams_first;       /* the streams heard of the end before the core */
    int peer_calls;
    bool peers;
} fake;

_Atomic unsigned sg_life_gate;
atomic_uint sg_users_changes;
__thread struct sg_thread sg_self;
__thread struct sg_thread *sg_self_found;

/* The driver. */
static CUresult get_current(CUcontext *ret)
{
    *ret = fake.current;
    return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *ret)
{
    *ret = fake.current == far ? 1 : 0;
    return CUDA_SUCCESS;
}

static CUcontext below;

static CUresult push(CUcontext context)
{
    below = fake.current;
    fake.current = context;
    return CUDA_SUCCESS;
}

static CUresult pop(CUcontext *ret)
{
    *ret = fake.current;
    fake.current = below;
    return CUDA_SUCCESS;
}

static CUresult primary_state(CUdevice device, unsigned *flags, int *active)
{
    (void)device, (void)flags;
    *active = fake.active;
    return CUDA_SUCCESS;
}

static CUresult retain(CUcontext *ret, CUdevice device)
{
    (void)device;
    *ret = primary;
    return CUDA_SUCCESS;
}

static CUresult end_primary(CUdevice device)
{
    (void)device;
    fake.during = fake.ending_calls > 0;
    return fake.destroyed;
}

const struct sg_driver *sg_life_driver(void)
{
    static const struct sg_driver driver = {.ctx_get_current = get_current, .ctx_get_device = get_device,
        .ctx_push = push, .ctx_pop = pop, .primary_state = primary_state, .primary_retain = retain,
        .primary_release = end_primary};
    return &driver;
}

static CUresult create(CUcontext *ret, unsigned flags, CUdevice device)
{
    (void)flags, (void)device;
    *ret = fake.next;
    return CUDA_SUCCESS;
}

static CUresult destroy(CUcontext context)
{
    (void)context;
    fake.during = fake.ending_calls > 0;
    return fake.destroyed;
}

static CUresult from_green(CUcontext *ret, CUgreenCtx asked)
{
    (void)asked;
    *ret = of_green;
    return CUDA_SUCCESS;
}

static CUresult destroy_green(CUgreenCtx asked)
{
    (void)asked;
    return fake.destroyed;
}

static CUresult enable(CUcontext peer, unsigned flags)
{
    (void)peer, (void)flags;
    return CUDA_SUCCESS;
}

static CUresult disable(CUcontext peer)
{
    (void)peer;
    return CUDA_SUCCESS;
}

const struct sg_real *sg_real(void)
{
    static const struct sg_real real = {.cuCtxCreate_v2 = create, .cuCtxDestroy_v2 = destroy,
        .cuDevicePrimaryCtxRetain = retain, .cuDevicePrimaryCtxRelease_v2 = end_primary,
        .cuDevicePrimaryCtxReset_v2 = end_primary, .cuCtxFromGreenCtx = from_green, .cuGreenCtxDestroy = destroy_green,
        .cuCtxEnablePeerAccess = enable, .cuCtxDisablePeerAccess = disable};
    return &real;
}

/* The core. */
void sg_core_context_seen(struct sg_core *core, int device, CUcontext context)
{
    (void)core, (void)device;
    fake.seen = context;
}

void sg_core_context_forget(struct sg_core *core, CUcontext context)
{
    (void)core, (void)context;
}

void sg_core_context_ending(struct sg_core *core, CUcontext context, bool ending)
{
    (void)core;
    fake.ending = context;
    fake.ending_calls += ending ? 1 : -1;
}

void sg_core_context_gone(struct sg_core *core, int device, CUcontext context)
{
    (void)core, (void)device;
    fake.streams_first = fake.streams == context;
    fake.ended = context;
    fake.gone++;
}

size_t sg_core_trim(struct sg_core *core, int device, size_t keep)
{
    (void)core, (void)device, (void)keep;
    return 0;
}

CUresult sg_core_peer_access(struct sg_core *core, int device, int peer, bool allow)
{
    (void)core, (void)device, (void)peer;
    fake.peer_calls++;
    fake.peers = allow;
    return CUDA_SUCCESS;
}

/* The rest of the library. */
struct sg_core *sg_begin(void)
{
    return (struct sg_core *)&fake;
}

struct sg_core *sg_life_core(void)
{
    return (struct sg_core *)&fake;
}

struct sg_core *sg_life_core_made(void)
{
    return (struct sg_core *)&fake;
}

void sg_end(void)
{
}

void sg_life_recover(void)
{
}

bool sg_thread_inside(void)
{
    return false;
}

void sg_guard(enum sg_guard guard)
{
    (void)guard;
}

void sg_unguard(enum sg_guard guard)
{
    (void)guard;
}

bool sg_beside_made_room_by(struct sg_core *core)
{
    (void)core;
    return false;
}

void sg_streams_told_all(struct sg_core *core)
{
    (void)core;
}

void sg_streams_context_gone(CUcontext context)
{
    fake.streams = context;
}

void sg_events_context_gone(CUcontext context)
{
    fake.events = context;
}

void sg_captures_context_gone(CUcontext context)
{
    fake.captures = context;
}

void sg_graphs_context_gone(CUcontext context)
{
    fake.graphs = context;
}

void sg_users_seen(CUcontext context)
{
    (void)context;
}

void sg_users_gone(CUcontext context)
{
    (void)context;
}

void sg_users_ending(CUcontext context, int more)
{
    (void)context, (void)more;
}

bool sg_users_any(CUcontext context)
{
    (void)context;
    return false;
}

bool sg_users_is_ending(CUcontext context)
{
    (void)context;
    return false;
}

void sg_users_rest(void)
{
}

void sg_users_expect(void)
{
}

/* The program, which has a primary context. */
static int start(void **state)
{
    CUcontext context;
    (void)state;
    memset(&fake, 0, sizeof fake);
    memset(&sg_self, 0, sizeof sg_self);
    fake.active = 1;
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    assert_ptr_equal(fake.seen, primary);
    return 0;
}

static int end(void **state)
{
    (void)state;
    fake.destroyed = CUDA_SUCCESS;
    (void)cuGreenCtxDestroy(green);
    (void)cuCtxDestroy_v2(made);
    (void)cuCtxDestroy_v2(far);
    (void)cuDevicePrimaryCtxReset_v2(0);
    return sg_contexts_any(0) || sg_contexts_any(1);
}

static void make(CUcontext context, int device)
{
    CUcontext ret;
    fake.next = context;
    assert_int_equal(cuCtxCreate_v2(&ret, 0, device), CUDA_SUCCESS);
    assert_ptr_equal(fake.seen, context);
}

static void all_hear_of_its_end(void **state)
{
    (void)state;
    make(made, 0);
    unsigned gate = atomic_load(&sg_life_gate);
    assert_int_equal(cuCtxDestroy_v2(made), CUDA_SUCCESS);
    assert_true(fake.during);
    assert_ptr_equal(fake.ending, made);
    assert_ptr_equal(fake.streams, made);
    assert_ptr_equal(fake.events, made);
    assert_ptr_equal(fake.captures, made);
    assert_ptr_equal(fake.graphs, made);
    assert_ptr_equal(fake.ended, made);
    assert_true(fake.streams_first);
    assert_int_not_equal(atomic_load(&sg_life_gate), gate);
}

static void lives_on_where_the_driver_refuses(void **state)
{
    (void)state;
    make(made, 0);
    fake.destroyed = CUDA_ERROR_INVALID_VALUE;
    assert_int_equal(cuCtxDestroy_v2(made), CUDA_ERROR_INVALID_VALUE);
    assert_true(fake.during);
    assert_int_equal(fake.ending_calls, 0);
    assert_int_equal(fake.gone, 0);
    assert_null(fake.streams);
}

static void primary_one_ends_with_its_last_release(void **state)
{
    (void)state;
    assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
    assert_true(fake.during);
    assert_int_equal(fake.ending_calls, 0);
    assert_int_equal(fake.gone, 0);
    fake.active = 0;
    assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
    assert_int_equal(fake.gone, 1);
    assert_ptr_equal(fake.ended, primary);
}

static void primary_one_ends_with_a_reset(void **state)
{
    (void)state;
    assert_int_equal(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
    assert_int_equal(fake.gone, 1);
}

static void primary_one_stands_for_all_where_it_is_the_only_one(void **state)
{
    CUcontext context;
    (void)state;
    assert_true(sg_contexts_stands_for_all(primary));
    assert_false(sg_contexts_devices());
    make(far, 1);
    assert_true(sg_contexts_stands_for_all(primary));
    assert_true(sg_contexts_devices());
    assert_false(sg_contexts_stands_for_all(far)); /* it is no primary one: others could come unseen */
    assert_int_equal(cuCtxFromGreenCtx(&context, green), CUDA_SUCCESS);
    assert_true(sg_contexts_stands_for_all(primary));
    make(made, 0);
    assert_false(sg_contexts_stands_for_all(primary));
    assert_false(sg_contexts_stands_for_all(made));
}

/* The core knows the primary one alone; all others know the green one too. */
static void green_one_is_not_the_cores(void **state)
{
    CUcontext context;
    (void)state;
    assert_false(sg_contexts_green(of_green));
    assert_int_equal(cuCtxFromGreenCtx(&context, green), CUDA_SUCCESS);
    assert_ptr_equal(fake.seen, primary);
    assert_true(sg_contexts_green(of_green));
    assert_int_equal(cuGreenCtxDestroy(green), CUDA_SUCCESS);
    assert_ptr_equal(fake.streams, of_green);
    assert_ptr_equal(fake.events, of_green);
    assert_int_equal(fake.gone, 0);
    assert_null(fake.ending);
    assert_false(sg_contexts_green(of_green));
}

/* A handle is used again; what a thread remembers of it ends with the context. */
static void handle_is_looked_at_anew_after_an_end(void **state)
{
    CUcontext context;
    int device;
    (void)state;
    make(far, 1);
    fake.current = far;
    assert_int_equal(sg_contexts_current(sg_begin(), &context, &device), CUDA_SUCCESS);
    assert_int_equal(device, 1);
    assert_int_equal(cuCtxDestroy_v2(far), CUDA_SUCCESS);
    fake.seen = NULL;
    assert_int_equal(sg_contexts_current(sg_begin(), &context, &device), CUDA_SUCCESS);
    assert_ptr_equal(fake.seen, far);
}

/* Also one that is made later. */
static void core_hears_of_access_between_devices(void **state)
{
    (void)state;
    make(far, 1);
    fake.current = primary;
    assert_int_equal(cuCtxEnablePeerAccess(far, 0), CUDA_SUCCESS);
    assert_int_equal(fake.peer_calls, 1);
    assert_true(fake.peers);
    sg_contexts_tell(sg_begin());
    assert_int_equal(fake.peer_calls, 2);
    assert_int_equal(cuCtxDisablePeerAccess(far), CUDA_SUCCESS);
    assert_int_equal(fake.peer_calls, 3);
    assert_false(fake.peers);
    sg_contexts_tell(sg_begin());
    assert_int_equal(fake.peer_calls, 3);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(all_hear_of_its_end),
        TEST(lives_on_where_the_driver_refuses),
        TEST(primary_one_ends_with_its_last_release),
        TEST(primary_one_ends_with_a_reset),
        TEST(primary_one_stands_for_all_where_it_is_the_only_one),
        TEST(green_one_is_not_the_cores),
        TEST(handle_is_looked_at_anew_after_an_end),
        TEST(core_hears_of_access_between_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
