/* Hooks that allocate and free leave the driver's memory alone, and hand on calls from inside or after the end. */
#include "hooks_steps.h"

/* In a forked child, and while the process ends: nothing of ours can be given back, and trying is no error. */
static void frees_do_nothing_when_it_is_over(void **state)
{
    (void)state;
    fake.over = true;
    assert_int_equal(cuMemFree_v2(OURS), CUDA_SUCCESS);
    assert_int_equal(cuMemFreeAsync(OURS, STREAM), CUDA_SUCCESS);
    assert_int_equal(cuMemFreeAsync_ptsz(OURS, NULL), CUDA_SUCCESS);
    assert_int_equal(segalloc_free(pointer(OURS)), CUDA_SUCCESS);
    assert_int_equal(segalloc_record_stream(pointer(OURS), STREAM), CUDA_SUCCESS);
    assert_int_equal(segalloc_record_stream(pointer(THEIRS), STREAM), CUDA_SUCCESS);
    assert_int_equal(fake.calls + CALLS(sg_memory_free) + fake.passed + CALLS(sg_memory_record_served) +
                         CALLS(sg_memory_record_stream),
        0);
}

/* From inside a call of ours nobody frees a block of ours. */
static void frees_from_inside_are_refused(void **state)
{
    (void)state;
    fake.inside = true;
    assert_int_equal(cuMemFree_v2(OURS), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemFreeAsync(OURS, STREAM), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(segalloc_free(pointer(OURS)), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(segalloc_record_stream(pointer(OURS), STREAM), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(fake.calls + CALLS(sg_memory_free) + CALLS(sg_memory_record_stream), 0);
    assert_null(segalloc_malloc_on(0, STREAM));
    fake.answer = CUDA_ERROR_OUT_OF_MEMORY; /* the driver's, which is asked there */
    assert_null(segalloc_malloc_on(BYTES, STREAM));
    assert_string_equal(fake.called, "cuMemAlloc_v2");
}

static void null_is_freed_by_nobody(void **state)
{
    (void)state;
    assert_int_equal(segalloc_free(NULL), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_memory_free) + fake.passed, 0);
}

/* The driver's free waits, which tells the host of all; but not where it failed, or did nothing. */
static void driver_s_frees_tell_where_they_wait(void **state)
{
    static const struct {
        bool following;
        CUdeviceptr address;
        CUresult answer;
        int told;
    } list[] = {{true, THEIRS, CUDA_SUCCESS, 1}, {true, THEIRS, CUDA_ERROR_INVALID_VALUE, 0},
        {true, 0, CUDA_SUCCESS, 0}, {false, THEIRS, CUDA_SUCCESS, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        fakes_forget_all();
        fake.answer = list[i].answer;
        sg_following_order = list[i].following;
        assert_int_equal(cuMemFree_v2(list[i].address), list[i].answer);
        assert_int_equal(CALLS(sg_streams_host_may_observe_all), list[i].told);
        assert_int_equal(CALLS(sg_memory_wait_cross_device), 0); /* that is PyTorch's */
    }
    fake.torch = true;
    assert_int_equal(cuMemFree_v2(THEIRS), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_memory_wait_cross_device), 1);
    fake.plugged = true; /* another library's, beside PyTorch */
    assert_int_equal(cuMemFree_v2(THEIRS), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_memory_wait_cross_device), 1);
}

/* A stream that is gone can't be what a free is ordered after. The default streams are never gone. */
static void frees_in_order_want_a_stream_that_is_there(void **state)
{
    (void)state;
    fake.stream_id = CUDA_ERROR_INVALID_HANDLE;
    assert_int_equal(cuMemFreeAsync(OURS, STREAM), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(CALLS(sg_memory_free), 0);
    assert_int_equal(cuMemFreeAsync(OURS, NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemFreeAsync(OURS, CU_STREAM_LEGACY), CUDA_SUCCESS);
    assert_int_equal(cuMemFreeAsync_ptsz(OURS, NULL), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_memory_free), 3);
    assert_int_equal(cuMemFreeAsync(THEIRS, STREAM), CUDA_SUCCESS);
    assert_string_equal(fake.called, "cuMemFreeAsync");
}

/* What the driver serves is noted as used; without a driver there is nothing to note. */
static void streams_are_recorded_for_the_driver_s_memory(void **state)
{
    (void)state;
    assert_int_equal(segalloc_record_stream(pointer(THEIRS), STREAM), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_memory_record_served), 1);
    fake.no_driver = true;
    assert_int_equal(segalloc_record_stream(pointer(THEIRS), STREAM), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_memory_record_served), 1);
}

