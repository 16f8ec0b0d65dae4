/* Calls after which the host knows that work is complete although it waited for nothing, or waited for a stream that is
   not followed. One scenario a run, as in host_visibility.c. README.md describes each.

     host_sync SCENARIO */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "stage.h"

enum { PIECE = 4096 }; /* elsewhere than blocks, so that those are had again */

static CUdeviceptr far_block; /* 0: the other device serves none */

/* The other device's primary context is current while `show` is called. */
static void shown_abroad(bool served, bool context_waits, void (*show)(CUstream third))
{
    CUcontext near, far;
    CUevent event;
    start_following();
    CUstream first = followed(CU_STREAM_NON_BLOCKING), second = followed(CU_STREAM_NON_BLOCKING);
    MUST(cuCtxGetCurrent(&near));
    MUST(cuDevicePrimaryCtxRetain(&far, 1));
    MUST(cuCtxSetCurrent(far));
    if (served)
        far_block = number(tensor_on(CU_STREAM_LEGACY, 3));
    CUstream third = stream_of(served ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);
    MUST(cuCtxSetCurrent(near));
    void *tensor = tensor_on(first, 1);
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cuEventRecord(event, first));
    MUST(context_waits ? cuCtxWaitEvent(far, event) : cuStreamWaitEvent(third, event, 0));
    MUST(cuEventDestroy_v2(event));
    MUST(cuCtxSetCurrent(far));
    show(third);
    MUST(cuCtxSetCurrent(near));
    use_and_ask_again(tensor, first, second);
}

static void by_context(CUstream third)
{
    (void)third;
    MUST(cuCtxSynchronize());
}

/* Another stream comes after the third by the legacy stream's rules, and the host waits for that. */
static void by_neighbour(CUstream third)
{
    (void)third;
    CUstream fourth = stream_of(CU_STREAM_DEFAULT);
    MUST(cuMemsetD8Async(far_block, 1, BLOCK, CU_STREAM_LEGACY));
    MUST(cuMemsetD8Async(far_block, 1, BLOCK, fourth));
    MUST(cuStreamSynchronize(fourth));
}

/* The copy waits for both devices, and what comes after it for the copy. */
static void peer_copy(void)
{
    CUcontext near, far;
    CUdeviceptr here, there;
    start_following();
    CUstream first = followed(CU_STREAM_NON_BLOCKING), second = followed(CU_STREAM_NON_BLOCKING);
    MUST(cuCtxGetCurrent(&near));
    MUST(cuMemAlloc_v2(&here, PIECE));
    MUST(cuDevicePrimaryCtxRetain(&far, 1));
    MUST(cuCtxSetCurrent(far));
    MUST(cuMemAlloc_v2(&there, PIECE));
    MUST(cuCtxSetCurrent(near));
    void *tensor = tensor_on(first, 1);
    MUST(cuMemcpyPeer(there, far, here, near, PIECE));
    use_and_ask_again(tensor, first, second);
}

/* What the host can look into, and a block beside. */
static struct {
    atomic_uchar *seen;
    CUdeviceptr address, block;
    CUstream third; /* NULL, or who has come after the first stream */
    CUstream idle;  /* it never has work, so an answer that it has ended tells of no other */
} memory;

/* The first stream is of that kind, the second comes after nothing by itself. */
static void shown(unsigned flags, bool by_third, void (*show)(CUstream first))
{
    void *pinned;
    start_following();
    MUST(cuMemHostAlloc(&pinned, PIECE, CU_MEMHOSTALLOC_DEVICEMAP));
    MUST(cuMemHostGetDevicePointer_v2(&memory.address, pinned, 0));
    MUST(cuMemAlloc_v2(&memory.block, PIECE));
    MUST(cuMemsetD8_v2(memory.block, 1, PIECE));
    MUST(cuCtxSynchronize());
    memory.seen = pinned;
    *memory.seen = 0;
    CUstream first = followed(flags), second = followed(CU_STREAM_NON_BLOCKING);
    if (by_third) /* made before the block is: what a stream has done by the time that it is made counts as seen */
        memory.third = followed(CU_STREAM_NON_BLOCKING);
    memory.idle = stream_of(CU_STREAM_NON_BLOCKING);
    void *tensor = tensor_on(first, 1);
    show(first);
    use(tensor, second, BLOCK);
    if (memory.third)
        MUST(cuStreamSynchronize(memory.third)); /* now only the second's work can be in the way */
    ask_again(first, BLOCK);
}

