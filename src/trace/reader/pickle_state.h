/* The state of a pickle that is being read: cells of the values so far, and the machine that makes them. For unpickle.c,
   pickle_state.c and pickle_values.c.

   A *cell* is 8 bytes, named by its index. Cells stand in *chunks* of 65536, 512 KiB, which never move, so an index stays
   good while more are taken. Index 0 is no cell.

   Example, the list [300, 301] as the first value of a pickle. It takes cells 1 to 5:
     cell 1    first run: 3        the list itself: its value is 1 << 3 | 3
     cell 2    last run: 3
     cell 3    next run 0, count 2
     cell 4    300 << 3 | 1
     cell 5    301 << 3 | 1
   Each append makes another run, of 1024 items at most; the run before names it, and so does cell 2. */
#ifndef SG_PICKLE_STATE_H
#define SG_PICKLE_STATE_H

#include <assert.h>

#include "reader/unpickle.h"

enum {
    SG_PICKLE_KIND_BITS = 3,
    SG_PICKLE_VALUE_BITS = 56, /* of a value, its key apart */
    SG_PICKLE_CHUNK_SHIFT = 16,
    SG_PICKLE_CHUNK_CELLS = 1 << SG_PICKLE_CHUNK_SHIFT,
    SG_PICKLE_RUN_MOST = 1024, /* items that stand in one piece */
    SG_PICKLE_COUNT_BITS = 16
};
#define SG_PICKLE_NUMBER_MOST ((UINT64_C(1) << (SG_PICKLE_VALUE_BITS - SG_PICKLE_KIND_BITS)) - 1)
#define SG_PICKLE_VALUE_MASK ((UINT64_C(1) << SG_PICKLE_VALUE_BITS) - 1)
#define SG_PICKLE_COUNT_MASK ((UINT64_C(1) << SG_PICKLE_COUNT_BITS) - 1)
#define SG_PICKLE_MEMORY_LEAST (UINT64_C(48) << 20) /* a tool has 64 MiB for itself */

/* Objects and runs of items are cells of 8 bytes, in chunks that never move; a cell's index is what refers to it. An
   object is two cells: its first run and its last. A run is a cell with the next run's index and its count, then the
   items. Index 0 is no run. */
struct sg_unpickle {
    const char *const *word;
    size_t words;
    uint64_t **chunk;
    uint64_t chunks, cells;
    sg_value *stack;
    size_t depth, stack_room;
    sg_value *memo;
    size_t memos, memo_room;

    sg_unpickle_more_fn *more;
    void *user;
    const unsigned char *at, *end;
    uint64_t read; /* bytes up to `end` */
    char *error;
    int status;
};

/* A value of a kind. */
static inline sg_value sg_pickle_value(enum sg_value_kind kind, uint64_t number)
{
    assert(number <= SG_PICKLE_NUMBER_MOST);
    return number << SG_PICKLE_KIND_BITS | kind;
}

/* A number as a value; one that does not fit is SG_VALUE_OTHER. */
static inline sg_value sg_pickle_number_value(uint64_t number)
{
    return number <= SG_PICKLE_NUMBER_MOST ? sg_pickle_value(SG_VALUE_NUMBER, number) : SG_VALUE_OTHER;
}

/* The cell of an index, which stays where it is. */
static inline uint64_t *sg_pickle_cell(const struct sg_unpickle *pickle, uint64_t index)
{
    assert(index < pickle->cells);
    return &pickle->chunk[index >> SG_PICKLE_CHUNK_SHIFT][index & (SG_PICKLE_CHUNK_CELLS - 1)];
}

/* The offset of the next byte in the file. */
static inline uint64_t sg_pickle_offset(const struct sg_unpickle *pickle)
{
    return pickle->read - (uint64_t)(pickle->end - pickle->at);
}

/* Keeps the first error. sg_pickle_fail() returns false, in the place of its caller's answer. */
void sg_pickle_note_error(struct sg_unpickle *pickle, int status, const char *text);
static inline bool sg_pickle_fail(struct sg_unpickle *pickle, int status, const char *text)
{
    sg_pickle_note_error(pickle, status, text);
    return false;
}

/* `bytes` more may be taken: what a file says must not cost more than its size accounts for. False: an error. */
bool sg_pickle_may_grow(struct sg_unpickle *pickle, uint64_t bytes);

/* `count` cells in one piece, zeros. False: an error. */
bool sg_pickle_take_cells(struct sg_unpickle *pickle, uint64_t count, uint64_t *ret);

/* Puts `count` cells behind those that an object has. False: an error. */
bool sg_pickle_append(struct sg_unpickle *pickle, sg_value object, const uint64_t *item, size_t count);

/* Gives a key that `item` or the dictionary has already its new value. False: neither has it. */
bool sg_pickle_set_again(struct sg_unpickle *pickle, sg_value object, uint64_t *item, size_t count, uint64_t set);

#endif