/* PyTorch's hook says that it is set, once, and then which streams use a tensor. */
static void hook_of_pytorch_says_that_it_is_set(void **state)
{
    (void)state;
    segalloc_torch_record_stream(NULL, NULL);
    assert_true(CALLS(sg_memory_record_stream_hooked) == 1 && !CALLS(sg_memory_torch_records) &&
                !CALLS(sg_memory_record_served));
    segalloc_torch_record_stream(pointer(THEIRS), STREAM);
    assert_true(CALLS(sg_memory_record_stream_hooked) == 2 && CALLS(sg_memory_torch_records) == 1 &&
                CALLS(sg_memory_record_served) == 1);
}

/* How rows are aligned is learnt of each device once, from an allocation of the driver's own. */
static void pitches_are_as_the_driver_s(void **state)
{
    CUdeviceptr address = 0;
    size_t pitch = 0;
    (void)state;
    fake.pitch = 512;
    assert_int_equal(cuMemAllocPitch_v2(&address, &pitch, 100, 3, 4), CUDA_SUCCESS);
    assert_true(address == OURS && pitch == 512 && fake.allocated == 1536);
    assert_int_equal(fake.calls, 2); /* and its free */
    assert_int_equal(cuMemAllocPitch_v2(&address, &pitch, 513, 2, 16), CUDA_SUCCESS);
    assert_true(pitch == 1024 && fake.allocated == 2048 && fake.calls == 2);
    fake.device = 63;
    assert_int_equal(cuMemAllocPitch_v2(&address, &pitch, 1, 1, 8), CUDA_SUCCESS);
    assert_int_equal(fake.calls, 4);
}

/* Where that is not to be had, or has no meaning here, the driver allocates. */
static void pitches_that_are_not_known_are_the_driver_s_affair(void **state)
{
    CUdeviceptr address = 0;
    size_t pitch = 0;
    (void)state;
    fake.device = 5;
    fake.pitch = 500; /* no power of two */
    assert_int_equal(cuMemAllocPitch_v2(&address, &pitch, 100, 3, 4), CUDA_SUCCESS);
    assert_true(address == THEIRS && pitch == 500);
    fake.pitch = 512;
    fake.calls = 0;
    fake.once = CUDA_ERROR_INVALID_CONTEXT; /* for the small one */
    assert_int_equal(cuMemAllocPitch_v2(&address, &pitch, 100, 3, 4), CUDA_SUCCESS);
    assert_true(address == THEIRS && fake.calls == 2);
    fake.current = CUDA_ERROR_INVALID_CONTEXT;
    fake.once = 0;
    fake.answer = CUDA_ERROR_INVALID_CONTEXT;
    assert_int_equal(cuMemAllocPitch_v2(&address, &pitch, 100, 3, 4), CUDA_ERROR_INVALID_CONTEXT);
    fake.current = fake.answer = CUDA_SUCCESS;
    fake.device = 64; /* more than are served */
    for (int i = 0; i < 2; i++) {
        fake.calls = 0;
        assert_int_equal(cuMemAllocPitch_v2(&address, &pitch, 100, 3, 4), CUDA_SUCCESS);
        assert_int_equal(fake.calls, 2); /* learnt each time */
    }
    fake.inside = true;
    fake.calls = 0;
    assert_int_equal(cuMemAllocPitch_v2(&address, &pitch, 100, 3, 4), CUDA_SUCCESS);
    assert_true(address == THEIRS && fake.calls == 1);
}

