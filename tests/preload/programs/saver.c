/* torch_memory_saver's C names over the library, preloaded before it, or alone: what a thread allocates in a region leaves and
   comes back. The argument says how the process was started: `regions`, `retained` copies, contents in `files`, `enabled` by
   the environment, or `lacking` the library. */
#include <dirent.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda_proto.h"
#include "runtime.h"
#include "served.h"

#define MIB ((size_t)1 << 20)

static void (*set_region)(bool interesting), (*set_tag)(const char *tag), (*set_backup)(bool enable),
    (*set_backend)(const char *backend), (*set_disk)(bool enable), (*set_margin)(uint64_t bytes),
    (*set_folder)(const char *path), (*set_retain)(bool retain),
    (*torch_free)(void *pointer, long bytes, int device, void *stream);
static bool (*in_region)(void), (*has_backup)(void), (*retains)(void);
static const char *(*tag_now)(void), *(*backend_now)(void);
static int (*pause_tag)(const char *tag), (*resume_tag)(const char *tag);
static const unsigned char *(*backup_of)(const void *address, uint64_t bytes);
static void *(*torch_malloc)(long bytes, int device, void *stream);

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
    find("tms_set_disk_backup_dir", &set_folder);
    find("tms_set_retain_cpu_backup", &set_retain);
    find("tms_get_retain_cpu_backup", &retains);
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

static void set_all(unsigned char *address, size_t bytes, unsigned char value)
{
    EXPECT(cudaMemset(address, value, bytes) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess);
}

/* True if the address is in memory that is registered with the driver. */
static bool is_pinned(const void *address)
{
    unsigned flags;
    return cuMemHostGetFlags(&flags, (void *)(uintptr_t)address) == CUDA_SUCCESS;
}

/* Copies that stay after a resume: the next pause has them at the same address, with what is new since. Those of a block
   that is freed go, and others stay. */
static void retained(void)
{
    EXPECT(!retains());
    set_tag("weights");
    set_backup(true);
    set_region(true);
    unsigned char *first = filled(8 * MIB, 7), *second = filled(6 * MIB, 8);
    EXPECT(pause_tag("weights") == 0);
    const unsigned char *copy = backup_of(first, 8 * MIB), *other = backup_of(second, 6 * MIB);
    EXPECT(copy && other && copy[8 * MIB - 1] == 7 && other[0] == 8 && is_pinned(copy));
    set_retain(true);
    EXPECT(retains() && resume_tag("weights") == 0 && backup_of(first, 8 * MIB) == copy && copy[5] == 7);
    set_all(first, 8 * MIB, 9);
    unsigned char *third = filled(5 * MIB, 10);
    EXPECT(copy[5] == 7 && backup_of(third, 1) == NULL);
    EXPECT(pause_tag("weights") == 0 && backup_of(first, 8 * MIB) == copy && copy[0] == 9 && copy[8 * MIB - 1] == 9);
    EXPECT(backup_of(second, 6 * MIB) == other && other[3 * MIB] == 8);
    const unsigned char *last = backup_of(third, 5 * MIB);
    EXPECT(last && last[5 * MIB - 1] == 10);
    EXPECT(cudaFree(third) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess);
    EXPECT(backup_of(third, 5 * MIB) == NULL && !is_pinned(last) && is_pinned(copy));
    EXPECT(resume_tag(NULL) == 0 && at(first) == 9 && at(second) == 8);
    EXPECT(cudaFree(second) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess);
    EXPECT(backup_of(second, 1) == NULL && backup_of(first, 1) == copy);
    set_retain(false);
    EXPECT(!retains() && backup_of(first, 1) == copy);
    set_all(first, 8 * MIB, 11);
    EXPECT(pause_tag("weights") == 0 && backup_of(first, 1) == copy && copy[1] == 11);
    EXPECT(resume_tag("weights") == 0 && at(first) == 11 && backup_of(first, 1) == NULL && !is_pinned(copy));
    EXPECT(cudaFree(first) == cudaSuccess);
}

/* How many files a folder has, and *ret_bytes: of all. SIZE_MAX: it is not there. */
static size_t files_in(const char *folder, uint64_t *ret_bytes)
{
    size_t count = 0;
    char path[512];
    struct stat file;
    DIR *directory = opendir(folder);
    *ret_bytes = 0;
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (stat(path, &file) != 0 || !S_ISREG(file.st_mode))
            continue;
        EXPECT((file.st_mode & 077) == 0);
        *ret_bytes += (uint64_t)file.st_size;
        count++;
    }
    if (directory)
        (void)closedir(directory);
    return directory ? count : SIZE_MAX;
}

/* Small blocks share files of the size of staging, 1 MiB, and a file goes with the last of its blocks. A pause that fails because
   its folder can't be used loses nothing: memory without a backup is still there. */
