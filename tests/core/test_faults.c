/* The allocator on a driver whose n-th call fails, for each n that is drawn, until a script meets no fault any more.

     test_faults             one call in eight, always the same ones
     test_faults --seed N    one call in eight, others
     test_faults --all       every call

   Each script is run without faults first, which says what every step has to answer. Then: a step that a fault makes
   fail must leave everything as it was, and must succeed when it is tried again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/conf_read.h"
#include "inspect/core_state.h"
#include "rooms.h"
#include "inspect.h"
#include "strict_kept.h"
#include "locked.h"
#include "random.h"

#define MIB(n) ((uint64_t)((n) * 1048576.0))

enum { SLOTS = 96, STEPS_MOST = 512 };

enum op { ALLOC, FREE, FREE_EVENT, FREE_STRICT, TRIM, COMPLETE, POLL };

struct step {
    enum op op;
    int slot;
    uint64_t amount;
};

struct script {
    const char *conf;
    uint64_t total;
    bool ordered; /* by one stream, whose work is queued */
    struct step step[STEPS_MOST];
    CUresult answer[STEPS_MOST]; /* without faults */
    int steps;
};

struct run {
    const struct script *script;
    struct sg_core *core;
    struct {
        CUdeviceptr address;
        uint64_t bytes, backing;
    } slot[SLOTS];
    bool expandable;
    sg_slot stream;
};

static void add(struct script *script, enum op op, int slot, uint64_t amount)
{
    assert_true(script->steps < STEPS_MOST && slot < SLOTS);
    script->step[script->steps++] = (struct step){op, slot, amount};
}

static CUresult perform(struct run *run, const struct step *step)
{
    struct sg_tag tag = {.sync = SG_FREE_SYNC_COMPLETE};
    CUdeviceptr address = 0;
    CUresult result = CUDA_SUCCESS;
    if (run->script->ordered) {
        static const struct sg_stream_id id = {.key = 1};
        if (!run->stream)
            run->stream = sg_core_slot(run->core, 0, &id);
        tag.slot = run->stream;
        sg_core_slot_submitted(run->core, 0, run->stream);
    }
    switch (step->op) {
    case ALLOC:
        if (run->slot[step->slot].address) /* a free before has failed */
            return CUDA_SUCCESS;
        result = sg_core_malloc(run->core, 0, step->amount, &tag, &address);
        if (result == CUDA_SUCCESS) {
            run->slot[step->slot].address = address;
            run->slot[step->slot].bytes = step->amount;
            run->expandable = run->core->device[0]->mode == SG_MODE_EXPANDABLE;
            if (run->expandable && !strict_backing(address, step->amount, 0, &run->slot[step->slot].backing))
                fail_msg("memory was handed out that cannot be used");
        }
        assert_true(result == CUDA_SUCCESS || address == 0); /* outputs are untouched on failure */
        return result;
    case FREE:
    case FREE_EVENT:
    case FREE_STRICT:
        if (!run->slot[step->slot].address)
            return CUDA_SUCCESS;
        tag.sync = step->op == FREE_EVENT ? SG_FREE_SYNC_EVENT
                   : step->op == FREE_STRICT ? SG_FREE_SYNC_STRICT : SG_FREE_SYNC_COMPLETE;
        if (run->script->ordered && step->op == FREE)
            tag.sync = SG_FREE_SYNC_STREAM;
        result = sg_core_free(run->core, run->slot[step->slot].address, &tag);
        if (result == CUDA_SUCCESS)
            run->slot[step->slot].address = 0;
        return result;
    case TRIM:
        sg_core_trim(run->core, 0, step->amount);
        return CUDA_SUCCESS;
    case COMPLETE:
        strict_complete(step->amount);
        return CUDA_SUCCESS;
    case POLL:
        sg_core_poll(run->core, 0);
        return CUDA_SUCCESS;
    }
    return CUDA_SUCCESS;
}

static void look(struct run *run)
{
    inspect(run->core, 1);
    for (int i = 0; i < SLOTS && run->expandable; i++) {
        uint64_t backing = 0;
        if (run->slot[i].address &&
            (!strict_backing(run->slot[i].address, run->slot[i].bytes, 0, &backing) || backing != run->slot[i].backing))
            fail_msg("the memory of a live block was moved");
        for (int k = 0; k < i && run->slot[i].address; k++)
            if (run->slot[k].address &&
                strict_share(run->slot[i].address, run->slot[i].bytes, run->slot[k].address, run->slot[k].bytes))
                fail_msg("two live blocks share memory");
    }
}

static struct sg_stats stats_of(struct run *run)
{
    struct sg_stats stats = {{0}, {0}};
    sg_core_stats(run->core, 0, &stats);
    return stats;
}

