/* The text for running out: it names the page that holds the most for the least, and never advises what is set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/core.h"
#include "inspect/core_state.h"
#include "rooms.h"
#include "inspect.h"
#include "size.h"
#include "strict_kept.h"
#include "locked.h"

enum { TOTAL = 64 * SG_MIB };

static struct sg_core *core;

static CUdeviceptr allocate(size_t bytes)
{
    const struct sg_tag tag = {.sync = SG_FREE_SYNC_COMPLETE};
    CUdeviceptr address = 0;
    assert_int_equal(sg_core_malloc(core, 0, bytes, &tag, &address), CUDA_SUCCESS);
    return address;
}

static void release(CUdeviceptr address, enum sg_free_sync sync)
{
    const struct sg_tag tag = {.sync = sync};
    assert_int_equal(sg_core_free(core, address, &tag), CUDA_SUCCESS);
}

static void run_out(size_t bytes)
{
    const struct sg_tag tag = {.sync = SG_FREE_SYNC_COMPLETE};
    CUdeviceptr address;
    assert_int_equal(sg_core_malloc(core, 0, bytes, &tag, &address), CUDA_ERROR_OUT_OF_MEMORY);
}

static void expect_text(const char *part)
{
    char text[2048];
    assert_true(sg_core_oom_text(core, 0, NULL, text, sizeof text) < sizeof text);
    if (!strstr(text, part))
        fail_msg("no \"%s\" in:\n%s", part, text);
}

static void stop(void)
{
    strict_complete(UINT32_MAX);
    sg_core_destroy(core);
    strict_expect_kept();
}

/* As much as is not in use, which is not in one piece. */
static void run_out_of_pieces(void)
{
    struct sg_stats stats;
    assert_true(sg_core_stats(core, 0, &stats));
    run_out(TOTAL - stats.value[SG_STAT_allocated_bytes]);
    expect_text("cause    fragmented");
}

/* Of the pages of blocks that share one, are alone in one, or end in one; wholly used ones count for nothing. */
static void holder_is_the_emptiest_page(void **state)
{
    char at[64];
    (void)state;
    core = inspect_start("", TOTAL);
    CUdeviceptr small[2] = {allocate(100), allocate(100)}; /* two in one page */
    (void)allocate(3 * SG_MIB);
    run_out_of_pieces();
    expect_text("in 2 partly used pages");
    expect_text("1.00 KiB in use keep a page of 2.00 MiB");
    snprintf(at, sizeof at, "(at 0x%llx, a block of", (unsigned long long)small[0]);
    expect_text(at);
    release(small[0], SG_FREE_SYNC_COMPLETE);
    run_out_of_pieces();
    expect_text("512 B in use keep a page of 2.00 MiB");
    release(small[1], SG_FREE_SYNC_COMPLETE);
    run_out_of_pieces();
    expect_text("in 1 partly used page\n");
    stop();
}

/* Four pages of small blocks: of the first three some stay, the fourth is wholly in use. */
static void holder_is_the_emptiest_of_several_in_a_region(void **state)
{
    (void)state;
    enum { BLOCK = 64 * 1024, OF_A_PAGE = 32, PAGES = 4 };
    static const int stay[PAGES] = {3, 1, 2, OF_A_PAGE};
    CUdeviceptr block[PAGES * OF_A_PAGE];
    char at[64];
    core = inspect_start("", TOTAL);
    for (int i = 0; i < PAGES * OF_A_PAGE; i++) {
        block[i] = allocate(BLOCK);
        assert_int_equal(block[i], block[0] + (CUdeviceptr)i * BLOCK);
    }
    for (int i = 0; i < PAGES * OF_A_PAGE; i++)
        if (i % OF_A_PAGE >= stay[i / OF_A_PAGE])
            release(block[i], SG_FREE_SYNC_COMPLETE);
    run_out_of_pieces();
    expect_text("in 3 partly used pages");
    expect_text("64.00 KiB in use keep a page of 2.00 MiB");
    snprintf(at, sizeof at, "(at 0x%llx, a block of", (unsigned long long)block[OF_A_PAGE]);
    expect_text(at);
    stop();
}

static void limit_stops_it(void **state)
{
    (void)state;
    core = inspect_start("limit:32MiB", TOTAL);
    (void)allocate(20 * SG_MIB);
    run_out(20 * SG_MIB);
    expect_text("raise `limit`");
    run_out(60 * SG_MIB); /* nor would the device have that */
    expect_text("smaller batches");
    stop();
}

