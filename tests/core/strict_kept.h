/* Checks of what the strict driver has seen, for tests with cmocka. */
#ifndef TEST_STRICT_KEPT_H
#define TEST_STRICT_KEPT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "strict_driver.h"

/* No rule of the driver was broken. */
static inline void strict_expect_kept(void)
{
    const char *what;
    if (strict_broken(&what))
        fail_msg("a rule of the driver was broken: %s", what);
}

/* In addition, no handle, mapping, reservation or event is left: the core has ended. */
static inline void strict_expect_over(void)
{
    strict_expect_kept();
    assert_int_equal(strict_leaks(), 0);
}

#endif
