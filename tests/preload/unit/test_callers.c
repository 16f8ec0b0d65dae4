/* Who calls the runtime, where that caller's own runtime is, and what is remembered of both, against a loader and
   runtimes made up here. Code is told by its address alone, so that any may stand for a caller's. */
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
static uintptr_t start_of(int library)
{
    return (uintptr_t)(library + 1) * 16 * PAGE;
}

static int add(const char *path)
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

static const void *code_in(int library, ptrdiff_t offset)
{
    return (const void *)(start_of(library) + (uintptr_t)offset);
}

/* The library of some code, the allocator's own being the first one's; -1: none's. */
static int find_library(const void *code)
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
static int serve(void **ret, size_t bytes)
{
    fake.mallocs++;
    sg_self.reached = fake.reaches;
    fake.caller_seen = sg_self.caller;
    fake.malloc_ret = ret;
    fake.malloc_bytes = bytes;
    sg_self.pending_error = CUDA_ERROR_UNKNOWN;
    return fake.answer;
}

static int give_back(void *address)
{
    fake.frees++;
    fake.cached_seen = sg_self.torch_cached;
    fake.caller_seen = sg_self.caller;
    fake.freed = address;
    return fake.answer;
}

static int interposed(void **ret, size_t bytes)
{
    return serve(ret, bytes);
}

static int interposed_free(void *address)
{
    return give_back(address);
}

static int last_error(void)
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

static void *look_up(void *handle, const char *name)
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
static int start_afresh(void **state)
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

static int end(void **state)
{
    (void)state;
    sigset_t blocked;
    assert_int_equal(fake.open, 0); /* each handle was given back */
    assert_int_equal(sigprocmask(SIG_SETMASK, NULL, &blocked), 0);
    assert_false(sigismember(&blocked, SIGALRM));
    assert_int_equal(sg_self.caller, 0);
    return 0;
}

/* Another library goes. The answer is the loader's. */
static void unload(void)
{
    int closes = fake.closes;
    fake.open++;
    assert_int_equal(dlclose(&fake), 7);
    assert_int_equal(fake.closes - closes, 1);
}

static const struct sg_module *module_at(int library, struct sg_module *spare)
{
    const struct sg_module *module = sg_caller_module(code_in(library, 0), spare);
    fake.looked_at = NULL;
    return module;
}

/* Whether nothing was asked of the loader for it. */
static bool is_remembered(int library)
{
    struct sg_module spare;
    int asked = fake.asked;
    const struct sg_module *module = module_at(library, &spare);
    return fake.asked == asked && module != &spare;
}

static void kinds_are_told_by_the_beginning_of_the_name(void **state)
{
    static const struct {
        const char *path;
        enum sg_caller kind;
    } list[] = {
        {"libc10_cuda.so", SG_CALLER_TORCH},
        {"/usr/lib/libc10_cuda.so.2", SG_CALLER_TORCH},
        {"/libc10_cuda.so/libother.so", SG_CALLER_OTHER},
        {"libc10_cuda", SG_CALLER_OTHER},
        {"/a/xlibnccl.so.2", SG_CALLER_OTHER},
        {"/a/b/libnccl.so.2", SG_CALLER_NCCL},
        {"/a/libnvjpeg.so.12", SG_CALLER_DRIVER},
        {"/a/libuct_cuda.so", SG_CALLER_OTHER},
        {"/bin/program", SG_CALLER_OTHER},
        {"", SG_CALLER_OTHER},
    };
    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        struct sg_module spare;
        int library = add(list[i].path);
        assert_int_equal(sg_caller_kind(code_in(library, 0)), list[i].kind);
        assert_int_equal(sg_caller_kind(code_in(library, 10)), list[i].kind); /* remembered */
        assert_int_equal(module_at(library, &spare)->kind, list[i].kind);
        assert_int_equal(module_at(library, &spare)->kind, list[i].kind);
    }
    assert_false(sg_caller_passes(SG_CALLER_OTHER) || sg_caller_passes(SG_CALLER_TORCH) ||
        !sg_caller_passes(SG_CALLER_NCCL) || !sg_caller_passes(SG_CALLER_DRIVER));
}

