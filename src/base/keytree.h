/* An ordered set of intrusive nodes, each with a key of two numbers (major before minor): a treap.

   Nodes belong to the caller and are not allocated here. A node is in at most one tree; its key must not change while
   it is in one. Equal keys are allowed and keep no order among themselves. Insertion, removal and search take
   expected O(log n); removal compares no keys. The shape depends on the order of operations alone, so runs repeat
   exactly. No locking. */
#ifndef SG_KEYTREE_H
#define SG_KEYTREE_H

#include <stddef.h>
#include <stdint.h>

struct sg_keynode {
    struct sg_keynode *up, *left, *right;
    uint64_t major, minor;
    uint32_t rank;
};

/* All zero is the empty tree. */
struct sg_keytree {
    struct sg_keynode *root;
    uint32_t seed;
};

void sg_keytree_insert(struct sg_keytree *tree, struct sg_keynode *node, uint64_t major, uint64_t minor);
void sg_keytree_erase(struct sg_keytree *tree, struct sg_keynode *node);

/* The first node in order, and the node after one; NULL at the end. */
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
