/* Two runtimes in one process share the device's primary context, and each survives a reset by the other.
   usage: test_both LIBRARY LIBRARY */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <dlfcn.h>

static struct runtime {
    int (*malloc)(void **, size_t);
    int (*free)(void *);
    int (*memset)(void *, int, size_t);
    int (*reset)(void);
    int (*last_error)(void);
} a, b;

static int load(const char *path, struct runtime *ret)
{
    static const struct {
        const char *name;
        size_t slot;
    } functions[] = {
        {"cudaMalloc", offsetof(struct runtime, malloc)},       {"cudaFree", offsetof(struct runtime, free)},
        {"cudaMemset", offsetof(struct runtime, memset)},       {"cudaDeviceReset", offsetof(struct runtime, reset)},
        {"cudaGetLastError", offsetof(struct runtime, last_error)},
    };
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; library && i < sizeof functions / sizeof *functions; i++) {
        void *address = dlsym(library, functions[i].name);
        memcpy((char *)ret + functions[i].slot, &address, sizeof address);
    }
    return library ? 0 : -1;
}

static void share_memory(void **state)
{
    (void)state;
    void *p = NULL;
    assert_int_equal(a.malloc(&p, 1 << 20), 0);
    assert_int_equal(b.memset(p, 1, 1 << 20), 0);
    assert_int_equal(b.free(p), 0);
    assert_int_equal(a.free(p), 1);
    assert_int_equal(b.last_error(), 0);
    assert_int_equal(a.last_error(), 1);
}

static void survive_a_reset(void **state)
{
    (void)state;
    void *p = NULL;
    assert_int_equal(a.malloc(&p, 1 << 20), 0);
    assert_int_equal(b.malloc(&p, 1 << 20), 0);
    assert_int_equal(a.reset(), 0);
    assert_int_equal(b.malloc(&p, 1 << 20), 0);
    assert_int_equal(b.memset(p, 1, 1 << 20), 0);
    assert_int_equal(a.free(p), 0);
    assert_int_equal(b.reset(), 0);
    assert_int_equal(a.malloc(&p, 1 << 20), 0);
    assert_int_equal(a.free(p), 0);
}

int main(int argc, char **argv)
{
    if (argc != 3 || load(argv[1], &a) || load(argv[2], &b)) {
        fprintf(stderr, "usage: test_both LIBRARY LIBRARY\n");
        return 2;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(share_memory), cmocka_unit_test(survive_a_reset)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
