/* The cost of driver calls is measured once for each device. A simulated clock advances by a table of costs per call
   and per page. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cost.h"
#include "rooms.h"
#include "inspect.h"
#include "segalloc/trace_format.h"
#include "size.h"
#include "strict_kept.h"

enum { PAGE = 2 * SG_MIB, LEAST_PAGES = 64 * 16 };

static const struct sg_cost takes[SG_COST_CALLS] = {[SG_COST_create] = {0, 300},
    [SG_COST_map] = {0, 40},
    [SG_COST_set_access] = {5000, 700},
    [SG_COST_unmap] = {60, 9},
    [SG_COST_release] = {0, 21}};

static struct {
    uint64_t now, scale;
    unsigned round; /* rounds begun: the first is slower */
    struct segalloc_trace_record told[SG_COST_CALLS + 1];
    unsigned records;
    int capacity;
    int refusals; /* of releases, in the third round */
} fake;

static uint64_t clock_ns(void)
{
    return fake.now;
}

static void spend(enum sg_cost_call call, uint64_t pages)
{
    fake.now += (takes[call].call_ns + pages * takes[call].handle_ns) * fake.scale + (fake.round < 2 ? 100000 : 0);
}

static CUresult create(CUmemGenericAllocationHandle *ret, size_t bytes, const CUmemAllocationProp *prop,
    unsigned long long flags)
{
    spend(SG_COST_create, 1);
    return strict_driver.create(ret, bytes, prop, flags);
}

static CUresult map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
    unsigned long long flags)
{
    spend(SG_COST_map, 1);
    return strict_driver.map(address, bytes, offset, handle, flags);
}

static CUresult set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *desc, size_t count)
{
    spend(SG_COST_set_access, bytes / PAGE);
    fake.round++;
    return strict_driver.set_access(address, bytes, desc, count);
}

static CUresult unmap(CUdeviceptr address, size_t bytes)
{
    spend(SG_COST_unmap, bytes / PAGE);
    return strict_driver.unmap(address, bytes);
}

static CUresult release(CUmemGenericAllocationHandle handle)
{
    spend(SG_COST_release, 1);
    if (fake.round == 3 && fake.refusals > 0 && fake.refusals--)
        return CUDA_ERROR_UNKNOWN;
    return strict_driver.release(handle);
}

static void tell(void *user, const struct segalloc_trace_record *event)
{
    (void)user;
    if (event->kind != SEGALLOC_RECORD_COST)
        return;
    assert_true(fake.records < SG_COST_CALLS);
    fake.told[fake.records++] = *event;
}

static struct sg_core *start(uint64_t pages, bool clock, const struct sg_driver *driver)
{
    struct sg_conf conf;
    fake.records = fake.round = 0;
    strict_reset(2, pages * PAGE, PAGE);
    sg_conf_init(&conf);
    struct sg_core *core = sg_core_create(&(struct sg_core_params){.conf = &conf,
        .driver = driver,
        .observer = {tell, NULL},
        .callbacks.measure_ns = clock ? clock_ns : NULL});
    assert_non_null(core);
    return core;
}

static struct sg_driver driver;

static CUresult use(struct sg_core *core)
{
    const struct sg_tag tag = {.sync = SG_FREE_SYNC_COMPLETE};
    CUdeviceptr address = 0;
    CUresult result = sg_core_malloc(core, 0, 512, &tag, &address);
    if (result == CUDA_SUCCESS)
        assert_int_equal(sg_core_free(core, address, &tag), CUDA_SUCCESS);
    return result;
}

static void stop(struct sg_core *core)
{
    strict_complete(UINT32_MAX);
    sg_core_destroy(core);
    strict_expect_kept();
}

static int begin(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    fake.scale = 1;
    driver = strict_driver;
    driver.create = create;
    driver.map = map;
    driver.set_access = set_access;
    driver.unmap = unmap;
    driver.release = release;
    return 0;
}

static struct sg_cost cost_of(struct sg_core *core, enum sg_cost_call call)
{
    return (struct sg_cost){(uint32_t)sg_cost_ns(core->device[0]->accounts.cost, call, 1, 0),
        (uint32_t)sg_cost_ns(core->device[0]->accounts.cost, call, 0, 1)};
}

