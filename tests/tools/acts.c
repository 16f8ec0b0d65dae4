/* Does to memory what its arguments say, one after the other, through the driver API:
     device=N       what follows is on device N; 0 at first
     NAME+MIB       allocates; a failure ends the program with status 1, as an exception that nobody catches would
     NAME?MIB       allocates; a failure is let pass
     NAME!MIB       allocates by cuMemCreate, which is never freed, as NAME+ does
     NAME#MIB       as NAME!, but a failure is let pass
     NAME$MIB       as NAME!, into addresses for 9/8 of what cuDeviceTotalMem says: beyond them it aborts
     NAME%PERCENT   allocates this part of what cuDeviceTotalMem says, as NAME+ does
     NAME=MIB       allocates as a cache does: refused, it frees all blocks and asks again, and then as NAME+ does
     NAME^MIB       asks for twice as much each time until it is refused, freeing what it got, and takes the last as NAME+ does
     NAME~MIB       asks for twice as much each time until it is refused, freeing what it got, and takes nothing
     NAME:MIB       asks for half as much each time until it is served
     NAME,MIB       as NAME:, by cuMemCreate, which is never freed
     NAME/MIB       allocates; refused, it takes the host's memory, and then as NAME+ does
     NAME&MIB       as NAME/, but registers memory of its own for the device
     NAME@MIB       takes managed memory, which is never freed, as NAME+ does
     NAME>          gives it away by a legacy handle, and ends with status 1 if it can't
     NAME-          frees, if there is such a block
     less=WAY,MIB,ACT,OTHER  asks how much memory device 0 has in all, and does ACT where that is less, else OTHER. WAY is i
                    (cuMemGetInfo), t (cuDeviceTotalMem), p (cudaGetDeviceProperties) or n (NVML); as a capital: by a program
                    that it starts; with a dot behind that: by one without what is preloaded
     tell=WAY       writes how much there is, bytes
     fork           goes on in a child; the parent waits for it and has its status
     say=WORD       writes a line
     wait           until a signal comes
     untraced       goes on as this program anew, with the rest of the words and without SEGALLOC_TRACE
     return, fail, _exit, _fail, kill, abort, interrupt   ends so; fail, _fail: with status 1
     tell=fail      from here on ends with status 1 when it is told to end by SIGTERM
     or=END         as END, if a call that was let pass has failed */
#include "cuda_abi.h"

#include <ctype.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
    CUresult (*init)(unsigned);
    CUresult (*retain)(CUcontext *, CUdevice);
    CUresult (*current)(CUcontext);
    CUresult (*take)(CUdeviceptr *, size_t);
    CUresult (*give)(CUdeviceptr);
    CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long);
    CUresult (*total)(size_t *, CUdevice);
    CUresult (*info)(size_t *, size_t *);
    CUresult (*host)(void **, size_t, unsigned);
    CUresult (*register_host)(void *, size_t, unsigned);
    CUresult (*managed)(CUdeviceptr *, size_t, unsigned);
    CUresult (*handle)(CUipcMemHandle *, CUdeviceptr);
} driver;

static CUdeviceptr block[256]; /* by the first letter of its name */
static CUdevice device;
static int let_pass; /* calls that failed, and were let pass */

static void *function(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (!found) {
        fprintf(stderr, "acts: no %s\n", name);
        exit(3);
    }
    return found;
}

static void check(CUresult result, const char *act)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "acts: %s: %s\n", act, result == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "an error");
        exit(1);
    }
}

static void use(int ordinal)
{
    CUcontext context;
    device = ordinal;
    check(driver.retain(&context, ordinal), "cuDevicePrimaryCtxRetain");
    check(driver.current(context), "cuCtxSetCurrent");
}

static void begin(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "acts: %s\n", dlerror());
        exit(2);
    }
    driver.init = (CUresult(*)(unsigned))function(library, "cuInit");
    driver.retain = (CUresult(*)(CUcontext *, CUdevice))function(library, "cuDevicePrimaryCtxRetain");
    driver.current = (CUresult(*)(CUcontext))function(library, "cuCtxSetCurrent");
    driver.take = (CUresult(*)(CUdeviceptr *, size_t))function(library, "cuMemAlloc_v2");
    driver.give = (CUresult(*)(CUdeviceptr))function(library, "cuMemFree_v2");
    driver.create = (CUresult(*)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
        unsigned long long))function(library, "cuMemCreate");
    driver.total = (CUresult(*)(size_t *, CUdevice))function(library, "cuDeviceTotalMem_v2");
    driver.info = (CUresult(*)(size_t *, size_t *))function(library, "cuMemGetInfo_v2");
    driver.managed = (CUresult(*)(CUdeviceptr *, size_t, unsigned))function(library, "cuMemAllocManaged");
    driver.handle = (CUresult(*)(CUipcMemHandle *, CUdeviceptr))function(library, "cuIpcGetMemHandle");
    driver.host = (CUresult(*)(void **, size_t, unsigned))function(library, "cuMemHostAlloc");
    driver.register_host = (CUresult(*)(void *, size_t, unsigned))function(library, "cuMemHostRegister_v2");
    check(driver.init(0), "cuInit");
}

