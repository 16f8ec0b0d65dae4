#include "books_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Addresses: a range of its own for each reservation, RANGE_SHIFT bits apart, so that its number can be read from
   them. */
enum { RANGE_SHIFT = 42, RANGES = 1 << 12, HANDLES = 1 << 19, MEMORIES = FUZZ_DEVICES + 1 }; /* the last: the host's */
static const CUdeviceptr FIRST_ADDRESS = UINT64_C(1) << 46;
static const uint64_t ENTRIES = UINT64_C(1) << 27;

struct entry { /* a granule of addresses */
    uint32_t handle; /* by all programs' count, so that what one has left is nothing to the next */
    uint32_t part;   /* granule of the handle */
    uint8_t access;  /* bit a device */
    bool first;      /* of its mapping */
};

struct range {
    CUdeviceptr base;
    uint64_t bytes;
    struct entry *entry;
    bool live, plain;
    int8_t context; /* that was current */
};

struct handle {
    uint64_t bytes, number; /* of its first byte */
    uint32_t mappings;      /* granules that are mapped */
    uint8_t device;
    bool held, left;        /* not released; a release was made to fail */
};

static struct {
    uint8_t devices;
    uint64_t total, granularity, next_number;
    struct range range[RANGES];
    uint32_t ranges;
    struct handle handle[HANDLES];
    uint32_t handles, first_handle, held_handles, live_ranges; /* held_handles: and not left */
    uint64_t used[MEMORIES], outside[MEMORIES], held[MEMORIES], mapped[MEMORIES], plain[MEMORIES],
        unmapped[MEMORIES]; /* bytes of handles that are held and mapped nowhere */
    struct entry *entries;
    uint64_t next_entry;
    struct {
        bool armed, for_ever;
        uint64_t after;
    } fault[BOOKS_CALL_COUNT];
    bool any_fault;
    uint64_t failed, left;
    char broken[300];
} the;

void (*books_on_unmap)(CUdeviceptr address, uint64_t bytes);
void (*books_on_create)(int device, uint64_t bytes);

static const char *const call_names[] = {
#define CALL(name) #name,
    BOOKS_CALLS(CALL)
#undef CALL
};

const char *books_call_name(enum books_call call)
{
    return call_names[call];
}

void books_breaks(const char *what)
{
    if (!the.broken[0])
        snprintf(the.broken, sizeof the.broken, "%s", what);
}

CUresult books_refuses(const char *what)
{
    books_breaks(what);
    return CUDA_ERROR_INVALID_VALUE;
}

const char *books_broken(void)
{
    return the.broken[0] ? the.broken : NULL;
}

/* Whether this call is made to fail. */
bool books_fails(enum books_call call)
{
    if (!the.any_fault || !the.fault[call].armed)
        return false;
    if (the.fault[call].after > 0) {
        the.fault[call].after--;
        return false;
    }
    the.fault[call].armed = the.fault[call].for_ever;
    the.failed++;
    the.left += call == BOOKS_release || call == BOOKS_unmap || call == BOOKS_mem_free || call == BOOKS_address_free ||
                call == BOOKS_event_destroy;
    return true;
}

void books_fail(enum books_call call, uint64_t after, bool for_ever)
{
    the.any_fault = true;
    the.fault[call].armed = true;
    the.fault[call].after = after;
    the.fault[call].for_ever = for_ever;
}

void books_heal(void)
{
    memset(the.fault, 0, sizeof the.fault);
    the.any_fault = false;
}

uint64_t books_failed(void)
{
    return the.failed;
}

uint64_t books_left(void)
{
    return the.left;
}

void books_outside(int device, uint64_t bytes)
{
    uint64_t own = the.used[device] - the.outside[device], most = the.total - own;
    the.used[device] = own;
    the.outside[device] = bytes < most ? bytes : most;
    the.used[device] += the.outside[device];
}

