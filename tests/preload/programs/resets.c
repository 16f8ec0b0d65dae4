/* On the simulator, natively and preloaded: contexts end in every way and order, with blocks live and freed, on two
   threads that take turns, and each call's result is printed. What is freed too late has the driver's own error; an
   address that both runs may use again for something else is replaced by one that nobody has.
   Usage: resets SEEDS STEPS */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda_proto.h"
#include "runtime.h"

enum { DEVICES = 2, CONTEXTS = 4, BLOCKS = 48, NOBODYS = 4096 };

struct block {
    CUdeviceptr address;
    size_t bytes;
    CUcontext context;
    unsigned life; /* of its context, which a primary one has several of */
    bool freed;
};

static struct {
    uint64_t random;
    CUcontext made[CONTEXTS], primary[DEVICES];
    unsigned lives[DEVICES]; /* how often each primary context has ended */
    struct block block[BLOCKS];
    unsigned blocks;
} world;

static unsigned draw(unsigned below)
{
    world.random ^= world.random << 13;
    world.random ^= world.random >> 7;
    world.random ^= world.random << 17;
    return (unsigned)(world.random >> 33) % below;
}

static void tell(const char *what, int which, int result)
{
    printf("%s %d: %d\n", what, which, result);
}

static int device_of(CUcontext context)
{
    for (int i = 0; i < DEVICES; i++) {
        if (context && world.primary[i] == context)
            return i;
    }
    return -1;
}

static unsigned life_of(CUcontext context)
{
    int device = device_of(context);
    return device < 0 ? 0 : world.lives[device];
}

/* Whether a primary context is there; one that has just ended takes its blocks with it. */
static void look(int device)
{
    unsigned flags;
    int active = 0;
    tell("state", device, cuDevicePrimaryCtxGetState(device, &flags, &active));
    tell("active", device, active);
    if (!active)
        world.lives[device]++;
}

static void note(CUdeviceptr address, size_t bytes)
{
    CUcontext context = NULL;
    (void)cuCtxGetCurrent(&context);
    world.block[world.blocks++ % BLOCKS] =
        (struct block){.address = address, .bytes = bytes, .context = context, .life = life_of(context)};
}

static bool is_live(const struct block *block)
{
    return block->address && !block->freed && block->life == life_of(block->context);
}

/* A block to free: any that there was, with NOBODYS address where its own lies in one that is live now. */
static int pick(CUdeviceptr *ret)
{
    int which = (int)draw(BLOCKS);
    const struct block *block = &world.block[which];
    *ret = block->address ? block->address : NOBODYS;
    for (unsigned i = 0; i < BLOCKS; i++) {
        const struct block *other = &world.block[i];
        if (other != block && is_live(other) && block->address >= other->address &&
            block->address < other->address + other->bytes)
            *ret = NOBODYS;
    }
    return which;
}

static void allocate(bool by_runtime)
{
    size_t bytes = 1 + draw(draw(2) ? 3000 : 6 << 20);
    CUdeviceptr address = 0;
    void *pointer = NULL;
    int result = by_runtime ? cudaMalloc(&pointer, bytes) : (int)cuMemAlloc_v2(&address, bytes);
    tell(by_runtime ? "cudaMalloc" : "cuMemAlloc", (int)bytes, result);
    if (result == 0)
        note(by_runtime ? (CUdeviceptr)(uintptr_t)pointer : address, bytes);
}

static void release(bool by_runtime)
{
    CUdeviceptr address;
    int which = pick(&address), result = by_runtime ? cudaFree((void *)(uintptr_t)address) : (int)cuMemFree_v2(address);
    tell(by_runtime ? "cudaFree" : "cuMemFree", which, result);
    world.block[which].freed |= result == 0;
}

static void ask(void)
{
    CUdeviceptr base = 0, address;
    CUcontext owner = NULL;
    size_t bytes = 0;
    int which = pick(&address);
    const struct block *block = &world.block[which];
    CUresult result = cuMemGetAddressRange_v2(&base, &bytes, address);
    tell("range", which, (int)result);
    if (result == CUDA_SUCCESS)
        tell("starts there", which, base == address);
    result = cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, address);
    tell("owner", which, (int)result);
    if (result == CUDA_SUCCESS)
        tell("is its context", which, owner == block->context);
    CUcontext current = NULL;
    (void)cuCtxGetCurrent(&current);
    if (!is_live(block) || current != block->context) /* a free waits for the work of the block's context alone */
        return;
    tell("set", which, (int)cuMemsetD8_v2(address, 1, block->bytes));
    if (block->bytes > 1)
        tell("middle", which, (int)cuMemFree_v2(address + draw((unsigned)block->bytes - 1) + 1));
}

