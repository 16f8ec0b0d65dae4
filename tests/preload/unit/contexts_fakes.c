/* See contexts_fakes.h. */
#include "contexts_fakes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "balance.h"
#include "serve/make_room.h"

struct fake fake;

/* The driver. */
static CUresult get_current(CUcontext *ret)
{
    *ret = fake.current;
    return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *ret)
{
    *ret = fake.current == LAST ? SG_DEVICES_MAX - 1 : fake.current == FAR;
    return fake.get_device;
}

static CUcontext below;

static CUresult push(CUcontext context)
{
    if (fake.push != CUDA_SUCCESS)
        return fake.push;
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
    return fake.state;
}

static CUresult get_id(CUcontext context, unsigned long long *ret)
{
    (void)context;
    *ret = fake.id;
    return fake.id ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult give(CUcontext *ret, CUcontext context, CUresult result)
{
    if (fake.out-- > 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (ret)
        *ret = context;
    return result;
}

/* Answers calls that make a context or may end one, and follows their announcements to the core. */
static uint64_t answer(const struct fakes_function *function, uint64_t result)
{
    const char *name = fakes_symbol(function);
    CUcontext *ret = (CUcontext *)(uintptr_t)function->argument[0];
    if (strcmp(name, "sg_core_context_seen") == 0 && fake.meanwhile) {
        void (*meanwhile)(void) = fake.meanwhile;
        fake.meanwhile = NULL;
        balance_elsewhere(meanwhile);
    } else if (strcmp(name, "sg_core_context_ending") == 0) {
        fake.ending_calls += function->argument[2] ? 1 : -1;
    }
    if (function->kind == FAKES_LIBRARY)
        return result;
    if (strstr(name, "CtxCreate"))
        return give(ret, fake.next, fake.created);
    if (strstr(name, "Retain") || strstr(name, "retain"))
        return give(ret, PRIMARY, fake.retained);
    if (strstr(name, "FromGreen") && ret)
        *ret = OF_GREEN;
    if (strstr(name, "FromGreen"))
        return fake.from_green;
    if (!strstr(name, "PeerAccess")) {
        fake.during = fake.ending_calls > 0;
        fake.trims_before = CALLS(sg_core_trim);
        if (strstr(name, "Detach") && fake.destroyed == CUDA_SUCCESS && --fake.users == 0)
            fake.id = 0;
        return fake.destroyed;
    }
    return result;
}

static CUresult api_version(CUcontext context, unsigned *ret)
{
    (void)context;
    *ret = 3020;
    return fake.users > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

const struct sg_driver *sg_process_driver(void)
{
    fake_driver.ctx_get_id = fake.ids ? get_id : NULL;
    return fake.no_driver ? NULL : &fake_driver;
}

/* The rest of the library. */
struct sg_core *sg_process_core(void)
{
    return fake.no_core ? NULL : (struct sg_core *)&fake;
}

struct sg_core *sg_process_core_made(void)
{
    return sg_process_core();
}

struct sg_core *sg_enter(void)
{
    return balance_begin(sg_process_core());
}

bool sg_made_room_by(struct sg_core *core)
{
    return core && fake.room-- > 0;
}

void sg_context_pins_rest(void)
{
    (void)RECORD(sg_context_pins_rest, 0);
    if (fake.ending_elsewhere && !fake.ending_on) {
        sg_process_lock(SG_LOCK_CONTEXTS);
        sg_context_ending_locked(fake.ending_elsewhere, -1);
        sg_process_unlock(SG_LOCK_CONTEXTS);
        fake.ending_elsewhere = NULL;
    }
}

int start(void **state)
{
    CUcontext context;
    (void)state;
    memset(&fake, 0, sizeof fake);
    fakes_reset(answer);
    fake_driver.ctx_get_current = get_current;
    fake_driver.ctx_get_device = get_device;
    fake_driver.ctx_push = push;
    fake_driver.ctx_pop = pop;
    fake_driver.primary_state = primary_state;
    fake_driver.ctx_api_version = api_version;
    memset(&sg_self, 0, sizeof sg_self);
    fake.active = 1;
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    assert_ptr_equal(POINTER(sg_core_context_seen, 2), PRIMARY);
    return 0;
}

int end(void **state)
{
    (void)state;
    fake.destroyed = CUDA_SUCCESS;
    (void)cuGreenCtxDestroy(GREEN);
    (void)cuCtxDestroy_v2(MADE);
    (void)cuCtxDestroy_v2(FAR);
    (void)cuCtxDestroy_v2(LAST);
    (void)cuDevicePrimaryCtxReset_v2(0);
    return sg_contexts_any(0) || sg_contexts_any(1) || sg_contexts_any(SG_DEVICES_MAX - 1);
}

void make(CUcontext context, int device)
{
    CUcontext ret;
    fake.next = context;
    assert_int_equal(cuCtxCreate_v2(&ret, 0, device), CUDA_SUCCESS);
    assert_ptr_equal(POINTER(sg_core_context_seen, 2), context);
}
