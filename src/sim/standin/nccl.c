/* NCCL: ranks that are processes of this machine exchange the bytes of small collectives, in stream order. So data that
   hosts exchange arrives: sizes, pickled objects, numbers of steps. Bytes of large collectives are not moved. Where the ranks can't meet (several in one process, a capture, a rank that has gone), this rank's own bytes
   go where results belong, as if every rank held the same. */
#include "answers.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "nccl_exchange.h"
#include "nccl_reduce.h"
#include "base/wrap.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum { ID_BYTES = 128, OK = 0, NCCL_SYSTEM_ERROR = 2 };

struct unique_id {
    char bytes[ID_BYTES];
};

/* One with an exchange is never freed: work that is queued may still use it. */
struct communicator {
    int ranks, rank;
    uint64_t key;
    struct sg_exchange *exchange; /* NULL: the ranks can't meet */
};

enum collective { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, GATHER, REDUCE_SCATTER, ALL_TO_ALL, SEND, RECEIVE };

struct operation {
    enum collective what;
    struct communicator *communicator;
    const char *from;
    char *to;
    size_t count; /* elements, as the call names them */
    int type, op, root; /* root: of messages, the other rank */
    uint64_t number;
};

static _Thread_local int group_depth;

static uint64_t key_mix(uint64_t hash, const void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        hash = sg_fnv(hash, ((const unsigned char *)bytes)[i]);
    return hash;
}

/* Waits for the other ranks, like NCCL's; but not within a group, where one thread makes several. */
static int communicator_make(struct communicator **ret, int ranks, int rank, uint64_t key)
{
    struct communicator *made = calloc(1, sizeof *made);
    if (!made)
        return NCCL_SYSTEM_ERROR;
    *made = (struct communicator){.ranks = ranks, .rank = rank, .key = key};
    if (key && group_depth == 0)
        made->exchange = sg_exchange_join(key, ranks, rank);
    *ret = made;
    return OK;
}

static uint64_t communicator_key(const struct unique_id *id)
{
    return key_mix(SG_FNV_BASIS, id->bytes, sizeof id->bytes) | 1;
}

/* A function of the driver that the process uses already, NULL without one. */
static void *driver_function(const char *name)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (!driver)
        driver = dlopen("libcuda.so.1", RTLD_LAZY);
    return driver ? dlsym(driver, name) : NULL;
}

/* The order of work is asked of the driver: a host function would run again with each launch of a graph. */
static bool is_capturing(void *stream)
{
    typedef int capturing_function(void *, int *);
    static capturing_function *function;
    int status = 0;
    if (!function)
        function = (capturing_function *)driver_function("cuStreamIsCapturing");
    return function && function(stream, &status) == 0 && status != 0;
}

static int nccl_copy(void *to, const void *from, size_t bytes, void *stream)
{
    typedef int copy_function(uintptr_t, uintptr_t, size_t, void *);
    static copy_function *function;
    if (to == from || bytes == 0 || bytes > SG_EXCHANGE_BYTES)
        return OK;
    if (!function)
        function = (copy_function *)driver_function("cuMemcpyAsync");
    if (function)
        (void)function((uintptr_t)to, (uintptr_t)from, bytes, stream);
    return OK;
}

/* Bytes that a rank gives to a round. */
static size_t given_bytes(const struct operation *op)
{
    size_t bytes = op->count * sg_nccl_bytes(op->type);
    bool for_each = op->what == REDUCE_SCATTER || op->what == ALL_TO_ALL;
    return for_each ? bytes * (size_t)op->communicator->ranks : bytes;
}

/* The larger of the bytes that a rank gives to a round and those that it receives. */
static size_t largest_bytes(const struct operation *op)
{
    bool from_each = op->what == ALL_GATHER || op->what == GATHER;
    return given_bytes(op) * (from_each ? (size_t)op->communicator->ranks : 1);
}