static void primary(int device)
{
    CUcontext context = NULL;
    switch (draw(8)) {
    case 0:
        tell("reset", device, (int)cuDevicePrimaryCtxReset_v2(device));
        look(device);
        break;
    case 1:
    case 2:
        tell("release", device, (int)cuDevicePrimaryCtxRelease_v2(device));
        look(device);
        break;
    default:
        tell("retain", device, (int)cuDevicePrimaryCtxRetain(&context, device));
        if (context)
            tell("set current", device, (int)cuCtxSetCurrent(context));
    }
}

static void made(int which)
{
    CUcontext *context = &world.made[which], popped;
    switch (draw(10)) {
    case 0:
    case 1:
    case 2:
        if (!*context)
            tell("create", which, (int)cuCtxCreate_v4(context, NULL, 0, which % DEVICES));
        break;
    case 3:
        if (*context) {
            for (unsigned i = 0; i < BLOCKS; i++)
                world.block[i].freed |= world.block[i].context == *context;
            tell("destroy", which, (int)cuCtxDestroy_v2(*context));
            *context = NULL;
        }
        break;
    case 4:
    case 5:
    case 6:
        if (*context)
            tell("push", which, (int)cuCtxPushCurrent_v2(*context));
        break;
    default:
        tell("pop", which, (int)cuCtxPopCurrent_v2(&popped));
    }
}

/* The runtime says which device it resets. */
static void reset_by_runtime(void)
{
    int device = 0;
    tell("cudaGetDevice", 0, cudaGetDevice(&device));
    tell("cudaDeviceReset", device, cudaDeviceReset());
    look(device);
    tell("cudaGetLastError", device, cudaGetLastError());
}

static void step(void)
{
    switch (draw(16)) {
    case 0:
        if (draw(5) == 0)
            reset_by_runtime();
        break;
    case 1:
        tell("cudaSetDevice", 0, cudaSetDevice((int)draw(DEVICES)));
        break;
    case 2:
    case 3:
        primary((int)draw(DEVICES));
        break;
    case 4:
    case 5:
        made((int)draw(CONTEXTS));
        break;
    case 6:
        ask();
        break;
    case 7:
        tell("synchronize", 0, (int)cuCtxSynchronize());
        break;
    case 8:
    case 9:
    case 10:
    case 11:
        allocate(draw(2));
        break;
    default:
        release(draw(2));
    }
}

/* The second thread does what it is told to, and has a stack of contexts of its own. */
static pthread_barrier_t barrier;
static bool over;

static void *second(void *unused)
{
    (void)unused;
    for (;;) {
        pthread_barrier_wait(&barrier);
        if (over)
            return NULL;
        step();
        pthread_barrier_wait(&barrier);
    }
}

static void end_all(void)
{
    size_t available = 0, total = 1;
    CUcontext context;
    for (int i = 0; i < CONTEXTS; i++) {
        if (world.made[i])
            tell("destroy", i, (int)cuCtxDestroy_v2(world.made[i]));
        world.made[i] = NULL;
    }
    for (int i = 0; i < DEVICES; i++) {
        tell("reset", i, (int)cuDevicePrimaryCtxReset_v2(i));
        while (cuDevicePrimaryCtxRelease_v2(i) == CUDA_SUCCESS)
            printf("released\n");
        world.lives[i]++;
        (void)cuDevicePrimaryCtxRetain(&context, i);
        (void)cuCtxSetCurrent(context);
        tell("info", i, (int)cuMemGetInfo_v2(&available, &total));
        tell("all there", i, available == total);
        (void)cuDevicePrimaryCtxRelease_v2(i);
        (void)cuCtxSetCurrent(NULL);
    }
}

int main(int count, char **argument)
{
    int seeds = count > 1 ? atoi(argument[1]) : 1, steps = count > 2 ? atoi(argument[2]) : 100;
    tell("init", 0, (int)cuInit(0));
    for (int i = 0; i < DEVICES; i++) {
        tell("retain", i, (int)cuDevicePrimaryCtxRetain(&world.primary[i], i));
        tell("release", i, (int)cuDevicePrimaryCtxRelease_v2(i));
    }
    for (int seed = 1; seed <= seeds; seed++) {
        pthread_t thread;
        printf("seed %d\n", seed);
        world.random = (uint64_t)seed * UINT64_C(0x9e3779b97f4a7c15);
        world.blocks = 0;
        over = false;
        for (int i = 0; i < BLOCKS; i++)
            world.block[i] = (struct block){0};
        pthread_barrier_init(&barrier, NULL, 2);
        pthread_create(&thread, NULL, second, NULL);
        for (int i = 0; i < steps; i++) {
            if (draw(3)) {
                step();
                continue;
            }
            pthread_barrier_wait(&barrier);
            pthread_barrier_wait(&barrier);
        }
        over = true;
        pthread_barrier_wait(&barrier);
        pthread_join(thread, NULL);
        end_all();
    }
    return 0;
}
