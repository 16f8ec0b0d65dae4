#include "stage.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

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
    *(void **)&extras.malloc_on = find("segalloc_malloc_on");
    *(void **)&extras.free = find("segalloc_free");
    *(void **)&extras.record_stream = find("segalloc_record_stream");
    *(void **)&extras.stats = find("segalloc_stats");
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

void *bare_tensor_on(CUstream stream, uint64_t owner)
{
    extras.set_current_stream(stream);
    void *tensor = extras.tensor(BLOCK);
    EXPECT(tensor != NULL);
    extras.owner(number(tensor), BLOCK, owner);
    return tensor;
}

void *tensor_on(CUstream stream, uint64_t owner)
{
    void *tensor = bare_tensor_on(stream, owner);
    MUST(cuMemsetD8Async(number(tensor), (unsigned char)owner, BLOCK, stream));
    return tensor;
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

void run(void *unused)
{
    (void)unused;
    ran = true;
}
