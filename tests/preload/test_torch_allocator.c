/* PyTorch's own allocator made up: a table of functions of which the names say what they are, and one of the other class
   with the same base. What is taken of it, by how many functions there are and by which release it is of. Each case has a
   process of its own, for an allocator is taken once. */
#include <dlfcn.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "process/process.h"
#include "process/symbols.h"
#include "segalloc/segalloc.h"
#include "torch/torch.h"
#include "torch/torch_allocator.h"
#include "torch/torch_counts.h"
#include "torch/torch_sent.h"

#define CLASS "_ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator"

/* Places of what is looked for; between them are functions of other names. */
static const struct {
    int slot;
    const char *name;
} named[] = {{3, CLASS "11raw_deleterEv"}, {4, CLASS "9copy_dataEPvPKvm"}, {9, CLASS "9raw_allocEm"},
    {11, CLASS "10raw_deleteEPv"}, {17, CLASS "9cacheInfoEaPm"}, {20, CLASS "14getDeviceStatsEa"},
    {21, CLASS "10emptyCacheE6pair"}, {24, CLASS "14resetPeakStatsEa"}, {30, CLASS "21beginAllocateToPoolEa"},
    {31, CLASS "19beginAllocateToPoolEa"}, {33, CLASS "17setMemoryFractionEda"},
    {34, CLASS "17getMemoryFractionEa"}, {40, CLASS "14shareIpcHandleEPv"}};
enum { NAMED = sizeof named / sizeof *named, MADE = 50, MOST = 130, MORE = 8, BEFORE = 2 };
enum { DELETER_AT = 3, ENABLE_AT = 15, ENABLED_AT = 16, STATISTICS_AT = 20, SHARE_AT = 40 };

static struct made {
    int count;             /* functions of the exported table */
    int lacking;           /* a place of which the name is another */
    const char *in_force;  /* the library of the allocator's */
    const char *version;   /* the text of version.py; NULL: there is none */
} made;

static char functions[MOST + MORE]; /* addresses to be named */
static void *exported[BEFORE + MOST + MORE], *own[BEFORE + MOST + MORE], **object[1], ***in_force;
static ElfW(Sym) symbol_of_table;
static char folder[] = "/tmp/segalloc-test-XXXXXX", library[192];
static int lines;

static const char *name_of_slot(int slot)
{
    for (int i = 0; i < NAMED && slot != made.lacking; i++)
        if (named[i].slot == slot)
            return named[i].name;
    return slot == 15 || slot == 16 ? NULL : CLASS "5otherEv"; /* the switch is not exported */
}

int library_of(const void *address, Dl_info *ret)
{
    const char *at = address;
    *ret = (Dl_info){.dli_fname = made.in_force};
    if (at >= functions && at < functions + sizeof functions) {
        ret->dli_sname = name_of_slot((int)(at - functions));
        ret->dli_saddr = ret->dli_sname ? (void *)(uintptr_t)address : NULL;
    }
    return 1;
}

int table_of(const void *address, Dl_info *ret, void **extra, int flags)
{
    assert_int_equal(flags, RTLD_DL_SYMENT);
    symbol_of_table.st_size = (size_t)(made.count + BEFORE) * sizeof(void *);
    *ret = (Dl_info){.dli_saddr = (void *)(uintptr_t)address};
    *extra = &symbol_of_table;
    return 1;
}

static void *find(void *handle, const char *name)
{
    (void)handle;
    return strstr(name, "_ZTV") ? (void *)exported : strstr(name, "allocatorE") ? (void *)&in_force : NULL;
}

sg_dlsym_fn *sg_dlsym(void)
{
    return find;
}

void *sg_library_find(const char *name)
{
    return (void *)(uintptr_t)name;
}

int sg_library_close(void *handle)
{
    (void)handle;
    return 0;
}

void sg_log_line(const char *line)
{
    assert_non_null(strstr(line, "statistics that this version does not know"));
    lines++;
}

bool sg_thread_enter(void)
{
    return false;
}

void sg_thread_leave(bool outer)
{
    (void)outer;
}

const struct sg_driver *sg_process_driver(void)
{
    return NULL;
}

