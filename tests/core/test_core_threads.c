/* Threads on one device and on two: nothing is handed out twice, the books balance, nothing is left. Made to be
   run under ThreadSanitizer too (-Db_sanitize=thread). */
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "config/conf_read.h"
#include "core/core.h"
#include "inspect/core_state.h"
#include "inspect.h"
#include "random.h"
#include "size.h"
#include "strict_kept.h"

enum { THREADS = 4, BLOCKS = 24, STEPS = 20000 };

/* The owner of the block that starts at an address of the driver's: two at once are found out. */
enum { CLAIMS = 1 << 24 };
static _Atomic uint32_t claim[CLAIMS];

struct worker {
    pthread_t thread;
    struct sg_core *core;
    int number, device;
    unsigned wrong, failed;
    uint64_t most;
};

struct held {
    CUdeviceptr address;
    uint64_t bytes, backing;
};

static _Atomic uint32_t *claim_of(CUdeviceptr address)
{
    return &claim[((address - UINT64_C(0x7f0000000000)) >> 9) % CLAIMS];
}

static void one_step(struct worker *worker, struct random *random, struct held *held)
{
    struct sg_tag tag = {.stream = (CUstream)(uintptr_t)(worker->number + 1), .has_stream = true,
        .sync = SG_FREE_SYNC_COMPLETE};
    if (held->address) {
        uint64_t backing = 0;
        bool same = strict_backing(held->address, held->bytes, worker->device, &backing) && backing == held->backing;
        worker->wrong += !same || atomic_exchange(claim_of(held->address), 0) != (uint32_t)worker->number + 1;
        static const enum sg_free_sync syncs[] = {SG_FREE_SYNC_COMPLETE, SG_FREE_SYNC_COMPLETE, SG_FREE_SYNC_EVENT,
            SG_FREE_SYNC_STRICT};
        tag.sync = syncs[random_below(random, 4)];
        worker->wrong += sg_core_free(worker->core, held->address, &tag) != CUDA_SUCCESS;
        held->address = 0;
        return;
    }
    held->bytes = random_below(random, 3) ? random_between(random, 1, SG_MIB)
                                          : random_between(random, SG_MIB, worker->most);
    CUresult result = sg_core_malloc(worker->core, worker->device, held->bytes, &tag, &held->address);
    if (result != CUDA_SUCCESS) {
        held->address = 0;
        worker->failed++;
        worker->wrong += result != CUDA_ERROR_OUT_OF_MEMORY;
        return;
    }
    worker->wrong += !strict_backing(held->address, held->bytes, worker->device, &held->backing);
    worker->wrong += atomic_exchange(claim_of(held->address), (uint32_t)worker->number + 1) != 0;
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct random random = {(uint64_t)worker->number + 7};
    struct held held[BLOCKS];
    memset(held, 0, sizeof held);
    strict_use(worker->device);
    for (int i = 0; i < STEPS; i++) {
        one_step(worker, &random, &held[random_below(&random, BLOCKS)]);
        struct sg_block_info info;
        struct sg_stats stats;
        size_t free_bytes = 0, total_bytes = 0;
        switch (random_below(&random, 64)) {
        case 0:
            sg_core_trim(worker->core, worker->device, 0);
            break;
        case 1:
        case 2:
            strict_complete(random_below(&random, 8));
            break;
        case 3:
            worker->wrong += held[0].address && sg_core_block(worker->core, held[0].address, &info) != CUDA_SUCCESS;
            break;
        case 4:
            if (sg_core_stats(worker->core, worker->device, &stats))
                worker->wrong += stats.value[SG_STAT_requested_bytes] > stats.value[SG_STAT_allocated_bytes] ||
                                 stats.value[SG_STAT_allocated_bytes] + stats.value[SG_STAT_pending_bytes] >
                                     stats.value[SG_STAT_reserved_bytes];
            break;
        case 5:
            sg_core_mem_info(worker->core, worker->device, &free_bytes, &total_bytes);
            break;
        case 6:
            if (held[1].address)
                worker->wrong += !sg_core_owns(worker->core, held[1].address);
            break;
        case 7: /* the same as before, and written beside whoever reads it */
            worker->wrong += sg_core_set_limit(worker->core, worker->device, UINT64_MAX) !=
                             sg_core_limit(worker->core, worker->device);
            break;
        default:
            break;
        }
    }
    for (int i = 0; i < BLOCKS; i++)
        if (held[i].address)
            one_step(worker, &random, &held[i]);
    return NULL;
}

static void run(const char *text, int devices, uint64_t total, uint64_t most, bool fits)
{
    struct worker worker[THREADS];
    struct sg_conf conf;
    strict_reset(devices, total, 2 * SG_MIB);
    sg_conf_init(&conf);
    assert_int_equal(sg_conf_apply(&conf, SG_CONF_ARGUMENT, text, NULL, NULL), 0);
    struct sg_core *core = sg_core_create(&(struct sg_core_params){.conf = &conf, .driver = &strict_driver});
    assert_non_null(core);
    for (int i = 0; i < THREADS; i++) {
        worker[i] = (struct worker){.core = core, .number = i, .device = i % devices, .most = most};
        assert_int_equal(pthread_create(&worker[i].thread, NULL, work, &worker[i]), 0);
    }
    unsigned failed = 0;
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(worker[i].thread, NULL), 0);
        assert_int_equal(worker[i].wrong, 0);
        failed += worker[i].failed;
    }
    if (fits) /* nobody runs out while others have only not been asked whether their work is done */
        assert_int_equal(failed, 0);
    for (int i = 0; i < devices; i++)
        sg_core_poll(core, i); /* records what is wanted */
    strict_complete(UINT32_MAX);
    for (int i = 0; i < devices; i++)
        sg_core_trim(core, i, 0);
    inspect_empty(core, devices);
    sg_core_destroy(core);
    strict_expect_over();
}

