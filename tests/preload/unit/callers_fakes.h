/* Libraries that are loaded, and their runtimes, made up for tests of callers. To be included by one file of a program. */
#ifndef CALLERS_FAKES_H
#define CALLERS_FAKES_H

#include <dlfcn.h>
#include <link.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "balance.h"
#include "serve/callers.h"
#include "process/hooks.h"
#include "process/interposers.h"
#include "process/loaded_code.h"
#include "process/process.h"
#include "serve/fast_path.h"
#include "process/symbols.h"
#include "torch/torch_switch.h"
#include "track/torch_mode.h"
#include "torch/torch_oom.h"
#include "torch/torch_peaks.h"
#include "torch/torch_segments.h"
#include "torch/torch_sent.h"

int cudaMalloc(void **ret, size_t bytes);
int cudaFree(void *address);

enum { PAGE = 4096, LIBRARIES = 100, REFUSED = 2, UNLOADING = 4, INSUFFICIENT_DRIVER = 35, BYTES = 5000 };
enum { REMEMBERED = 64 };
enum where {
    OWN,
    NEXT,
    LOADED,
    PLACES
}; /* a runtime that the caller needs, the loader's next, and any that is there */

/* A library of two segments, with a page between them that is nobody's, and one that is not loaded. */
struct library {
    struct link_map map;
    ElfW(Phdr) segments[3];
    ElfW(Dyn) dynamic;
    bool closed;
    char path[64];
};

static struct {
    struct library library[LIBRARIES];
    int libraries;
    int calling;    /* the library of what calls cudaMalloc here */
    bool deaf;      /* libc's dlclose comes before ours */
    bool over;      /* a forked child */
    int asked;      /* how often the loader was, where code is */
    const void *looked_at; /* by dladdr1() latest */
    int interposes;        /* another library after ours has: 1 malloc, 2 free */
    bool defines;          /* the function that was found is the caller's own */
    bool before;           /* the caller comes before us */
    bool reaches;          /* the runtime's malloc comes to the driver's hook */
    bool passes;           /* nothing is to be served */
    int hides;
    int open;       /* handles */
    bool has[PLACES], has_own_only[PLACES]; /* a runtime; one that knows our functions alone */
    bool without_errors, without_free, other_free; /* the last: of the first runtime */
    int generation; /* of the runtimes: each has functions of its own */
    bool quick, quick_serves, quick_frees;
    int peaks_ended, peaks_begun, learnt, retries, ran_out, sent, mallocs, frees, closes;
    size_t ran_out_bytes;
    const void *sent_address;
    int answer, caller_seen;
    void *malloc_ret;
    size_t malloc_bytes;
    void *freed;
    bool owns;
    bool switched, gives_back, is_segment, cached_seen; /* of PyTorch's cache */
    int given_back, segments;
    size_t segment_bytes;
} fake;

/* The loader. */
static inline uintptr_t start_of(int library)
{
    return (uintptr_t)(library + 1) * 16 * PAGE;
}

static inline int add(const char *path)
{
    struct library *library = &fake.library[fake.libraries];
    snprintf(library->path, sizeof library->path, "%s", path);
    library->map.l_addr = start_of(fake.libraries) - PAGE; /* the first segment begins one page on */
    library->map.l_name = library->path;
    library->map.l_ld = &library->dynamic;
    library->segments[0] = (ElfW(Phdr)){.p_type = PT_NOTE, .p_vaddr = 0, .p_memsz = 15 * PAGE};
    library->segments[1] = (ElfW(Phdr)){.p_type = PT_LOAD, .p_vaddr = 3 * PAGE, .p_memsz = PAGE};
    library->segments[2] = (ElfW(Phdr)){.p_type = PT_LOAD, .p_vaddr = PAGE, .p_memsz = PAGE};
    return fake.libraries++;
}

static inline const void *code_in(int library, ptrdiff_t offset)
{
    return (const void *)(start_of(library) + (uintptr_t)offset);
}

