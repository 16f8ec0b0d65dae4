/* The answers of dlsym() and cuGetProcAddress: our function in place of the driver's.

   Two ways lead to a driver's function. A program or the runtime asks dlsym for a name; or it asks cuGetProcAddress,
   itself found by dlsym, for a base name and a version. Both are answered from the table of hooks. The rule is that
   nobody finds a name here which it would not find without this library. Where libcuda isn't loaded for the caller,
   ours isn't there either.

   For example, libcudart asks dlsym(handle of libcuda, "cuGetProcAddress_v2") and gets ours. Then it asks that for
   ("cuMemAlloc", 12000) and gets our cuMemAlloc_v2. From then on each cudaMalloc of that runtime comes to
   hooks/memory_hooks.c. */
#include "process/glibc_symver.h"

#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <string.h>

#include "hooks/unhooked_calls.h"
#include "process/hook_table.h"
#include "process/loaded_code.h"
#include "process/process.h"
#include "process/symbols.h"

static const struct export
{
    const char *name, *library;
}
exports[] = {
#define EXPORT(name, library) {#name, library},
#include "process/exports.def"
};

enum { EXPORT_COUNT = sizeof exports / sizeof *exports };

/* Lengths are compared first: a runtime's first call looks for some 900 names, and few rows are as long as a name. */
static const struct sg_hook_row *hook_named(const char *symbol)
{
    size_t length = strlen(symbol);
    for (int i = 0; i < SG_HOOK_COUNT; i++) {
        if (sg_hooks[i].symbol_length == length && strcmp(sg_hooks[i].symbol, symbol) == 0)
            return &sg_hooks[i];
    }
    return NULL;
}

/* The newest row that `base` means for a caller of this version and meaning of the default stream. */
static const struct sg_hook_row *hook_wanted(const char *base, int version, cuuint64_t flags)
{
    enum sg_threads threads = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM ? SG_THREADS_PER_THREAD
                                                                                    : SG_THREADS_LEGACY;
    const struct sg_hook_row *best = NULL;
    for (int i = 0; i < SG_HOOK_COUNT; i++) {
        const struct sg_hook_row *hook = &sg_hooks[i];
        if (hook->version > version || (hook->threads != SG_THREADS_ANY && hook->threads != threads) ||
            strcmp(hook->base, base) != 0 || !sg_hook_real(hook))
            continue;
        if (!best || hook->version > best->version)
            best = hook;
    }
    return best;
}

static bool symbols_begins(const char *name, const char *const *prefixes)
{
    while (*prefixes && strncmp(name, *prefixes, strlen(*prefixes)) != 0)
        prefixes++;
    return *prefixes != NULL;
}

/* Beginnings of the names of calls that may give streams work, or order it, and of those that do neither. */
static const char *const suspects[] = {"cuStream", "cuEvent", "cuLaunch", "cuMemcpy", "cuMemset", "cuCtxRecord",
    "cuCtxWait", "cuCtxSynchronize", "cuGreenCtxRecord", "cuGreenCtxWait", "cuGraphLaunch", "cuFabricCpy", NULL};
static const char *const harmless[] = {"cuStreamGet", "cuStreamSetAttribute", "cuStreamCopyAttributes",
    "cuStreamIsCapturing", "cuStreamUpdateCapture", "cuStreamEndCaptureToCig", "cuEventElapsedTime", NULL};

/* True if a symbol is the twin of 32 bits, of CUDA 2, of a call that is hooked: it can't name memory of ours. */
static bool is_twin(const char *symbol)
{
    for (int i = 0; i < SG_HOOK_COUNT; i++) {
        size_t length = strlen(sg_hooks[i].base);
        if (strncmp(sg_hooks[i].base, symbol, length) == 0 &&
            (symbol[length] == '\0' || strcmp(symbol + length, "_ptsz") == 0 || strcmp(symbol + length, "_ptds") == 0))
            return true;
    }
    return false;
}

/* Calls that remember the page behind an address (pin_hooks.c). A call that takes a handle of a page follows one of
   these, which has pinned the page. */
