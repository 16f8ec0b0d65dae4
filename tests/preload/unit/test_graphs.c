/* Memory that graphs use, against a driver made up here: what is kept for a graph, until when, and what its own capture
   may have again. */
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
        CUgraph graph;       /* that retains it */
    } object[OBJECTS];
    int objects;
    CUresult retain, create, info, current; /* what the driver answers */
    CUresult block;          /* and the core */
    bool invalidated;        /* captures are */
    int lacks;               /* which of its calls is missing: from 1 on */
    bool theirs;             /* all blocks are the driver's own */
    int driver_s_frees;
    bool later;              /* the driver calls destructors when it is told to */
    bool forked;             /* another stream has joined */
    CUdeviceptr freed[FREED];
    struct sg_request request; /* of the last free */
    int frees;
    int maps;
} fake;

static struct sg_core *const core = (struct sg_core *)&fake;
static CUcontext const context = (CUcontext)64, other_context = (CUcontext)128;
static unsigned long long last_capture; /* no two have one number */
static CUdeviceptr last_block;

static CUstream stream(int number)
{
    return (CUstream)(uintptr_t)number;
}

static CUgraph graph_of(unsigned long long capture)
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
static CUresult capture_info(CUstream asked, CUstreamCaptureStatus *status, cuuint64_t *ret, CUgraph *graph,
    const CUgraphNode **nodes, size_t *count)
{
    (void)nodes, (void)count;
    *ret = fake.capture[(uintptr_t)asked];
    *status = fake.invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
        : *ret                 ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                               : CU_STREAM_CAPTURE_STATUS_NONE;
    *graph = graph_of(*ret);
    return fake.info;
}

static CUresult object_create(CUuserObject *ret, void *user, CUhostFn destroyed, unsigned count, unsigned flags)
{
    assert_int_equal(count, 1);
    assert_int_equal(flags, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    assert_true(fake.objects < OBJECTS);
    if (fake.create != CUDA_SUCCESS)
        return fake.create;
    fake.object[fake.objects++] = (struct object){user, destroyed, NULL};
    *ret = (CUuserObject)(uintptr_t)fake.objects;
    return CUDA_SUCCESS;
}

static CUresult object_release(CUuserObject object, unsigned count)
{
    struct object *released = &fake.object[(uintptr_t)object - 1];
    assert_int_equal(count, 1);
    if (!fake.later)
        released->destroyed(released->hold);
    return CUDA_SUCCESS;
}

static CUresult retain(CUgraph graph, CUuserObject object, unsigned count, unsigned flags)
{
    assert_int_equal(count, 1);
    assert_int_equal(flags, CU_GRAPH_USER_OBJECT_MOVE);
    if (fake.retain == CUDA_SUCCESS)
        fake.object[(uintptr_t)object - 1].graph = graph;
    return fake.retain;
}

static CUresult get_current(CUcontext *ret)
{
    *ret = context;
    return fake.current;
}

static CUresult mem_free(CUdeviceptr address)
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
        .ctx_get_current = get_current, .mem_free = mem_free};
    return &driver;
}

/* The rest of the library. */
bool sg_captures_forked(CUstream asked)
{
    (void)asked;
    return fake.forked;
}

