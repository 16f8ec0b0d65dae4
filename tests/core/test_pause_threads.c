/* Threads that allocate and free under tags and without, while others pause, resume and trim. Each has blocks of its own, so
   nothing is looked at before all have ended. The workers go on until something was paused, however late the others begin. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "check.h"
#include "inspect.h"
#include "inspect/core_state.h"
#include "random.h"
#include "strict_kept.h"

#define MIB(n) ((uint64_t)(n) << 20)
enum { TAGS = 4, WORKERS = 3, ROUNDS = 1500, HELD = 12 };

static atomic_bool any_paused;

struct worker {
    pthread_t thread;
    struct sg_core *core;
    uint32_t *tag;
    uint64_t seed, served, refused, orders;
};

static void *work(void *user)
{
    struct worker *worker = user;
    struct random random = {worker->seed};
    CUdeviceptr held[HELD] = {0};
    strict_use(0);
    for (int i = 0; i < ROUNDS || !atomic_load(&any_paused); i++) {
        CUdeviceptr *one = &held[random_below(&random, HELD)];
        struct sg_tag tag = {.sync = random_below(&random, 2) ? SG_FREE_SYNC_COMPLETE : SG_FREE_SYNC_EVENT,
            .memory_tag = worker->tag[random_below(&random, TAGS)]};
        if (*one) {
            assert_int_equal(sg_core_free(worker->core, *one, &tag), CUDA_SUCCESS);
            *one = 0;
        } else {
            CUresult result = sg_core_malloc(worker->core, 0, 1 + random_below(&random, MIB(3)), &tag, one);
            worker->served += result == CUDA_SUCCESS;
            worker->refused += result == CUDA_ERROR_NOT_PERMITTED;
        }
    }
    for (int i = 0; i < HELD; i++)
        if (held[i])
            assert_int_equal(sg_core_free(worker->core, held[i], &(struct sg_tag){.sync = SG_FREE_SYNC_COMPLETE}),
                CUDA_SUCCESS);
    return NULL;
}

static void *give_orders(void *user)
{
    struct worker *worker = user;
    struct random random = {worker->seed};
    struct sg_pause_result result;
    strict_use(0);
    for (int i = 0; i < ROUNDS / 4 || !atomic_load(&any_paused); i++) {
        uint32_t tag = worker->tag[1 + random_below(&random, TAGS - 1)];
        uint64_t what = random_below(&random, 5);
        strict_complete(UINT64_MAX / 2);
        if (what == 4)
            sg_core_trim(worker->core, 0, 0);
        else if (what < 2)
            (void)sg_core_pause(worker->core, 0, tag, false, NULL, &result);
        else
            (void)sg_core_resume(worker->core, 0, tag, NULL, &result);
        if (what < 2 && result.changed && result.bytes) {
            worker->orders++;
            atomic_store(&any_paused, true);
        }
    }
    return NULL;
}

static void threads_go_on_beside_pauses(void **state)
{
    struct worker worker[WORKERS + 2];
    uint32_t tag[TAGS] = {0};
    uint64_t served = 0, orders = 0;
    struct sg_pause_result result;
    (void)state;
    struct sg_core *core = inspect_start("", MIB(64));
    atomic_store(&any_paused, false);
    for (uint32_t i = 1; i < TAGS; i++)
        tag[i] = sg_core_tag(core, (const char *[]){"", "a", "b", "c"}[i], i == 1 ? SG_TAG_DISCARDED : SG_TAG_SAVED);
    for (int i = 0; i < WORKERS + 2; i++) {
        worker[i] = (struct worker){.core = core, .tag = tag, .seed = (uint64_t)i + 1};
        assert_int_equal(pthread_create(&worker[i].thread, NULL, i < WORKERS ? work : give_orders, &worker[i]), 0);
    }
    for (int i = 0; i < WORKERS + 2; i++) {
        assert_int_equal(pthread_join(worker[i].thread, NULL), 0);
        served += worker[i].served;
        orders += worker[i].orders;
    }
    strict_complete(UINT64_MAX / 2);
    for (uint32_t i = 1; i < TAGS; i++)
        assert_int_equal(sg_core_resume(core, 0, tag[i], NULL, &result), CUDA_SUCCESS);
    inspect(core, 1);
    const char *broken = sg_core_broken(core, SG_CHECK_BUCKETS);
    if (broken)
        fail_msg("%s", broken);
    sg_core_trim(core, 0, 0);
    inspect_empty(core, 1);
    assert_true(served > 0 && orders > 0);
    sg_core_destroy(core);
    strict_expect_kept();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads_go_on_beside_pauses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