static void reduce_all(const struct operation *op, size_t offset)
{
    const struct communicator *c = op->communicator;
    size_t bytes = op->count * sg_nccl_bytes(op->type);
    for (int i = 0; i < c->ranks; i++) {
        const char *given = (const char *)sg_exchange_given(c->exchange, i) + offset;
        if (i == 0)
            memcpy(op->to, given, bytes);
        else
            sg_nccl_reduce(op->type, op->op, op->to, given, op->count);
    }
    sg_nccl_average(op->type, op->op, op->to, op->count, c->ranks);
}

static void operation_receive(const struct operation *op)
{
    const struct communicator *c = op->communicator;
    size_t bytes = op->count * sg_nccl_bytes(op->type);
    bool is_root = c->rank == op->root;
    switch (op->what) {
    case REDUCE:
    case ALL_REDUCE:
        if (is_root || op->what == ALL_REDUCE)
            reduce_all(op, 0);
        return;
    case REDUCE_SCATTER:
        reduce_all(op, (size_t)c->rank * bytes);
        return;
    case BROADCAST:
        memmove(op->to, sg_exchange_given(c->exchange, op->root), bytes);
        return;
    case GATHER:
    case ALL_GATHER:
    case ALL_TO_ALL:
        for (int i = 0; i < c->ranks && (is_root || op->what != GATHER); i++) {
            const char *given = sg_exchange_given(c->exchange, i);
            memcpy(op->to + (size_t)i * bytes, given + (op->what == ALL_TO_ALL ? (size_t)c->rank * bytes : 0), bytes);
        }
        return;
    case SEND:
    case RECEIVE:
        return;
    }
}

/* A host function, in the stream's order. The simulated device's memory lies at its addresses. */
static void operation_perform(void *data)
{
    struct operation *op = data;
    struct sg_exchange *exchange = op->communicator->exchange;
    size_t bytes = op->count * sg_nccl_bytes(op->type);
    if (op->what == SEND || op->what == RECEIVE) {
        if (op->what == SEND)
            (void)sg_exchange_send(exchange, op->root, op->number, op->from, bytes);
        else
            (void)sg_exchange_receive(exchange, op->root, op->number, op->to, bytes);
        free(op);
        return;
    }
    bool gives = op->what != BROADCAST || op->communicator->rank == op->root;
    if (sg_exchange_begin(exchange, op->number, gives ? op->from : op->to, gives ? given_bytes(op) : 0))
        operation_receive(op);
    /* A round that failed is over too: this rank's next one waits for that. */
    sg_exchange_end(exchange, op->number);
    free(op);
}

/* Queues the operation's exchange of bytes between the ranks. False: they exchange none. */
static bool operation_exchange(const struct operation *wanted, void *stream)
{
    typedef int launch_function(void *, void (*)(void *), void *);
    static launch_function *launch;
    if (!wanted->communicator->exchange || largest_bytes(wanted) > SG_EXCHANGE_BYTES || is_capturing(stream))
        return false;
    if (!launch)
        launch = (launch_function *)driver_function("cuLaunchHostFunc");
    struct operation *op = launch ? malloc(sizeof *op) : NULL;
    if (!op)
        return false;
    *op = *wanted;
    if (op->what == SEND)
        op->number = sg_exchange_number_to(op->communicator->exchange, op->root);
    else if (op->what == RECEIVE)
        op->number = sg_exchange_number_from(op->communicator->exchange, op->root);
    else
        op->number = sg_exchange_number(op->communicator->exchange);
    if (launch(stream, operation_perform, op) == 0)
        return true;
    free(op);
    return false;
}

/* Messages of a group that is open. At its end those that are sent go first: a stream does one thing after another, and
   all ranks may begin with receiving. */
enum { MESSAGES_MOST = 1024 };

static _Thread_local struct {
    struct message {
        struct operation operation;
        void *stream;
    } *list;
    int count;
} group;

static void group_add_message(const struct operation *wanted, void *stream)
{
    if (wanted->root < 0 || wanted->root >= wanted->communicator->ranks)
        return;
    if (group_depth > 0 && !group.list)
        group.list = malloc(MESSAGES_MOST * sizeof *group.list);
    if (group_depth > 0 && group.list && group.count < MESSAGES_MOST)
        group.list[group.count++] = (struct message){*wanted, stream};
    else
        (void)operation_exchange(wanted, stream);
}

