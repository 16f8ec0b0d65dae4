/* Each name that fail= takes does fail: every exported form of it, before its arguments are looked at. The driver's own start
   and the calls that work without it are among them. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "cuda_proto.h"

#define FAULT_CODE CUDA_ERROR_ECC_UNCORRECTABLE
#define CODE_TEXT "214"
enum { AT_ONCE = 16 /* faults that a setting takes */ };

static const struct {
    const char *name, *symbol, *variant;
    int version;
} entries[] = {
#define ENTRY(name, symbol, version) {#name, #symbol, NULL, version},
#define ENTRY_STREAM(name, symbol, version, variant) {#name, #symbol, #variant, version},
#include "entry.def"
};
enum { ENTRIES = sizeof entries / sizeof *entries };

/* More arguments than any call has, all 0: a call that looks at one answers otherwise, or ends the process. */
static bool call_fails(const char *symbol)
{
    CUresult (*call)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t,
        uintptr_t, uintptr_t);
    void *found = dlsym(RTLD_DEFAULT, symbol);
    if (!found) {
        fprintf(stderr, "%s is not exported\n", symbol);
        return false;
    }
    memcpy(&call, &found, sizeof call);
    CUresult result = call(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    if (result != FAULT_CODE)
        fprintf(stderr, "%s: %d\n", symbol, (int)result);
    return result == FAULT_CODE;
}

/* The driver that exports all of them. */
static int newest_version(void)
{
    int newest = 0;
    for (int i = 0; i < ENTRIES; i++)
        newest = entries[i].version > newest ? entries[i].version : newest;
    return newest;
}

/* The status of a child in which the calls [from, to) of the table fail: how many did not. */
static int calls_that_do_not_fail(int from, int to, bool start_first)
{
    char setting[4096];
    int newest = newest_version();
    int length = snprintf(setting, sizeof setting, "256MiB,driver=%d.%d", newest / 1000, newest % 1000 / 10);
    for (int i = from; i < to; i++)
        if (i == from || strcmp(entries[i].name, entries[i - 1].name) != 0)
            length += snprintf(setting + length, sizeof setting - (size_t)length, ",fail=%s:1+:%s", entries[i].name, CODE_TEXT);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int bad = 0;
        setenv("SEGALLOC_SIM", setting, 1);
        if (start_first && cuInit(0) != CUDA_SUCCESS)
            _exit(99);
        for (int i = from; i < to; i++)
            bad += !call_fails(entries[i].symbol) + (entries[i].variant && !call_fails(entries[i].variant));
        _exit(bad);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status))
        fprintf(stderr, "%s to %s: signal %d\n", entries[from].symbol, entries[to - 1].symbol, WTERMSIG(status));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

static void each_name_fails(void **state)
{
    (void)state;
    int bad = 0;
    assert_string_equal(entries[0].name, "cuInit");
    for (int from = 1; from < ENTRIES; from += AT_ONCE)
        bad += calls_that_do_not_fail(from, from + AT_ONCE < ENTRIES ? from + AT_ONCE : ENTRIES, true);
    assert_int_equal(bad, 0);
}

/* Before cuInit there is a setting too: of cuInit itself, and of those that answer without it. */
static void names_fail_before_the_start(void **state)
{
    (void)state;
    static const char *const early[] = {"cuInit", "cuDriverGetVersion", "cuGetErrorString", "cuGetErrorName", "cuGetProcAddress",
        "cuGetProcAddress_v2", "cuGetExportTable"};
    int seen = 0, bad = 0;
    for (int i = 0; i < ENTRIES; i++)
        for (size_t k = 0; k < sizeof early / sizeof *early; k++)
            if (strcmp(entries[i].symbol, early[k]) == 0) {
                seen++;
                bad += calls_that_do_not_fail(i, i + 1, false);
            }
    assert_int_equal(seen, sizeof early / sizeof *early);
    assert_int_equal(bad, 0);
}

/* The driver can be started once more, and the count goes on. */
static void start_fails_once(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        int version = 0;
        CUdevice device;
        setenv("SEGALLOC_SIM", "256MiB,fail=cuInit:2:CUDA_ERROR_NO_DEVICE,fail=cuDriverGetVersion:2", 1);
        bool right = cuInit(7) == CUDA_ERROR_INVALID_VALUE && cuInit(0) == CUDA_ERROR_NO_DEVICE &&
                     cuDeviceGet(&device, 0) == CUDA_ERROR_NOT_INITIALIZED && cuDriverGetVersion(&version) == CUDA_SUCCESS &&
                     cuInit(0) == CUDA_SUCCESS && cuDeviceGet(&device, 0) == CUDA_SUCCESS &&
                     cuDriverGetVersion(&version) == CUDA_ERROR_OUT_OF_MEMORY && cuDriverGetVersion(&version) == CUDA_SUCCESS;
        _exit(!right);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_name_fails),
        cmocka_unit_test(names_fail_before_the_start),
        cmocka_unit_test(start_fails_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