/* What is wrong is for the driver to say. */
static void wrong_pitches_are_the_driver_s_to_refuse(void **state)
{
    CUdeviceptr address = 0;
    size_t pitch = 0;
    (void)state;
    fake.device = 6;
    fake.pitch = 512;
    assert_int_equal(cuMemAllocPitch_v2(&address, &pitch, 100, 3, 4), CUDA_SUCCESS); /* known from here on */
    fake.answer = CUDA_ERROR_INVALID_VALUE;
    fake.calls = 0;
    assert_int_equal(cuMemAllocPitch_v2(NULL, &pitch, 100, 3, 4), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAllocPitch_v2(&address, NULL, 100, 3, 4), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAllocPitch_v2(&address, &pitch, 0, 3, 4), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAllocPitch_v2(&address, &pitch, 100, 0, 4), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAllocPitch_v2(&address, &pitch, 100, 3, 12), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAllocPitch_v2(&address, &pitch, SIZE_MAX, 3, 4), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAllocPitch_v2(&address, &pitch, SIZE_MAX / 2, 3, 4), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(fake.calls, 7);
}

/* The driver's small allocation needs room too, which what is idle makes; in relaxed mode while a capture is active. */
static void pitches_are_measured_on_a_full_card(void **state)
{
    static const struct {
        size_t idle;
        bool live;
        CUdeviceptr expected;
    } list[] = {{1, false, OURS}, {0, false, THEIRS}, {1, true, OURS}, {0, true, THEIRS}};
    (void)state;
    for (int i = 0; i < 4; i++) {
        CUdeviceptr address = 0;
        size_t pitch = 0;
        fake.device = 10 + i;
        fake.pitch = 512;
        fake.once = CUDA_ERROR_OUT_OF_MEMORY;
        fake.calls = 0;
        ANSWER(sg_made_room_by, list[i].idle > 0);
        ANSWER(sg_capture_mode_relax, true);
        ANSWER(sg_captures_active, list[i].live);
        assert_int_equal(cuMemAllocPitch_v2(&address, &pitch, 100, 3, 4), CUDA_SUCCESS);
        assert_int_equal(address, list[i].expected);
        assert_int_equal(CALLS(sg_capture_mode_relax), CALLS(sg_capture_mode_restore));
    }
}

static void free_memory_counts_what_is_idle(void **state)
{
    size_t available = 0, total = 0;
    (void)state;
    assert_int_equal(cuMemGetInfo_v2(&available, &total), CUDA_SUCCESS);
    assert_true(available == 2000 && total == 3000 && settled() == 1);
    assert_int_equal(cuMemGetInfo_v2(NULL, NULL), CUDA_SUCCESS);
    fake.early = true; /* nothing can have been put off */
    FORGET(sg_memory_run_deferred);
    FORGET(sg_memory_settle);
    assert_int_equal(cuMemGetInfo_v2(&available, &total), CUDA_SUCCESS);
    assert_true(available == 1000 && total == 4000 && settled() == 0);
    fake.early = false;
    fake.current = CUDA_ERROR_INVALID_CONTEXT;
    assert_int_equal(cuMemGetInfo_v2(&available, &total), CUDA_SUCCESS);
    assert_true(available == 1000 && total == 4000);
    fake.answer = CUDA_ERROR_INVALID_CONTEXT;
    available = total = 1;
    assert_int_equal(cuMemGetInfo_v2(&available, &total), CUDA_ERROR_INVALID_CONTEXT);
    assert_true(available == 1 && total == 1);
    fake.answer = CUDA_SUCCESS;
    fake.current = CUDA_SUCCESS;
    fake.torch = true; /* who has PyTorch's statistics takes what is idle for used */
    assert_int_equal(cuMemGetInfo_v2(&available, &total), CUDA_SUCCESS);
    assert_true(available == 1000 && total == 3000);
    static const struct {
        uint64_t limit, reserved;
        size_t available;
    } limits[] = {{5000, 3500, 1000}, {5000, 4500, 500}, {5000, 5000, 0}, {5000, 6000, 0}}; /* it was lowered */
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        ANSWER(sg_core_limit, limits[i].limit);
        fake.reserved = limits[i].reserved;
        assert_int_equal(cuMemGetInfo_v2(&available, &total), CUDA_SUCCESS);
        assert_int_equal(available, limits[i].available);
    }
    fake.torch = false;
    for (int i = 0; i < 3; i++) { /* whoever is not served sees the driver's */
        fake.inside = i == 0;
        fake.over = i == 1;
        ANSWER(sg_process_is_passthrough, i == 2);
        assert_int_equal(cuMemGetInfo_v2(&available, &total), CUDA_SUCCESS);
        assert_true(available == 1000 && total == 4000);
    }
}

/* An event that was recorded just now is waited for, work that does not end is not; nor is any beside a capture. */
static void memory_that_is_about_to_be_free_is_waited_for(void **state)
{
    size_t available;
    (void)state;
    assert_int_equal(cuMemGetInfo_v2(&available, NULL), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_core_poll), 1);
    fake.awaits = 5;
    assert_int_equal(cuMemGetInfo_v2(&available, NULL), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_core_poll), 5);
    fake.awaits = INT32_MAX;
    assert_int_equal(cuMemGetInfo_v2(&available, NULL), CUDA_SUCCESS);
    assert_in_range(CALLS(sg_core_poll), 6, 100);
    FORGET(sg_core_poll); /* it goes on: it is waited for again only once more has been freed */
    assert_int_equal(cuMemGetInfo_v2(&available, NULL), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_core_poll), 1);
    fake.freed++;
    assert_int_equal(cuMemGetInfo_v2(&available, NULL), CUDA_SUCCESS);
    assert_in_range(CALLS(sg_core_poll), 6, 100);
    fake.freed++;
    fake.torch = true; /* it is not told of what is idle */
    FORGET(sg_core_poll);
    assert_int_equal(cuMemGetInfo_v2(&available, NULL), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_core_poll), 0);
    fake.torch = false;
    ANSWER(sg_captures_active, true);
    FORGET(sg_core_poll);
    assert_int_equal(cuMemGetInfo_v2(&available, NULL), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_core_poll), 1);
}

