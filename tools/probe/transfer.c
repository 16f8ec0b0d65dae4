/* Copies between the host and devices, managed memory, and what one device may do with the memory of another. Calls of the
   driver alone are needed, and at most 64 MiB of a device.

   For example, 16 MiB of pinned memory are copied to the device four times over in 5 ms. The line has 67,108,864 bytes and 5,000,000 ns,
   which is 13.4 GB/s. Then they are copied on the device, and back, and each word is compared. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probe.h"

enum { COPIES = 4, OTHERS_MOST = 3 };
#define TRANSFER_BYTES (16 * MIB)
#define PIECE_BYTES MIB /* that bytes arrive is seen by less than how fast they do */

/* Memory of the host and two blocks of the device. */
struct transfer {
    uint32_t *host;
    bool pinned;
    CUdeviceptr from, to;
    size_t bytes;
};

/* Word i of a value: neighbours differ in many bits, so that a copy that is off by a word shows. */
static uint32_t transfer_word(uint32_t value, size_t i)
{
    return value ^ (uint32_t)i * 2654435761u;
}

static size_t transfer_wrong(const uint32_t *words, size_t bytes, uint32_t value)
{
    size_t wrong = 0;
    for (size_t i = 0; i < bytes / 4; i++)
        wrong += words[i] != transfer_word(value, i);
    return wrong;
}

static void transfer_fill(uint32_t *words, size_t bytes, uint32_t value)
{
    for (size_t i = 0; i < bytes / 4; i++)
        words[i] = transfer_word(value, i);
}

static CUresult transfer_copy(const struct transfer *transfer, int way, size_t bytes)
{
    switch (way) {
    case 0:
        return ASK(cuMemcpyHtoDAsync_v2, transfer->from, transfer->host, bytes, probe.load);
    case 1:
        return ASK(cuMemcpyDtoDAsync_v2, transfer->to, transfer->from, bytes, probe.load);
    default:
        return ASK(cuMemcpyDtoHAsync_v2, transfer->host, transfer->to, bytes, probe.load);
    }
}

/* A piece to the device, on it, and back: how many of its words are wrong. */
static bool transfer_check(const struct transfer *transfer, uint32_t value, size_t *ret_wrong)
{
    transfer_fill(transfer->host, PIECE_BYTES, value);
    for (int way = 0; way < 3; way++) {
        NEED(transfer_copy(transfer, way, PIECE_BYTES));
        NEED(probe.cu.cuStreamSynchronize(probe.load));
        if (way == 0) /* the way back is to bring the words, not to leave them where they are */
            memset(transfer->host, 0, PIECE_BYTES);
    }
    *ret_wrong = transfer_wrong(transfer->host, PIECE_BYTES, value);
    return true;
}

/* The shortest of some rounds: what else the machine does makes a round longer, never shorter. */
static CUresult transfer_time(const struct transfer *transfer, int way, uint64_t *ret_ns)
{
    uint64_t best = UINT64_MAX;
    CUresult result = CUDA_SUCCESS;
    for (int round = 0; round < probe.rounds + 1 && result == CUDA_SUCCESS; round++) {
        uint64_t began = probe_real_ns();
        for (int i = 0; i < COPIES && result == CUDA_SUCCESS; i++)
            result = transfer_copy(transfer, way, transfer->bytes);
        if (result == CUDA_SUCCESS)
            result = ASK(cuStreamSynchronize, probe.load);
        uint64_t ns = probe_real_ns() - began;
        best = ns < best ? ns : best;
    }
    *ret_ns = best ? best : 1;
    return result;
}

/* Says what a way of copying does in a second. */
static void transfer_say(const char *key, const char *way, size_t bytes, uint64_t ns, const char *more, long number)
{
    probe_say("'%s': '%s', 'bytes': %zu, 'ns': %llu, 'bytes_per_s': %llu, '%s': %ld", key, way, bytes,
        (unsigned long long)ns, (unsigned long long)((double)bytes * 1e9 / (double)ns), more, number);
}

