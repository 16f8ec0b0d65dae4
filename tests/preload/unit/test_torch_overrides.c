/* Functions in place of those of PyTorch's allocator: each tensor and each setting goes where it belongs. */
#include "torch_allocator_fakes.h"

static CUresult counting;             /* the driver's answer to the question how many devices there are */
static char cached_block, sent_block; /* addresses */

static CUresult count_devices(int *ret)
{
    *ret = DEVICES;
    return counting;
}

static void *uncached; /* the block that was freed without the cache */

static void own_uncached_delete(void *block)
{
    uncached = block;
}

/* PyTorch's functions of one purpose each, and how they were called last. */
static struct {
    double fraction;
    uintptr_t device;
    void *deleted, *shared;
} call;

static void own_fraction(void *self, double fraction, uintptr_t device)
{
    assert_ptr_equal(self, object);
    call.fraction = fraction;
    call.device = device;
}

static double own_fraction_set(void *self, uintptr_t device)
{
    assert_ptr_equal(self, object);
    return device == 1 ? 0.25 : 1;
}

static void own_raw_delete(void *self, void *block)
{
    assert_ptr_equal(self, object);
    if (reads_switch())
        call.deleted = block;
    else
        own_uncached_delete(block);
}

static struct handle own_share(void *self, void *pointer)
{
    assert_ptr_equal(self, object);
    call.shared = pointer;
    return (struct handle){{1, 2, 3, 4, 5}};
}

static void *own_alloc(void *self, size_t bytes)
{
    assert_ptr_equal(self, object);
    return on && bytes == 1 << 20 ? &cached_block : NULL;
}

static void (*deleter_of_switch(const void *self))(void *)
{
    assert_ptr_equal(self, object);
    return reads_switch() ? own_delete : own_uncached_delete;
}

static void own_record(void *self, void *const *data, uintptr_t first, uintptr_t second)
{
    assert_ptr_equal(self, object);
    call.shared = *data;
    call.device = first + second;
}

/* Takes the allocator with these functions in it. */
static void take_working(void)
{
    fraction_fn *fraction = own_fraction;
    double (*fraction_set)(void *, uintptr_t) = own_fraction_set;
    delete_fn *delete = own_raw_delete;
    share_fn *share = own_share;
    record_fn *record = own_record;
    void *(*alloc)(void *, size_t) = own_alloc;
    deleter_fn *deleter = deleter_of_switch;
    make_allocator();
    settled = true;
    memcpy(&own[BEFORE + FRACTION_AT], &fraction, sizeof fraction);
    memcpy(&own[BEFORE + FRACTION_SET_AT], &fraction_set, sizeof fraction_set);
    memcpy(&own[BEFORE + DELETE_AT], &delete, sizeof delete);
    memcpy(&own[BEFORE + SHARE_AT], &share, sizeof share);
    memcpy(&own[BEFORE + RECORD_AT], &record, sizeof record);
    memcpy(&own[BEFORE + ALLOC_AT], &alloc, sizeof alloc);
    memcpy(&own[BEFORE + DELETER_AT], &deleter, sizeof deleter);
    assert_true(sg_torch_overrides_take());
}

/* A limit of PyTorch's holds for our memory only where that serves its tensors. */
static int set_fraction(void)
{
    fraction_fn *function;
    take_working();
    memcpy(&function, &object[0][FRACTION_AT], sizeof function);
    function(object, 0.5, 2);
    bool theirs_alone = call.fraction == 0.5 && call.device == 2 && limit[2] == 0;
    direct = settled = true;
    function(object, 0.75, 1);
    return theirs_alone && call.fraction == 0.75 && call.device == 1 && limit[1] == 0.75 && limit[2] == 0;
}

/* Limits that PyTorch had before it was taken, of each device that has one. */
static int limits_before(void)
{
    struct sg_driver table = {.device_count = count_devices};
    sg_torch_allocator_limit();
    bool untaken = limit[1] == 0;
    take_working();
    sg_torch_allocator_limit();
    bool no_driver = limit[1] == 0;
    driver = &table;
    counting = CUDA_ERROR_NOT_INITIALIZED;
    sg_torch_allocator_limit();
    bool unknown = limit[1] == 0;
    counting = CUDA_SUCCESS;
    sg_torch_allocator_limit();
    return untaken && no_driver && unknown && limit[0] == 0 && limit[1] == 0.25 && limit[2] == 0;
}

/* PyTorch 2.5 cannot say which limit it has. */
static int limits_unknown(void)
{
    struct sg_driver table = {.device_count = count_devices};
    driver = &table;
    made.lacking = FRACTION_SET_AT;
    take_working();
    sg_torch_allocator_limit();
    return limit[0] == 0 && limit[1] == 0 && limit[2] == 0;
}

