/* Processes: what happens before the first call, at fork, at exit. Each case is a process of its own. */
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "extra.h"
#include "sim_test.h"

static unsigned threads_of_process(void)
{
    unsigned count = 0;
    DIR *tasks = opendir("/proc/self/task");
    while (tasks && readdir(tasks))
        count++;
    if (tasks)
        closedir(tasks);
    return count - 2;
}

static void open_device(void)
{
    use_device_0(NULL);
}

static int no_thread_before_work(void)
{
    open_device();
    CUdeviceptr address;
    CUstream stream;
    ok(cuMemAlloc_v2(&address, 4096));
    ok(cuStreamCreate(&stream, 0));
    ok(cuStreamSynchronize(stream));
    ok(cuMemFree_v2(address));
    if (threads_of_process() != 1)
        return 1;
    ok(cuMemsetD8Async(0, 0, 0, stream));
    ok(cuLaunchHostFunc(stream, wait_at_gate, &(struct gate){.open = true}));
    ok(cuStreamSynchronize(stream));
    return threads_of_process() > 1 ? 0 : 2;
}

static sigset_t blocked;

static void look_at_signals(void *unused)
{
    (void)unused;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
}

static int threads_take_no_signals(void)
{
    open_device();
    ok(cuLaunchHostFunc(NULL, look_at_signals, NULL));
    ok(cuCtxSynchronize());
    return sigismember(&blocked, SIGINT) == 1 && sigismember(&blocked, SIGTERM) == 1 ? 0 : 1;
}

static struct gate never;

static void leave_work_behind(void)
{
    open_device();
    CUstream stream;
    ok(cuStreamCreate(&stream, 0));
    for (int i = 0; i < 10; i++) {
        ok(cuLaunchHostFunc(stream, wait_at_gate, &never)); /* which stays shut */
        ok(cuLaunchHostFunc(NULL, wait_at_gate, &never));
    }
    while (!never.reached)
        sleep_ms(1);
}

static int exit_with_work_queued(void)
{
    leave_work_behind();
    return 0;
}

static int leave_at_once_with_work_queued(void)
{
    leave_work_behind();
    _exit(0);
}

static void exit_inside(void *unused)
{
    (void)unused;
    exit(0);
}

static int exit_in_a_host_function(void)
{
    open_device();
    ok(cuLaunchHostFunc(NULL, exit_inside, NULL));
    sleep_ms(5000);
    return 1;
}

static CUdeviceptr left_over;

static void free_late(void)
{
    if (cuMemFree_v2(left_over) != CUDA_ERROR_DEINITIALIZED)
        _exit(1);
}

static int calls_after_the_end(void)
{
    atexit(free_late); /* runs after what cuInit registers later */
    open_device();
    ok(cuMemAlloc_v2(&left_over, 4096));
    return 0;
}