bool selftest_transfer(void)
{
    static const char *const ways[] = {"host to device", "device to device", "device to host"};
    enum { VALUE = 0x5eed };
    struct transfer transfer = {.bytes = TRANSFER_BYTES};
    uint64_t ns[3];
    size_t wrong = 0;
    HAVE(cuMemcpyHtoDAsync_v2);
    CUresult pinned = probe.cu.cuMemHostAlloc ? probe.cu.cuMemHostAlloc((void **)&transfer.host, transfer.bytes, 0)
                                              : CUDA_ERROR_NOT_FOUND;
    transfer.pinned = pinned == CUDA_SUCCESS;
    if (!transfer.pinned)
        transfer.host = malloc(transfer.bytes);
    if (!transfer.host)
        return probe_refused("memory of the host", CUDA_ERROR_OUT_OF_MEMORY);
    probe_say("'pinned_code': %d", (int)pinned);
    NEED(probe.cu.cuMemAlloc_v2(&transfer.from, transfer.bytes));
    NEED(probe.cu.cuMemAlloc_v2(&transfer.to, transfer.bytes));
    memset(transfer.host, 0, transfer.bytes);
    for (int way = 0; way < 3; way++)
        NEED(transfer_time(&transfer, way, &ns[way]));
    for (int way = 0; way < 3; way++)
        transfer_say("way", ways[way], COPIES * transfer.bytes, ns[way], "pinned", transfer.pinned);
    if (!transfer_check(&transfer, VALUE, &wrong))
        return false;
    probe_say("'copied': %zu, 'wrong': %zu", PIECE_BYTES / 4, wrong);
    NEED(probe.cu.cuMemFree_v2(transfer.from));
    NEED(probe.cu.cuMemFree_v2(transfer.to));
    if (transfer.pinned)
        NEED(probe.cu.cuMemFreeHost(transfer.host));
    else
        free(transfer.host);
    return true;
}

/* Bytes that were free before, and are not now; 0 where others have given memory back meanwhile. */
static size_t managed_taken(size_t before)
{
    size_t now = probe_free_bytes();
    return now < before ? before - now : 0;
}

/* One round of managed memory: the device writes and the host reads, then the other way round. */
static bool managed_round(size_t bytes, size_t *ret_taken, size_t *ret_kept, size_t *ret_wrong)
{
    enum { VALUE = 0x3ade };
    CUdeviceptr managed;
    uint32_t *back = malloc(bytes);
    size_t before = probe_free_bytes();
    if (!back)
        return probe_refused("memory of the host", CUDA_ERROR_OUT_OF_MEMORY);
    NEED(probe.cu.cuMemAllocManaged(&managed, bytes, CU_MEM_ATTACH_GLOBAL));
    uint32_t *words = (void *)(uintptr_t)managed; /* the host has the same address */
    for (size_t at = 0; at < bytes; at += PIECE_BYTES)
        NEED(probe.cu.cuMemsetD32Async(managed + at, VALUE, PIECE_BYTES / 4, probe.load));
    NEED(probe.cu.cuStreamSynchronize(probe.load));
    *ret_taken = managed_taken(before);
    *ret_wrong = 0;
    for (size_t i = 0; i < bytes / 4; i++)
        *ret_wrong += words[i] != VALUE;
    transfer_fill(words, bytes, VALUE);
    for (size_t at = 0; at < bytes; at += PIECE_BYTES)
        NEED(probe.cu.cuMemcpyDtoH_v2((char *)back + at, managed + at, PIECE_BYTES));
    *ret_wrong += transfer_wrong(back, bytes, VALUE);
    NEED(probe.cu.cuMemFree_v2(managed));
    *ret_kept = managed_taken(before);
    free(back);
    return true;
}

/* On a card that others use, what is free changes by itself: the round that shows most is believed. */
bool selftest_managed(void)
{
    enum { ROUNDS = 3 };
    size_t bytes = TRANSFER_BYTES, taken = 0, kept = SIZE_MAX, wrong = 0;
    int supported = 0;
    HAVE(cuMemAllocManaged);
    NEED(probe.cu.cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, probe.device));
    if (!supported)
        return probe_skip("the device has no managed memory");
    for (int i = 0; i < ROUNDS; i++) {
        size_t took = 0, left = 0, bad = 0;
        if (!managed_round(bytes, &took, &left, &bad))
            return false;
        taken = took > taken ? took : taken;
        kept = left < kept ? left : kept;
        wrong += bad;
    }
    probe_say("'managed_bytes': %zu, 'taken': %zu, 'kept': %zu, 'wrong': %zu", bytes, taken, kept, wrong);
    return true;
}