/* As the fastest round says: for each call, and for each page of those that are over several. */
static void calls_are_measured(void **state)
{
    (void)state;
    struct sg_core *core = start(LEAST_PAGES, true, &driver);
    assert_int_equal(use(core), CUDA_SUCCESS);
    assert_int_equal(fake.records, SG_COST_CALLS);
    for (int call = 0; call < SG_COST_CALLS; call++) {
        struct sg_cost cost = cost_of(core, (enum sg_cost_call)call);
        assert_int_equal(cost.call_ns, takes[call].call_ns);
        assert_int_equal(cost.handle_ns, takes[call].handle_ns);
        assert_int_equal(fake.told[call].id, call);
        assert_int_equal(fake.told[call].size, (uint64_t)cost.call_ns << 32 | cost.handle_ns);
    }
    assert_int_equal(sg_cost_ns(core->device[0]->accounts.cost, SG_COST_set_access, 3, 10), 3 * 5000 + 10 * 700);
    unsigned round = fake.round;
    assert_int_equal(use(core), CUDA_SUCCESS); /* once a device */
    assert_int_equal(fake.records, SG_COST_CALLS);
    assert_true(fake.round <= round + 1);
    stop(core);
}

/* A clock that is far off. */
static void more_than_32_bits(void **state)
{
    (void)state;
    fake.scale = 1000000000;
    struct sg_core *core = start(LEAST_PAGES, true, &driver);
    assert_int_equal(use(core), CUDA_SUCCESS);
    assert_int_equal(cost_of(core, SG_COST_set_access).handle_ns, UINT32_MAX);
    assert_int_equal(cost_of(core, SG_COST_create).handle_ns, UINT32_MAX);
    fake.scale = 0; /* and one that stands */
    stop(core);
    core = start(LEAST_PAGES, true, &driver);
    assert_int_equal(use(core), CUDA_SUCCESS);
    assert_int_equal(cost_of(core, SG_COST_set_access).call_ns + cost_of(core, SG_COST_set_access).handle_ns, 0);
    stop(core);
}

static void assumed(struct sg_core *core)
{
    static const struct sg_cost assumed[] = {
#define COST(call, call_ns, handle_ns) {call_ns, handle_ns},
#include "cost.def"
    };
    assert_int_equal(fake.records, 0);
    for (int call = 0; call < SG_COST_CALLS; call++) {
        struct sg_cost cost = cost_of(core, (enum sg_cost_call)call);
        assert_true(cost.call_ns == assumed[call].call_ns && cost.handle_ns == assumed[call].handle_ns);
    }
}

static void not_measured_where_it_would_not_be_small(void **state)
{
    (void)state;
    struct sg_core *core = start(LEAST_PAGES - 1, true, &driver);
    assert_int_equal(use(core), CUDA_SUCCESS);
    assumed(core);
    stop(core);
    core = start(LEAST_PAGES, false, &driver);
    assert_int_equal(use(core), CUDA_SUCCESS);
    assumed(core);
    stop(core);
}

/* Whichever call the driver refuses: what is assumed stays where that is one of the measurement's, and nothing is left. */
static void each_refusal(void **state)
{
    unsigned measured = 0, not_measured = 0;
    (void)state;
    for (uint64_t call = 1; call < 400; call++) {
        struct sg_core *core = start(LEAST_PAGES, true, &driver);
        strict_fail_at(call, false, CUDA_ERROR_UNKNOWN);
        (void)use(core);
        bool failed = strict_failed(NULL);
        strict_fail_at(0, false, CUDA_SUCCESS);
        if (core->device[0] && core->device[0]->granularity && !fake.records) {
            assumed(core);
            not_measured++;
        }
        measured += fake.records == SG_COST_CALLS;
        assert_true(fake.records == 0 || fake.records == SG_COST_CALLS);
        stop(core);
        if (!failed)
            break;
    }
    assert_true(not_measured > 3 * 2 * 16 && measured > 0); /* most calls are of that */
}

/* The release of a page fails twice: a measurement with such a call counts for nothing. */
static void pages_that_stay(void **state)
{
    (void)state;
    struct sg_core *core = start(LEAST_PAGES, true, &driver);
    fake.refusals = 2;
    assert_int_equal(use(core), CUDA_SUCCESS);
    assert_int_equal(fake.refusals, 0);
    assumed(core);
    stop(core);
}

static void a_replay_is_told(void **state)
{
    (void)state;
    struct sg_core *core = start(LEAST_PAGES, false, &driver);
    apply(core, 0, SEGALLOC_RECORD_COST, SG_COST_unmap, (uint64_t)7 << 32 | 9);
    apply(core, 0, SEGALLOC_RECORD_COST, SG_COST_CALLS, 1); /* of a damaged trace */
    apply(core, -1, SEGALLOC_RECORD_COST, SG_COST_unmap, 1);
    assert_true(cost_of(core, SG_COST_unmap).call_ns == 7 && cost_of(core, SG_COST_unmap).handle_ns == 9);
    stop(core);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(calls_are_measured, begin),
        cmocka_unit_test_setup(more_than_32_bits, begin),
        cmocka_unit_test_setup(not_measured_where_it_would_not_be_small, begin),
        cmocka_unit_test_setup(each_refusal, begin),
        cmocka_unit_test_setup(pages_that_stay, begin),
        cmocka_unit_test_setup(a_replay_is_told, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
