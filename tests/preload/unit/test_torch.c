/* PyTorch's devices, streams and errors are handled as each mode promises. */
#include "torch_steps.h"

#include "torch/torch_sent.h"

/* Whether PyTorch is to keep its cache. */
static void answer_torch(void)
{
    fake.environment = 0x100;
    fake.conf.pytorch = SG_PYTORCH_BENEATH;
    EXPECT(ours_of_check_env("OTHER") == 0x100 && !CALLS(sg_torch_overrides_watch));
    fake.conf.pytorch = SG_PYTORCH_DIRECT;
    EXPECT(ours_of_check_env("OTHER") == 0x100 && ours_of_check_env(NULL) == 0x100 &&
           CALLS(sg_torch_overrides_watch) == 2);
    EXPECT(ours_of_check_env(CACHING) == 0x100 && !sg_torch_direct()); /* the user says no */
    EXPECT(ours_of_check_env("OTHER") == 0x100 && CALLS(sg_torch_overrides_watch) == 2);
    fake.environment = 0;
    ANSWER(sg_process_is_passthrough, true);
    EXPECT(ours_of_check_env(CACHING) == 0 && !sg_torch_direct());
    ANSWER(sg_process_is_passthrough, false);
    fake.conf.pytorch = SG_PYTORCH_BENEATH;
    EXPECT(ours_of_check_env(CACHING) == 0 && !sg_torch_direct());
    fake.conf.pytorch = SG_PYTORCH_DIRECT;
    for (int i = 0; i < 3; i++) {
        fake.none = i == 0;
        fake.itself = i == 1;
        fake.environment = i == 2 ? 0 : 0x100;
        EXPECT(ours_of_check_env(CACHING) == 0x101 && sg_torch_direct() && CALLS(sg_follow_as_configured) == i + 1 &&
               CALLS(sg_torch_allocator_limit) == i + 1);
    }
}

static void answer_torch_that_is_asked_to(void)
{
    fake.conf.pytorch = SG_PYTORCH_BENEATH;
    fake.environment = 0x101;
    EXPECT(ours_of_check_env(CACHING) == 0x101 && sg_torch_direct());
}

static void cache_is_off_in_direct_mode(void **state)
{
    (void)state;
    apart(answer_torch);
    apart(answer_torch_that_is_asked_to);
}

static void ask_for_streams(void)
{
    CUstream stream = NULL;
    EXPECT(sg_torch_stream(&stream) && stream == (CUstream)192 && fake.at_thread_end);
    EXPECT(sg_torch_stream(&stream));
    fake.at_thread_end(NULL);
    EXPECT(!sg_torch_stream(&stream)); /* PyTorch's own is gone by then */
}

static void ask_for_streams_of_an_old_libc(void)
{
    CUstream stream = NULL;
    fake.missing = "__cxa_thread_atexit_impl";
    EXPECT(sg_torch_stream(&stream) && !fake.at_thread_end);
}

static void ask_where_streams_have_no_handle(void)
{
    CUstream stream = NULL;
    fake.missing = "_ZNK3c104cuda10CUDAStream6streamEv";
    EXPECT(!sg_torch_stream(&stream));
}

static void ask_where_there_are_no_streams(void)
{
    CUstream stream = NULL;
    fake.none = true;
    EXPECT(!sg_torch_stream(&stream));
}

static void streams_are_the_threads_own(void **state)
{
    (void)state;
    apart(ask_for_streams);
    apart(ask_for_streams_of_an_old_libc);
    apart(ask_where_streams_have_no_handle);
    apart(ask_where_there_are_no_streams);
}

static void push_again(void)
{
    EXPECT(sg_torch_push_device(sg_process_driver(), DEVICE));
}