static void limits_are_taken_over(void **state)
{
    (void)state;
    expect_in_child(set_fraction, 1);
    expect_in_child(limits_before, 1);
    expect_in_child(limits_unknown, 1);
}

/* A block is freed as it was allocated, whatever the cache is set to now. */
static int free_as_allocated(void)
{
    delete_fn *function;
    direct = true;
    take_working();
    memcpy(&function, &object[0][DELETE_AT], sizeof function);
    function(object, &direct_block);
    bool before = call.deleted == &direct_block && !uncached;
    bool off = sg_torch_allocator_cache(false) && !on, back = sg_torch_allocator_cache(true) && on;
    switched = true;
    function(object, &cached_block);
    bool of_cache = call.deleted == &cached_block && !uncached;
    function(object, &direct_block);
    return before && off && back && of_cache && call.deleted == &cached_block && uncached == &direct_block;
}

/* PyTorch's cache serves one block although it is off. */
static int get_of_cache(void)
{
    take_working();
    on = false;
    return sg_torch_allocator_get(1 << 20) == &cached_block && !on;
}

static int no_switch(void)
{
    bool untaken = !sg_torch_allocator_cache(false);
    make_allocator();
    exported[BEFORE + ENABLE_AT] = &functions[DELETER_AT];
    return untaken && sg_torch_overrides_take() && !sg_torch_allocator_cache(false) && on;
}

static void blocks_keep_to_their_allocator(void **state)
{
    (void)state;
    expect_in_child(free_as_allocated, 1);
    expect_in_child(get_of_cache, 1);
    expect_in_child(no_switch, 1);
}

/* Another process gets the copy, where there is one, and PyTorch's own handle. */
static int share_copy(void)
{
    share_fn *function;
    take_working();
    memcpy(&function, &object[0][SHARE_AT], sizeof function);
    bool whole = function(object, &cached_block).words[4] == 5 && call.shared == &cached_block;
    (void)function(object, &direct_block);
    bool uncopied = call.shared == &direct_block;
    copy = &sent_block;
    (void)function(object, &direct_block);
    return whole && uncopied && call.shared == &sent_block;
}

static void a_copy_is_shared(void **state)
{
    (void)state;
    expect_in_child(share_copy, 1);
}

/* PyTorch gets what it records too. It ignores tensors that its cache has not: those are ours. */
static int record_streams(void)
{
    record_fn *function;
    void *const direct_data[2] = {&direct_block, &sent_block}, *const cached_data[2] = {&cached_block, NULL};
    has_streams = true;
    take_working();
    memcpy(&function, &object[0][RECORD_AT], sizeof function);
    function(object, cached_data, 40, 2);
    bool theirs_alone = call.shared == &cached_block && call.device == 42 && !recorded.pointer;
    function(object, direct_data, 40, 3);
    return records && theirs_alone && call.shared == &direct_block && recorded.pointer == &direct_block &&
           recorded.stream == (void *)43;
}

/* Without its functions for streams, or its own for records, nobody says that it records. */
static int record_unknown(void)
{
    take_working();
    return !records && object[0][RECORD_AT] == own[BEFORE + RECORD_AT];
}

static int record_lacking(void)
{
    has_streams = true;
    made.lacking = RECORD_AT;
    take_working();
    return !records && object[0][RECORD_AT] == own[BEFORE + RECORD_AT];
}

static void recorded_streams_reach_us(void **state)
{
    (void)state;
    expect_in_child(record_streams, 1);
    expect_in_child(record_unknown, 1);
    expect_in_child(record_lacking, 1);
}

/* Each question of PyTorch's whether to cache is one of the thread's that allocates. */
static int route(void)
{
    has_streams = direct = true;
    take_working();
    bool routes = sg_torch_allocator_routes() && on;
    on = false;
    deleter_fn *deleter;
    memcpy(&deleter, &object[0][DELETER_AT], sizeof deleter);
    bool direct_deleter = deleter(object) == own_uncached_delete;
    pools_seen = true;
    return routes && direct_deleter && deleter(object) == own_delete && !reads_switch();
}

static int route_without_streams(void)
{
    direct = true;
    take_working();
    return !sg_torch_allocator_routes();
}

/* A PyTorch that reads a variable instead. */
static void (*deleter_of_variable(const void *self))(void *)
{
    (void)self;
    return own_delete;
}

static int route_unasked(void)
{
    deleter_fn *deleter = deleter_of_variable;
    has_streams = direct = true;
    take_working();
    memcpy(&own[BEFORE + DELETER_AT], &deleter, sizeof deleter);
    return !sg_torch_allocator_routes();
}