SG_STANDIN(int, nccl_group_start)(void)
{
    group_depth++;
    return OK;
}

SG_STANDIN(int, nccl_group_end)(void)
{
    if (group_depth == 0 || --group_depth > 0)
        return OK;
    for (int receiving = 0; receiving < 2; receiving++) {
        for (int i = 0; i < group.count; i++) {
            if ((group.list[i].operation.what == RECEIVE) == receiving)
                (void)operation_exchange(&group.list[i].operation, group.list[i].stream);
        }
    }
    free(group.list);
    group.list = NULL;
    group.count = 0;
    return OK;
}

SG_STANDIN(int, nccl_send)(const void *from, size_t count, int type, int peer, struct communicator *communicator,
                           void *stream)
{
    const struct operation wanted = {SEND, communicator, from, NULL, count, type, 0, peer, 0};
    group_add_message(&wanted, stream);
    return OK;
}

SG_STANDIN(int, nccl_receive)
(void *to, size_t count, int type, int peer, struct communicator *communicator, void *stream)
{
    const struct operation wanted = {RECEIVE, communicator, NULL, to, count, type, 0, peer, 0};
    group_add_message(&wanted, stream);
    return OK;
}

SG_STANDIN(int, nccl_version)(int *ret)
{
    int version[3] = {2, 28, 9};
    sg_standin_version("nccl", version);
    *ret = version[0] * 10000 + version[1] * 100 + version[2];
    return OK;
}

SG_STANDIN(int, nccl_unique_id)(struct unique_id *ret)
{
    memset(ret, 0, sizeof *ret);
    return getrandom(ret->bytes, 32, 0) == 32 ? OK : NCCL_SYSTEM_ERROR;
}

SG_STANDIN(int, nccl_init_rank)(struct communicator **ret, int ranks, struct unique_id id, int rank)
{
    return communicator_make(ret, ranks, rank, communicator_key(&id));
}

SG_STANDIN(int, nccl_init_rank_config)
(struct communicator **ret, int ranks, struct unique_id id, int rank, void *config)
{
    (void)config;
    return communicator_make(ret, ranks, rank, communicator_key(&id));
}

SG_STANDIN(int, nccl_init_rank_scalable)(struct communicator **ret, int ranks, int rank, int id_count,
                                         const struct unique_id *ids)
{
    return communicator_make(ret, ranks, rank, id_count > 0 ? communicator_key(ids) : 0);
}

SG_STANDIN(int, nccl_init_all)(struct communicator **ret, int devices)
{
    for (int i = 0; i < devices; i++) {
        int result = communicator_make(ret + i, devices, i, 0);
        if (result != OK)
            return result;
    }
    return OK;
}

/* Each rank's colour and key, in a round of the old communicator; then those of one colour meet, in the order of their
   keys. */
static int communicator_split(struct communicator *from, int colour, int key, struct communicator **ret)
{
    const int own[2] = {colour, key};
    int ranks = 0, rank = 0;
    uint64_t number = sg_exchange_number(from->exchange);
    if (!sg_exchange_begin(from->exchange, number, own, sizeof own))
        return NCCL_SYSTEM_ERROR;
    for (int i = 0; i < from->ranks; i++) {
        int other[2];
        memcpy(other, sg_exchange_given(from->exchange, i), sizeof other);
        bool before = other[1] < key || (other[1] == key && i < from->rank);
        ranks += other[0] == colour;
        rank += other[0] == colour && before;
    }
    sg_exchange_end(from->exchange, number);
    uint64_t name = key_mix(key_mix(from->key, &number, sizeof number), &colour, sizeof colour) | 1;
    return colour < 0 ? OK : communicator_make(ret, ranks, rank, name);
}

/* Where the ranks can't meet, who else has the colour only callers know. */
SG_STANDIN(int, nccl_split)(struct communicator *from, int colour, int key, struct communicator **ret)
{
    *ret = NULL;
    if (from->exchange)
        return communicator_split(from, colour, key, ret);
    return colour < 0 ? OK : communicator_make(ret, from->ranks, from->rank, 0);
}