static void start(struct run *run, const struct script *script)
{
    struct sg_conf conf;
    memset(run, 0, sizeof *run);
    run->script = script;
    strict_reset(1, script->total, 2 << 20);
    sg_conf_init(&conf);
    assert_int_equal(sg_conf_apply(&conf, SG_CONF_ARGUMENT, script->conf, NULL, NULL), 0);
    run->core = sg_core_create(&(struct sg_core_params){.conf = &conf, .driver = &strict_driver});
    assert_non_null(run->core);
}

static void finish(struct run *run)
{
    strict_fail_at(0, false, CUDA_SUCCESS);
    for (int i = 0; i < SLOTS; i++)
        assert_int_equal(perform(run, &(struct step){FREE, i, 0}), CUDA_SUCCESS);
    sg_core_poll(run->core, 0); /* records what is wanted */
    strict_complete(UINT32_MAX);
    sg_core_poll(run->core, 0);
    sg_core_trim(run->core, 0, 0);
    look(run);
    inspect_empty(run->core, 1);
    sg_core_destroy(run->core);
    strict_expect_over();
}

static void run_whole(struct script *script)
{
    struct run run;
    start(&run, script);
    for (int i = 0; i < script->steps; i++) {
        script->answer[i] = perform(&run, &script->step[i]);
        look(&run);
    }
    finish(&run);
}

/* Whether a step may answer so where the run without faults had another answer: a fault that was got round leaves
   things in other places, so at the end of memory something else may fit. It must really be the end, though. */
static bool acceptable(struct run *run, const struct step *step, CUresult expected, CUresult result)
{
    struct sg_device *device = run->core->device[0];
    if (result == expected)
        return true;
    if (step->op != ALLOC || !device)
        return false;
    if (device->mode == SG_MODE_SEGMENTS) /* a segment that the driver did not take back is gone */
        return result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        return expected == CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t page = step->amount <= SG_SMALL_BYTES || step->amount > device->capacity_bytes / 2
                        ? 2 << 20
                        : device->regions.page_bytes[SG_KIND_REGULAR];
    uint64_t need = (step->amount + page - 1) / page * page;
    uint64_t allowed = device->capacity_bytes - device->accounts.usage.reserved.now,
             left = device->total_bytes - strict_used(0);
    return result == CUDA_ERROR_OUT_OF_MEMORY &&
           need > (allowed < left ? allowed : left) + LOCKED(device, sg_device_idle_locked(device));
}

/* Pages of another size are given back to the driver before one is made in their place; other moves are undone. */
static bool pages_of_one_size(const struct run *run)
{
    const struct sg_device *device = run->core->device[0];
    for (uint32_t i = 0; device && i < device->regions.count; i++)
        if (device->regions.region[i]->memory.mapped && device->regions.region[i]->page_units != (2 << 20) / SG_UNIT)
            return false;
    return true;
}

/* Draws the calls that fail. Every one does without it. */
static struct random drawn = {.state = 1};
static bool every_call;

enum fault { ONCE, UNTIL_SEEN, TO_THE_END };

