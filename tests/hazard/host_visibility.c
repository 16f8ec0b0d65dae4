/* Ways by which the host, an event or the legacy stream may pass a block's address on, one scenario a run. The program
   is PyTorch whose record_stream the library does not get. A second stream uses the block of a first one. Then the block
   is freed, and its size is asked for again. README.md describes each scenario.

     host_visibility SCENARIO */
#include <dlfcn.h>
#include <unistd.h>

#include "stage.h"

/* What is freed must not be anybody's before the second stream's work on it. `others`: streams that are followed before
   the second one is. `show` NULL: by an event. */
static void use_elsewhere(unsigned flags, int others, bool own, void (*show)(CUstream first))
{
    start_following();
    CUstream first = followed(flags), second = own ? CU_STREAM_PER_THREAD : stream_of(flags);
    while (others-- > 0)
        show_events(stream_of(flags));
    show_events(second);
    show_events(CU_STREAM_LEGACY);
    void *tensor = tensor_on(first, 1);
    if (show)
        show(first);
    else
        wait_for(second, first);
    use_and_ask_again(tensor, first, second);
}

/* The same where the first stream, a blocking one, is waited for while the legacy one may have work left for all
   that is known; and then that one too. */
static void shown_behind_the_legacy_stream(void)
{
    start_following();
    CUstream first = followed(CU_STREAM_DEFAULT), second = stream_of(CU_STREAM_NON_BLOCKING);
    show_events(second);
    tensor_on(CU_STREAM_LEGACY, 3);
    void *tensor = tensor_on(first, 1);
    by_host(first);
    by_host(CU_STREAM_LEGACY);
    use_and_ask_again(tensor, first, second);
}

/* The same where a third stream, a blocking one, comes after the first by the legacy stream's rules: if that isn't
   blocking, after one that has waited for it. The second stream waits for the third by an event, or the host does, or
   it is the third. */
static void shown_by_legacy_rules(unsigned flags, bool event, bool host)
{
    start_following();
    CUstream first = followed(flags), third = stream_of(CU_STREAM_DEFAULT), between = stream_of(CU_STREAM_DEFAULT),
             second = event || host ? stream_of(CU_STREAM_NON_BLOCKING) : third;
    show_events(between);
    show_events(third);
    show_events(second);
    void *tensor = tensor_on(first, 1);
    if (flags == CU_STREAM_NON_BLOCKING) {
        wait_for(between, first);
        tensor_on(between, 5);
    }
    tensor_on(CU_STREAM_LEGACY, 3);
    tensor_on(third, 4);
    if (event)
        wait_for(second, third);
    if (host)
        by_host(third);
    use_and_ask_again(tensor, first, second);
}

/* The legacy stream comes after what was queued in both, and what both are given next after it. */
static void by_legacy_stream(CUstream first)
{
    (void)first;
    tensor_on(CU_STREAM_LEGACY, 3);
}

/* Events of a whole context give no knowledge. */
static void by_unknown_event(CUstream first)
{
    CUcontext context;
    CUevent event;
    (void)first;
    CUstream third = stream_of(CU_STREAM_NON_BLOCKING);
    MUST(cuCtxGetCurrent(&context));
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cuCtxRecordEvent(context, event));
    MUST(cuStreamWaitEvent(third, event, 0));
    MUST(cuStreamSynchronize(third));
    MUST(cuEventDestroy_v2(event));
}

/* Whoever shows it has seen to it that the second stream comes after all that the first was given. */
static void shown_before_the_allocation(unsigned flags, void (*show)(CUstream first, CUstream second))
{
    start_following();
    CUstream first = stream_of(flags), second = stream_of(CU_STREAM_NON_BLOCKING);
    show_events(first);
    show_events(second);
    if (show) {
        extras.release(tensor_on(first, 3));
        show(first, second);
    }
    use_and_ask_again(bare_tensor_on(first, 1), first, second);
}

static void by_event(CUstream first, CUstream second)
{
    wait_for(second, first);
}

static void to_host(CUstream first, CUstream second)
{
    (void)second;
    by_host(first);
}

/* The first stream has work of its own before the block, so that it is known since when it was given nothing. */
static void follow_two(CUstream first, CUstream second)
{
    tensor_on(first, 9);
    show_events(first);
    show_events(second);
}

static void before_alloc_context_event(void)
{
    CUcontext context;
    CUevent event;
    find_torch();
    extras.release(tensor_on(NULL, 1));
    CUstream first = stream_of(CU_STREAM_NON_BLOCKING), second = stream_of(CU_STREAM_NON_BLOCKING);
    follow_two(first, second);
    tensor_on(first, 3);
    MUST(cuCtxGetCurrent(&context));
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cuCtxRecordEvent(context, event));
    MUST(cuEventSynchronize(event));
    use_and_ask_again(bare_tensor_on(first, 1), first, second);
}

