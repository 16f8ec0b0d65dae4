/* Steps of tests of devices. */
#ifndef DEVICE_STEPS_H
#define DEVICE_STEPS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "config/conf_read.h"
#include "inspect/core_state.h"
#include "rooms.h"
#include "inspect.h"
#include "size.h"
#include "strict_kept.h"

static const struct sg_tag tag = {.sync = SG_FREE_SYNC_COMPLETE};
static struct sg_driver driver;
static struct sg_core *core;

static inline void start_with(const char *text, int devices, uint64_t total)
{
    struct sg_conf conf;
    strict_reset(devices, total, 2 << 20);
    sg_conf_init(&conf);
    assert_int_equal(sg_conf_apply(&conf, SG_CONF_ARGUMENT, text, NULL, NULL), 0);
    core = sg_core_create(&(struct sg_core_params){.conf = &conf, .driver = &driver});
    assert_non_null(core);
}

static inline void stop(void)
{
    sg_core_destroy(core);
    strict_expect_over();
    driver = strict_driver;
    strict_use(0);
}

static inline CUresult full(CUmemGenericAllocationHandle *ret, size_t bytes, const CUmemAllocationProp *prop,
    unsigned long long flags)
{
    (void)ret;
    (void)bytes;
    (void)prop;
    (void)flags;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static inline void expect_mode(const char *conf, enum sg_device_mode mode)
{
    CUdeviceptr address;
    start_with(conf, 1, 64 * SG_MIB);
    CUresult result = sg_core_malloc(core, 0, 3 * SG_MIB, &tag, &address);
    assert_int_equal(core->device[0]->mode, mode);
    assert_int_equal(result == CUDA_ERROR_NOT_SUPPORTED, mode == SG_MODE_PASSTHROUGH);
    if (result == CUDA_SUCCESS)
        assert_int_equal(sg_core_free(core, address, &tag), CUDA_SUCCESS);
    stop();
}

/* Fills four pages with blocks of 512 bytes, and frees two neighbours of each `every`. Returns how many pages are made for
   two blocks of 1024 then, which only joined neighbours could serve. `refused`: the driver makes none by then. */
static inline uint64_t pages_for_larger_ones(const char *text, uint32_t every, bool refused)
{
    enum { BLOCKS = 4 * 4096 };
    static CUdeviceptr address[BLOCKS];
    driver = strict_driver;
    start_with(text, 1, 512 * SG_MIB);
    for (uint32_t i = 0; i < BLOCKS; i++)
        assert_int_equal(sg_core_malloc(core, 0, SG_UNIT, &tag, &address[i]), CUDA_SUCCESS);
    const struct sg_device *device = core->device[0];
    uint64_t before = device->accounts.usage.reserved.now;
    for (uint32_t i = 0; i < BLOCKS; i += every)
        for (uint32_t next = i; next < i + 2; next++) {
            assert_int_equal(sg_core_free(core, address[next], &tag), CUDA_SUCCESS);
            address[next] = 0;
        }
    if (refused)
        driver.create = full;
    for (int i = 0; i < 2; i++)
        assert_int_equal(sg_core_malloc(core, 0, 2 * SG_UNIT, &tag, &address[i]), CUDA_SUCCESS);
    uint64_t pages = (device->accounts.usage.reserved.now - before) / (2 * SG_MIB);
    inspect(core, 1);
    for (uint32_t i = 0; i < BLOCKS; i++)
        if (address[i])
            assert_int_equal(sg_core_free(core, address[i], &tag), CUDA_SUCCESS);
    stop();
    return pages;
}

/* The driver's refusal is remembered by what there was at that time, with the pages that were made by then. */
enum { ALL_THAT_THERE_IS = 20 };

#endif
