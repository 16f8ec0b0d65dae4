/* torch.nonzero, and so tensors indexed by a mask: how many elements are not zero, where they are in the flat tensor, and
   their indices in each dimension (Nonzero.cu). The host decides by the first how much memory it asks for. */
#include "kernels/integers_find.h"

#include "base/wrap.h"
#include "sim.h"

/* CUB's sum of few elements, or the first pass over many: a partial result for each block of the launch. All of the sum
   is the first block's here. */
SG_WRAPS void sim_integers_count(const struct kept *kept)
{
    const struct sim_integers *what = &kept->what;
    uint64_t from = argument_pointer(sim_integers_argument(kept, 0)),
             to = argument_pointer(sim_integers_argument(kept, 1));
    uint64_t elements = argument_word(sim_integers_argument(kept, 2)), size = sim_values_size(what->type);
    uint64_t parts = what->form == SIM_FORM_COUNT_PARTS ? kept->count : 1;
    if (elements == 0 || elements > ELEMENTS_MOST)
        return;
    sim_lock();
    bool fine = sim_integers_there(from, elements * size, false) &&
                sim_integers_there(to, parts * sizeof(int32_t), true);
    sim_unlock();
    if (!fine)
        return;
    uint64_t sum = 0;
    for (uint64_t n = 0; n < elements; n++) {
        int64_t value = integer_load((const void *)(uintptr_t)(from + n * size), what->type);
        sum += what->operation == SIM_COUNT ? value != 0 : (uint64_t)value;
    }
    for (uint64_t n = 0; n < parts; n++)
        integer_store((void *)(uintptr_t)(to + n * sizeof(int32_t)), 'i', n == 0 ? (int64_t)sum : 0);
}

/* Before a selection: none so far. */
void sim_integers_select_begin(const struct kept *kept)
{
    uint64_t to = argument_pointer(sim_integers_argument(kept, 2)), size = sim_values_size(kept->what.type);
    sim_lock();
    bool fine = sim_integers_there(to, size, true);
    sim_unlock();
    if (fine)
        integer_store((void *)(uintptr_t)to, kept->what.type, 0);
}

/* CUB's selection among consecutive numbers by flags. */
SG_WRAPS void sim_integers_select(const struct kept *kept)
{
    char type = kept->what.type;
    uint64_t first = argument_pointer(sim_integers_argument(kept, 0)),
             flags = argument_pointer(sim_integers_argument(kept, 1));
    uint64_t to = argument_pointer(sim_integers_argument(kept, 2)),
             selected = argument_pointer(sim_integers_argument(kept, 3));
    uint64_t elements = argument_word(sim_integers_argument(kept, 7)), size = sim_values_size(type), found = 0;
    if (elements == 0 || elements > ELEMENTS_MOST)
        return;
    sim_lock();
    bool fine = sim_integers_there(flags, elements * size, false) && sim_integers_there(selected, sizeof(int32_t), true);
    for (uint64_t n = 0; fine && n < elements; n++)
        found += integer_load((const void *)(uintptr_t)(flags + n * size), type) != 0;
    fine = fine && (found == 0 || sim_integers_there(to, found * sizeof(int64_t), true));
    sim_unlock();
    if (!fine)
        return;
    uint64_t written = 0;
    for (uint64_t n = 0; n < elements && written < found; n++) {
        if (integer_load((const void *)(uintptr_t)(flags + n * size), type))
            integer_store((void *)(uintptr_t)(to + written++ * sizeof(int64_t)), 'l', (int64_t)(first + n));
    }
    integer_store((void *)(uintptr_t)selected, 'i', (int64_t)found);
}

/* Flat indices become a row for each dimension, in their place. */
void sim_integers_unravel(const struct kept *kept)
{
    unsigned element = kept->what.element;
    uint64_t at = argument_pointer(sim_integers_argument(kept, 0));
    const unsigned char *sizes = sim_integers_argument(kept, 1), *given = sim_integers_argument(kept, 3);
    uint64_t dims = argument_word(sim_integers_argument(kept, 2)),
             found = element == 8 ? argument_pointer(given) : argument_word(given);
    if (found == 0 || found > ELEMENTS_MOST || dims == 0 || dims > UNRAVELLED_DIMS)
        return;
    uint64_t size[UNRAVELLED_DIMS];
    bool fine = true;
    for (uint64_t d = 0; d < dims; d++) {
        size[d] = element == 8 ? argument_pointer(sizes + 8 * d) : argument_word(sizes + 4 * d);
        fine = fine && size[d] != 0;
    }
    sim_lock();
    fine = fine && sim_integers_there(at, found * dims * sizeof(int64_t), true);
    sim_unlock();
    for (uint64_t n = 0; fine && n < found; n++) {
        uint64_t flat = argument_pointer((const unsigned char *)(uintptr_t)at + 8 * n);
        for (uint64_t d = dims; d-- > 0; flat /= size[d])
            integer_store((void *)(uintptr_t)(at + 8 * (d * found + n)), 'l', (int64_t)(flat % size[d]));
    }
}
