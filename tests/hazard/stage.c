#include "stage.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SCRATCH = 512 };

struct extras extras;
atomic_bool ran;

void expect(int held, const char *what, const char *file, int line)
{
    if (held)
        return;
    fprintf(stderr, "%s: line %d: %s\n", file, line, what);
    exit(1);
}

static void *find(const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    EXPECT(found != NULL);
    return found;
}

static void find_extras(void)
{
    *(void **)&extras.owner = find("segalloc_sim_owner");
    *(void **)&extras.hazards = find("segalloc_sim_hazards");
    *(void **)&extras.touches = find("segalloc_sim_touches");
    *(void **)&extras.malloc_on = find("segalloc_malloc_on");
    *(void **)&extras.free = find("segalloc_free");
    *(void **)&extras.record_stream = find("segalloc_record_stream");
    *(void **)&extras.stats = find("segalloc_stats");
    *(void **)&extras.torch_malloc = find("segalloc_torch_malloc");
    *(void **)&extras.torch_free = find("segalloc_torch_free");
}

CUcontext begin(void)
{
    CUcontext context = NULL;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    find_extras();
    return context;
}

int play(const struct rule *rules, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(name, rules[i].name) != 0)
            continue;
        (void)begin();
        rules[i].play();
        EXPECT(extras.hazards() == 0);
        return 0;
    }
    return 2;
}

void find_torch(void)
{
    EXPECT(dlopen(FAKE_TORCH, RTLD_NOW | RTLD_GLOBAL) != NULL);
    *(void **)&extras.set_current_stream = find("set_current_stream");
    *(void **)&extras.tensor = find("tensor");
    *(void **)&extras.release = find("release");
}

CUdeviceptr number(void *address)
{
    return (CUdeviceptr)(uintptr_t)address;
}

CUstream stream_of(unsigned flags)
{
    CUstream stream = NULL;
    MUST(cuStreamCreate(&stream, flags));
    return stream;
}

void show_events(CUstream stream)
{
    CUevent event;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cuEventRecord(event, stream));
    MUST(cuEventDestroy_v2(event));
}

static void *bare_tensor(CUstream stream, uint64_t owner, size_t bytes)
{
    extras.set_current_stream(stream);
    void *tensor = extras.tensor(bytes);
    EXPECT(tensor != NULL);
    extras.owner(number(tensor), bytes, owner);
    return tensor;
}

void *bare_tensor_on(CUstream stream, uint64_t owner)
{
    return bare_tensor(stream, owner, BLOCK);
}

void *tensor_of(CUstream stream, uint64_t owner, size_t bytes)
{
    void *tensor = bare_tensor(stream, owner, bytes);
    MUST(cuMemsetD8Async(number(tensor), (unsigned char)owner, bytes, stream));
    return tensor;
}

void *tensor_on(CUstream stream, uint64_t owner)
{
    return tensor_of(stream, owner, BLOCK);
}

void *block_on(CUstream stream, uint64_t owner)
{
    void *block = extras.malloc_on(BLOCK, stream);
    EXPECT(block != NULL);
    extras.owner(number(block), BLOCK, owner);
    MUST(cuMemsetD8Async(number(block), (unsigned char)owner, BLOCK, stream));
    return block;
}

void wait_for(CUstream waits, CUstream stream)
{
    CUevent event;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cuEventRecord(event, stream));
    MUST(cuStreamWaitEvent(waits, event, 0));
    MUST(cuEventDestroy_v2(event));
}

void context_wait_for(CUstream stream)
{
    CUcontext context;
    CUevent event;
    MUST(cuCtxGetCurrent(&context));
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cuEventRecord(event, stream));
    MUST(cuCtxWaitEvent(context, event));
    MUST(cuEventDestroy_v2(event));
}

void use(void *tensor, CUstream second, size_t bytes)
{
    MUST(cuMemsetD8Async(number(tensor), 2, bytes, second));
    extras.owner(number(tensor), bytes, 0);
    extras.release(tensor);
}

void ask_again(CUstream first, size_t bytes)
{
    void *next = tensor_of(first, 2, bytes);
    EXPECT(extras.hazards() == 0);
    extras.owner(number(next), bytes, 0);
    extras.release(next);
    MUST(cuCtxSynchronize());
}

void use_and_ask_again(void *tensor, CUstream first, CUstream second)
{
    use(tensor, second, BLOCK);
    ask_again(first, BLOCK);
}

static CUdeviceptr scratch; /* a small block, whose place is elsewhere than that of the others */

void start_following(void)
{
    find_torch();
    extras.release(tensor_on(NULL, 1));
    MUST(cuMemAlloc_v2(&scratch, SCRATCH));
    MUST(cuCtxSynchronize());
}

CUstream followed(unsigned flags)
{
    CUstream stream = stream_of(flags);
    show_events(stream);
    MUST(cuMemsetD8Async(scratch, 1, SCRATCH, stream));
    return stream;
}

void by_host(CUstream stream)
{
    MUST(cuStreamSynchronize(stream));
}

void run(void *unused)
{
    (void)unused;
    ran = true;
}

int stage_patience(void)
{
    const char *sim = getenv("SEGALLOC_SIM");
    return sim && strstr(sim, "schedule=") ? 1 : 50000;
}

void by_function(CUstream stream)
{
    MUST(cuLaunchHostFunc(stream, run, NULL));
    for (int i = stage_patience(); i > 0 && !ran; i--)
        usleep(100);
    EXPECT(ran);
}
