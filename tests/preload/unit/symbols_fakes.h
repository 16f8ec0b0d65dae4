/* A driver and libraries with names, made up for tests of symbols. To be included by one file of a program. */
#ifndef SYMBOLS_FAKES_H
#define SYMBOLS_FAKES_H

#include <dlfcn.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "balance.h"
#include "process/hooks.h"
#include "process/loaded_code.h"
#include "process/process.h"
#include "process/symbols.h"
#include "hooks/unhooked_calls.h"

#undef dlvsym /* here it is the loader's own */
void *dlvsym(void *handle, const char *name, const char *version);

enum threads { ANY, LEGACY, PER_THREAD };
static const struct row {
    const char *symbol, *base;
    int version;
    enum threads threads;
    void (*ours)(void);
} rows[] = {
#define HOOK(symbol, base, version, threads, parameters) {#symbol, #base, version, threads, (void (*)(void))symbol},
#include "process/hooks.def"
};
enum { ROWS = sizeof rows / sizeof *rows, PATH_MOST = 4096 };

static char driver_code[ROWS + 16], stub_code[2], other_code[4];
static int driver_handle, libc_handle, other_handle;

static struct {
    bool testing; /* else the loader is asked: a sanitizer looks for its own names before main() */
    bool watched, inside;
    const char *lacks;    /* a name that the driver does not have */
    void *found;          /* what the loader finds for the name that is asked for; NULL: nothing */
    const char *exported; /* the name under which the driver exports the address that it answers */
    void *exported_at, *answers;
    CUresult result;
    bool ours;            /* an address is this library's */
    const char *paths[4]; /* what is loaded */
    int opened, closed, asked_of_libc;
    const char *asked_name;
    int version;
    cuuint64_t flags;
    int stubs, calls;
    int named;      /* how often the tables of libraries were looked at */
    bool preferred; /* a name that is hooked is preferred to others */
    enum sg_untracked stub_kind;
    const char *stub_name;
    void *stub_real;
    bool was_inside;
} fake;

static inline void *address_of(void (*function)(void))
{
    void *address;
    memcpy(&address, &function, sizeof address);
    return address;
}

static inline CUresult ask(const char *symbol, void **ret, int version, cuuint64_t flags)
{
    fake.calls++;
    fake.was_inside = sg_self.inside;
    fake.asked_name = symbol;
    fake.version = version;
    fake.flags = flags;
    if (ret)
        *ret = fake.answers;
    return fake.result;
}

static inline CUresult ask_status(const char *symbol, void **ret, int version, cuuint64_t flags,
    CUdriverProcAddressQueryResult *status)
{
    *status = 5;
    return ask(symbol, ret, version, flags);
}

/* dlsym() of the loader made up here. */
static inline void *look_up(void *handle, const char *name)
{
    CUresult (*asks)(const char *, void **, int, cuuint64_t) = ask;
    CUresult (*asks_status)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *) = ask_status;
    void *address = NULL;
    if (!fake.testing) {
        sg_dlsym_fn *real;
        void *symbol = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17");
        if (!symbol)
            symbol = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
        memcpy(&real, &symbol, sizeof real);
        return real(handle, name);
    }
    if (strcmp(name, "dlsym") == 0) { /* what comes after ours is glibc's */
        sg_dlsym_fn *function = look_up;
        memcpy(&address, &function, sizeof address);
        return address;
    }
    if (handle == &libc_handle) {
        fake.asked_of_libc++;
        fake.asked_name = name;
        return NULL;
    }
    if (handle != &driver_handle) {
        fake.asked_name = name;
        return fake.found;
    }
    if (fake.lacks && strcmp(name, fake.lacks) == 0)
        return NULL;
    if (strcmp(name, "cuGetProcAddress") == 0)
        memcpy(&address, &asks, sizeof address);
    else if (strncmp(name, "cuGetProcAddress", 16) == 0)
        memcpy(&address, &asks_status, sizeof address);
    for (int i = 0; i < ROWS && !address; i++) {
        if (strcmp(rows[i].symbol, name) == 0)
            address = &driver_code[i];
    }
    if (!address && fake.exported && strcmp(name, fake.exported) == 0)
        address = fake.exported_at;
    return address;
}

/* In place of dlvsym(), dladdr(), dl_iterate_phdr() and dlopen(). */
void *versioned(void *handle, const char *name, const char *version);
void *versioned(void *handle, const char *name, const char *version)
{
    sg_dlsym_fn *function = look_up;
    void *address;
    (void)handle, (void)version;
    memcpy(&address, &function, sizeof address);
    return strcmp(name, "dlsym") == 0 ? address : NULL;
}

extern const char __ehdr_start[] __attribute__((visibility("hidden")));

int symbol_of(const void *address, Dl_info *info);
int symbol_of(const void *address, Dl_info *info)
{
    (void)address;
    memset(info, 0, sizeof *info);
    info->dli_fbase = fake.ours ? (void *)(uintptr_t)__ehdr_start : NULL;
    return 1;
}

/* Findings of loaded_code.h, in tables that are made up. */
const char *sg_loaded_name(const void *address, bool (*prefers)(const char *name))
{
    fake.named++;
    fake.preferred = fake.exported && prefers(fake.exported);
    return fake.exported && address == fake.exported_at ? fake.exported : NULL;
}

bool sg_loaded_symbol(const struct sg_loaded *library, const char *required, const char *name, void **ret)
{
    (void)library, (void)required, (void)name, (void)ret;
    fail();
    return false;
}

