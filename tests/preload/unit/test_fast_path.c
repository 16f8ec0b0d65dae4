/* The short way through an allocation and a free: it is taken only where what a call on the long way has found out still
   holds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "serve/callers.h"
#include "serve/free_mode.h"
#include "track/captures.h"
#include "track/contexts.h"
#include "services/hazard_annotations.h"
#include "track/graph_blocks.h"
#include "process/process.h"
#include "serve/alloc.h"
#include "serve/deferred_frees.h"
#include "serve/fast_path.h"
#include "track/ipc.h"
#include "services/recorder.h"
#include "sites/note.h"
#include "sites/sites.h"
#include "track/streams.h"

static CUcontext const context = (CUcontext)64, other_context = (CUcontext)128;
static CUstream const stream = (CUstream)192;
enum { BLOCK = 4096, SLOT = 5 };

static struct {
    CUcontext current;
    bool early;                   /* there is no core yet */
    bool live, green, remembered; /* a capture; the current context is no primary one; where the stream is followed */
    CUresult answer;              /* the core's */
    int calls;
    struct sg_tag tag;
} fake;

struct sg_thread *sg_thread_find(void)
{
    return &sg_self;
}

static CUresult get_current(CUcontext *ret)
{
    *ret = fake.current;
    return CUDA_SUCCESS;
}

const struct sg_driver *sg_process_driver(void)
{
    static const struct sg_driver driver = {.ctx_get_current = get_current};
    return &driver;
}

struct sg_core *sg_process_core(void)
{
    return fake.early ? NULL : (struct sg_core *)&fake;
}

bool sg_captures_active(void)
{
    return fake.live;
}

bool sg_contexts_primary(CUcontext asked)
{
    (void)asked;
    return !fake.green;
}

bool sg_streams_remembered(struct sg_thread *self, CUstream named, CUcontext asked, int device, sg_slot *ret)
{
    (void)self, (void)named, (void)asked, (void)device;
    *ret = SLOT;
    return fake.remembered;
}

struct sg_request sg_memory_origin(int caller)
{
    return (struct sg_request){.torch = caller == SG_CALLER_TORCH};
}

struct sg_tag sg_memory_tag(struct sg_core *core, const struct sg_request *request, CUcontext asked, int device)
{
    (void)core, (void)device;
    return (struct sg_tag){.context = asked, .torch = request->torch};
}

CUresult sg_memory_not_served(struct sg_core *core, int device, size_t bytes, const struct sg_tag *tag, unsigned ends,
    CUresult result, CUdeviceptr *ret)
{
    (void)core, (void)device, (void)bytes, (void)tag, (void)ends, (void)ret;
    return result;
}

CUresult sg_core_malloc(struct sg_core *core, int device, size_t bytes, const struct sg_tag *tag, CUdeviceptr *ret)
{
    (void)core, (void)device, (void)bytes;
    assert_true(sg_self.inside);
    fake.calls++;
    fake.tag = *tag;
    *ret = BLOCK;
    return fake.answer;
}

CUresult sg_core_free(struct sg_core *core, CUdeviceptr address, const struct sg_tag *tag)
{
    (void)core, (void)address;
    assert_true(sg_self.inside);
    fake.calls++;
    fake.tag = *tag;
    return fake.answer;
}

/* Runtimes are told apart by their functions. */
static int one_malloc(void **ret, size_t bytes)
{
    (void)ret, (void)bytes;
    return 0;
}

static int other_malloc(void **ret, size_t bytes)
{
    (void)ret, (void)bytes;
    return 1;
}

static const struct sg_module program = {.kind = SG_CALLER_OTHER, .malloc = one_malloc, .fast_path = true},
                              library = {.kind = SG_CALLER_OTHER, .malloc = other_malloc, .fast_path = true},
                              old = {.kind = SG_CALLER_OTHER, .malloc = one_malloc};

static bool can_malloc(const struct sg_module *module)
{
    void *address = NULL;
    int before = fake.calls;
    bool can = sg_fast_malloc(module, &address, BLOCK);
    assert_int_equal(fake.calls - before, can);
    assert_false(sg_self.inside);
    return can;
}

static bool can_free(const struct sg_module *module)
{
    int before = fake.calls;
    bool can = sg_fast_free(module, (void *)(uintptr_t)BLOCK);
    assert_int_equal(fake.calls - before, can);
    assert_false(sg_self.inside);
    return can;
}

static bool can_malloc_on(void)
{
    CUdeviceptr address = 0;
    int before = fake.calls;
    bool can = sg_fast_malloc_on(BLOCK, stream, &address);
    assert_int_equal(fake.calls - before, can);
    return can;
}

static bool can_free_named(void)
{
    int before = fake.calls;
    bool can = sg_fast_free_on(BLOCK);
    assert_int_equal(fake.calls - before, can);
    return can;
}

/* A call of each kind went the long way. */
static int start(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    memset(&sg_self, 0, sizeof sg_self);
    atomic_store(&sg_graphs_blocks, 0);
    atomic_store(&sg_captures_deferred, 0);
    fake.current = sg_self.last.context = context;
    fake.remembered = true;
    sg_fast_path_prepare(&program);
    sg_fast_path_prepare_streams();
    return 0;
}

