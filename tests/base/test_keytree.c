#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "keytree.h"

enum { NODES = 400, STEPS = 20000 };

static bool before(const struct sg_keynode *a, const struct sg_keynode *b)
{
    return a->major < b->major || (a->major == b->major && a->minor < b->minor);
}

/* Walks the tree both ways against the list of nodes known to be in it. */
static void check(const struct sg_keytree *tree, const struct sg_keynode *nodes, const bool *in)
{
    size_t expected = 0, count = 0;
    for (size_t i = 0; i < NODES; i++)
        expected += in[i];
    const struct sg_keynode *last = NULL;
    for (const struct sg_keynode *node = sg_keytree_first(tree); node; node = sg_keytree_next(node)) {
        assert_true(in[node - nodes]);
        assert_true(!last || !before(node, last));
        assert_ptr_equal(sg_keytree_prev(node), last);
        last = node;
        count++;
    }
    assert_int_equal(count, expected);
    assert_ptr_equal(sg_keytree_last(tree), last);
}

static void against_a_list(void **state)
{
    (void)state;
    struct sg_keytree tree = {0};
    struct sg_keynode *nodes = calloc(NODES, sizeof *nodes);
    bool in[NODES] = {false};
    uint64_t random = 42;
    assert_non_null(nodes);
    assert_null(sg_keytree_first(&tree));
    assert_null(sg_keytree_at_least(&tree, 0, 0));
    for (size_t step = 0; step < STEPS; step++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        size_t i = (random >> 33) % NODES;
        if (in[i])
            sg_keytree_erase(&tree, &nodes[i]);
        else
            sg_keytree_insert(&tree, &nodes[i], random >> 60, i % 7);
        in[i] = !in[i];

        uint64_t major = random >> 20 & 15, minor = random >> 12 & 7;
        const struct sg_keynode *found = sg_keytree_at_least(&tree, major, minor), *best = NULL;
        for (size_t j = 0; j < NODES; j++) {
            bool enough = nodes[j].major > major || (nodes[j].major == major && nodes[j].minor >= minor);
            if (in[j] && enough && (!best || before(&nodes[j], best)))
                best = &nodes[j];
        }
        assert_true((found == NULL) == (best == NULL));
        assert_true(!found || (found->major == best->major && found->minor == best->minor));
        if (step % 97 == 0)
            check(&tree, nodes, in);
    }
    for (size_t i = 0; i < NODES; i++) {
        if (in[i])
            sg_keytree_erase(&tree, &nodes[i]);
    }
    assert_null(sg_keytree_first(&tree));
    free(nodes);
}

/* Keys that come in order must not make a list of the tree. */
static void stays_shallow(void **state)
{
    (void)state;
    enum { MANY = 1 << 16, DEPTH = 64 };
    struct sg_keytree tree = {0};
    struct sg_keynode *nodes = calloc(MANY, sizeof *nodes);
    assert_non_null(nodes);
    for (size_t i = 0; i < MANY; i++)
        sg_keytree_insert(&tree, &nodes[i], i, 0);
    for (size_t i = 0; i < MANY; i++) {
        size_t depth = 0;
        for (const struct sg_keynode *node = &nodes[i]; node->up; node = node->up)
            depth++;
        assert_true(depth < DEPTH);
    }
    free(nodes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(against_a_list),
        cmocka_unit_test(stays_shallow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
