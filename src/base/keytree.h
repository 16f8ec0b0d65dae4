/* An ordered set of nodes, each with a key of two numbers, major before minor: a treap.

   A *treap* is a binary tree by key and at the same time a heap by *rank*. A rank is a pseudo-random number that a node
   draws as it comes in. Nobody rebalances the tree: ranks make its expected depth logarithmic, whatever the order of the keys.

   Why not an array or a hash: PyTorch's rules ask for an ordered search, among up to tens of thousands of free blocks.
   They take the smallest block of at least a size, and of equal ones that with the lowest address.

   Nodes are *intrusive*: they stand inside the caller's own structures, and nothing is allocated here. A node is in one
   tree at most, and its key does not change while it is there. Equal keys are allowed and keep no order among
   themselves. Insertion, removal and search take expected O(log n); removal compares no keys. Ranks come from a seed in
   the tree, so equal runs build equal trees. No locking: one thread at a time.

   Example, free blocks by (size in MiB, address).
     insert (2, 0x40), (8, 0x10), (2, 0x20), (20, 0x80)
     first            (2, 0x20)    sizes are equal, the lower address is first
     at_least (3, 0)  (8, 0x10)    the smallest that a request of 3 MiB fits in
     next of that     (20, 0x80)
     at_least (21, 0) NULL */
#ifndef SG_KEYTREE_H
#define SG_KEYTREE_H

#include <stddef.h>
#include <stdint.h>

struct sg_keynode {
    struct sg_keynode *up, *left, *right; /* up: NULL at the root */
    uint64_t major, minor;                /* the key */
    uint32_t rank;                        /* no child has a higher one */
};

/* All zero is the empty tree. */
struct sg_keytree {
    struct sg_keynode *root;
    uint32_t seed; /* of the next rank; 0: the first one */
};

/* Puts a node that is in no tree under the key (major, minor). sg_keytree_erase() takes out one that is in this tree. */
void sg_keytree_insert(struct sg_keytree *tree, struct sg_keynode *node, uint64_t major, uint64_t minor);
void sg_keytree_erase(struct sg_keytree *tree, struct sg_keynode *node);

/* The node with the lowest key, with the highest, after one and before one; NULL where there is none. */
struct sg_keynode *sg_keytree_first(const struct sg_keytree *tree);
struct sg_keynode *sg_keytree_last(const struct sg_keytree *tree);
struct sg_keynode *sg_keytree_next(const struct sg_keynode *node);
struct sg_keynode *sg_keytree_prev(const struct sg_keynode *node);

/* The first node whose key is not below (major, minor), or NULL. */
static inline struct sg_keynode *sg_keytree_at_least(const struct sg_keytree *tree, uint64_t major, uint64_t minor)
{
    struct sg_keynode *node = tree->root, *best = NULL;
    while (node) {
        if (node->major > major || (node->major == major && node->minor >= minor)) {
            best = node;
            node = node->left;
        } else {
            node = node->right;
        }
    }
    return best;
}

#endif
