/* Preloaded, on the simulator: memory freed by the order of its stream. Who gets it again, and when, by every way in
   which a program makes one stream come after another; and what frees in a forked child and after the end of a stream
   do. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_proto.h"
#include "segalloc/segalloc.h"
#include "served.h"

enum { BYTES = 24 << 20 }; /* of a card of 64 MiB: two fit, three don't */

#define MUST(call) EXPECT((call) == CUDA_SUCCESS)

static atomic_int gate; /* host functions up to this number may end */

static void wait_for_gate(void *number)
{
    while (gate < (int)(intptr_t)number)
        usleep(200);
}

static CUstream stream_of(void)
{
    CUstream stream = NULL;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static CUdeviceptr on(CUstream stream)
{
    return (CUdeviceptr)(uintptr_t)segalloc_malloc_on(BYTES, stream);
}

static void give_back(CUdeviceptr block)
{
    MUST((CUresult)segalloc_free((void *)(uintptr_t)block));
}

/* A block whose stream is held up behind gate `number`, freed; and another one, still held, so that there is no room
   for a third. */
static void fill_card(CUstream stream, int number, CUdeviceptr *ret_freed, CUdeviceptr *ret_kept)
{
    *ret_kept = on(stream);
    *ret_freed = on(stream);
    EXPECT(*ret_freed && *ret_kept);
    MUST(cuLaunchHostFunc(stream, wait_for_gate, (void *)(intptr_t)number));
    MUST(cuMemsetD8Async(*ret_freed, 1, BYTES, stream));
    give_back(*ret_freed);
}

static void end_round(CUstream stream, int number, CUdeviceptr kept)
{
    gate = number;
    MUST(cuStreamSynchronize(stream));
    give_back(kept);
    MUST(cuCtxSynchronize()); /* all is complete, and known to be */
}

static void its_own_stream_has_it_at_once(CUstream a, int number)
{
    CUdeviceptr freed, kept, again;
    fill_card(a, number, &freed, &kept);
    uint64_t waits = statistic(0, "host_waits"), passed = statistic(0, "passed_on");
    again = on(a);
    EXPECT(again != 0 && statistic(0, "host_waits") == waits && statistic(0, "passed_on") == passed);
    MUST(cuMemsetD8Async(again, 2, BYTES, a));
    give_back(again);
    end_round(a, number, kept);
}

static void others_do_not(CUstream a, CUstream b, int number)
{
    CUdeviceptr freed, kept;
    fill_card(a, number, &freed, &kept);
    EXPECT(on(b) == 0); /* after a bounded wait */
    end_round(a, number, kept);
    CUdeviceptr later = on(b); /* complete by now */
    EXPECT(later != 0);
    give_back(later);
    MUST(cuCtxSynchronize());
}

static void a_waiting_stream_has_it(CUstream a, CUstream b, int number)
{
    CUdeviceptr freed, kept, taken;
    CUevent event;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    fill_card(a, number, &freed, &kept);
    uint64_t waits = statistic(0, "host_waits");
    MUST(cuEventRecord(event, a));
    MUST(cuStreamWaitEvent(b, event, 0));
    taken = on(b);
    EXPECT(taken != 0 && statistic(0, "host_waits") == waits);
    MUST(cuMemsetD8Async(taken, 3, BYTES, b));
    MUST(cuEventDestroy_v2(event));
    end_round(a, number, kept);
    give_back(taken);
    MUST(cuCtxSynchronize());
}

/* An event recorded before the free tells nothing of what came after it. */
static void an_old_event_does_not_help(CUstream a, CUstream b, int number)
{
    CUdeviceptr freed, kept;
    CUevent event;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cuEventRecord(event, a));
    fill_card(a, number, &freed, &kept);
    MUST(cuStreamWaitEvent(b, event, 0));
    MUST(cuEventSynchronize(event));
    EXPECT(on(b) == 0);
    MUST(cuEventDestroy_v2(event));
    end_round(a, number, kept);
}

/* Memory of `a` that `b` is at work on is freed in one of two ways, and nobody gets it before that work is complete. */
static void used_memory_waits(CUstream a, CUstream b, int number, void (*free_used)(CUdeviceptr used, CUstream by))
{
    CUdeviceptr kept = on(a), used = on(a);
    MUST(cuLaunchHostFunc(b, wait_for_gate, (void *)(intptr_t)number));
    MUST(cuMemsetD8Async(used, 4, BYTES, b));
    free_used(used, b);
    EXPECT(on(a) == 0);
    gate = number;
    MUST(cuStreamSynchronize(b));
    CUdeviceptr later = on(a);
    EXPECT(later != 0);
    give_back(later);
    give_back(kept);
    MUST(cuCtxSynchronize());
}

/* The other stream is recorded, and the block freed on its own. */
static void record_and_free(CUdeviceptr used, CUstream by)
{
    EXPECT(segalloc_record_stream((void *)(uintptr_t)used, by) == CUDA_SUCCESS);
    give_back(used);
}

/* cuMemFreeAsync on another stream orders the memory after that one as well. */
static void free_on_the_other(CUdeviceptr used, CUstream by)
{
    MUST(cuMemFreeAsync(used, by));
}

/* A destroyed stream's work goes on, and its handle may come back meanwhile. */
static void a_destroyed_stream_keeps_its_memory(CUstream b, int number)
{
    CUstream gone = stream_of();
    CUdeviceptr freed, kept;
    fill_card(gone, number, &freed, &kept);
    MUST(cuStreamDestroy_v2(gone));
    CUstream next = stream_of(); /* often of the same handle */
    EXPECT(on(next) == 0 && on(b) == 0);
    gate = number;
    MUST(cuCtxSynchronize());
    give_back(kept);
    CUdeviceptr later = on(next);
    EXPECT(later != 0);
    give_back(later);
    MUST(cuStreamSynchronize(next));
    MUST(cuStreamDestroy_v2(next));
}

static void a_child_frees_in_vain(CUstream a)
{
    CUdeviceptr block = on(a);
    int status = -1;
    pid_t child = fork();
    if (child == 0)
        _exit(segalloc_free((void *)(uintptr_t)block) != CUDA_SUCCESS || cuMemFree_v2(block) != CUDA_SUCCESS ||
              segalloc_record_stream((void *)(uintptr_t)block, a) != CUDA_SUCCESS);
    EXPECT(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    MUST(cuMemsetD8Async(block, 6, BYTES, a));
    give_back(block);
    MUST(cuStreamSynchronize(a));
}

int main(void)
{
    CUcontext context;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    CUstream a = stream_of(), b = stream_of();
    its_own_stream_has_it_at_once(a, 1);
    others_do_not(a, b, 2);
    a_waiting_stream_has_it(a, b, 3);
    an_old_event_does_not_help(a, b, 4);
    used_memory_waits(a, b, 5, record_and_free);
    used_memory_waits(a, b, 6, free_on_the_other);
    a_destroyed_stream_keeps_its_memory(b, 7);
    its_own_stream_has_it_at_once(CU_STREAM_PER_THREAD, 8);
    others_do_not(CU_STREAM_PER_THREAD, b, 9);
    its_own_stream_has_it_at_once(NULL, 10);
    a_waiting_stream_has_it(CU_STREAM_LEGACY, b, 11);
    a_child_frees_in_vain(a);
    return failures != 0;
}