/* The library of some code, the allocator's own being the first one's; -1: none's. */
static inline int find_library(const void *code)
{
    int (*own)(void *) = dlclose;
    const void *ours;
    memcpy(&ours, &own, sizeof ours);
    int at = code == ours ? 0 : fake.calling;
    for (int i = 0; i < fake.libraries; i++) {
        if ((uintptr_t)code >= start_of(i) - PAGE && (uintptr_t)code < start_of(i) + 15 * PAGE)
            at = i;
    }
    fake.asked += code != ours;
    return at;
}

/* In place of dladdr1() and dladdr(). */
int library_of(const void *code, Dl_info *info, void **map, int flags);
int library_of(const void *code, Dl_info *info, void **map, int flags)
{
    int at = find_library(code);
    assert_int_equal(flags, RTLD_DL_LINKMAP);
    (void)info;
    fake.looked_at = at < 0 ? NULL : code;
    if (at < 0)
        return 0;
    *map = &fake.library[at].map;
    return 1;
}

int file_of(const void *code, Dl_info *info);
int file_of(const void *code, Dl_info *info)
{
    int at = find_library(code);
    if (at < 0)
        return 0;
    info->dli_fname = fake.library[at].path;
    return 1;
}

/* In tables that are made up: from its first segment to the end of its last. */
bool sg_loaded_at(const void *code, struct sg_loaded *ret)
{
    sigset_t blocked;
    assert_false(fake.over); /* it could wait for good */
    assert_int_equal(sigprocmask(SIG_SETMASK, NULL, &blocked), 0);
    assert_true(sigismember(&blocked, SIGALRM));
    int at = find_library(code);
    if (code == fake.looked_at) { /* dladdr1() was asked for the same */
        fake.asked--;
        fake.looked_at = NULL;
    }
    if (at < 0)
        return false;
    const struct library *library = &fake.library[at];
    *ret = (struct sg_loaded){.base = library->map.l_addr, .start = UINTPTR_MAX, .path = library->path};
    for (int i = 1; i < 3; i++) {
        uintptr_t start = library->map.l_addr + library->segments[i].p_vaddr, end = start + library->segments[i].p_memsz;
        ret->start = start < ret->start ? start : ret->start;
        ret->end = end > ret->end ? end : ret->end;
    }
    return true;
}

/* Others that define our names. */
static int interposed(void **ret, size_t bytes);
static int interposed_free(void *address);

void *sg_interposer_next(const char *name)
{
    int (*its_malloc)(void **, size_t) = interposed;
    int (*its_free)(void *) = interposed_free;
    void *found = NULL;
    if (fake.interposes & 1 && strcmp(name, "cudaMalloc") == 0)
        memcpy(&found, &its_malloc, sizeof found);
    if (fake.interposes & 2 && strcmp(name, "cudaFree") == 0)
        memcpy(&found, &its_free, sizeof found);
    return found;
}

bool sg_interposer_same_library(const void *one, const void *other)
{
    assert_true(one && other);
    return fake.defines;
}

bool sg_interposer_is_before(const struct link_map *library)
{
    assert_ptr_equal(library, &fake.library[fake.libraries - 1].map);
    return fake.before;
}

void sg_interposer_hides(void)
{
    fake.hides++;
}

bool sg_process_is_passthrough(void)
{
    return fake.passes;
}