static void use_up(int device, uint64_t bytes)
{
    the.used[device] += bytes;
    if (device != BOOKS_HOST && the.used[device] > the.total)
        books_breaks("more than the card has is in use");
}

static struct range *range_at(CUdeviceptr address, uint64_t bytes)
{
    uint64_t i = (address - FIRST_ADDRESS) >> RANGE_SHIFT;
    if (address < FIRST_ADDRESS || i >= the.ranges || !the.range[i].live)
        return NULL;
    struct range *range = &the.range[i];
    bool inside = address >= range->base && address - range->base <= range->bytes &&
                  bytes <= range->bytes - (address - range->base);
    return inside ? range : NULL;
}

static struct handle *handle_of(uint64_t id)
{
    return id > 0 && id <= the.handles ? &the.handle[id - 1] : NULL;
}

/* The handle of an entry, 0 if nothing is mapped there. */
static uint64_t handle_in(const struct entry *entry)
{
    return entry->handle > the.first_handle ? entry->handle - the.first_handle : 0;
}

static bool is_granular(uint64_t value)
{
    return value % the.granularity == 0;
}

/* A table of the books' own is full: a driver that refuses for that counts as one that was made to fail. */
static CUresult books_full(void)
{
    the.failed++;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult add_range(uint64_t bytes, bool plain, CUdeviceptr *ret)
{
    uint64_t granules = (bytes + the.granularity - 1) / the.granularity;
    if (the.ranges == RANGES || granules > ENTRIES - the.next_entry || bytes >> RANGE_SHIFT)
        return books_full();
    struct range *range = &the.range[the.ranges];
    *range = (struct range){.base = FIRST_ADDRESS + ((CUdeviceptr)the.ranges << RANGE_SHIFT), .bytes = bytes,
        .entry = the.entries + the.next_entry, .live = true, .plain = plain,
        .context = (int8_t)books_current()};
    the.next_entry += granules;
    the.ranges++;
    the.live_ranges++;
    *ret = range->base;
    return CUDA_SUCCESS;
}

static CUresult address_reserve(CUdeviceptr *ret, size_t bytes, size_t alignment, CUdeviceptr hint,
    unsigned long long flags)
{
    if (!bytes || !is_granular(bytes) || hint || flags || (alignment & (alignment - 1)))
        return books_refuses("a reservation that no driver grants");
    if (books_fails(BOOKS_address_reserve))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return add_range(bytes, false, ret);
}

static CUresult address_free(CUdeviceptr address, size_t bytes)
{
    struct range *range = range_at(address, bytes);
    if (!range || range->plain || range->base != address || range->bytes != bytes)
        return books_refuses("addresses are given back that were not reserved so");
    for (uint64_t i = 0; i < bytes / the.granularity; i++)
        if (handle_in(&range->entry[i])) /* an unmap may have been made to fail */
            return the.left ? CUDA_ERROR_INVALID_VALUE
                            : books_refuses("addresses are given back at which memory is mapped");
    if (books_fails(BOOKS_address_free))
        return CUDA_ERROR_INVALID_VALUE;
    range->live = false;
    the.live_ranges--;
    return CUDA_SUCCESS;
}

static CUresult granularity(size_t *ret, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option)
{
    (void)prop;
    (void)option;
    if (books_fails(BOOKS_granularity))
        return CUDA_ERROR_NOT_SUPPORTED;
    *ret = the.granularity;
    return CUDA_SUCCESS;
}

static CUresult create(CUmemGenericAllocationHandle *ret, size_t bytes, const CUmemAllocationProp *prop,
    unsigned long long flags)
{
    bool on_host = prop->location.type == CU_MEM_LOCATION_TYPE_HOST;
    int device = on_host ? BOOKS_HOST : prop->location.id;
    if (!bytes || !is_granular(bytes) || flags || (!on_host && (device < 0 || device >= the.devices)))
        return books_refuses("a page is created as no driver does");
    if (books_fails(BOOKS_create) || (!on_host && bytes > the.total - the.used[device]))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (the.handles == HANDLES)
        return books_full();
    the.handle[the.handles++] =
        (struct handle){.bytes = bytes, .number = the.next_number, .device = (uint8_t)device, .held = true};
    the.next_number += bytes;
    use_up(device, bytes);
    the.held[device] += bytes;
    the.unmapped[device] += bytes;
    the.held_handles++;
    *ret = the.handles;
    books_on_create(device, bytes);
    return CUDA_SUCCESS;
}

static void drop_if_unused(struct handle *handle)
{
    if (!handle->held && handle->mappings == 0)
        the.used[handle->device] -= handle->bytes;
}

static CUresult release(CUmemGenericAllocationHandle id)
{
    struct handle *handle = handle_of(id);
    if (!handle || !handle->held)
        return books_refuses("a handle is released that is not held");
    if (books_fails(BOOKS_release)) {
        the.held_handles -= !handle->left;
        handle->left = true;
        return CUDA_ERROR_INVALID_VALUE;
    }
    handle->held = false;
    the.unmapped[handle->device] -= handle->mappings ? 0 : handle->bytes;
    the.held_handles -= !handle->left;
    the.held[handle->device] -= handle->bytes;
    drop_if_unused(handle);
    return CUDA_SUCCESS;
}

static CUresult map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle id,
    unsigned long long flags)
{
    struct range *range = range_at(address, bytes);
    struct handle *handle = handle_of(id);
    if (!range || range->plain || !is_granular(address - range->base) || !is_granular(bytes) || flags)
        return books_refuses("memory is mapped where no addresses are reserved");
    if (!handle || !handle->held || offset || bytes != handle->bytes)
        return books_refuses("memory is mapped that is not a whole handle which is held");
    uint64_t first = (address - range->base) / the.granularity, granules = bytes / the.granularity;
    for (uint64_t i = 0; i < granules; i++)
        if (handle_in(&range->entry[first + i]))
            return books_refuses("memory is mapped where there is some");
    if (books_fails(BOOKS_map))
        return CUDA_ERROR_INVALID_VALUE;
    for (uint64_t i = 0; i < granules; i++)
        range->entry[first + i] = (struct entry){.handle = (uint32_t)id + the.first_handle, .part = (uint32_t)i,
            .first = i == 0};
    the.unmapped[handle->device] -= handle->mappings ? 0 : bytes;
    handle->mappings += (uint32_t)granules;
    the.mapped[handle->device] += bytes;
    return CUDA_SUCCESS;
}