static void code_of_no_library_is_nobodys(void **state)
{
    struct sg_module spare;
    (void)state;
    fake.calling = -1;
    const void *nowhere = (const void *)(uintptr_t)8;
    for (int i = 1; i <= 2; i++) { /* each time anew */
        assert_int_equal(sg_caller_kind(nowhere), SG_CALLER_OTHER);
        const struct sg_module *module = sg_caller_module(nowhere, &spare);
        assert_ptr_equal(module, &spare);
        assert_int_equal(module->kind, SG_CALLER_OTHER);
        assert_ptr_equal(module->malloc, mallocs[NEXT]);
        assert_int_equal(fake.asked, 2 * i);
    }
}

/* Its own runtime first, then what the loader finds next, then any; never ourselves. */
static void runtime_is_the_callers_own_where_it_has_one(void **state)
{
    (void)state;
    for (int mask = 0; mask < 1 << 6; mask++) {
        start_afresh(state);
        int library = add("/a/libuser.so"), expected = -1;
        for (int i = PLACES - 1; i >= 0; i--) {
            fake.has[i] = mask >> i & 1;
            fake.has_own_only[i] = mask >> (3 + i) & 1;
            if (fake.has[i] && !fake.has_own_only[i])
                expected = i;
        }
        for (int i = 0; i < 2; i++) {
            struct sg_module spare;
            const struct sg_module *module = module_at(library, &spare);
            assert_ptr_equal(module->malloc, expected < 0 ? NULL : mallocs[expected]);
            assert_ptr_equal(module->free, expected < 0 ? NULL : frees[expected]);
            bool any = fake.has[OWN] || fake.has[NEXT] || fake.has[LOADED];
            int first = fake.has[OWN] ? OWN : fake.has[NEXT] ? NEXT : LOADED;
            assert_ptr_equal(module->get_last_error, any ? errors[first] : NULL);
            assert_int_equal(module->fast_path, any);
            assert_int_equal(fake.open, 0);
        }
        assert_int_equal(is_remembered(library), expected >= 0);
    }
}

/* A library before ours that defines the name and hands on gets what comes after us, not its own function again. */
static void caller_that_hands_on_gets_the_next(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        struct sg_module spare;
        start_afresh(state);
        fake.has[OWN] = true;
        fake.defines = way & 1;
        fake.before = way & 2;
        int library = add("/a/libsaver.so");
        const struct sg_module *module = module_at(library, &spare);
        assert_ptr_equal(module->malloc, mallocs[way == 3 ? NEXT : OWN]);
        assert_ptr_equal(module->free, frees[way == 3 ? NEXT : OWN]);
        assert_true(module->fast_path);
        assert_true(is_remembered(library));
    }
}

/* One after ours gets every call, as if ours were not there. */
static void library_after_ours_gets_every_call(void **state)
{
    (void)state;
    for (int way = 0; way < 8; way++) {
        struct sg_module spare;
        start_afresh(state);
        fake.has[OWN] = true;
        fake.interposes = way & 3;
        fake.defines = way & 4; /* the caller is that library */
        int library = add("/a/libuser.so");
        const struct sg_module *module = module_at(library, &spare);
        assert_ptr_equal(module->malloc, way & 1 ? interposed : mallocs[OWN]);
        assert_ptr_equal(module->free, way & 2 ? interposed_free : frees[OWN]);
        assert_int_equal(module->fast_path, !(way & 3) || way & 4);
    }
}

/* Where an allocation comes to no hook, somebody before us may answer for the driver. */
static void allocation_that_no_hook_saw_is_asked_about(void **state)
{
    for (int way = 0; way < 16; way++) {
        void *block;
        start_afresh(state);
        fake.calling = add("/a/libuser.so");
        fake.reaches = way & 1;
        fake.passes = way & 2;
        fake.answer = way & 4 ? REFUSED : 0;
        (void)cudaMalloc(&block, way & 8 ? 0 : BYTES);
        assert_int_equal(fake.hides, way == 0);
    }
}

