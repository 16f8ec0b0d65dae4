/* A driver whose virtual memory management fails, call by call and error by error, as real ones do: the program gets
   its memory all the same, whatever fails and for however long. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "config/conf_read.h"
#include "inspect/core_state.h"
#include "rooms.h"
#include "inspect.h"
#include "random.h"
#include "strict_kept.h"

#define MIB(n) ((uint64_t)((n) * 1048576.0))

enum call { RESERVE, CREATE, MAP, SET_ACCESS, UNMAP, RELEASE, CALLS };
static const char *const names[] = {"reserve", "create", "map", "set_access", "unmap", "release"};

static struct sg_driver driver;
static struct sg_core *core;
static const struct sg_tag tag = {.sync = SG_FREE_SYNC_COMPLETE};
static unsigned warned;

/* The calls of one kind from `first` to `last`, counted from 1, are answered with `error`. */
static struct fault {
    enum call call;
    unsigned first, last, made;
    CUresult error;
} fault;

static bool fails(enum call call)
{
    return call == fault.call && ++fault.made >= fault.first && fault.made <= fault.last;
}

static CUresult address_reserve(CUdeviceptr *ret, size_t bytes, size_t alignment, CUdeviceptr hint,
    unsigned long long flags)
{
    return fails(RESERVE) ? fault.error : strict_driver.address_reserve(ret, bytes, alignment, hint, flags);
}

static CUresult create(CUmemGenericAllocationHandle *ret, size_t bytes, const CUmemAllocationProp *prop,
    unsigned long long flags)
{
    return fails(CREATE) ? fault.error : strict_driver.create(ret, bytes, prop, flags);
}

static CUresult map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
    unsigned long long flags)
{
    return fails(MAP) ? fault.error : strict_driver.map(address, bytes, offset, handle, flags);
}

static CUresult set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    return fails(SET_ACCESS) ? fault.error : strict_driver.set_access(address, bytes, access, count);
}

/* What the strict driver has been made to fail it doesn't count as left behind. */
static CUresult unmap(CUdeviceptr address, size_t bytes)
{
    if (fails(UNMAP))
        strict_fail_at(1, false, fault.error);
    CUresult result = strict_driver.unmap(address, bytes);
    strict_fail_at(0, false, CUDA_SUCCESS);
    return result;
}

static CUresult release(CUmemGenericAllocationHandle handle)
{
    if (fails(RELEASE))
        strict_fail_at(1, false, fault.error);
    CUresult result = strict_driver.release(handle);
    strict_fail_at(0, false, CUDA_SUCCESS);
    return result;
}

static void warn(const char *line)
{
    if (strstr(line, "fixed segments")) /* the other line that may come is about mappings (test_mapping_limit.c) */
        warned++;
    else
        assert_non_null(strstr(line, "mappings"));
}

static void start(const char *text, const struct fault *with)
{
    struct sg_conf conf;
    fault = *with;
    warned = 0;
    strict_reset(1, MIB(256), MIB(2));
    sg_conf_init(&conf);
    assert_int_equal(sg_conf_apply(&conf, SG_CONF_ARGUMENT, text, NULL, NULL), 0);
    driver = strict_driver;
    driver.address_reserve = address_reserve;
    driver.create = create;
    driver.map = map;
    driver.set_access = set_access;
    driver.unmap = unmap;
    driver.release = release;
    core = sg_core_create(&(struct sg_core_params){.conf = &conf, .driver = &driver, .callbacks.warn = warn});
    assert_non_null(core);
}

static uint64_t value(enum sg_stat stat)
{
    struct sg_stats stats = {{0}, {0}};
    (void)sg_core_stats(core, 0, &stats);
    return stats.value[stat];
}

struct block {
    CUdeviceptr address;
    uint64_t bytes, backing;
};

/* As the hooks do: what the core leaves to the driver, the driver serves. */
static void take(struct block *block, uint64_t bytes)
{
    CUdeviceptr address = 0;
    CUresult result = sg_core_malloc(core, 0, bytes, &tag, &address);
    if (result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_OUT_OF_MEMORY) {
        assert_int_equal(strict_driver.mem_alloc(&address, bytes), CUDA_SUCCESS);
        sg_core_passthrough(core, 0, address, bytes);
        result = CUDA_SUCCESS;
    }
    if (result != CUDA_SUCCESS)
        fail_msg("%s answers error %d where call %u fails with %d", "the core", result, fault.first, fault.error);
    *block = (struct block){.address = address, .bytes = bytes};
    assert_true(strict_backing(address, bytes, 0, &block->backing));
}

static void give(struct block *block)
{
    if (sg_core_owns(core, block->address))
        assert_int_equal(sg_core_free(core, block->address, &tag), CUDA_SUCCESS);
    else
        assert_int_equal(strict_driver.mem_free(block->address), CUDA_SUCCESS);
    block->address = 0;
}

static void look(const struct block *blocks, int count)
{
    for (int i = 0; i < count; i++) {
        uint64_t backing;
        if (blocks[i].address && (!strict_backing(blocks[i].address, blocks[i].bytes, 0, &backing) ||
                                     backing != blocks[i].backing))
            fail_msg("the memory of a live block was moved, or can't be used");
    }
    strict_expect_kept();
}