static void others_hold_it(void **state)
{
    (void)state;
    CUdeviceptr foreign;
    core = inspect_start("", TOTAL);
    assert_int_equal(strict_driver.mem_alloc(&foreign, 16 * SG_MIB), CUDA_SUCCESS);
    (void)allocate(20 * SG_MIB);
    run_out(40 * SG_MIB);
    expect_text("cause    other processes hold 16.00 MiB of this device\n");
    assert_int_equal(strict_driver.mem_free(foreign), CUDA_SUCCESS);
    stop();
}

/* Nothing can be waited for while a capture is live. */
static void queued_work_holds_it(void **state)
{
    (void)state;
    static const char *const confs[] = {"", "free_sync:strict"};
    for (int i = 0; i < 2; i++) {
        core = inspect_start(confs[i], TOTAL);
        CUdeviceptr block = allocate(2 * SG_MIB);
        (void)allocate(60 * SG_MIB);
        inspect_capturing = true;
        release(block, SG_FREE_SYNC_EVENT);
        run_out(4 * SG_MIB);
        expect_text("cause    work still queued: it uses 2.00 MiB");
        expect_text(i == 0 ? "free_sync:strict waits for it" : "synchronize before this allocation");
        inspect_capturing = false;
        stop();
    }
}

/* Half of each page is free, which blocks of that size fill, but none that is larger. */
static void partly_used_pages_hold_it(void **state)
{
    (void)state;
    enum { PAGE_MB = 4 };
    static const char *const confs[] = {"page_size_mb:4", ""};
    static const char *const causes[] = {"unset page_size_mb", "the small blocks that stay"};
    for (int i = 0; i < 2; i++) {
        uint64_t size = (i ? 2 * SG_MIB : PAGE_MB * SG_MIB) / 2, blocks = TOTAL / size;
        CUdeviceptr block[2 * TOTAL / (2 * SG_MIB)];
        core = inspect_start(confs[i], TOTAL);
        for (uint64_t j = 0; j < blocks; j++)
            block[j] = allocate(size);
        run_out(2 * size);
        expect_text("too big");
        for (uint64_t j = 0; j < blocks; j += 2)
            release(block[j], SG_FREE_SYNC_COMPLETE);
        run_out(4 * size);
        expect_text("cause    fragmented");
        expect_text(causes[i]);
        expect_text("partly used pages");
        stop();
    }
}

/* The figures of a failure are those of its moment, and add up. */
static void shortage_is_of_the_failure(void **state)
{
    (void)state;
    struct sg_shortage shortage;
    core = inspect_start("", TOTAL);
    CUdeviceptr best_deferred = allocate(20 * SG_MIB), idle = allocate(10 * SG_MIB);
    assert_false(sg_core_shortage(core, 0, &shortage));
    assert_false(sg_core_shortage(core, 1, &shortage));
    release(idle, SG_FREE_SYNC_COMPLETE);
    run_out(50 * SG_MIB);
    release(best_deferred, SG_FREE_SYNC_COMPLETE);
    assert_true(sg_core_shortage(core, 0, &shortage));
    assert_int_equal(shortage.asked, 50 * SG_MIB);
    assert_int_equal(shortage.live, 20 * SG_MIB);
    assert_int_equal(shortage.idle, 10 * SG_MIB);
    assert_int_equal(shortage.room, TOTAL - 30 * SG_MIB);
    assert_int_equal(shortage.short_by, 50 * SG_MIB - (TOTAL - 20 * SG_MIB));
    expect_text("segalloc: out of memory on device 0: short by 6.00 MiB: 50.00 MiB asked for, 44.00 MiB to be had "
                "(10.00 MiB idle + 34.00 MiB free)\n");
    stop();
}