/* Blocks of 4096 bytes; the even ones are of the other context. */
CUresult sg_core_block(struct sg_core *asked, CUdeviceptr address, struct sg_block_info *ret)
{
    (void)asked;
    *ret = (struct sg_block_info){
        .base = address, .bytes = 4096, .context = address >> 12 & 1 ? context : other_context};
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
static int start(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    return 0;
}

/* All graphs are gone; what nobody has freed yet the driver does. */
static int end(void **state)
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

static unsigned long long capture(int number)
{
    return fake.capture[number] = ++last_capture;
}

/* A block that is handed out to the stream in its capture. */
static CUdeviceptr allocate(int number)
{
    last_block += 8192;
    CUdeviceptr block = last_block | 4096;
    assert_true(sg_graphs_adopt(core, stream(number), block, true));
    return block;
}

static enum sg_graphs_answer release(CUdeviceptr block, int number)
{
    const struct sg_request request = {.stream = stream(number), .has_stream = true};
    return sg_graphs_retain(block, &request, true);
}

/* The graph, its clones and its executables are gone. */
static void destroy(unsigned long long captured)
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

static int freed(CUdeviceptr block)
{
    int times = 0;
    sg_graphs_run_deferred(core);
    for (int i = 0; i < fake.frees; i++)
        times += fake.freed[i] == block;
    return times;
}

static void is_kept_until_its_graph_is_gone(void **state)
{
    (void)state;
    unsigned long long graph = capture(1);
    CUdeviceptr first = allocate(1), second = allocate(1);
    assert_int_equal(release(first, 1), SG_GRAPHS_RETAINED);
    assert_int_equal(release(first, 1), SG_GRAPHS_RETAINED_BEFORE);
    assert_int_equal(freed(first), 0);
    destroy(graph);
    assert_int_equal(freed(first), 1);
    assert_true(fake.request.was_deferred && fake.request.is_complete && fake.request.stream == stream(1));
    assert_int_equal(freed(second), 0); /* that is the program's to free */
    assert_int_equal(release(second, 1), SG_GRAPHS_FREE);
    assert_int_equal(freed(first), 1);
}

static void others_graphs_are_not_its_own(void **state)
{
    (void)state;
    unsigned long long first = capture(1), second = capture(2);
    CUdeviceptr ones = allocate(1), others = allocate(2);
    assert_int_equal(release(ones, 1), SG_GRAPHS_RETAINED);
    assert_int_equal(release(others, 2), SG_GRAPHS_RETAINED);
    destroy(second);
    assert_int_equal(freed(ones), 0);
    assert_int_equal(freed(others), 1);
    destroy(first);
    assert_int_equal(freed(ones), 1);
}

static void is_kept_for_each_of_several_graphs(void **state)
{
    (void)state;
    unsigned long long first = capture(1), second = capture(2);
    CUdeviceptr block = allocate(1);
    assert_true(sg_graphs_adopt(core, stream(2), block, false));
    assert_int_equal(release(block, 1), SG_GRAPHS_RETAINED);
    destroy(first);
    assert_int_equal(freed(block), 0);
    destroy(second);
    assert_int_equal(freed(block), 1);
}

/* Which they are is not known any more. */
static void is_kept_for_ever_for_very_many_graphs(void **state)
{
    enum { MANY = 8 };
    (void)state;
    unsigned long long graph[MANY] = {capture(1)};
    CUdeviceptr block = allocate(1);
    for (int i = 1; i < MANY; i++) {
        graph[i] = capture(i + 1);
        CUdeviceptr own = allocate(i + 1);
        assert_true(sg_graphs_adopt(core, stream(i + 1), block, false));
        assert_int_equal(release(own, i + 1), SG_GRAPHS_RETAINED);
    }
    assert_int_equal(release(block, 1), SG_GRAPHS_RETAINED);
    for (int i = 0; i < MANY; i++)
        destroy(graph[i]);
    assert_int_equal(freed(block), 0);
}

/* A graph whose memory the driver has freed is still there, and its end is nobody else's. */
static void graph_without_memory_is_no_other(void **state)
{
    (void)state;
    unsigned long long first = capture(1);
    CUdeviceptr block = allocate(1);
    assert_int_equal(sg_graphs_retain(block, NULL, true), SG_GRAPHS_FREE);
    assert_false(sg_graphs_retain_any());
    unsigned long long second = capture(2);
    CUdeviceptr others = allocate(2);
    assert_int_equal(release(others, 2), SG_GRAPHS_RETAINED);
    destroy(first);
    assert_int_equal(freed(others), 0);
    destroy(second);
    assert_int_equal(freed(others), 1);
}

/* Nothing has been settled since. */
static void graph_that_is_gone_is_no_other(void **state)
{
    (void)state;
    unsigned long long first = capture(1);
    CUdeviceptr block = allocate(1);
    assert_int_equal(release(block, 1), SG_GRAPHS_RETAINED);
    destroy(first);
    (void)capture(2);
    CUdeviceptr others = allocate(2);
    assert_int_equal(release(others, 2), SG_GRAPHS_RETAINED);
    assert_int_equal(freed(block), 1);
    assert_int_equal(freed(others), 0);
}

static void is_not_kept_where_nothing_tells_of_the_end(void **state)
{
    (void)state;
    const CUdeviceptr block = 3 * 4096;
    assert_false(sg_graphs_adopt(core, stream(1), block, true)); /* no capture */
    (void)capture(1);
    fake.retain = CUDA_ERROR_INVALID_VALUE;
    assert_false(sg_graphs_adopt(core, stream(1), block, true));
    assert_false(sg_graphs_retain_any());
}

static void ended_context_takes_its_blocks_along(void **state)
{
    (void)state;
    (void)capture(1);
    CUdeviceptr block = allocate(1);
    const CUdeviceptr others = block + 4096;
    assert_true(sg_graphs_adopt(core, stream(1), others, true));
    assert_int_equal(release(block, 1), SG_GRAPHS_RETAINED);
    sg_graphs_context_gone(context);
    assert_int_equal(release(block, 1), SG_GRAPHS_FREE);
    assert_int_equal(release(others, 1), SG_GRAPHS_RETAINED);
}

/* What a capture has again of its own. */

static bool again(int number, size_t bytes, CUdeviceptr *ret)
{
    return sg_graphs_reuse(stream(number), bytes, ret);
}

static void stream_has_again_what_it_freed(void **state)
{
    CUdeviceptr found;
    (void)state;
    unsigned long long graph = capture(1);
    CUdeviceptr block = allocate(1);
    sg_graphs_add_spare(stream(1), block); /* it is not free */
    assert_false(again(1, 4096, &found));
    assert_int_equal(release(block, 1), SG_GRAPHS_RETAINED);
    sg_graphs_add_spare(stream(1), block);
    assert_false(again(1, 4097, &found));
    assert_false(again(1, 3584, &found));
    assert_true(again(1, 3585, &found));
    assert_int_equal(found, block);
    assert_false(again(1, 4096, &found)); /* once */
    destroy(graph);
    assert_int_equal(freed(block), 0); /* it is live */
}

static void other_captures_have_none_of_it(void **state)
{
    CUdeviceptr found;
    (void)state;
    unsigned long long graph = capture(1);
    CUdeviceptr block = allocate(1);
    assert_int_equal(release(block, 1), SG_GRAPHS_RETAINED);
    sg_graphs_add_spare(stream(1), block);
    fake.capture[2] = graph; /* another stream of the same */
    assert_false(again(2, 4096, &found));
    (void)capture(1);
    assert_false(again(1, 4096, &found));
    fake.capture[1] = 0;
    assert_false(again(1, 4096, &found));
    sg_graphs_forget_spares();
    fake.capture[1] = graph;
    assert_false(again(1, 4096, &found));
}

static void others_blocks_are_no_spares(void **state)
{
    CUdeviceptr found;
    (void)state;
    unsigned long long graph = capture(1);
    fake.capture[2] = graph;
    CUdeviceptr others = allocate(2), shared = allocate(1), joined = allocate(1), outside = allocate(1) + 4096;
    (void)capture(3);
    assert_true(sg_graphs_adopt(core, stream(3), shared, false));
    assert_true(sg_graphs_adopt(core, stream(1), outside, false)); /* it was allocated before */
    const CUdeviceptr all[] = {others, shared, outside, joined};
    for (int i = 0; i < 4; i++) {
        fake.forked = all[i] == joined;
        assert_int_equal(release(all[i], 1), SG_GRAPHS_RETAINED);
        sg_graphs_add_spare(stream(1), all[i]);
        assert_false(again(1, 4096, &found));
    }
}

static void freed_by_the_driver_it_is_no_spare(void **state)
{
    CUdeviceptr found;
    (void)state;
    (void)capture(1);
    CUdeviceptr block = allocate(1);
    assert_int_equal(release(block, 1), SG_GRAPHS_RETAINED);
    sg_graphs_add_spare(stream(1), block);
    assert_int_equal(sg_graphs_retain(block, NULL, true), SG_GRAPHS_FREE);
    assert_false(again(1, 4096, &found));
}

/* Without a call that it takes, in no capture, or in one that is ruined, a block is as any other. */
static void is_not_kept_where_the_driver_cannot_tell(void **state)
{
    (void)state;
    (void)capture(1);
    for (fake.lacks = 1; fake.lacks <= 4; fake.lacks++)
        assert_false(sg_graphs_adopt(core, stream(1), 4096, true));
    fake.lacks = 0;
    fake.info = CUDA_ERROR_INVALID_HANDLE;
    assert_false(sg_graphs_adopt(core, stream(1), 4096, true));
    fake.info = CUDA_SUCCESS;
    fake.invalidated = true;
    assert_false(sg_graphs_adopt(core, stream(1), 4096, true));
    fake.invalidated = false;
    assert_false(sg_graphs_adopt(core, stream(2), 4096, true));
    fake.create = CUDA_ERROR_OUT_OF_MEMORY; /* nothing to retain */
    assert_false(sg_graphs_adopt(core, stream(1), 4096, true));
    assert_int_equal(release(4096, 1), SG_GRAPHS_FREE);
    assert_false(sg_graphs_retain_any());
}

/* A block that another graph has stays that one's where this one can't be told of. */
static void is_kept_for_the_graph_that_has_it(void **state)
{
    (void)state;
    unsigned long long first = capture(1);
    CUdeviceptr block = allocate(1);
    (void)capture(2);
    fake.create = CUDA_ERROR_OUT_OF_MEMORY;
    assert_false(sg_graphs_adopt(core, stream(2), block, false));
    fake.create = CUDA_SUCCESS;
    assert_int_equal(release(block, 1), SG_GRAPHS_RETAINED);
    destroy(first);
    assert_int_equal(freed(block), 1);
}

/* The driver's own memory is kept for graphs too, as the current context's, and goes back to the driver. */
static void memory_of_the_driver_s_goes_back_to_it(void **state)
{
    (void)state;
    unsigned long long graph = capture(1);
    fake.block = CUDA_ERROR_NOT_FOUND;
    fake.theirs = true;
    fake.current = CUDA_ERROR_DEINITIALIZED;
    assert_false(sg_graphs_adopt(core, stream(1), 4096, false));
    fake.current = CUDA_SUCCESS;
    assert_true(sg_graphs_adopt(core, stream(1), 4096, false));
    assert_int_equal(release(4096, 1), SG_GRAPHS_RETAINED);
    destroy(graph);
    assert_int_equal(freed(4096), 0);
    assert_int_equal(fake.driver_s_frees, 1);
}

/* Before any table is made there is no block. Nothing else may have made one: the first of these tests. */
static void no_block_is_a_spare_before_there_is_one(void **state)
{
    CUdeviceptr again;
    (void)state;
    (void)capture(1);
    sg_graphs_add_spare(stream(1), 4096);
    assert_false(sg_graphs_reuse(stream(1), 4096, &again));
    sg_graphs_run_deferred(core);
    sg_graphs_context_gone(context);
    assert_false(sg_graphs_retain_any());
}

/* It has gone with its context, or been given again already. */
static void what_has_gone_is_no_spare(void **state)
{
    CUdeviceptr again;
    (void)state;
    (void)capture(1);
    CUdeviceptr block = allocate(1), other = allocate(1);
    assert_int_equal(release(block, 1), SG_GRAPHS_RETAINED);
    assert_int_equal(release(other, 1), SG_GRAPHS_RETAINED);
    for (int i = 0; i < 2; i++) /* it is noted twice */
        sg_graphs_add_spare(stream(1), block);
    assert_true(sg_graphs_reuse(stream(1), 4096, &again));
    assert_int_equal(again, block);
    assert_false(sg_graphs_reuse(stream(1), 4096, &again));
    sg_graphs_add_spare(stream(1), other);
    sg_graphs_context_gone(context);
    assert_false(sg_graphs_reuse(stream(1), 4096, &again));
}

/* Whichever graph's it is: of one that has it alone and for ever nobody knows which. */
static void what_is_kept_for_ever_is_no_spare(void **state)
{
    CUdeviceptr again;
    (void)state;
    unsigned long long first = capture(1);
    CUdeviceptr block = allocate(1);
    for (int i = 2; i < 7; i++) {
        (void)capture(i);
        assert_true(sg_graphs_adopt(core, stream(i), block, false));
    }
    for (int i = 2; i < 7; i++)
        if (fake.object[i - 1].graph)
            destroy(fake.capture[i]);
    assert_int_equal(freed(block), 0);
    assert_int_equal(release(block, 1), SG_GRAPHS_RETAINED);
    sg_graphs_add_spare(stream(1), block);
    assert_false(sg_graphs_reuse(stream(1), 4096, &again));
    destroy(first);
    assert_int_equal(freed(block), 0);
}

/* More at once than are taken in one go. */
static void many_blocks_go_with_their_graph(void **state)
{
    enum { MANY = 200 };
    CUdeviceptr block[MANY];
    (void)state;
    unsigned long long graph = capture(1);
    for (int i = 0; i < MANY; i++) {
        block[i] = allocate(1);
        if (i % 3) /* the others are live, and no graph's any more */
            assert_int_equal(release(block[i], 1), SG_GRAPHS_RETAINED);
    }
    destroy(graph);
    sg_graphs_run_deferred(core);
    assert_int_equal(fake.frees, MANY - (MANY + 2) / 3);
    assert_false(sg_graphs_retain_any());
    for (int i = 0; i < MANY; i++)
        assert_int_equal(freed(block[i]), i % 3 != 0);
}

/* However many graphs there have been, one after another. */
static void places_are_used_again(void **state)
{
    enum { MANY = 10000 };
    (void)state;
    for (int i = 0; i < MANY; i++) {
        unsigned long long graph = capture(1);
        CUdeviceptr block = allocate(1);
        assert_int_equal(release(block, 1), SG_GRAPHS_RETAINED);
        destroy(graph);
        fake.objects = 0;
        assert_int_equal(freed(block), 1);
        fake.frees = 0;
        if (i == 0)
            fake.maps = 0;
    }
    assert_int_equal(fake.maps, 0);
}

/* What several graphs have, or what is not free, is no spare of one. */
static void block_of_two_graphs_is_no_spare(void **state)
{
    CUdeviceptr again;
    (void)state;
    (void)capture(1);
    (void)capture(2);
    CUdeviceptr block = allocate(1);
    sg_graphs_add_spare(stream(1), block); /* not freed */
    assert_false(sg_graphs_reuse(stream(1), 4096, &again));
    assert_true(sg_graphs_adopt(core, stream(2), block, false));
    assert_int_equal(release(block, 1), SG_GRAPHS_RETAINED);
    sg_graphs_add_spare(stream(1), block);
    assert_false(sg_graphs_reuse(stream(1), 4096, &again));
    sg_graphs_add_spare(stream(3), block); /* in no capture */
    sg_graphs_add_spare(stream(1), 1 << 30); /* no block */
    assert_false(sg_graphs_reuse(stream(1), 4096, &again));
}

/* The capture that freed it has ended, and the next one of the stream is another graph. */
static void block_of_the_last_graph_is_no_spare(void **state)
{
    CUdeviceptr again;
    (void)state;
    (void)capture(1);
    CUdeviceptr block = allocate(1);
    assert_int_equal(release(block, 1), SG_GRAPHS_RETAINED);
    (void)capture(1);
    sg_graphs_add_spare(stream(1), block);
    assert_false(sg_graphs_reuse(stream(1), 4096, &again));
}

/* The driver calls the destructors that are left, after a while. */
static void *call_destructors(void *graph)
{
    usleep(20000);
    destroy(*(unsigned long long *)graph);
    fake.object[fake.objects - 1].destroyed(fake.object[fake.objects - 1].hold);
    return NULL;
}

static void driver_is_waited_for_to_tell(void **state)
{
    pthread_t thread;
    (void)state;
    unsigned long long graph = capture(1);
    CUdeviceptr block = allocate(1);
    assert_false(sg_graphs_retain_freed());
    sg_graphs_await_destroyed(); /* nothing is freed: nothing is asked */
    assert_int_equal(fake.objects, 1);
    assert_int_equal(release(block, 1), SG_GRAPHS_RETAINED);
    assert_true(sg_graphs_retain_freed());
    sg_graphs_await_destroyed();
    assert_int_equal(fake.objects, 2);
    assert_int_equal(freed(block), 0); /* its graph lives on */
    fake.later = true;
    assert_int_equal(pthread_create(&thread, NULL, call_destructors, &graph), 0);
    sg_graphs_await_destroyed();
    assert_int_equal(fake.objects, 3);
    assert_int_equal(freed(block), 1);
    pthread_join(thread, NULL);
    assert_false(sg_graphs_retain_freed());
}

/* Of the graph of one block, which the program is about to free; no other is worth a question. */
static void driver_is_waited_for_to_tell_of_a_block(void **state)
{
    (void)state;
    unsigned long long graph = capture(1);
    CUdeviceptr block = allocate(1), other = block + 8192;
    sg_graphs_await_destroyed_of(other);
    assert_int_equal(fake.objects, 1);
    sg_graphs_await_destroyed_of(block);
    assert_int_equal(fake.objects, 2);
    destroy(graph);
    assert_int_equal(release(block, 1), SG_GRAPHS_FREE);
}

/* Who was held up once, by a destructor of the program's, keeps nobody else waiting until it goes on. */
static void driver_that_is_held_up_is_not_waited_for_again(void **state)
{
    (void)state;
    unsigned long long graph = capture(1);
    CUdeviceptr block = allocate(1);
    assert_int_equal(release(block, 1), SG_GRAPHS_RETAINED);
    fake.later = true;
    sg_graphs_await_destroyed();
    const struct object held_up = fake.object[1];
    for (int i = 0; i < 3; i++)
        sg_graphs_await_destroyed();
    assert_int_equal(fake.objects, 2);
    held_up.destroyed(held_up.hold);
    fake.later = false;
    sg_graphs_await_destroyed();
    assert_int_equal(fake.objects, 3);
    destroy(graph);
    assert_int_equal(freed(block), 1);
}

/* A spare that is handed out again is nobody's freed block. */
static void spare_in_use_waits_for_nothing(void **state)
{
    CUdeviceptr again;
    (void)state;
    (void)capture(1);
    CUdeviceptr block = allocate(1);
    assert_int_equal(release(block, 1), SG_GRAPHS_RETAINED);
    sg_graphs_add_spare(stream(1), block);
    assert_true(sg_graphs_reuse(stream(1), 4096, &again));
    assert_false(sg_graphs_retain_freed());
    assert_int_equal(release(block, 1), SG_GRAPHS_RETAINED);
    assert_true(sg_graphs_retain_freed());
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(no_block_is_a_spare_before_there_is_one),
        TEST(is_kept_until_its_graph_is_gone),
        TEST(others_graphs_are_not_its_own),
        TEST(is_kept_for_each_of_several_graphs),
        TEST(is_kept_for_ever_for_very_many_graphs),
        TEST(graph_without_memory_is_no_other),
        TEST(graph_that_is_gone_is_no_other),
        TEST(is_not_kept_where_nothing_tells_of_the_end),
        TEST(ended_context_takes_its_blocks_along),
        TEST(stream_has_again_what_it_freed),
        TEST(other_captures_have_none_of_it),
        TEST(others_blocks_are_no_spares),
        TEST(freed_by_the_driver_it_is_no_spare),
        TEST(is_not_kept_where_the_driver_cannot_tell),
        TEST(is_kept_for_the_graph_that_has_it),
        TEST(memory_of_the_driver_s_goes_back_to_it),
        TEST(block_of_two_graphs_is_no_spare),
        TEST(block_of_the_last_graph_is_no_spare),
        TEST(what_has_gone_is_no_spare),
        TEST(places_are_used_again),
        TEST(what_is_kept_for_ever_is_no_spare),
        TEST(many_blocks_go_with_their_graph),
        TEST(driver_is_waited_for_to_tell),
        TEST(driver_is_waited_for_to_tell_of_a_block),
        TEST(driver_that_is_held_up_is_not_waited_for_again),
        TEST(spare_in_use_waits_for_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
