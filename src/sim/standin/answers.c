#include "answers.h"

#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Functions are reached by symbols that are written at run time, so no header of theirs has a prototype. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

uintptr_t sg_standin_unique(void)
{
    static _Atomic uintptr_t last = 0x1000;
    return atomic_fetch_add_explicit(&last, 64, memory_order_relaxed);
}

struct search {
    const char *name;
    int *ret;
};

/* A loaded library that stands in for one of that name: libNAME.so.N. Where the vendor's own is loaded, it has no such
   file beside it. */
static int find_answers(struct dl_phdr_info *library, size_t size, void *data)
{
    struct search *search = data;
    const char *slash = strrchr(library->dlpi_name, '/');
    char path[4096], line[64], format[32];
    (void)size;
    snprintf(line, sizeof line, "lib%s.so.", search->name);
    if (!slash || strncmp(slash + 1, line, strlen(line)) != 0)
        return 0;
    snprintf(path, sizeof path, "%.*s/versions", (int)(slash - library->dlpi_name), library->dlpi_name);
    snprintf(format, sizeof format, "%s %%d.%%d.%%d", search->name);
    FILE *file = fopen(path, "re");
    bool found = false;
    while (file && !found && fgets(line, sizeof line, file)) {
        int read[3];
        found = sscanf(line, format, read, read + 1, read + 2) == 3;
        if (found)
            memcpy(search->ret, read, sizeof read);
    }
    if (file)
        fclose(file);
    return found;
}

void sg_standin_version(const char *name, int ret[3])
{
    struct search search = {name, ret};
    dl_iterate_phdr(find_answers, &search);
}

SG_STANDIN(int, zero)(void)
{
    return 0;
}

/* PyTorch keys its workspaces by handle, so no two may be equal. */
SG_STANDIN(int, create)(uintptr_t *ret)
{
    if (ret)
        *ret = sg_standin_unique();
    return 0;
}

SG_STANDIN(int, create_number)(int *ret)
{
    if (ret)
        *ret = (int)sg_standin_unique();
    return 0;
}

SG_STANDIN(size_t, version_number)(void)
{
    return 130000;
}

SG_STANDIN(int, get_version)(void *handle, int *ret)
{
    (void)handle;
    *ret = 130000;
    return 0;
}

/* PyTorch refuses a cuDNN older than the one that it was built with, and one of another major. */
static int cudnn[3] = {9, 99, 0};
static pthread_once_t cudnn_once = PTHREAD_ONCE_INIT;

static void read_cudnn(void)
{
    sg_standin_version("cudnn", cudnn);
}

SG_STANDIN(size_t, cudnn_version)(void)
{
    pthread_once(&cudnn_once, read_cudnn);
    return (size_t)cudnn[0] * 10000 + (size_t)cudnn[1] * 100 + (size_t)cudnn[2];
}

SG_STANDIN(int, cudnn_property)(int which, int *ret)
{
    pthread_once(&cudnn_once, read_cudnn);
    *ret = which >= 0 && which < 3 ? cudnn[which] : 0; /* libraryPropertyType */
    return 0;
}

SG_STANDIN(const char *, text)(void)
{
    return "(simulated)";
}

/* cudnnGetLastErrorString */
SG_STANDIN(void, last_text)(char *ret, size_t size)
{
    if (size)
        *ret = '\0';
}

SG_STANDIN(int, text_at_1)(int result, const char **ret)
{
    (void)result;
    *ret = "(simulated)";
    return 0;
}

SG_STANDIN(int, two_numbers)(int *first, int *second)
{
    *first = 3;
    *second = 0;
    return 0;
}

/* cublasLtMatmulHeuristicResult_t: an algorithm of 64 bytes, its workspace, its state, waves, four reserved. */
struct heuristic_result {
    uint64_t algorithm[8];
    size_t workspace_bytes;
    int state;
    float waves;
    int reserved[4];
};

SG_STANDIN(int, heuristic)(void *handle, void *operation, void *a, void *b, void *c, void *d, void *preference,
                           int wanted, struct heuristic_result *ret, int *ret_count)
{
    (void)handle, (void)operation, (void)a, (void)b, (void)c, (void)d, (void)preference;
    if (wanted > 0 && ret)
        memset(ret, 0, sizeof *ret);
    if (ret_count)
        *ret_count = wanted > 0;
    return 0;
}