static void end(const char *how)
{
    fflush(stdout);
    if (strcmp(how, "return") == 0 || strcmp(how, "fail") == 0)
        exit(*how == 'f');
    if (strcmp(how, "_exit") == 0 || strcmp(how, "_fail") == 0)
        _exit(how[1] == 'f');
    raise(strcmp(how, "kill") == 0 ? SIGKILL : strcmp(how, "abort") == 0 ? SIGABRT : SIGINT);
}

static void told(int signal)
{
    (void)signal;
    _exit(1);
}

static int divide(void)
{
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        return -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void take_as_a_cache(CUdeviceptr *at, size_t bytes, const char *act)
{
    if (driver.take(at, bytes) == CUDA_SUCCESS)
        return;
    for (size_t i = 0; i < sizeof block / sizeof *block; i++) {
        if (block[i])
            check(driver.give(block[i]), act);
        block[i] = 0;
    }
    check(driver.take(at, bytes), act);
}

static size_t double_until_refused(CUdeviceptr *at, size_t bytes, const char *act)
{
    for (; driver.take(at, bytes) == CUDA_SUCCESS; bytes *= 2)
        check(driver.give(*at), act);
    *at = 0;
    return bytes / 2;
}

static CUresult create(size_t bytes)
{
    CUmemGenericAllocationHandle handle;
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    return driver.create(&handle, bytes, &prop, 0);
}

static void halve_until_served(CUdeviceptr *at, size_t bytes, bool creates, const char *act)
{
    CUresult result;
    while ((result = creates ? create(bytes) : driver.take(at, bytes)) == CUDA_ERROR_OUT_OF_MEMORY && bytes > 1 << 20)
        bytes /= 2;
    check(result, act);
}

static void create_within_addresses(size_t bytes, const char *act)
{
    static size_t taken;
    size_t total;
    check(driver.total(&total, device), act);
    check(create(bytes), act);
    taken += bytes;
    if (taken > total + total / 8)
        abort();
}

static void take_here_or_there(CUdeviceptr *at, size_t bytes, const char *act)
{
    void *there;
    if (driver.take(at, bytes) == CUDA_SUCCESS)
        return;
    *at = 0;
    if (act[1] == '/') {
        check(driver.host(&there, bytes, 0), act);
        return;
    }
    there = aligned_alloc(4096, bytes);
    check(there ? driver.register_host(there, bytes, 0) : CUDA_ERROR_OUT_OF_MEMORY, act);
}

static void on_memory(const char *act)
{
    CUdeviceptr *at = &block[(unsigned char)act[0]];
    CUipcMemHandle handle;
    size_t total, bytes = (size_t)strtoull(act + (act[0] != '\0' && act[1] != '\0' ? 2 : 0), NULL, 10) << 20;
    switch (act[0] ? act[1] : '\0') {
    case '+':
        check(driver.take(at, bytes), act);
        return;
    case '!':
        check(create(bytes), act);
        return;
    case '#':
        let_pass += create(bytes) != CUDA_SUCCESS;
        return;
    case '$':
        create_within_addresses(bytes, act);
        return;
    case '~':
        (void)double_until_refused(at, bytes, act);
        return;
    case '?':
        let_pass += driver.take(at, bytes) != CUDA_SUCCESS;
        return;
    case '>':
        check(driver.handle(&handle, *at), act);
        return;
    case '@':
        check(driver.managed(at, bytes, 1), act);
        return;
    case '=':
        take_as_a_cache(at, bytes, act);
        return;
    case '/':
    case '&':
        take_here_or_there(at, bytes, act);
        return;
    case ':':
    case ',':
        halve_until_served(at, bytes, act[1] == ',', act);
        return;
    case '^':
        check(driver.take(at, double_until_refused(at, bytes, act)), act);
        return;
    case '%':
        check(driver.total(&total, device), act);
        check(driver.take(at, total / 100 * (bytes >> 20)), act);
        return;
    case '-':
        if (*at)
            check(driver.give(*at), act);
        *at = 0;
        return;
    default:
        fprintf(stderr, "acts: what is \"%s\"?\n", act);
        exit(2);
    }
}

/* NVIDIA's layout of cudaDeviceProp has the total at byte 288, in CUDA 12 and 13. */
static size_t total_of_properties(void)
{
    enum { TOTAL_AT = 288 };
    static _Alignas(8) unsigned char properties[4096];
    size_t total;
    void *library = dlopen("libcudart.so.13", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "acts: %s\n", dlerror());
        exit(3);
    }
    int (*get)(void *, int) = (int (*)(void *, int))function(library, "cudaGetDeviceProperties");
    check(get(properties, 0) ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS, "cudaGetDeviceProperties");
    memcpy(&total, properties + TOTAL_AT, sizeof total);
    return total;
}

