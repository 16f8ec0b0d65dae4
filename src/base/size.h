/* Sizes as people write and read them. All multiples are powers of 1024. */
#ifndef SG_SIZE_H
#define SG_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SG_KIB (UINT64_C(1) << 10)
#define SG_MIB (UINT64_C(1) << 20)
#define SG_GIB (UINT64_C(1) << 30)
#define SG_TIB (UINT64_C(1) << 40)

/* Parses bytes, or a number (fractions allowed) with K, M, G, T, also spelt KiB … TiB or KB … TB, in any case
   and with spaces before the unit. The whole of `text` must be the size. Returns false, leaving *ret alone, for
   anything else, for negative numbers and for what does not fit in 63 bits. Needs neither locale nor heap. */
bool sg_size_parse(const char *text, uint64_t *ret);

/* Writes "20.50 GiB" style text (two decimals, integer below 1 KiB) and returns `buffer`, which holds at least
   SG_SIZE_TEXT bytes. */
enum { SG_SIZE_TEXT = 32 };
char *sg_size_format(uint64_t bytes, char *buffer);

/* The ending of a noun that is counted: "1 block", "2 blocks". */
static inline const char *sg_plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

#endif