/* A device beside this one, with a block and a page of its own. */
struct peer {
    int ordinal;
    CUdevice device;
    CUcontext context;
    CUdeviceptr block;
};

static bool peer_open(int ordinal, struct peer *ret)
{
    *ret = (struct peer){.ordinal = ordinal};
    NEED(probe.cu.cuDeviceGet(&ret->device, ordinal));
    NEED(probe.cu.cuDevicePrimaryCtxRetain(&ret->context, ret->device));
    NEED(probe.cu.cuCtxSetCurrent(ret->context));
    NEED(probe.cu.cuMemAlloc_v2(&ret->block, TRANSFER_BYTES));
    NEED(probe.cu.cuMemsetD8_v2(ret->block, 0, PIECE_BYTES));
    NEED(probe.cu.cuCtxSynchronize()); /* the host need not wait for a set */
    NEED(probe.cu.cuCtxSetCurrent(probe.context));
    return true;
}

static bool peer_close(struct peer *peer)
{
    NEED(probe.cu.cuCtxSetCurrent(peer->context));
    NEED(probe.cu.cuMemFree_v2(peer->block));
    NEED(probe.cu.cuCtxSetCurrent(probe.context));
    NEED(probe.cu.cuDevicePrimaryCtxRelease_v2(peer->device));
    return true;
}

/* How many words of the peer's memory at `at` differ, read by the peer itself. */
static bool peer_read(const struct peer *peer, CUdeviceptr at, uint32_t *words, uint32_t value, size_t *ret_wrong)
{
    NEED(probe.cu.cuCtxSetCurrent(peer->context));
    NEED(probe.cu.cuMemcpyDtoH_v2(words, at, PIECE_BYTES));
    NEED(probe.cu.cuCtxSetCurrent(probe.context));
    *ret_wrong = transfer_wrong(words, PIECE_BYTES, value);
    return true;
}

/* Puts words of a value into a piece of this device's memory. */
static CUresult peer_fill(CUdeviceptr own, uint32_t *words, uint32_t value)
{
    transfer_fill(words, PIECE_BYTES, value);
    CUresult result = ASK(cuMemcpyHtoDAsync_v2, own, words, PIECE_BYTES, probe.load);
    return result == CUDA_SUCCESS ? ASK(cuStreamSynchronize, probe.load) : result;
}

/* Copies from this device to the peer, as any program may: how fast, and whether the bytes arrive. */
static bool peer_copy(const struct peer *peer, CUdeviceptr own, uint32_t *words)
{
    enum { VALUE = 0xc0b1 };
    char name[16];
    uint64_t best = UINT64_MAX;
    size_t wrong;
    NEED(peer_fill(own, words, VALUE));
    for (int round = 0; round < probe.rounds + 1; round++) {
        uint64_t began = probe_real_ns();
        for (int i = 0; i < COPIES; i++) {
            CUresult copied = probe.cu.cuMemcpyPeer(peer->block, peer->context, own, probe.context, TRANSFER_BYTES);
            if (copied != CUDA_SUCCESS) {
                probe_say("'copied_to': %d, 'code': %d", peer->ordinal, (int)copied);
                return true;
            }
        }
        NEED(probe.cu.cuCtxSynchronize());
        uint64_t ns = probe_real_ns() - began;
        best = ns < best ? ns : best;
    }
    NEED(probe.cu.cuMemcpyPeer(peer->block, peer->context, own, probe.context, PIECE_BYTES));
    NEED(probe.cu.cuCtxSynchronize());
    if (!peer_read(peer, peer->block, words, VALUE, &wrong))
        return false;
    snprintf(name, sizeof name, "%d", peer->ordinal);
    transfer_say("to_device", name, COPIES * TRANSFER_BYTES, best ? best : 1, "wrong", (long)wrong);
    return true;
}