static const char *const rememberers[] = {"cuMulticastBind", "cuMemRetainAllocationHandle",
    "cuMemGetHandleForAddressRange", "cuLogicalEndpointBind", NULL};
static const char *const by_handle[] = {"cuMulticastBindMem", "cuLogicalEndpointBindMem", NULL};

static bool may_order(const char *name)
{
    return symbols_begins(name, suspects) && !symbols_begins(name, harmless);
}

static bool may_remember(const char *name)
{
    return symbols_begins(name, rememberers) && !symbols_begins(name, by_handle);
}

/* A function of the driver that is in no table. If its name says that it may order streams or give them work, order
   is given up once it is called. If it may remember pages, all pages are pinned from then on. */
static void *symbols_unknown(void *answer, const char *name)
{
    if (may_order(name))
        return sg_untracked_stub(SG_UNTRACKED_ORDER, name, answer);
    return may_remember(name) ? sg_untracked_stub(SG_UNTRACKED_PAGES, name, answer) : answer;
}

enum { TABLES_VERSION = 13050, TWINS_VERSION = 3020 }; /* hooks.def has each form from the latter to the former */

static bool is_hooked(const char *symbol)
{
    return hook_named(symbol) != NULL;
}

/* True if some hook has this name for cuGetProcAddress. */
static bool is_base(const char *name)
{
    size_t length = strlen(name);
    int i = 0;
    while (i < SG_HOOK_COUNT && (sg_hooks[i].base_length != length || strcmp(sg_hooks[i].base, name) != 0))
        i++;
    return i < SG_HOOK_COUNT;
}

/* Our function for an answer that another library exports as `name`. The libcuda.so.1 of Windows' Linux jumps to one
   that it has loaded, and may answer with that one's functions. Ours goes on to what libcuda exports. */
static void *symbols_named(void *answer, const char *name)
{
    const struct sg_hook_row *hook = hook_named(name);
    if (hook && sg_hook_real(hook))
        return sg_address_of(hook->function);
    return is_twin(name) ? answer : symbols_unknown(answer, name);
}

/* Our function for what the driver answered. Its exported functions are known by their addresses, whatever was asked.
   A function of another library is known by the name that it has there. One that nobody exports is what our table says
   where the table has all forms that the caller may mean. A runtime asks for some 440 names at its first call, with a
   lock of its own held. Those that can't be ours cost a few comparisons. The lock that dlopen holds while
   constructors run is not taken. */
static void *symbols_substitute(void *answer, const char *base, int version, cuuint64_t flags)
{
    if (sg_process_watched())
        return answer;
    for (int i = 0; i < SG_HOOK_COUNT; i++) {
        if (answer == sg_hook_real(&sg_hooks[i]))
            return sg_address_of(sg_hooks[i].function);
        if (answer == sg_address_of(sg_hooks[i].function))
            return answer;
    }
    if (!is_base(base) && !may_order(base) && !may_remember(base))
        return answer;
    const char *name = sg_loaded_name(answer, is_hooked);
    if (name)
        return symbols_named(answer, name);
    const struct sg_hook_row *hook = hook_wanted(base, version, flags);
    if (hook && version <= TABLES_VERSION)
        return sg_address_of(hook->function);
    return version < TWINS_VERSION && is_twin(base) ? answer : symbols_unknown(answer, base);
}

static CUresult symbols_answered(CUresult result, const char *symbol, int version, cuuint64_t flags, void **ret)
{
    if (result == CUDA_SUCCESS && symbol && ret && *ret)
        *ret = symbols_substitute(*ret, symbol, version, flags);
    return result;
}

CUresult cuGetProcAddress(const char *symbol, void **ret, int version, cuuint64_t flags)
{
    const struct sg_real *real = sg_real();
    bool outer = sg_thread_enter();
    CUresult result = real->cuGetProcAddress(symbol, ret, version, flags);
    sg_thread_leave(outer);
    return symbols_answered(result, symbol, version, flags, ret);
}