void segalloc_torch_memory_fraction(double fraction, int device)
{
    (void)fraction, (void)device;
}

static bool settled;

bool sg_torch_mode_known(void)
{
    return settled;
}

bool sg_torch_direct(void)
{
    return false;
}

bool sg_torch_switched(void)
{
    return false;
}

bool sg_torch_is_direct(const void *pointer)
{
    (void)pointer;
    return false;
}

void sg_torch_pool_begins(uint64_t first, uint64_t second)
{
    (void)first;
    (void)second;
}

void *sg_torch_sent_copy(void *pointer)
{
    return pointer;
}

void segalloc_torch_reset(void)
{
}

void sg_torch_counts_add(void *statistics, size_t map_bytes, int device)
{
    (void)statistics, (void)map_bytes, (void)device;
}

void sg_torch_counts_reset(int device)
{
    (void)device;
}

enum { TAKEN = 1, COUNTS = 2, SAYS = 4 };

static void write_version(void)
{
    char path[160];
    snprintf(path, sizeof path, "%s/version.py", folder);
    unlink(path);
    FILE *file = made.version ? fopen(path, "w") : NULL;
    if (file) {
        fprintf(file, "from typing import Optional\n\n__all__ = ['__version__']\n__version__ = '%s'\ndebug = False\n",
            made.version);
        fclose(file);
    }
}

static void make_tables(void)
{
    for (int i = 0; i < MOST + MORE; i++)
        exported[BEFORE + i] = own[BEFORE + i] = &functions[i];
    object[0] = own + BEFORE;
    in_force = (void ***)object;
}

static int take(void)
{
    make_tables();
    bool taken = sg_torch_allocator_take();
    void **now = object[0];
    if (!taken)
        return now == own + BEFORE ? lines * SAYS : -1; /* nothing has changed */
    if (now == own + BEFORE || now[SHARE_AT] == &functions[SHARE_AT] || now[made.count + MORE - 1] == NULL)
        return -1;
    return TAKEN + COUNTS * (now[STATISTICS_AT] != &functions[STATISTICS_AT]) + SAYS * lines;
}

static void expect(const struct made *what, int result)
{
    int status;
    made = *what;
    write_version();
    pid_t child = fork();
    if (child == 0)
        _exit(take());
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != result)
        fail_msg("%d functions of PyTorch %s: %d, not %d", what->count,
            what->version ? what->version : "without a version", WIFEXITED(status) ? WEXITSTATUS(status) : -1, result);
}

/* Releases whose statistics were looked at, and others, however many functions they have. */
static void statistics_are_taken_of_known_releases(void **state)
{
    static const char *const known[] = {"2.5.1", "2.6.0+cu124", "2.8.0", "2.9.1", "2.10.0+cu130", "2.11.0", "2.12.1",
        "2.13.0", "2.14.1+cu130", "2.15.0"},
        *const unknown[] = {"2.4.1", "2.16.0", "3.0.0", "2.12.0a0+git1", "2.11.0.dev1", "2.11", "2", "", NULL};
    static const int counts[] = {46, 50, 51, 57};
    (void)state;
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            expect(&(struct made){counts[c], -1, library, known[i]}, TAKEN + COUNTS);
        for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
            expect(&(struct made){counts[c], -1, library, unknown[i]}, TAKEN + SAYS);
    }
}

static void what_lacks_a_name_is_left_alone(void **state)
{
    (void)state;
    for (int i = 0; i < NAMED; i++)
        expect(&(struct made){50, named[i].slot, library, "2.11.0"},
            named[i].slot == 30 || named[i].slot == 34 ? TAKEN + COUNTS : 0);
    expect(&(struct made){40, -1, library, "2.11.0"}, 0); /* the last is beyond its end */
    expect(&(struct made){121, -1, library, "2.11.0"}, 0);
    expect(&(struct made){-1, -1, library, "2.11.0"}, 0);
    expect(&(struct made){50, -1, "/somewhere/libother.so", "2.11.0"}, 0);
    expect(&(struct made){50, -1, NULL, "2.11.0"}, 0);
}