/* In place of dl_iterate_phdr(). */
int each_library(int (*callback)(struct dl_phdr_info *, size_t, void *), void *user);
int each_library(int (*callback)(struct dl_phdr_info *, size_t, void *), void *user)
{
    static const char libc_path[] = "/lib/libc.so.6";
    sigset_t blocked;
    assert_false(fake.over); /* it could wait for good */
    assert_int_equal(sigprocmask(SIG_SETMASK, NULL, &blocked), 0);
    assert_true(sigismember(&blocked, SIGALRM)); /* a handler that allocates would wait for the loader's lock */
    struct dl_phdr_info libc_info = {.dlpi_addr = 1, .dlpi_name = libc_path};
    int result = fake.deaf ? callback(&libc_info, sizeof libc_info, user) : 0;
    for (int i = 0; i < fake.libraries && !result; i++) {
        struct dl_phdr_info info = {.dlpi_addr = fake.library[i].map.l_addr, .dlpi_name = fake.library[i].path,
            .dlpi_phdr = fake.library[i].segments, .dlpi_phnum = 3};
        result = callback(&info, sizeof info, user);
    }
    return result || fake.deaf ? result : callback(&libc_info, sizeof libc_info, user);
}

/* In place of dlopen(): of what is loaded. */
void *open_library(const char *path, int flags);
void *open_library(const char *path, int flags)
{
    assert_true(flags & RTLD_NOLOAD);
    for (int i = 0; i < fake.libraries; i++) {
        if (strcmp(path, fake.library[i].path) == 0 && !fake.library[i].closed) {
            fake.open++;
            return &fake.library[i];
        }
    }
    return NULL;
}

void *sg_library_find(const char *prefix)
{
    assert_string_equal(prefix, "libcudart");
    fake.open += fake.has[LOADED];
    return fake.has[LOADED] ? &fake.has[LOADED] : NULL;
}

int sg_library_close(void *handle)
{
    fake.closes++;
    fake.open--;
    return handle == &fake ? 7 : 0;
}

/* Runtimes: three at once, and of each another with every generation. */
static inline int serve(void **ret, size_t bytes)
{
    fake.mallocs++;
    sg_self.reached = fake.reaches;
    fake.caller_seen = sg_self.caller;
    fake.malloc_ret = ret;
    fake.malloc_bytes = bytes;
    sg_self.pending_error = CUDA_ERROR_UNKNOWN;
    return fake.answer;
}

static inline int give_back(void *address)
{
    fake.frees++;
    fake.cached_seen = sg_self.torch_cached;
    fake.caller_seen = sg_self.caller;
    fake.freed = address;
    return fake.answer;
}

static inline int interposed(void **ret, size_t bytes)
{
    return serve(ret, bytes);
}

static inline int interposed_free(void *address)
{
    return give_back(address);
}

static inline int last_error(void)
{
    return 0;
}

#define FUNCTIONS(n) \
    static int malloc_##n(void **ret, size_t bytes) { return serve(ret, bytes); } \
    static int free_##n(void *address) { return give_back(address); } \
    static int error_##n(void) { return last_error(); }
FUNCTIONS(0)
FUNCTIONS(1)
FUNCTIONS(2)
FUNCTIONS(3)
static sg_cuda_malloc_fn *const mallocs[] = {malloc_0, malloc_1, malloc_2, malloc_3};
static sg_cuda_free_fn *const frees[] = {free_0, free_1, free_2, free_3};
static sg_cuda_last_error_fn *const errors[] = {error_0, error_1, error_2, error_3};

static inline void *look_up(void *handle, const char *name)
{
    enum where where = handle == RTLD_NEXT ? NEXT : handle == &fake.has[LOADED] ? LOADED : OWN;
    int (*our_malloc)(void **, size_t) = cudaMalloc;
    int (*our_free)(void *) = cudaFree;
    void *found = NULL;
    int n = (int)where + fake.generation, of_free = fake.other_free ? 0 : n;
    if (!fake.has[where])
        return NULL;
    if (strcmp(name, "cudaMalloc") == 0)
        memcpy(&found, fake.has_own_only[where] ? &our_malloc : (int (**)(void **, size_t))&mallocs[n], sizeof found);
    else if (strcmp(name, "cudaFree") == 0 && !(fake.without_free && !fake.has_own_only[where]))
        memcpy(&found, fake.has_own_only[where] ? &our_free : (int (**)(void *)) & frees[of_free], sizeof found);
    else if (strcmp(name, "cudaGetLastError") == 0 && !fake.without_errors)
        memcpy(&found, &errors[n], sizeof found);
    else if (strcmp(name, "cudaRuntimeGetVersion") == 0)
        memcpy(&found, &errors[n], sizeof found);
    return found;
}

