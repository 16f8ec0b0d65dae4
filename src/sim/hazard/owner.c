#include "hazard/owner.h"

#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "range.h"

struct owned {
    struct sim_range range;
    struct sim_owner *owner;
};

/* Owners that allocators declared have numbers of their own. */
static const uint64_t first_block = UINT64_C(1) << 63;

static struct sim_ranges table;
static uint64_t ticks;
static bool program_declares;

uint64_t sim_owner_tick(void)
{
    return ++ticks;
}

uint64_t sim_owner_now(void)
{
    return ticks;
}

static int owner_thread(void)
{
    static _Thread_local int id;
    if (!id)
        id = (int)syscall(SYS_gettid);
    return id;
}

struct sim_owner *sim_owner_ref(struct sim_owner *owner)
{
    if (owner)
        owner->refs++;
    return owner;
}

void sim_owner_unref(struct sim_owner *owner)
{
    while (owner && --owner->refs == 0) {
        struct sim_owner *before = owner->before;
        free(owner);
        owner = before;
    }
}

static struct owned *owned_at_or_after(uint64_t address)
{
    struct sim_range *range = sim_ranges_at_or_after(&table, address);
    return range ? SIM_CONTAINER(range, struct owned, range) : NULL;
}

static void owned_enter(uint64_t base, uint64_t end, struct sim_owner *owner)
{
    struct owned *owned = base < end ? calloc(1, sizeof *owned) : NULL;
    if (!owned)
        return;
    owned->range.base = base;
    owned->range.size = end - base;
    owned->owner = sim_owner_ref(owner);
    sim_ranges_insert(&table, &owned->range);
}

/* Cuts [address, end) out of the table; what sticks out of it keeps its owner. Returns a reference to whose the first
   byte was. */
static struct sim_owner *owned_cut(uint64_t address, uint64_t end)
{
    struct sim_owner *first = NULL;
    for (struct owned *owned; (owned = owned_at_or_after(address)) != NULL && owned->range.base < end;) {
        struct sim_owner *owner = owned->owner;
        uint64_t low = owned->range.base, high = low + owned->range.size;
        sim_ranges_remove(&table, &owned->range);
        free(owned);
        owned_enter(low, address < high && low < address ? address : low, owner);
        owned_enter(end < high ? end : high, high, owner);
        if (!owner->ended) {
            owner->ended = ticks;
            owner->ended_thread = owner_thread();
        }
        if (!first)
            first = owner;
        else
            sim_owner_unref(owner);
    }
    return first;
}

void sim_owner_declare(uint64_t address, uint64_t bytes, uint64_t id)
{
    if (!bytes)
        return;
    sim_owner_tick();
    struct sim_owner *before = owned_cut(address, address + bytes), *owner = calloc(1, sizeof *owner);
    if (!owner) {
        sim_owner_unref(before);
        return;
    }
    if (before) {
        sim_owner_unref(before->before);
        before->before = NULL;
    }
    *owner = (struct sim_owner){.refs = 1,
        .id = id,
        .address = address,
        .bytes = bytes,
        .born = ticks,
        .born_thread = owner_thread(),
        .before = before};
    owned_enter(address, address + bytes, owner);
    sim_owner_unref(owner);
}

void sim_owner_forget(uint64_t address, uint64_t bytes)
{
    sim_owner_unref(owned_cut(address, address + bytes));
}

struct sim_owner *sim_owner_at(uint64_t address, uint64_t bytes, uint64_t *ret_bytes)
{
    struct owned *owned = owned_at_or_after(address);
    uint64_t left = bytes;
    struct sim_owner *owner = NULL;
    if (owned && owned->range.base > address) {
        left = owned->range.base - address;
    } else if (owned) {
        owner = owned->owner;
        left = owned->range.base + owned->range.size - address;
    }
    *ret_bytes = left < bytes ? left : bytes;
    return owner;
}

void sim_owner_declare_by_program(uint64_t address, uint64_t bytes, uint64_t id)
{
    program_declares = true;
    sim_owner_declare(address, bytes, id);
}

bool sim_owner_block(uint64_t address, uint64_t bytes, bool handed_out)
{
    static uint64_t blocks;
    uint64_t bytes_of_it;
    const struct sim_owner *now = sim_owner_at(address, bytes, &bytes_of_it);
    bool ended_before = now && now->id == 0 && now->address == address && !handed_out;
    bool declares = !program_declares && !ended_before;
    if (declares)
        sim_owner_declare(address, bytes, handed_out ? first_block + ++blocks : 0);
    return declares;
}