/* Blocks come and go, a third of the card at most: whatever the driver does with pages, it has that much. */
static void play(uint64_t seed)
{
    enum { BLOCKS = 24, STEPS = 160 };
    struct block block[BLOCKS] = {0};
    struct random random = {seed};
    for (int step = 0; step < STEPS; step++) {
        int i = (int)random_below(&random, BLOCKS);
        uint64_t most = step % 40 == 39 ? MIB(12) : step % 3 ? MIB(4) : MIB(0.2);
        if (block[i].address)
            give(&block[i]);
        else
            take(&block[i], random_between(&random, 1, most));
        if (step == 100)
            sg_core_trim(core, 0, MIB(4));
        look(block, BLOCKS);
    }
    for (int i = 0; i < BLOCKS; i++)
        if (block[i].address)
            give(&block[i]);
}

static void stop(void)
{
    fault.last = 0;
    (void)sg_core_trim(core, 0, 0);
    inspect(core, 1);
    assert_int_equal(value(SG_STAT_allocations), 0);
    assert_int_equal(value(SG_STAT_reserved_bytes), 0);
    sg_core_destroy(core);
    strict_expect_over();
}

static const CUresult errors[] = {CUDA_ERROR_NOT_READY, CUDA_ERROR_UNKNOWN, CUDA_ERROR_INVALID_VALUE,
    CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_NOT_PERMITTED, CUDA_ERROR_OUT_OF_MEMORY};
static const char *const confs[] = {"", "reserve_slack:1.0,limit:160MiB", "page_size_mb:4"};

/* A call that fails once is made good: all is as if it had not. */
static void a_call_that_fails_once(void **state)
{
    (void)state;
    for (unsigned i = 0; i < sizeof confs / sizeof *confs * CALLS * (sizeof errors / sizeof *errors); i++) {
        enum call call = i % CALLS;
        CUresult error = errors[i / CALLS % (sizeof errors / sizeof *errors)];
        const char *conf = confs[i / CALLS / (sizeof errors / sizeof *errors)];
        for (unsigned at = 1; at < 60; at += 1 + at / 4) {
            start(conf, &(struct fault){call, at, at, 0, error});
            play(at);
            bool met = fault.made >= at;
            bool lack = error == CUDA_ERROR_OUT_OF_MEMORY && call == CREATE; /* about which the driver is asked */
            if ((value(SG_STAT_passed_on) && !lack) || warned)
                fail_msg("%s: %s number %u failed with %d once, and was not made good", conf, names[call], at, error);
            /* fewer addresses than asked for are no error */
            if (!lack && call != RESERVE)
                assert_int_equal(value(SG_STAT_vmm_errors), met);
            stop();
        }
    }
}

/* One that fails from then on: eight allocations are left to the driver, and then there are fixed segments, of which
   the user is told once. */
static void a_call_that_always_fails(void **state)
{
    unsigned gave_up = 0, served = 0;
    (void)state;
    for (unsigned i = 0; i < sizeof confs / sizeof *confs * CALLS * (sizeof errors / sizeof *errors); i++) {
        enum call call = i % CALLS;
        CUresult error = errors[i / CALLS % (sizeof errors / sizeof *errors)];
        const char *conf = confs[i / CALLS / (sizeof errors / sizeof *errors)];
        for (unsigned at = 1; at < 60; at += 1 + at / 4) {
            start(conf, &(struct fault){call, at, UINT32_MAX, 0, error});
            play(at);
            bool ordinary = error == CUDA_ERROR_OUT_OF_MEMORY && call == CREATE;
            const struct sg_device *device = core->device[0];
            if (!ordinary && value(SG_STAT_passed_on) > 8)
                fail_msg("%s: %s failed with %d from call %u on, and %llu allocations were left to the driver", conf,
                    names[call], error, at, (unsigned long long)value(SG_STAT_passed_on));
            bool given_up = device->granularity && device->mode == SG_MODE_SEGMENTS;
            assert_int_equal(given_up, warned);
            assert_int_equal(given_up, device->room.refusals == 8);
            gave_up += given_up;
            served += given_up && value(SG_STAT_calls_alloc) > 0;
            stop();
        }
    }
    assert_true(gave_up > 100 && served > gave_up / 2);
}

/* What no second try mends the program is told at once. */
static void errors_that_stay(void **state)
{
    static const CUresult stay[] = {
#define STICKY(name) name,
#include "sticky.def"
    };
    (void)state;
    for (size_t i = 0; i < sizeof stay / sizeof *stay; i++) {
        CUdeviceptr address = 5;
        assert_true(sg_driver_is_sticky(stay[i]));
        start("", &(struct fault){SET_ACCESS, 2, UINT32_MAX, 0, stay[i]}); /* the first is the probe's */
        assert_int_equal(sg_core_malloc(core, 0, MIB(3), &tag, &address), stay[i]);
        assert_int_equal(address, 5);
        assert_int_equal(fault.made, 2);
        inspect(core, 1);
        stop();
    }
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        assert_false(sg_driver_is_sticky(errors[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_that_fails_once),
        cmocka_unit_test(a_call_that_always_fails),
        cmocka_unit_test(errors_that_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
