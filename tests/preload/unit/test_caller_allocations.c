/* An allocation goes through the runtime of its caller, and what became of it is noted. */
#include "callers_fakes.h"

/* A library before ours that defines the name and hands on gets what comes after us, not its own function again. */
static void caller_that_hands_on_gets_the_next(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        struct sg_module spare;
        start_afresh(state);
        fake.has[OWN] = true;
        fake.defines = way & 1;
        fake.before = way & 2;
        int library = add("/a/libsaver.so");
        const struct sg_module *module = module_at(library, &spare);
        assert_ptr_equal(module->malloc, mallocs[way == 3 ? NEXT : OWN]);
        assert_ptr_equal(module->free, frees[way == 3 ? NEXT : OWN]);
        assert_true(module->fast_path);
        assert_true(is_remembered(library));
    }
}

/* One after ours gets every call, as if ours were not there. */
static void library_after_ours_gets_every_call(void **state)
{
    (void)state;
    for (int way = 0; way < 8; way++) {
        struct sg_module spare;
        start_afresh(state);
        fake.has[OWN] = true;
        fake.interposes = way & 3;
        fake.defines = way & 4; /* the caller is that library */
        int library = add("/a/libuser.so");
        const struct sg_module *module = module_at(library, &spare);
        assert_ptr_equal(module->malloc, way & 1 ? interposed : mallocs[OWN]);
        assert_ptr_equal(module->free, way & 2 ? interposed_free : frees[OWN]);
        assert_int_equal(module->fast_path, !(way & 3) || way & 4);
    }
}

/* Where an allocation comes to no hook, somebody before us may answer for the driver. */
static void allocation_that_no_hook_saw_is_asked_about(void **state)
{
    for (int way = 0; way < 16; way++) {
        void *block;
        start_afresh(state);
        fake.calling = add("/a/libuser.so");
        fake.reaches = way & 1;
        fake.passes = way & 2;
        fake.answer = way & 4 ? REFUSED : 0;
        (void)cudaMalloc(&block, way & 8 ? 0 : BYTES);
        assert_int_equal(fake.hides, way == 0);
    }
}

/* A program's call takes the short way or the runtime's, or ends with an error, and the right one is noted. */
static void allocation_goes_the_way_of_its_caller(void **state)
{
    static const struct {
        const char *path;
        bool serves, runtime;
        int answer, result;
        bool asks, learns, runs_out;
    } list[] = {
        {"/a/libuser.so", true, true, 5, 0, false, false, false},
        {"/a/libuser.so", false, true, 0, 0, true, true, false},
        {"/a/libuser.so", false, true, REFUSED, REFUSED, true, false, false},
        {"/a/libuser.so", false, true, 5, 5, true, false, false},
        {"/a/libuser.so", false, false, 0, INSUFFICIENT_DRIVER, false, false, false},
        {"/a/libuser.so", true, false, 0, 0, false, false, false},
        {"/a/libnccl.so", true, true, 0, 0, true, true, false},
        {"/a/libnvjpeg.so", true, true, REFUSED, REFUSED, true, false, false},
        {"/a/libc10_cuda.so", true, true, 5, 0, false, false, false},
        {"/a/libc10_cuda.so", false, true, REFUSED, REFUSED, true, false, true},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        void *block;
        start_afresh(state);
        fake.calling = add(list[i].path);
        fake.has[NEXT] = list[i].runtime;
        fake.quick_serves = list[i].serves;
        fake.answer = list[i].answer;
        sg_self.caller = SG_CALLER_DRIVER;
        sg_self.pending_error = CUDA_ERROR_UNKNOWN;
        assert_int_equal(cudaMalloc(&block, BYTES), list[i].result);
        assert_int_equal(fake.mallocs, list[i].asks);
        assert_int_equal(fake.learnt, list[i].learns);
        assert_int_equal(fake.ran_out, list[i].runs_out);
        assert_int_equal(fake.ran_out_bytes, list[i].runs_out ? BYTES : 0);
        assert_int_equal(sg_self.caller, SG_CALLER_DRIVER);
        assert_int_equal(sg_caller_current(), SG_CALLER_DRIVER);
        sg_self.caller = 0;
        assert_int_equal(sg_self.pending_error, list[i].asks ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN);
        if (!list[i].asks)
            continue;
        assert_ptr_equal(fake.malloc_ret, &block);
        assert_int_equal(fake.malloc_bytes, BYTES);
        assert_int_equal(fake.caller_seen, sg_caller_kind(code_in(fake.calling, 0)));
    }
}