/* Whether the fault was met. */
static bool run_faulty(const struct script *script, uint64_t number, enum fault fault, CUresult error)
{
    struct run run;
    bool expandable = true;
    start(&run, script);
    strict_fail_at(number, fault != ONCE, error);
    for (int i = 0; i < script->steps; i++) {
        const struct step *step = &script->step[i];
        struct sg_stats before = stats_of(&run);
        bool one_size = pages_of_one_size(&run) && step->amount <= script->total / 4;
        bool met_before = strict_failed(NULL);
        CUresult result = perform(&run, step);
        look(&run);
        expandable = expandable && (!run.core->device[0] || run.core->device[0]->mode == SG_MODE_EXPANDABLE);
        if (fault == TO_THE_END || result == script->answer[i])
            continue;
        if (run.core->device[0] && run.core->device[0]->mode == SG_MODE_PASSTHROUGH)
            break; /* the fault met the very first question, and the driver serves the device */
        if (!expandable && strstr(script->conf, "expandable_segments") == NULL)
            continue; /* the fault met the probe, and the device is served by other rules */
        const char *call;
        if (!strict_failed(&call) || (fault == ONCE && met_before)) {
            if (!acceptable(&run, step, script->answer[i], result))
                fail_msg("step %d (%llu bytes) answers %d instead of %d after a fault in %s, call %llu", i,
                    (unsigned long long)step->amount, result, script->answer[i], call, (unsigned long long)number);
            continue;
        }
        struct sg_stats after = stats_of(&run);
        assert_int_equal(after.value[SG_STAT_requested_bytes], before.value[SG_STAT_requested_bytes]);
        assert_int_equal(after.value[SG_STAT_allocated_bytes], before.value[SG_STAT_allocated_bytes]);
        assert_true(after.value[SG_STAT_pending_bytes] <= before.value[SG_STAT_pending_bytes]);
        assert_true(after.value[SG_STAT_reserved_bytes] <= before.value[SG_STAT_reserved_bytes]);
        if (fault == ONCE && expandable && one_size && step->op == ALLOC)
            assert_int_equal(after.value[SG_STAT_reserved_bytes], before.value[SG_STAT_reserved_bytes]);
        strict_fail_at(0, false, CUDA_SUCCESS);
        result = perform(&run, step);
        look(&run);
        if (!acceptable(&run, step, script->answer[i], result))
            fail_msg("step %d answers %d when tried again after a fault in %s, call %llu (fault %d, error %d)", i,
                result, call, (unsigned long long)number, fault, error);
        strict_fail_at(0, false, CUDA_SUCCESS);
        for (i++; i < script->steps; i++) {
            result = perform(&run, &script->step[i]);
            look(&run);
            if (!acceptable(&run, &script->step[i], script->answer[i], result))
                fail_msg(
                    "step %d answers %d instead of %d some time after a fault in %s, call %llu (fault %d, error %d)", i,
                    result, script->answer[i], call, (unsigned long long)number, fault, error);
        }
        finish(&run);
        return true;
    }
    bool met = strict_failed(NULL);
    finish(&run);
    return met;
}

static void sweep(struct script *script)
{
    static const struct {
        enum fault fault;
        CUresult error;
    } kinds[] = {{ONCE, CUDA_SUCCESS}, {ONCE, CUDA_ERROR_OUT_OF_MEMORY}, {UNTIL_SEEN, CUDA_SUCCESS},
        {TO_THE_END, CUDA_ERROR_ILLEGAL_ADDRESS}, {TO_THE_END, CUDA_SUCCESS}};
    enum { ONE_IN = 8 };
    run_whole(script);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        uint64_t number = 0;
        do
            number += every_call ? 1 : random_between(&drawn, 1, 2 * ONE_IN - 1);
        while (run_faulty(script, number, kinds[i].fault, kinds[i].error));
    }
}

/* Growth, places beside what is free, moves, event frees, trims, huge blocks, and the end of memory. */
static void write_script(struct script *script)
{
    int slot = 0;
    static const uint64_t first[] = {1000, 600 << 10, 1 << 20, 3 << 20, 5 << 20, 20 << 20, 7864320};
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        add(script, ALLOC, slot++, first[i]);
    add(script, FREE, 5, 0);
    add(script, ALLOC, 5, MIB(12));
    add(script, ALLOC, slot++, MIB(9)); /* partly what the 20 MiB left */
    int row = slot;
    for (int i = 0; i < 8; i++)
        add(script, ALLOC, slot++, MIB(3.3));
    for (int i = 0; i < 8; i += 2)
        add(script, FREE, row + i, 0);
    add(script, ALLOC, row, MIB(10)); /* pages between the others move */
    add(script, FREE_EVENT, row + 1, 0);
    add(script, FREE_EVENT, row + 3, 0);
    add(script, POLL, 0, 0);
    add(script, COMPLETE, 0, 1);
    add(script, POLL, 0, 0);
    add(script, ALLOC, row + 2, MIB(6));
    add(script, FREE_STRICT, row + 5, 0);
    add(script, TRIM, 0, MIB(4));
    for (int i = 0; i < slot; i++)
        add(script, i % 3 ? FREE : FREE_EVENT, i, 0);
    add(script, COMPLETE, 0, 100);
    add(script, ALLOC, 90, MIB(70)); /* huge: more than half of the card; what is free must make room */
    add(script, ALLOC, 0, MIB(5));
    add(script, FREE, 90, 0);
    add(script, ALLOC, 90, MIB(80));
    add(script, FREE_EVENT, 90, 0);
    add(script, ALLOC, 91, MIB(66)); /* has to wait for the one before */
    add(script, FREE_STRICT, 91, 0);
    add(script, FREE, 0, 0);
    add(script, TRIM, 0, 0);
    for (int i = 0; i < 12; i++)
        add(script, ALLOC, 20 + i, MIB(11)); /* the last ones do not fit */
    add(script, FREE_EVENT, 21, 0);
    add(script, FREE, 23, 0);
    add(script, ALLOC, 40, MIB(21)); /* waits for the one freed before */
    for (int i = 0; i < 30; i++)
        add(script, ALLOC, 50 + i, MIB(0.9)); /* small ones need pages of their own */
    add(script, FREE, 24, 0);
    for (int i = 0; i < 10; i++)
        add(script, ALLOC, 80 + i, MIB(0.9));
    add(script, FREE, 25, 0);
    add(script, FREE, 27, 0);
    for (int i = 0; i < 30; i += 2)
        add(script, FREE, 50 + i, 0);
    add(script, ALLOC, 41, MIB(22));
    add(script, TRIM, 0, 0);
}

