// The kernels of the probe, by the names that it looks for: nvcc -cubin -arch=native kernels.cu, or NVRTC, which has no headers.

extern "C" {

// Keeps one thread busy for so many nanoseconds by the device's own clock.
__global__ void spin(unsigned long long length)
{
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - begin < length);
}

__global__ void nothing()
{
}

__device__ unsigned long long first()
{
    return blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
}

__device__ unsigned long long step()
{
    return gridDim.x * (unsigned long long)blockDim.x;
}

// Reads all words; `sum` keeps the compiler from leaving that out.
__global__ void sweep(const uint4 *words, unsigned long long count, unsigned *sum)
{
    unsigned all = 0;
    for (unsigned long long i = first(); i < count / 4; i += step()) {
        uint4 four = words[i];
        all ^= four.x ^ four.y ^ four.z ^ four.w;
    }
    if (all == 0x9e3779b9u)
        atomicAdd(sum, 1);
}

__global__ void put(unsigned *words, unsigned long long count, unsigned value)
{
    for (unsigned long long i = first(); i < count; i += step())
        words[i] = value ^ (unsigned)i;
}

// Of the sectors of so many words those whose number is odd or even.
__global__ void put_part(unsigned *words, unsigned long long count, unsigned value, unsigned sector, unsigned which)
{
    for (unsigned long long i = first(); i < count; i += step())
        if (i / sector % 2 == which)
            words[i] = value ^ (unsigned)i;
}

__global__ void judge(const unsigned *words, unsigned long long count, unsigned value, unsigned *bad)
{
    for (unsigned long long i = first(); i < count; i += step())
        if (*(const volatile unsigned *)(words + i) != (value ^ (unsigned)i))
            atomicAdd(bad, 1);
}

// Loads that L1 may keep.
__global__ void judge_cached(const unsigned *words, unsigned long long count, unsigned value, unsigned *bad)
{
    for (unsigned long long i = first(); i < count; i += step()) {
        unsigned word;
        asm volatile("ld.global.ca.u32 %0, [%1];" : "=r"(word) : "l"(words + i));
        if (word != (value ^ (unsigned)i))
            atomicAdd(bad, 1);
    }
}

__global__ void judge_read_only(const unsigned *__restrict__ words, unsigned long long count, unsigned value, unsigned *bad)
{
    for (unsigned long long i = first(); i < count; i += step())
        if (__ldg(words + i) != (value ^ (unsigned)i))
            atomicAdd(bad, 1);
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
// Words go to shared memory by cp.async, a word a thread.
__global__ void judge_asynchronous(const unsigned *words, unsigned long long count, unsigned value, unsigned *bad)
{
    __shared__ unsigned here[256];
    unsigned at = (unsigned)__cvta_generic_to_shared(here + threadIdx.x);
    for (unsigned long long i = first(); i < count; i += step()) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at), "l"(words + i) : "memory");
        asm volatile("cp.async.wait_all;" ::: "memory");
        if (*(volatile unsigned *)(here + threadIdx.x) != (value ^ (unsigned)i))
            atomicAdd(bad, 1);
    }
}
#endif

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// 1024 words at a time go to shared memory by cp.async.bulk, and one barrier says when they are there.
__global__ void judge_bulk(const unsigned *words, unsigned long long count, unsigned value, unsigned *bad)
{
    enum { WORDS = 1024, BYTES = WORDS * 4 };
    __shared__ alignas(128) unsigned here[WORDS];
    __shared__ alignas(8) unsigned long long barrier;
    unsigned to = (unsigned)__cvta_generic_to_shared(here), at = (unsigned)__cvta_generic_to_shared(&barrier);
    unsigned phase = 0;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(at) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    for (unsigned long long from = blockIdx.x * (unsigned long long)WORDS; from + WORDS <= count;
         from += gridDim.x * (unsigned long long)WORDS) {
        if (threadIdx.x == 0) {
            asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(at), "r"(BYTES) : "memory");
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                         "l"(words + from), "r"(BYTES), "r"(at)
                         : "memory");
        }
        asm volatile("{\n .reg .pred done;\nwait:\n mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n @!done bra wait;\n}" ::"r"(at),
                     "r"(phase)
                     : "memory");
        phase ^= 1;
        for (unsigned i = threadIdx.x; i < WORDS; i += blockDim.x)
            if (*(volatile unsigned *)(here + i) != (value ^ (unsigned)(from + i)))
                atomicAdd(bad, 1);
        __syncthreads();
    }
}

// Lets the next kernel of the stream begin at once.
__global__ void put_programmatic(unsigned *words, unsigned long long count, unsigned value)
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    for (unsigned long long i = first(); i < count; i += step())
        words[i] = value ^ (unsigned)i;
}

// Launched before its predecessor in the stream has ended, it waits for that here.
__global__ void judge_programmatic(const unsigned *words, unsigned long long count, unsigned value, unsigned *bad)
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
    for (unsigned long long i = first(); i < count; i += step())
        if (*(const volatile unsigned *)(words + i) != (value ^ (unsigned)i))
            atomicAdd(bad, 1);
}
#endif
}
