/* The library's exports by name and version node, as programs linked with NVIDIA's ask for them; and every error has
   its name and text. usage: test_exports LIBRARY */
#include "cudart_test.h"

#include <dlfcn.h>

#if CUDART_MAJOR == 12
#define NODE "libcudart.so.12"
#else
#define NODE "libcudart.so.13"
#endif

static void *library;

static void find(const char *name)
{
    if (!dlvsym(library, name, NODE))
        fail_msg("%s@%s is not there", name, NODE);
}

#define FIND_ONE(name) find(#name);
#define FIND_PTSZ(name) find(#name); find(#name "_ptsz");
#define FIND_PTDS(name) find(#name); find(#name "_ptds");

static void every_entry_is_there(void **state)
{
    (void)state;
#define CALL(majors, streams, name, parameters, arguments) IN_##majors(FIND_##streams(name))
#define CALL0(majors, name) IN_##majors(FIND_ONE(name))
#define PASS(majors, streams, need, name, function, parameters, arguments) IN_##majors(FIND_##streams(name))
#define EXPORT(majors, name) IN_##majors(FIND_ONE(name))
#define ABSENT(majors, streams, name) IN_##majors(FIND_##streams(name))
#include "entry.def"
}

static void nothing_else_is(void **state)
{
    (void)state;
    assert_null(dlsym(library, "sg_rt_load"));
    assert_null(dlsym(library, "sg_cudaMalloc"));
    if (CUDART_MAJOR == 13)
        assert_null(dlsym(library, "cudaGetDeviceProperties_v2"));
    else
        assert_null(dlsym(library, "cudaLogsCurrent"));
}

static void every_error_has_a_text(void **state)
{
    (void)state;
    const char *(*name_of)(cudaError_t), *(*text_of)(cudaError_t);
    void *address = dlsym(library, "cudaGetErrorName");
    memcpy(&name_of, &address, sizeof name_of);
    address = dlsym(library, "cudaGetErrorString");
    memcpy(&text_of, &address, sizeof text_of);
#define DRIVER(number, name) \
    assert_string_equal(name_of(number), #name); \
    assert_non_null(text_of(number));
#define RUNTIME(number, name, text) DRIVER(number, name)
#include "error.def"
    assert_string_equal(text_of(2), "out of memory");
    assert_string_equal(text_of(1), "invalid argument");
    assert_string_equal(name_of(-5), "unrecognized error code");
}

int main(int argc, char **argv)
{
    library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) {
        fprintf(stderr, "usage: test_exports LIBRARY: %s\n", argc > 1 ? dlerror() : "which?");
        return 2;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_entry_is_there),
        cmocka_unit_test(nothing_else_is),
        cmocka_unit_test(every_error_has_a_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