static void shown_by(unsigned flags, void (*show)(CUstream first))
{
    shown(flags, false, show);
}

/* `show` has third_after() do it. */
static void shown_by_third(void (*show)(CUstream first))
{
    shown(CU_STREAM_NON_BLOCKING, true, show);
}

static CUDA_MEMCPY2D flat_copy(void)
{
    return (CUDA_MEMCPY2D){
        .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = memory.block, .dstMemoryType = CU_MEMORYTYPE_HOST,
        .dstHost = (void *)memory.seen, .dstDevice = memory.block, .WidthInBytes = 64, .Height = 1,
    };
}

static void by_flat_copy(CUstream first)
{
    const CUDA_MEMCPY2D copy = flat_copy();
    (void)first;
    MUST(cuMemcpy2D_v2(&copy));
}

static void by_copy_from_host(CUstream first)
{
    static unsigned char pageable[64];
    (void)first;
    MUST(cuMemcpyHtoD_v2(memory.block, pageable, sizeof pageable));
}

static void by_any_copy(CUstream first)
{
    (void)first;
    MUST(cuMemcpy(memory.block, memory.address, 64));
}

static void by_set(CUstream first)
{
    (void)first;
    MUST(cuMemsetD32_v2(memory.address, 1, 16));
}

/* Without a schedule it is done at once, by a thread of the driver's. Under one, work is done within calls of the driver. */
static void look(void)
{
    for (int i = stage_patience(); i > 0 && !*memory.seen; i--) {
        MUST(cuStreamQuery(memory.idle));
        usleep(100);
    }
    EXPECT(*memory.seen);
}

static CUstream third_after(CUstream first)
{
    wait_for(memory.third, first);
    return memory.third;
}

static void by_sight_of_a_flat_copy(CUstream first)
{
    const CUDA_MEMCPY2D copy = flat_copy();
    MUST(cuMemcpy2DAsync_v2(&copy, third_after(first)));
    look();
}

static void by_sight_of_a_set(CUstream first)
{
    MUST(cuMemsetD32Async(memory.address, 1, 16, third_after(first)));
    look();
}

static void by_sight_of_a_batch(CUstream first)
{
    CUstreamBatchMemOpParams write = {.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32,
        .address = memory.address, .value = 1}};
    MUST(cuStreamBatchMemOp_v2(third_after(first), 1, &write, 0));
    look();
}

static void by_time(CUstream first)
{
    CUevent start, end;
    float ms;
    int tries = 50000;
    MUST(cuEventCreate(&start, 0));
    MUST(cuEventCreate(&end, 0));
    MUST(cuEventRecord(start, first));
    MUST(cuEventRecord(end, first));
    while (tries-- > 0 && cuEventElapsedTime(&ms, start, end) == CUDA_ERROR_NOT_READY)
        usleep(100);
    EXPECT(tries >= 0);
}

static void by_free(CUstream first)
{
    CUdeviceptr managed;
    (void)first;
    MUST(cuMemAllocManaged(&managed, PIECE, CU_MEM_ATTACH_GLOBAL));
    MUST(cuMemFree_v2(managed));
}

static void by_end_of_a_context(CUstream first)
{
    CUcontext own, context;
    CUevent event;
    MUST(cuCtxGetCurrent(&own));
    MUST(cuCtxCreate_v2(&context, 0, 0));
    CUstream stream = stream_of(CU_STREAM_NON_BLOCKING);
    MUST(cuCtxSetCurrent(own));
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cuEventRecord(event, first));
    MUST(cuStreamWaitEvent(stream, event, 0));
    MUST(cuCtxDestroy_v2(context));
    MUST(cuCtxSetCurrent(own));
}

static void by_another_process(CUstream first)
{
    CUevent event;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
    MUST(cuEventRecord(event, first));
}

/* Another thread sees the first word that a batch writes, and acts on it, before the batch has been given to a stream
   that holds one thing at a time. */
static struct {
    CUcontext context;
    CUstream second;
    void *tensor;
    _Atomic uint32_t *seen, *done;
} other;

