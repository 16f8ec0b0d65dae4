/* Tools of the rows: times, pages, processes. */
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "probe.h"

extern char **environ;

void probe_add(struct probe_times *times, uint64_t ns)
{
    if (times->count < (int)(sizeof times->ns / sizeof *times->ns))
        times->ns[times->count++] = ns;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

uint64_t probe_at(struct probe_times *times, int percent)
{
    if (!times->count)
        return 0;
    qsort(times->ns, (size_t)times->count, sizeof *times->ns, by_value);
    return times->ns[(times->count - 1) * percent / 100];
}

CUresult probe_answered(const char *symbol, CUresult result)
{
    if (result != CUDA_SUCCESS)
        probe.refused = symbol;
    return result;
}

CUmemAllocationProp probe_prop(void)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = probe.device}};
}

CUresult probe_access(CUdeviceptr address, size_t bytes)
{
    const CUmemAccessDesc everything = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = probe.device},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return ASK(cuMemSetAccess, address, bytes, &everything, 1);
}

CUresult probe_twice_map(struct probe_twice *ret)
{
    const CUmemAllocationProp prop = probe_prop();
    CUresult result = ASK(cuMemCreate, &ret->handle, probe.granule, &prop, 0);
    for (int i = 0; result == CUDA_SUCCESS && i < 2; i++) {
        CUdeviceptr *address = i ? &ret->b : &ret->a;
        result = ASK(cuMemAddressReserve, address, probe.granule, 0, 0, 0);
        if (result == CUDA_SUCCESS)
            result = ASK(cuMemMap, *address, probe.granule, 0, ret->handle, 0);
        if (result == CUDA_SUCCESS)
            result = probe_access(*address, probe.granule);
    }
    return result;
}

CUresult probe_twice_unmap(const struct probe_twice *page)
{
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; result == CUDA_SUCCESS && i < 2; i++) {
        result = ASK(cuMemUnmap, i ? page->b : page->a, probe.granule);
        if (result == CUDA_SUCCESS)
            result = ASK(cuMemAddressFree, i ? page->b : page->a, probe.granule);
    }
    return result == CUDA_SUCCESS ? ASK(cuMemRelease, page->handle) : result;
}

CUresult probe_pages_map(const struct probe_pages *pages)
{
    for (int i = 0; i < pages->count; i++) {
        CUdeviceptr at = pages->address + (size_t)i * pages->page;
        CUresult result = ASK(cuMemMap, at, pages->page, 0, pages->handle[i], 0);
        if (result != CUDA_SUCCESS) {
            if (i)
                (void)probe.cu.cuMemUnmap(pages->address, (size_t)i * pages->page);
            return result;
        }
    }
    return CUDA_SUCCESS;
}

CUresult probe_pages_make(int count, size_t page, struct probe_pages *ret)
{
    CUmemAllocationProp prop = probe_prop();
    struct probe_pages pages = {.page = page, .bytes = (size_t)count * page};
    pages.handle = calloc((size_t)count, sizeof *pages.handle);
    if (!pages.handle)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = ASK(cuMemAddressReserve, &pages.address, pages.bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS)
        goto no_range;
    for (; pages.count < count; pages.count++) {
        result = ASK(cuMemCreate, &pages.handle[pages.count], page, &prop, 0);
        if (result != CUDA_SUCCESS)
            goto no_pages;
    }
    result = probe_pages_map(&pages);
    if (result != CUDA_SUCCESS)
        goto no_pages;
    result = probe_access(pages.address, pages.bytes);
    if (result == CUDA_SUCCESS) {
        *ret = pages;
        return CUDA_SUCCESS;
    }
    (void)probe.cu.cuMemUnmap(pages.address, pages.bytes);
no_pages:
    while (pages.count)
        (void)probe.cu.cuMemRelease(pages.handle[--pages.count]);
    (void)probe.cu.cuMemAddressFree(pages.address, pages.bytes);
no_range:
    free(pages.handle);
    return result;
}

void probe_pages_end(struct probe_pages *pages)
{
    (void)probe.cu.cuMemUnmap(pages->address, pages->bytes);
    for (int i = 0; i < pages->count; i++)
        (void)probe.cu.cuMemRelease(pages->handle[i]);
    (void)probe.cu.cuMemAddressFree(pages->address, pages->bytes);
    free(pages->handle);
    *pages = (struct probe_pages){0};
}

size_t probe_free_bytes(void)
{
    size_t available = 0, total = 0;
    return probe.cu.cuMemGetInfo_v2(&available, &total) == CUDA_SUCCESS ? available : 0;
}

CUresult probe_work_queue(const struct probe_work *work, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < work->copies && result == CUDA_SUCCESS; i++)
        result = ASK(cuMemcpyDtoDAsync_v2, work->to, work->from, work->bytes, stream);
    return result;
}