CUresult cuGetProcAddress_v2(const char *symbol, void **ret, int version, cuuint64_t flags,
    CUdriverProcAddressQueryResult *status)
{
    const struct sg_real *real = sg_real();
    bool outer = sg_thread_enter();
    CUresult result = real->cuGetProcAddress_v2(symbol, ret, version, flags, status);
    sg_thread_leave(outer);
    return symbols_answered(result, symbol, version, flags, ret);
}

/* The answer of dlsym(): `value`, or, where `real` is set, whatever the real one answers to the very same call. */
struct answer {
    void *value;
    sg_dlsym_fn *real;
};

/* Called from assembly only, which a compiler that sees the whole library at link time does not look into. */
#if defined(__has_attribute)
#if __has_attribute(externally_visible)
__attribute__((externally_visible))
#endif
#endif
__attribute__((used)) struct answer
sg_dlsym_answer(void *handle, const char *name, const void *caller);

/* NULL, with the text that dlerror() has for a name that isn't there. */
static struct answer symbols_absent(const char *name)
{
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    if (!libc)
        return (struct answer){NULL, NULL};
    sg_library_close(libc); /* it stays: nobody unloads libc. Closing it later would drop the text. */
    return (struct answer){sg_dlsym()(libc, name), NULL};
}

/* True if a search is the program's own: RTLD_DEFAULT or RTLD_NEXT by the program, or any search by the handle of
   dlopen(NULL). It finds what all may find. A library's RTLD_DEFAULT also finds what was loaded for that library alone. */
static bool is_programs_search(void *handle, const void *caller)
{
    Dl_info info;
    struct link_map *map = NULL;
    if (handle == RTLD_DEFAULT || handle == RTLD_NEXT)
        return caller && dladdr1(caller, &info, (void **)&map, RTLD_DL_LINKMAP) && map && map->l_name && !*map->l_name;
    void *program = dlopen(NULL, RTLD_LAZY | RTLD_NOLOAD);
    if (program)
        sg_library_close(program);
    return handle == program;
}

/* True if a search that has found us would find nothing without us: the library of that name was loaded with RTLD_LOCAL.
   `marker` is a function of it that is not hooked. Where nobody has that one, nothing is known. An example: a program
   opens libcuda.so.1 for itself and asks RTLD_DEFAULT for cuMemAlloc_v2. Natively that is NULL. */
static bool is_hidden_natively(void *handle, const char *marker, const void *caller, sg_dlsym_fn *real)
{
    return is_programs_search(handle, caller) && !real(handle, marker);
}

/* For RTLD_NEXT `real` finds what comes after us, though the caller's next may be ourselves. */
static struct answer answer_hook(const struct sg_hook_row *hook, void *handle, const void *caller, sg_dlsym_fn *real)
{
    static const char marker[] = "cuDeviceGetCount";
    void *found = real(handle, hook->symbol);
    void *ours = sg_address_of(hook->function), *theirs = sg_cuda_symbol(hook->symbol);
    bool is_ours_alone = found == ours || (!found && handle == RTLD_NEXT); /* as far as the caller can see */
    if (theirs && is_ours_alone && sg_cuda_symbol(marker) && is_hidden_natively(handle, marker, caller, real))
        return symbols_absent(hook->symbol);
    if (!found && (theirs || handle != RTLD_NEXT))
        return (struct answer){NULL, real};
    if (found && found != ours && found != theirs)
        return (struct answer){NULL, real};
    if (!theirs)
        return symbols_absent(hook->symbol);
    (void)sg_real(); /* whoever asks takes the loader's lock anyway; the calls that follow need not */
    return (struct answer){sg_process_watched() ? theirs : ours, NULL};
}

static bool symbol_is_ours(const void *function)
{
    extern const char __ehdr_start[] __attribute__((visibility("hidden")));
    Dl_info info;
    return dladdr(function, &info) && info.dli_fbase == (const void *)__ehdr_start;
}

/* A search for such a name gets what the loader finds. Ours isn't to be found where its library is not. */
static struct answer answer_export(const struct export *export, void *handle, const void *caller, sg_dlsym_fn *real)
{
    void *found = sg_dlsym()(handle, export->name); /* relative to this library */
    bool ours = found ? symbol_is_ours(found) : handle == RTLD_NEXT;
    bool is_runtimes = strcmp(export->library, "libcudart") == 0;
    if (ours && (!sg_library_loaded(export->library) ||
                    (is_runtimes && is_hidden_natively(handle, "cudaRuntimeGetVersion", caller, real))))
        return symbols_absent(export->name);
    return (struct answer){NULL, real};
}

