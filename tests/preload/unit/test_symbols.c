/* Which function a name means, for all hooks, against a loader and a driver made up here: by address, by name, by
   version and meaning of the default stream. */
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
    const char *lacks;        /* a name that the driver does not have */
    void *found;              /* what the loader finds for the name that is asked for; NULL: nothing */
    const char *exported;     /* the name under which the driver exports the address that it answers */
    void *exported_at, *answers;
    CUresult result;
    bool ours;                /* an address is this library's */
    const char *paths[4];     /* what is loaded */
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

static void *address_of(void (*function)(void))
{
    void *address;
    memcpy(&address, &function, sizeof address);
    return address;
}

static CUresult ask(const char *symbol, void **ret, int version, cuuint64_t flags)
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

static CUresult ask_status(const char *symbol, void **ret, int version, cuuint64_t flags,
    CUdriverProcAddressQueryResult *status)
{
    *status = 5;
    return ask(symbol, ret, version, flags);
}

/* dlsym() of the loader made up here. */
static void *look_up(void *handle, const char *name)
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

/* What loaded_code.h finds in tables that are made up. */
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

static int close_it(void *handle)
{
    fake.closed++;
    return handle == &other_handle ? 3 : 0;
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

static int start_afresh(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    fake.testing = true;
    (void)sg_real(); /* the driver is there from the start */
    return 0;
}

static int end(void **state)
{
    (void)state;
    fake.testing = false;
    return 0;
}

/* What a request is answered, by each of the driver's two ways to ask. */
static void *answer_to(const char *base, int version, cuuint64_t flags)
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

/* Each function that the driver exports is known by its address, whatever was asked. */
static void the_drivers_own_are_replaced_by_ours(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        if (strncmp(rows[i].symbol, "cuGetProcAddress", 16) == 0)
            continue;
        fake.watched = false;
        fake.answers = &driver_code[i];
        assert_ptr_equal(answer_to("anything", 12000, 0), address_of(rows[i].ours));
        fake.watched = true;
        assert_ptr_equal(answer_to("anything", 12000, 0), &driver_code[i]);
        fake.watched = false;
        fake.answers = address_of(rows[i].ours); /* another library before ours has asked for it */
        assert_ptr_equal(answer_to("anything", 12000, 0), address_of(rows[i].ours));
    }
    assert_int_equal(fake.stubs, 0);
}

static void nothing_is_put_in_place_of_an_error(void **state)
{
    (void)state;
    fake.answers = &driver_code[9];
    fake.result = CUDA_ERROR_NOT_FOUND;
    assert_ptr_equal(answer_to("cuMemAlloc", 12000, 0), &driver_code[9]);
    fake.result = CUDA_SUCCESS;
    fake.answers = NULL;
    assert_null(answer_to("cuMemAlloc", 12000, 0));
    assert_int_equal(cuGetProcAddress("cuMemAlloc", NULL, 12000, 0), CUDA_SUCCESS);
    void *function = NULL;
    fake.answers = &driver_code[9];
    assert_int_equal(cuGetProcAddress(NULL, &function, 12000, 0), CUDA_SUCCESS);
    assert_ptr_equal(function, &driver_code[9]);
}

/* The newest of a name's forms that is not newer than the caller, with its meaning of the default stream. */
static const struct row *wanted(const char *base, int version, enum threads threads)
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

static void what_is_not_exported_is_known_by_name_and_version(void **state)
{
    static const int versions[] = {2000, 3019, 3020, 4000, 7000, 10010, 11030, 12000, 12080, 13000, 13050};
    (void)state;
    fake.answers = &other_code[0];
    for (int i = 0; i < ROWS; i++) {
        for (size_t v = 0; v < sizeof versions / sizeof *versions; v++) {
            for (cuuint64_t flags = 0; flags <= 3; flags++) {
                enum threads threads = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM ? PER_THREAD : LEGACY;
                const struct row *row = wanted(rows[i].base, versions[v], threads);
                void *answer = answer_to(rows[i].base, versions[v], flags);
                if (row)
                    assert_ptr_equal(answer, address_of(row->ours));
                else if (versions[v] < 3020)
                    assert_ptr_equal(answer, &other_code[0]); /* the twin of 32 bits */
                else
                    assert_true(answer == &other_code[0] || answer == &stub_code[SG_UNTRACKED_ORDER] ||
                        answer == &stub_code[SG_UNTRACKED_PAGES]);
            }
        }
        int stubs = fake.stubs; /* the table may lack a form that is newer than it */
        void *answer = answer_to(rows[i].base, 13060, 0);
        assert_true(answer == (fake.stubs > stubs ? &stub_code[fake.stub_kind] : &other_code[0]));
    }
}