static void free_goes_the_way_of_its_caller(void **state)
{
    static const struct {
        const char *path;
        bool frees, runtime, copies;
        int answer, result;
        bool owns;
    } list[] = {
        {"/a/libuser.so", false, true, false, UNLOADING, 0, true}, /* ours, after the driver's end */
        {"/a/libuser.so", false, true, false, UNLOADING, UNLOADING, false},
        {"/a/libuser.so", false, true, false, 5, 5, true},
        {"/a/libuser.so", true, true, false, 5, 0, false},
        {"/a/libuser.so", false, true, false, 5, 5, false},
        {"/a/libuser.so", false, true, true, 0, 0, false},
        {"/a/libuser.so", true, true, true, 5, 0, false},
        {"/a/libuser.so", false, false, true, 0, INSUFFICIENT_DRIVER, false},
        {"/a/libnccl.so", false, true, false, 0, 0, false},
        {"/a/libnccl.so", true, true, false, 5, 0, false}, /* what a program has given it, or it got before */
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char block;
        start_afresh(state);
        fake.calling = add(list[i].path);
        fake.has[NEXT] = list[i].runtime;
        fake.quick_frees = list[i].frees;
        fake.answer = list[i].answer;
        fake.owns = list[i].owns;
        atomic_store(&sg_torch_sent_copies, list[i].copies);
        sg_self.caller = SG_CALLER_TORCH;
        assert_int_equal(cudaFree(&block), list[i].result);
        bool asks = !list[i].frees && list[i].runtime;
        assert_int_equal(fake.frees, asks);
        assert_ptr_equal(fake.freed, asks ? &block : NULL);
        assert_int_equal(fake.sent, list[i].copies);
        assert_ptr_equal(fake.sent_address, list[i].copies ? &block : NULL);
        assert_int_equal(sg_self.caller, SG_CALLER_TORCH);
        sg_self.caller = 0;
        if (asks)
            assert_int_equal(fake.caller_seen, sg_caller_kind(code_in(fake.calling, 0)));
    }
}

/* Beside tensors, what PyTorch's cache asks for is noted, and the free of it is no tensor's. */
static void segments_of_pytorchs_cache_are_told_apart(void **state)
{
    static const struct {
        const char *path;
        bool seen, cached, switched, noted;
    } list[] = {
        {"/a/libc10_cuda.so", true, true, false, true},
        {"/a/libc10_cuda.so", true, false, false, false},
        {"/a/libc10_cuda.so", true, false, true, true}, /* its cache serves all */
        {"/a/libc10_cuda.so", false, true, false, false},
        {"/a/libuser.so", true, true, true, true}, /* the allocator of a pool */
        {"/a/libuser.so", true, false, true, false},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        void *block = &fake;
        start_afresh(state);
        fake.calling = add(list[i].path);
        fake.switched = list[i].switched;
        atomic_store(&sg_torch_segments_seen, list[i].seen);
        sg_self.torch_cached = list[i].cached;
        assert_int_equal(cudaMalloc(&block, BYTES), 0);
        assert_int_equal(fake.segments, list[i].noted);
        assert_int_equal(fake.segment_bytes, list[i].noted ? BYTES : 0);
        assert_int_equal(fake.peaks_ended, list[i].noted);
        fake.peaks_ended = 0;
        bool cached = sg_self.torch_cached;
        for (int segment = 0; segment < 2; segment++) {
            fake.is_segment = segment;
            assert_int_equal(cudaFree(&fake), 0);
            assert_int_equal(fake.cached_seen, list[i].seen ? segment : cached);
            assert_int_equal(sg_self.torch_cached, cached);
            assert_int_equal(fake.peaks_ended, list[i].seen && segment);
            assert_int_equal(fake.peaks_begun, list[i].seen && segment);
        }
        sg_self.torch_cached = false;
    }
}

/* A tensor that there is no room for: PyTorch's cache gives back what it holds idle. Not for a segment of its own. */
static void idle_cache_makes_room_for_a_tensor(void **state)
{
    for (int i = 0; i < 3; i++) {
        void *block;
        start_afresh(state);
        fake.calling = add("/a/libc10_cuda.so");
        fake.quick = false;
        fake.answer = REFUSED;
        fake.gives_back = i != 1;
        sg_self.torch_cached = i == 2;
        assert_int_equal(cudaMalloc(&block, BYTES), i == 0 ? 0 : REFUSED);
        assert_int_equal(fake.given_back, i != 2);
        assert_int_equal(fake.retries, 1);
        assert_int_equal(fake.ran_out, i != 0);
        assert_int_equal(fake.mallocs, i == 0 ? 2 : 1);
        sg_self.torch_cached = false;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(caller_that_hands_on_gets_the_next), TEST(library_after_ours_gets_every_call),
        TEST(allocation_that_no_hook_saw_is_asked_about), TEST(allocation_goes_the_way_of_its_caller), TEST(free_goes_the_way_of_its_caller),
        TEST(segments_of_pytorchs_cache_are_told_apart), TEST(idle_cache_makes_room_for_a_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
