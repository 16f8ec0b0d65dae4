/* Owners and ranks of locks, in builds with assertions.

   Each thread lists the locks that it holds. The address of that list is also the thread's name: a lock's `owner` is the
   list of the thread that holds it. Example: a thread that grows holds
       lock[0] GROW of device 0, lock[1] DEVICE 0    count 2
   and may take any lock of process rank next, but neither SETUP nor DEVICE 0 again. DEVICE 1 is fine: of locks of one
   rank the one with the lower turn, here the ordinal, comes first. */
#include "lock.h"

#ifdef SG_LOCK_CHECKS

#include <stdio.h>
#include <stdlib.h>

/* Few, because thread-locals of the preloaded library have little room where it is loaded late. Around fork() a thread
   holds more. Those have an owner, but their order is not checked. */
enum { LISTED_MOST = 8 };

/* Locks that the thread holds, in the order of taking. A signal handler may take locks and give them back between any two
   steps here. So a place is counted before it is filled, and what is not counted is NULL. A handler that comes in between
   finds NULL there: neither a lock of before, nor a place that it would fill itself. */
static __thread struct {
    const struct sg_lock *lock[LISTED_MOST];
    unsigned count;
} held;

static const char *const rank_name[SG_RANK_COUNT] = {
    [SG_RANK_NONE] = "unranked",
#define CORE_LOCK(name, guards) [SG_RANK_##name] = #name,
#define PROCESS_LOCK(name, guards) [SG_RANK_##name] = #name,
#include "locks.def"
#undef CORE_LOCK
#undef PROCESS_LOCK
};

/* Prints what is wrong with a lock and ends the process. The heap is left alone, since a lock of it may be held. */
static void lock_fail(const char *what, const struct sg_lock *lock, const char *joint, const char *rest)
{
    fprintf(stderr, "segalloc: lock check: %s %s (%u)%s%s\n", what, rank_name[lock->rank], (unsigned)lock->turn, joint,
        rest);
    abort();
}

/* True if a thread that holds `a` may take `b`. */
static bool lock_is_before(const struct sg_lock *a, const struct sg_lock *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->turn < b->turn;
}

void sg_lock_check_order(const struct sg_lock *lock)
{
    for (unsigned i = 0; i < held.count; i++) {
        const struct sg_lock *other = held.lock[i];
        if (!other)
            continue;
        if (other == lock)
            lock_fail("taken twice by one thread:", lock, "", "");
        if (lock->rank != SG_RANK_NONE && other->rank != SG_RANK_NONE && !lock_is_before(other, lock))
            lock_fail("wrong order: taking", lock, " after ", rank_name[other->rank]);
    }
}

void sg_lock_taken(struct sg_lock *lock)
{
    atomic_store_explicit(&lock->owner, &held, memory_order_relaxed);
    unsigned at = held.count;
    if (at == LISTED_MOST)
        return;
    held.count = at + 1;
    atomic_signal_fence(memory_order_seq_cst);
    held.lock[at] = lock;
}

/* Takes a lock off the list, wherever it stands: locks need not be given back in the opposite order. */
static void held_remove(const struct sg_lock *lock)
{
    /* Kept ones move down before the count falls, and the places behind are cleared last: see `held`. */
    unsigned kept = 0, count = held.count;
    for (unsigned i = 0; i < count; i++) {
        if (held.lock[i] != lock)
            held.lock[kept++] = held.lock[i];
    }
    atomic_signal_fence(memory_order_seq_cst);
    held.count = kept;
    atomic_signal_fence(memory_order_seq_cst);
    for (unsigned i = kept; i < count; i++)
        held.lock[i] = NULL;
}

void sg_lock_given_back(struct sg_lock *lock)
{
    if (atomic_load_explicit(&lock->owner, memory_order_relaxed) != &held)
        lock_fail("given back by a thread that does not hold it:", lock, "", "");
    atomic_store_explicit(&lock->owner, NULL, memory_order_relaxed);
    held_remove(lock);
}

void sg_lock_forget(struct sg_lock *lock)
{
    atomic_store_explicit(&lock->owner, NULL, memory_order_relaxed);
    held_remove(lock);
}

void sg_lock_assert_held(const struct sg_lock *lock, const char *what, const char *where)
{
    if (atomic_load_explicit(&((struct sg_lock *)lock)->owner, memory_order_relaxed) == &held)
        return;
    fprintf(stderr, "segalloc: lock check: %s: %s is not held by this thread\n", where, what);
    abort();
}

void sg_lock_assert_none_from(enum sg_lock_rank rank, const char *where)
{
    for (unsigned i = 0; i < held.count; i++) {
        if (held.lock[i] && held.lock[i]->rank >= rank)
            lock_fail("held where the thread may wait:", held.lock[i], " at ", where);
    }
}

#endif