/* By the beginnings of their names, what nobody here knows may order work, or remember pages. */
static const struct unknown_name {
    const char *name;
    int kind; /* enum sg_untracked; -1: neither */
} unknown_names[] = {
    {"cuStreamTomorrow", SG_UNTRACKED_ORDER}, {"cuEventTomorrow", SG_UNTRACKED_ORDER},
    {"cuLaunchTomorrow", SG_UNTRACKED_ORDER}, {"cuMemcpyTomorrow", SG_UNTRACKED_ORDER},
    {"cuMemsetTomorrow", SG_UNTRACKED_ORDER}, {"cuCtxRecordTomorrow", SG_UNTRACKED_ORDER},
    {"cuCtxWaitTomorrow", SG_UNTRACKED_ORDER}, {"cuCtxSynchronizeTomorrow", SG_UNTRACKED_ORDER},
    {"cuGreenCtxRecordTomorrow", SG_UNTRACKED_ORDER}, {"cuGreenCtxWaitTomorrow", SG_UNTRACKED_ORDER},
    {"cuGraphLaunchTomorrow", SG_UNTRACKED_ORDER}, {"cuFabricCpyTomorrow", SG_UNTRACKED_ORDER},
    {"cuLaunchHostFunc_v9", SG_UNTRACKED_ORDER}, {"cuMulticastBindTomorrow", SG_UNTRACKED_PAGES},
    {"cuMemRetainAllocationHandleTomorrow", SG_UNTRACKED_PAGES},
    {"cuMemGetHandleForAddressRangeTomorrow", SG_UNTRACKED_PAGES},
    {"cuLogicalEndpointBindTomorrow", SG_UNTRACKED_PAGES}, {"cuMulticastBindMem", -1},
    {"cuLogicalEndpointBindMemTomorrow", -1}, {"cuStreamGetTomorrow", -1}, {"cuStreamSetAttributeTomorrow", -1},
    {"cuStreamCopyAttributesTomorrow", -1}, {"cuStreamIsCapturingTomorrow", -1}, {"cuStreamUpdateCaptureTomorrow", -1},
    {"cuStreamEndCaptureToCigTomorrow", -1}, {"cuEventElapsedTimeTomorrow", -1}, {"cuDeviceTomorrow", -1},
    {"cuStrea", -1}, {"cuCtxTomorrow", -1}, {"cu", -1},
};

static void expect_unknown(const struct unknown_name *name, void *answer, void *real)
{
    assert_ptr_equal(answer, name->kind < 0 ? real : &stub_code[name->kind]);
    assert_int_equal(fake.stubs, name->kind >= 0);
    if (name->kind < 0)
        return;
    assert_int_equal(fake.stub_kind, name->kind);
    assert_string_equal(fake.stub_name, name->name);
    assert_ptr_equal(fake.stub_real, real);
}

static void what_nobody_knows_gets_a_stub_where_it_matters(void **state)
{
    for (size_t i = 0; i < sizeof unknown_names / sizeof *unknown_names; i++) {
        start_afresh(state);
        fake.exported = unknown_names[i].name;
        fake.exported_at = fake.answers = &other_code[1];
        CUdriverProcAddressQueryResult status;
        void *function;
        for (int way = 0; way < 2; way++) { /* exported: under that name, or one that a known name begins */
            const char *asked = way ? "cuMemAlloc" : unknown_names[i].name;
            fake.stubs = 0;
            assert_int_equal(cuGetProcAddress_v2(asked, &function, 12000, 0, &status), CUDA_SUCCESS);
            expect_unknown(&unknown_names[i], function, &other_code[1]);
        }
        fake.stubs = 0;
        fake.answers = &other_code[2]; /* not exported, but by its name: as the inside of another function */
        assert_int_equal(cuGetProcAddress_v2(unknown_names[i].name, &function, 12000, 0, &status), CUDA_SUCCESS);
        expect_unknown(&unknown_names[i], function, &other_code[2]);
    }
}

/* The forms of 32 bits, and of other default streams, of what is hooked: they can't name memory of ours. */
static void twins_stay_the_drivers(void **state)
{
    static const struct {
        const char *name;
        bool twin;
    } list[] = {{"cuMemcpyDtoD", true}, {"cuMemcpyDtoDAsync_ptsz", true}, {"cuMemcpyDtoD_ptds", true},
        {"cuMemcpyDtoD_v9", false}, {"cuMemcpyDtoDx", false}, {"cuStreamQueryLater", false}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        start_afresh(state);
        fake.exported = list[i].name;
        fake.exported_at = fake.answers = &other_code[1];
        void *function;
        assert_int_equal(cuGetProcAddress("cuMemcpyDtoD", &function, 2000, 0), CUDA_SUCCESS);
        assert_ptr_equal(function, list[i].twin ? (void *)&other_code[1] : (void *)&stub_code[SG_UNTRACKED_ORDER]);
        fake.found = &other_code[1];
        struct answer answer = sg_dlsym_answer(&other_handle, list[i].name, NULL);
        assert_ptr_equal(answer.value, list[i].twin ? NULL : &stub_code[SG_UNTRACKED_ORDER]);
        assert_ptr_equal(answer.real, list[i].twin ? look_up : NULL);
    }
}

