/* Graphs, captures and a core made up for tests of blocks of graphs. To be included by one file of a program. */
#ifndef GRAPHS_FAKES_H
#define GRAPHS_FAKES_H

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "balance.h"
#include "serve/free.h"
#include "track/captures.h"
#include "track/graph_blocks.h"
#include "process/process.h"
#include "process/upward_calls.h"

enum { STREAMS = 16, OBJECTS = 16, FREED = 300 };

static struct {
    unsigned long long capture[STREAMS]; /* of each stream, 0: none */
    struct object {
        void *hold;
        CUhostFn destroyed;
        CUgraph graph; /* that retains it */
    } object[OBJECTS];
    _Atomic int objects;
    CUresult retain, create, info, current; /* what the driver answers */
    CUresult block;                         /* and the core */
    bool invalidated;                       /* captures are */
    int lacks;                              /* which of its calls is missing: from 1 on */
    bool theirs;                            /* all blocks are the driver's own */
    int driver_s_frees;
    bool later;  /* the driver calls destructors when a test says so */
    bool forked; /* another stream has joined */
    CUdeviceptr freed[FREED];
    struct sg_request request; /* of the last free */
    int frees;
    int maps;
    struct sg_conf conf;
} fake;

static struct sg_core *const core = (struct sg_core *)&fake;
static CUcontext const context = (CUcontext)64, other_context = (CUcontext)128;
static unsigned long long last_capture; /* no two have one number */
static CUdeviceptr last_block;

static inline CUstream stream(int number)
{
    return (CUstream)(uintptr_t)number;
}

static inline CUgraph graph_of(unsigned long long capture)
{
    return (CUgraph)(uintptr_t)(capture * 16);
}

/* graphs.c calls the latter in its place: what follows a table can't be touched. */
#undef mmap
void *mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset);
void *bounded_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset);

void *bounded_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset)
{
    enum { PAGE = 4096 };
    assert_int_equal(bytes % PAGE, 0);
    fake.maps++;
    char *memory = mmap(at, bytes + PAGE, protection, flags, file, offset);
    assert_int_equal(mprotect(memory + bytes, PAGE, PROT_NONE), 0);
    return memory;
}

/* The driver. */
static inline CUresult capture_info(CUstream asked, CUstreamCaptureStatus *status, cuuint64_t *ret, CUgraph *graph,
    const CUgraphNode **nodes, size_t *count)
{
    (void)nodes, (void)count;
    *ret = fake.capture[(uintptr_t)asked];
    *status = fake.invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
              : *ret           ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                               : CU_STREAM_CAPTURE_STATUS_NONE;
    *graph = graph_of(*ret);
    return fake.info;
}

static inline CUresult object_create(CUuserObject *ret, void *user, CUhostFn destroyed, unsigned count, unsigned flags)
{
    assert_int_equal(count, 1);
    assert_int_equal(flags, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    assert_true(fake.objects < OBJECTS);
    if (fake.create != CUDA_SUCCESS)
        return fake.create;
    fake.object[fake.objects] = (struct object){user, destroyed, NULL};
    fake.objects++;
    *ret = (CUuserObject)(uintptr_t)fake.objects;
    return CUDA_SUCCESS;
}

static inline CUresult object_release(CUuserObject object, unsigned count)
{
    struct object *released = &fake.object[(uintptr_t)object - 1];
    assert_int_equal(count, 1);
    if (!fake.later)
        released->destroyed(released->hold);
    return CUDA_SUCCESS;
}

static inline CUresult retain(CUgraph graph, CUuserObject object, unsigned count, unsigned flags)
{
    assert_int_equal(count, 1);
    assert_int_equal(flags, CU_GRAPH_USER_OBJECT_MOVE);
    if (fake.retain == CUDA_SUCCESS)
        fake.object[(uintptr_t)object - 1].graph = graph;
    return fake.retain;
}

static inline CUresult get_current(CUcontext *ret)
{
    *ret = context;
    return fake.current;
}

static inline CUresult mem_free(CUdeviceptr address)
{
    (void)address;
    fake.driver_s_frees++;
    return CUDA_SUCCESS;
}

const struct sg_driver *sg_process_driver(void)
{
    static struct sg_driver driver;
    driver = (struct sg_driver){.stream_capture_info = fake.lacks == 1 ? NULL : capture_info,
        .user_object_create = fake.lacks == 2 ? NULL : object_create,
        .user_object_release = fake.lacks == 3 ? NULL : object_release,
        .graph_retain_user_object = fake.lacks == 4 ? NULL : retain,
        .ctx_get_current = get_current,
        .mem_free = mem_free};
    return &driver;
}

/* The rest of the library. */
const struct sg_conf *sg_process_conf(void)
{
    return &fake.conf;
}

bool sg_captures_forked(CUstream asked)
{
    (void)asked;
    return fake.forked;
}

/* Blocks of 4096 bytes; the even ones are of the other context. */
CUresult sg_core_block(struct sg_core *asked, CUdeviceptr address, struct sg_block_info *ret)
{
    (void)asked;
    *ret =
        (struct sg_block_info){.base = address, .bytes = 4096, .context = address >> 12 & 1 ? context : other_context};
    return fake.block;
}

bool sg_process_owns(CUdeviceptr address)
{
    (void)address;
    return !fake.theirs;
}

CUresult sg_memory_free(struct sg_core *asked, CUdeviceptr address, const struct sg_request *request)
{
    (void)asked;
    assert_true(fake.frees < FREED);
    fake.freed[fake.frees++] = address;
    fake.request = *request;
    return CUDA_SUCCESS;
}

const struct sg_upward_calls sg_upward_calls = {.free = sg_memory_free};

/* The program. */
static inline int start(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    return 0;
}

/* All graphs are gone; what nobody has freed yet the driver does. */
static inline int end(void **state)
{
    (void)state;
    for (int i = 0; i < fake.objects; i++)
        if (fake.object[i].graph)
            fake.object[i].destroyed(fake.object[i].hold);
    sg_graphs_context_gone(context);
    sg_graphs_context_gone(other_context);
    sg_graphs_run_deferred(core);
    sg_graphs_forget_spares();
    return sg_graphs_retain_any();
}

static inline unsigned long long capture(int number)
{
    return fake.capture[number] = ++last_capture;
}

/* A block that is handed out to the stream in its capture. */
static inline CUdeviceptr allocate(int number)
{
    last_block += 8192;
    CUdeviceptr block = last_block | 4096;
    assert_true(sg_graphs_adopt(core, stream(number), block, true));
    return block;
}

static inline enum sg_graphs_answer release(CUdeviceptr block, int number)
{
    const struct sg_request request = {.stream = stream(number), .has_stream = true};
    return sg_graphs_retain(block, &request, true);
}

/* The graph, its clones and its executables are gone. */
static inline void destroy(unsigned long long captured)
{
    int found = 0;
    for (int i = 0; i < fake.objects; i++) {
        struct object *object = &fake.object[i];
        if (object->graph != graph_of(captured))
            continue;
        object->graph = NULL;
        object->destroyed(object->hold);
        found++;
    }
    assert_int_equal(found, 1); /* one object tells of all that is the graph's */
}

static inline int freed(CUdeviceptr block)
{
    int times = 0;
    sg_graphs_run_deferred(core);
    for (int i = 0; i < fake.frees; i++)
        times += fake.freed[i] == block;
    return times;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, end)

#endif