CUresult probe_work_make(unsigned ms, struct probe_work *ret)
{
    enum { SAMPLE = 4, MOST = 4000 };
    struct probe_work work = {.bytes = 16 * MIB, .copies = SAMPLE};
    CUresult result = ASK(cuMemAlloc_v2, &work.from, work.bytes);
    if (result == CUDA_SUCCESS)
        result = ASK(cuMemAlloc_v2, &work.to, work.bytes);
    if (result == CUDA_SUCCESS)
        result = probe_work_queue(&work, probe.load); /* the first ones make the driver load what it copies by */
    if (result == CUDA_SUCCESS)
        result = ASK(cuStreamSynchronize, probe.load);
    uint64_t began = probe_real_ns();
    if (result == CUDA_SUCCESS)
        result = probe_work_queue(&work, probe.load);
    if (result == CUDA_SUCCESS)
        result = ASK(cuStreamSynchronize, probe.load);
    uint64_t each = (probe_real_ns() - began) / SAMPLE + 1, wanted = (uint64_t)ms * 1000000 / each + 1;
    work.copies = wanted > MOST ? MOST : (int)wanted;
    *ret = work;
    return result;
}

void probe_work_end(struct probe_work *work)
{
    (void)probe.cu.cuCtxSynchronize();
    (void)probe.cu.cuMemFree_v2(work->from);
    (void)probe.cu.cuMemFree_v2(work->to);
}

CUresult probe_join(CUstream from, CUstream to, CUevent event)
{
    CUresult result = ASK(cuEventRecord, event, from);
    return result == CUDA_SUCCESS ? ASK(cuStreamWaitEvent, to, event, 0) : result;
}

CUresult probe_launch(CUfunction function, unsigned blocks, CUstream stream, void **parameters)
{
    unsigned threads = function == probe.kernels.spin || function == probe.kernels.nothing ? 1 : 256;
    return ASK(cuLaunchKernel, function, blocks, 1, 1, threads, 1, 1, 0, stream, parameters, NULL);
}

CUresult probe_busy(CUstream stream, unsigned us)
{
    uint64_t length = (uint64_t)us * 1000u;
    void *parameters[] = {&length};
    return probe_launch(probe.kernels.spin, 1, stream, parameters);
}

bool probe_child_start(const char *role, const char *argument, char *const *environment, struct probe_child *ret)
{
    int to[2], from[2];
    char path[] = "/proc/self/exe", byte;
    char ordinal[16];
    snprintf(ordinal, sizeof ordinal, "%d", probe.ordinal);
    char *argv[] = {path, (char *)(uintptr_t)probe.verb, (char *)(uintptr_t)role, (char *)(uintptr_t)argument, ordinal,
        NULL};
    if (!probe.verb)
        memmove(&argv[1], &argv[2], 4 * sizeof *argv);
    posix_spawn_file_actions_t actions;
    if (pipe(to) != 0)
        return false;
    if (pipe(from) != 0) {
        close(to[0]), close(to[1]);
        return false;
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, to[1]);
    posix_spawn_file_actions_addclose(&actions, from[0]);
    pid_t pid;
    int error = posix_spawn(&pid, path, &actions, NULL, argv, environment ? (char **)(uintptr_t)environment : environ);
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]), close(from[1]);
    *ret = (struct probe_child){.pid = pid, .in = to[1], .out = from[0]};
    if (error == 0 && read(from[0], &byte, 1) == 1 && byte == 'r')
        return true;
    close(to[1]), close(from[0]);
    if (error == 0)
        waitpid(pid, NULL, 0);
    return false;
}

void probe_child_go(struct probe_child *child)
{
    if (write(child->in, "g", 1) != 1)
        close(child->in);
}

bool probe_child_end(struct probe_child *child, uint64_t *ret)
{
    char text[32] = "";
    size_t length = 0;
    ssize_t got;
    while (length < sizeof text - 1 && (got = read(child->out, text + length, sizeof text - 1 - length)) > 0)
        length += (size_t)got;
    close(child->in);
    close(child->out);
    int status = -1;
    waitpid(child->pid, &status, 0);
    if (ret)
        *ret = strtoull(text, NULL, 10);
    return status == 0;
}

void probe_ready(void)
{
    char byte;
    if (write(STDOUT_FILENO, "r", 1) != 1 || read(STDIN_FILENO, &byte, 1) < 0)
        _exit(1);
}

void probe_tell(uint64_t number)
{
    char text[32];
    int length = snprintf(text, sizeof text, "%llu\n", (unsigned long long)number);
    if (write(STDOUT_FILENO, text, (size_t)length) != length)
        _exit(1);
}
