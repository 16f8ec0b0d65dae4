/* What the fake driver was asked. */
#ifndef FAKE_LIBCUDA_H
#define FAKE_LIBCUDA_H

#include "cuda_proto.h"

enum { FAKE_QUERIES_MAX = 1024 };

struct fake_query {
    char symbol[64];
    int version;
    unsigned long long flags;
};

/* All questions so far, in order. */
size_t fake_queries(const struct fake_query **ret);

#endif