static size_t total_of_nvml(void)
{
    struct {
        unsigned long long total, free, used;
    } memory = {0};
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW), *handle;
    if (!library) {
        fprintf(stderr, "acts: %s\n", dlerror());
        exit(3);
    }
    int (*start)(void) = (int (*)(void))function(library, "nvmlInit_v2");
    int (*get)(unsigned, void **) = (int (*)(unsigned, void **))function(library, "nvmlDeviceGetHandleByIndex_v2");
    int (*ask)(void *, void *) = (int (*)(void *, void *))function(library, "nvmlDeviceGetMemoryInfo");
    check(start() || get(0, &handle) || ask(handle, &memory) ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS, "NVML");
    return (size_t)memory.total;
}

static size_t total_by(char way)
{
    size_t total = 0, available;
    if (way == 'p')
        return total_of_properties();
    if (way == 'n')
        return total_of_nvml();
    check(way == 'i' ? driver.info(&available, &total) : driver.total(&total, 0), "a question");
    return total;
}

/* By this program, started anew. */
static size_t total_by_child(char way, bool bare)
{
    char command[64];
    unsigned long long total = 0;
    snprintf(command, sizeof command, "%s/proc/%ld/exe tell=%c", bare ? "env -u LD_PRELOAD " : "exec ", (long)getpid(), way);
    FILE *child = popen(command, "r");
    if (!child || fscanf(child, "%llu", &total) != 1 || pclose(child) != 0)
        exit(3);
    return (size_t)total;
}

/* "WAY,MIB,ACT,OTHER". */
static void act_by_total(const char *words)
{
    char way[3], act[64], other[64];
    unsigned long long mib;
    if (sscanf(words, "%2[^,],%llu,%63[^,],%63s", way, &mib, act, other) != 4)
        exit(2);
    bool child = isupper((unsigned char)*way);
    size_t total = child ? total_by_child((char)tolower((unsigned char)*way), way[1] == '.') : total_by(*way);
    on_memory(total >> 20 < mib ? act : other);
}

int main(int argc, char **argv)
{
    static const char *const ends[] = {"return", "fail", "_exit", "_fail", "kill", "abort", "interrupt"};
    begin();
    if (argc < 2 || strncmp(argv[1], "device=", 7) != 0)
        use(0);
    for (int i = 1; i < argc; i++) {
        const char *act = argv[i];
        for (size_t j = 0; j < sizeof ends / sizeof *ends; j++)
            if (strcmp(act, ends[j]) == 0)
                end(act);
        if (strncmp(act, "or=", 3) == 0) {
            if (let_pass)
                end(act + 3);
            continue;
        }
        if (strcmp(act, "tell=fail") == 0) {
            signal(SIGTERM, told);
            continue;
        }
        if (strcmp(act, "untraced") == 0) {
            unsetenv("SEGALLOC_TRACE");
            argv[i] = argv[0];
            execv("/proc/self/exe", argv + i);
            return 2;
        }
        if (strcmp(act, "fork") == 0) {
            int status = divide();
            if (status >= 0)
                return status;
        } else if (strcmp(act, "wait") == 0) {
            pause();
        } else if (strncmp(act, "say=", 4) == 0) {
            puts(act + 4);
            fflush(stdout);
        } else if (strncmp(act, "less=", 5) == 0) {
            act_by_total(act + 5);
        } else if (strncmp(act, "tell=", 5) == 0) {
            printf("%zu\n", total_by(act[5]));
        } else if (strncmp(act, "device=", 7) == 0) {
            use(atoi(act + 7));
        } else {
            on_memory(act);
        }
    }
    return 0;
}