SG_STANDIN(int, nccl_shrink)(struct communicator *from, int *left_out, int count, struct communicator **ret)
{
    (void)left_out;
    return communicator_make(ret, from->ranks - count, from->rank, 0);
}

SG_STANDIN(int, nccl_abort)(struct communicator *communicator)
{
    if (communicator && communicator->exchange)
        sg_exchange_abort(communicator->exchange);
    return OK;
}

SG_STANDIN(int, nccl_destroy)(struct communicator *communicator)
{
    if (communicator && !communicator->exchange)
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
    const struct operation wanted = {ALL_REDUCE, communicator, from, to, count, type, op, 0, 0};
    return operation_exchange(&wanted, stream) ? OK : nccl_copy(to, from, count * sg_nccl_bytes(type), stream);
}

SG_STANDIN(int, nccl_reduce)(const void *from, void *to, size_t count, int type, int op, int root,
                             struct communicator *communicator, void *stream)
{
    const struct operation wanted = {REDUCE, communicator, from, to, count, type, op, root, 0};
    if (operation_exchange(&wanted, stream) || root != communicator->rank)
        return OK;
    return nccl_copy(to, from, count * sg_nccl_bytes(type), stream);
}

SG_STANDIN(int, nccl_broadcast)(const void *from, void *to, size_t count, int type, int root,
                                struct communicator *communicator, void *stream)
{
    const struct operation wanted = {BROADCAST, communicator, from, to, count, type, 0, root, 0};
    if (operation_exchange(&wanted, stream) || root != communicator->rank)
        return OK;
    return nccl_copy(to, from, count * sg_nccl_bytes(type), stream);
}

SG_STANDIN(int, nccl_broadcast_in_place)(void *at, size_t count, int type, int root, struct communicator *communicator,
                                         void *stream)
{
    const struct operation wanted = {BROADCAST, communicator, at, at, count, type, 0, root, 0};
    (void)operation_exchange(&wanted, stream);
    return OK;
}

static int operation_gather(const struct operation *wanted, void *stream)
{
    size_t bytes = wanted->count * sg_nccl_bytes(wanted->type);
    const struct communicator *communicator = wanted->communicator;
    if (operation_exchange(wanted, stream) || largest_bytes(wanted) > SG_EXCHANGE_BYTES)
        return OK;
    for (int i = 0; i < communicator->ranks; i++)
        nccl_copy(wanted->to + (size_t)i * bytes, wanted->from, bytes, stream);
    return OK;
}

SG_STANDIN(int, nccl_all_gather)(const void *from, void *to, size_t count, int type, struct communicator *communicator,
                                 void *stream)
{
    const struct operation wanted = {ALL_GATHER, communicator, from, to, count, type, 0, 0, 0};
    return operation_gather(&wanted, stream);
}

SG_STANDIN(int, nccl_gather)(const void *from, void *to, size_t count, int type, int root,
                             struct communicator *communicator, void *stream)
{
    const struct operation wanted = {GATHER, communicator, from, to, count, type, 0, root, 0};
    if (communicator->rank == root)
        return operation_gather(&wanted, stream);
    (void)operation_exchange(&wanted, stream);
    return OK;
}

SG_STANDIN(int, nccl_reduce_scatter)(const char *from, void *to, size_t count, int type, int op,
                                     struct communicator *communicator, void *stream)
{
    const struct operation wanted = {REDUCE_SCATTER, communicator, from, to, count, type, op, 0, 0};
    size_t bytes = count * sg_nccl_bytes(type);
    return operation_exchange(&wanted, stream)
               ? OK
               : nccl_copy(to, from + (size_t)communicator->rank * bytes, bytes, stream);
}

SG_STANDIN(int, nccl_all_to_all)(const void *from, void *to, size_t count, int type, struct communicator *communicator,
                                 void *stream)
{
    const struct operation wanted = {ALL_TO_ALL, communicator, from, to, count, type, 0, 0, 0};
    return operation_exchange(&wanted, stream)
               ? OK
               : nccl_copy(to, from, count * sg_nccl_bytes(type) * (size_t)communicator->ranks, stream);
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