static void visible_limit_is_the_device_s_size(void **state)
{
    size_t bytes = 0;
    (void)state;
    assert_int_equal(cuDeviceTotalMem_v2(&bytes, 0), CUDA_SUCCESS);
    assert_int_equal(bytes, 2 * LIMIT);
    fake.limited = true;
    assert_int_equal(cuDeviceTotalMem_v2(&bytes, 0), CUDA_SUCCESS);
    assert_int_equal(bytes, LIMIT);
    assert_int_equal(cuDeviceTotalMem_v2(NULL, 0), CUDA_SUCCESS);
    fake.inside = true;
    assert_int_equal(cuDeviceTotalMem_v2(&bytes, 0), CUDA_SUCCESS);
    assert_int_equal(bytes, 2 * LIMIT);
    fake.inside = false;
    ANSWER(sg_process_is_passthrough, true);
    assert_int_equal(cuDeviceTotalMem_v2(&bytes, 0), CUDA_SUCCESS);
    assert_int_equal(bytes, 2 * LIMIT);
    fake.answer = CUDA_ERROR_INVALID_DEVICE;
    assert_int_equal(cuDeviceTotalMem_v2(&bytes, 99), CUDA_ERROR_INVALID_DEVICE);
}

/* What a rehearsal tells of a device is less than it has: the rest is no secret to the core, nor is more than it has
   believed. */
static void a_rehearsal_says_how_large_the_card_is(void **state)
{
    size_t available, total, bytes;
    (void)state;
    setenv("SEGALLOC_TOLD_BYTES", "2500", 1);
    assert_int_equal(cuMemGetInfo_v2(&available, &total), CUDA_SUCCESS);
    assert_true(available == 1500 && total == 2500); /* 1000 of 3000 are used */
    setenv("SEGALLOC_TOLD_BYTES", "900", 1);
    assert_int_equal(cuMemGetInfo_v2(&available, &total), CUDA_SUCCESS);
    assert_true(available == 0 && total == 900);
    assert_int_equal(cuDeviceTotalMem_v2(&bytes, 0), CUDA_SUCCESS);
    assert_int_equal(bytes, 900);
    setenv("SEGALLOC_TOLD_BYTES", "5000", 1);
    assert_int_equal(cuMemGetInfo_v2(&available, &total), CUDA_SUCCESS);
    assert_true(available == 2000 && total == 3000);
    setenv("SEGALLOC_TOLD_BYTES", "much", 1);
    assert_int_equal(cuDeviceTotalMem_v2(&bytes, 0), CUDA_SUCCESS);
    assert_int_equal(bytes, 2 * LIMIT);
    unsetenv("SEGALLOC_TOLD_BYTES");
}

/* Devices that there can't be have nothing, and a list is filled as far as it goes. */
static void interface_takes_any_device(void **state)
{
    static const int devices[] = {-1, 64, INT32_MAX, INT32_MIN};
    struct segalloc_stat list[2] = {{0}};
    (void)state;
    ANSWER(sg_core_trim, 5);
    assert_int_equal(segalloc_trim(63, 0), 5);
    assert_true(segalloc_stats(0, list, 1) > 1 && list[0].name && !list[1].name);
    assert_true(segalloc_stats(0, NULL, 0) > 1);
    assert_int_equal(segalloc_take_peaks(0, list, 1), segalloc_stats(0, NULL, 0));
    assert_string_equal(list[0].name, "requested_bytes");
    assert_int_equal(list[0].peak, 77);
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        assert_int_equal(segalloc_trim(devices[i], 0), 0);
        assert_int_equal(segalloc_stats(devices[i], list, 2), 0);
    }
    assert_null(list[1].name); /* nothing was written */
    fake.over = true;
    assert_int_equal(segalloc_trim(0, 0), 0);
    assert_int_equal(segalloc_stats(0, list, 2), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(frees_do_nothing_when_it_is_over),
        TEST(frees_from_inside_are_refused),
        TEST(null_is_freed_by_nobody),
        TEST(driver_s_frees_tell_where_they_wait),
        TEST(frees_in_order_want_a_stream_that_is_there),
        TEST(streams_are_recorded_for_the_driver_s_memory),
        TEST(hook_of_pytorch_says_that_it_is_set),
        TEST(pitches_are_as_the_driver_s),
        TEST(pitches_that_are_not_known_are_the_driver_s_affair),
        TEST(wrong_pitches_are_the_driver_s_to_refuse),
        TEST(pitches_are_measured_on_a_full_card),
        TEST(free_memory_counts_what_is_idle),
        TEST(memory_that_is_about_to_be_free_is_waited_for),
        TEST(visible_limit_is_the_device_s_size),
        TEST(a_rehearsal_says_how_large_the_card_is),
        TEST(interface_takes_any_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