/* The entries of [address, address + bytes), which must be whole mappings; NULL if they are not. */
static struct entry *whole_mappings(CUdeviceptr address, uint64_t bytes, uint64_t *ret_granules)
{
    struct range *range = range_at(address, bytes);
    if (!range || range->plain || !bytes || !is_granular(address - range->base) || !is_granular(bytes))
        return NULL;
    uint64_t first = (address - range->base) / the.granularity, granules = bytes / the.granularity;
    struct entry *entry = range->entry + first;
    for (uint64_t i = 0; i < granules; i++)
        if (!handle_in(&entry[i]))
            return NULL;
    const struct entry *last = &entry[granules - 1];
    bool whole = entry->first && (last->part + 1) * the.granularity == handle_of(handle_in(last))->bytes;
    *ret_granules = granules;
    return whole ? entry : NULL;
}

static CUresult unmap(CUdeviceptr address, size_t bytes)
{
    uint64_t granules;
    struct entry *entry = whole_mappings(address, bytes, &granules);
    if (!entry)
        return books_refuses("an unmap of what is not whole mappings");
    if (books_fails(BOOKS_unmap))
        return CUDA_ERROR_INVALID_VALUE;
    books_on_unmap(address, bytes);
    for (uint64_t i = 0; i < granules; i++) {
        struct handle *handle = handle_of(handle_in(&entry[i]));
        entry[i].handle = 0;
        handle->mappings--;
        the.unmapped[handle->device] += handle->held && !handle->mappings ? handle->bytes : 0;
        the.mapped[handle->device] -= the.granularity;
        drop_if_unused(handle);
    }
    return CUDA_SUCCESS;
}

