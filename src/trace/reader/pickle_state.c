#include "reader/pickle_state.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sg_pickle_note_error(struct sg_unpickle *pickle, int status, const char *text)
{
    if (pickle->status)
        return;
    pickle->status = status;
    snprintf(pickle->error, SG_UNPICKLE_ERROR, "byte %" PRIu64 ": %s", sg_pickle_offset(pickle), text);
}

bool sg_pickle_may_grow(struct sg_unpickle *pickle, uint64_t bytes)
{
    return bytes <= sg_unpickle_spare(pickle) ||
           sg_pickle_fail(pickle, -EFBIG, "this pickle needs more memory than its size accounts for");
}

bool sg_pickle_take_cells(struct sg_unpickle *pickle, uint64_t count, uint64_t *ret)
{
    assert(count <= SG_PICKLE_CHUNK_CELLS);
    /* Cells of one piece lie in one chunk, so the rest of a chunk that is too small is left. */
    uint64_t left = pickle->chunks * SG_PICKLE_CHUNK_CELLS - pickle->cells;
    if (left < count) {
        if (!sg_pickle_may_grow(pickle, SG_PICKLE_CHUNK_CELLS * sizeof(uint64_t)))
            return false;
        uint64_t **chunk = realloc(pickle->chunk, (pickle->chunks + 1) * sizeof(*chunk));
        if (!chunk)
            return sg_pickle_fail(pickle, -ENOMEM, "out of memory");
        pickle->chunk = chunk;
        if (!(chunk[pickle->chunks] = calloc(SG_PICKLE_CHUNK_CELLS, sizeof(uint64_t))))
            return sg_pickle_fail(pickle, -ENOMEM, "out of memory");
        pickle->cells = pickle->chunks++ * SG_PICKLE_CHUNK_CELLS;
        if (!pickle->cells)
            pickle->cells = 1;
    }
    *ret = pickle->cells;
    pickle->cells += count;
    return true;
}

bool sg_pickle_append(struct sg_unpickle *pickle, sg_value object, const uint64_t *item, size_t count)
{
    while (count) {
        size_t part = count < SG_PICKLE_RUN_MOST ? count : SG_PICKLE_RUN_MOST;
        uint64_t index, *whole = sg_pickle_cell(pickle, sg_value_number(object));
        if (!sg_pickle_take_cells(pickle, part + 1, &index))
            return false;
        *sg_pickle_cell(pickle, index) = part; /* the next run's index stands above the count */
        memcpy(sg_pickle_cell(pickle, index) + 1, item, part * sizeof(*item));
        if (whole[1])
            *sg_pickle_cell(pickle, whole[1]) |= index << SG_PICKLE_COUNT_BITS;
        else
            whole[0] = index;
        whole[1] = index;
        item += part;
        count -= part;
    }
    return true;
}

/* Looks through the items that are being set, and then through those of the dictionary. A dictionary has as many items as
   there are words at most, since each word is in it once. */
bool sg_pickle_set_again(struct sg_unpickle *pickle, sg_value object, uint64_t *item, size_t count, uint64_t set)
{
    uint64_t key = set >> SG_PICKLE_VALUE_BITS;
    for (size_t i = 0; i < count; i++)
        if (item[i] >> SG_PICKLE_VALUE_BITS == key) {
            item[i] = set;
            return true;
        }
    for (uint64_t run = *sg_pickle_cell(pickle, sg_value_number(object)); run;
         run = *sg_pickle_cell(pickle, run) >> SG_PICKLE_COUNT_BITS) {
        uint64_t *old = sg_pickle_cell(pickle, run);
        for (unsigned i = 1; i <= (*old & SG_PICKLE_COUNT_MASK); i++)
            if (old[i] >> SG_PICKLE_VALUE_BITS == key) {
                old[i] = set;
                return true;
            }
    }
    return false;
}
