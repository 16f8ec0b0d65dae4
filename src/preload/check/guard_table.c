/* An array of guards, with three lists through it: those that are unused, those that are freed and have their pages, and
   those in quarantine. Live ones are in no list: they are found by the tree and the table of stand-ins.

   For example, guards 0 to 3 were used so far. 0 is live; 1 is FREED, the only one in `freed`; 2 and 3 are GONE, and `gone`
   has 2 before 3. A new block takes guard 4, since there are 4,096. The 4,097th block at once takes the place of guard 2, whose
   addresses go back to the driver before those of 3.

   SG_LOCK_GUARD guards all of it. References to what is known of a block are SG_LOCK_CHECK's, which comes first: so they
   are given back after the lock of the table. */
#include "check/guard_table.h"

#include "check/guard_state.h"
#include "check/live.h"
#include "check/samples.h"
#include "core/core.h"
#include "process/locks.h"
#include "track/held_outside.h"

struct queue {
    struct sg_guard *first, *last;
    size_t count;
    uint64_t bytes; /* of addresses */
};

/* `at` is the first member of a guard, so a stand-in that is found leads to its guard. */
_Static_assert(offsetof(struct sg_guard, at) == 0, "a stand-in is converted to its guard");
static struct sg_guard guards[SG_GUARDS];
static size_t used; /* guards that were ever used: the first ones */
static struct sg_guard *unused;
static struct queue freed, gone;
static uint64_t frees;

/* A list is in the order of its entries, so the oldest is taken first. */
static void queue_push(struct queue *queue, struct sg_guard *guard)
{
    guard->next = NULL;
    if (queue->last)
        queue->last->next = guard;
    else
        queue->first = guard;
    queue->last = guard;
    queue->count++;
    queue->bytes += guard->at.bytes;
}

/* Whoever takes a guard has it alone: it is in no list, and TAKEN. */
static struct sg_guard *queue_pop(struct queue *queue)
{
    struct sg_guard *guard = queue->first;
    if (!guard)
        return NULL;
    queue->first = guard->next;
    if (!queue->first)
        queue->last = NULL;
    queue->count--;
    queue->bytes -= guard->at.bytes;
    guard->state = SG_GUARD_TAKEN;
    return guard;
}

/* The addresses of a block in quarantine are about to be somebody else's. */
static struct sg_freed *leave_quarantine_locked(struct sg_guard *guard)
{
    struct sg_freed *block = guard->block;
    sg_stand_ins_take_locked(&guard->at);
    atomic_fetch_sub_explicit(&sg_guard_freed_now, 1, memory_order_relaxed);
    guard->block = NULL;
    return block;
}

struct sg_guard *sg_guards_new(struct sg_stand_in *ret_end)
{
    struct sg_freed *block = NULL;
    *ret_end = (struct sg_stand_in){0};
    sg_process_lock(SG_LOCK_GUARD);
    struct sg_guard *guard = unused;
    if (guard) {
        unused = guard->next;
    } else if (used < SG_GUARDS) {
        guard = &guards[used++];
    } else if ((guard = queue_pop(&gone))) {
        *ret_end = guard->at;
        block = leave_quarantine_locked(guard);
    }
    if (guard)
        *guard = (struct sg_guard){.state = SG_GUARD_TAKEN};
    sg_process_unlock(SG_LOCK_GUARD);
    if (block)
        sg_live_drop(block);
    return guard;
}

bool sg_guards_live(struct sg_guard *guard)
{
    sg_process_lock(SG_LOCK_GUARD);
    bool known = guard->number ? sg_stand_ins_lives_locked(&guard->at) : sg_stand_ins_put_locked(&guard->at);
    if (known)
        guard->state = SG_GUARD_LIVE;
    sg_process_unlock(SG_LOCK_GUARD);
    return known;
}

void sg_guards_renumber(struct sg_guard *guard)
{
    sg_process_lock(SG_LOCK_GUARD);
    guard->number = ++frees;
    sg_process_unlock(SG_LOCK_GUARD);
}

void sg_guards_freed_again(struct sg_guard *guard)
{
    sg_process_lock(SG_LOCK_GUARD);
    guard->state = SG_GUARD_FREED;
    queue_push(&freed, guard);
    sg_process_unlock(SG_LOCK_GUARD);
}

