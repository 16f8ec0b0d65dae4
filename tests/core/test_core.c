/* What is asked about devices, slots and addresses that are not there, or not served: answered, and nothing done. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "inspect/core_state.h"
#include "rooms.h"
#include "inspect.h"
#include "size.h"
#include "strict_kept.h"

enum { TOTAL = 64 * SG_MIB };

static const struct sg_tag tag = {.sync = SG_FREE_SYNC_COMPLETE};
static struct sg_core *core;

static void start(const char *conf)
{
    core = inspect_start(conf, TOTAL);
}

static void stop(void)
{
    sg_core_destroy(core);
    strict_expect_over();
}

static CUdeviceptr allocate(size_t bytes)
{
    CUdeviceptr address = 0;
    assert_int_equal(sg_core_malloc(core, 0, bytes, &tag, &address), CUDA_SUCCESS);
    return address;
}

/* Nothing is to be had of it, or to be changed in it. */
static void expect_nothing(int device)
{
    struct sg_stats stats;
    struct sg_piece piece;
    char text[8] = "text";
    size_t free_bytes = 1, total_bytes = 2;
    assert_false(sg_core_stats(core, device, &stats));
    assert_false(sg_core_stats_recent(core, device, &stats));
    assert_int_equal(sg_core_pieces(core, device, &piece, 1), 0);
    assert_int_equal(sg_core_limit(core, device), 0);
    assert_false(sg_core_is_limited(core, device));
    assert_int_equal(sg_core_trim(core, device, 0), 0);
    assert_int_equal(sg_core_oom_text(core, device, NULL, text, 0), 0);
    assert_string_equal(text, "text");
    assert_int_equal(sg_core_oom_text(core, device, NULL, text, sizeof text), 0);
    assert_string_equal(text, "");
    sg_core_mem_info(core, device, &free_bytes, &total_bytes);
    assert_int_equal(free_bytes, 1);
    assert_int_equal(total_bytes, 2);
    sg_core_reset_peaks(core, device);
    apply(core, device, SEGALLOC_RECORD_MERGE, 0, 0);
    apply(core, device, SEGALLOC_RECORD_PRESSURE, 0, SG_MIB);
    sg_core_poll(core, device);
    apply(core, device, SEGALLOC_RECORD_DONE, 0, 0);
    apply(core, device, SEGALLOC_RECORD_PIN, 0, 1);
    apply(core, device, SEGALLOC_RECORD_MARK, 2, 1);
    sg_core_context_gone(core, device, NULL);
    apply(core, device, SEGALLOC_RECORD_CONTEXT_GONE, (uint64_t)(uintptr_t)(NULL), 0);
}

/* Nor of the order of its streams. */
static void expect_no_order(int device, sg_slot slot)
{
    struct sg_vector_clock clock;
    uint64_t done = 1;
    sg_core_slot_gone(core, device, slot);
    sg_core_slot_untracked_order(core, device, slot);
    sg_core_slot_submitted(core, device, slot);
    memset(&clock, 1, sizeof clock);
    sg_core_clock(core, device, slot, &clock);
    assert_int_equal(clock.at[1], 0);
    memset(&clock, 1, sizeof clock);
    sg_core_idle_clock(core, device, slot, &clock, &done);
    assert_int_equal(clock.at[1], 0);
    assert_int_equal(done, 0);
    clock.at[1] = 1;
    sg_core_ordered_after(core, device, slot, &clock);
}

static void device_that_was_never_used(void **state)
{
    (void)state;
    static const int devices[] = {0, -1, SG_DEVICES_MAX};
    struct sg_vector_clock clock;
    start("");
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        expect_nothing(devices[i]);
        expect_no_order(devices[i], 1);
        sg_core_context_clock(core, devices[i], NULL, &clock);
        assert_int_equal(clock.at[0], 0);
        clock.at[1] = 1;
        sg_core_host_observed(core, devices[i], &clock);
        sg_core_completed(core, devices[i], &clock);
    }
    assert_null(core->device[0]);
    stop();
}

