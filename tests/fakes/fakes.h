/* Fakes of a driver, of the core and of the rest of the library, for tests of single files of src/preload.

   A *fake* is a function in the place of another. It records its calls, and answers 0 or what the test says. Fakes of
   the driver are made from calls.def and hooks.def, those of the core and of the library from their headers
   (make_fakes.py). All of them are weak symbols: where a test links the source, or has a function of its own, that is
   taken. So a test writes down only what it needs more than an answer: outputs, and what happens meanwhile.

   For example, a free that the core refuses, and which is handed on then:

       ANSWER(sg_core_free, CUDA_ERROR_NOT_FOUND);
       assert_int_equal(cuMemFree_v2(4096), CUDA_SUCCESS);
       assert_int_equal(ARGUMENT(sg_core_free, 1), 4096);       the address, counted from 0
       assert_int_equal(CALLS(fake_real.cuMemFree_v2), 1);

   Limits. Only the latest call's arguments are kept, as 64 bits each: a narrow one of the driver has to be cast. Outputs
   stay as they are. Any thread may call a fake. */
#ifndef FAKES_H
#define FAKES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "driver/driver.h"
#include "process/hooks.h"

/* The tables that sg_process_driver() and sg_real() answer. A test may put functions of its own into them, and NULL for
   what a driver lacks. */
extern struct sg_driver fake_driver;
extern struct sg_real fake_real;

/* Called for each call, once it is recorded; returns what is answered. `result` is what would be. For tests in which many
   fakes do the same. */
struct fakes_function;
typedef uint64_t fakes_answer_fn(const struct fakes_function *function, uint64_t result);

/* Forgets all calls and answers, and puts the fakes back into the tables. `on_call` NULL: no function is called. */
void fakes_reset(fakes_answer_fn *on_call);
/* Forgets the calls alone. */
void fakes_forget_all(void);

/* Calls since the start, or since they were forgotten. */
#define CALLS(function) ((void)sizeof(&function), fakes_function(#function)->calls)
/* An argument of the latest call, 0 before the first. */
#define ARGUMENT(function, at) ((void)sizeof(&function), fakes_function(#function)->argument[at])
#define POINTER(function, at) ((void *)(uintptr_t)ARGUMENT(function, at))
/* The structure, of the core's or of a request, behind an argument of the latest call, as it was then. */
#define BEHIND(function, type) ((void)sizeof(&function), *(const type *)(const void *)fakes_function(#function)->kept)
/* Its answer from now on; and that to so many calls first. */
#define ANSWER(function, result) ((void)sizeof(&function), fakes_answer(#function, (uint64_t)(result)))
#define ANSWER_FIRST(times, function, result) \
    ((void)sizeof(&function), fakes_answer_first(#function, times, (uint64_t)(result)))
#define FORGET(function) ((void)sizeof(&function), fakes_forget(#function))
/* True if both were called, and the latest call of one before that of the other. */
#define IS_BEFORE(function, other) \
    ((void)sizeof(&function), (void)sizeof(&other), fakes_is_before(#function, #other))

/* Records a call with these arguments, and returns what the fake would answer. For a function of the test's own that
   stands in the place of a fake. */
#define RECORD(function, ...)                                                                                 \
    fakes_call(fakes_function(#function), (int)(sizeof(uint64_t[]){__VA_ARGS__} / sizeof(uint64_t)), \
        (const uint64_t[]){__VA_ARGS__})

enum { FAKES_ARGUMENTS = 14, FAKES_KEPT = 1024 };

struct fakes_function {
    const char *name;
    int calls, first;     /* the latter: calls that are still answered by `first_result` */
    uint64_t when;        /* number of the latest call among all */
    uint64_t result, first_result;
    const char *kinds; /* of the arguments, a letter each: p of a pointer, s of a struct, n of all else; NULL: the driver's */
    uint64_t argument[FAKES_ARGUMENTS];
    enum fakes_kind { FAKES_LIBRARY, FAKES_DRIVER, FAKES_REAL } kind; /* the latter two: of fake_driver, of fake_real */
    _Alignas(max_align_t) unsigned char kept[FAKES_KEPT];
};

/* The name of a driver's function without that of its table. */
static inline const char *fakes_symbol(const struct fakes_function *function)
{
    return function->kind == FAKES_LIBRARY ? function->name : strchr(function->name, '.') + 1;
}

/* The function of that name, made where it is new. `name` is a constant. */
struct fakes_function *fakes_function(const char *name);
uint64_t fakes_call(struct fakes_function *function, int count, const uint64_t *arguments);
void fakes_keep(struct fakes_function *function, const void *from, size_t bytes);
void fakes_answer(const char *name, uint64_t result);
void fakes_answer_first(const char *name, int times, uint64_t result);
void fakes_forget(const char *name);
bool fakes_is_before(const char *name, const char *other);

#endif
