/* The values of a pickle: dictionaries, lists, numbers and texts, each in a word. unpickle.h reads them. */
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

/* How much memory the caller may take besides what is held: both stay within the bound of sg_unpickle_read(). */
uint64_t sg_unpickle_spare(const struct sg_unpickle *pickle);

/* A number under `key` (an index of `word`) in a dictionary. False: there is none. */
bool sg_unpickle_number(const struct sg_unpickle *pickle, sg_value dict, unsigned key, uint64_t *ret);

/* What stands under `key`; SG_VALUE_OTHER where nothing does or `dict` is none. */
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
