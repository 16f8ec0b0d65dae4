/* What finding free memory and finding a block costs, by structure and by how many there are: the core's index of
   maxima beside a balanced tree, its arrays beside two hash tables. Mean ns of an operation, best of several rounds. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "pointer_hash.h"

#include "idmap.h"
#include "max_tree.h"
#include "keytree.h"

enum { ROUNDS = 5, OPERATIONS = 200000, SPREAD = 4, SIZES = 1 << 12 };

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static uint32_t random_below(uint64_t *state, uint32_t bound)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)((*state >> 32) * bound >> 32);
}

static void *array_of(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    if (!memory)
        abort();
    return memory;
}

static volatile uint64_t sink; /* so that no search is left out */

/* A range is taken out, another put in at a free slot, and one of some size looked for: a free and an allocation. */
struct ranges {
    uint32_t count, slots;
    uint32_t *slot;            /* of each range */
    bool *taken;               /* by slot */
    struct sg_max_tree index;
    struct sg_keytree tree;
    struct sg_keynode *node;   /* of each range */
};

static uint32_t free_slot(struct ranges *ranges, uint64_t *state)
{
    uint32_t slot;
    do
        slot = random_below(state, ranges->slots);
    while (ranges->taken[slot]);
    ranges->taken[slot] = true;
    return slot;
}

static double index_round(struct ranges *ranges, uint64_t *state)
{
    double began = now_ns();
    for (int i = 0; i < OPERATIONS; i++) {
        uint32_t range = random_below(state, ranges->count);
        sg_max_tree_set(&ranges->index, ranges->slot[range], 0);
        ranges->taken[ranges->slot[range]] = false;
        ranges->slot[range] = free_slot(ranges, state);
        sg_max_tree_set(&ranges->index, ranges->slot[range], (int32_t)(1 + random_below(state, SIZES)));
        sink += sg_max_tree_first(&ranges->index, 0, (int32_t)(1 + random_below(state, SIZES)));
    }
    return (now_ns() - began) / OPERATIONS;
}

static double tree_round(struct ranges *ranges, uint64_t *state)
{
    double began = now_ns();
    for (int i = 0; i < OPERATIONS; i++) {
        uint32_t range = random_below(state, ranges->count);
        sg_keytree_erase(&ranges->tree, &ranges->node[range]);
        ranges->taken[ranges->slot[range]] = false;
        ranges->slot[range] = free_slot(ranges, state);
        sg_keytree_insert(&ranges->tree, &ranges->node[range], 1 + random_below(state, SIZES), ranges->slot[range]);
        sink += (uintptr_t)sg_keytree_at_least(&ranges->tree, 1 + random_below(state, SIZES), 0);
    }
    return (now_ns() - began) / OPERATIONS;
}

static double best(struct ranges *ranges, double (*round)(struct ranges *, uint64_t *))
{
    uint64_t state = 1;
    double least = 0;
    for (int i = 0; i < ROUNDS; i++) {
        double ns = round(ranges, &state);
        least = i == 0 || ns < least ? ns : least;
    }
    return least;
}

static void compare_ranges(uint32_t count)
{
    struct ranges ranges = {.count = count, .slots = count * SPREAD};
    uint64_t state = 1;
    ranges.slot = array_of(count, sizeof *ranges.slot);
    ranges.taken = array_of(ranges.slots, sizeof *ranges.taken);
    ranges.node = array_of(count, sizeof *ranges.node);
    if (!sg_max_tree_init(&ranges.index, ranges.slots, SG_MAX_TREE_EAGER))
        abort();
    for (uint32_t i = 0; i < count; i++) {
        uint32_t size = 1 + random_below(&state, SIZES);
        ranges.slot[i] = free_slot(&ranges, &state);
        sg_max_tree_set(&ranges.index, ranges.slot[i], (int32_t)size);
        sg_keytree_insert(&ranges.tree, &ranges.node[i], size, ranges.slot[i]);
    }
    double index = best(&ranges, index_round), tree = best(&ranges, tree_round);
    printf("%-14s %8u   index of maxima %7.1f   balanced tree %7.1f\n", "free ranges", count, index, tree);
    sg_max_tree_fini(&ranges.index);
    free(ranges.slot);
    free(ranges.taken);
    free(ranges.node);
}

struct entry {
    uint64_t address;
    UT_hash_handle hh;
};

/* A block's address leads to what is known of it: the first half of every free. */
static void compare_blocks(uint32_t count)
{
    uint32_t slots = count * SPREAD, *at = array_of(slots, sizeof *at), *position = array_of(count, sizeof *position);
    struct entry *entries = array_of(count, sizeof *entries), *table = NULL, *found;
    struct sg_idmap map;
    uint64_t state = 1;
    double least[3] = {0};
    if (!sg_idmap_init(&map))
        abort();
    for (uint32_t i = 0; i < count; i++) {
        position[i] = i * SPREAD + random_below(&state, SPREAD);
        at[position[i]] = i + 1;
        entries[i].address = (uint64_t)position[i] << 9;
        HASH_ADD(hh, table, address, sizeof entries[i].address, &entries[i]);
        if (!sg_idmap_put(&map, entries[i].address, i + 1))
            abort();
    }
    for (int round = 0; round < ROUNDS; round++) {
        double time[4] = {now_ns()};
        for (int i = 0; i < OPERATIONS; i++)
            sink += at[position[random_below(&state, count)]];
        time[1] = now_ns();
        for (int i = 0; i < OPERATIONS; i++)
            sink += sg_idmap_get(&map, (uint64_t)position[random_below(&state, count)] << 9);
        time[2] = now_ns();
        for (int i = 0; i < OPERATIONS; i++) {
            uint64_t address = (uint64_t)position[random_below(&state, count)] << 9;
            HASH_FIND(hh, table, &address, sizeof address, found);
            sink += (uintptr_t)found;
        }
        time[3] = now_ns();
        for (int i = 0; i < 3; i++) {
            double ns = (time[i + 1] - time[i]) / OPERATIONS;
            least[i] = round == 0 || ns < least[i] ? ns : least[i];
        }
    }
    printf("%-14s %8u   array by slot   %7.1f   idmap         %7.1f   uthash %7.1f\n", "block lookup", count, least[0],
           least[1], least[2]);
    HASH_CLEAR(hh, table);
    sg_idmap_fini(&map);
    free(at);
    free(position);
    free(entries);
}

int main(void)
{
    for (uint32_t count = 1000; count <= 1000000; count *= 10)
        compare_ranges(count);
    for (uint32_t count = 1000; count <= 1000000; count *= 10)
        compare_blocks(count);
    return 0;
}