/* A stream that runs behind: pages that it has freed, but whose work is not complete, get a second address. */
static void write_ordered_script(struct script *script)
{
    enum { ROW = 12 };
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < ROW; i++)
            add(script, ALLOC, i, MIB(5));
        for (int i = 0; i < ROW; i += 2)
            add(script, FREE, i, 0);
        add(script, ALLOC, 20, MIB(11)); /* behind the row, of pages in it */
        add(script, ALLOC, 21, MIB(9));
        add(script, FREE, 20, 0);
        add(script, ALLOC, 22, MIB(13)); /* no page gets a third address */
        add(script, COMPLETE, 0, round ? 2 : 100);
        add(script, ALLOC, 23, MIB(17)); /* unmaps what is complete first */
        add(script, FREE, 21, 0);
        add(script, FREE, 22, 0);
        add(script, TRIM, 0, MIB(20));
        add(script, ALLOC, 24, MIB(15));
        for (int i = 1; i < ROW; i += 2)
            add(script, FREE, i, 0);
        add(script, FREE, 23, 0);
        add(script, FREE, 24, 0);
        add(script, ALLOC, 25, MIB(30));
        add(script, FREE, 25, 0);
        if (round == 1)
            add(script, COMPLETE, 0, 100);
    }
}

static void run_conf(const char *conf, uint64_t total)
{
    static struct script script;
    script = (struct script){.conf = conf, .total = total};
    write_script(&script);
    sweep(&script);
}

static void a_fault_is_undone_where_pages_move_early(void **state)
{
    (void)state;
    run_conf("reserve_slack:1.0", 128 << 20);
}

static void a_fault_is_undone_beside_old_addresses(void **state)
{
    static struct script script;
    struct run run;
    (void)state;
    script = (struct script){.conf = "reserve_slack:1.0", .total = 128 << 20, .ordered = true};
    write_ordered_script(&script);
    start(&run, &script);
    for (int i = 0; script.step[i].op != TRIM; i++) { /* which waits */
        assert_int_equal(perform(&run, &script.step[i]), CUDA_SUCCESS);
        look(&run);
    }
    struct sg_stats stats = stats_of(&run);
    assert_true(stats.value[SG_STAT_aliased_pages] > 0 && stats.value[SG_STAT_late_unmaps] > 0);
    assert_int_equal(stats.value[SG_STAT_host_waits], 0);
    finish(&run);
    sweep(&script);
    script.conf = "";
    script.total = 80 << 20;
    sweep(&script);
}

static void a_fault_is_undone_with_the_defaults(void **state)
{
    (void)state;
    run_conf("", 128 << 20);
}

static void a_fault_is_undone_under_a_limit(void **state)
{
    (void)state;
    run_conf("reserve_slack:1.0,limit:100MiB,max_split_size_mb:20", 256 << 20);
}

static void a_fault_is_undone_with_pages_of_two_sizes(void **state)
{
    (void)state;
    run_conf("page_size_mb:16,reserve_slack:1.0", 128 << 20);
}

static void a_fault_is_undone_with_pages_of_two_sizes_by_default(void **state)
{
    (void)state;
    run_conf("page_size_mb:6", 128 << 20);
}

static void a_fault_is_undone_with_fixed_segments(void **state)
{
    (void)state;
    run_conf("expandable_segments:False", 128 << 20);
}

int main(int count, char **argument)
{
    every_call = count == 2 && strcmp(argument[1], "--all") == 0;
    if (count == 3 && strcmp(argument[1], "--seed") == 0)
        drawn.state = strtoull(argument[2], NULL, 10);
    else if (count != 1 && !every_call)
        return 2;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fault_is_undone_where_pages_move_early),
        cmocka_unit_test(a_fault_is_undone_with_the_defaults),
        cmocka_unit_test(a_fault_is_undone_under_a_limit),
        cmocka_unit_test(a_fault_is_undone_with_pages_of_two_sizes),
        cmocka_unit_test(a_fault_is_undone_with_pages_of_two_sizes_by_default),
        cmocka_unit_test(a_fault_is_undone_with_fixed_segments),
        cmocka_unit_test(a_fault_is_undone_beside_old_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