static void device_that_cannot_be(void **state)
{
    (void)state;
    static const int devices[] = {-1, SG_DEVICES_MAX};
    const struct sg_stream_id id = {.key = 1};
    CUdeviceptr address = 5;
    start("");
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        assert_int_equal(sg_core_malloc(core, devices[i], SG_MIB, &tag, &address), CUDA_ERROR_NOT_SUPPORTED);
        assert_int_equal(address, 5);
        assert_int_equal(sg_core_set_limit(core, devices[i], SG_MIB), 0);
        assert_int_equal(sg_core_slot(core, devices[i], &id), 0);
        assert_int_equal(sg_core_peer_access(core, devices[i], 1, true), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(sg_core_peer_access(core, 0, devices[i], true), CUDA_ERROR_INVALID_VALUE);
        sg_core_passthrough(core, devices[i], 0x1000, SG_MIB);
    }
    stop();
}

static void slot_that_cannot_be(void **state)
{
    (void)state;
    start("");
    CUdeviceptr block = allocate(SG_MIB);
    expect_no_order(0, 0);
    expect_no_order(0, SG_SLOTS);
    assert_int_equal(sg_core_record_stream(core, block, SG_SLOTS), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(sg_core_record_stream(core, block + 512, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(sg_core_record_stream(core, 0x1000, 1), CUDA_ERROR_NOT_FOUND);
    stop();
}

/* A stream that was never followed, whose slot was never given out. */
static void slot_that_was_never_given_out(void **state)
{
    (void)state;
    start("");
    CUdeviceptr block = allocate(SG_MIB);
    sg_core_slot_gone(core, 0, 3);
    assert_int_equal(sg_core_free(core, block, &tag), CUDA_SUCCESS);
    inspect(core, 1);
    stop();
}

static void address_without_a_block(void **state)
{
    (void)state;
    struct sg_block_info info;
    bool all;
    start("");
    CUdeviceptr block = allocate(700), foreign = 0x1000;
    assert_int_equal(sg_core_block(core, block + 699, &info), CUDA_SUCCESS);
    assert_int_equal(info.base, block);
    assert_int_equal(sg_core_block(core, block + 700, &info), CUDA_ERROR_INVALID_VALUE); /* it was rounded up */
    assert_int_equal(sg_core_block(core, block + 4096, &info), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(sg_core_block(core, foreign, &info), CUDA_ERROR_NOT_FOUND);
    assert_int_equal(sg_core_wait(core, foreign, NULL, &all), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(sg_core_wait(core, block + 512, NULL, &all), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(sg_core_free(core, foreign, &tag), CUDA_ERROR_NOT_FOUND);
    sg_core_used_cross_device(core, foreign);
    sg_core_used_cross_device(core, block + 4096);
    assert_int_equal(core->device[0]->regions.extents.extent[core->device[0]->regions.region[0]->first].users_mask, 0);
    stop();
}

static struct segalloc_trace_record pin[8];
static int pins_told;

static void note_pin(void *sink, const struct segalloc_trace_record *record)
{
    (void)sink;
    if (record->kind == SEGALLOC_RECORD_PIN && pins_told < 8)
        pin[pins_told++] = *record;
}

/* Up to the end of a region, but for a page that the driver would not unmap. */
static void pins_beside_a_lost_page(void **state)
{
    (void)state;
    start("");
    CUdeviceptr block = allocate(6 * SG_MIB);
    (void)allocate(TOTAL / 2 + 2 * SG_MIB); /* a region of one page */
    const struct sg_device *device = core->device[0];
    struct sg_region *region = NULL;
    for (uint32_t i = 0; i < device->regions.count; i++)
        if (device->regions.region[i]->base <= block &&
            block - device->regions.region[i]->base < (uint64_t)device->regions.region[i]->units << 9)
            region = device->regions.region[i];
    assert_non_null(region);
    uint64_t page = (block - region->base) / (2 * SG_MIB) + 1;
    CUmemGenericAllocationHandle handle = region->memory.handle[page];
    region->memory.handle[page] = SG_PAGE_LOST;
    assert_true(sg_core_pin_all(core));
    assert_int_equal(device->accounts.usage.pinned.now, device->accounts.usage.reserved.now - 2 * SG_MIB);
    region->memory.handle[page] = handle;
    assert_true(sg_core_pin_all(core));
    assert_int_equal(device->accounts.usage.pinned.now, device->accounts.usage.reserved.now);
    sg_core_destroy(core);
}

static void peers_of_a_replay(void **state)
{
    (void)state;
    start("");
    apply(core, 0, SEGALLOC_RECORD_PEERS, 0, 2);
    const struct sg_device *device = core->device[0];
    assert_true(device->access.peers == 2 && device->access.peer_accessed);
    apply(core, 0, SEGALLOC_RECORD_PEERS, 0, 0);
    assert_true(device->access.peers == 0 && device->access.peer_accessed); /* it has had access */
    sg_core_destroy(core);
}

/* Every page that there is stays, whoever has it; what is made later does not, until it is asked for again. */
static void pins_of_all(void **state)
{
    (void)state;
    start("");
    core->observer = (struct sg_event_sink){note_pin, NULL};
    pins_told = 0;
    assert_false(sg_core_pin_all(core)); /* no device is in use */
    CUdeviceptr block = allocate(6 * SG_MIB), other = allocate(8 * SG_MIB), small = allocate(1000);
    assert_int_equal(sg_core_free(core, other, &tag), CUDA_SUCCESS);
    const struct sg_device *device = core->device[0];
    assert_true(sg_core_pin_all(core));
    uint32_t held = (uint32_t)(device->accounts.usage.reserved.now / (2 * SG_MIB));
    assert_int_equal(device->accounts.usage.pinned.now, device->accounts.usage.reserved.now);
    assert_true(sg_core_pin_all(core));
    assert_int_equal(pins_told, 2); /* of each region, once */
    assert_int_equal(pin[0].size + pin[1].size, held);
    (void)allocate(40 * SG_MIB);
    assert_true(device->accounts.usage.pinned.now < device->accounts.usage.reserved.now);
    assert_int_equal(sg_core_free(core, block, &tag), CUDA_SUCCESS);
    assert_int_equal(sg_core_free(core, small, &tag), CUDA_SUCCESS);
    assert_int_equal(sg_core_trim(core, 0, 0), 0); /* those that are whole and idle as well */
    stop();
}

/* The last page of a region, and what is said of addresses beyond its end. */
static void pins_end_with_the_region(void **state)
{
    (void)state;
    start("");
    CUdeviceptr block = allocate(5 * SG_MIB);
    const struct sg_device *device = core->device[0];
    const struct sg_region *region = device->regions.region[0];
    sg_core_pin(core, 0x1000, SG_MIB);
    sg_core_pin(core, block, 0);
    assert_int_equal(region->memory.pinned, 0);
    CUdeviceptr end = region->base + ((CUdeviceptr)region->units << SG_UNIT_SHIFT);
    sg_core_pin(core, end - SG_MIB, 16 * SG_MIB);
    assert_int_equal(region->memory.pinned, 1);
    assert_true(region->memory.pin[region->pages - 1] & SG_PIN_ASKED);
    apply(core, 0, SEGALLOC_RECORD_PIN, UINT64_C(7) << 32, 1); /* no such region, no such page, not so many */
    apply(core, 0, SEGALLOC_RECORD_PIN, region->pages, 1);
    apply(core, 0, SEGALLOC_RECORD_PIN, region->pages - 1, 2);
    assert_int_equal(region->memory.pinned, 1);
    apply(core, 0, SEGALLOC_RECORD_PIN, 0, 2);
    assert_int_equal(region->memory.pinned, 3);
    stop();
}

static void nothing_at_all(void **state)
{
    (void)state;
    CUdeviceptr address = 5;
    start("");
    assert_int_equal(sg_core_malloc(core, 0, 0, &tag, &address), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(address, 5);
    stop();
    sg_core_destroy(NULL);
}

/* The driver serves it, and the core has no part in that. */
static void device_that_is_not_served(void **state)
{
    (void)state;
    size_t free_bytes = 1, total_bytes = 2;
    struct sg_piece piece;
    struct sg_stats stats;
    CUdeviceptr address = 5;
    const struct sg_stream_id id = {.key = 1};
    start("backend:cudaMallocAsync");
    for (int i = 0; i < 2; i++) /* the first makes it ready */
        assert_int_equal(sg_core_malloc(core, 0, SG_MIB, &tag, &address), CUDA_ERROR_NOT_SUPPORTED);
    sg_core_passthrough(core, 0, 0x1000, SG_MIB);
    assert_int_equal(sg_core_trim(core, 0, 0), 0);
    sg_core_poll(core, 0);
    apply(core, 0, SEGALLOC_RECORD_MERGE, 0, 0);
    apply(core, 0, SEGALLOC_RECORD_CONTEXT_GONE, (uint64_t)(uintptr_t)(NULL), 0);
    sg_core_mem_info(core, 0, &free_bytes, &total_bytes);
    assert_int_equal(free_bytes, 1);
    assert_int_equal(total_bytes, 2);
    assert_int_equal(sg_core_set_limit(core, 0, SG_MIB), 0);
    assert_int_equal(sg_core_pieces(core, 0, &piece, 1), 0);
    assert_int_equal(sg_core_slot(core, 0, &id), 0);
    assert_true(sg_core_stats(core, 0, &stats));
    assert_int_equal(stats.value[SG_STAT_passed_on_bytes], SG_MIB);
    stop();
}

static void core_that_is_disabled(void **state)
{
    (void)state;
    CUdeviceptr address = 5;
    struct sg_vector_clock clock;
    start("");
    CUdeviceptr block = allocate(SG_MIB);
    const struct sg_stream_id id = {.key = 1};
    sg_slot slot = sg_core_slot(core, 0, &id);
    sg_core_disable(core);
    strict_fail_at(1, true, CUDA_ERROR_LAUNCH_FAILED); /* nothing asks it */
    assert_int_equal(sg_core_malloc(core, 0, SG_MIB, &tag, &address), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(sg_core_malloc(core, 1, SG_MIB, &tag, &address), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(sg_core_set_limit(core, 1, SG_MIB), 0);
    assert_int_equal(sg_core_free(core, block, &tag), CUDA_SUCCESS);
    assert_int_equal(sg_core_trim(core, 0, 0), 0);
    sg_core_poll(core, 0);
    sg_core_slot_submitted(core, 0, slot);
    sg_core_slot_gone(core, 0, slot);
    sg_core_context_clock(core, 0, NULL, &clock);
    assert_false(strict_failed(NULL));
    strict_fail_at(0, false, CUDA_SUCCESS);
    sg_core_enable(core);
    assert_true(sg_core_owns(core, block)); /* what was freed meanwhile stays allocated */
    assert_int_equal(sg_core_free(core, block, &tag), CUDA_SUCCESS);
    stop();
}

/* In pages of the system's. What a core sets aside for itself is a gigabyte; whoever watches this program may take a
   little at any time. */
enum { LITTLE = 4096 };

static unsigned long addresses_in_use(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu", &pages), 1);
    assert_int_equal(fclose(file), 0);
    return pages;
}

static void core_that_ends_leaves_no_host_memory(void **state)
{
    unsigned long before = 0;
    (void)state;
    for (int round = 0; round < 3; round++) {
        before = addresses_in_use();
        start("");
        assert_int_equal(sg_core_free(core, allocate(3 * SG_MIB), &tag), CUDA_SUCCESS);
        stop();
    }
    assert_in_range(addresses_in_use(), 0, before + LITTLE);
}

/* Nothing is held: all of the card is free. And nothing may be held: nothing is to be had. */
static void ends_of_what_may_be_held(void **state)
{
    size_t free_bytes = TOTAL, total_bytes = TOTAL;
    CUdeviceptr address = 0;
    (void)state;
    start("");
    assert_int_equal(sg_core_free(core, allocate(SG_MIB), &tag), CUDA_SUCCESS);
    assert_true(sg_core_trim(core, 0, 0));
    sg_core_mem_info(core, 0, &free_bytes, &total_bytes);
    assert_int_equal(free_bytes, TOTAL);
    assert_int_equal(sg_core_set_limit(core, 0, 0), 0);
    assert_int_equal(sg_core_malloc(core, 0, SG_MIB, &tag, &address), CUDA_ERROR_OUT_OF_MEMORY);
    sg_core_mem_info(core, 0, &free_bytes, &total_bytes);
    assert_int_equal(free_bytes, 0);
    stop();
}

/* A page of which two streams have parts, whose work nobody has seen complete. */
static void core_that_ends_gives_every_page_back(void **state)
{
    CUdeviceptr block[2];
    sg_slot slot[2];
    (void)state;
    start("");
    for (unsigned i = 0; i < 2; i++) {
        const struct sg_stream_id id = {.key = i + 1, .handle = (CUstream)(uintptr_t)(i + 1)};
        slot[i] = sg_core_slot(core, 0, &id);
        const struct sg_tag own = {.sync = SG_FREE_SYNC_STREAM, .slot = slot[i], .has_stream = true, .stream = id.handle};
        assert_int_equal(sg_core_malloc(core, 0, 3 * SG_MIB, &own, &block[i]), CUDA_SUCCESS);
        sg_core_slot_submitted(core, 0, slot[i]);
    }
    for (unsigned i = 0; i < 2; i++) {
        const struct sg_tag step = {.sync = SG_FREE_SYNC_STREAM, .slot = slot[i], .in_order = true};
        assert_int_equal(sg_core_free(core, block[i], &step), CUDA_SUCCESS);
    }
    stop();
}

/* Around a fork every lock is held that is held for a moment only, and given back, or made anew. */
static void expect_locks(bool held)
{
    struct sg_device *device = core->device[0];
    assert_int_equal(device->lock.word, held);
    assert_int_equal(device->growth.grow.word, false);
    assert_int_equal(device->fences.asking.word, false);
}

/* A thread beside the one that forks starts a device and allocates there. */
static void *start_a_device(void *ret_address)
{
    CUresult result = sg_core_malloc(core, 1, SG_MIB, &tag, ret_address);
    return result == CUDA_SUCCESS ? ret_address : NULL;
}

static void locks_around_a_fork(void **state)
{
    (void)state;
    start("");
    CUdeviceptr address = allocate(3 * SG_MIB);
    sg_setup_lock(core); /* a thread that makes a device waits for a driver that is about to fork */
    uint64_t taken = sg_core_fork_prepare(core);
    sg_setup_unlock(core);
    assert_int_equal(taken, 1);
    expect_locks(true);
    CUdeviceptr elsewhere;
    pthread_t thread;
    void *started;
    assert_int_equal(pthread_create(&thread, NULL, start_a_device, &elsewhere), 0);
    assert_int_equal(pthread_join(thread, &started), 0);
    assert_ptr_equal(started, &elsewhere);
    sg_core_fork_parent(core, taken);
    expect_locks(false);
    assert_int_equal(core->device[1]->lock.word, false);
    assert_int_equal(sg_core_free(core, elsewhere, &tag), CUDA_SUCCESS);
    sg_asking_lock(core->device[0]); /* by threads that are not in the child */
    sg_grow_lock(core->device[0]);
    sg_setup_lock(core);
    (void)sg_core_fork_prepare(core);
    sg_core_fork_child(core);
    expect_locks(false);
    assert_int_equal(core->setup.word, false);
    assert_int_equal(sg_core_malloc(core, 0, 3 * SG_MIB, &tag, &address), CUDA_ERROR_NOT_SUPPORTED);
    sg_core_enable(core);
    assert_int_equal(sg_core_free(core, address, &tag), CUDA_SUCCESS);
    stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(device_that_was_never_used),
        cmocka_unit_test(device_that_cannot_be),
        cmocka_unit_test(slot_that_cannot_be),
        cmocka_unit_test(slot_that_was_never_given_out),
        cmocka_unit_test(address_without_a_block),
        cmocka_unit_test(pins_end_with_the_region),
        cmocka_unit_test(pins_of_all),
        cmocka_unit_test(pins_beside_a_lost_page),
        cmocka_unit_test(peers_of_a_replay),
        cmocka_unit_test(nothing_at_all),
        cmocka_unit_test(device_that_is_not_served),
        cmocka_unit_test(core_that_is_disabled),
        cmocka_unit_test(core_that_ends_leaves_no_host_memory),
        cmocka_unit_test(ends_of_what_may_be_held),
        cmocka_unit_test(core_that_ends_gives_every_page_back),
        cmocka_unit_test(locks_around_a_fork),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
