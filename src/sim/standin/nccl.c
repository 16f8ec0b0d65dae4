/* NCCL: communicators know who they are; collectives move this rank's own bytes to where results belong, as if every
   rank held the same, and drop what is large. */
#include "answers.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum { ID_BYTES = 128, COPIED_BYTES_MOST = 1 << 20, OK = 0, NCCL_SYSTEM_ERROR = 2, VERSION = 22809 };

struct unique_id {
    char bytes[ID_BYTES];
};

struct communicator {
    int ranks, rank;
};

static int init(struct communicator **ret, int ranks, int rank)
{
    struct communicator *made = calloc(1, sizeof *made);
    if (!made)
        return NCCL_SYSTEM_ERROR;
    made->ranks = ranks;
    made->rank = rank;
    *ret = made;
    return OK;
}

/* A function of the driver that the process uses already, NULL without one. */
static void *driver_function(const char *name)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (!driver)
        driver = dlopen("libcuda.so.1", RTLD_LAZY);
    return driver ? dlsym(driver, name) : NULL;
}

static size_t element_bytes(int type)
{
    static const unsigned char bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1}; /* ncclDataType_t */
    return type >= 0 && (size_t)type < sizeof bytes ? bytes[type] : 1;
}

static int copy(void *to, const void *from, size_t bytes, void *stream)
{
    typedef int copy_function(uintptr_t, uintptr_t, size_t, void *);
    static copy_function *function;
    if (to == from || bytes == 0 || bytes > COPIED_BYTES_MOST)
        return OK;
    if (!function)
        function = (copy_function *)driver_function("cuMemcpyAsync");
    if (function)
        (void)function((uintptr_t)to, (uintptr_t)from, bytes, stream);
    return OK;
}

SG_STANDIN(int, nccl_version)(int *ret)
{
    *ret = VERSION;
    return OK;
}

SG_STANDIN(int, nccl_unique_id)(struct unique_id *ret)
{
    memset(ret, 0, sizeof *ret);
    return getrandom(ret->bytes, 32, 0) == 32 ? OK : NCCL_SYSTEM_ERROR;
}

SG_STANDIN(int, nccl_init_rank)(struct communicator **ret, int ranks, struct unique_id id, int rank)
{
    (void)id;
    return init(ret, ranks, rank);
}

SG_STANDIN(int, nccl_init_rank_config)(struct communicator **ret, int ranks, struct unique_id id, int rank, void *config)
{
    (void)id, (void)config;
    return init(ret, ranks, rank);
}

SG_STANDIN(int, nccl_init_rank_scalable)(struct communicator **ret, int ranks, int rank)
{
    return init(ret, ranks, rank);
}

SG_STANDIN(int, nccl_init_all)(struct communicator **ret, int devices)
{
    for (int i = 0; i < devices; i++) {
        int result = init(ret + i, devices, i);
        if (result != OK)
            return result;
    }
    return OK;
}

/* Who else has the colour only communication would tell; callers that split know it themselves. */
SG_STANDIN(int, nccl_split)(struct communicator *from, int colour, int key, struct communicator **ret)
{
    (void)key;
    *ret = NULL;
    return colour < 0 ? OK : init(ret, from->ranks, from->rank);
}

SG_STANDIN(int, nccl_shrink)(struct communicator *from, int *left_out, int count, struct communicator **ret)
{
    (void)left_out;
    return init(ret, from->ranks - count, from->rank);
}

SG_STANDIN(int, nccl_destroy)(struct communicator *communicator)
{
    free(communicator);
    return OK;
}

SG_STANDIN(int, nccl_count)(const struct communicator *communicator, int *ret)
{
    *ret = communicator->ranks;
    return OK;
}

SG_STANDIN(int, nccl_rank)(const struct communicator *communicator, int *ret)
{
    *ret = communicator->rank;
    return OK;
}

SG_STANDIN(int, nccl_all_reduce)(const void *from, void *to, size_t count, int type, int op,
                                 struct communicator *communicator, void *stream)
{
    (void)op, (void)communicator;
    return copy(to, from, count * element_bytes(type), stream);
}

SG_STANDIN(int, nccl_all_reduce_root)(const void *from, void *to, size_t count, int type, int op, int root,
                                      struct communicator *communicator, void *stream)
{
    (void)op;
    return root == communicator->rank ? copy(to, from, count * element_bytes(type), stream) : OK;
}

SG_STANDIN(int, nccl_broadcast)(const void *from, void *to, size_t count, int type, int root,
                                struct communicator *communicator, void *stream)
{
    return root == communicator->rank ? copy(to, from, count * element_bytes(type), stream) : OK;
}

SG_STANDIN(int, nccl_all_gather)(const void *from, char *to, size_t count, int type, struct communicator *communicator,
                                 void *stream)
{
    size_t bytes = count * element_bytes(type);
    if (bytes * (size_t)communicator->ranks > COPIED_BYTES_MOST)
        return OK;
    for (int i = 0; i < communicator->ranks; i++)
        copy(to + (size_t)i * bytes, from, bytes, stream);
    return OK;
}

SG_STANDIN(int, nccl_reduce_scatter)(const char *from, void *to, size_t count, int type, int op,
                                     struct communicator *communicator, void *stream)
{
    (void)op;
    size_t bytes = count * element_bytes(type);
    return copy(to, from + (size_t)communicator->rank * bytes, bytes, stream);
}

SG_STANDIN(int, nccl_all_to_all)(const void *from, void *to, size_t count, int type, struct communicator *communicator,
                                 void *stream)
{
    return copy(to, from, count * element_bytes(type) * (size_t)communicator->ranks, stream);
}

SG_STANDIN(int, nccl_mem_alloc)(void **ret, size_t bytes)
{
    typedef int alloc_function(uintptr_t *, size_t);
    alloc_function *function = (alloc_function *)driver_function("cuMemAlloc_v2");
    return function && function((uintptr_t *)ret, bytes) == 0 ? OK : NCCL_SYSTEM_ERROR;
}

SG_STANDIN(int, nccl_mem_free)(void *address)
{
    typedef int free_function(uintptr_t);
    free_function *function = (free_function *)driver_function("cuMemFree_v2");
    return function && function((uintptr_t)address) == 0 ? OK : NCCL_SYSTEM_ERROR;
}

SG_STANDIN(int, nccl_register)(struct communicator *communicator, void *address, size_t bytes, uintptr_t *ret)
{
    (void)communicator, (void)address, (void)bytes;
    *ret = sg_standin_unique();
    return OK;
}
