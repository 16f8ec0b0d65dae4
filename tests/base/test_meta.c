/* Tables of which nearly nothing is used cost nearly nothing, in programs that lock their memory too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <sys/mman.h>

#include <cmocka.h>

#include "meta.h"

enum { BYTES = 256 << 20, PAGE = 4096, PAGES = BYTES / PAGE };

static unsigned resident(void *memory)
{
    static unsigned char page[PAGES];
    unsigned count = 0;
    assert_int_equal(mincore(memory, BYTES, page), 0);
    for (unsigned i = 0; i < PAGES; i++)
        count += page[i] & 1;
    return count;
}

static void is_touched_lazily(void **state)
{
    (void)state;
    char *memory = sg_meta_map(BYTES);
    assert_non_null(memory);
    assert_int_equal(resident(memory), 0);
    memory[PAGE * 1000] = 1;
    assert_int_equal(memory[BYTES - 1], 0);
    assert_true(resident(memory) < PAGES / 2);
    sg_meta_unmap(memory, BYTES);
}

static void is_not_locked_with_the_rest(void **state)
{
    if (mlockall(MCL_FUTURE) != 0)
        skip(); /* not allowed */
    char *memory = sg_meta_map(BYTES);
    if (memory) { /* else more than the program may lock */
        assert_int_equal(resident(memory), 0);
        memory[PAGE * 1000] = 1;
        assert_true(resident(memory) < PAGES / 2);
        sg_meta_unmap(memory, BYTES);
    }
    assert_int_equal(munlockall(), 0);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_touched_lazily),
        cmocka_unit_test(is_not_locked_with_the_rest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