SG_STANDIN(int, no_more_records)(void)
{
    return 12; /* CUPTI_ERROR_MAX_LIMIT_REACHED */
}

#define ARGUMENTS \
    uintptr_t a0, uintptr_t a1, uintptr_t a2, uintptr_t a3, uintptr_t a4, uintptr_t a5, uintptr_t a6, uintptr_t a7, \
        uintptr_t a8, uintptr_t a9, uintptr_t a10, uintptr_t a11, uintptr_t a12, uintptr_t a13, uintptr_t a14, \
        uintptr_t a15, uintptr_t a16, uintptr_t a17, uintptr_t a18, uintptr_t a19, uintptr_t a20, uintptr_t a21
#define ARGUMENTS_UNUSED \
    (void)a0, (void)a1, (void)a2, (void)a3, (void)a4, (void)a5, (void)a6, (void)a7, (void)a8, (void)a9, (void)a10, \
        (void)a11, (void)a12, (void)a13, (void)a14, (void)a15, (void)a16, (void)a17, (void)a18, (void)a19, \
        (void)a20, (void)a21

#define OUT_AT(position) \
    SG_STANDIN(int, out32_##position)(ARGUMENTS) \
    { \
        ARGUMENTS_UNUSED; \
        if (a##position) \
            *(uint32_t *)a##position = 0; \
        return 0; \
    } \
    SG_STANDIN(int, out64_##position)(ARGUMENTS) \
    { \
        ARGUMENTS_UNUSED; \
        if (a##position) \
            *(uint64_t *)a##position = 0; \
        return 0; \
    }
#define TWO_SIZES_AT(first, second) \
    SG_STANDIN(int, two_sizes_##first)(ARGUMENTS) \
    { \
        ARGUMENTS_UNUSED; \
        if (a##first) \
            *(uint64_t *)a##first = 0; \
        if (a##second) \
            *(uint64_t *)a##second = 0; \
        return 0; \
    }
/* Zeroes `count` numbers of 32 bits. */
static void set_to_zero(uintptr_t numbers, uintptr_t count)
{
    if (numbers && (int32_t)count > 0)
        memset((void *)numbers, 0, (size_t)(int32_t)count * sizeof(int32_t));
}
#define NUMBERS_AT(position, count) \
    SG_STANDIN(int, numbers_##position##_##count)(ARGUMENTS) \
    { \
        ARGUMENTS_UNUSED; \
        set_to_zero(a##position, a##count); \
        return 0; \
    }
OUT_AT(0) OUT_AT(1) OUT_AT(2) OUT_AT(3) OUT_AT(4) OUT_AT(5) OUT_AT(6) OUT_AT(7) OUT_AT(8) OUT_AT(9) OUT_AT(10)
OUT_AT(11) OUT_AT(12) OUT_AT(13) OUT_AT(14) OUT_AT(15) OUT_AT(16) OUT_AT(17) OUT_AT(18) OUT_AT(19)
OUT_AT(20) OUT_AT(21)
NUMBERS_AT(5, 6) NUMBERS_AT(7, 8) NUMBERS_AT(9, 11) NUMBERS_AT(13, 15) NUMBERS_AT(15, 16) NUMBERS_AT(18, 20)
TWO_SIZES_AT(2, 3) TWO_SIZES_AT(8, 9) TWO_SIZES_AT(10, 11) TWO_SIZES_AT(11, 12) TWO_SIZES_AT(17, 18)

/* cublas?gelsBatched: one number on the host, and one for each of the batch. */
SG_STANDIN(int, least_squares)(ARGUMENTS)
{
    ARGUMENTS_UNUSED;
    set_to_zero(a9, 1);
    set_to_zero(a10, a11);
    return 0;
}

/* cufftXtMakePlanMany: the size of the work area is the thirteenth. */
SG_STANDIN(int, fft_plan)(ARGUMENTS)
{
    ARGUMENTS_UNUSED;
    if (a12)
        *(uint64_t *)a12 = 0;
    return 0;
}