/* Work of this device on the peer's memory at `at`, whose words the peer then reads. */
static bool peer_write(const struct peer *peer, const char *how, CUdeviceptr at, CUdeviceptr own, uint32_t *words,
    uint32_t value)
{
    size_t wrong;
    NEED(peer_fill(own, words, value));
    NEED(probe.cu.cuMemcpyDtoDAsync_v2(at, own, PIECE_BYTES, probe.load));
    NEED(probe.cu.cuStreamSynchronize(probe.load));
    if (!peer_read(peer, at, words, value, &wrong))
        return false;
    probe_say("'written_to': %d, 'how': '%s', 'wrong': %zu", peer->ordinal, how, wrong);
    return true;
}

/* Pages of the peer that both devices have access to, as the allocator makes them where peer access is on. */
static bool peer_pages(const struct peer *peer, CUdeviceptr own, uint32_t *words)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = peer->device}};
    CUmemAccessDesc both[2];
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    size_t granule = 0;
    if (!probe.cu.cuMemCreate)
        return true;
    for (int i = 0; i < 2; i++)
        both[i] =
            (CUmemAccessDesc){.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = i ? probe.device : peer->device},
                .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    if (probe.cu.cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS ||
        !granule || TRANSFER_BYTES % granule)
        return true; /* the peer has no pages, or larger ones */
    NEED(probe.cu.cuMemCreate(&handle, TRANSFER_BYTES, &prop, 0));
    NEED(probe.cu.cuMemAddressReserve(&at, TRANSFER_BYTES, 0, 0, 0));
    NEED(probe.cu.cuMemMap(at, TRANSFER_BYTES, 0, handle, 0));
    CUresult given = probe.cu.cuMemSetAccess(at, TRANSFER_BYTES, both, 2);
    probe_say("'pages_of': %d, 'code': %d", peer->ordinal, (int)given);
    if (given == CUDA_SUCCESS && !peer_write(peer, "pages", at, own, words, 0x9a9e5))
        return false;
    NEED(probe.cu.cuMemUnmap(at, TRANSFER_BYTES));
    NEED(probe.cu.cuMemAddressFree(at, TRANSFER_BYTES));
    NEED(probe.cu.cuMemRelease(handle));
    return true;
}

static bool peer_ask(int ordinal, CUdeviceptr own, uint32_t *words)
{
    struct peer peer;
    int can = 0;
    if (!peer_open(ordinal, &peer) || !peer_copy(&peer, own, words))
        return false;
    NEED(probe.cu.cuDeviceCanAccessPeer(&can, probe.device, peer.device));
    CUresult enabled = can && probe.cu.cuCtxEnablePeerAccess ? probe.cu.cuCtxEnablePeerAccess(peer.context, 0)
                                                             : CUDA_SUCCESS;
    probe_say("'peer': %d, 'can': %d, 'enable': %d", ordinal, can, (int)enabled);
    if (can && enabled == CUDA_SUCCESS &&
        (!peer_write(&peer, "peer access", peer.block, own, words, 0xacce5) || !peer_pages(&peer, own, words)))
        return false;
    return peer_close(&peer);
}

bool selftest_peers(void)
{
    int devices = 0, asked = 0;
    CUdeviceptr own;
    HAVE(cuMemcpyPeer);
    NEED(probe.cu.cuDeviceGetCount(&devices));
    if (devices < 2)
        return probe_skip("there is one device");
    uint32_t *words = malloc(PIECE_BYTES);
    if (!words)
        return probe_refused("memory of the host", CUDA_ERROR_OUT_OF_MEMORY);
    NEED(probe.cu.cuMemAlloc_v2(&own, TRANSFER_BYTES));
    for (int i = 0; i < devices && asked < OTHERS_MOST; i++) {
        if (i == probe.ordinal)
            continue;
        asked++;
        if (!peer_ask(i, own, words))
            return false;
    }
    NEED(probe.cu.cuMemFree_v2(own));
    free(words);
    return true;
}
