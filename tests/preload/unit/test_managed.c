/* Managed memory, against a driver and a core made up here: what is idle makes room before it is made or fetched, for as
   much as lacks and on the device that it is for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "fakes.h"
#include "services/outside_trace.h"

#include "inspect/core_state.h"
#include "serve/deferred_frees.h"
#include "serve/make_room.h"
#include "track/captures.h"
#include "track/contexts.h"
#include "process/hooks.h"
#include "process/process.h"
#include "track/streams.h"
#include "track/context_pins.h"

atomic_int sg_captures_deferred, sg_graphs_gone;
atomic_bool sg_following_order;

enum { TOTAL = 1000, DEVICES = 2 };

static struct {
    size_t idle[DEVICES], allocated[DEVICES], others[DEVICES];
    int current, inside, trims, settled, entered, calls, touched;
    CUresult context, answer;
    bool live, no_core, unknown, gone, stingy, own;
    size_t left; /* idle when the driver was asked */
} fake;

static size_t unused(int device)
{
    return TOTAL - fake.idle[device] - fake.allocated[device] - fake.others[device];
}

static CUresult answer(void)
{
    fake.calls++;
    fake.left = fake.idle[0] + fake.idle[1];
    assert_int_equal(fake.inside + fake.entered, 0);
    CUresult result = fake.answer;
    fake.answer = CUDA_SUCCESS;
    return result;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
static CUresult make(CUdeviceptr *ret, size_t bytes, unsigned flags) { return answer(); }
static CUresult fetch(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream) { return answer(); }
static CUresult fetch_2(CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned flags, CUstream stream)
{
    return answer();
}
static CUresult fetch_all(CUdeviceptr *addresses, size_t *bytes, size_t count, CUmemLocation *locations, size_t *firsts,
    size_t location_count, unsigned long long flags, CUstream stream)
{
    return answer();
}
#pragma GCC diagnostic pop

const struct sg_real *sg_real(void)
{
    static const struct sg_real real = {.cuMemAllocManaged = make, .cuMemPrefetchAsync = fetch,
        .cuMemPrefetchAsync_ptsz = fetch, .cuMemPrefetchAsync_v2 = fetch_2, .cuMemPrefetchAsync_v2_ptsz = fetch_2,
        .cuMemPrefetchBatchAsync = fetch_all, .cuMemPrefetchBatchAsync_ptsz = fetch_all,
        .cuMemDiscardAndPrefetchBatchAsync = fetch_all, .cuMemDiscardAndPrefetchBatchAsync_ptsz = fetch_all};
    return &real;
}

static CUresult mem_info(size_t *ret_free, size_t *ret_total)
{
    if (fake.unknown)
        return CUDA_ERROR_INVALID_CONTEXT;
    *ret_free = unused(fake.entered ? 1 - fake.current : fake.current);
    *ret_total = TOTAL;
    return CUDA_SUCCESS;
}

const struct sg_driver *sg_process_driver(void)
{
    static const struct sg_driver driver = {.mem_info = mem_info};
    return &driver;
}

struct sg_core *sg_enter(void)
{
    fake.inside += !fake.no_core;
    return fake.no_core ? NULL : (struct sg_core *)&fake;
}

void sg_leave(void)
{
    fake.inside--;
}

bool sg_captures_active(void)
{
    return fake.live;
}

bool sg_made_room(enum sg_room whose)
{
    (void)whose;
    return true;
}

void sg_memory_settle(struct sg_core *core)
{
    (void)core;
    fake.settled++;
}

CUresult sg_contexts_current(struct sg_core *core, CUcontext *ret_context, int *ret_device)
{
    (void)core;
    *ret_context = NULL;
    *ret_device = fake.current;
    return fake.context;
}

CUcontext sg_contexts_any(int device)
{
    return (CUcontext)(uintptr_t)(device + 1);
}

int sg_context_pin_current(CUcontext context)
{
    if (fake.gone)
        return -1;
    assert_int_equal((uintptr_t)context, 2 - fake.current);
    fake.entered++;
    return 7;
}

void sg_context_unpin_current(int use)
{
    assert_int_equal(use, 7);
    fake.entered--;
}

bool sg_core_stats(struct sg_core *core, int device, struct sg_stats *ret)
{
    (void)core;
    memset(ret, 0, sizeof *ret);
    if (device >= DEVICES)
        return false;
    ret->value[SG_STAT_reserved_bytes] = fake.idle[device] + fake.allocated[device];
    ret->value[SG_STAT_allocated_bytes] = fake.allocated[device];
    return true;
}

/* With `stingy` a hundred at a time, and the last hundred cannot be given. */
size_t sg_core_trim(struct sg_core *core, int device, size_t keep)
{
    (void)core;
    size_t given = fake.idle[device] > keep ? fake.idle[device] - keep : 0;
    if (fake.stingy)
        given = fake.idle[device] > 100 && given ? 100 : 0;
    fake.idle[device] -= given;
    fake.trims++;
    return given;
}

void sg_streams_submitted(CUstream stream, bool per_thread)
{
    assert_int_equal((uintptr_t)stream, 9);
    fake.own = per_thread;
    fake.touched++;
}

static int start(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    ANSWER(sg_outside_given, -1);
    ANSWER(sg_outside_pool_device, -1);
    fake.idle[0] = 600;
    fake.idle[1] = 500;
    fake.allocated[0] = fake.others[0] = 100;
    atomic_store(&sg_following_order, true);
    return 0;
}

static const CUmemLocation HERE = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, THERE = {CU_MEM_LOCATION_TYPE_DEVICE, 1},
                           HOST = {CU_MEM_LOCATION_TYPE_HOST, 0};
#define STREAM ((CUstream)9)

static void as_much_is_given_back_as_lacks(void **state)
{
    CUdeviceptr address;
    (void)state;
    assert_int_equal(cuMemAllocManaged(&address, 200, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    assert_int_equal(fake.trims, 0);
    assert_int_equal(cuMemAllocManaged(&address, 500, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    assert_true(fake.left == 300 + 500 && fake.settled == 2);
    assert_int_equal(cuMemAllocManaged(&address, 5000, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    assert_int_equal(fake.left, 500); /* none that is idle there */
    assert_int_equal(fake.calls, 3);
    fake.answer = CUDA_ERROR_OUT_OF_MEMORY; /* of something else */
    assert_int_equal(cuMemAllocManaged(&address, 1, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    assert_int_equal(fake.calls, 5);
    fake.answer = CUDA_ERROR_INVALID_VALUE;
    assert_int_equal(cuMemAllocManaged(&address, 0, 0), CUDA_ERROR_INVALID_VALUE);
}

static void goes_on_while_there_is_any(void **state)
{
    CUdeviceptr address;
    (void)state;
    fake.stingy = true;
    assert_int_equal(cuMemAllocManaged(&address, 400, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    assert_true(fake.trims == 2 && fake.idle[0] == 400);
    assert_int_equal(cuMemAllocManaged(&address, 1000, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    assert_true(fake.trims == 6 && fake.idle[0] == 100);
}

static void room_is_made_where_it_is_fetched_to(void **state)
{
    (void)state;
    assert_int_equal(cuMemPrefetchAsync(1, 600, 1, STREAM), CUDA_SUCCESS);
    assert_true(fake.left == 600 + 400 && !fake.own);
    assert_int_equal(cuMemPrefetchAsync_ptsz(1, 700, 1, STREAM), CUDA_SUCCESS);
    assert_true(fake.left == 600 + 300 && fake.own);
    assert_int_equal(cuMemPrefetchAsync_v2(1, 800, THERE, 0, STREAM), CUDA_SUCCESS);
    assert_int_equal(fake.left, 600 + 200);
    fake.current = 1;
    assert_int_equal(cuMemPrefetchAsync_v2_ptsz(1, 300, HERE, 0, STREAM), CUDA_SUCCESS);
    assert_int_equal(fake.left, 500 + 200);
    assert_int_equal(fake.touched, 4);
    fake.answer = CUDA_ERROR_OUT_OF_MEMORY;
    assert_int_equal(cuMemPrefetchAsync(1, 1, 1, STREAM), CUDA_SUCCESS);
    assert_int_equal(fake.calls, 6);
}

/* Each of the calls is made again where room was made after it found none. */
static void each_is_tried_again(void **state)
{
    CUdeviceptr address[1] = {0};
    size_t bytes[1] = {1}, firsts[1] = {0};
    CUmemLocation to[1] = {HERE};
    (void)state;
#define AGAIN(symbol, ...)                                                  \
    do {                                                                    \
        int before = fake.calls;                                            \
        fake.answer = CUDA_ERROR_OUT_OF_MEMORY;                             \
        assert_int_equal(symbol(__VA_ARGS__, STREAM), CUDA_SUCCESS);        \
        assert_int_equal(fake.calls, before + 2);                           \
        fake.answer = CUDA_ERROR_OUT_OF_MEMORY;                             \
        assert_int_equal(symbol##_ptsz(__VA_ARGS__, STREAM), CUDA_SUCCESS); \
        assert_int_equal(fake.calls, before + 4);                           \
    } while (0)
    AGAIN(cuMemPrefetchAsync, 1, 1, 1);
    AGAIN(cuMemPrefetchAsync_v2, 1, 1, THERE, 0);
    AGAIN(cuMemPrefetchBatchAsync, address, bytes, 1, to, firsts, 1, 0);
    AGAIN(cuMemDiscardAndPrefetchBatchAsync, address, bytes, 1, to, firsts, 1, 0);
#undef AGAIN
}

static void batches_are_for_several_devices(void **state)
{
    CUdeviceptr address[4] = {0};
    size_t bytes[4] = {200, 150, 5000, 600}, firsts[3] = {0, 2, 3};
    CUmemLocation to[3] = {HERE, HOST, THERE};
    (void)state;
    assert_int_equal(cuMemPrefetchBatchAsync(address, bytes, 4, to, firsts, 3, 0, STREAM), CUDA_SUCCESS);
    assert_true(fake.idle[0] == 450 && fake.idle[1] == 400);
    bytes[0] = bytes[1] = SIZE_MAX; /* the driver says what is wrong with it */
    assert_int_equal(cuMemPrefetchBatchAsync_ptsz(address, bytes, 4, to, firsts, 3, 0, STREAM), CUDA_SUCCESS);
    firsts[0] = 4;
    bytes[1] = 0;
    assert_int_equal(cuMemPrefetchBatchAsync(address, bytes, 1, to, firsts, 1, 0, STREAM), CUDA_SUCCESS);
    assert_int_equal(cuMemPrefetchBatchAsync(address, NULL, 4, to, firsts, 3, 0, STREAM), CUDA_SUCCESS);
    assert_int_equal(cuMemPrefetchBatchAsync(address, bytes, 4, NULL, firsts, 3, 0, STREAM), CUDA_SUCCESS);
    assert_int_equal(cuMemPrefetchBatchAsync(address, bytes, 4, to, NULL, 3, 0, STREAM), CUDA_SUCCESS);
    assert_true(fake.idle[0] == 450 && fake.idle[1] == 400);
    bytes[0] = 400;
    firsts[0] = 0;
    assert_int_equal(cuMemDiscardAndPrefetchBatchAsync(address, bytes, 1, to, firsts, 1, 0, STREAM), CUDA_SUCCESS);
    assert_int_equal(fake.idle[0], 400);
    bytes[0] = 450;
    assert_int_equal(cuMemDiscardAndPrefetchBatchAsync_ptsz(address, bytes, 1, to, firsts, 1, 0, STREAM), CUDA_SUCCESS);
    assert_int_equal(fake.idle[0], 350);
    assert_int_equal(fake.touched, 8);
}

/* To the host, for a device that is none or has no context, beside a capture, and for what we call ourselves. */
static void nothing_is_given_back_where_none_is_wanted(void **state)
{
    (void)state;
    assert_int_equal(cuMemPrefetchAsync(1, 5000, -1 /* CU_DEVICE_CPU */, STREAM), CUDA_SUCCESS);
    assert_int_equal(cuMemPrefetchAsync_v2(1, 5000, HOST, 0, STREAM), CUDA_SUCCESS);
    fake.gone = true;
    assert_int_equal(cuMemPrefetchAsync(1, 5000, 1, STREAM), CUDA_SUCCESS);
    fake.gone = false;
    fake.current = 3;
    fake.context = CUDA_ERROR_INVALID_CONTEXT;
    CUdeviceptr address;
    assert_int_equal(cuMemAllocManaged(&address, 5000, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    fake.context = CUDA_SUCCESS; /* a device that we have not served */
    assert_int_equal(cuMemAllocManaged(&address, 5000, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    fake.current = 0;
    fake.unknown = true;
    assert_int_equal(cuMemAllocManaged(&address, 5000, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    fake.unknown = false;
    fake.live = true;
    assert_int_equal(cuMemAllocManaged(&address, 5000, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    fake.live = false;
    fake.no_core = true;
    assert_int_equal(cuMemAllocManaged(&address, 5000, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    assert_int_equal(fake.trims, 0);
    assert_int_equal(fake.calls, 8);
}

#define TEST(name) cmocka_unit_test_setup(name, start)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(as_much_is_given_back_as_lacks),
        TEST(goes_on_while_there_is_any),
        TEST(room_is_made_where_it_is_fetched_to),
        TEST(each_is_tried_again),
        TEST(batches_are_for_several_devices),
        TEST(nothing_is_given_back_where_none_is_wanted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
