/* The parts of the trace format that writer and reader share: records in a block, its checksum, and the hash that names a
   statistic. segalloc/trace_format.h has the format itself.

   A *record* is 32 bytes, a *block* is 1 MiB: a header of 32 bytes and 32767 records.

   Example, a record byte by byte. PyTorch, on thread 1, asked for 300 KiB on stream 1, and got 0x7f2000040000, 1.5 s after
   the trace began:
     bytes 0 to 7      01 08 01 00 01 00 00 00    kind 1 ALLOCATE; flags 8 TORCH; thread 1 (2 bytes); stream 1 (4 bytes)
     bytes 8 to 15     00 00 04 00 20 7f 00 00    id: the address
     bytes 16 to 23    00 b0 04 00 00 00 00 00    size: 307200
     bytes 24 to 31    00 2f 68 59 00 00 00 00    time: 1500000000 ns
   The checksum of a block with this record alone is 0xeeffb59e51f07664. The statistic "grows" has the id
   0xdc5eef2946fd11eb in its records. */
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

/* The checksum with one more record: FNV-1a over its four words of 64 bits. It begins with SG_FNV_BASIS. */
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

/* The id of a statistic in its records: FNV-1a over the bytes of its name. A name keeps its id when the table changes. */
static inline uint64_t sg_name_hash(const char *name)
{
    uint64_t sum = SG_FNV_BASIS;
    for (; *name; name++)
        sum = sg_fnv(sum, (unsigned char)*name);
    return sum;
}

#endif
