/* The checksum of a block, and the hash that names a statistic, by our trace format. */
#ifndef SG_TRACE_FILE_H
#define SG_TRACE_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "segalloc/trace_format.h"
#include "base/wrap.h"

enum {
    SG_BLOCK_RECORDS =
        (SEGALLOC_TRACE_BLOCK - sizeof(struct segalloc_trace_block)) / sizeof(struct segalloc_trace_record)
};

static inline uint64_t sg_checksum_add(uint64_t sum, const struct segalloc_trace_record *record)
{
    uint64_t words[4];
    memcpy(words, record, sizeof(words));
    for (int i = 0; i < 4; i++)
        sum = sg_fnv(sum, words[i]);
    return sum;
}

/* 0 stands for an open block, so no closed one may have it. */
static inline uint64_t sg_checksum_end(uint64_t sum)
{
    return sum ? sum : 1;
}

static inline uint64_t sg_name_hash(const char *name)
{
    uint64_t sum = SG_FNV_BASIS;
    for (; *name; name++)
        sum = sg_fnv(sum, (unsigned char)*name);
    return sum;
}

#endif
