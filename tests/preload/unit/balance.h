/* In place of process.c's locks and calls of ours, in the tests of single files. Locks are taken in the order of
   process.h, each once, and given back. What has begun ends before the next one begins. To be included by one file of a
   program. */
#ifndef BALANCE_H
#define BALANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "process/process.h"

/* Of each thread. */
static __thread struct balance {
    unsigned guards; /* a bit each */
    bool begun;
} balance;

/* Without cmocka: also on threads and in children of a test. */
static void balance_expect(bool held, const char *otherwise)
{
    if (held)
        return;
    fprintf(stderr, "error: %s\n", otherwise);
    abort();
}

void sg_process_lock(enum sg_process_lock guard)
{
    balance_expect(balance.guards >> guard == 0, "a lock is taken twice, or out of order");
    balance.guards |= 1u << guard;
}

bool sg_process_lock_try(enum sg_process_lock guard)
{
    if (balance.guards >> guard & 1)
        return false;
    sg_process_lock(guard);
    return true;
}

void sg_process_unlock(enum sg_process_lock guard)
{
    balance_expect(balance.guards >> guard & 1, "a lock is given back that is not held");
    balance.guards &= ~(1u << guard);
}

void sg_process_assert_locked(enum sg_process_lock guard)
{
    balance_expect(balance.guards >> guard & 1, "a lock is lacking");
}

/* What sg_enter() returns where it would be `core`. */
static inline struct sg_core *balance_begin(struct sg_core *core)
{
    if (balance.begun)
        return NULL;
    balance.begun = core != NULL;
    return core;
}

void sg_leave(void)
{
    balance_expect(balance.begun, "a call of ours ends that has not begun");
    balance.begun = false;
}

/* What another thread does meanwhile, on this one. */
static inline void balance_elsewhere(void (*function)(void))
{
    struct balance before = balance;
    balance_expect(before.guards == 0, "the driver is called under a lock");
    balance = (struct balance){0};
    function();
    balance = before;
}

__attribute__((destructor)) static void balance_at_the_end(void)
{
    balance_expect(balance.guards == 0 && !balance.begun, "a lock is never given back, or a call of ours never ends");
}

#endif