void sg_guards_freed(struct sg_guard *guard)
{
    sg_guards_freed_again(guard);
    atomic_fetch_add_explicit(&sg_guard_freed_now, 1, memory_order_relaxed);
}

void sg_guards_gone(struct sg_guard *guard)
{
    sg_process_lock(SG_LOCK_GUARD);
    guard->state = SG_GUARD_GONE;
    queue_push(&gone, guard);
    sg_process_unlock(SG_LOCK_GUARD);
}

void sg_guards_unused(struct sg_guard *guard)
{
    struct sg_freed *block = guard->block;
    sg_process_lock(SG_LOCK_GUARD);
    guard->state = SG_GUARD_UNUSED;
    guard->block = NULL;
    guard->next = unused;
    unused = guard;
    sg_process_unlock(SG_LOCK_GUARD);
    if (block)
        sg_live_drop(block);
}

/* A live block that is about to be freed; NULL for any other. */
static struct sg_guard *take_live_locked(struct sg_guard *guard)
{
    if (!guard || guard->state != SG_GUARD_LIVE)
        return NULL;
    sg_stand_ins_ended_locked(&guard->at);
    guard->state = SG_GUARD_TAKEN;
    guard->number = ++frees;
    return guard;
}

struct sg_guard *sg_guards_take(CUdeviceptr inner)
{
    sg_process_lock(SG_LOCK_GUARD);
    struct sg_guard *guard = take_live_locked((struct sg_guard *)(void *)sg_stand_ins_of_locked(inner));
    sg_process_unlock(SG_LOCK_GUARD);
    return guard;
}

struct sg_guard *sg_guards_take_of(CUcontext context)
{
    struct sg_guard *guard = NULL;
    sg_process_lock(SG_LOCK_GUARD);
    for (size_t i = 0; i < used && !guard; i++)
        if (guards[i].context == context)
            guard = take_live_locked(&guards[i]);
    sg_process_unlock(SG_LOCK_GUARD);
    return guard;
}

struct sg_guard *sg_guards_take_freed(void)
{
    sg_process_lock(SG_LOCK_GUARD);
    struct sg_guard *guard = queue_pop(&freed);
    sg_process_unlock(SG_LOCK_GUARD);
    return guard;
}

void sg_guards_back(struct sg_guard *guard)
{
    sg_process_lock(SG_LOCK_GUARD);
    guard->state = SG_GUARD_FREED;
    guard->next = freed.first;
    freed.first = guard;
    if (!freed.last)
        freed.last = guard;
    freed.count++;
    freed.bytes += guard->at.bytes;
    sg_process_unlock(SG_LOCK_GUARD);
}

uint64_t sg_guards_frees(void)
{
    sg_process_lock(SG_LOCK_GUARD);
    uint64_t count = frees;
    sg_process_unlock(SG_LOCK_GUARD);
    return count;
}

bool sg_guards_await(void)
{
    sg_process_lock(SG_LOCK_GUARD);
    bool any = freed.first != NULL;
    sg_process_unlock(SG_LOCK_GUARD);
    return any;
}

unsigned sg_guards_unread(void)
{
    unsigned count = 0;
    sg_process_lock(SG_LOCK_GUARD);
    for (const struct sg_guard *guard = freed.first; guard; guard = guard->next)
        count += guard->block->canary;
    sg_process_unlock(SG_LOCK_GUARD);
    return count;
}

struct sg_guard *sg_guards_take_surplus(void)
{
    struct sg_freed *block = NULL;
    sg_process_lock(SG_LOCK_GUARD);
    bool full = gone.count > SG_QUARANTINE_MOST || gone.bytes > SG_QUARANTINE_BYTES;
    struct sg_guard *guard = full ? queue_pop(&gone) : NULL;
    if (guard)
        block = leave_quarantine_locked(guard);
    sg_process_unlock(SG_LOCK_GUARD);
    if (block)
        sg_live_drop(block);
    return guard;
}

/* A copy, since a guard may change as soon as the lock is given back. */
static void view_of(const struct sg_guard *guard, struct sg_guard_view *ret)
{
    *ret = (struct sg_guard_view){
        .block = guard->block,
        .base = guard->at.shown,
        .begin = guard->at.begin,
        .gap = guard->at.begin + guard->mapped,
        .end = guard->at.begin + guard->at.bytes,
        .freed = guard->state == SG_GUARD_FREED || guard->state == SG_GUARD_GONE,
        .with_context = guard->with_context,
    };
}