static void push_devices(void)
{
    const struct sg_driver *driver = sg_process_driver();
    EXPECT(!sg_torch_push_device(driver, -1) && !sg_torch_push_device(driver, SG_DEVICES_MAX));
    fake.current = (CUcontext)64;
    fake.device = DEVICE;
    EXPECT(!sg_torch_push_device(driver, DEVICE)); /* it is current */
    fake.retain = CUDA_ERROR_OUT_OF_MEMORY;
    fake.device_answer = CUDA_ERROR_UNKNOWN;
    EXPECT(!sg_torch_push_device(driver, DEVICE) && fake.retained == 0 && fake.pushes == 0);
    fake.retain = CUDA_SUCCESS;
    fake.meanwhile = push_again; /* another thread retains it too */
    EXPECT(sg_torch_push_device(driver, DEVICE) && fake.retained == 1 && fake.pushes == 2);
    fake.device_answer = CUDA_SUCCESS;
    fake.device = DEVICE + 1;
    EXPECT(sg_torch_push_device(driver, DEVICE) && fake.retained == 1 && fake.pushes == 3);
    fake.retain = CUDA_ERROR_OUT_OF_MEMORY; /* it is retained already */
    EXPECT(sg_torch_push_device(driver, DEVICE) && fake.retained == 1 && fake.pushes == 4);
    fake.current_answer = CUDA_ERROR_DEINITIALIZED;
    fake.push = CUDA_ERROR_DEINITIALIZED;
    EXPECT(!sg_torch_push_device(driver, DEVICE));
    sg_torch_pop_device(driver, false);
    EXPECT(fake.pushes == 4);
}

static void devices_are_entered_once(void **state)
{
    (void)state;
    apart(push_devices);
}

static void *plug(void)
{
    void *got = segalloc_torch_malloc(1024, DEVICE, (void *)192);
    EXPECT(fake.pushes == 0);
    return got;
}

static void plug_in(void)
{
    EXPECT(!segalloc_torch_malloc(0, DEVICE, NULL) && CALLS(sg_follow_as_configured) == 0);
    EXPECT(plug() == (void *)BLOCK && fake.allocs == 1 && CALLS(sg_follow_as_configured) == 1 &&
           CALLS(sg_memory_torch_plugged) == 1);
    fake.no_core = true;
    EXPECT(plug() == (void *)(2 * BLOCK) && fake.allocs == 1);
    fake.no_core = false;
    fake.alloc = CUDA_ERROR_DEINITIALIZED; /* the process ends with a status of its own */
    EXPECT(!plug());
    fake.alloc = CUDA_ERROR_OUT_OF_MEMORY;
    fake.allocator_in = "/somewhere/libc10_cuda.so"; /* PyTorch's cache asks, for a pool */
    EXPECT(!plug());
    fake.alloc = CUDA_SUCCESS;
    fake.no_driver = true;
    EXPECT(!plug());
    fake.no_driver = false;
    segalloc_torch_free(NULL, 0, DEVICE, NULL);
    ANSWER(sg_process_over, true);
    segalloc_torch_free((void *)BLOCK, 0, DEVICE, NULL);
    ANSWER(sg_process_over, false);
    fake.no_driver = true;
    segalloc_torch_free((void *)BLOCK, 0, DEVICE, NULL);
    fake.no_driver = false;
    EXPECT(CALLS(sg_memory_free) + CALLS(sg_memory_free_passthrough) == 0);
    fake.ours = true;
    segalloc_torch_free((void *)BLOCK, 0, DEVICE, NULL);
    EXPECT(CALLS(sg_memory_free) == 1 && fake.pushes == 0);
    fake.no_core = true;
    segalloc_torch_free((void *)BLOCK, 0, DEVICE, NULL);
    fake.ours = false;
    segalloc_torch_free((void *)BLOCK, 0, DEVICE, NULL);
    EXPECT(CALLS(sg_memory_free) == 1 && CALLS(sg_memory_free_passthrough) == 2 && fake.pushes == 0);
}

static void run_out(void)
{
    (void)plug();
}

/* What PyTorch takes for a tensor at address 0 may not be. */
static void pluggable_calls_never_fail(void **state)
{
    static const char *const libraries[] = {NULL, "/somewhere/libtorch_cuda.so"};
    (void)state;
    apart(plug_in);
    fake.missing = "__cxa_throw";
    fake.alloc = CUDA_ERROR_OUT_OF_MEMORY;
    for (int i = 0; i < 2; i++) {
        fake.allocator_in = libraries[i];
        expect_end(run_out, -SIGABRT, "out of memory: PyTorch asked for 1.00 KiB on device 1 (CUDA error 2); its "
            "pluggable interface has no way to say that there is none\n");
    }
    fake.none = true;
    fake.alloc = CUDA_ERROR_LAUNCH_FAILED;
    expect_end(run_out, -SIGABRT, "no memory: PyTorch asked for 1.00 KiB on device 1 (CUDA error 719); its pluggable "
        "interface has no way to say that there is none\n");
    fake.no_driver = true;
    expect_end(run_out, -SIGABRT, "no memory: PyTorch asked for 1.00 KiB on device 1 (CUDA error 3); its pluggable "
        "interface has no way to say that there is none\n");
}

