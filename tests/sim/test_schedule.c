/* Work that runs when the seed says so; and the checker where what says nothing may touch everything. */
#include "api/extra_calls.h"
#include "sim_test.h"

enum { STEPS = 40 };

static CUstream streams[3];
static CUdeviceptr memory;
static char order[STEPS + 1];
static unsigned ran;

static void note(void *letter)
{
    order[ran++] = *(const char *)letter;
}

/* Runs a little program under the seed, and says in which order its work ran, a lower-case letter a stream. */
static void run(uint64_t seed, int64_t run_ahead, char *ret)
{
    static const char letters[] = "abc";
    segalloc_sim_schedule(seed, run_ahead);
    ran = 0;
    for (unsigned i = 0; i < STEPS; i++) {
        ok(cuLaunchHostFunc(streams[i % 3], note, (void *)(uintptr_t)&letters[i % 3]));
        if (i % 4 == 0)
            (void)cuStreamQuery(streams[i % 2]);
    }
    ok(cuCtxSynchronize());
    assert_int_equal(ran, STEPS);
    order[STEPS] = '\0';
    strcpy(ret, order);
}

static void a_seed_is_a_schedule(void **state)
{
    (void)state;
    char first[STEPS + 1], again[STEPS + 1], other[STEPS + 1];
    unsigned differing = 0;
    for (uint64_t seed = 0; seed < 32; seed++) {
        run(seed, -1, first);
        run(seed, -1, again);
        assert_string_equal(first, again);
        run(seed + 32, -1, other);
        differing += strcmp(first, other) != 0;
    }
    assert_true(differing >= 12); /* two of the four kinds of seed leave nothing to chance */
}

static void work_is_complete_some_allocations_later(void **state)
{
    (void)state;
    static const char letter = 'a';
    segalloc_sim_schedule(5, 3);
    ran = 0;
    ok(cuLaunchHostFunc(streams[0], note, (void *)(uintptr_t)&letter));
    for (uint64_t i = 1; i <= 3; i++) {
        expect_error(CUDA_ERROR_NOT_READY, cuStreamQuery(streams[0]));
        assert_int_equal(ran, 0);
        segalloc_sim_owner(memory + i * 512, 512, i);
    }
    ok(cuStreamQuery(streams[0]));
    assert_int_equal(ran, 1);
    ok(cuLaunchHostFunc(streams[1], note, (void *)(uintptr_t)&letter));
    ok(cuStreamSynchronize(streams[1])); /* sooner where the host waits */
    assert_int_equal(ran, 2);
}

static void a_wait_for_a_word_holds_nobody_else_up(void **state)
{
    (void)state;
    uint32_t *word;
    ok(cuMemAllocHost_v2((void **)&word, sizeof *word));
    *word = 0;
    for (uint64_t seed = 0; seed < 8; seed++) {
        segalloc_sim_schedule(seed, -1);
        ok(cuStreamWaitValue32_v2(streams[0], (CUdeviceptr)(uintptr_t)word, (cuuint32_t)seed + 1,
            CU_STREAM_WAIT_VALUE_GEQ));
        ok(cuMemsetD8Async(memory, 1, 512, streams[1]));
        ok(cuStreamSynchronize(streams[1]));
        ok(cuStreamWriteValue32_v2(streams[1], (CUdeviceptr)(uintptr_t)word, (cuuint32_t)seed + 1, 0));
        ok(cuCtxSynchronize());
    }
    ok(cuMemFreeHost(word));
}