static void tensors_go_to_the_cache_one_by_one(void **state)
{
    (void)state;
    expect_in_child(route, 1);
    expect_in_child(route_without_streams, 1);
    expect_in_child(route_unasked, 1);
}

static int forwarded;

static void own_pool(void *self, uintptr_t device, uintptr_t first, uintptr_t second, void *filter)
{
    assert_ptr_equal(self, object);
    assert_int_equal(told.begun, 12);
    assert_int_equal(told.begins, 0);
    forwarded += device == 2 && first == 5 && second == 7 && filter;
}

static void own_any(void *self, uintptr_t first, uintptr_t second, uintptr_t third, uintptr_t fourth, uintptr_t fifth,
    uintptr_t sixth)
{
    assert_ptr_equal(self, object);
    (void)first, (void)second, (void)third, (void)fourth, (void)fifth, (void)sixth;
    forwarded++;
}

static void *own_snapshot(void *ret, void *self, uintptr_t first, uintptr_t second, uintptr_t traces)
{
    assert_ptr_equal(self, object);
    forwarded += ret && traces == 1 && (first == 0 || second == 3);
    return ret;
}

static bool clone(void *to, const void *from, int what)
{
    assert_int_equal(what, SG_CXX_CLONE);
    memcpy(to, from, sizeof(void *) * 2);
    return false;
}

/* Pools, history, observers, totals and snapshots reach both PyTorch's allocator and what is to know of them. */
static int tell(void)
{
    struct sg_cxx_function function = {.storage = {NULL, (void *)77}, .manager = clone};
    pool_fn *begin = own_pool;
    any_fn *any = own_any, *end, *history, *observe, *totals, *empty, *spare;
    snapshot_fn *snapshot = own_snapshot;
    make_allocator();
    memcpy(&own[BEFORE + BEGIN_AT], &begin, sizeof begin);
    memcpy(&own[BEFORE + SNAPSHOT_AT], &snapshot, sizeof snapshot);
    static const int others[] = {END_AT, HISTORY_AT, OBSERVER_AT, TOTALS_AT, EMPTY_AT, SHARE_AT - 3};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        memcpy(&own[BEFORE + others[i]], &any, sizeof any);
    assert_true(!sg_torch_allocator_empty() && sg_torch_overrides_take());
    memcpy(&begin, &object[0][BEGIN_AT], sizeof begin);
    memcpy(&end, &object[0][END_AT], sizeof end);
    memcpy(&history, &object[0][HISTORY_AT], sizeof history);
    memcpy(&observe, &object[0][OBSERVER_AT], sizeof observe);
    memcpy(&totals, &object[0][TOTALS_AT], sizeof totals);
    memcpy(&snapshot, &object[0][SNAPSHOT_AT], sizeof snapshot);
    begin(object, 2, 5, 7, &function);
    end(object, 2, 5, 7, 0, 0, 0);
    history(object, 1, 2, 3, 4, 5, 6);
    observe(object, (uintptr_t)&function, 0, 0, 0, 0, 0);
    totals(object, 2, 0, 0, 0, 0, 0);
    memcpy(&spare, &object[0][SHARE_AT - 3], sizeof spare);
    spare(object, 2, 5, 7, 0, 0, 0);
    bool unspared = spare_pools == 0;
    spare(object, 2, 5, 7, 1, 0, 0);
    forwarded -= unspared && spare_pools == 1 ? 2 : 0;
    memcpy(&empty, &own[BEFORE + EMPTY_AT], sizeof empty);
    bool forwards = forwarded == 5 && sg_torch_allocator_empty() && forwarded == 6;
    (void)snapshot(&function, object, 0, 0, 1);
    bool not_direct = told.snapshots == 0;
    direct = true;
    (void)snapshot(&function, object, 5, 3, 1); /* of one pool */
    bool of_pool = told.snapshots == 0;
    (void)snapshot(&function, object, 0, 0, 1);
    return forwards && not_direct && of_pool && told.snapshots == 1 && forwarded == 9 && told.begins == 1 &&
           told.ends == 1 && told.history && told.observers == 1 && told.totals == 2;
}

static void what_pytorch_is_told_reaches_us(void **state)
{
    (void)state;
    expect_in_child(tell, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_are_taken_over),
        cmocka_unit_test(tensors_go_to_the_cache_one_by_one),
        cmocka_unit_test(what_pytorch_is_told_reaches_us),
        cmocka_unit_test(blocks_keep_to_their_allocator),
        cmocka_unit_test(a_copy_is_shared),
        cmocka_unit_test(recorded_streams_reach_us),
    };
    return cmocka_run_group_tests(tests, install, uninstall);
}
