/* A set of disjoint address ranges, ordered by address: a treap whose nodes know the largest range below them.
   Nodes are embedded in what they describe; the set owns nothing. No locking of its own. */
#ifndef SIM_RANGE_H
#define SIM_RANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_range {
    uint64_t base, size;
    uint64_t largest; /* size of the largest range of the subtree */
    uint32_t priority;
    struct sim_range *left, *right;
};

struct sim_ranges {
    struct sim_range *root;
};

/* `range->base` and `->size` (> 0) are set and overlap nothing in the set. */
void sim_ranges_insert(struct sim_ranges *set, struct sim_range *range);
void sim_ranges_remove(struct sim_ranges *set, struct sim_range *range);

/* The range that contains `address`; or NULL. */
struct sim_range *sim_ranges_find(const struct sim_ranges *set, uint64_t address);
/* The lowest range that ends after `address`: the one that contains it, else the next above; or NULL. */
struct sim_range *sim_ranges_at_or_after(const struct sim_ranges *set, uint64_t address);
/* The range that ends exactly at `address`; or NULL. */
struct sim_range *sim_ranges_ending_at(const struct sim_ranges *set, uint64_t address);
/* The lowest range of at least `size` bytes; or NULL. */
struct sim_range *sim_ranges_first_fit(const struct sim_ranges *set, uint64_t size);
bool sim_ranges_overlap(const struct sim_ranges *set, uint64_t base, uint64_t size);

#define SIM_CONTAINER(pointer, type, member) ((type *)(void *)((char *)(pointer) - offsetof(type, member)))

#endif
