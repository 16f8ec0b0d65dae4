/* A free beside other devices waits for those that may use the block, and for no other. */
#include "frees_steps.h"

static void other_devices_use_nothing_that_they_were_not_given(void **state)
{
    (void)state;
    scene.current = scene_add_context(1, 0);
    (void)scene_add_context(3, 1);
    scene_free(scene_allocate(0), SG_FREE_SYNC_STRICT);
    assert_int_equal(scene.waited, first_bit);
    assert_int_equal(scene_pending_bytes(), 0);
}

static void other_devices_may_use_what_they_have_copied(void **state)
{
    (void)state;
    scene.current = scene_add_context(1, 0);
    (void)scene_add_context(3, 1);
    CUdeviceptr address = scene_allocate(0);
    sg_core_used_cross_device(scene.core, address + SCENE_BLOCK / 2);
    scene_free(address, SG_FREE_SYNC_STRICT);
    assert_int_equal(scene.waited, first_bit);
    assert_int_equal(scene_pending_bytes(), SCENE_BLOCK);
}

static void other_devices_may_use_all_that_they_have_access_to(void **state)
{
    (void)state;
    scene.current = scene_add_context(1, 0);
    (void)scene_add_context(3, 1);
    CUdeviceptr address = scene_allocate(0);
    assert_int_equal(sg_core_peer_access(scene.core, 0, 1, true), CUDA_SUCCESS);
    assert_int_equal(sg_core_peer_access(scene.core, 0, 1, false), CUDA_SUCCESS);
    scene_free(address, SG_FREE_SYNC_STRICT);
    assert_int_equal(scene_pending_bytes(), SCENE_BLOCK);
}

/* And streams of whichever device. */
static void wait_tells_the_host_of_other_devices(void **state)
{
    enum { LAST = SG_DEVICES_MAX - 1 };
    const struct sg_stream_id ids[2] = {{.key = 1}, {.key = 2}};
    struct sg_device *last = sg_device_get(scene.core, LAST);
    sg_slot own, other;
    struct sg_vector_clock unused;
    (void)state;
    last->granularity = 2 << 20; /* the driver has no more than two */
    own = sg_core_slot(scene.core, LAST, &ids[0]);
    other = sg_core_slot(scene.core, LAST, &ids[1]);
    scene.current = scene_add_context(1, 0);
    (void)scene_add_stream(1, 0, scene_add_context(2, 0));
    sg_core_clock(scene.core, LAST, own, &unused);
    uint64_t alloc_seq = LOCKED(last, sg_clocks_tick_locked(last));
    scene_free(scene_allocate(0), SG_FREE_SYNC_STRICT);
    sg_core_slot_submitted(scene.core, LAST, own);
    assert_int_equal(users_of(last, other, alloc_seq, SG_USERS_POSSIBLE), sg_slot_bit(own));
    last->granularity = 0;
}

/* Contexts that end. */

/* The other device's events over it go with it, and what waits for them does not wait for ever. */
static void ended_context_is_no_other_devices_either(void **state)
{
    (void)state;
    CUcontext context = scene.current = scene_add_context(1, 0);
    const struct sg_tag tag = {.context = scene_add_context(3, 1), .sync = SG_FREE_SYNC_EVENT};
    CUdeviceptr address;
    struct sg_stats stats;
    assert_int_equal(sg_core_malloc(scene.core, 1, SCENE_BLOCK, &tag, &address), CUDA_SUCCESS);
    struct sg_device *other = sg_device_known(scene.core, 1);
    assert_int_equal(sg_core_free(scene.core, address, &tag), CUDA_SUCCESS);
    (void)sg_device_ask(other, SG_ASK_FENCE);
    assert_int_equal(other->fences.count, 2);
    CUevent event = other->fences.fence[0].context == context ? other->fences.fence[0].event
                                                              : other->fences.fence[1].event;
    sg_core_context_gone(scene.core, 0, context);
    (void)strict_driver.event_destroy(event);
    assert_int_equal(other->fences.count, 1);
    strict_complete(UINT32_MAX);
    (void)sg_device_ask(other, SG_ASK_QUERY);
    assert_true(sg_core_stats(scene.core, 1, &stats));
    assert_int_equal(stats.value[SG_STAT_pending_bytes], 0);
}

/* The usual wait, beside contexts of other devices; and what another thread does meanwhile that makes it too little. */
static CUdeviceptr waited_for;

static void give_access(void)
{
    assert_int_equal(sg_core_peer_access(scene.core, 0, 1, true), CUDA_SUCCESS);
}

static void free_and_allocate_in_another(void)
{
    CUcontext before = scene.current;
    scene_free(waited_for, SG_FREE_SYNC_COMPLETE);
    scene.current = scene_context(2);
    assert_int_equal(scene_allocate(0), waited_for);
    scene.current = before;
}

