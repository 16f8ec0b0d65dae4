/* What the tests of the runtime share: cmocka, the entries as programs see them, and a check that names the error. */
#ifndef CUDART_TEST_H
#define CUDART_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "array.h"
#include "entry.h"
#include "error.h"
#include "launch.h"
#include "registry.h"

/* Fails, with the names of both errors, unless `call` returns `expected`. */
#define expect_error(expected, call) \
    do { \
        cudaError_t got_ = (call); \
        if (got_ != (expected)) \
            fail_msg("%s: %s, not %s", #call, cudaGetErrorName(got_), cudaGetErrorName(expected)); \
    } while (0)
#define ok(call) expect_error(cudaSuccess, call)

#endif