/* Of a device of 100 bytes: what would have been needed for the allocation to be served. */
static void the_cause_by_its_figures(void **state)
{
    static const struct {
        uint64_t limit, outside, allocated, used, asked, others, parked;
        enum sg_oom_cause cause;
        uint64_t own, pools; /* in use by this process's other calls; idle in its pools */
        bool complete;       /* the list of other processes is */
        uint64_t graphs;     /* freed, and kept by graphs */
    } rows[] = {
        {100, 0, 60, 60, 41, 0, 0, SG_OOM_GRAPHS, 0, 0, false, 1}, {100, 0, 60, 60, 42, 0, 0, SG_OOM_TOO_BIG, 0, 0, false, 1},
        {100, 0, 60, 60, 100, 0, 0, SG_OOM_GRAPHS, 0, 0, false, 60}, {100, 0, 60, 60, 40, 0, 0, SG_OOM_FRAGMENTED, 0, 0, false, 60},
        {100, 0, 60, 60, 101, 0, 0, SG_OOM_TOO_BIG, 0, 0, false, 90}, /* no more than is in use */
        {80, 0, 60, 60, 40, 0, 0, SG_OOM_GRAPHS, 0, 0, false, 30}, /* either would do: the limit stays */
        {50, 0, 40, 40, 70, 0, 0, SG_OOM_LIMIT, 0, 0, false, 20},  /* it takes both: the larger one */
        {80, 0, 60, 60, 90, 0, 0, SG_OOM_GRAPHS, 0, 0, false, 50},
        {100, 30, 40, 40, 70, 0, 0, SG_OOM_OWN, 30, 0, false, 20}, {100, 30, 40, 40, 70, 30, 0, SG_OOM_GRAPHS, 0, 0, false, 40},
        {100, 50, 10, 10, 50, 0, 0, SG_OOM_OWN, 50, 0, false, 0}, {100, 50, 10, 10, 50, 0, 0, SG_OOM_POOLS, 0, 50, false, 0},
        {100, 50, 10, 10, 50, 0, 0, SG_OOM_OWN, 0, 0, true, 0}, {100, 50, 10, 10, 50, 0, 0, SG_OOM_OTHERS, 0, 0, false, 0},
        {100, 50, 10, 10, 50, 0, 0, SG_OOM_POOLS, 30, 20, false, 0}, /* the idle ones would do */
        {100, 50, 10, 10, 65, 0, 0, SG_OOM_OWN, 30, 20, false, 0},
        {100, 50, 10, 10, 91, 0, 0, SG_OOM_TOO_BIG, 50, 0, false, 0},
        {100, 50, 10, 10, 40, 0, 0, SG_OOM_FRAGMENTED, 50, 0, false, 0},
        {100, 50, 10, 20, 40, 0, 0, SG_OOM_QUEUED, 50, 0, false, 0},
        {100, 60, 10, 10, 50, 20, 0, SG_OOM_OWN, 40, 0, false, 0},  /* alone; others alone would not do */
        {100, 60, 10, 10, 50, 40, 0, SG_OOM_OTHERS, 20, 0, false, 0},
        {100, 60, 10, 10, 40, 35, 0, SG_OOM_OTHERS, 25, 0, false, 0}, /* either would do */
        {100, 60, 10, 10, 40, 25, 0, SG_OOM_OWN, 35, 0, false, 0},
        {100, 60, 10, 10, 90, 20, 0, SG_OOM_OWN, 40, 0, false, 0},  /* it takes both: the larger one */
        {100, 60, 10, 10, 90, 40, 0, SG_OOM_OTHERS, 20, 0, false, 0},
        {100, 60, 10, 10, 90, 20, 0, SG_OOM_POOLS, 10, 30, false, 0},
        {60, 50, 10, 10, 50, 0, 0, SG_OOM_OWN, 50, 0, false, 0},    /* the limit allows it */
        {40, 50, 10, 10, 35, 0, 0, SG_OOM_LIMIT, 50, 0, false, 0},
        {60, 50, 10, 10, 60, 0, 0, SG_OOM_OWN, 50, 0, false, 0},    /* it takes both */
        {40, 50, 10, 10, 60, 0, 0, SG_OOM_LIMIT, 50, 0, false, 0},
        {40, 50, 10, 10, 60, 0, 0, SG_OOM_LIMIT, 0, 50, false, 0},
        {100, 10, 40, 40, 60, 0, 0, SG_OOM_OWN, 10, 0, false, 0},   /* known, however little */
        {100, 10, 40, 40, 60, 0, 0, SG_OOM_TOO_BIG, 0, 0, true, 0},
        {100, 50, 10, 10, 50, 90, 0, SG_OOM_OWN, 50, 0, true, 0},   /* listed twice: this process's own comes first */
        {100, 0, 40, 40, 60, 0, 0, SG_OOM_FRAGMENTED, 0, 0, false, 0}, /* as much is not in use */
        {100, 0, 40, 40, 61, 0, 0, SG_OOM_TOO_BIG, 0, 0, false, 0}, {100, 0, 0, 10, UINT64_MAX - 9, 0, 0, SG_OOM_TOO_BIG, 0, 0, false, 0},
        {100, 0, 0, 10, UINT64_MAX - 10, 0, 0, SG_OOM_TOO_BIG, 0, 0, false, 0}, {100, 0, 30, 50, 70, 0, 0, SG_OOM_QUEUED, 0, 0, false, 0},
        {100, 0, 30, 50, 71, 0, 0, SG_OOM_TOO_BIG, 0, 0, false, 0},
        {100, 0, 50, 50, 70, 0, 20, SG_OOM_QUEUED, 0, 0, false, 0}, /* freed while a graph was captured */
        {100, 0, 50, 50, 71, 0, 20, SG_OOM_TOO_BIG, 0, 0, false, 0}, {100, 0, 50, 50, 100, 0, 60, SG_OOM_QUEUED, 0, 0, false, 0},
        {60, 0, 40, 40, 20, 0, 0, SG_OOM_FRAGMENTED, 0, 0, false, 0}, {60, 0, 40, 40, 60, 0, 0, SG_OOM_LIMIT, 0, 0, false, 0},
        {60, 0, 40, 40, 61, 0, 0, SG_OOM_TOO_BIG, 0, 0, false, 0}, {100, 30, 40, 40, 60, 30, 0, SG_OOM_OTHERS, 0, 0, false, 0},
        {100, 30, 40, 40, 60, 90, 0, SG_OOM_OTHERS, 0, 0, false, 0}, /* they cannot hold more than is outside */
        {100, 30, 40, 40, 61, 90, 0, SG_OOM_TOO_BIG, 0, 0, false, 0}, {100, 30, 40, 40, 35, 5, 0, SG_OOM_OTHERS, 0, 0, false, 0},
        {100, 30, 40, 40, 36, 5, 0, SG_OOM_TOO_BIG, 0, 0, false, 0},
        {100, 10, 40, 40, 60, 0, 0, SG_OOM_TOO_BIG, 0, 0, false, 0}, /* a tenth may be this process's own */
        {100, 11, 40, 40, 60, 0, 0, SG_OOM_OTHERS, 0, 0, false, 0},
        {60, 50, 40, 40, 60, 50, 0, SG_OOM_OTHERS, 0, 0, false, 0}, /* both: others take more */
        {40, 50, 40, 40, 60, 50, 0, SG_OOM_LIMIT, 0, 0, false, 0}, {50, 50, 40, 40, 60, 50, 0, SG_OOM_LIMIT, 0, 0, false, 0},
        {50, 50, 40, 40, 61, 50, 0, SG_OOM_TOO_BIG, 0, 0, false, 0}, {100, 200, 0, 0, 1, 0, 0, SG_OOM_OTHERS, 0, 0, false, 0}, /* more than there is */
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct sg_oom_process process[2] = {{.bytes = rows[i].others - rows[i].others / 3},
            {.bytes = rows[i].others / 3}};
        const struct sg_oom_own own[] = {{.how = "by a call", .bytes = rows[i].own},
            {.how = "idle", .bytes = rows[i].pools, .idle = true}};
        const struct sg_oom_around around = {.process = process, .processes = 2, .parked = rows[i].parked,
            .own = own, .owns = 2, .complete = rows[i].complete, .graphs = rows[i].graphs};
        const struct sg_shortage shortage = {.total = 100,
            .limit = rows[i].limit,
            .outside = rows[i].outside,
            .allocated = rows[i].allocated,
            .used = rows[i].used,
            .asked = rows[i].asked};
        if (sg_oom_cause(&shortage, &around) != rows[i].cause)
            fail_msg("row %zu", i);
    }
}