/* What of the allocator is called where its switch is read before it asks whether to cache, as PyTorch 2.14 does. */
static bool on = true;
static int questions;
static void **other[] = {own + BEFORE};

typedef bool is_enabled_fn(const void *self);
typedef void (*deleter_fn(const void *self))(void *);

static void own_enable(void *self, bool value)
{
    assert_ptr_equal(self, object);
    on = value;
}

static bool own_is_enabled(const void *self)
{
    assert_ptr_equal(self, object);
    return on;
}

static void own_delete(void *block)
{
    (void)block;
}

static bool reads_switch(void)
{
    is_enabled_fn *function;
    memcpy(&function, &object[0][ENABLED_AT], sizeof function);
    return function(object);
}

static void (*own_deleter(const void *self))(void *)
{
    assert_ptr_equal(self, object);
    if (reads_switch() && !questions++) {
        (void)(sg_torch_allocator_take() && sg_torch_allocator_cache(false));
        settled = true;
    }
    return own_delete;
}

static void make_allocator(void)
{
    void (*enable)(void *, bool) = own_enable;
    is_enabled_fn *is_enabled = own_is_enabled;
    deleter_fn *deleter = own_deleter;
    make_tables();
    memcpy(&own[BEFORE + ENABLE_AT], &enable, sizeof enable);
    memcpy(&own[BEFORE + ENABLED_AT], &is_enabled, sizeof is_enabled);
    memcpy(&own[BEFORE + DELETER_AT], &deleter, sizeof deleter);
}

/* The first tensor is made without the cache already. */
static int ask_early(void)
{
    make_allocator();
    sg_torch_allocator_watch();
    bool watched = object[0] != own + BEFORE && object[0][SHARE_AT] == &functions[SHARE_AT] && on && !questions;
    sg_torch_allocator_watch();
    bool off = !reads_switch() && questions == 1 && object[0][SHARE_AT] != &functions[SHARE_AT];
    bool left = object[0][ENABLED_AT] == own[BEFORE + ENABLED_AT] && !reads_switch() && questions == 1;
    return watched && off && left;
}

/* As with the mode beneath, or where a variable of the environment says what is to be. */
static int ask_first(void)
{
    make_allocator();
    sg_torch_allocator_watch();
    settled = true;
    return reads_switch() && questions == 0 && memcmp(object[0], own + BEFORE, MADE * sizeof(void *)) == 0;
}

/* Another allocator is in force by the time of the question. */
static int replaced_meanwhile(void)
{
    make_allocator();
    sg_torch_allocator_watch();
    in_force = other;
    return reads_switch() && questions == 1 && memcmp(object[0], own + BEFORE, MADE * sizeof(void *)) == 0;
}

static void expect_in_child(int (*what)(void), int result)
{
    int status;
    made = (struct made){MADE, -1, library, "2.15.0"};
    write_version();
    pid_t child = fork();
    if (child == 0)
        _exit(what());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), result);
}

static void caching_is_settled_when_the_switch_is_read(void **state)
{
    (void)state;
    expect_in_child(ask_early, 1);
    expect_in_child(ask_first, 1);
    expect_in_child(replaced_meanwhile, 1);
}

/* The place of `enable` has a name there, as before PyTorch 2.9. */
static int watch_without_switch(void)
{
    make_allocator();
    exported[BEFORE + ENABLE_AT] = &functions[DELETER_AT];
    sg_torch_allocator_watch();
    return object[0] == own + BEFORE;
}

static void what_has_no_switch_is_not_watched(void **state)
{
    (void)state;
    expect_in_child(watch_without_switch, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics_are_taken_of_known_releases),
        cmocka_unit_test(what_lacks_a_name_is_left_alone),
        cmocka_unit_test(caching_is_settled_when_the_switch_is_read),
        cmocka_unit_test(what_has_no_switch_is_not_watched),
    };
    char lib[64];
    if (!mkdtemp(folder))
        return 1;
    snprintf(lib, sizeof lib, "%s/lib", folder);
    mkdir(lib, 0700);
    snprintf(library, sizeof library, "%s/libc10_cuda.so", lib);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    made.version = NULL;
    write_version();
    rmdir(lib);
    rmdir(folder);
    return failed;
}
