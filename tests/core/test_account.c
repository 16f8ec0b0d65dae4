/* The text for running out: it names the page that holds the most for the least, and never advises what is set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core.h"
#include "device.h"
#include "inspect.h"
#include "size.h"
#include "strict_driver.h"

enum { TOTAL = 64 * SG_MIB };

static struct sg_core *core;

static CUdeviceptr allocate(size_t bytes)
{
    const struct sg_tag tag = {.sync = SG_FREE_SYNC_AUTO};
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
    const struct sg_tag tag = {.sync = SG_FREE_SYNC_AUTO};
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
    const char *what;
    strict_complete(UINT32_MAX);
    sg_core_destroy(core);
    if (strict_broken(&what))
        fail_msg("a rule of the driver was broken: %s", what);
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
    release(small[0], SG_FREE_SYNC_AUTO);
    run_out_of_pieces();
    expect_text("512 B in use keep a page of 2.00 MiB");
    release(small[1], SG_FREE_SYNC_AUTO);
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
            release(block[i], SG_FREE_SYNC_AUTO);
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
    enum { PAGE_MB = 8 };
    static const char *const confs[] = {"page_size_mb:8", ""};
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
            release(block[j], SG_FREE_SYNC_AUTO);
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
    CUdeviceptr stays = allocate(20 * SG_MIB), idle = allocate(10 * SG_MIB);
    assert_false(sg_core_shortage(core, 0, &shortage));
    assert_false(sg_core_shortage(core, 1, &shortage));
    release(idle, SG_FREE_SYNC_AUTO);
    run_out(50 * SG_MIB);
    release(stays, SG_FREE_SYNC_AUTO);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holder_is_the_emptiest_page),
        cmocka_unit_test(holder_is_the_emptiest_of_several_in_a_region),
        cmocka_unit_test(limit_stops_it), cmocka_unit_test(others_hold_it), cmocka_unit_test(queued_work_holds_it),
        cmocka_unit_test(partly_used_pages_hold_it),
        cmocka_unit_test(shortage_is_of_the_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
