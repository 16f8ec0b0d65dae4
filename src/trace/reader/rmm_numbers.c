#include "reader/rmm_numbers.h"

#include <stdlib.h>

#include "base/wrap.h"

enum { LEAST_ROOM = 64 };

/* The entry of a value, or the empty place where it would go. */
static struct sg_rmm_number *numbers_probe(const struct sg_rmm_numbers *numbers, uint64_t value)
{
    uint64_t at = sg_hash(value) >> 20;
    for (;; at++) {
        struct sg_rmm_number *entry = &numbers->entry[at & (numbers->room - 1)];
        if (!entry->index || entry->value == value)
            return entry;
    }
}

static bool numbers_grow(struct sg_rmm_numbers *numbers)
{
    struct sg_rmm_numbers grown = {.room = numbers->room ? numbers->room * 2 : LEAST_ROOM, .used = numbers->used};
    grown.entry = calloc(grown.room, sizeof(*grown.entry));
    if (!grown.entry)
        return false;
    for (uint32_t i = 0; i < numbers->room; i++)
        if (numbers->entry[i].index)
            *numbers_probe(&grown, numbers->entry[i].value) = numbers->entry[i];
    free(numbers->entry);
    *numbers = grown;
    return true;
}

struct sg_rmm_number *sg_rmm_number_intern(struct sg_rmm_numbers *numbers, uint64_t value, bool *ret_new)
{
    if (numbers->used * 2 >= numbers->room && !numbers_grow(numbers))
        return NULL;
    struct sg_rmm_number *entry = numbers_probe(numbers, value);
    *ret_new = !entry->index;
    if (!entry->index)
        *entry = (struct sg_rmm_number){.value = value, .index = ++numbers->used};
    return entry;
}