static void own_block_beside_other_devices(void **state)
{
    (void)state;
    const struct sg_tag tag = {.context = scene.current = scene_add_context(1, 0), .sync = SG_FREE_SYNC_STRICT};
    (void)scene_add_context(3, 1);
    CUdeviceptr address = scene_allocate(0);
    strict_fail_at(1, false, CUDA_ERROR_LAUNCH_FAILED);
    assert_int_equal(sg_core_free(scene.core, address, &tag), CUDA_ERROR_LAUNCH_FAILED);
    strict_fail_at(0, false, CUDA_SUCCESS);
    assert_true(sg_core_owns(scene.core, address));
    scene_free(address, SG_FREE_SYNC_STRICT);
    assert_int_equal(scene_pending_bytes(), 0);
    waited_for = scene_allocate(0);
    scene.meanwhile = free_and_allocate_in_another; /* a double free that no wait was for */
    scene_free(waited_for, SG_FREE_SYNC_STRICT);
    assert_int_equal(scene.waited & second_bit, second_bit);
    address = scene_allocate(0);
    scene.meanwhile = give_access;
    scene_free(address, SG_FREE_SYNC_STRICT);
    assert_int_equal(scene_pending_bytes(), SCENE_BLOCK);
}

/* Streams of peers are not followed: where any stream could have seen a block, so could those. */
static void peers_could_have_seen_it(void **state)
{
    (void)state;
    const struct sg_tag tag = {.sync = SG_FREE_SYNC_STREAM, .user_rule = SG_USERS_POSSIBLE};
    sg_slot slot = scene_add_stream(1, 0, NULL);
    assert_int_equal(sg_core_free(scene.core, scene_allocate(slot), &tag), CUDA_SUCCESS);
    assert_int_equal(scene_pending_bytes(), 0);
    CUdeviceptr address = scene_allocate(slot);
    assert_int_equal(sg_core_peer_access(scene.core, 0, 1, true), CUDA_SUCCESS);
    assert_int_equal(sg_core_free(scene.core, address, &tag), CUDA_SUCCESS);
    assert_int_equal(scene_pending_bytes(), SCENE_BLOCK);
}

/* Access to the memory alone makes no user where streams of other devices are recorded. Nor does a stream that is followed
   for another block. */
static void other_devices_are_recorded(void **state)
{
    (void)state;
    const struct sg_tag here = {.sync = SG_FREE_SYNC_STREAM, .user_rule = SG_USERS_POSSIBLE_HERE};
    const struct sg_stream_id id = {.key = 9, .flags = SG_STREAM_FOREIGN | SG_STREAM_UNTRACKED_ORDER};
    sg_slot own = scene_add_stream(1, 0, NULL), beside = scene_add_stream(2, 0, NULL);
    sg_slot foreign = sg_core_slot(scene.core, 0, &id);
    CUdeviceptr first = scene_allocate(own), second = scene_allocate(own), third = scene_allocate(own);
    uint64_t alloc_seq = LOCKED(scene.device, sg_clocks_tick_locked(scene.device));
    assert_int_equal(sg_core_peer_access(scene.core, 0, 1, true), CUDA_SUCCESS);
    work(foreign);
    assert_int_equal(users_of(scene.device, own, alloc_seq, SG_USERS_POSSIBLE), sg_slot_bit(foreign));
    assert_int_equal(users_of(scene.device, own, alloc_seq, SG_USERS_POSSIBLE_HERE), 0);
    assert_int_equal(sg_core_free(scene.core, first, &here), CUDA_SUCCESS);
    assert_int_equal(scene_pending_bytes(), 0);
    assert_int_equal(sg_core_record_stream(scene.core, second, foreign), CUDA_SUCCESS);
    assert_int_equal(sg_core_free(scene.core, second, &here), CUDA_SUCCESS);
    assert_int_equal(scene_pending_bytes(), SCENE_BLOCK);
    work(beside); /* in no event call: it may hold the address of any block of its device */
    assert_int_equal(sg_core_free(scene.core, third, &here), CUDA_SUCCESS);
    assert_int_equal(scene_pending_bytes(), 2 * SCENE_BLOCK);
}

/* A caller that names the streams of a block names those of its copies too. */
static void copy_of_a_followed_block(void **state)
{
    (void)state;
    scene.current = scene_add_context(1, 0);
    (void)scene_add_context(3, 1);
    sg_slot slot = scene_add_stream(1, 0, scene.current);
    CUdeviceptr address = scene_allocate(slot);
    sg_core_used_cross_device(scene.core, address + 512);
    scene_free(address, SG_FREE_SYNC_STREAM);
    assert_int_equal(scene_pending_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(other_devices_use_nothing_that_they_were_not_given),
        TEST(other_devices_may_use_what_they_have_copied),
        TEST(other_devices_may_use_all_that_they_have_access_to),
        TEST(wait_tells_the_host_of_other_devices),
        TEST(ended_context_is_no_other_devices_either),
        TEST(own_block_beside_other_devices),
        TEST(peers_could_have_seen_it),
        TEST(other_devices_are_recorded),
        TEST(copy_of_a_followed_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
