#include "sim_test.h"

#include <stdatomic.h>
#include <time.h>

void sleep_ms(unsigned ms)
{
    nanosleep(&(struct timespec){ms / 1000, (long)(ms % 1000) * 1000000}, NULL);
}

void wait_at_gate(void *argument)
{
    struct gate *gate = argument;
    atomic_store(&gate->reached, true);
    while (!atomic_load(&gate->open))
        nanosleep(&(struct timespec){0, 50000}, NULL);
}
