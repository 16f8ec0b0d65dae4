/* The bound by the order of the work, where tags are paused: their bytes serve others meanwhile, and are needed again after. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "analysis/order_bound.h"

enum { MIB = 1 << 20, FIRST = 1, SECOND = 2 };

static void add(struct sg_bound *bound, enum segalloc_record_kind kind, uint16_t stream, uint64_t id, uint64_t size)
{
    const struct segalloc_trace_record record = {.kind = (uint8_t)kind, .stream = stream, .id = id, .size = size};
    assert_int_equal(sg_bound_add(bound, &record, 0), 0);
}

static void allocate(struct sg_bound *bound, uint64_t tag, uint16_t stream, uint64_t id, uint64_t size)
{
    if (tag)
        add(bound, SEGALLOC_RECORD_TAG, stream, tag, 0);
    add(bound, SEGALLOC_RECORD_ALLOCATE, stream, id, size);
    add(bound, SEGALLOC_RECORD_LAUNCH, stream, 0, 0);
}

static void order(struct sg_bound *bound, enum segalloc_record_kind kind, uint64_t tag, uint64_t outcome)
{
    add(bound, kind, FIRST, tag, 0);
    add(bound, SEGALLOC_RECORD_TURN, FIRST, SEGALLOC_TURN_PAUSE_END, outcome);
}

static void expect(const struct sg_bound *bound, uint64_t pool, uint64_t live)
{
    struct sg_bound_result result = sg_bound_result(bound);
    assert_int_equal(result.pool_bytes, pool);
    assert_int_equal(result.live_bytes, live);
}

/* Two phases of 40 and 30 MiB, one after the other: 40 MiB with a pause, and 70 without. */
static void paused_memory_serves_others(void **state)
{
    (void)state;
    for (int pauses = 0; pauses <= 1; pauses++) {
        struct sg_bound *bound = sg_bound_new(1);
        allocate(bound, 1, FIRST, 100, 40 * MIB);
        for (int phase = 0; phase < 3; phase++) {
            order(bound, SEGALLOC_RECORD_PAUSE, 1, (uint64_t)pauses); /* without: it fails */
            allocate(bound, 0, SECOND, 200, 30 * MIB);
            add(bound, SEGALLOC_RECORD_DEVICE_SYNC, 0, 0, 0);
            add(bound, SEGALLOC_RECORD_FREE, SECOND, 200, 0);
            order(bound, SEGALLOC_RECORD_RESUME, 1, (uint64_t)pauses);
        }
        expect(bound, pauses ? 40 * MIB : 70 * MIB, pauses ? 40 * MIB : 70 * MIB);
        sg_bound_delete(bound);
    }
}

/* A block that is freed while it is paused gives nothing back, and is not needed after. */
static void frees_of_paused_blocks(void **state)
{
    struct sg_bound *bound = sg_bound_new(MIB);
    (void)state;
    allocate(bound, 1, FIRST, 100, 20 * MIB);
    allocate(bound, 1, FIRST, 101, 10 * MIB);
    allocate(bound, 1, FIRST, 102, 1000); /* is left out: it is too small */
    order(bound, SEGALLOC_RECORD_PAUSE, 1, 1);
    add(bound, SEGALLOC_RECORD_FREE, FIRST, 101, 0);
    add(bound, SEGALLOC_RECORD_FREE, FIRST, 102, 0);
    allocate(bound, 0, SECOND, 200, 10 * MIB);
    order(bound, SEGALLOC_RECORD_RESUME, 1, 1);
    expect(bound, 30 * MIB, 30 * MIB);
    allocate(bound, 0, SECOND, 201, 5 * MIB);
    expect(bound, 35 * MIB, 35 * MIB);
    sg_bound_delete(bound);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(paused_memory_serves_others),
        cmocka_unit_test(frees_of_paused_blocks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