static sem_t creating, may_create;
static _Atomic bool slow;

/* As the strict driver's, but slow when told to be: until somebody lets it go on. */
static CUresult slow_create(CUmemGenericAllocationHandle *ret, size_t bytes, const CUmemAllocationProp *prop,
    unsigned long long flags)
{
    if (atomic_load(&slow)) {
        sem_post(&creating);
        sem_wait(&may_create);
    }
    return strict_driver.create(ret, bytes, prop, flags);
}

static void *grow(void *argument)
{
    const struct sg_tag tag = {.sync = SG_FREE_SYNC_COMPLETE};
    CUdeviceptr address;
    bool grown = sg_core_malloc(argument, 0, 4 * SG_MIB, &tag, &address) == CUDA_SUCCESS;
    return grown && sg_core_free(argument, address, &tag) == CUDA_SUCCESS ? argument : NULL;
}

/* While one thread waits in the driver for pages, the others are served from what is there. */
static void test_growth_stops_nobody(void **state)
{
    (void)state;
    struct sg_driver driver = strict_driver;
    struct sg_conf conf;
    const struct sg_tag tag = {.sync = SG_FREE_SYNC_COMPLETE};
    static const uint64_t sizes[] = {100, 4096, 700000, 3 * SG_MIB, 8 * SG_MIB};
    pthread_t thread;
    CUdeviceptr address;
    void *result;
    driver.create = slow_create;
    strict_reset(1, 256 * SG_MIB, 2 * SG_MIB);
    sg_conf_init(&conf);
    struct sg_core *core = sg_core_create(&(struct sg_core_params){.conf = &conf, .driver = &driver});
    assert_non_null(core);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) { /* 2 MiB of small, 8 MiB of regular pages stay */
        assert_int_equal(sg_core_malloc(core, 0, sizes[i], &tag, &address), CUDA_SUCCESS);
        assert_int_equal(sg_core_free(core, address, &tag), CUDA_SUCCESS);
    }
    /* 1 MiB stays free between two blocks. Behind them less is left than the thread asks for, which begins there. */
    CUdeviceptr held, gap, wall;
    assert_int_equal(sg_core_malloc(core, 0, 4 * SG_MIB, &tag, &held), CUDA_SUCCESS);
    assert_int_equal(sg_core_malloc(core, 0, SG_MIB, &tag, &gap), CUDA_SUCCESS);
    assert_int_equal(sg_core_malloc(core, 0, SG_MIB, &tag, &wall), CUDA_SUCCESS);
    assert_int_equal(sg_core_free(core, gap, &tag), CUDA_SUCCESS);
    sem_init(&creating, 0, 0);
    sem_init(&may_create, 0, 0);
    atomic_store(&slow, true);
    assert_int_equal(pthread_create(&thread, NULL, grow, core), 0);
    sem_wait(&creating);
    atomic_store(&slow, false);
    struct sg_stats before, after;
    assert_true(sg_core_stats(core, 0, &before));
    for (int i = 0; i < 2000; i++) {
        assert_int_equal(sg_core_malloc(core, 0, sizes[i % 3], &tag, &address), CUDA_SUCCESS);
        struct sg_block_info info;
        assert_int_equal(sg_core_block(core, address, &info), CUDA_SUCCESS);
        assert_int_equal(sg_core_free(core, address, &tag), CUDA_SUCCESS);
    }
    assert_int_equal(sg_core_free(core, held, &tag), CUDA_SUCCESS);
    assert_int_equal(sg_core_malloc(core, 0, 4 * SG_MIB, &tag, &held), CUDA_SUCCESS);
    assert_true(sg_core_stats(core, 0, &after));
    static const enum sg_stat calls[] = {SG_STAT_calls_create, SG_STAT_calls_map, SG_STAT_calls_unmap,
        SG_STAT_calls_sync, SG_STAT_calls_event, SG_STAT_calls_reserve};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) /* and what is there costs no call of the driver */
        assert_int_equal(after.value[calls[i]], before.value[calls[i]]);
    sem_post(&may_create);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, core);
    assert_int_equal(sg_core_free(core, held, &tag), CUDA_SUCCESS);
    assert_int_equal(sg_core_free(core, wall, &tag), CUDA_SUCCESS);
    inspect(core, 1);
    sg_core_destroy(core);
    assert_int_equal(strict_leaks(), 0);
}

static void test_one_device(void **state)
{
    (void)state;
    run("", 1, 1024 * SG_MIB, 6 * SG_MIB, true);
}

static void test_one_full_device(void **state)
{
    (void)state;
    run("reserve_slack:1.0", 1, 256 * SG_MIB, 20 * SG_MIB, false);
}

static void threads_share_a_card_for_huge_blocks(void **state)
{
    (void)state;
    run("", 1, 256 * SG_MIB, 150 * SG_MIB, false);
}

static void test_two_devices(void **state)
{
    (void)state;
    run("reserve_slack:1.0", 2, 256 * SG_MIB, 16 * SG_MIB, false);
}

static void test_fixed_segments(void **state)
{
    (void)state;
    run("expandable_segments:False", 2, 384 * SG_MIB, 16 * SG_MIB, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_device),
        cmocka_unit_test(test_one_full_device),
        cmocka_unit_test(threads_share_a_card_for_huge_blocks),
        cmocka_unit_test(test_two_devices),
        cmocka_unit_test(test_fixed_segments),
        cmocka_unit_test(test_growth_stops_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