static void *act(void *unused)
{
    (void)unused;
    MUST(cuCtxSetCurrent(other.context));
    while (!*other.seen)
        usleep(100);
    use(other.tensor, other.second, MIB);
    *other.done = 1;
    return NULL;
}

static void before_return(void)
{
    enum { SEEN, DONE, LAST, WORDS };
    void *words;
    CUdeviceptr word;
    pthread_t thread;
    start_following();
    MUST(cuCtxGetCurrent(&other.context));
    MUST(cuMemHostAlloc(&words, PIECE, CU_MEMHOSTALLOC_DEVICEMAP));
    memset(words, 0, PIECE);
    MUST(cuMemHostGetDevicePointer_v2(&word, words, 0));
    other.seen = (_Atomic uint32_t *)words + SEEN;
    other.done = (_Atomic uint32_t *)words + DONE;
    CUstream first = followed(CU_STREAM_NON_BLOCKING);
    other.second = followed(CU_STREAM_NON_BLOCKING);
    memory.third = followed(CU_STREAM_NON_BLOCKING);
    other.tensor = tensor_of(first, 1, MIB); /* too little for an event of the library's in a stream that is full */
    CUstream third = third_after(first);
    CUstreamBatchMemOpParams batch[WORDS];
    memset(batch, 0, sizeof batch);
    for (unsigned i = 0; i < WORDS; i++)
        batch[i].writeValue = (struct CUstreamMemOpValueParams){.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32,
            .address = word + sizeof(uint32_t) * i, .value = 1};
    batch[DONE].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    EXPECT(pthread_create(&thread, NULL, act, NULL) == 0);
    MUST(cuStreamBatchMemOp_v2(third, WORDS, batch, 0));
    EXPECT(pthread_join(thread, NULL) == 0);
    MUST(cuStreamSynchronize(third));
    ask_again(first, MIB);
}

static void cross_device(void)
{
    shown_abroad(false, false, by_host);
}

static void cross_device_context(void)
{
    shown_abroad(false, false, by_context);
}

static void cross_device_function(void)
{
    shown_abroad(false, false, by_function);
}

static void cross_device_context_wait(void)
{
    shown_abroad(false, true, by_host);
}

static void cross_device_served(void)
{
    shown_abroad(true, false, by_neighbour);
}

static void copy_2d(void)
{
    shown_by(CU_STREAM_DEFAULT, by_flat_copy);
}

static void copy_2d_later(void)
{
    shown_by_third(by_sight_of_a_flat_copy);
}

static void copy_from_host(void)
{
    shown_by(CU_STREAM_DEFAULT, by_copy_from_host);
}

static void copy_any_address(void)
{
    shown_by(CU_STREAM_DEFAULT, by_any_copy);
}

static void memset_host(void)
{
    shown_by(CU_STREAM_DEFAULT, by_set);
}

static void memset_host_later(void)
{
    shown_by_third(by_sight_of_a_set);
}

static void batch_mem_op(void)
{
    shown_by_third(by_sight_of_a_batch);
}

static void elapsed_time(void)
{
    shown_by(CU_STREAM_NON_BLOCKING, by_time);
}

static void driver_free(void)
{
    shown_by(CU_STREAM_NON_BLOCKING, by_free);
}

static void context_end(void)
{
    shown_by(CU_STREAM_NON_BLOCKING, by_end_of_a_context);
}

static void ipc_event(void)
{
    shown_by(CU_STREAM_NON_BLOCKING, by_another_process);
}

static const struct rule rules[] = {
    {"cross_device", cross_device},
    {"cross_device_context", cross_device_context},
    {"cross_device_function", cross_device_function},
    {"cross_device_context_wait", cross_device_context_wait},
    {"cross_device_served", cross_device_served},
    {"peer_copy", peer_copy},
    {"copy_2d", copy_2d},
    {"copy_2d_later", copy_2d_later},
    {"copy_from_host", copy_from_host},
    {"copy_any_address", copy_any_address},
    {"memset_host", memset_host},
    {"memset_host_later", memset_host_later},
    {"batch_mem_op", batch_mem_op},
    {"before_return", before_return},
    {"elapsed_time", elapsed_time},
    {"driver_free", driver_free},
    {"context_end", context_end},
    {"ipc_event", ipc_event},
};

int main(int count, char **argument)
{
    return play(rules, sizeof rules / sizeof *rules, count > 1 ? argument[1] : "");
}