static void a_kernel_that_says_nothing_may_touch_everything(void **state)
{
    (void)state;
    CUmodule module;
    CUfunction f;
    ok(cuModuleLoadData(&module, "code"));
    ok(cuModuleGetFunction(&f, module, "unknown"));
    segalloc_sim_schedule(0, -1);
    segalloc_sim_owner(memory, 512, 101);
    ok(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, streams[0], NULL, NULL));
    uint64_t before = segalloc_sim_hazards();
    ok(cuMemsetD8Async(memory, 1, 512, streams[1])); /* the same owner */
    segalloc_sim_owner(memory + 65536, 512, 102);      /* nobody's before */
    ok(cuMemsetD8Async(memory + 65536, 1, 512, streams[2]));
    assert_int_equal(segalloc_sim_hazards(), before);
    ok(cuStreamSynchronize(streams[1]));
    segalloc_sim_owner(memory, 512, 0);
    segalloc_sim_owner(memory, 512, 103);
    ok(cuMemsetD8Async(memory, 1, 512, streams[0])); /* after the kernel */
    assert_int_equal(segalloc_sim_hazards(), before);
    ok(cuMemsetD8Async(memory, 1, 512, streams[1]));
    assert_int_equal(segalloc_sim_hazards(), before + 1);
    ok(cuCtxSynchronize());
    segalloc_sim_owner(memory, 512, 104);
    ok(cuMemsetD8Async(memory, 1, 512, streams[1]));
    assert_int_equal(segalloc_sim_hazards(), before + 1);
    ok(cuModuleUnload(module));
}

/* Under such a seed a stream does all at once, or nothing before somebody waits for it. Each way to part the streams has a seed. */
static void some_seeds_have_the_streams_apart(void **state)
{
    (void)state;
    static const char letter = 'a';
    unsigned at_once[3] = {0}, ways = 0;
    for (uint64_t seed = 6; seed < 6 + 8 * 128; seed += 8) {
        unsigned way = 0;
        segalloc_sim_schedule(seed, -1);
        for (unsigned i = 0; i < 3; i++) {
            ran = 0;
            for (unsigned k = 0; k < 4; k++)
                ok(cuLaunchHostFunc(streams[i], note, (void *)(uintptr_t)&letter));
            bool held = cuStreamQuery(streams[i]) == CUDA_ERROR_NOT_READY;
            assert_int_equal(ran, held ? 0 : 4);
            at_once[i] += !held;
            way |= (unsigned)held << i;
        }
        ways |= 1u << way;
        ok(cuCtxSynchronize());
    }
    for (unsigned i = 0; i < 3; i++)
        assert_in_range(at_once[i], 32, 96);
    assert_int_equal(ways, 0xff);
}

static uint64_t hazards_after_a_word(bool own)
{
    uint32_t *word;
    uint64_t before = segalloc_sim_hazards();
    ok(cuMemAllocHost_v2((void **)&word, sizeof *word));
    segalloc_sim_schedule(1, -1); /* all at once */
    segalloc_sim_owner(memory, 512, 201);
    ok(cuMemsetD8Async(memory, 1, 512, streams[0]));
    segalloc_sim_upkeep(own);
    ok(cuStreamWriteValue32_v2(streams[0], (CUdeviceptr)(uintptr_t)word, 1, 0));
    segalloc_sim_upkeep(false);
    segalloc_sim_owner(memory, 512, 202);
    ok(cuMemsetD8Async(memory, 1, 512, streams[1]));
    ok(cuCtxSynchronize());
    ok(cuMemFreeHost(word));
    return segalloc_sim_hazards() - before;
}

static void words_of_an_allocator_tell_the_program_nothing(void **state)
{
    (void)state;
    assert_int_equal(hazards_after_a_word(/* own */ false), 0);
    assert_int_equal(hazards_after_a_word(/* own */ true), 1);
}

static int set_up(void **state)
{
    use_device_0(state);
    for (unsigned i = 0; i < 3; i++)
        ok(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    ok(cuMemAlloc_v2(&memory, MIB));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_seed_is_a_schedule),
        cmocka_unit_test(work_is_complete_some_allocations_later),
        cmocka_unit_test(a_wait_for_a_word_holds_nobody_else_up),
        cmocka_unit_test(a_kernel_that_says_nothing_may_touch_everything),
        cmocka_unit_test(some_seeds_have_the_streams_apart),
        cmocka_unit_test(words_of_an_allocator_tell_the_program_nothing),
    };
    return cmocka_run_group_tests(tests, set_up, leave_device_0);
}