int each_library(int (*callback)(struct dl_phdr_info *, size_t, void *), void *user);
int each_library(int (*callback)(struct dl_phdr_info *, size_t, void *), void *user)
{
    int result = 0;
    for (int i = 0; i < 4 && !result && fake.paths[i]; i++) {
        struct dl_phdr_info info = {.dlpi_name = fake.paths[i]};
        result = callback(&info, sizeof info, user);
    }
    return result;
}

void *open_library(const char *path, int flags);
void *open_library(const char *path, int flags)
{
    assert_true(flags & RTLD_NOLOAD);
    if (!path) /* the program's own handle is nobody's here */
        return NULL;
    if (strcmp(path, "libcuda.so.1") == 0)
        return &driver_handle;
    fake.opened++;
    if (strcmp(path, "libc.so.6") == 0)
        return &libc_handle;
    fake.asked_name = path;
    return &other_handle;
}

/* The rest of the library. */
bool sg_process_watched(void)
{
    return fake.watched;
}

bool sg_thread_inside(void)
{
    return fake.inside;
}

bool sg_thread_enter(void)
{
    bool outer = sg_self.inside;
    sg_self.inside = true;
    return outer;
}

void sg_thread_leave(bool outer)
{
    sg_self.inside = outer;
}

void *sg_untracked_stub(enum sg_untracked what, const char *name, void *real)
{
    fake.stubs++;
    fake.stub_kind = what;
    fake.stub_name = name;
    fake.stub_real = real;
    return &stub_code[what];
}

struct answer {
    void *value;
    sg_dlsym_fn *real;
};
struct answer sg_dlsym_answer(void *handle, const char *name, const void *caller);

static inline int start_afresh(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    fake.testing = true;
    (void)sg_real(); /* the driver is there from the start */
    return 0;
}

static inline int end(void **state)
{
    (void)state;
    fake.testing = false;
    return 0;
}

/* The answer to a request, by each of the driver's two ways to ask. */
static inline void *answer_to(const char *base, int version, cuuint64_t flags)
{
    void *function = NULL, *again = NULL;
    CUdriverProcAddressQueryResult status = 0;
    CUresult result = cuGetProcAddress(base, &function, version, flags);
    assert_int_equal(result, fake.result);
    assert_string_equal(fake.asked_name, base);
    assert_int_equal(fake.version, version);
    assert_int_equal(fake.flags, flags);
    assert_true(fake.was_inside && !sg_self.inside);
    result = cuGetProcAddress_v2(base, &again, version, flags, &status);
    assert_int_equal(result, fake.result);
    assert_int_equal(status, 5);
    assert_string_equal(fake.asked_name, base);
    assert_int_equal(fake.version, version);
    assert_int_equal(fake.flags, flags);
    assert_true(fake.was_inside && !sg_self.inside);
    assert_ptr_equal(again, function);
    return function;
}

/* The newest of a name's forms that is not newer than the caller, with its meaning of the default stream. */
static inline const struct row *wanted(const char *base, int version, enum threads threads)
{
    const struct row *best = NULL;
    for (int i = 0; i < ROWS; i++) {
        const struct row *row = &rows[i];
        if (strcmp(row->base, base) == 0 && row->version <= version &&
            (row->threads == ANY || row->threads == threads) && (!best || row->version > best->version))
            best = row;
    }
    return best;
}

/* Unknown names, whose beginnings say that they may order work or remember pages. */
static const struct unknown_name {
    const char *name;
    int kind; /* enum sg_untracked; -1: neither */
} unknown_names[] = {
    {"cuStreamTomorrow", SG_UNTRACKED_ORDER},
    {"cuEventTomorrow", SG_UNTRACKED_ORDER},
    {"cuLaunchTomorrow", SG_UNTRACKED_ORDER},
    {"cuMemcpyTomorrow", SG_UNTRACKED_ORDER},
    {"cuMemsetTomorrow", SG_UNTRACKED_ORDER},
    {"cuCtxRecordTomorrow", SG_UNTRACKED_ORDER},
    {"cuCtxWaitTomorrow", SG_UNTRACKED_ORDER},
    {"cuCtxSynchronizeTomorrow", SG_UNTRACKED_ORDER},
    {"cuGreenCtxRecordTomorrow", SG_UNTRACKED_ORDER},
    {"cuGreenCtxWaitTomorrow", SG_UNTRACKED_ORDER},
    {"cuGraphLaunchTomorrow", SG_UNTRACKED_ORDER},
    {"cuFabricCpyTomorrow", SG_UNTRACKED_ORDER},
    {"cuLaunchHostFunc_v9", SG_UNTRACKED_ORDER},
    {"cuMulticastBindTomorrow", SG_UNTRACKED_PAGES},
    {"cuMemRetainAllocationHandleTomorrow", SG_UNTRACKED_PAGES},
    {"cuMemGetHandleForAddressRangeTomorrow", SG_UNTRACKED_PAGES},
    {"cuLogicalEndpointBindTomorrow", SG_UNTRACKED_PAGES},
    {"cuMulticastBindMem", -1},
    {"cuLogicalEndpointBindMemTomorrow", -1},
    {"cuStreamGetTomorrow", -1},
    {"cuStreamSetAttributeTomorrow", -1},
    {"cuStreamCopyAttributesTomorrow", -1},
    {"cuStreamIsCapturingTomorrow", -1},
    {"cuStreamUpdateCaptureTomorrow", -1},
    {"cuStreamEndCaptureToCigTomorrow", -1},
    {"cuEventElapsedTimeTomorrow", -1},
    {"cuDeviceTomorrow", -1},
    {"cuStrea", -1},
    {"cuCtxTomorrow", -1},
    {"cu", -1},
};

#define TEST(name) cmocka_unit_test_setup_teardown(name, start_afresh, end)

#endif