/* A libcuda.so.1 that loads another one may hand out that one's functions. They are known by the names that they have
   there, whatever version was asked for. */
static void what_another_library_exports_is_known_by_its_name(void **state)
{
    for (int i = 0; i < ROWS; i++) {
        start_afresh(state);
        fake.exported = rows[i].symbol;
        fake.exported_at = fake.answers = &other_code[1];
        assert_ptr_equal(answer_to(rows[i].base, 2000, 0), address_of(rows[i].ours));
        assert_true(fake.preferred);
        fake.watched = true;
        assert_ptr_equal(answer_to(rows[i].base, 2000, 0), &other_code[1]);
    }
    assert_int_equal(fake.stubs, 0);
}

/* A runtime asks for hundreds of names under a lock of its own. What can't be ours is answered without a look at what is
   loaded. */
static void names_that_cannot_be_ours_are_not_looked_up(void **state)
{
    static const char *const names[] = {"cuDeviceGet", "cuDeviceGetName", "cuTexRefSetArray", "cuStreamGetPriority",
        "cuMemAllocs", "cuMulticastBindMem"};
    (void)state;
    fake.answers = &other_code[0];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_ptr_equal(answer_to(names[i], 12000, 0), &other_code[0]);
    for (int i = 0; i < ROWS; i++) {
        fake.answers = &driver_code[i];
        if (strncmp(rows[i].symbol, "cuGetProcAddress", 16) != 0)
            (void)answer_to(rows[i].base, 12000, 0);
    }
    assert_int_equal(fake.named, 0);
}

/* dlsym(): what the loader itself finds decides whether ours is meant. */
static void names_that_are_hooked(void **state)
{
    enum found { NOTHING, OURS, THEIRS, ANOTHERS, FOUND };
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        for (int way = 0; way < FOUND * 16; way++) {
            enum found found = (enum found)(way % FOUND);
            bool next = way / FOUND & 1, lacks = way / FOUND & 2, watched = way / FOUND & 4, inside = way / FOUND & 8;
            if (strncmp(rows[i].symbol, "cuGetProcAddress", 16) == 0)
                continue;
            void *ours = address_of(rows[i].ours), *theirs = lacks ? NULL : &driver_code[i];
            start_afresh(state);
            fake.lacks = lacks ? rows[i].symbol : NULL;
            fake.watched = watched;
            fake.inside = inside;
            fake.found = found == OURS ? ours : found == THEIRS ? theirs : found == ANOTHERS ? &other_code[0] : NULL;
            struct answer answer = sg_dlsym_answer(next ? RTLD_NEXT : &other_handle, rows[i].symbol, NULL);
            bool another = found == ANOTHERS || (!fake.found && (!lacks || !next));
            if (inside || another) {
                assert_null(answer.value);
                assert_ptr_equal(answer.real, look_up);
                assert_int_equal(fake.asked_of_libc, 0);
            } else {
                assert_null(answer.real);
                assert_ptr_equal(answer.value, lacks ? NULL : watched ? theirs : ours);
                assert_int_equal(fake.asked_of_libc, lacks); /* for the text of the error */
            }
            assert_int_equal(fake.opened, fake.asked_of_libc);
            if (!inside)
                assert_string_equal(fake.asked_name, rows[i].symbol);
        }
    }
}

static void names_that_nobody_knows(void **state)
{
    for (size_t i = 0; i < sizeof unknown_names / sizeof *unknown_names; i++) {
        for (int way = 0; way < 5; way++) {
            start_afresh(state);
            fake.exported = way == 1 ? NULL : unknown_names[i].name; /* the driver lacks it */
            fake.exported_at = &other_code[1];
            fake.found = way == 2 ? &other_code[2] : &other_code[1]; /* another library's of that name */
            fake.watched = way == 3;
            fake.inside = way == 4;
            struct answer answer = sg_dlsym_answer(&other_handle, unknown_names[i].name, NULL);
            bool stub = way == 0 && unknown_names[i].kind >= 0;
            assert_ptr_equal(answer.value, stub ? &stub_code[unknown_names[i].kind] : NULL);
            assert_ptr_equal(answer.real, stub ? NULL : look_up);
            assert_int_equal(fake.stubs, stub);
        }
    }
}

