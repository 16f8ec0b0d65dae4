/* PyTorch's cache is taken for graphs, pools and histories, and for nothing else. */
#include "torch_steps.h"

static void capture_as_compiled_graphs_do(void)
{
    (void)ours_of_check_env(CACHING);
    sg_torch_captures(CU_STREAM_CAPTURE_MODE_GLOBAL);
    sg_torch_captures(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    sg_torch_captures(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

static void capture_beneath(void)
{
    sg_torch_captures(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

/* Once, when such a capture begins. */
static void graphs_that_fail_are_explained(void **state)
{
    (void)state;
    start_afresh();
    fake.conf.pytorch = SG_PYTORCH_DIRECT;
    expect_end(capture_as_compiled_graphs_do, 0,
        "a CUDA graph is captured as torch.compile does it, which fails without PyTorch's own cache: use "
        "SEGALLOC_CONF=pytorch:auto or pytorch:beneath\n");
    expect_end(capture_beneath, 0, "");
}

static void capture_for(uint64_t first, uint64_t second)
{
    sg_torch_pool_begins(first, second);
    sg_torch_captures(CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static void capture_for_pools(void)
{
    capture_for(0, 1); /* PyTorch's mode is not known */
    capture_for(0, 1);
    (void)ours_of_check_env(CACHING);
    capture_for(0, 1);
    capture_for(0, 2);
    capture_for(2, 0);
    sg_torch_captures(CU_STREAM_CAPTURE_MODE_GLOBAL); /* for none */
    sg_torch_captures(CU_STREAM_CAPTURE_MODE_GLOBAL);
    capture_for(0, 2);
    EXPECT(CALLS(sg_log_line) == 1);
    capture_for(0, 2);
    EXPECT(CALLS(sg_log_line) == 2);
    capture_for(0, 2);
}

static void capture_for_pools_of_pytorchs_own(void)
{
    fake.conf.pytorch = SG_PYTORCH_AUTO;
    fake.has_switch = fake.cache_on = true;
    (void)ours_of_check_env(CACHING);
    capture_for(0, 1);
    capture_for(0, 1);
}

/* Once, when the second one begins. */
static void graphs_that_share_a_pool_are_explained(void **state)
{
    (void)state;
    start_afresh();
    fake.conf.pytorch = SG_PYTORCH_DIRECT;
    expect_end(capture_for_pools, 0,
        "PyTorch allocates for a pool of its own (MemPool, or a CUDA graph), and pytorch:direct bypasses it: "
        "SEGALLOC_CONF=pytorch:auto or pytorch:beneath has its memory in the pool\n"
        "a second CUDA graph is captured for one pool of PyTorch's: in this mode each keeps the memory freed in its "
        "capture; SEGALLOC_CONF=pytorch:auto or pytorch:beneath, without a pluggable allocator, has graphs share it\n");
    expect_end(capture_for_pools_of_pytorchs_own, 0, "");
}

/* Chosen by itself: direct where PyTorch's cache can be switched on again, which the first pool does for good. */
static void answer_torch_by_itself(void)
{
    fake.conf.pytorch = SG_PYTORCH_AUTO;
    fake.has_switch = fake.cache_on = true;
    EXPECT(!sg_torch_mode_text() && !sg_torch_counts() && !sg_torch_caches());
    EXPECT(
        ours_of_check_env(CACHING) == 0 && sg_torch_direct() && !fake.cache_on && CALLS(sg_follow_as_configured) == 1);
    EXPECT(sg_torch_switchable() && !sg_torch_switched() && strcmp(sg_torch_mode_text(), "direct") == 0);
    fake.ours = true;
    EXPECT(sg_torch_is_direct((void *)(uintptr_t)BLOCK));
    sg_torch_pool_begins(0, 1);
    sg_torch_pool_begins(0, 1);
    EXPECT(fake.cache_on && sg_torch_switched() && !sg_torch_switchable() && sg_torch_direct());
    EXPECT(strcmp(sg_torch_mode_text(), "direct, then beneath") == 0 && sg_torch_counts());
    EXPECT(!sg_torch_pool_allocates() && !sg_torch_gives_back());
}

/* Where PyTorch asks at each tensor, those of pools alone are its cache's. */
static void answer_torch_one_by_one(void)
{
    fake.conf.pytorch = SG_PYTORCH_AUTO;
    fake.has_switch = fake.cache_on = fake.ours = true;
    ANSWER(sg_torch_allocator_routes, true);
    EXPECT(ours_of_check_env(CACHING) == 0 && sg_torch_direct());
    sg_torch_pool_begins(0, 1);
    EXPECT(!fake.cache_on && sg_torch_switchable() && !sg_torch_pool_allocates() && !sg_torch_gives_back());
    ANSWER(sg_torch_pools_seen, true);
    ANSWER(sg_torch_pools_route, true);
    EXPECT(sg_torch_pool_allocates() && !CALLS(sg_torch_allocator_empty) && sg_torch_gives_back() &&
           CALLS(sg_torch_allocator_empty) == 1);
    EXPECT(sg_torch_is_direct((void *)(uintptr_t)BLOCK));
    sg_torch_segment_made((void *)(uintptr_t)BLOCK, 512);
    EXPECT(!sg_torch_is_direct((void *)(uintptr_t)BLOCK));
}

static void record_history_first(void)
{
    fake.conf.pytorch = SG_PYTORCH_AUTO;
    fake.has_switch = fake.cache_on = true;
    sg_torch_history(true);
    sg_torch_history(false);
    sg_torch_history(true);
    EXPECT(ours_of_check_env(CACHING) == 0 && !sg_torch_direct() && fake.cache_on && CALLS(sg_log_line) == 1);
    sg_torch_history(true);
    EXPECT(CALLS(sg_log_line) == 1);
}

static void record_history_later(void)
{
    fake.conf.pytorch = SG_PYTORCH_AUTO;
    fake.has_switch = fake.cache_on = true;
    EXPECT(ours_of_check_env(CACHING) == 0 && sg_torch_direct());
    sg_torch_history(false);
    EXPECT(!sg_torch_switched() && CALLS(sg_log_line) == 0);
    sg_torch_history(true);
    sg_torch_history(true);
    EXPECT(sg_torch_switched() && fake.cache_on && CALLS(sg_log_line) == 1);
}

static void spare_pool_first(void)
{
    fake.conf.pytorch = SG_PYTORCH_AUTO;
    fake.has_switch = fake.cache_on = true;
    sg_torch_spare_pool();
    EXPECT(ours_of_check_env(CACHING) == 0 && !sg_torch_direct() && fake.cache_on);
    sg_torch_spare_pool();
    EXPECT(CALLS(sg_log_line) == 0);
}

static void spare_pool_later(void)
{
    fake.conf.pytorch = SG_PYTORCH_AUTO;
    fake.has_switch = fake.cache_on = true;
    EXPECT(ours_of_check_env(CACHING) == 0 && sg_torch_direct());
    sg_torch_spare_pool();
    sg_torch_spare_pool();
    EXPECT(sg_torch_switched() && fake.cache_on && CALLS(sg_log_line) == 1);
}

/* A pool to be used when memory runs out is of use to PyTorch's cache alone. */
static void spare_pools_take_pytorchs_cache(void **state)
{
    (void)state;
    apart(spare_pool_first);
    start_afresh();
    expect_end(spare_pool_later, 0,
        "PyTorch has a pool to be used when memory runs out (use_on_oom): its own cache is on from here on\n");
}

static void record_history_in_vain(void)
{
    fake.has_switch = fake.cache_on = true;
    EXPECT(ours_of_check_env(CACHING) == 0 && sg_torch_direct());
    sg_torch_history(true);
    sg_torch_history(true);
    EXPECT(!sg_torch_switched() && CALLS(sg_log_line) == 1);
}

/* Once, whether it was asked for before the first allocation or also later. */
static void record_history_in_vain_first(void)
{
    fake.has_switch = fake.cache_on = true;
    sg_torch_history(true);
    EXPECT(CALLS(sg_log_line) == 0);
    EXPECT(ours_of_check_env(CACHING) == 0 && sg_torch_direct() && CALLS(sg_log_line) == 1);
    sg_torch_history(true);
    EXPECT(!sg_torch_switched() && CALLS(sg_log_line) == 1);
}

/* The user has turned PyTorch's cache off, and has no history natively. */
static void record_history_without_a_cache(void)
{
    fake.conf.pytorch = SG_PYTORCH_AUTO;
    fake.environment = 0x101;
    sg_torch_history(true);
    EXPECT(ours_of_check_env(CACHING) == 0x101 && sg_torch_direct());
    sg_torch_history(true);
    EXPECT(CALLS(sg_log_line) == 0);
}

/* PyTorch's cache is on for its history, and a line says so; or that there is none. */
static void history_takes_pytorchs_cache(void **state)
{
    static const char nothing[] =
        "nothing is in it without its own cache, which SEGALLOC_CONF=pytorch:beneath keeps on; ";
    static const char kept[] = "`segalloc run --torch` keeps the history of what segalloc serves\n";
    static const struct {
        void (*test)(void);
        enum sg_pytorch wanted;
        const char *said;
    } list[] = {
        {record_history_first, SG_PYTORCH_AUTO, "its own cache stays on for that, as with pytorch:beneath; "},
        {record_history_later, SG_PYTORCH_AUTO,
            "its own cache is on from here on, and what was allocated before has no stacks in it; "},
        {record_history_in_vain, SG_PYTORCH_DIRECT, nothing},
        {record_history_in_vain_first, SG_PYTORCH_DIRECT, nothing},
    };
    (void)state;
    apart(record_history_without_a_cache);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char line[320];
        start_afresh();
        fake.conf.pytorch = list[i].wanted;
        snprintf(line, sizeof line, "PyTorch records its memory history: %s%s", list[i].said, kept);
        expect_end(list[i].test, 0, line);
    }
}

static void answer_torch_without_a_switch(void)
{
    fake.conf.pytorch = SG_PYTORCH_AUTO;
    EXPECT(ours_of_check_env(CACHING) == 0 && !sg_torch_direct() && sg_torch_caches());
    EXPECT(strcmp(sg_torch_mode_text(), "beneath") == 0 && !sg_torch_counts());
    sg_torch_pool_begins(0, 1);
    EXPECT(!sg_torch_switched());
}

static void answer_torch_beside_another(void)
{
    fake.conf.pytorch = SG_PYTORCH_AUTO;
    fake.has_switch = fake.cache_on = true;
    ANSWER(sg_interposer_of_runtime, true);
    EXPECT(ours_of_check_env(CACHING) == 0 && !sg_torch_direct() && fake.cache_on && sg_torch_caches());
}

static void answer_torch_by_name(void)
{
    fake.has_switch = fake.cache_on = true;
    EXPECT(ours_of_check_env(CACHING) == 0 && sg_torch_direct() && !fake.cache_on);
    sg_torch_pool_begins(0, 1);
    EXPECT(!fake.cache_on && !sg_torch_switched() && CALLS(sg_log_line) == 1);
}

static void auto_goes_back_where_pools_begin(void **state)
{
    (void)state;
    apart(answer_torch_by_itself);
    apart(answer_torch_beside_another);
    apart(answer_torch_one_by_one);
    apart(answer_torch_without_a_switch);
    start_afresh();
    fake.conf.pytorch = SG_PYTORCH_DIRECT;
    expect_end(answer_torch_by_name, 0,
        "PyTorch allocates for a pool of its own (MemPool, or a CUDA graph), and pytorch:direct bypasses it: "
        "SEGALLOC_CONF=pytorch:auto or pytorch:beneath has its memory in the pool\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graphs_that_fail_are_explained),
        cmocka_unit_test(graphs_that_share_a_pool_are_explained),
        cmocka_unit_test(auto_goes_back_where_pools_begin),
        cmocka_unit_test(history_takes_pytorchs_cache),
        cmocka_unit_test(spare_pools_take_pytorchs_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
