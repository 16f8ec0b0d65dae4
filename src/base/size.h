/* Sizes as people write and read them. All multiples are powers of 1024, as CUDA's and PyTorch's are.

   Examples of sg_size_parse():
     "1.5GiB"   1610612736        "20 gb"   21474836480 (20 GiB)        "512"   512
     "8e9"      refused           "-1"      refused                     "2 MX"  refused
   and of sg_size_format():
     1023 is "1023 B", 1536 is "1.50 KiB", 22012952576 is "20.50 GiB" */
#ifndef SG_SIZE_H
#define SG_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SG_KIB (UINT64_C(1) << 10)
#define SG_MIB (UINT64_C(1) << 20)
#define SG_GIB (UINT64_C(1) << 30)
#define SG_TIB (UINT64_C(1) << 40)

/* Reads a size in bytes, or a number with a unit: K, M, G or T, also spelt KiB or KB, in any case. The number may have a
   fraction, and spaces may stand before the unit. The whole of `text` must be the size. False, with *ret unchanged: anything
   else, a negative number, or more than 63 bits. Needs neither locale nor heap. */
bool sg_size_parse(const char *text, uint64_t *ret);

/* Writes "20.50 GiB": two decimals and the largest unit that leaves 1 or more; whole bytes below 1 KiB. Returns `buffer`,
   which holds at least SG_SIZE_TEXT bytes. */
enum { SG_SIZE_TEXT = 32 };
char *sg_size_format(uint64_t bytes, char *buffer);

/* The ending of a noun that is counted: "1 block", "2 blocks". */
static inline const char *sg_plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

#endif