static bool throws(void)
{
    if (setjmp(fake.caught))
        return true;
    sg_torch_throw_out_of_memory(DEVICE, 1 << 20);
    return false;
}

static void look_too(void)
{
    jmp_buf outer;
    memcpy(&outer, &fake.caught, sizeof outer);
    EXPECT(throws());
    memcpy(&fake.caught, &outer, sizeof outer);
}

static bool says(const char *words)
{
    return strstr(fake.thrown, words) != NULL;
}

static void throw_errors(void)
{
    fake.meanwhile = look_too; /* another thread looks for the same at once */
    fake.total = (size_t)4 << 30;
    EXPECT(throws());
    EXPECT(fake.deleted == 2 && fake.pushes == 0);
    EXPECT(
        says("Tried to allocate 1.00 MiB. GPU 1 has a total capacity of 4.00 GiB of which 1.00 MiB is free. Of the"));
    EXPECT(says("3.00 MiB is allocated by PyTorch, and 5.00 MiB is reserved by PyTorch but unallocated."));
    fake.takes_text = true;
    ANSWER(sg_core_limit, 1 << 30);
    EXPECT(throws() && fake.deleted == 2 && says("is free. 1.00 GiB allowed; Of the"));
    ANSWER(sg_core_limit, fake.total);
    EXPECT(throws() && !says("allowed"));
    ANSWER(sg_core_limit, 1);
    fake.info = CUDA_ERROR_UNKNOWN;
    fake.no_stats = true;
    EXPECT(throws() && !says("allowed") && says("total capacity of 0 B of") && says(" 0 B is allocated"));
    fake.contexts = CUDA_ERROR_INVALID_CONTEXT;
    EXPECT(throws() && says("GPU 1 has a total capacity of 0 B of"));
    fake.no_core = true;
    EXPECT(throws());
    fake.no_driver = true;
    EXPECT(throws() && says("GPU 1 has a total capacity of 0 B of"));
}

static void throw_nothing(void)
{
    fake.missing = "_ZdlPv";
    EXPECT(!throws());
    fake.missing = NULL; /* that is not asked again */
    EXPECT(!throws());
}

static void errors_are_pytorch_s(void **state)
{
    (void)state;
    apart(throw_errors);
    apart(throw_nothing);
}

static bool runs_out(int (*clear)(void))
{
    if (setjmp(fake.caught))
        return true;
    sg_torch_ran_out(clear, 1 << 20);
    return false;
}

static void run_out_in_modes(void)
{
    EXPECT(!runs_out(get_last_error)); /* not in direct mode */
    (void)ours_of_check_env(CACHING);
    EXPECT(!runs_out(NULL) && fake.errors_forgotten == 0);
    EXPECT(runs_out(get_last_error) && fake.errors_forgotten == 1);
    EXPECT(CALLS(sg_torch_counts_oom) == 1 && CALLS(sg_torch_observers_call) == 1 &&
           ARGUMENT(sg_torch_observers_call, 1) == 1 << 20);
    sg_self.torch_cached = true; /* PyTorch's cache asks, and goes on by itself */
    EXPECT(!runs_out(get_last_error) && fake.errors_forgotten == 1 && CALLS(sg_torch_observers_call) == 1);
}

/* PyTorch's cache counts none while a pool is being allocated for, and since 2.13 none in a capture. */
static void retry_in_modes(void)
{
    sg_torch_retries();
    EXPECT(CALLS(sg_torch_counts_retry) == 0); /* not in direct mode */
    (void)ours_of_check_env(CACHING);
    sg_torch_retries();
    EXPECT(CALLS(sg_torch_counts_retry) == 1);
    ANSWER(sg_torch_pools_under_way, true);
    sg_torch_retries();
    EXPECT(CALLS(sg_torch_counts_retry) == 1);
    static const struct sg_torch_layout newer = {.retries_in_pools = true};
    sg_torch_allocator.layout = &newer;
    sg_torch_retries();
    EXPECT(CALLS(sg_torch_counts_retry) == 2);
    ANSWER(sg_captures_active, true);
    sg_torch_retries();
    ANSWER(sg_captures_active, false);
    sg_self.torch_cached = true; /* PyTorch's cache counts for itself */
    sg_torch_retries();
    EXPECT(CALLS(sg_torch_counts_retry) == 2 && !CALLS(sg_torch_counts_oom));
}