/* Making the fast path takes locks, which whatever a handler has interrupted may hold. */
static void fast_path_is_not_prepared_in_a_handler(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        memset(&sg_self.fast_path, 0, sizeof sg_self.fast_path);
        memset(&sg_self.stream_fast_path, 0, sizeof sg_self.stream_fast_path);
        sg_self.runtime = NULL;
        sg_self.inside = i == 0;
        sg_self.guards = i == 1 ? 1u << SG_LOCK_CONTEXTS : 0;
        sg_fast_path_prepare(&program);
        assert_null(sg_self.runtime);
        assert_null(sg_self.fast_path.core);
        assert_int_equal(sg_self.inside, i == 0);
    }
    sg_fast_path_prepare_streams();
    assert_null(sg_self.stream_fast_path.core);
    sg_self.guards = 0;
    sg_fast_path_prepare(&program);
    sg_fast_path_prepare_streams();
    assert_non_null(sg_self.fast_path.core);
    assert_non_null(sg_self.stream_fast_path.core);
    assert_false(sg_self.inside);
}

static void is_taken_where_all_holds(void **state)
{
    (void)state;
    assert_true(can_malloc(&program) && can_free(&program));
    assert_true(fake.tag.tentative);
    assert_true(can_malloc_on());
    assert_int_equal(fake.tag.slot, SLOT);
    assert_true(can_free_named());
}

static void is_of_one_runtime(void **state)
{
    (void)state;
    assert_false(can_malloc(&library));
    assert_false(can_free(&library));
}

static void is_of_one_context(void **state)
{
    (void)state;
    fake.current = other_context;
    assert_false(can_malloc(&program));
    assert_false(can_free(&program));
    assert_false(can_malloc_on());
    assert_false(can_free_named());
}

/* A capture has begun, a context has gone, or the process is ending. */
static void ends_with_what_it_was_learnt_from(void **state)
{
    (void)state;
    atomic_fetch_add(&sg_fast_path_epoch, 1);
    assert_false(can_malloc(&program));
    assert_false(can_free(&program));
    assert_false(can_malloc_on());
    assert_false(can_free_named());
}

static void leaves_blocks_of_graphs_to_the_long_way(void **state)
{
    (void)state;
    atomic_store(&sg_graphs_blocks, 1);
    assert_false(can_free(&program));
    assert_false(can_free_named());
    assert_true(can_malloc(&program));
}

static void leaves_what_was_put_off_to_the_long_way(void **state)
{
    (void)state;
    atomic_store(&sg_captures_deferred, 1);
    assert_false(can_malloc(&program));
    assert_false(can_malloc_on());
    assert_true(can_free(&program));
}

static void needs_to_know_the_stream(void **state)
{
    (void)state;
    fake.remembered = false;
    assert_false(can_malloc_on());
    assert_true(can_free_named());
}

static void fast_path_is_off_where_it_would_differ(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        memset(&sg_self, 0, sizeof sg_self);
        sg_self.last.context = context;
        fake.green = i == 0;
        fake.live = i == 1;
        sg_fast_path_prepare(i == 2 ? &old : &program);
        assert_false(can_malloc(&program));
        assert_false(can_free(&program));
    }
}

/* Nor by callers that name their streams. */
static void fast_path_of_streams_is_off_where_it_would_differ(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        memset(&sg_self, 0, sizeof sg_self);
        sg_self.last.context = i == 2 ? NULL : context;
        fake.live = i == 0;
        sg_annotate_on = i == 1;
        fake.early = i == 3;
        atomic_store(&sg_ipc_loads, i == 4); /* a library was loaded, which may ask for handles of all memory */
        sg_fast_path_prepare_streams();
        sg_fast_path_prepare(&program);
        assert_false(can_malloc(&program));
        assert_false(can_malloc_on());
        assert_false(can_free_named());
        sg_annotate_on = false;
    }
    atomic_store(&sg_ipc_loads, 0);
}

static int version;
static CUresult version_known;

static int get_version(int *ret)
{
    *ret = version;
    return (int)version_known;
}

static void runtimes_before_12_set_their_device_late(void **state)
{
    int (*function)(int *ret) = get_version;
    void *symbol;
    (void)state;
    memcpy(&symbol, &function, sizeof symbol);
    version = 12000;
    assert_true(sg_fast_path_allows(symbol));
    version = 11080;
    assert_false(sg_fast_path_allows(symbol));
    assert_false(sg_fast_path_allows(NULL));
    version = 12000;
    version_known = CUDA_ERROR_UNKNOWN;
    assert_false(sg_fast_path_allows(symbol));
}

static void refusal_is_told_once(void **state)
{
    void *address;
    (void)state;
    fake.answer = CUDA_ERROR_OUT_OF_MEMORY;
    assert_false(sg_fast_malloc(&program, &address, BLOCK));
    assert_int_equal(sg_fast_path_take_error(), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(sg_fast_path_take_error(), CUDA_SUCCESS);
}

#define TEST(name) cmocka_unit_test_setup(name, start)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(is_taken_where_all_holds),
        TEST(fast_path_is_not_prepared_in_a_handler),
        TEST(is_of_one_runtime),
        TEST(is_of_one_context),
        TEST(ends_with_what_it_was_learnt_from),
        TEST(leaves_blocks_of_graphs_to_the_long_way),
        TEST(leaves_what_was_put_off_to_the_long_way),
        TEST(needs_to_know_the_stream),
        TEST(fast_path_is_off_where_it_would_differ),
        TEST(fast_path_of_streams_is_off_where_it_would_differ),
        TEST(runtimes_before_12_set_their_device_late),
        TEST(refusal_is_told_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
