/* Makes every call that the library answers in the driver's place, with arguments that name nothing or the wrong things,
   and prints what each returned: the same natively and preloaded. Each call has a process of its own, so that what it
   breaks, or a death of it, is its own. Usage: every_call WHEN, one of the moments below; the simulated machine has two
   devices. */
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_proto.h"

/* As many arguments as the longest has, and as the largest that is handed over by value. */
typedef CUresult any_call(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t,
    uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);

static const char *const names[] = {
#define HOOK(symbol, base, version, threads, parameters) #symbol,
#include "process/hooks.def"
};

enum { NAMES = sizeof names / sizeof *names, BYTES = 3 << 20, SECONDS = 60, SCRATCH = 8192 };

static any_call *call;
static const char *name, *when;
static CUcontext context;
static CUstream stream;
static CUdeviceptr block, beside;
static unsigned char scratch[SCRATCH];

#define NEED(done) \
    do { \
        CUresult need_ = (done); \
        if (need_ != CUDA_SUCCESS) { \
            printf("%s: %s: %d\n", name, #done, (int)need_); \
            exit(1); \
        } \
    } while (0)

/* What is to answer otherwise, or may. */
static const struct {
    const char *moment, *name, *with; /* NULL: any */
} apart[] = {
    {NULL, "cuPointerGetAttributes", "an empty struct"}, /* believes the count that it is told */
    {NULL, "cuPointerGetAttributes", "a block"},
    {NULL, "cuMemPrefetchBatchAsync", NULL}, /* and so do these */
    {NULL, "cuMemPrefetchBatchAsync_ptsz", NULL},
    {NULL, "cuMemDiscardAndPrefetchBatchAsync", NULL},
    {NULL, "cuMemDiscardAndPrefetchBatchAsync_ptsz", NULL},
    {NULL, "cuMemcpy", "an empty struct"},
    {NULL, "cuMemcpy_ptds", "an empty struct"},
    /* Memory that is mapped piece by piece is not given to other processes by its address, and has handles. */
    {NULL, "cuIpcGetMemHandle", "a block"},
    {NULL, "cuMemRetainAllocationHandle", "a block"},
    /* The driver forbids these by who calls and when, and we know what it would answer else. */
    {"in_function_of_the_host", "cuMemGetAddressRange_v2", "a block"},
    {"in_function_of_the_host", "cuMemUnmap", "a block"},
    {"in_function_of_the_host", "cuMemSetAccess", "a block"},
    {"in_forked_child", "cuMemUnmap", "a block"},
    {"in_forked_child", "cuMemSetAccess", "a block"},
    /* Memory that can't be given back any more is not to be an error. */
    {"in_forked_child", "cuMemFree_v2", "a block"},
    {"in_forked_child", "cuMemFreeAsync", "a block"},
    {"in_forked_child", "cuMemFreeAsync_ptsz", "a block"},
    /* Allocating ruins no capture. */
    {"beside_strict_capture", "cuMemAlloc_v2", NULL},
};

static bool is_apart(const char *with)
{
    bool found = false;
    for (size_t i = 0; i < sizeof apart / sizeof *apart; i++)
        found |= strcmp(apart[i].name, name) == 0 && (!apart[i].moment || strcmp(apart[i].moment, when) == 0) &&
            (!apart[i].with || strcmp(apart[i].with, with) == 0);
    return found;
}

static void say(const char *with, uintptr_t value)
{
    if (is_apart(with))
        return;
    CUresult result = call(value, value, value, value, value, value, value, value, value, value, value, value, value,
        value);
    printf("%s of %s: %d\n", name, with, (int)result);
    fflush(stdout);
}

static void all(void)
{
    say("nothing", 0);
    say("an empty struct", (uintptr_t)scratch); /* no handle of the driver's either */
    say("a block", (uintptr_t)block);
}

static void use_device(int ordinal)
{
    CUdevice device;
    NEED(cuDeviceGet(&device, ordinal));
    NEED(cuCtxCreate_v2(&context, 0, device));
    NEED(cuStreamCreate(&stream, 1));
}

static void use(void)
{
    NEED(cuInit(0));
    use_device(0);
    NEED(cuMemAlloc_v2(&beside, BYTES));
    NEED(cuMemAlloc_v2(&block, BYTES));
    NEED(cuMemsetD8_v2(block, 0, BYTES));
    NEED(cuCtxSynchronize());
}

/* What was there before is as it was. */
static void look(void)
{
    unsigned char byte = 1;
    CUgraph graph;
    CUresult (*end)(CUstream, CUgraph *);
    void *symbol = dlsym(RTLD_DEFAULT, "cuStreamEndCapture_ptsz");
    memcpy(&end, &symbol, sizeof end);
    printf("%s, and the thread's own capture: %d\n", name, (int)end(NULL, &graph)); /* some of them begin it */
    CUresult set = cuMemsetD8_v2(beside + BYTES - 1, 7, 1), got = cuMemcpyDtoH_v2(&byte, beside + BYTES - 1, 1);
    printf("%s, and later: %d %d %d, %d\n", name, (int)set, (int)got, byte, (int)cuMemFree_v2(beside));
}

static void before(void)
{
    all();
}

static void without_context(void)
{
    NEED(cuInit(0));
    all();
}

static void with_context(void)
{
    NEED(cuInit(0));
    use_device(0);
    all();
}

static void served(void)
{
    use();
    all();
    look();
}

static void on_another_device(void)
{
    use();
    use_device(1);
    all();
    look();
}

static void in_host(void *unused)
{
    (void)unused;
    all();
}

static void in_function_of_the_host(void)
{
    use();
    NEED(cuLaunchHostFunc(stream, in_host, NULL));
    NEED(cuStreamSynchronize(stream));
    look();
}

static void beside_capture(CUstreamCaptureMode mode)
{
    CUgraph graph;
    use();
    NEED(cuStreamBeginCapture_v2(stream, mode));
    all();
    printf("%s, and then the capture: %d\n", name, (int)cuStreamEndCapture(stream, &graph));
    look();
}

static void beside_strict_capture(void)
{
    beside_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static void beside_relaxed_capture(void)
{
    beside_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
}

static void in_forked_child(void)
{
    use();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        all();
    else
        waitpid(child, NULL, 0);
}

static void outside_its_context(void)
{
    use();
    NEED(cuCtxSetCurrent(NULL));
    all();
}

static const struct moment {
    const char *name;
    void (*function)(void);
} moments[] = {
#define MOMENT(function) {#function, function}
    MOMENT(before), MOMENT(without_context), MOMENT(with_context), MOMENT(served), MOMENT(on_another_device),
    MOMENT(in_function_of_the_host), MOMENT(beside_strict_capture), MOMENT(beside_relaxed_capture),
    MOMENT(in_forked_child), MOMENT(outside_its_context),
};

static void make(const struct moment *moment, int number)
{
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        void *symbol = dlsym(RTLD_DEFAULT, names[number]);
        name = names[number];
        when = moment->name;
        memcpy(&call, &symbol, sizeof call);
        alarm(SECONDS);
        signal(SIGSEGV, SIG_DFL); /* the driver reads what it is given; a sanitizer would report that, by addresses */
        if (symbol)
            moment->function();
        else
            printf("%s: the driver has none\n", name);
        exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        exit(2);
    if (status != 0)
        printf("%s: status %x\n", names[number], (unsigned)status);
}

int main(int count, char **argument)
{
    const struct moment *moment = NULL;
    for (size_t i = 0; i < sizeof moments / sizeof *moments; i++)
        moment = count > 1 && strcmp(moments[i].name, argument[1]) == 0 ? &moments[i] : moment;
    if (!moment)
        return 2;
    for (int i = 0; i < NAMES; i++)
        make(moment, i);
    return 0;
}