/* From its first segment to the end of its last. */
static void module_is_remembered_where_it_lies(void **state)
{
    static const struct {
        ptrdiff_t offset;
        bool inside;
    } list[] = {{0, true}, {1, true}, {PAGE, true}, {3 * PAGE - 1, true}, {3 * PAGE, false}, {-1, false}};
    struct sg_module spare;
    (void)state;
    int library = add("/a/libuser.so");
    (void)module_at(library, &spare);
    (void)sg_caller_kind(code_in(library, 0));
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        int asked = fake.asked;
        const struct sg_module *module = sg_caller_module(code_in(library, list[i].offset), &spare);
        assert_int_equal(module != &spare, list[i].inside);
        assert_int_equal(fake.asked - asked, !list[i].inside);
        asked = fake.asked;
        (void)sg_caller_kind(code_in(library, list[i].offset));
        assert_int_equal(fake.asked - asked, !list[i].inside);
    }
}

/* What calls the driver and what calls the runtime is remembered apart: of the former nothing but the kind is known. */
static void callers_of_the_driver_are_no_callers_of_the_runtime(void **state)
{
    struct sg_module spare;
    (void)state;
    int library = add("/a/libnccl.so.2");
    assert_int_equal(sg_caller_kind(code_in(library, 0)), SG_CALLER_NCCL);
    assert_int_equal(fake.asked, 1);
    assert_ptr_equal(module_at(library, &spare)->malloc, mallocs[NEXT]);
    assert_int_equal(fake.asked, 2);
}

/* Any of what is known of a library in a certain place may have changed once one was unloaded. */
static void module_is_looked_at_anew_once_a_library_has_gone(void **state)
{
    (void)state;
    for (int change = 0; change < 8; change++) {
        start_afresh(state);
        struct sg_module spare, before;
        int library = add("/a/libuser.so"), neighbour = add("/a/libbeside.so");
        before = *module_at(library, &spare);
        (void)module_at(neighbour, &spare);
        assert_true(is_remembered(library) && is_remembered(neighbour));
        unload();
        switch (change) {
        case 0:
            fake.generation = 1;
            break;
        case 1:
            fake.quick = false;
            break;
        case 2:
            fake.without_errors = true;
            break;
        case 3:
            snprintf(fake.library[library].path, sizeof fake.library[library].path, "/a/libnccl.so.2");
            break;
        case 4:
            fake.library[library].segments[1].p_memsz += PAGE;
            break;
        case 5:
            fake.library[library].segments[1].p_memsz -= 1;
            break;
        case 6:
            fake.other_free = true;
            break;
        default: /* nothing */
            break;
        }
        assert_false(is_remembered(library));
        assert_true(is_remembered(library));
        const struct sg_module *module = module_at(library, &spare);
        assert_ptr_equal(module->malloc, mallocs[NEXT + fake.generation]);
        assert_ptr_equal(module->free, frees[change == 6 ? 0 : NEXT + fake.generation]);
        assert_ptr_equal(module->get_last_error, change == 2 ? NULL : errors[NEXT + fake.generation]);
        assert_int_equal(module->fast_path, change != 1);
        assert_int_equal(module->kind, change == 3 ? SG_CALLER_NCCL : before.kind);
        int asked = fake.asked;
        (void)sg_caller_module(code_in(library, 3 * PAGE), &spare);
        assert_int_equal(fake.asked - asked, change != 4);
        asked = fake.asked;
        (void)sg_caller_module(code_in(library, 3 * PAGE - 1), &spare);
        assert_int_equal(fake.asked - asked, change == 5);
        assert_false(is_remembered(neighbour)); /* each by itself */
    }
}

