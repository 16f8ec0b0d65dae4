/* For example, of 100,000 blocks the one at an address is found by 17 comparisons. */
#include "serve/contents_places.h"

#include <stdlib.h>

#include "base/meta.h"

static int place_compare(const void *a, const void *b)
{
    const struct sg_place *x = a, *y = b;
    return (x->address > y->address) - (x->address < y->address);
}

bool sg_places_make(struct sg_places *ret, const struct sg_memory_piece *pieces, size_t count)
{
    struct sg_place *place = sg_meta_map(count * sizeof *place);
    if (!place)
        return false;
    for (size_t i = 0; i < count; i++)
        place[i] = (struct sg_place){.address = pieces[i].address, .bytes = pieces[i].bytes};
    qsort(place, count, sizeof *place, place_compare);
    *ret = (struct sg_places){place, count};
    return true;
}

void sg_places_drop(struct sg_places *places)
{
    sg_meta_unmap(places->place, places->count * sizeof *places->place);
    *places = (struct sg_places){0};
}

struct sg_place *sg_places_find(const struct sg_places *places, CUdeviceptr address)
{
    size_t first = 0, end = places->count; /* places before `first` begin at or before the address */
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (places->place[middle].address <= address)
            first = middle + 1;
        else
            end = middle;
    }
    struct sg_place *place = first ? &places->place[first - 1] : NULL;
    return place && address - place->address < place->bytes ? place : NULL;
}

struct sg_place *sg_places_find_block(const struct sg_places *places, CUdeviceptr address, uint64_t bytes)
{
    struct sg_place *place = sg_places_find(places, address);
    return place && place->address == address && place->bytes == bytes ? place : NULL;
}

bool sg_places_choose(struct sg_places *places, const struct sg_memory_piece *pieces, size_t count)
{
    for (size_t i = 0; i < places->count; i++)
        places->place[i].chosen = false;
    for (size_t i = 0; i < count; i++) {
        struct sg_place *place = sg_places_find_block(places, pieces[i].address, pieces[i].bytes);
        if (!place)
            return false;
        place->chosen = true;
    }
    return true;
}
