/* What these programs share. They are written against NVIDIA's headers as anyone would write them, and print what they
   see, never an address or a time, so that two runs can be compared line by line. */
#ifndef STRANGER_H
#define STRANGER_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime.h>

#include "stranger_machine.h"

/* Prints the call and the name of what it returned. */
#define SHOW(call) printf("%s: %s\n", #call, cudaGetErrorName(call))

/* Whether this is the first failure: of several threads one line is printed, however many fail. */
static inline int fails_first(void)
{
    static int said;
    return !__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED);
}

/* For calls that cannot fail in any run that goes well. */
#define MUST(call)                                                  \
    do {                                                            \
        cudaError_t must_ = (call);                                 \
        if (must_ != cudaSuccess) {                                 \
            if (fails_first())                                      \
                printf("%s: %s\n", #call, cudaGetErrorName(must_)); \
            exit(1);                                                \
        }                                                           \
    } while (0)

/* Prints whether a fact holds. */
#define FACT(fact) printf("%s: %s\n", #fact, (fact) ? "yes" : "no")

/* Ends the program well where the machine has fewer devices: what it is about can't be tried there. */
static inline void need_devices(int least)
{
    int count = 0;
    MUST(cudaGetDeviceCount(&count));
    if (count >= least)
        return;
    printf("not tried: it takes %d devices, and there are %d\n", least, count);
    exit(0);
}

static inline unsigned mix(unsigned a)
{
    a = (a ^ 61u ^ (a >> 16)) * 9u;
    a ^= a >> 4;
    a *= 0x27d4eb2du;
    return a ^ (a >> 15);
}

/* Bytes that tell block `seed` from every other. */
static inline void fill(unsigned char *bytes, size_t count, unsigned seed)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)mix(seed * 7919u + (unsigned)i);
}

static inline unsigned checksum(const unsigned char *bytes, size_t count)
{
    unsigned sum = 2166136261u;
    for (size_t i = 0; i < count; i++)
        sum = (sum ^ bytes[i]) * 16777619u;
    return sum;
}

#endif