/* Its malloc alone, or its free, may be another's. */
static void each_function_counts(void **state)
{
    struct sg_module spare;
    (void)state;
    int library = add("/a/libuser.so");
    fake.has[LOADED] = true;
    (void)module_at(library, &spare);
    unload();
    fake.without_free = true; /* nobody's then: not remembered, and no harm to who has it */
    fake.has[NEXT] = true;
    const struct sg_module *module = module_at(library, &spare);
    assert_ptr_equal(module, &spare);
    assert_null(module->free);
    assert_non_null(module->malloc);
    fake.without_free = false;
    assert_ptr_equal(module_at(library, &spare)->free, frees[NEXT]);
}

/* Where the program's dlclose is not ours, a library may go and another lie in its place, unheard. */
static void nothing_is_remembered_where_unloads_are_not_heard(void **state)
{
    struct sg_module spare;
    (void)state;
    int library = add("/a/libnccl.so");
    fake.deaf = true;
    for (int i = 0; i < 2; i++) {
        int asked = fake.asked;
        assert_ptr_equal(module_at(library, &spare), &spare);
        assert_int_equal(sg_caller_kind(code_in(library, 0)), SG_CALLER_NCCL);
        assert_int_equal(fake.asked - asked, 2);
    }
}

/* Another thread of the parent may hold the loader's lock in the child for good: nothing is kept, and all is found. */
static void a_forked_child_looks_without_the_loaders_lock(void **state)
{
    struct sg_module spare;
    (void)state;
    int library = add("/a/libnccl.so");
    fake.over = true;
    for (int i = 0; i < 2; i++) {
        assert_ptr_equal(module_at(library, &spare), &spare);
        assert_int_equal(sg_caller_kind(code_in(library, 0)), SG_CALLER_NCCL);
    }
}

/* A library that is unloaded while it is looked at is not remembered: from before its end, nor from after its begin. */
static void what_goes_meanwhile_is_not_remembered(void **state)
{
    struct sg_module spare;
    (void)state;
    int library = add("/a/libuser.so");
    (void)module_at(library, &spare);
    unload();
    (void)module_at(library, &spare);
    int asked = fake.asked;
    for (int i = 0; i < 3; i++)
        (void)module_at(library, &spare);
    assert_int_equal(fake.asked, asked);
    for (int i = 0; i < 3; i++) {
        unload();
        assert_false(is_remembered(library));
    }
}

/* A signal handler allocates while the call that it interrupts notes its own module. It waited for ever. */
static void what_interrupts_a_note_goes_on_without_one(void **state)
{
    struct sg_module spare;
    (void)state;
    int library = add("/a/libuser.so");
    sg_process_lock(SG_LOCK_CALLERS);
    assert_ptr_equal(module_at(library, &spare), &spare);
    sg_process_unlock(SG_LOCK_CALLERS);
    assert_false(is_remembered(library));
    assert_true(is_remembered(library));
}

/* More libraries than are remembered: those that are stay right, the others are looked at each time. */
static void full_tables_answer_all_the_same(void **state)
{
    struct sg_module spare;
    int remembered = 0;
    (void)state;
    while (fake.libraries < LIBRARIES)
        add(fake.libraries % 2 ? "/a/libnccl.so" : "/a/libuser.so");
    for (int round = 0; round < 2; round++) {
        for (int i = 2; i < LIBRARIES; i++) {
            enum sg_caller kind = i % 2 ? SG_CALLER_NCCL : SG_CALLER_OTHER;
            assert_int_equal(module_at(i, &spare)->kind, kind);
            assert_int_equal(sg_caller_kind(code_in(i, 0)), kind);
        }
    }
    for (int i = 2; i < LIBRARIES; i++)
        remembered += is_remembered(i);
    assert_true(remembered <= REMEMBERED && remembered > REMEMBERED / 2);
}

