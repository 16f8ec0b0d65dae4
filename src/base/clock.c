#include "clock.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

static uint64_t system_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#if defined(__x86_64__)
enum state { UNKNOWN, SCALING, COUNTER, SYSTEM };
enum { SCALING_NS = 10000000 };

static struct {
    _Atomic(enum state) state;
    _Atomic uint64_t ticks, ns;  /* both at one moment, by the thread that left UNKNOWN */
    _Atomic uint64_t ns_per_tick; /* scaled by 2^32; set before the state becomes COUNTER */
} scale;

/* CPUID 80000007H, EDX bit 8: the counter runs at one rate in all states of all cores (Intel SDM vol. 3, 18.17.1). */
static bool counter_is_constant(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & 1u << 8);
}

static uint64_t begin(void)
{
    enum state unknown = UNKNOWN;
    uint64_t ns = system_ns();
    if (!counter_is_constant()) {
        atomic_store(&scale.state, SYSTEM);
    } else if (atomic_load(&scale.ticks) == 0 && atomic_compare_exchange_strong(&scale.ticks, &(uint64_t){0}, __rdtsc())) {
        atomic_store(&scale.ns, ns);
        atomic_compare_exchange_strong(&scale.state, &unknown, SCALING);
    }
    return ns;
}

static uint64_t calibrate(void)
{
    uint64_t ns = system_ns(), ticks = __rdtsc(), passed = ns - atomic_load(&scale.ns), counted = ticks - atomic_load(&scale.ticks);
    if (passed >= SCALING_NS && counted > 0) {
        atomic_store(&scale.ns_per_tick, (uint64_t)(((unsigned __int128)passed << 32) / counted));
        atomic_store(&scale.state, COUNTER);
    }
    return ns;
}

uint64_t sg_clock_ns(void)
{
    switch (atomic_load_explicit(&scale.state, memory_order_acquire)) {
    case UNKNOWN:
        return begin();
    case SCALING:
        return calibrate();
    case SYSTEM:
        return system_ns();
    case COUNTER:
        break;
    }
    uint64_t counted = __rdtsc() - atomic_load_explicit(&scale.ticks, memory_order_relaxed);
    uint64_t rate = atomic_load_explicit(&scale.ns_per_tick, memory_order_relaxed);
    return atomic_load_explicit(&scale.ns, memory_order_relaxed) + (uint64_t)(((unsigned __int128)counted * rate) >> 32);
}
#else
uint64_t sg_clock_ns(void)
{
    return system_ns();
}
#endif
