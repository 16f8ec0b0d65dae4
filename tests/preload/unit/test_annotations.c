/* Notes to the simulator on blocks, against a simulator made up here, or a driver that is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "clock.h"
#include "inspect/core_state.h"
#include "process/symbols.h"
#include "services/hazard_annotations.h"

enum { BLOCK = 4096, BYTES = 512 };

static struct {
    bool is_real, follows; /* the driver is no simulator; the simulator looks for hazards */
    int told, handed_out;
    uint64_t address, bytes;
} fake;

static int block(uint64_t address, uint64_t bytes, int handed_out)
{
    fake.told += address != 0;
    fake.address = address;
    fake.bytes = bytes;
    fake.handed_out = handed_out;
    return fake.follows;
}

static uint64_t ns(void)
{
    return 7;
}

void *sg_cuda_symbol(const char *name)
{
    int (*of_block)(uint64_t, uint64_t, int) = block;
    uint64_t (*of_ns)(void) = ns;
    void *ret = NULL;
    if (!fake.is_real && strcmp(name, "segalloc_sim_block") == 0)
        memcpy(&ret, &of_block, sizeof ret);
    else if (!fake.is_real && strcmp(name, "segalloc_sim_ns") == 0)
        memcpy(&ret, &of_ns, sizeof ret);
    return ret;
}

CUresult sg_core_block(struct sg_core *core, CUdeviceptr address, struct sg_block_info *ret)
{
    (void)core;
    *ret = (struct sg_block_info){.base = BLOCK, .bytes = BYTES};
    return address >= BLOCK && address < BLOCK + BYTES ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static int start_afresh(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    return 0;
}

static void only_a_simulator_that_follows_is_told(void **state)
{
    (void)state;
    sg_annotate_start();
    assert_false(sg_annotate_on);
    fake.follows = true;
    sg_annotate_start();
    assert_true(sg_annotate_on);
    fake.is_real = true;
    sg_annotate_start();
    assert_false(sg_annotate_on);
    assert_int_equal(fake.told, 0);
}

/* The calls that are timed take the simulator's time there, and the host's on a card. */
static void time_is_the_driver_s(void **state)
{
    (void)state;
    assert_int_equal(sg_annotate_clock()(), 7);
    fake.is_real = true;
    assert_true(sg_annotate_clock() == sg_clock_ns);
}

static void blocks_are_told_whole(void **state)
{
    (void)state;
    fake.follows = true;
    sg_annotate_start();
    sg_annotate_given(BLOCK, 300);
    assert_true(fake.address == BLOCK && fake.bytes == 300 && fake.handed_out && fake.told == 1);
    sg_annotate_freed(NULL, BLOCK);
    assert_true(fake.address == BLOCK && fake.bytes == BYTES && !fake.handed_out && fake.told == 2);
    sg_annotate_freed(NULL, BLOCK + 8); /* the free of these will be refused */
    sg_annotate_freed(NULL, BLOCK + BYTES);
    assert_int_equal(fake.told, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(only_a_simulator_that_follows_is_told, start_afresh),
        cmocka_unit_test_setup(time_is_the_driver_s, start_afresh),
        cmocka_unit_test_setup(blocks_are_told_whole, start_afresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
