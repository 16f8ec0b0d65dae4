/* What these programs know of the machine: a simulated device is theirs alone, a real one is not. */
#ifndef STRANGER_MACHINE_H
#define STRANGER_MACHINE_H

#include <stddef.h>
#include <stdlib.h>

#define MiB ((size_t)1 << 20)

/* Some things take microseconds on a simulated device and hold nothing there. On a real one they take a fraction of a
   second, and half a GiB: there STRANGER_FEW is set. */
static inline int times(int many, int few)
{
    return getenv("STRANGER_FEW") ? few : many;
}

/* Whether two answers for what is free say the same. A real driver keeps some for itself as it goes, and there they may be
   a page apart. That is 8 MiB on a card of 80 GB. */
static inline int within_a_page(size_t one, size_t other)
{
    return (one > other ? one - other : other - one) <= (size_t)times(0, 8) * MiB;
}

#endif
