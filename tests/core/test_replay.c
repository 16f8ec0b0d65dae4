/* A core that is told what came of its steps, by records that need not be its own: of another run, or damaged. It
   believes them as far as they go, and asks the driver nothing that they say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "config/conf_read.h"
#include "rooms.h"
#include "inspect.h"
#include "strict_kept.h"

#define MIB(n) ((uint64_t)(n) << 20)

enum { MOST = 64 };

static struct segalloc_trace_record story[MOST]; /* what is told, turn by turn; then nothing more */
static int told, length, gave_way;
static struct sg_core *core;
static const struct sg_tag tag = {.sync = SG_FREE_SYNC_COMPLETE};

static const struct segalloc_trace_record *turn(void)
{
    return told < length ? &story[told++] : NULL;
}

static void give_way(void)
{
    gave_way++;
    sg_grow_unlock(core->device[0]); /* whoever stood at a turn of its own is done */
}

static const struct sg_replay replay = {turn, give_way};

static void start(const char *text, uint64_t total)
{
    struct sg_conf conf;
    strict_reset(1, total, MIB(2));
    sg_conf_init(&conf);
    assert_int_equal(sg_conf_apply(&conf, SG_CONF_ARGUMENT, text, NULL, NULL), 0);
    core = sg_core_create(&(struct sg_core_params){.conf = &conf, .driver = &strict_driver, .replay = &replay});
    assert_non_null(core);
    told = length = gave_way = 0;
}

static void stop(void)
{
    length = 0;
    inspect(core, 1);
    sg_core_destroy(core);
    strict_expect_over();
}

/* Tells `record` at the turn with this number from here, and before that of a step that is none of these. */
static void tell_at(int number, struct segalloc_trace_record record)
{
    assert_true(number < MOST);
    for (int i = 0; i < number; i++)
        story[i] = (struct segalloc_trace_record){.kind = SEGALLOC_RECORD_SLOW_STEP};
    story[number] = record;
    told = 0;
    length = number + 1;
}

/* Tells it at every turn from that one on. */
static void tell_from(int number, struct segalloc_trace_record record)
{
    tell_at(number, record);
    for (length = number; length < MOST; length++)
        story[length] = record;
}

static struct segalloc_trace_record turn_of(enum segalloc_turn what, uint64_t outcome)
{
    return (struct segalloc_trace_record){.kind = SEGALLOC_RECORD_TURN, .id = what, .size = outcome};
}

static CUresult try_allocate(uint64_t bytes, CUdeviceptr *ret)
{
    CUresult result = sg_core_malloc(core, 0, bytes, &tag, ret);
    inspect(core, 1);
    return result;
}

/* Whichever turn it is told at that there were no addresses, or fewer than the block needs: it ends, and the books add
   up. */
static void regions_that_there_were_not(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {0, 1, MIB(2), MIB(5), MIB(33), UINT64_C(1) << 45};
    for (size_t size = 0; size < sizeof sizes / sizeof *sizes; size++) {
        unsigned refused = 0;
        for (int at = 0; at < 10; at++) {
            CUdeviceptr block = 0;
            start("", MIB(64));
            if (sizes[size] > 1)
                tell_at(at, turn_of(SEGALLOC_TURN_REGION, sizes[size]));
            else
                tell_from(at, turn_of(SEGALLOC_TURN_REGION, sizes[size])); /* both times that it is asked for */
            CUresult result = try_allocate(MIB(12), &block);
            assert_true(result == CUDA_SUCCESS || result == (sizes[size] ? CUDA_ERROR_OUT_OF_MEMORY
                                                                           : CUDA_ERROR_NOT_SUPPORTED));
            refused += result != CUDA_SUCCESS;
            if (result == CUDA_SUCCESS)
                assert_int_equal(sg_core_free(core, block, &tag), CUDA_SUCCESS);
            stop();
        }
        assert_true(sizes[size] || refused > 0);
    }
}

/* What ran out is tried again where the trace goes on with something else than that. */
static void waits_that_were_worth_it(void **state)
{
    (void)state;
    CUdeviceptr block = 0;
    start("", MIB(64));
    assert_int_equal(try_allocate(MIB(3), &block), CUDA_SUCCESS);
    for (uint8_t kind = 0; kind < 2; kind++) {
        for (int at = 0; at < 16; at++) {
            tell_at(at, (struct segalloc_trace_record){
                .kind = kind ? SEGALLOC_RECORD_ALLOCATE_FAILURE : SEGALLOC_RECORD_SLOW_STEP});
            assert_int_equal(try_allocate(MIB(62), &block), CUDA_ERROR_OUT_OF_MEMORY);
        }
    }
    stop();
}

/* Pages that the trace says the driver kept stay, whatever it says now. */
static void pages_that_did_not_go_back(void **state)
{
    (void)state;
    CUdeviceptr block = 0;
    unsigned kept = 0;
    for (int at = 0; at < 8; at++) {
        start("", MIB(64));
        assert_int_equal(try_allocate(MIB(6), &block), CUDA_SUCCESS);
        assert_int_equal(sg_core_free(core, block, &tag), CUDA_SUCCESS);
        tell_at(at, turn_of(SEGALLOC_TURN_GIVEN, 1));
        kept += sg_core_trim(core, 0, 0) == 0;
        length = 0;
        stop();
    }
    assert_int_equal(kept, 0); /* the driver took them, and the trace does not say otherwise */
}

/* Another operation stands at a turn with the lock that this one needs. */
static void way_is_given(void **state)
{
    (void)state;
    CUdeviceptr block = 0;
    start("", MIB(64));
    assert_int_equal(try_allocate(MIB(3), &block), CUDA_SUCCESS);
    sg_grow_lock(core->device[0]);
    assert_int_equal(sg_core_trim(core, 0, 0), MIB(0));
    assert_int_equal(gave_way, 1);
    assert_int_equal(sg_core_free(core, block, &tag), CUDA_SUCCESS);
    stop();
}

/* The driver's answers to fixed segments, and their addresses, are the recorded ones. */
static void segments_that_are_told_of(void **state)
{
    (void)state;
    CUdeviceptr block = 0;
    start("expandable_segments:False", MIB(64));
    tell_at(0, (struct segalloc_trace_record){
        .kind = SEGALLOC_RECORD_SLOW_STEP, .size = CUDA_ERROR_OUT_OF_MEMORY});
    story[1] = (struct segalloc_trace_record){.kind = SEGALLOC_RECORD_ALLOCATE, .id = 0x40000000};
    length = 2;
    assert_int_equal(sg_core_malloc(core, 0, MIB(12), &tag, &block), CUDA_SUCCESS);
    assert_int_equal(block, 0x40000000);
    assert_int_equal(strict_used(0), 0);
    assert_true(sg_core_owns(core, block));
    const CUdeviceptr segment = block;
    assert_int_equal(sg_core_free(core, block, &tag), CUDA_SUCCESS);
    apply(core, 0, SEGALLOC_RECORD_CONTEXT_GONE, (uint64_t)(uintptr_t)(NULL), 0); /* which no driver has */
    assert_false(sg_core_owns(core, segment));
    length = 0;
    sg_core_destroy(core);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regions_that_there_were_not), cmocka_unit_test(waits_that_were_worth_it),
        cmocka_unit_test(pages_that_did_not_go_back), cmocka_unit_test(way_is_given),
        cmocka_unit_test(segments_that_are_told_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
