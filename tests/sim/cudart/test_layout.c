/* The runtime's types against the header that programs are compiled with. */
#include "cudart_test.h"

#include "layout_table.h"

static void agrees_with_the_header(void **state)
{
    (void)state;
    for (const struct layout *a = ours, *b = theirs; a->name; a++, b++) {
        assert_string_equal(a->name, b->name);
        if (a->value != b->value)
            fail_msg("%s: %zu here, %zu in cuda_runtime_api.h", a->name, a->value, b->value);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(agrees_with_the_header)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
