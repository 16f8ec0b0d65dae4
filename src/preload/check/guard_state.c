/* Counts are atomic, so whoever places a block counts without a lock. */
#include "check/guard_state.h"

#include "check/state.h"

atomic_bool sg_guard_goes_on;
atomic_uint sg_guard_freed_now;
static _Atomic uint64_t guarded, unguarded[SG_UNGUARDED_COUNT];

void sg_guard_begin(void)
{
    atomic_store(&sg_guard_goes_on, true);
}

void sg_guard_close(void)
{
    atomic_store(&sg_guard_goes_on, false);
}

void sg_guard_one_more(void)
{
    atomic_fetch_add_explicit(&guarded, 1, memory_order_relaxed);
}

bool sg_guard_not(enum sg_unguarded why)
{
    atomic_fetch_add_explicit(&unguarded[why], 1, memory_order_relaxed);
    return false;
}

uint64_t sg_guard_count(void)
{
    return atomic_load_explicit(&guarded, memory_order_relaxed);
}

void sg_guard_write_counts(char *text, size_t size)
{
    static const char *const words[] = {
#define UNGUARDED(name, why) why,
        SG_UNGUARDED_REASONS(UNGUARDED)
#undef UNGUARDED
    };
    sg_check_write_counts(text, size, unguarded, words, SG_UNGUARDED_COUNT);
}