/* True if it stands for a block that others may be told of. */
static bool guard_is_told(const struct sg_guard *guard)
{
    return guard->block && guard->state != SG_GUARD_UNUSED && guard->state != SG_GUARD_TAKEN;
}

/* Takes a reference for the viewer. SG_LOCK_CHECK comes before SG_LOCK_GUARD, so both are held for that. */
static void locks_take(void)
{
    sg_process_lock(SG_LOCK_CHECK);
    sg_process_lock(SG_LOCK_GUARD);
}

static void locks_give(void)
{
    sg_process_unlock(SG_LOCK_GUARD);
    sg_process_unlock(SG_LOCK_CHECK);
}

bool sg_guards_at(CUdeviceptr address, struct sg_guard_view *ret)
{
    locks_take();
    struct sg_guard *guard = (struct sg_guard *)(void *)sg_stand_ins_at_locked(address);
    bool found = guard && guard_is_told(guard);
    if (found) {
        view_of(guard, ret);
        ret->block->refs++;
    }
    locks_give();
    return found;
}

/* The order in which blocks are told. For example, of blocks at 0x1000 and 0x9000 the second is nearer to 0x8000. Number 7 of the
   frees 3, 7 and 5 comes first, at distance 0 from the last number.

   How far a block is from an address. Without one, how late it was freed; live ones come after all that are freed. */
static uint64_t guard_distance(const struct sg_guard *guard, CUdeviceptr address)
{
    CUdeviceptr base = guard->at.shown, end = base + guard->at.shown_bytes;
    if (!address)
        return guard->number && guard->state != SG_GUARD_LIVE ? frees - guard->number : UINT64_MAX;
    return address < base ? base - address : address >= end ? address - end + 1 : 0;
}

/* An insertion into a short sorted list. For example, `room` 2 and distances 70, 40, 90 and 10: the list is 70, then 40 70,
   90 finds no place, and 10 pushes 70 out. */
size_t sg_guards_list(CUdeviceptr address, struct sg_guard_view *ret, size_t room)
{
    const struct sg_guard *nearest[32];
    size_t count = 0, kept = 0;
    room = room < sizeof nearest / sizeof *nearest ? room : sizeof nearest / sizeof *nearest;
    locks_take();
    for (size_t i = 0; i < used; i++) {
        const struct sg_guard *guard = &guards[i];
        if (!guard_is_told(guard))
            continue;
        count++;
        size_t place = kept;
        while (place && guard_distance(guard, address) < guard_distance(nearest[place - 1], address))
            place--;
        if (place == room)
            continue;
        kept += kept < room;
        for (size_t k = kept - 1; k > place; k--)
            nearest[k] = nearest[k - 1];
        nearest[place] = guard;
    }
    for (size_t i = 0; i < kept; i++) {
        view_of(nearest[i], &ret[i]);
        ret[i].block->refs++;
    }
    locks_give();
    return count;
}

void sg_guards_each(void (*look)(struct sg_guard *guard, void *user), void *user)
{
    sg_process_lock(SG_LOCK_GUARD);
    for (size_t i = 0; i < used; i++)
        if (guards[i].state != SG_GUARD_UNUSED)
            look(&guards[i], user);
    sg_process_unlock(SG_LOCK_GUARD);
}

/* Pages are given by address, so pages that come or go between two calls move none of the others. For example, a peer gets access to
   pages at 1, 5 and 9. Those at 5 go back after the first call, and new ones come at 3: the next call finds 3, then 9. */
bool sg_guards_next_pages(int device, CUdeviceptr *at, uint64_t *ret_bytes)
{
    const struct sg_guard *next = NULL;
    sg_process_lock(SG_LOCK_GUARD);
    for (size_t i = 0; i < used; i++) {
        const struct sg_guard *guard = &guards[i];
        if (guard_is_told(guard) && guard->mapped && guard->block->device == device && guard->at.begin > *at &&
            (!next || guard->at.begin < next->at.begin))
            next = guard;
    }
    if (next) {
        *at = next->at.begin;
        *ret_bytes = next->mapped;
    }
    sg_process_unlock(SG_LOCK_GUARD);
    return next != NULL;
}

uint64_t sg_guards_bytes(int device)
{
    return sg_outside_guarded(device);
}

void sg_guards_add_bytes(int device, int64_t bytes)
{
    sg_outside_add_guarded(device, bytes);
}