static void small_files(void)
{
    enum { SMALL = 40, BYTES = 100 << 10 };
    char folder[] = "/tmp/segalloc-saver-XXXXXX", none[64];
    unsigned char *small[SMALL];
    uint64_t bytes, before;
    EXPECT(mkdtemp(folder));
    snprintf(none, sizeof none, "%s/none/there", folder);
    set_folder(none);
    set_tag("kv");
    set_region(true);
    unsigned char *kv = filled(4 * MIB, 5);
    set_tag("weights");
    set_disk(true);
    for (int i = 0; i < SMALL; i++)
        small[i] = filled(BYTES, (unsigned char)(i + 1));
    set_region(false);
    EXPECT(pause_tag(NULL) == CUDA_ERROR_OPERATING_SYSTEM && at(kv) == 5 && at(kv + 4 * MIB - 1) == 5);
    set_folder(folder);
    EXPECT(pause_tag("weights") == 0);
    size_t files = files_in(folder, &before);
    EXPECT(files >= 4 && files <= 5 && before == SMALL * BYTES);
    for (int i = 0; i < SMALL; i += 2)
        EXPECT(cudaFree(small[i]) == cudaSuccess);
    EXPECT(cudaDeviceSynchronize() == cudaSuccess && files_in(folder, &bytes) == files && bytes == before);
    for (int i = 1; i < SMALL / 2; i += 2)
        EXPECT(cudaFree(small[i]) == cudaSuccess);
    EXPECT(cudaDeviceSynchronize() == cudaSuccess && files_in(folder, &bytes) < files && bytes < before);
    EXPECT(resume_tag("weights") == 0 && files_in(folder, &bytes) == 0);
    for (int i = SMALL / 2 + 1; i < SMALL; i += 2) {
        EXPECT(at(small[i]) == i + 1 && at(small[i] + BYTES - 1) == i + 1);
        EXPECT(cudaFree(small[i]) == cudaSuccess);
    }
    EXPECT(at(kv) == 5 && cudaFree(kv) == cudaSuccess && rmdir(folder) == 0);
    set_disk(false);
}

/* Contents in files: they stand in the folder while paused, and go after. A folder that can't be used, or files that are
   away, are an error, and nothing is lost. */
static void files(void)
{
    char folder[] = "/tmp/segalloc-saver-XXXXXX", sub[64], away[80], path[80];
    uint64_t bytes;
    EXPECT(mkdtemp(folder));
    snprintf(sub, sizeof sub, "%s/new", folder);
    snprintf(away, sizeof away, "%s/away", folder);
    set_folder(sub);
    set_tag("weights");
    set_disk(true);
    set_region(true);
    unsigned char *large = filled(5 * MIB + 12345, 7), *small = filled(7, 8), *other = filled(3 * MIB, 9);
    unsigned char pattern[3] = {1, 2, 3};
    EXPECT(cudaMemcpy(large + 4 * MIB + 11, pattern, 3, cudaMemcpyHostToDevice) == cudaSuccess);
    uint64_t held = statistic(0, "reserved_bytes");
    for (int i = 0; i < 3; i++) {
        EXPECT(pause_tag(NULL) == 0 && statistic(0, "reserved_bytes") <= held - 8 * MIB);
        EXPECT(backup_of(large, 1) == NULL);
        size_t count = files_in(sub, &bytes);
        EXPECT(count >= 3 && count != SIZE_MAX && bytes >= 8 * MIB + 12345 && bytes < 9 * MIB);
        EXPECT(resume_tag(NULL) == 0 && files_in(sub, &bytes) == 0);
        EXPECT(
            at(large) == 7 && at(large + 4 * MIB + 12) == 2 && at(large + 5 * MIB + 12344) == 7 && at(small + 6) == 8);
        EXPECT(at(other) == 9 && at(other + 3 * MIB - 1) == 9);
    }
    EXPECT(pause_tag(NULL) == 0 && cudaFree(large) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess);
    EXPECT(files_in(sub, &bytes) != 0 && bytes < 5 * MIB);
    EXPECT(resume_tag(NULL) == 0 && at(small) == 8 && at(other + MIB) == 9);
    snprintf(path, sizeof path, "%s/none/there", folder);
    set_folder(path);
    EXPECT(pause_tag(NULL) == CUDA_ERROR_OPERATING_SYSTEM && at(other) == 9);
    set_folder(sub);
    EXPECT(pause_tag(NULL) == 0);
    EXPECT(rename(sub, away) == 0 && resume_tag(NULL) == CUDA_ERROR_OPERATING_SYSTEM);
    EXPECT(rename(away, sub) == 0 && resume_tag(NULL) == 0 && at(other) == 9 && at(small) == 8);
    EXPECT(rmdir(sub) == 0 && rmdir(folder) == 0);
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
    else if (strcmp(argv[1], "retained") == 0)
        retained();
    else if (strcmp(argv[1], "files") == 0)
        small_files(), files();
    else if (strcmp(argv[1], "enabled") == 0)
        enabled();
    else
        EXPECT(pause_tag(NULL) == CUDA_ERROR_NOT_SUPPORTED && resume_tag(NULL) == CUDA_ERROR_NOT_SUPPORTED);
    return failures != 0;
}