/* What a program's call comes to: the short way, the runtime's, or an error; and who is told. */
static void allocation_goes_the_way_of_its_caller(void **state)
{
    static const struct {
        const char *path;
        bool serves, runtime;
        int answer, result;
        bool asks, learns, runs_out;
    } list[] = {
        {"/a/libuser.so", true, true, 5, 0, false, false, false},
        {"/a/libuser.so", false, true, 0, 0, true, true, false},
        {"/a/libuser.so", false, true, REFUSED, REFUSED, true, false, false},
        {"/a/libuser.so", false, true, 5, 5, true, false, false},
        {"/a/libuser.so", false, false, 0, INSUFFICIENT_DRIVER, false, false, false},
        {"/a/libuser.so", true, false, 0, 0, false, false, false},
        {"/a/libnccl.so", true, true, 0, 0, true, true, false},
        {"/a/libnvjpeg.so", true, true, REFUSED, REFUSED, true, false, false},
        {"/a/libc10_cuda.so", true, true, 5, 0, false, false, false},
        {"/a/libc10_cuda.so", false, true, REFUSED, REFUSED, true, false, true},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        void *block;
        start_afresh(state);
        fake.calling = add(list[i].path);
        fake.has[NEXT] = list[i].runtime;
        fake.quick_serves = list[i].serves;
        fake.answer = list[i].answer;
        sg_self.caller = SG_CALLER_DRIVER;
        sg_self.pending_error = CUDA_ERROR_UNKNOWN;
        assert_int_equal(cudaMalloc(&block, BYTES), list[i].result);
        assert_int_equal(fake.mallocs, list[i].asks);
        assert_int_equal(fake.learnt, list[i].learns);
        assert_int_equal(fake.ran_out, list[i].runs_out);
        assert_int_equal(fake.ran_out_bytes, list[i].runs_out ? BYTES : 0);
        assert_int_equal(sg_self.caller, SG_CALLER_DRIVER);
        assert_int_equal(sg_caller_current(), SG_CALLER_DRIVER);
        sg_self.caller = 0;
        assert_int_equal(sg_self.pending_error, list[i].asks ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN);
        if (!list[i].asks)
            continue;
        assert_ptr_equal(fake.malloc_ret, &block);
        assert_int_equal(fake.malloc_bytes, BYTES);
        assert_int_equal(fake.caller_seen, sg_caller_kind(code_in(fake.calling, 0)));
    }
}

static void free_goes_the_way_of_its_caller(void **state)
{
    static const struct {
        const char *path;
        bool frees, runtime, copies;
        int answer, result;
        bool owns;
    } list[] = {
        {"/a/libuser.so", false, true, false, UNLOADING, 0, true}, /* ours, after the driver's end */
        {"/a/libuser.so", false, true, false, UNLOADING, UNLOADING, false},
        {"/a/libuser.so", false, true, false, 5, 5, true},
        {"/a/libuser.so", true, true, false, 5, 0, false},
        {"/a/libuser.so", false, true, false, 5, 5, false},
        {"/a/libuser.so", false, true, true, 0, 0, false},
        {"/a/libuser.so", true, true, true, 5, 0, false},
        {"/a/libuser.so", false, false, true, 0, INSUFFICIENT_DRIVER, false},
        {"/a/libnccl.so", false, true, false, 0, 0, false},
        {"/a/libnccl.so", true, true, false, 5, 0, false}, /* what a program has given it, or it got before */
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char block;
        start_afresh(state);
        fake.calling = add(list[i].path);
        fake.has[NEXT] = list[i].runtime;
        fake.quick_frees = list[i].frees;
        fake.answer = list[i].answer;
        fake.owns = list[i].owns;
        atomic_store(&sg_torch_sent_copies, list[i].copies);
        sg_self.caller = SG_CALLER_TORCH;
        assert_int_equal(cudaFree(&block), list[i].result);
        bool asks = !list[i].frees && list[i].runtime;
        assert_int_equal(fake.frees, asks);
        assert_ptr_equal(fake.freed, asks ? &block : NULL);
        assert_int_equal(fake.sent, list[i].copies);
        assert_ptr_equal(fake.sent_address, list[i].copies ? &block : NULL);
        assert_int_equal(sg_self.caller, SG_CALLER_TORCH);
        sg_self.caller = 0;
        if (asks)
            assert_int_equal(fake.caller_seen, sg_caller_kind(code_in(fake.calling, 0)));
    }
}

