/* loaded_code.h against the loader: it finds what dlsym() and dladdr() find, and needs no lock of theirs. The libraries
   are given as arguments: symbols by either kind of table, and symbols with versions. */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "process/loaded_code.h"

static const char *paths[3]; /* newer, older, with versions */

static const char *const bases[] = {"cuInit", "cuMemAlloc", "cuMemAlloc_v", "cuStream", "cuEvent"};

static bool is_alias(const char *name)
{
    return strcmp(name, "cuAlias") == 0;
}

static bool is_none(const char *name)
{
    (void)name;
    return false;
}

static void expect(const struct sg_loaded *library, void *handle, const char *name)
{
    void *found = &found;
    assert_true(sg_loaded_symbol(library, "cuInit", name, &found));
    assert_ptr_equal(found, dlsym(handle, name));
    if (!found || strcmp(name, "cuInit") == 0)
        return;
    const char *known = sg_loaded_name(found, is_none);
    assert_non_null(known);
    assert_string_equal(known, name);
    assert_null(sg_loaded_name((const char *)found + 1, is_none)); /* not its beginning */
}

static void symbols_are_those_of_dlsym(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        void *handle = dlopen(paths[i], RTLD_NOW);
        struct sg_loaded library;
        char name[64];
        assert_non_null(handle);
        assert_true(sg_loaded_of(handle, &library));
        assert_string_equal(library.path, paths[i]);
        for (size_t b = 0; b < sizeof bases / sizeof *bases; b++) {
            for (int digit = 0; digit < 12; digit++) { /* the last two are not there */
                snprintf(name, sizeof name, "%s%d", bases[b], digit);
                expect(&library, handle, name);
            }
        }
        expect(&library, handle, "cuInit");
        expect(&library, handle, "cuNothing");
        expect(&library, handle, "");
        assert_string_equal(sg_loaded_name(dlsym(handle, "cuInit"), is_alias), "cuAlias");
        void *found = NULL;
        assert_false(sg_loaded_symbol(&library, "cuInit", "cuChosen", &found)); /* the loader alone has its address */
        assert_false(sg_loaded_symbol(&library, "cuAnother", "cuInit", &found));
        assert_true(sg_loaded_symbol(&library, "cuInit", "getpid", &found)); /* it is used there, not defined */
        assert_null(found);
        dlclose(handle);
    }
}

static void symbols_with_versions_are_left_to_dlsym(void **state)
{
    struct sg_loaded library;
    void *handle = dlopen(paths[2], RTLD_NOW), *found = NULL;
    (void)state;
    assert_true(sg_loaded_of(handle, &library));
    assert_false(sg_loaded_symbol(&library, "cuInit", "cuMemAlloc1", &found));
    assert_null(found);
    dlclose(handle);
}

static void addresses_are_found_in_their_library(void **state)
{
    struct sg_loaded library;
    int variable;
    (void)state;
    assert_true(sg_loaded_at(paths, &library));
    assert_true((uintptr_t)paths >= library.start && (uintptr_t)paths < library.end);
    assert_string_equal(library.path, "");
    assert_false(sg_loaded_at(&variable, &library));
    assert_null(sg_loaded_name(&variable, is_none));
}

#define TEST(name) cmocka_unit_test(name)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(symbols_are_those_of_dlsym),
        TEST(symbols_with_versions_are_left_to_dlsym),
        TEST(addresses_are_found_in_their_library),
    };
    for (int i = 0; i < 3 && i + 1 < argc; i++)
        paths[i] = argv[i + 1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