static void run_out_where_nothing_can_be_thrown(void)
{
    (void)ours_of_check_env(CACHING);
    fake.missing = "_ZTVN3c1016OutOfMemoryErrorE";
    EXPECT(!runs_out(get_last_error)); /* PyTorch finds that its call has failed */
}

static void only_direct_mode_throws(void **state)
{
    (void)state;
    apart(run_out_in_modes);
    apart(retry_in_modes);
    apart(run_out_where_nothing_can_be_thrown);
}

static void ask_too(void)
{
    EXPECT(!ours_of_has_failed(&fake));
}

/* PyTorch's answer, until PyTorch ends what it is read from. */
static void ask_whether_kernels_failed(void)
{
    fake.none = true;
    EXPECT(!ours_of_has_failed(&fake));
    fake.none = false;
    fake.itself = true;
    EXPECT(!ours_of_has_failed(&fake));
    fake.itself = false;
    fake.meanwhile = ask_too; /* another thread is sooner */
    EXPECT(!ours_of_has_failed(&fake));
    fake.failed = true;
    EXPECT(ours_of_has_failed(&fake) && ours_of_has_failed(&fake));
    exit(0);
}

static void ask_at_the_end(void)
{
    EXPECT(fake.failed && !ours_of_has_failed(&fake));
    write(STDERR_FILENO, "asked", 5);
}

static void ask_and_end(void)
{
    EXPECT(atexit(ask_at_the_end) == 0);
    ask_whether_kernels_failed();
}

static void no_kernel_has_failed_at_the_end(void **state)
{
    (void)state;
    start_afresh();
    expect_end(ask_and_end, 0, "asked");
}

static void fail_check_with(const char *words, size_t length)
{
    static char text[2000];
    memset(text, 'x', sizeof text);
    memcpy(text, words, strlen(words));
    const struct text message = {.text = text, .length = length};
    memset(fake.thrown, 0, sizeof fake.thrown);
    if (!setjmp(fake.caught))
        ours_of_check_fail("f", "g", 7, &message);
}

static size_t sent_lacked;

size_t sg_torch_sent_lacked(void)
{
    return sent_lacked;
}

static void fail_checks(void)
{
    fail_check_with("invalid device pointer: 0x", 30);
    EXPECT(strcmp(fake.thrown, "invalid device pointer: 0xxxxx") == 0); /* not in direct mode */
    (void)ours_of_check_env(CACHING);
    fail_check_with("invalid device pointer: 0x", 30);
    EXPECT(strstr(fake.thrown, "invalid device pointer: 0xxxxx. This tensor is segalloc's") == fake.thrown);
    EXPECT(says("SEGALLOC_CONF=pytorch:beneath,ipc:always"));
    EXPECT(!says("out of memory"));
    sent_lacked = 200 << 20;
    fail_check_with("invalid device pointer: 0x", 30);
    EXPECT(says("it is sent as a copy, and CUDA is out of memory for the 200.00 MiB of that."));
    sent_lacked = 0;
    EXPECT(asked_for && strcmp(asked_for, "pytorch:beneath,ipc:always") == 0);
    fail_check_with("invalid device pointer: 0x", 600);
    EXPECT(strlen(fake.thrown) == 600);
    fail_check_with("something else that is long enough", 30);
    EXPECT(strlen(fake.thrown) == 30);
    fail_check_with("invalid", 7);
    EXPECT(strlen(fake.thrown) == 7);
}

static void fail_a_check(void)
{
    fail_check_with("", 5);
}

static void failed_checks_say_the_way_out(void **state)
{
    (void)state;
    apart(fail_checks);
    fake.itself = true; /* nobody else has it */
    expect_end(fail_a_check, -SIGABRT, "");
    fake.itself = false;
    fake.none = true;
    expect_end(fail_a_check, -SIGABRT, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cache_is_off_in_direct_mode),
        cmocka_unit_test(streams_are_the_threads_own),
        cmocka_unit_test(devices_are_entered_once),
        cmocka_unit_test(pluggable_calls_never_fail),
        cmocka_unit_test(errors_are_pytorch_s),
        cmocka_unit_test(only_direct_mode_throws),
        cmocka_unit_test(no_kernel_has_failed_at_the_end),
        cmocka_unit_test(failed_checks_say_the_way_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
