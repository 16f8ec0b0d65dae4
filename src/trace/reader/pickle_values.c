/* Reading of the values that a pickle has made. A look-up goes through the items of a dictionary. Each
   word is in it once, so there are as many items as words at most. */
#include "reader/pickle_values.h"

#include "reader/pickle_state.h"

uint64_t sg_unpickle_spare(const struct sg_unpickle *pickle)
{
    uint64_t held = pickle->chunks * SG_PICKLE_CHUNK_CELLS * sizeof(uint64_t) +
                    (pickle->stack_room + pickle->memo_room) * sizeof(sg_value);
    uint64_t most = SG_PICKLE_MEMORY_LEAST + 2 * pickle->read;
    return held < most ? most - held : 0;
}

sg_value sg_unpickle_get(const struct sg_unpickle *pickle, sg_value dict, unsigned key)
{
    if (sg_value_kind(dict) != SG_VALUE_DICT)
        return SG_VALUE_OTHER;
    for (uint64_t run = *sg_pickle_cell(pickle, sg_value_number(dict)); run;
         run = *sg_pickle_cell(pickle, run) >> SG_PICKLE_COUNT_BITS) {
        const uint64_t *item = sg_pickle_cell(pickle, run);
        unsigned count = *item & SG_PICKLE_COUNT_MASK;
        for (unsigned i = 1; i <= count; i++)
            if (item[i] >> SG_PICKLE_VALUE_BITS == key)
                return item[i] & SG_PICKLE_VALUE_MASK;
    }
    return SG_VALUE_OTHER;
}

bool sg_unpickle_number(const struct sg_unpickle *pickle, sg_value dict, unsigned key, uint64_t *ret)
{
    sg_value value = sg_unpickle_get(pickle, dict, key);
    if (sg_value_kind(value) != SG_VALUE_NUMBER)
        return false;
    *ret = sg_value_number(value);
    return true;
}

bool sg_unpickle_next(const struct sg_unpickle *pickle, struct sg_unpickle_cursor *cursor, sg_value *ret)
{
    if (sg_value_kind(cursor->list) != SG_VALUE_LIST)
        return false;
    if (!cursor->begun) {
        cursor->run = *sg_pickle_cell(pickle, sg_value_number(cursor->list));
        cursor->begun = true;
    } else if (cursor->run && cursor->at == (*sg_pickle_cell(pickle, cursor->run) & SG_PICKLE_COUNT_MASK)) {
        cursor->run = *sg_pickle_cell(pickle, cursor->run) >> SG_PICKLE_COUNT_BITS;
        cursor->at = 0;
    }
    if (!cursor->run)
        return false;
    *ret = sg_pickle_cell(pickle, cursor->run)[++cursor->at];
    return true;
}
