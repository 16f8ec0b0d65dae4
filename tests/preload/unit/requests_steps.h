/* Steps of tests of allocations and frees. */
#ifndef REQUESTS_STEPS_H
#define REQUESTS_STEPS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "inspect/core_state.h"
#include "serve/alloc.h"
#include "serve/callers.h"
#include "serve/free.h"
#include "serve/free_mode.h"
#include "serve/used_streams.h"
#include "track/captures.h"
#include "services/hazard_annotations.h"
#include "serve/deferred_frees.h"
#include "track/free_policy.h"
#include "track/graph_blocks.h"
#include "requests_fakes.h"
#include "report/refusals.h"
#include "track/streams.h"

/* The core's answers where there is no memory, and where it serves none. */
#define OUT CUDA_ERROR_OUT_OF_MEMORY
#define NO CUDA_ERROR_NOT_SUPPORTED

#define TEST(name) cmocka_unit_test_setup(name, start_afresh)

#endif