/* `name` may be a call that nothing here knows. */
static struct answer answer_unknown(void *handle, const char *name, sg_dlsym_fn *real)
{
    void *theirs = is_twin(name) ? NULL : sg_cuda_symbol(name);
    if (!theirs || sg_process_watched() || sg_thread_inside() || real(handle, name) != theirs)
        return (struct answer){NULL, real};
    return (struct answer){symbols_unknown(theirs, name), NULL};
}

/* Sorts a name: a hook, a call that may matter, another export of ours, or none of these. */
static struct answer answer_name(void *handle, const char *name, const void *caller, sg_dlsym_fn *real)
{
    const struct sg_hook_row *hook = hook_named(name);
    if (hook && !sg_thread_inside())
        return answer_hook(hook, handle, caller, real);
    if (!hook && (may_order(name) || may_remember(name)))
        return answer_unknown(handle, name, real);
    for (int i = 0; !hook && i < EXPORT_COUNT; i++) {
        if (strcmp(exports[i].name, name) == 0)
            return answer_export(&exports[i], handle, caller, real);
    }
    return (struct answer){NULL, real};
}

/* Nearly every name is told from ours by its first letters. */
SG_UNCHECKED struct answer sg_dlsym_answer(void *handle, const char *name, const void *caller)
{
    sg_dlsym_fn *real = sg_dlsym_next();
    if (name && ((name[0] == 'c' && name[1] == 'u') || (name[0] == '_' && name[1] == 'Z')))
        return answer_name(handle, name, caller, real);
    return (struct answer){NULL, real};
}

/* dlsym itself. A call that is not ours to answer jumps to the real one, with the caller's return address still in
   place. RTLD_NEXT and RTLD_DEFAULT mean something else to every caller. */
#if defined(__x86_64__)
__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, @function\n"
        "dlsym:\n"
        ".cfi_startproc\n"
        "endbr64\n"
        "subq $24, %rsp\n"
        ".cfi_adjust_cfa_offset 24\n"
        "movq %rdi, 8(%rsp)\n"
        "movq %rsi, (%rsp)\n"
        "movq 24(%rsp), %rdx\n"
        "call sg_dlsym_answer\n"
        "movq (%rsp), %rsi\n"
        "movq 8(%rsp), %rdi\n"
        "addq $24, %rsp\n"
        ".cfi_adjust_cfa_offset -24\n"
        "testq %rdx, %rdx\n"
        "jne 1f\n"
        "ret\n"
        "1: jmp *%rdx\n"
        ".cfi_endproc\n"
        ".size dlsym, . - dlsym\n");
#else
__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, %function\n"
        "dlsym:\n"
        ".cfi_startproc\n"
        "hint #34\n"
        "stp x29, x30, [sp, #-32]!\n"
        ".cfi_def_cfa_offset 32\n"
        ".cfi_offset 29, -32\n"
        ".cfi_offset 30, -24\n"
        "mov x29, sp\n"
        "stp x0, x1, [sp, #16]\n"
        "mov x2, x30\n"
        "bl sg_dlsym_answer\n"
        "cbnz x1, 1f\n"
        "ldp x29, x30, [sp], #32\n"
        ".cfi_remember_state\n"
        ".cfi_restore 29\n"
        ".cfi_restore 30\n"
        ".cfi_def_cfa_offset 0\n"
        "ret\n"
        ".cfi_restore_state\n"
        "1: mov x16, x1\n"
        "ldp x0, x1, [sp, #16]\n"
        "ldp x29, x30, [sp], #32\n"
        ".cfi_restore 29\n"
        ".cfi_restore 30\n"
        ".cfi_def_cfa_offset 0\n"
        "br x16\n"
        ".cfi_endproc\n"
        ".size dlsym, . - dlsym\n");
#endif