static void green_context(void)
{
    CUcontext primary, current;
    CUdevResource resource;
    CUdevResourceDesc part;
    CUgreenCtx context;
    CUstream first, second = stream_of(CU_STREAM_NON_BLOCKING);
    find_torch();
    MUST(cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_SM));
    MUST(cuDevResourceGenerateDesc(&part, &resource, 1));
    MUST(cuGreenCtxCreate(&context, part, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    MUST(cuCtxFromGreenCtx(&current, context));
    MUST(cuGreenCtxStreamCreate(&first, context, CU_STREAM_NON_BLOCKING, 0));
    follow_two(first, second);
    void *tensor = tensor_on(first, 1);
    MUST(cuCtxGetCurrent(&primary));
    MUST(cuCtxSetCurrent(current));
    MUST(cuCtxSynchronize());
    MUST(cuCtxSetCurrent(primary));
    use_and_ask_again(tensor, first, second);
}

static void legacy_only(void)
{
    find_torch();
    CUstream first = stream_of(CU_STREAM_DEFAULT), second = stream_of(CU_STREAM_NON_BLOCKING);
    follow_two(first, second);
    void *tensor = tensor_on(first, 1);
    by_host(CU_STREAM_LEGACY);
    use_and_ask_again(tensor, first, second);
}

static CUstream plugged_stream;

static void *plugged_tensor(size_t bytes)
{
    return extras.torch_malloc(bytes, 0, plugged_stream);
}

static void plugged_release(void *tensor)
{
    extras.torch_free(tensor, BLOCK, 0, plugged_stream);
}

static void plugged_current(void *stream)
{
    plugged_stream = stream;
}

static void plug_in(void)
{
    extras.tensor = plugged_tensor;
    extras.release = plugged_release;
    extras.set_current_stream = plugged_current;
}

static void wait_value(void)
{
    CUdeviceptr word;
    CUstream first = stream_of(CU_STREAM_NON_BLOCKING), second = stream_of(CU_STREAM_NON_BLOCKING);
    plug_in();
    MUST(cuMemAlloc_v2(&word, sizeof(uint32_t)));
    MUST(cuMemsetD32_v2(word, 0, 1));
    MUST(cuCtxSynchronize());
    MUST(cuStreamWaitValue32_v2(second, word, 1, 0));
    follow_two(first, second);
    void *tensor = tensor_on(first, 1);
    MUST(cuMemsetD32Async(word, 1, 1, first));
    use_and_ask_again(tensor, first, second);
}

static void captured_wait(void)
{
    CUevent event;
    CUgraph graph;
    CUgraphExec exec;
    CUstream first = stream_of(CU_STREAM_NON_BLOCKING), second = stream_of(CU_STREAM_NON_BLOCKING);
    plug_in();
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cuStreamBeginCapture_v2(second, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuStreamWaitEvent(second, event, CU_EVENT_WAIT_EXTERNAL));
    MUST(cuStreamEndCapture(second, &graph));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    follow_two(first, second);
    void *tensor = tensor_on(first, 1);
    MUST(cuEventRecord(event, first));
    MUST(cuGraphLaunch(exec, second));
    use_and_ask_again(tensor, first, second);
}

static void pluggable_allocator(void)
{
    char host_memory[64];
    plug_in();
    CUstream first = stream_of(CU_STREAM_NON_BLOCKING), second = stream_of(CU_STREAM_NON_BLOCKING);
    follow_two(first, second);
    void *tensor = tensor_on(first, 1);
    MUST(cuMemcpyDtoHAsync_v2(host_memory, number(tensor), sizeof host_memory, first)); /* done: it is pageable memory */
    use_and_ask_again(tensor, first, second);
}

/* The program with `check` on, whose first work on a block that was freed reads what it had filled it with. Others may have come after
   all that the stream was given: then that work has to be over before the program has the block. */
static void check_reads(void (*show)(CUstream first), void (*wait)(void))
{
    CUstream first = stream_of(CU_STREAM_NON_BLOCKING), second = stream_of(CU_STREAM_NON_BLOCKING);
    follow_two(first, second);
    void *work = tensor_on(first, 3), *freed = tensor_on(first, 1);
    extras.owner(number(freed), BLOCK, 0);
    extras.release(freed);
    MUST(cuCtxSynchronize());
    MUST(cuMemsetD8Async(number(work), 3, BLOCK, first));
    show(first);
    void *tensor = bare_tensor_on(first, 2);
    if (wait)
        wait();
    MUST(cuMemsetD8Async(number(tensor), 2, BLOCK, second));
    MUST(cuCtxSynchronize());
    EXPECT(extras.hazards() == 0);
}

static CUevent over_context;

static void record_over_context(CUstream first)
{
    CUcontext context;
    (void)first;
    MUST(cuCtxGetCurrent(&context));
    MUST(cuEventCreate(&over_context, CU_EVENT_DISABLE_TIMING));
    MUST(cuCtxRecordEvent(context, over_context));
}

static void wait_over_context(void)
{
    MUST(cuEventSynchronize(over_context));
}

static void check_context_event(void)
{
    find_torch();
    extras.release(tensor_on(NULL, 1));
    check_reads(record_over_context, wait_over_context);
}

static char host_memory[64];

/* It is done when it returns: that memory is pageable. */
static void by_copy(CUstream first)
{
    MUST(cuMemcpyDtoHAsync_v2(host_memory, number(extras.tensor(sizeof host_memory)), sizeof host_memory, first));
}

/* Who records all uses says so, and the allocator need not guess who has learnt of a block. */
static void check_recorded_copy(void)
{
    void (*record)(void *, void *);
    *(void **)&record = dlsym(RTLD_DEFAULT, "segalloc_torch_record_stream");
    EXPECT(record != NULL);
    plug_in();
    CUstream stream = stream_of(CU_STREAM_NON_BLOCKING);
    void *tensor = tensor_on(stream, 9);
    record(tensor, stream);
    extras.owner(number(tensor), BLOCK, 0);
    extras.release(tensor);
    check_reads(by_copy, NULL);
}

static void host(void)
{
    use_elsewhere(CU_STREAM_NON_BLOCKING, 0, false, by_host);
}

static void host_after_a_context(void)
{
    context_wait_for(CU_STREAM_LEGACY);
    host();
}

static void untrusted_event(void)
{
    use_elsewhere(CU_STREAM_NON_BLOCKING, 0, false, by_unknown_event);
}

static void host_function(void)
{
    use_elsewhere(CU_STREAM_NON_BLOCKING, 0, false, by_function);
}

static void legacy(void)
{
    use_elsewhere(CU_STREAM_DEFAULT, 0, false, by_legacy_stream);
}

static void untracked_stream(void)
{
    use_elsewhere(CU_STREAM_NON_BLOCKING, 80, false, NULL);
}

static void per_thread_stream(void)
{
    use_elsewhere(CU_STREAM_NON_BLOCKING, 0, true, NULL);
}

static void relay(void)
{
    shown_by_legacy_rules(CU_STREAM_DEFAULT, false, false);
}

static void relay_event(void)
{
    shown_by_legacy_rules(CU_STREAM_DEFAULT, true, false);
}

static void relay_host(void)
{
    shown_by_legacy_rules(CU_STREAM_DEFAULT, false, true);
}

static void relay_wait(void)
{
    shown_by_legacy_rules(CU_STREAM_NON_BLOCKING, false, false);
}

static void relay_wait_event(void)
{
    shown_by_legacy_rules(CU_STREAM_NON_BLOCKING, true, false);
}

static void relay_wait_host(void)
{
    shown_by_legacy_rules(CU_STREAM_NON_BLOCKING, false, true);
}

static void before_alloc_wait(void)
{
    shown_before_the_allocation(CU_STREAM_NON_BLOCKING, by_event);
}

static void before_alloc_blocking(void)
{
    shown_before_the_allocation(CU_STREAM_DEFAULT, by_event);
}

static void before_alloc_host(void)
{
    shown_before_the_allocation(CU_STREAM_NON_BLOCKING, to_host);
}

static void before_alloc_unused(void)
{
    shown_before_the_allocation(CU_STREAM_NON_BLOCKING, NULL);
}

static const struct rule rules[] = {
    {"host", host},
    {"host_context", host_after_a_context},
    {"host_legacy_busy", shown_behind_the_legacy_stream},
    {"untrusted_event", untrusted_event},
    {"host_function", host_function},
    {"legacy", legacy},
    {"untracked_stream", untracked_stream},
    {"per_thread_stream", per_thread_stream},
    {"relay", relay},
    {"relay_event", relay_event},
    {"relay_host", relay_host},
    {"relay_wait", relay_wait},
    {"relay_wait_event", relay_wait_event},
    {"relay_wait_host", relay_wait_host},
    {"before_alloc_wait", before_alloc_wait},
    {"before_alloc_blocking", before_alloc_blocking},
    {"before_alloc_host", before_alloc_host},
    {"before_alloc_unused", before_alloc_unused},
    {"before_alloc_context_event", before_alloc_context_event},
    {"green_context", green_context},
    {"legacy_only", legacy_only},
    {"pluggable_allocator", pluggable_allocator},
    {"wait_value", wait_value},
    {"captured_wait", captured_wait},
    {"check_context_event", check_context_event},
    {"check_recorded_copy", check_recorded_copy},
};

int main(int count, char **argument)
{
    return play(rules, sizeof rules / sizeof *rules, count > 1 ? argument[1] : "");
}
