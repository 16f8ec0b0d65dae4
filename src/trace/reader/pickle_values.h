/* The values of a pickle, each in 8 bytes: dictionaries, lists, numbers and texts. unpickle.h reads them.

   The low three bits of a value are its kind, and the rest is a number. Examples:
     the number 300                               300 << 3 | 1    0x961
     word 7                                       7 << 3 | 2      0x3a
     a list whose cells begin at index 20         20 << 3 | 3     0xa3
   A number of more than
   53 bits, a fraction, None and an unknown text are all SG_VALUE_OTHER, 0: nothing here needs them.

   Example of use, the sizes of all blocks of a segment:
     struct sg_unpickle_cursor cursor = {.list = sg_unpickle_get(pickle, segment, WORD_blocks)};
     while (sg_unpickle_next(pickle, &cursor, &block) && sg_unpickle_number(pickle, block, WORD_size, &bytes))
         sum += bytes; */
#ifndef SG_PICKLE_VALUES_H
#define SG_PICKLE_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sg_value_kind {
    SG_VALUE_OTHER, /* None, a negative or large number, a fraction, an unknown text */
    SG_VALUE_NUMBER,
    SG_VALUE_WORD,
    SG_VALUE_LIST,
    SG_VALUE_DICT,
    SG_VALUE_MARK /* of the machine's own; no caller sees it */
};

/* The kind and, above it, the number, the word's index or where the items are. */
typedef uint64_t sg_value;

struct sg_unpickle;

static inline enum sg_value_kind sg_value_kind(sg_value value)
{
    return (enum sg_value_kind)(value & 7);
}

/* The number, or the index of the word; 0 for other kinds. */
static inline uint64_t sg_value_number(sg_value value)
{
    return value >> 3;
}

/* Bytes that the caller may take besides those held here: together they stay within the bound of sg_unpickle_read(). */
uint64_t sg_unpickle_spare(const struct sg_unpickle *pickle);

/* A number under `key` (an index of `word`) in a dictionary. False: there is none. */
bool sg_unpickle_number(const struct sg_unpickle *pickle, sg_value dict, unsigned key, uint64_t *ret);

/* The value under `key`; SG_VALUE_OTHER where there is none or `dict` is no dictionary. */
sg_value sg_unpickle_get(const struct sg_unpickle *pickle, sg_value dict, unsigned key);

/* Goes through a list: zeros but for `list` at first. False: it has no more items, or is no list. */
struct sg_unpickle_cursor {
    sg_value list;
    uint64_t run;
    unsigned at;
    bool begun;
};
bool sg_unpickle_next(const struct sg_unpickle *pickle, struct sg_unpickle_cursor *cursor, sg_value *ret);

#endif