/* Of a device of 100 bytes: each set of causes that have to go together, the first by itself. */
static void causes_that_go_together(void **state)
{
    enum {
        LIMIT = 1 << SG_OOM_LIMIT,
        QUOTA = 1 << SG_OOM_QUOTA,
        OWN = 1 << SG_OOM_OWN,
        OTHERS = 1 << SG_OOM_OTHERS,
        GRAPHS = 1 << SG_OOM_GRAPHS
    };
    static const struct {
        uint64_t limit, own, others, graphs, allocated, asked;
        enum sg_oom_cause first;
        unsigned also;
        uint64_t unlimited; /* short where the limit alone is raised */
        uint64_t quota;     /* 0: there is none */
    } rows[] = {
        {100, 0, 0, 0, 10, 60, SG_OOM_QUOTA, 0, 20, 50},
        {100, 0, 0, 0, 10, 60, SG_OOM_FRAGMENTED, 0, 0, 70},
        {100, 0, 0, 0, 10, 60, SG_OOM_FRAGMENTED, 0, 0, 120}, /* no bound */
        {100, 0, 0, 0, 10, 91, SG_OOM_TOO_BIG, 0, 51, 50},
        {100, 20, 0, 0, 10, 60, SG_OOM_QUOTA, 0, 40, 50},
        {60, 0, 0, 0, 10, 70, SG_OOM_QUOTA, LIMIT, 30, 50},
        {50, 0, 0, 0, 10, 70, SG_OOM_LIMIT, QUOTA, 20, 60},
        {60, 0, 0, 0, 10, 60, SG_OOM_LIMIT, 0, 0, 80}, /* which the quota leaves room for */
        {100, 35, 0, 0, 5, 70, SG_OOM_QUOTA, OWN, 60, 50},
        {100, 45, 0, 0, 5, 70, SG_OOM_OWN, QUOTA, 60, 60},
        {100, 0, 35, 0, 5, 70, SG_OOM_QUOTA, OTHERS, 60, 50},
        {100, 0, 45, 0, 5, 70, SG_OOM_OTHERS, QUOTA, 60, 60},
        {100, 0, 0, 30, 40, 80, SG_OOM_QUOTA, GRAPHS, 70, 50},
        {100, 0, 0, 30, 40, 80, SG_OOM_GRAPHS, QUOTA, 40, 80},
        {60, 20, 20, 20, 30, 85, SG_OOM_QUOTA, LIMIT | OWN | OTHERS | GRAPHS, 115, 40},
        {50, 45, 0, 0, 10, 60, SG_OOM_LIMIT, OWN, 15, 0},
        {50, 0, 45, 0, 10, 60, SG_OOM_LIMIT, OTHERS, 15, 0},
        {60, 45, 0, 0, 10, 60, SG_OOM_OWN, LIMIT, 15, 0},
        {60, 0, 45, 0, 10, 60, SG_OOM_OTHERS, LIMIT, 15, 0},
        {50, 0, 0, 30, 40, 80, SG_OOM_LIMIT, GRAPHS, 20, 0},
        {80, 0, 0, 30, 40, 80, SG_OOM_GRAPHS, LIMIT, 20, 0},
        {100, 40, 30, 0, 10, 80, SG_OOM_OWN, OTHERS, 60, 0},
        {100, 30, 40, 0, 10, 80, SG_OOM_OTHERS, OWN, 60, 0},
        {100, 30, 0, 20, 40, 70, SG_OOM_OWN, GRAPHS, 40, 0},
        {100, 20, 0, 30, 40, 75, SG_OOM_GRAPHS, OWN, 35, 0},
        {100, 0, 30, 20, 40, 70, SG_OOM_OTHERS, GRAPHS, 40, 0},
        {100, 0, 20, 30, 40, 75, SG_OOM_GRAPHS, OTHERS, 35, 0},
        {40, 30, 20, 0, 10, 80, SG_OOM_LIMIT, OWN | OTHERS, 40, 0},
        {40, 30, 20, 20, 30, 90, SG_OOM_LIMIT, OWN | OTHERS | GRAPHS, 70, 0},
        {40, 0, 0, 0, 10, 50, SG_OOM_LIMIT, 0, 0, 0},
        {100, 45, 0, 0, 10, 60, SG_OOM_OWN, 0, 15, 0},
        {100, 0, 0, 30, 40, 80, SG_OOM_GRAPHS, 0, 20, 0},
        {50, 20, 20, 20, 40, 90, SG_OOM_TOO_BIG, 0, 70, 0},
        {100, 40, 0, 0, 10, 50, SG_OOM_FRAGMENTED, 0, 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct sg_oom_process process = {.bytes = rows[i].others};
        const struct sg_oom_own own = {.how = "by a call", .bytes = rows[i].own};
        const struct sg_oom_around around = {.process = &process,
            .processes = 1,
            .own = &own,
            .owns = 1,
            .complete = true,
            .graphs = rows[i].graphs,
            .quota = rows[i].quota};
        const struct sg_shortage shortage = {.total = 100,
            .limit = rows[i].limit,
            .outside = rows[i].own + rows[i].others,
            .allocated = rows[i].allocated,
            .used = rows[i].allocated,
            .asked = rows[i].asked};
        if (sg_oom_cause(&shortage, &around) != rows[i].first || sg_oom_also(&shortage, &around, rows[i].first) != rows[i].also ||
            sg_oom_short_unlimited(&shortage, &around) != rows[i].unlimited)
            fail_msg("row %zu: %d, %#x, %d", i, (int)sg_oom_cause(&shortage, &around),
                sg_oom_also(&shortage, &around, rows[i].first), (int)sg_oom_short_unlimited(&shortage, &around));
    }
}

static void expect_said(const struct sg_oom_around *around, const char *part, bool expected)
{
    char text[4096];
    assert_true(sg_core_oom_text(core, 0, around, text, sizeof text) < sizeof text);
    if ((strstr(text, part) != NULL) != expected)
        fail_msg("%s\"%s\" in:\n%s", expected ? "no " : "", part, text);
}

static void other_processes_are_named(void **state)
{
    (void)state;
    const struct sg_oom_process process[] = {{11, 7 * SG_MIB, "python"}, {12, 3 * SG_MIB, ""}, {13, 2 * SG_MIB, "x"},
        {14, SG_MIB, "y"}, {15, SG_MIB, "z"}, {16, SG_MIB, "zz"}};
    CUdeviceptr foreign;
    core = inspect_start("", TOTAL);
    assert_int_equal(strict_driver.mem_alloc(&foreign, 16 * SG_MIB), CUDA_SUCCESS);
    (void)allocate(20 * SG_MIB);
    run_out(40 * SG_MIB);
    struct sg_oom_around around = {.process = process, .processes = 6};
    expect_said(&around, "  cause    other processes hold 15.00 MiB of this device\n", true);
    expect_said(&around, "  process  11 (python) holds 7.00 MiB\n  process  12 holds 3.00 MiB\n  process  13 (x) holds",
        true);
    expect_said(&around, "  process  14 (y) holds 1.00 MiB\n  process  and 2 more\n", true);
    expect_said(&around, "  next     ps -fp 11,12,13,14,15,16\n", true);
    around.processes = 4;
    expect_said(&around, "more\n", false);
    around.processes = 2;
    around.some_only = true; /* 16 MiB are held by others, 10 of them by these */
    expect_said(&around, "  cause    too big", true);
    around.processes = 1;
    expect_said(&around, "  cause    other processes hold 16.00 MiB of this device\n", true);
    expect_said(&around, "  process  others, which this process cannot list, hold 9.00 MiB\n", true);
    around.processes = 0;
    expect_said(&around, "  next     nvidia-smi\n", true);
    assert_int_equal(strict_driver.mem_free(foreign), CUDA_SUCCESS);
    stop();
}

static bool tell_site(uint32_t site, char *text, size_t size)
{
    return site != 8 && snprintf(text, size, "line %u", site) > 0;
}

static CUdeviceptr allocate_at(uint32_t site, size_t bytes)
{
    const struct sg_tag tag = {.sync = SG_FREE_SYNC_COMPLETE, .site = site};
    CUdeviceptr address = 0;
    assert_int_equal(sg_core_malloc(core, 0, bytes, &tag, &address), CUDA_SUCCESS);
    return address;
}

/* Blocks of one source line are one row. Blocks of unknown lines are grouped by size. */
static void what_is_alive_by_line(void **state)
{
    static const char *const confs[] = {"", "expandable_segments:False"};
    struct sg_oom_around around = {.site = tell_site, .command = "python train.py"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        core = inspect_start(confs[i], TOTAL);
        (void)allocate_at(7, 4 * SG_MIB);
        (void)allocate_at(7, 8 * SG_MIB);
        (void)allocate_at(8, 6 * SG_MIB);
        (void)allocate(2 * SG_MIB);
        (void)allocate(2 * SG_MIB);
        run_out(TOTAL);
        expect_said(&around, "  holds    12.00 MiB in 2 blocks, 6.00 MiB on average, asked for at line 7\n", true);
        expect_said(&around, "  holds    6.00 MiB in 1 block\n  holds    4.00 MiB in 2 blocks, 2.00 MiB on average\n",
            true);
        expect_said(&around, "  next     segalloc rehearse --card 64MiB -- python train.py\n", true);
        around.command = "";
        expect_said(&around, "-- CMD\n", true);
        around.command = "python train.py";
        struct sg_oom_around nobody = {.site = NULL};
        expect_said(&nobody, "asked for at", false);
        stop();
    }
}

/* What has no room is counted all the same, as snprintf does. */
static void a_text_that_is_cut(void **state)
{
    char whole[2048], part[2048];
    (void)state;
    core = inspect_start("", TOTAL);
    run_out(2 * TOTAL);
    size_t length = sg_core_oom_text(core, 0, NULL, whole, sizeof whole);
    for (size_t size = 0; size < length + 2; size++) {
        memset(part, '?', sizeof part);
        assert_int_equal(sg_core_oom_text(core, 0, NULL, part, size), length);
        size_t written = size > length ? length : size ? size - 1 : 0;
        assert_memory_equal(part, whole, written);
        assert_int_equal(part[size], '?');
        assert_true(!size || part[written] == '\0');
    }
    stop();
}

/* Blocks freed during a capture reach the core after it. */
static void what_is_parked(void **state)
{
    (void)state;
    const struct sg_oom_around around = {.parked = 20 * SG_MIB};
    core = inspect_start("", TOTAL);
    (void)allocate(40 * SG_MIB);
    run_out(40 * SG_MIB);
    expect_said(&around,
        "work still queued: it uses 20.00 MiB that are freed already\n"
        "  help     allocate before a graph is captured, or free before it\n",
        true);
    expect_said(&around, "  next     segalloc run -o run.trace -- CMD\n", true);
    stop();
}

/* Bytes to move instead of creating pages, of a device of 100 bytes at which a page was refused with 50 held. */
static void moves_by_what_was_refused(void **state)
{
    static struct sg_core plain;
    static struct sg_device device = {.core = &plain,
        .capacity_bytes = 100,
        .room.refused_at = 50,
        .accounts.usage.reserved.now = 30};
    static const struct {
        uint64_t more;
        bool refused;
        uint64_t should, must;
    } rows[] = {{10, false, 0, 0}, {20, false, 0, 0}, {25, false, 5, 0}, {25, true, 5, 5}, {70, false, 50, 0},
        {75, false, 55, 5}, {75, true, 55, 55}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sg_wanted wanted =
            LOCKED(&device, sg_device_moves_wanted_locked(&device, rows[i].more, rows[i].more, rows[i].refused));
        assert_int_equal(wanted.should, rows[i].should);
        assert_int_equal(wanted.must, rows[i].must);
    }
    device.room.refused_at = 0;
    assert_int_equal(LOCKED(&device, sg_device_moves_wanted_locked(&device, 70, 70, true)).should, 0);
    plain.conf.reserve_slack = 1.0; /* of 10 bytes that are allocated at most */
    assert_int_equal(LOCKED(&device, sg_device_moves_wanted_locked(&device, 10, 10, false)).should, 10);
}

/* Drivers differ by less than a twentieth of the device, quotas by more. */
static void less_than_the_device_has_is_a_quota(void **state)
{
    (void)state;
    assert_false(sg_core_is_quota(1000, 1000));
    assert_false(sg_core_is_quota(1000, 900));
    assert_false(sg_core_is_quota(950, 1000));
    assert_true(sg_core_is_quota(949, 1000));
    assert_true(sg_core_is_quota(0, 1000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holder_is_the_emptiest_page),
        cmocka_unit_test(holder_is_the_emptiest_of_several_in_a_region),
        cmocka_unit_test(limit_stops_it),
        cmocka_unit_test(others_hold_it),
        cmocka_unit_test(queued_work_holds_it),
        cmocka_unit_test(partly_used_pages_hold_it),
        cmocka_unit_test(shortage_is_of_the_failure),
        cmocka_unit_test(the_cause_by_its_figures),
        cmocka_unit_test(causes_that_go_together),
        cmocka_unit_test(other_processes_are_named),
        cmocka_unit_test(what_is_alive_by_line),
        cmocka_unit_test(a_text_that_is_cut),
        cmocka_unit_test(what_is_parked),
        cmocka_unit_test(moves_by_what_was_refused),
        cmocka_unit_test(less_than_the_device_has_is_a_quota),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
