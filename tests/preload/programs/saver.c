/* torch_memory_saver's C names over the library, preloaded before it, or alone: what a thread allocates in a region leaves and
   comes back. The argument says how the process was started: `regions`, `enabled` by the environment, or `lacking` the
   library. */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "cuda_proto.h"
#include "runtime.h"
#include "served.h"

#define MIB ((size_t)1 << 20)

static void (*set_region)(bool interesting), (*set_tag)(const char *tag), (*set_backup)(bool enable),
    (*set_backend)(const char *backend), (*set_disk)(bool enable), (*set_margin)(uint64_t bytes),
    (*torch_free)(void *pointer, long bytes, int device, void *stream);
static bool (*in_region)(void), (*has_backup)(void);
static const char *(*tag_now)(void), *(*backend_now)(void);
static int (*pause_tag)(const char *tag), (*resume_tag)(const char *tag);
static const unsigned char *(*backup_of)(const void *address, uint64_t bytes);
static void *(*torch_malloc)(long bytes, int device, void *stream);

static void find(const char *name, void *ret)
{
    void *symbol = dlsym(RTLD_DEFAULT, name);
    EXPECT(symbol);
    memcpy(ret, &symbol, sizeof symbol);
}

static void find_all(void)
{
    find("tms_set_interesting_region", &set_region);
    find("tms_get_interesting_region", &in_region);
    find("tms_set_current_tag", &set_tag);
    find("tms_get_current_tag", &tag_now);
    find("tms_set_enable_cpu_backup", &set_backup);
    find("tms_get_enable_cpu_backup", &has_backup);
    find("tms_set_cpu_backup_backend", &set_backend);
    find("tms_get_cpu_backup_backend", &backend_now);
    find("tms_set_enable_disk_backup", &set_disk);
    find("set_memory_margin_bytes", &set_margin);
    find("tms_pause", &pause_tag);
    find("tms_resume", &resume_tag);
    find("tms_get_cpu_backup_pointer", &backup_of);
    find("tms_torch_malloc", &torch_malloc);
    find("tms_torch_free", &torch_free);
}

static unsigned char *filled(size_t bytes, unsigned char value)
{
    void *address = NULL;
    EXPECT(cudaMalloc(&address, bytes) == cudaSuccess);
    EXPECT(cudaMemset(address, value, bytes) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess);
    return address;
}

static unsigned char at(const unsigned char *address)
{
    unsigned char value = 0;
    EXPECT(cudaMemcpy(&value, address, 1, cudaMemcpyDeviceToHost) == cudaSuccess);
    return value;
}

/* Two regions with and without a backup, and one that is left for a moment. */
static void regions(void)
{
    EXPECT(!in_region() && strcmp(tag_now(), "default") == 0 && strcmp(backend_now(), "pinned") == 0);
    EXPECT(pause_tag("nobody") == 0 && resume_tag(NULL) == 0);
    set_tag("weights");
    set_backup(true);
    set_region(true);
    unsigned char *weights = filled(40 * MIB, 7);
    set_region(false);
    unsigned char *plain = filled(3 * MIB, 5);
    set_region(true);
    set_tag("kv");
    set_backup(false);
    unsigned char *kv = filled(20 * MIB, 9);
    void *pooled = torch_malloc((long)(4 * MIB), 0, NULL);
    EXPECT(pooled);
    set_region(false);
    EXPECT(backup_of(weights, 16) == NULL);
    uint64_t held = statistic(0, "reserved_bytes");
    EXPECT(pause_tag("kv") == 0 && pause_tag("kv") == 0);
    EXPECT(statistic(0, "reserved_bytes") <= held - 24 * MIB);
    EXPECT(pause_tag(NULL) == 0 && statistic(0, "reserved_bytes") <= held - 64 * MIB);
    const unsigned char *backup = backup_of(weights + 40 * MIB - 16, 16);
    EXPECT(backup && backup[0] == 7 && backup[15] == 7);
    EXPECT(backup_of(weights, 41 * MIB) == NULL && backup_of(kv, 1) == NULL && backup_of(plain, 1) == NULL);
    EXPECT(at(plain + 1) == 5);
    EXPECT(resume_tag("weights") == 0 && at(weights) == 7 && at(weights + 40 * MIB - 1) == 7);
    EXPECT(backup_of(weights, 16) == NULL);
    EXPECT(resume_tag(NULL) == 0 && at(kv) != 9);
    torch_free(pooled, (long)(4 * MIB), 0, NULL);
    EXPECT(cudaFree(weights) == cudaSuccess && cudaFree(kv) == cudaSuccess && cudaFree(plain) == cudaSuccess);
    void *much = NULL;
    set_margin(500 * MIB); /* of 512 MiB */
    EXPECT(cudaMalloc(&much, 64 * MIB) == cudaErrorMemoryAllocation);
    set_margin(0);
    EXPECT(cudaMalloc(&much, 64 * MIB) == cudaSuccess && cudaFree(much) == cudaSuccess);
}

static void *another(void *ret)
{
    *(unsigned char **)ret = filled(16 * MIB, 3);
    return NULL;
}

/* All threads begin in the region "default", with a backup. */
static void enabled(void)
{
    pthread_t thread;
    unsigned char *other = NULL, *own = filled(8 * MIB, 4);
    EXPECT(pthread_create(&thread, NULL, another, &other) == 0 && pthread_join(thread, NULL) == 0);
    EXPECT(in_region() && has_backup() && strcmp(backend_now(), "mmap") == 0);
    uint64_t held = statistic(0, "reserved_bytes");
    EXPECT(pause_tag("default") == 0 && statistic(0, "reserved_bytes") <= held - 24 * MIB);
    EXPECT(resume_tag("default") == 0 && at(own) == 4 && at(other) == 3);
}

int main(int argc, char **argv)
{
    (void)argc;
    find_all();
    if (failures)
        return 1;
    if (strcmp(argv[1], "regions") == 0)
        regions();
    else if (strcmp(argv[1], "enabled") == 0)
        enabled();
    else
        EXPECT(pause_tag(NULL) == CUDA_ERROR_NOT_SUPPORTED && resume_tag(NULL) == CUDA_ERROR_NOT_SUPPORTED);
    return failures != 0;
}