static CUresult set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    uint64_t granules;
    uint8_t bits = 0;
    struct entry *entry = whole_mappings(address, bytes, &granules);
    if (!entry || !count)
        return books_refuses("access rights of what is not whole mappings");
    for (size_t i = 0; i < count; i++) {
        if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || access[i].location.id < 0 ||
            access[i].location.id >= the.devices || access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            return books_refuses("access rights that no driver gives");
        bits |= (uint8_t)(1 << access[i].location.id);
    }
    if (books_fails(BOOKS_set_access))
        return CUDA_ERROR_INVALID_VALUE;
    for (uint64_t i = 0; i < granules; i++)
        entry[i].access |= bits;
    return CUDA_SUCCESS;
}

/* Plain memory is a range with a handle of its own, at all of whose addresses that is mapped. */
static CUresult mem_alloc(CUdeviceptr *ret, size_t bytes)
{
    uint64_t whole = (bytes + the.granularity - 1) / the.granularity * the.granularity;
    CUdeviceptr address;
    if (books_fails(BOOKS_mem_alloc) || !bytes || whole > the.total - the.used[books_device()])
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (the.handles == HANDLES)
        return books_full();
    if (add_range(whole, true, &address) != CUDA_SUCCESS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct range *range = range_at(address, whole);
    the.handle[the.handles++] = (struct handle){.bytes = whole, .number = the.next_number,
        .device = (uint8_t)books_device(), .mappings = (uint32_t)(whole / the.granularity)};
    for (uint64_t i = 0; i < whole / the.granularity; i++)
        range->entry[i] = (struct entry){.handle = the.handles + the.first_handle, .part = (uint32_t)i,
            .access = (uint8_t)(1 << books_device()), .first = i == 0};
    the.next_number += whole;
    use_up(books_device(), whole);
    the.plain[books_device()] += whole;
    *ret = address;
    return CUDA_SUCCESS;
}

static void drop_plain(struct range *range)
{
    struct handle *handle = handle_of(handle_in(range->entry));
    books_on_unmap(range->base, range->bytes);
    handle->mappings = 0;
    the.plain[handle->device] -= range->bytes;
    drop_if_unused(handle);
    range->live = false;
    the.live_ranges--;
}

static CUresult mem_free(CUdeviceptr address)
{
    struct range *range = range_at(address, 1);
    if (!range || !range->plain || range->base != address)
        return books_refuses("plain memory is freed that is none");
    if (books_fails(BOOKS_mem_free))
        return CUDA_ERROR_INVALID_VALUE;
    drop_plain(range);
    return CUDA_SUCCESS;
}

static CUresult mem_info(size_t *free_bytes, size_t *total_bytes)
{
    if (books_fails(BOOKS_mem_info))
        return CUDA_ERROR_INVALID_VALUE;
    *free_bytes = the.total - the.used[books_device()];
    *total_bytes = the.total;
    return CUDA_SUCCESS;
}

static CUresult device_total(size_t *ret, CUdevice device)
{
    if (device < 0 || device >= the.devices)
        return CUDA_ERROR_INVALID_DEVICE;
    if (books_fails(BOOKS_device_total))
        return CUDA_ERROR_NOT_SUPPORTED;
    *ret = the.total;
    return CUDA_SUCCESS;
}

static CUresult device_attribute(int *ret, CUdevice_attribute attribute, CUdevice device)
{
    (void)device;
    *ret = attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED ||
           attribute == CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    return CUDA_SUCCESS;
}

#define BOOKS_TABLE                                                                                               \
    .ctx_get_current = books_ctx_get_current, .ctx_push = books_ctx_push, .ctx_pop = books_ctx_pop,               \
    .ctx_synchronize = books_ctx_synchronize, .device_attribute = device_attribute, .device_total = device_total, \
    .mem_info = mem_info, .mem_alloc = mem_alloc, .mem_free = mem_free, .address_reserve = address_reserve,       \
    .address_free = address_free, .granularity = granularity, .create = create, .release = release, .map = map,   \
    .unmap = unmap, .set_access = set_access, .event_create = books_event_create,                                 \
    .event_destroy = books_event_destroy, .event_record = books_event_record, .event_query = books_event_query,   \
    .event_synchronize = books_event_synchronize
const struct sg_driver books_driver = {
    BOOKS_TABLE, .ctx_record_event = books_ctx_record_event, .ctx_synchronize_of = books_ctx_synchronize_of};
const struct sg_driver books_older_driver = {BOOKS_TABLE};

void books_reset(uint8_t devices, uint64_t total, uint64_t granule, bool named)
{
    if (!the.entries)
        the.entries = mmap(NULL, ENTRIES * sizeof *the.entries, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (the.entries == MAP_FAILED)
        abort();
    the.first_handle += the.handles;
    if (the.first_handle > UINT32_MAX / 2) { /* what is left there could be taken for this program's */
        madvise(the.entries, ENTRIES * sizeof *the.entries, MADV_DONTNEED);
        the.first_handle = 0;
    }
    the.devices = devices;
    the.total = total;
    the.granularity = granule;
    the.ranges = the.handles = the.held_handles = the.live_ranges = 0;
    the.next_entry = the.next_number = the.failed = the.left = 0;
    for (int i = 0; i < MEMORIES; i++)
        the.used[i] = the.outside[i] = the.held[i] = the.mapped[i] = the.plain[i] = the.unmapped[i] = 0;
    books_heal();
    books_reset_events(named);
    the.broken[0] = '\0';
}

uint64_t books_used(int device)
{
    return the.used[device];
}

struct books_sums books_sums(int device)
{
    return (struct books_sums){.used = the.used[device] - the.outside[device],
        .handle_bytes = the.held[device],
        .mapped_bytes = the.mapped[device],
        .unmapped_bytes = the.unmapped[device],
        .plain_bytes = the.plain[device],
        .events = books_events(),
        .handles = the.held_handles,
        .ranges = the.live_ranges};
}

uint32_t books_spans(CUdeviceptr address, uint64_t bytes, int device, struct books_span *ret, uint32_t room)
{
    struct range *range = range_at(address, bytes);
    uint32_t count = 0;
    if (!range || !bytes)
        return 0;
    uint64_t offset = address - range->base, end = offset + bytes;
    for (uint64_t i = offset / the.granularity, from = offset; from < end; i++) {
        const struct entry *entry = &range->entry[i];
        const struct handle *handle = handle_of(handle_in(entry));
        uint64_t to = (i + 1) * the.granularity < end ? (i + 1) * the.granularity : end;
        if (!handle || !(entry->access >> device & 1))
            return 0;
        uint64_t begin = handle->number + entry->part * the.granularity + from % the.granularity;
        if (count && ret[count - 1].end == begin)
            ret[count - 1].end += to - from;
        else if (count < room)
            ret[count++] = (struct books_span){begin, begin + (to - from)};
        else
            abort();
        from = to;
    }
    return count;
}

CUmemGenericAllocationHandle books_mapped(CUdeviceptr address, uint64_t bytes)
{
    uint64_t granules;
    const struct entry *entry = whole_mappings(address, bytes, &granules);
    return entry && handle_of(handle_in(entry))->bytes == bytes ? handle_in(entry) : 0;
}

void books_context_gone(int context)
{
    books_drop_events(context);
    for (uint32_t i = 0; i < the.ranges; i++)
        if (the.range[i].live && the.range[i].plain && the.range[i].context == context)
            drop_plain(&the.range[i]);
}
