#include "range.h"

#include <stddef.h>
#include <assert.h>

#include "base/wrap.h"

static uint64_t largest_of(const struct sim_range *node)
{
    return node ? node->largest : 0;
}

static void range_refresh(struct sim_range *node)
{
    uint64_t left = largest_of(node->left), right = largest_of(node->right);
    uint64_t below = left > right ? left : right;
    node->largest = node->size > below ? node->size : below;
}

/* Splits into ranges below and at or above `base`. */
static void range_split(struct sim_range *node, uint64_t base, struct sim_range **ret_low, struct sim_range **ret_high)
{
    if (!node) {
        *ret_low = *ret_high = NULL;
        return;
    }
    if (node->base < base) {
        range_split(node->right, base, &node->right, ret_high);
        *ret_low = node;
    } else {
        range_split(node->left, base, ret_low, &node->left);
        *ret_high = node;
    }
    range_refresh(node);
}

static struct sim_range *range_join(struct sim_range *low, struct sim_range *high)
{
    if (!low || !high)
        return low ? low : high;
    if (low->priority > high->priority) {
        low->right = range_join(low->right, high);
        range_refresh(low);
        return low;
    }
    high->left = range_join(low, high->left);
    range_refresh(high);
    return high;
}

/* The priority is a mix of the address: no state, and the shape of the tree is a function of its content. */
SG_WRAPS static uint32_t range_mix_address(uint64_t x)
{
    x = (x ^ (x >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    x = (x ^ (x >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    return (uint32_t)(x >> 32);
}

void sim_ranges_insert(struct sim_ranges *set, struct sim_range *range)
{
    assert(range->size > 0 && !sim_ranges_overlap(set, range->base, range->size));
    range->priority = range_mix_address(range->base);
    struct sim_range **link = &set->root;
    while (*link && (*link)->priority >= range->priority) {
        if ((*link)->largest < range->size)
            (*link)->largest = range->size;
        link = range->base < (*link)->base ? &(*link)->left : &(*link)->right;
    }
    range_split(*link, range->base, &range->left, &range->right);
    range_refresh(range);
    *link = range;
}

static struct sim_range *range_take_out(struct sim_range *node, struct sim_range *range)
{
    assert(node);
    if (node == range)
        return range_join(node->left, node->right);
    if (range->base < node->base)
        node->left = range_take_out(node->left, range);
    else
        node->right = range_take_out(node->right, range);
    range_refresh(node);
    return node;
}

void sim_ranges_remove(struct sim_ranges *set, struct sim_range *range)
{
    set->root = range_take_out(set->root, range);
}

struct sim_range *sim_ranges_at_or_after(const struct sim_ranges *set, uint64_t address)
{
    struct sim_range *best = NULL;
    for (struct sim_range *node = set->root; node;) {
        if (node->base + (node->size - 1) >= address) {
            best = node;
            node = node->left;
        } else {
            node = node->right;
        }
    }
    return best;
}

struct sim_range *sim_ranges_find(const struct sim_ranges *set, uint64_t address)
{
    struct sim_range *range = sim_ranges_at_or_after(set, address);
    return range && range->base <= address ? range : NULL;
}

struct sim_range *sim_ranges_ending_at(const struct sim_ranges *set, uint64_t address)
{
    struct sim_range *range = address ? sim_ranges_find(set, address - 1) : NULL;
    return range && range->base + range->size == address ? range : NULL;
}

struct sim_range *sim_ranges_first_fit(const struct sim_ranges *set, uint64_t size)
{
    struct sim_range *node = set->root;
    if (largest_of(node) < size)
        return NULL;
    for (;;) {
        if (largest_of(node->left) >= size)
            node = node->left;
        else if (node->size >= size)
            return node;
        else
            node = node->right;
    }
}

bool sim_ranges_overlap(const struct sim_ranges *set, uint64_t base, uint64_t size)
{
    struct sim_range *range = sim_ranges_at_or_after(set, base);
    return range && range->base < base + size;
}