/* Beside tensors, what PyTorch's cache asks for is noted, and the free of it is no tensor's. */
static void segments_of_pytorchs_cache_are_told_apart(void **state)
{
    static const struct {
        const char *path;
        bool seen, cached, switched, noted;
    } list[] = {
        {"/a/libc10_cuda.so", true, true, false, true},
        {"/a/libc10_cuda.so", true, false, false, false},
        {"/a/libc10_cuda.so", true, false, true, true}, /* its cache serves all */
        {"/a/libc10_cuda.so", false, true, false, false},
        {"/a/libuser.so", true, true, true, true}, /* the allocator of a pool */
        {"/a/libuser.so", true, false, true, false},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        void *block = &fake;
        start_afresh(state);
        fake.calling = add(list[i].path);
        fake.switched = list[i].switched;
        atomic_store(&sg_torch_segments_seen, list[i].seen);
        sg_self.torch_cached = list[i].cached;
        assert_int_equal(cudaMalloc(&block, BYTES), 0);
        assert_int_equal(fake.segments, list[i].noted);
        assert_int_equal(fake.segment_bytes, list[i].noted ? BYTES : 0);
        assert_int_equal(fake.peaks_ended, list[i].noted);
        fake.peaks_ended = 0;
        bool cached = sg_self.torch_cached;
        for (int segment = 0; segment < 2; segment++) {
            fake.is_segment = segment;
            assert_int_equal(cudaFree(&fake), 0);
            assert_int_equal(fake.cached_seen, list[i].seen ? segment : cached);
            assert_int_equal(sg_self.torch_cached, cached);
            assert_int_equal(fake.peaks_ended, list[i].seen && segment);
            assert_int_equal(fake.peaks_begun, list[i].seen && segment);
        }
        sg_self.torch_cached = false;
    }
}

/* A tensor that there is no room for: PyTorch's cache gives back what it holds idle. Not for a segment of its own. */
static void idle_cache_makes_room_for_a_tensor(void **state)
{
    for (int i = 0; i < 3; i++) {
        void *block;
        start_afresh(state);
        fake.calling = add("/a/libc10_cuda.so");
        fake.quick = false;
        fake.answer = REFUSED;
        fake.gives_back = i != 1;
        sg_self.torch_cached = i == 2;
        assert_int_equal(cudaMalloc(&block, BYTES), i == 0 ? 0 : REFUSED);
        assert_int_equal(fake.given_back, i != 2);
        assert_int_equal(fake.retries, 1);
        assert_int_equal(fake.ran_out, i != 0);
        assert_int_equal(fake.mallocs, i == 0 ? 2 : 1);
        sg_self.torch_cached = false;
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start_afresh, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(kinds_are_told_by_the_beginning_of_the_name), TEST(code_of_no_library_is_nobodys),
        TEST(runtime_is_the_callers_own_where_it_has_one), TEST(module_is_remembered_where_it_lies),
        TEST(caller_that_hands_on_gets_the_next), TEST(library_after_ours_gets_every_call),
        TEST(allocation_that_no_hook_saw_is_asked_about), TEST(callers_of_the_driver_are_no_callers_of_the_runtime),
        TEST(module_is_looked_at_anew_once_a_library_has_gone), TEST(each_function_counts),
        TEST(nothing_is_remembered_where_unloads_are_not_heard), TEST(a_forked_child_looks_without_the_loaders_lock),
        TEST(what_goes_meanwhile_is_not_remembered), TEST(what_interrupts_a_note_goes_on_without_one),
        TEST(allocation_goes_the_way_of_its_caller), TEST(free_goes_the_way_of_its_caller),
        TEST(segments_of_pytorchs_cache_are_told_apart), TEST(idle_cache_makes_room_for_a_tensor),
        TEST(full_tables_answer_all_the_same), /* the last: what is in them stays */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
