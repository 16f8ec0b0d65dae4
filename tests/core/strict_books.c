/* See strict_books.h, and what a test asks of the books (strict_driver.h). */
#include "strict_books.h"

#include <stdlib.h>
#include <string.h>

#include "lock.h"

_Thread_local int strict_current;
struct strict_books strict = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void strict_enter(void)
{
    SG_ASSERT_NONE_HELD_FROM(SG_RANK_DEVICE);
    pthread_mutex_lock(&strict.mutex);
}

CUresult strict_leave(CUresult result)
{
    pthread_mutex_unlock(&strict.mutex);
    return result;
}

uint32_t strict_first_mapping(CUdeviceptr address)
{
    uint32_t low = 0, high = strict.mappings;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (strict.mapping[middle].address + strict.mapping[middle].bytes <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low; /* first that ends after `address` */
}

struct range *strict_range_around(CUdeviceptr address, uint64_t bytes)
{
    for (uint32_t i = 0; i < strict.ranges; i++)
        if (strict.range[i].live && address >= strict.range[i].address &&
            address + bytes <= strict.range[i].address + strict.range[i].bytes)
            return &strict.range[i];
    return NULL;
}

struct handle *strict_handle_of(CUmemGenericAllocationHandle handle)
{
    return handle > 0 && handle <= strict.handles ? &strict.handle[handle - 1] : NULL;
}

void strict_reset(int devices, uint64_t total, uint64_t granule)
{
    strict_enter();
    strict.devices = devices;
    strict.total = total;
    strict.host_total = 0;
    strict.granularity = granule;
    strict.next_address = UINT64_C(0x7f0000000000);
    strict.handles = strict.mappings = strict.ranges = strict.events = 0;
    strict.recordings = strict.complete = 0;
    memset(strict.used, 0, sizeof strict.used);
    strict.calls = strict.fail_at = 0;
    strict.failed = NULL;
    strict.broken = 0;
    strict_leave(CUDA_SUCCESS);
}

void strict_host(uint64_t bytes)
{
    strict_enter();
    strict.host_total = bytes;
    strict_leave(CUDA_SUCCESS);
}

void strict_use(int device)
{
    strict_current = device;
}

void strict_fail_at(uint64_t number, bool for_ever, CUresult result)
{
    strict_enter();
    strict.calls = 0;
    strict.fail_at = number;
    strict.fail_for_ever = for_ever;
    strict.fail_with = result;
    strict.failed = NULL;
    strict_leave(CUDA_SUCCESS);
}

bool strict_failed(const char **ret_call)
{
    strict_enter();
    if (ret_call)
        *ret_call = strict.failed;
    bool failed = strict.failed != NULL;
    strict_leave(CUDA_SUCCESS);
    return failed;
}

unsigned strict_broken(const char **ret)
{
    strict_enter();
    unsigned broken = strict.broken;
    if (ret)
        *ret = strict.first_broken;
    strict_leave(CUDA_SUCCESS);
    return broken;
}

uint64_t strict_used(int device)
{
    strict_enter();
    uint64_t used = strict.used[device];
    strict_leave(CUDA_SUCCESS);
    return used;
}

uint64_t strict_stuck(int device)
{
    uint64_t bytes = 0;
    strict_enter();
    for (uint32_t i = 0; i < strict.mappings; i++)
        if (strict.mapping[i].stuck && strict_handle_of(strict.mapping[i].handle)->device == device)
            bytes += strict.mapping[i].bytes;
    for (uint32_t i = 0; i < strict.handles; i++)
        if (strict.handle[i].held && strict.handle[i].left && !strict.handle[i].mappings && strict.handle[i].device == device)
            bytes += strict.handle[i].bytes;
    strict_leave(CUDA_SUCCESS);
    return bytes;
}

bool strict_backing(CUdeviceptr address, size_t bytes, int device, uint64_t *ret)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    strict_enter();
    CUdeviceptr next = address;
    const struct range *range = strict_range_around(address, bytes);
    if (range && range->plain) {
        bool right = strict_handle_of(range->plain)->device == device;
        hash ^= range->plain;
        next = right ? address + bytes : address;
    }
    for (uint32_t at = strict_first_mapping(address); next < address + bytes; at++) {
        if (at >= strict.mappings || strict.mapping[at].address > next || !(strict.mapping[at].access >> device & 1)) {
            strict_leave(CUDA_SUCCESS);
            return false;
        }
        hash = (hash ^ strict.mapping[at].handle) * UINT64_C(0x100000001b3);
        next = strict.mapping[at].address + strict.mapping[at].bytes;
    }
    strict_leave(CUDA_SUCCESS);
    *ret = hash;
    return true;
}

/* The part of a mapping that lies in a range, as offsets into its memory. */
static void part_in(const struct mapping *mapping, CUdeviceptr address, size_t bytes, uint64_t *ret_begin,
    uint64_t *ret_end)
{
    CUdeviceptr begin = address > mapping->address ? address : mapping->address,
                end = mapping->address + mapping->bytes;
    *ret_begin = begin - mapping->address;
    *ret_end = (address + bytes < end ? address + bytes : end) - mapping->address;
}

bool strict_share(CUdeviceptr one, size_t one_bytes, CUdeviceptr other, size_t other_bytes)
{
    bool share = one < other + other_bytes && other < one + one_bytes;
    strict_enter();
    for (uint32_t i = strict_first_mapping(one); !share && i < strict.mappings && strict.mapping[i].address < one + one_bytes;
         i++) {
        const struct mapping *a = &strict.mapping[i];
        if (strict_handle_of(a->handle)->mappings < 2)
            continue; /* at one address: that was looked at */
        for (uint32_t k = strict_first_mapping(other);
             !share && k < strict.mappings && strict.mapping[k].address < other + other_bytes; k++) {
            uint64_t a_begin, a_end, b_begin, b_end;
            part_in(a, one, one_bytes, &a_begin, &a_end);
            part_in(&strict.mapping[k], other, other_bytes, &b_begin, &b_end);
            share = strict.mapping[k].handle == a->handle && a_begin < b_end && b_begin < a_end;
        }
    }
    strict_leave(CUDA_SUCCESS);
    return share;
}

CUmemGenericAllocationHandle strict_mapped(CUdeviceptr address, size_t bytes)
{
    strict_enter();
    uint32_t at = strict_first_mapping(address);
    bool exact = at < strict.mappings && strict.mapping[at].address == address && strict.mapping[at].bytes == bytes;
    CUmemGenericAllocationHandle handle = exact ? strict.mapping[at].handle : 0;
    strict_leave(CUDA_SUCCESS);
    return handle;
}

void strict_complete(uint64_t count)
{
    strict_enter();
    strict.complete = strict.complete + count < strict.recordings ? strict.complete + count : strict.recordings;
    strict_leave(CUDA_SUCCESS);
}

unsigned strict_leaks(void)
{
    unsigned leaks = 0;
    strict_enter();
    for (uint32_t i = 0; i < strict.handles; i++)
        leaks += strict.handle[i].held && !strict.handle[i].left;
    for (uint32_t i = 0; i < strict.mappings; i++)
        leaks += !strict.mapping[i].stuck;
    for (uint32_t i = 0; i < strict.ranges; i++)
        leaks += strict.range[i].live && !strict.range[i].left;
    for (uint32_t i = 0; i < strict.events; i++)
        leaks += strict.event[i].live && !strict.event[i].left;
    strict_leave(CUDA_SUCCESS);
    return leaks;
}
