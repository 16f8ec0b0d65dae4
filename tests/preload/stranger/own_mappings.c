/* A program that maps memory itself, as the samples with growing vectors do, beside plain allocations: its addresses,
   handles and access rights are its own, and all of the device is there for it once plain memory is freed. */
#include "stranger_driver.h"

enum { PIECES_MOST = 4096 };

static const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
static const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

/* A vector that grows in place. */
static void grow(size_t step)
{
    CUdeviceptr base, beside;
    CUmemGenericAllocationHandle piece[8];
    unsigned char byte = 0;
    unsigned wrong = 0;
    NEED(cuMemAddressReserve(&base, 8 * step, 0, 0, 0));
    for (size_t i = 0; i < 8; i++) {
        NEED(cuMemCreate(&piece[i], step, &prop, 0));
        NEED(cuMemMap(base + i * step, step, 0, piece[i], 0));
        NEED(cuMemSetAccess(base + i * step, step, &access, 1));
        NEED(cuMemsetD8Async(base + i * step, (unsigned char)i, step, NULL));
        NEED(cuMemAlloc(&beside, step / 3));
        NEED(cuMemsetD8Async(beside, 0xee, step / 3, NULL));
        NEED(cuMemFree(beside));
        for (size_t j = 0; j <= i; j++) {
            NEED(cuMemcpyDtoH(&byte, base + j * step + step / 2, 1));
            wrong += byte != j;
        }
    }
    printf("%u wrong\n", wrong);
    TELL(cuMemFree(base)); /* not of cuMemAlloc */
    TELL(cuMemUnmap(base, 8 * step));
    TELL(cuMemAddressFree(base, 8 * step));
    for (int i = 0; i < 8; i++)
        NEED(cuMemRelease(piece[i]));
}

/* All that is there, twice. */
static void take_all(size_t step)
{
    CUmemGenericAllocationHandle piece[PIECES_MOST];
    size_t available, total, got = 0;
    NEED(cuMemGetInfo(&available, &total));
    while (got < PIECES_MOST && cuMemCreate(&piece[got], step, &prop, 0) == CUDA_SUCCESS)
        got++;
    size_t fit = available / step < PIECES_MOST ? available / step : PIECES_MOST;
    FACT(got <= fit && got + (size_t)times(0, 4) >= fit); /* handles take something of a real device too */
    while (got > 0)
        NEED(cuMemRelease(piece[--got]));
}

int main(void)
{
    CUcontext context;
    CUdeviceptr plain[16];
    size_t step = 0, before, available, total;
    NEED(cuInit(0));
    NEED(cuDevicePrimaryCtxRetain(&context, 0));
    NEED(cuCtxSetCurrent(context));
    NEED(cuMemGetInfo(&before, &total));
    NEED(cuMemGetAllocationGranularity(&step, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    grow(step);
    take_all(step);
    for (int i = 0; i < 16; i++) {
        NEED(cuMemAlloc(&plain[i], (size_t)(i + 1) << 19));
        NEED(cuMemsetD8(plain[i], (unsigned char)i, (size_t)(i + 1) << 19));
    }
    grow(2 * step);
    for (int i = 0; i < 16; i++) {
        unsigned char byte = 0;
        NEED(cuMemcpyDtoH(&byte, plain[i] + 1000, 1));
        FACT(byte == i);
        TELL(cuMemFree(plain[i]));
    }
    take_all(step);
    NEED(cuMemGetInfo(&available, &total));
    FACT(within_a_page(available, before));
    TELL(cuDevicePrimaryCtxRelease(0));
    return 0;
}