/* Names of other libraries than the driver's are only there where their library is. */
static void names_of_other_libraries(void **state)
{
    static const char *const names[] = {"cudaMalloc", "cudaFree", "_ZN3c105utils9check_envEPKc"};
    static const char *const libraries[] = {"/a/libcudart.so.12", "libcudart.so", "/b/libc10.so"};
    for (int i = 0; i < 3; i++) {
        for (int way = 0; way < 24; way++) {
            int found = way % 3; /* nothing, ours, another's */
            bool next = way / 3 & 1, loaded = way / 3 & 2, inside = way / 3 & 4;
            start_afresh(state);
            fake.paths[0] = "/a/other/libother.so";
            fake.paths[1] = loaded ? libraries[i] : NULL;
            fake.found = found ? &other_code[0] : NULL;
            fake.ours = found == 1;
            fake.inside = inside;
            struct answer answer = sg_dlsym_answer(next ? RTLD_NEXT : &other_handle, names[i], NULL);
            bool absent = (found == 1 || (!found && next)) && !loaded;
            assert_null(answer.value);
            assert_ptr_equal(answer.real, absent ? NULL : look_up);
            assert_int_equal(fake.asked_of_libc, absent);
            assert_string_equal(fake.asked_name, names[i]);
        }
    }
}

static void other_names_are_the_loaders(void **state)
{
    static const char *const names[] = {NULL, "", "c", "cblas", "_", "_Y", "malloc", "_ZOther", "cudaMallocx", "ucu"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct answer answer = sg_dlsym_answer(RTLD_NEXT, names[i], NULL);
        assert_null(answer.value);
        assert_ptr_equal(answer.real, look_up);
        assert_null(fake.asked_name); /* nobody was asked for it */
    }
}

static void libraries_are_known_by_the_beginning_of_their_names(void **state)
{
    static char longest[PATH_MOST + 8];
    static const struct {
        const char *path;
        bool is;
    } list[] = {{"libcudart.so", true}, {"/a/libcudart.so.12", true}, {"/libcudart/libother.so", false}, {"", false},
        {"/a/xlibcudart.so", false}, {"/a/libcudar", false}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        start_afresh(state);
        fake.paths[0] = "/a/libfirst.so";
        fake.paths[1] = list[i].path;
        assert_int_equal(sg_library_loaded("libcudart"), list[i].is);
        assert_ptr_equal(sg_library_find("libcudart"), list[i].is ? &other_handle : NULL);
        if (list[i].is)
            assert_string_equal(fake.asked_name, list[i].path);
    }
    for (int length = PATH_MOST - 2; length <= PATH_MOST + 1; length++) {
        start_afresh(state);
        memset(longest, 'a', sizeof longest);
        longest[0] = '/';
        memcpy(longest + 100, "/libcudart", 10);
        longest[length] = '\0';
        fake.paths[0] = longest;
        assert_int_equal(sg_library_loaded("libcudart"), length < PATH_MOST);
        if (sg_library_find("libcudart"))
            assert_int_equal(strlen(fake.asked_name), (size_t)length);
    }
}

static void closing_is_the_loaders(void **state)
{
    int (*function)(void *) = close_it;
    (void)state;
    memcpy(&fake.found, &function, sizeof function);
    assert_int_equal(sg_library_close(&other_handle), 3);
    assert_string_equal(fake.asked_name, "dlclose");
    assert_int_equal(sg_library_close(&driver_handle), 0);
    assert_int_equal(fake.closed, 2);
}

/* What the driver lacks answers that it is not initialized. */
static void table_has_what_the_driver_has(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        void *function;
        memcpy(&function, (const char *)sg_real() + (size_t)i * sizeof function, sizeof function);
        if (strncmp(rows[i].symbol, "cuGetProcAddress", 16) != 0)
            assert_ptr_equal(function, &driver_code[i]);
    }
    assert_ptr_equal(sg_cuda_symbol("cuMemAlloc_v2"), sg_real()->cuMemAlloc_v2);
    assert_null(sg_cuda_symbol("cuNothing"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start_afresh, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(closing_is_the_loaders), /* the first: it is looked up once */
        TEST(table_has_what_the_driver_has),
        TEST(the_drivers_own_are_replaced_by_ours),
        TEST(nothing_is_put_in_place_of_an_error),
        TEST(what_is_not_exported_is_known_by_name_and_version),
        TEST(what_nobody_knows_gets_a_stub_where_it_matters),
        TEST(twins_stay_the_drivers),
        TEST(what_another_library_exports_is_known_by_its_name),
        TEST(names_that_cannot_be_ours_are_not_looked_up),
        TEST(names_that_are_hooked),
        TEST(names_that_nobody_knows),
        TEST(names_of_other_libraries),
        TEST(other_names_are_the_loaders),
        TEST(libraries_are_known_by_the_beginning_of_their_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
