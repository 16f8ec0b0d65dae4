#include "clock.h"

#include <time.h>

static uint64_t clock_read_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t sg_clock_coarse_ns(void)
{
    return clock_read_ns(CLOCK_MONOTONIC_COARSE);
}

uint64_t sg_clock_ns(void)
{
    return clock_read_ns(CLOCK_MONOTONIC);
}
