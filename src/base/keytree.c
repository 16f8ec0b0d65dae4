#include "keytree.h"

#include <assert.h>
#include <stdbool.h>

#include "wrap.h"

static bool keynode_is_below(const struct sg_keynode *a, const struct sg_keynode *b)
{
    return a->major < b->major || (a->major == b->major && a->minor < b->minor);
}

/* The next rank of the tree. Marsaglia, "Xorshift RNGs" (2003), with shifts 13, 17 and 5. */
SG_WRAPS static uint32_t keytree_next_rank(struct sg_keytree *tree)
{
    uint32_t x = tree->seed ? tree->seed : 0x9e3779b9u; /* a seed of 0 would stay 0 */
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return tree->seed = x;
}

/* The pointer that names a node: of its parent, or the root. */
static struct sg_keynode **keytree_link_to(struct sg_keytree *tree, struct sg_keynode *node)
{
    if (!node->up)
        return &tree->root;
    return node->up->left == node ? &node->up->left : &node->up->right;
}

void sg_keytree_insert(struct sg_keytree *tree, struct sg_keynode *node, uint64_t major, uint64_t minor)
{
    node->major = major;
    node->minor = minor;
    node->rank = keytree_next_rank(tree);

    /* Down by key, to where the first node of a lower rank stands: the new node takes its place. */
    struct sg_keynode *up = NULL, **link = &tree->root;
    while (*link && (*link)->rank >= node->rank) {
        up = *link;
        link = keynode_is_below(up, node) ? &up->right : &up->left;
    }
    struct sg_keynode *rest = *link; /* goes below the new node, cut in two at its key */
    *link = node;
    node->up = up;

    /* Cuts that subtree at the key. `low` is the pointer where the next smaller piece goes, `high` that of the larger. */
    struct sg_keynode **low = &node->left, **high = &node->right, *low_up = node, *high_up = node;
    while (rest) {
        if (keynode_is_below(rest, node)) {
            *low = rest;
            rest->up = low_up;
            low_up = rest;
            low = &rest->right;
            rest = *low;
        } else {
            *high = rest;
            rest->up = high_up;
            high_up = rest;
            high = &rest->left;
            rest = *high;
        }
    }
    *low = *high = NULL;
}

void sg_keytree_erase(struct sg_keytree *tree, struct sg_keynode *node)
{
    struct sg_keynode **link = keytree_link_to(tree, node), *up = node->up, *low = node->left, *high = node->right;
    assert(*link == node);
    /* Joins the two subtrees in the node's place: the root of higher rank goes up, and its inner side is joined next. */
    while (low && high) {
        if (low->rank > high->rank) {
            *link = low;
            low->up = up;
            up = low;
            link = &low->right;
            low = *link;
        } else {
            *link = high;
            high->up = up;
            up = high;
            link = &high->left;
            high = *link;
        }
    }
    *link = low ? low : high;
    if (*link)
        (*link)->up = up;
}

struct sg_keynode *sg_keytree_first(const struct sg_keytree *tree)
{
    struct sg_keynode *node = tree->root;
    while (node && node->left)
        node = node->left;
    return node;
}

struct sg_keynode *sg_keytree_last(const struct sg_keytree *tree)
{
    struct sg_keynode *node = tree->root;
    while (node && node->right)
        node = node->right;
    return node;
}

struct sg_keynode *sg_keytree_next(const struct sg_keynode *node)
{
    if (node->right) {
        struct sg_keynode *next = node->right;
        while (next->left)
            next = next->left;
        return next;
    }
    while (node->up && node->up->right == node)
        node = node->up;
    return node->up;
}

struct sg_keynode *sg_keytree_prev(const struct sg_keynode *node)
{
    if (node->left) {
        struct sg_keynode *prev = node->left;
        while (prev->right)
            prev = prev->right;
        return prev;
    }
    while (node->up && node->up->left == node)
        node = node->up;
    return node->up;
}
