#include "hazard/owner.h"

#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "extra.h"
#include "sim.h"
#include "streams/executor.h"
#include "streams/work.h"

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

static int thread_id(void)
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

static struct owned *at_or_after(uint64_t address)
{
    struct sim_range *range = sim_ranges_at_or_after(&table, address);
    return range ? SIM_CONTAINER(range, struct owned, range) : NULL;
}

static void enter(uint64_t base, uint64_t end, struct sim_owner *owner)
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
static struct sim_owner *cut(uint64_t address, uint64_t end)
{
    struct sim_owner *first = NULL;
    for (struct owned *owned; (owned = at_or_after(address)) != NULL && owned->range.base < end;) {
        struct sim_owner *owner = owned->owner;
        uint64_t low = owned->range.base, high = low + owned->range.size;
        sim_ranges_remove(&table, &owned->range);
        free(owned);
        enter(low, address < high && low < address ? address : low, owner);
        enter(end < high ? end : high, high, owner);
        if (!owner->ended) {
            owner->ended = ticks;
            owner->ended_thread = thread_id();
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
    struct sim_owner *before = cut(address, address + bytes), *owner = calloc(1, sizeof *owner);
    if (!owner) {
        sim_owner_unref(before);
        return;
    }
    if (before) {
        sim_owner_unref(before->before);
        before->before = NULL;
    }
    *owner = (struct sim_owner){.refs = 1, .id = id, .address = address, .bytes = bytes, .born = ticks,
        .born_thread = thread_id(), .before = before};
    enter(address, address + bytes, owner);
    sim_owner_unref(owner);
}

void sim_owner_forget(uint64_t address, uint64_t bytes)
{
    sim_owner_unref(cut(address, address + bytes));
}

struct sim_owner *sim_owner_at(uint64_t address, uint64_t bytes, uint64_t *ret_bytes)
{
    struct owned *owned = at_or_after(address);
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

void segalloc_sim_owner(uint64_t address, uint64_t bytes, uint64_t owner)
{
    sim_lock();
    program_declares = true;
    sim_owner_declare(address, bytes, owner);
    if (owner)
        sim_schedule_allocated();
    sim_unlock();
}

int segalloc_sim_block(uint64_t address, uint64_t bytes, int handed_out)
{
    static uint64_t blocks;
    uint64_t bytes_of_it;
    sim_lock();
    bool on = sim.config.hazard;
    const struct sim_owner *now = on && bytes ? sim_owner_at(address, bytes, &bytes_of_it) : NULL;
    bool ended_before = now && now->id == 0 && now->address == address && !handed_out;
    if (on && bytes && !program_declares && !ended_before) {
        sim_owner_declare(address, bytes, handed_out ? first_block + ++blocks : 0);
        if (handed_out)
            sim_schedule_allocated();
    }
    sim_unlock();
    return on;
}
