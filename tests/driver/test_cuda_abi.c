#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "abi_table.h"

static void the_abi_header_agrees_with_cuda_h(void **state)
{
    (void)state;
    assert_true(abi_ours_count > 600);
    assert_int_equal(abi_ours_count, abi_theirs_count);
    unsigned wrong = 0;
    for (unsigned i = 0; i < abi_ours_count; i++) {
        assert_string_equal(abi_ours[i].what, abi_theirs[i].what);
        if (abi_ours[i].value == abi_theirs[i].value)
            continue;
        print_error("%s: %lld here, %lld in cuda.h\n", abi_ours[i].what, abi_ours[i].value, abi_theirs[i].value);
        wrong++;
    }
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_abi_header_agrees_with_cuda_h)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