static int fork_after_init(void)
{
    open_device();
    ok(cuLaunchHostFunc(NULL, wait_at_gate, &(struct gate){.open = true}));
    ok(cuMemAlloc_v2(&left_over, 4096));
    ok(cuCtxSynchronize());
    pid_t child = fork();
    if (child == 0) {
        CUdeviceptr address;
        int version;
        bool refused = cuMemAlloc_v2(&address, 512) == CUDA_ERROR_NOT_INITIALIZED &&
                       cuMemFree_v2(left_over) == CUDA_ERROR_NOT_INITIALIZED &&
                       cuInit(0) == CUDA_ERROR_NOT_INITIALIZED && cuCtxSynchronize() == CUDA_ERROR_NOT_INITIALIZED &&
                       cuDriverGetVersion(&version) == CUDA_SUCCESS;
        exit(refused ? 0 : 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    ok(cuMemFree_v2(left_over)); /* the parent goes on */
    return status;
}

static int fork_before_init(void)
{
    pid_t child = fork();
    open_device();
    ok(cuMemAlloc_v2(&left_over, 4096));
    if (child == 0)
        exit(0);
    int status = 1;
    waitpid(child, &status, 0);
    return status;
}

static int bad_configuration(void)
{
    setenv("SEGALLOC_SIM", "24 bananas", 1);
    int version;
    return cuInit(0) == CUDA_ERROR_INVALID_VALUE && cuInit(0) == CUDA_ERROR_INVALID_VALUE &&
                   cuDeviceGetCount(&version) == CUDA_ERROR_NOT_INITIALIZED &&
                   cuDriverGetVersion(&version) == CUDA_SUCCESS
               ? 0
               : 1;
}

static int no_vmm(void)
{
    setenv("SEGALLOC_SIM", "1GiB,no-vmm", 1);
    open_device();
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = on_device(0);
    CUdeviceptr address;
    expect_error(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&handle, PAGE, &prop, 0));
    expect_error(CUDA_ERROR_NOT_SUPPORTED, cuMemAddressReserve(&address, PAGE, 0, 0, 0));
    int supported;
    ok(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    ok(cuMemAlloc_v2(&address, MIB));
    return supported;
}

static int no_devices(void)
{
    setenv("SEGALLOC_SIM", "1GiB,count=0", 1);
    expect_error(CUDA_ERROR_NO_DEVICE, cuInit(0));
    return 0;
}

/* A copy that runs after its memory was unmapped loses the context, as on a GPU. */
static int illegal_address(void)
{
    setenv("SEGALLOC_SIM", "1GiB", 1);
    open_device();
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = on_device(0);
    CUmemAccessDesc access = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUdeviceptr base, other;
    struct gate gate = {0};
    ok(cuMemCreate(&handle, PAGE, &prop, 0));
    ok(cuMemAddressReserve(&base, PAGE, 0, 0, 0));
    ok(cuMemMap(base, PAGE, 0, handle, 0));
    ok(cuMemSetAccess(base, PAGE, &access, 1));
    ok(cuLaunchHostFunc(NULL, wait_at_gate, &gate));
    ok(cuMemsetD8Async(base, 1, PAGE, NULL));
    ok(cuMemUnmap(base, PAGE));
    gate.open = true;
    expect_error(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    expect_error(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc_v2(&other, 512)); /* and it stays so */
    return 0;
}

static bool has_run;

static void note_run(void **arguments)
{
    (void)arguments;
    has_run = true;
}

/* A kernel that is declared to touch memory which is not there, or was said to, loses the context and does nothing. Where it
   was is known. */
static int kernel_at_illegal_address(bool declared)
{
    setenv("SEGALLOC_SIM", "1GiB", 1);
    open_device();
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = on_device(0);
    CUmemAccessDesc access = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUdeviceptr base;
    CUmodule module;
    CUfunction kernel;
    segalloc_sim_fault_fn fault;
    segalloc_sim_kernel_fn declare;
    segalloc_sim_touches_fn touches;
    *(void **)&fault = dlsym(RTLD_DEFAULT, "segalloc_sim_fault");
    *(void **)&declare = dlsym(RTLD_DEFAULT, "segalloc_sim_kernel");
    *(void **)&touches = dlsym(RTLD_DEFAULT, "segalloc_sim_touches");
    ok(cuMemCreate(&handle, PAGE, &prop, 0));
    ok(cuMemAddressReserve(&base, 2 * PAGE, 0, 0, 0));
    ok(cuMemMap(base, PAGE, 0, handle, 0));
    ok(cuMemSetAccess(base, PAGE, &access, 1));
    ok(cuModuleLoadData(&module, "no code is read"));
    ok(cuModuleGetFunction(&kernel, module, "touch"));
    CUdeviceptr at = base + PAGE - 8;
    unsigned count = 8;
    void *arguments[] = {&at, &count};
    if (declared && declare("touch", "rw at[count], u32 count", note_run) != 0)
        return 1;
    if (!declared)
        touches(at, 8, 1);
    ok(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    ok(cuCtxSynchronize()); /* up to the last byte that is there */
    if (declared != has_run || fault() != 0)
        return 2;
    has_run = false;
    count = 9;
    if (!declared)
        touches(at, 9, 0);
    ok(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    expect_error(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    expect_error(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc_v2(&at, 512));
    return has_run || fault() != base + PAGE;
}

static int declared_kernel_at_illegal_address(void)
{
    return kernel_at_illegal_address(true);
}

static int said_kernel_at_illegal_address(void)
{
    return kernel_at_illegal_address(false);
}

/* A kernel that is known by its name loses the context too where a tensor's page is away, however large that is. */
static int known_kernel_at_illegal_address(bool large)
{
    setenv("SEGALLOC_SIM", "1GiB", 1);
    open_device();
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = on_device(0);
    CUmemAccessDesc access = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUdeviceptr base;
    CUmodule module;
    CUfunction fill;
    segalloc_sim_fault_fn fault;
    *(void **)&fault = dlsym(RTLD_DEFAULT, "segalloc_sim_fault");
    int count = large ? 32 << 20 : 8;
    float value = 2;
    uint64_t bytes = ((uint64_t)count * sizeof value + PAGE - 1) / PAGE * PAGE;
    ok(cuMemCreate(&handle, bytes, &prop, 0));
    ok(cuMemAddressReserve(&base, bytes, 0, 0, 0));
    ok(cuMemMap(base, bytes, 0, handle, 0));
    ok(cuMemSetAccess(base, bytes, &access, 1));
    ok(cuModuleLoadData(&module, "no code is read"));
    ok(cuModuleGetFunction(&fill, module,
        "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_"));
    void *arguments[] = {&count, &value, &base};
    ok(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    ok(cuCtxSynchronize());
    if (fault() != 0 || *(float *)host(base) != (large ? 0 : 2))
        return 1;
    ok(cuMemUnmap(base, bytes));
    ok(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    expect_error(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    return fault() != base;
}

static int small_kernel_at_illegal_address(void)
{
    return known_kernel_at_illegal_address(false);
}

static int large_kernel_at_illegal_address(void)
{
    return known_kernel_at_illegal_address(true);
}

static void *open_later(void *gate)
{
    sleep_ms(20);
    ((struct gate *)gate)->open = true;
    return NULL;
}

static int unmapping_waits_where_asked(void)
{
    setenv("SEGALLOC_SIM", "1GiB,vmm_sync=always", 1);
    open_device();
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = on_device(0);
    CUdeviceptr base;
    struct gate gate = {0};
    pthread_t opener;
    ok(cuMemCreate(&handle, PAGE, &prop, 0));
    ok(cuMemAddressReserve(&base, PAGE, 0, 0, 0));
    ok(cuMemMap(base, PAGE, 0, handle, 0));
    ok(cuLaunchHostFunc(NULL, wait_at_gate, &gate));
    pthread_create(&opener, NULL, open_later, &gate);
    ok(cuMemUnmap(base, PAGE));
    ok(cuStreamQuery(NULL));
    pthread_join(opener, NULL);
    return 0;
}

static const struct {
    const char *name;
    int (*run)(void);
    const char *says; /* on stderr */
} cases[] = {
    {"no_thread_before_work", no_thread_before_work, ""},
    {"threads_take_no_signals", threads_take_no_signals, ""},
    {"exit_with_work_queued", exit_with_work_queued, ""},
    {"leave_at_once_with_work_queued", leave_at_once_with_work_queued, ""},
    {"exit_in_a_host_function", exit_in_a_host_function, ""},
    {"calls_after_the_end", calls_after_the_end, ""},
    {"fork_after_init", fork_after_init, ""},
    {"fork_before_init", fork_before_init, ""},
    {"bad_configuration", bad_configuration, "SEGALLOC_SIM: \"24 bananas\""},
    {"no_vmm", no_vmm, ""},
    {"no_devices", no_devices, ""},
    {"illegal_address", illegal_address, ""},
    {"declared_kernel_at_illegal_address", declared_kernel_at_illegal_address, ""},
    {"said_kernel_at_illegal_address", said_kernel_at_illegal_address, ""},
    {"small_kernel_at_illegal_address", small_kernel_at_illegal_address, ""},
    {"large_kernel_at_illegal_address", large_kernel_at_illegal_address, ""},
    {"unmapping_waits_where_asked", unmapping_waits_where_asked, ""},
};

static void in_a_process_of_its_own(void **state)
{
    int i = *(int *)*state, errors[2], status = -1;
    assert_int_equal(pipe(errors), 0);
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        dup2(errors[1], STDERR_FILENO);
        close(errors[0]);
        close(errors[1]);
        execl("/proc/self/exe", "test_life", cases[i].name, NULL);
        _exit(127);
    }
    close(errors[1]);
    char text[4096];
    size_t length = 0;
    for (ssize_t got; length < sizeof text - 1 && (got = read(errors[0], text + length, sizeof text - 1 - length)) > 0;)
        length += (size_t)got;
    text[length] = '\0';
    close(errors[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (status != 0)
        fail_msg("%s: status %#x, stderr: %s", cases[i].name, (unsigned)status, text);
    assert_true(*cases[i].says ? strncmp(text, cases[i].says, strlen(cases[i].says)) == 0 : *text == '\0');
    char *line = strchr(text, '\n');
    assert_true(!line || line[1] == '\0'); /* one line at most */
}

int main(int argc, char **argv)
{
    enum { CASES = sizeof cases / sizeof *cases };
    static struct CMUnitTest tests[CASES];
    static int number[CASES];
    for (int i = 0; i < CASES; i++) {
        if (argc > 1 && strcmp(argv[1], cases[i].name) == 0)
            return cases[i].run();
        number[i] = i;
        tests[i] = (struct CMUnitTest){cases[i].name, in_a_process_of_its_own, NULL, NULL, &number[i]};
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