sg_dlsym_fn *sg_dlsym(void)
{
    return look_up;
}

/* The rest of the library. */
bool sg_fast_path_allows(void *version)
{
    return version && fake.quick;
}

bool sg_fast_malloc(const struct sg_module *module, void **ret, size_t bytes)
{
    (void)ret;
    assert_non_null(module);
    assert_true(bytes == BYTES || bytes == 0);
    return fake.quick_serves;
}

bool sg_fast_free(const struct sg_module *module, void *address)
{
    (void)address;
    assert_non_null(module);
    return fake.quick_frees;
}

void sg_fast_path_prepare(const struct sg_module *module)
{
    assert_non_null(module->malloc);
    fake.learnt++;
}

void sg_torch_retries(void)
{
    fake.retries++;
}

void sg_torch_ran_out(int (*get_last_error)(void), size_t bytes)
{
    (void)get_last_error;
    assert_int_equal(fake.retries, 1); /* counted before */
    fake.ran_out++;
    fake.ran_out_bytes = bytes;
}

bool sg_torch_switched(void)
{
    return fake.switched;
}

/* PyTorch's cache gives back what it holds idle, and then there is enough. */
bool sg_torch_gives_back(void)
{
    fake.given_back++;
    if (fake.gives_back)
        fake.answer = 0;
    return fake.gives_back;
}

void sg_torch_segment_made(const void *address, size_t bytes)
{
    (void)address;
    fake.segments++;
    fake.segment_bytes = bytes;
}

bool sg_torch_is_segment(const void *address)
{
    (void)address;
    return fake.is_segment;
}

/* An interval of peaks ends before a segment comes or goes, and begins after one has gone. */
void sg_torch_peaks_end(void)
{
    fake.peaks_ended++;
}

void sg_torch_peaks_begin(void)
{
    fake.peaks_begun++;
}

bool sg_torch_segment_gone(const void *address)
{
    assert_int_equal(fake.peaks_ended, fake.peaks_begun + fake.is_segment);
    assert_non_null(address);
    return fake.is_segment;
}

bool sg_process_over(void)
{
    return fake.over;
}

bool sg_process_owns(CUdeviceptr address)
{
    return fake.owns && address;
}

void sg_torch_sent_freed(const void *pointer)
{
    fake.sent++;
    fake.sent_address = pointer;
}

/* Nothing is remembered of the test before: a library was unloaded. The allocator and the program are there. */
static inline int start_afresh(void **state)
{
    (void)state;
    (void)dlclose(&fake);
    memset(&fake, 0, sizeof fake);
    memset(&sg_self, 0, sizeof sg_self);
    add("/opt/libsegalloc.so.0");
    fake.calling = add("");
    fake.has[NEXT] = fake.quick = true;
    atomic_store(&sg_torch_sent_copies, 0);
    atomic_store(&sg_torch_segments_seen, false);
    return 0;
}

static inline int end(void **state)
{
    (void)state;
    sigset_t blocked;
    assert_int_equal(fake.open, 0); /* each handle was given back */
    assert_int_equal(sigprocmask(SIG_SETMASK, NULL, &blocked), 0);
    assert_false(sigismember(&blocked, SIGALRM));
    assert_int_equal(sg_self.caller, 0);
    return 0;
}

static inline const struct sg_module *module_at(int library, struct sg_module *spare)
{
    const struct sg_module *module = sg_caller_module(code_in(library, 0), spare);
    fake.looked_at = NULL;
    return module;
}

/* True if nothing was asked of the loader for it. */
static inline bool is_remembered(int library)
{
    struct sg_module spare;
    int asked = fake.asked;
    const struct sg_module *module = module_at(library, &spare);
    return fake.asked == asked && module != &spare;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start_afresh, end)

#endif
