/* Hooks that name a block: pages are pinned, questions answered, handles refused, each for blocks of ours alone. */
#include "hooks_steps.h"

#include "track/context_wait.h"
#include "track/held_outside.h"
#include "track/torch_mode.h"

/* Calls that remember the page behind an address keep it where it is. */
static void what_remembers_pages_pins_them(void **state)
{
    static const struct {
        bool over, inside, theirs;
        int pinned;
    } list[] = {{false, false, false, 1}, {true, false, false, 0}, {false, true, false, 0}, {false, false, true, 0}};
    CUmemGenericAllocationHandle handle = 0;
    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        CUdeviceptr address = list[i].theirs ? THEIRS : OURS;
        fake.over = list[i].over;
        fake.inside = list[i].inside;
        for (int call = 0; call < 5; call++) {
            fake.calls = 0;
            FORGET(sg_core_pin);
            CUresult result = call == 0   ? cuMemRetainAllocationHandle(&handle, pointer(address))
                              : call == 1 ? cuMemGetHandleForAddressRange(NULL, address, BYTES, 0, 0)
                              : call == 2 ? cuMulticastBindAddr(0, OFFSET, address, BYTES, 0)
                              : call == 3 ? cuMulticastBindAddr_v2(0, 0, OFFSET, address, BYTES, 0)
                                          : cuLogicalEndpointBindAddr(0, 0, OFFSET, pointer(address), BYTES, 0);
            assert_int_equal(result, CUDA_SUCCESS);
            assert_int_equal(CALLS(sg_core_pin), list[i].pinned);
            assert_true(fake.calls == 1 && fake.asked == address);
        }
    }
}

/* A call that nothing here knows may remember any page: all that there are stay, as long as there is a driver. */
static void what_may_remember_any_page_pins_all(void **state)
{
    (void)state;
    fake.over = true;
    sg_pin_all("cuMulticastBindTomorrow");
    assert_int_equal(CALLS(sg_core_pin_all), 0);
    fake.over = false;
    fake.early = true;
    sg_pin_all("cuMulticastBindTomorrow");
    assert_int_equal(CALLS(sg_core_pin_all), 0);
    fake.early = false;
    sg_pin_all("cuMulticastBindTomorrow"); /* there are none: nothing to say */
    assert_true(CALLS(sg_core_pin_all) == 1 && CALLS(sg_log_line) == 0);
    ANSWER(sg_core_pin_all, true);
    sg_pin_all("cuMulticastBindTomorrow");
    sg_pin_all("cuMulticastBindTomorrow");
    assert_true(CALLS(sg_core_pin_all) == 3 && CALLS(sg_log_line) == 1);
}

/* To whoever maps memory himself ours is not mapped. */
static void mappings_of_ours_are_nobody_s(void **state)
{
    (void)state;
    assert_int_equal(cuMemUnmap(OURS, BYTES), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemSetAccess(OURS, BYTES, NULL, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(fake.calls, 0);
    fake.inside = true; /* but to us */
    assert_int_equal(cuMemUnmap(OURS, BYTES), CUDA_SUCCESS);
    assert_int_equal(cuMemSetAccess(OURS, BYTES, NULL, 0), CUDA_SUCCESS);
    assert_int_equal(fake.calls, 2);
}

/* PyTorch's cache unmaps memory of its pools, which work of other streams may use, so the device is waited for. Not where that
   cache has all tensors, for other modules, or for memory that is not in the book. */
static void what_the_cache_unmaps_is_waited_for(void **state)
{
    static const struct {
        bool switchable, inside, torch;
        int device, waits;
    } list[] = {{true, false, true, 0, 1}, {false, false, true, 0, 0}, {true, true, true, 0, 0},
        {true, false, false, 0, 0}, {true, false, true, -1, 0}};
    (void)state;
    ANSWER(sg_contexts_primary_of, CONTEXT);
    ANSWER(sg_context_wait, CUDA_ERROR_NOT_READY); /* too long: the driver is called all the same */
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        ANSWER(sg_torch_switchable, list[i].switchable);
        fake.torch = list[i].torch;
        ANSWER(sg_outside_mapped_on, list[i].device);
        fake.inside = list[i].inside;
        fake.calls = 0;
        FORGET(sg_context_wait);
        assert_int_equal(cuMemUnmap(THEIRS, BYTES), CUDA_SUCCESS);
        assert_int_equal(fake.calls, 1);
        assert_int_equal(CALLS(sg_context_wait), list[i].waits);
    }
}

/* A network card's memory has to be synchronous, which the driver refuses for memory that is mapped piece by piece. The
   context is made so for all of its memory. */
static void synchronous_copies_are_asked_of_the_context(void **state)
{
    static const unsigned on = 1, off = 0;
    static const struct {
        struct flags flags;
        CUresult block, answer;
        const unsigned *value;
        CUresult result;
        bool pinned, set;
    } list[] = {
        {{0}, 0, CUDA_ERROR_NOT_SUPPORTED, &on, CUDA_SUCCESS, true, true},
        {{0}, 0, CUDA_ERROR_NOT_SUPPORTED, &off, CUDA_SUCCESS, true, false},
        {{0}, 0, CUDA_SUCCESS, &on, CUDA_SUCCESS, true, false}, /* a fixed segment */
        {{0}, 0, CUDA_ERROR_INVALID_CONTEXT, &on, CUDA_ERROR_INVALID_CONTEXT, true, false},
        {{0}, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, &on, CUDA_ERROR_NOT_SUPPORTED, false, false},
        {{0}, 0, CUDA_ERROR_INVALID_VALUE, NULL, CUDA_ERROR_INVALID_VALUE, false, false},
        {{.lacks_get = true}, 0, CUDA_ERROR_NOT_SUPPORTED, &on, CUDA_ERROR_NOT_SUPPORTED, true, false},
        {{.lacks_set = true}, 0, CUDA_ERROR_NOT_SUPPORTED, &on, CUDA_ERROR_NOT_SUPPORTED, true, false},
        {{.push = CUDA_ERROR_INVALID_CONTEXT}, 0, CUDA_ERROR_NOT_SUPPORTED, &on, CUDA_ERROR_INVALID_CONTEXT, true,
            false},
        {{.get = CUDA_ERROR_UNKNOWN}, 0, CUDA_ERROR_NOT_SUPPORTED, &on, CUDA_ERROR_UNKNOWN, true, false},
        {{.set = CUDA_ERROR_UNKNOWN}, 0, CUDA_ERROR_NOT_SUPPORTED, &on, CUDA_ERROR_UNKNOWN, true, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        fake.block = list[i].block;
        fake.answer = list[i].answer;
        FORGET(sg_core_pin);
        flags = list[i].flags;
        flags.flags = 8;
        CUresult result = cuPointerSetAttribute(list[i].value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, OURS);
        if (result != list[i].result || CALLS(sg_core_pin) != list[i].pinned)
            fail_msg("%d: answers %d, pins %d", (int)i, (int)result, CALLS(sg_core_pin));
        assert_int_equal(flags.flags, 8 | (list[i].set ? CU_CTX_SYNC_MEMOPS : 0));
        assert_int_equal(flags.pushes, 0);
    }
    fake.answer = CUDA_ERROR_NOT_SUPPORTED;
    FORGET(sg_core_pin);
    assert_int_equal(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, THEIRS), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_BUFFER_ID, OURS), CUDA_ERROR_NOT_SUPPORTED);
    fake.inside = true;
    assert_int_equal(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, OURS), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(CALLS(sg_core_pin), 0);
}

/* A freed block is no memory; from inside, and when it is over, the driver is asked what it knows. */
static void questions_are_answered_for_live_blocks(void **state)
{
    CUdeviceptr base = 0;
    size_t bytes = 0;
    unsigned long long id = 0;
    CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_BUFFER_ID};
    void *data[] = {NULL, &id};
    (void)state;
    assert_int_equal(cuMemGetAddressRange_v2(&base, &bytes, OURS + 5), CUDA_SUCCESS);
    assert_true(base == OURS && bytes == BYTES && fake.calls == 0);
    assert_int_equal(cuPointerGetAttributes(2, wanted, data, OURS), CUDA_SUCCESS); /* one is not wanted */
    assert_int_equal(id, 7);
    fake.answer = CUDA_ERROR_INVALID_VALUE;
    assert_int_equal(cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_RANGE_SIZE, OURS), CUDA_ERROR_INVALID_VALUE);
    id = 0;
    assert_int_equal(cuPointerGetAttributes(2, wanted, data, OURS), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(id, 0);
    fake.block = CUDA_ERROR_INVALID_VALUE; /* it was freed */
    fake.answer = CUDA_SUCCESS;
    assert_int_equal(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, OURS), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemGetAddressRange_v2(&base, &bytes, OURS), CUDA_ERROR_NOT_FOUND);
    assert_int_equal(cuPointerGetAttributes(2, wanted, data, OURS), CUDA_SUCCESS);
    assert_true(fake.asked != OURS); /* of memory that it does not know */
    for (int i = 0; i < 3; i++) {
        CUdeviceptr address = i == 2 ? THEIRS : OURS;
        fake.over = i == 0;
        fake.inside = i == 1;
        fake.calls = 0;
        assert_int_equal(cuMemGetAddressRange_v2(&base, &bytes, address), CUDA_SUCCESS);
        assert_int_equal(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address), CUDA_SUCCESS);
        assert_int_equal(cuPointerGetAttributes(2, wanted, data, address), CUDA_SUCCESS);
        assert_true(fake.calls == 3 && fake.asked == address);
    }
}

/* NCCL registers a buffer mapping by mapping. The answer of pages is the driver's, and they stay where they are. */
static void nccl_hears_of_mappings(void **state)
{
    static const struct {
        CUresult block;
        bool plain;
        int asked, pinned;
        size_t bytes;
    } list[] = {
        {CUDA_SUCCESS, false, 1, 1, 2 * BYTES}, {CUDA_SUCCESS, true, 0, 1, BYTES},
        {CUDA_ERROR_INVALID_VALUE, false, 1, 0, 2 * BYTES}, /* it was freed */
    };
    (void)state;
    fake.passes = true;
    allocation.base = OURS;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        CUdeviceptr base = 0;
        size_t bytes = 0;
        fake.block = list[i].block;
        fake.plain = list[i].plain;
        fake.calls = 0;
        FORGET(sg_core_pin);
        assert_int_equal(cuMemGetAddressRange_v2(&base, &bytes, OURS + 5), CUDA_SUCCESS);
        assert_int_equal(base, OURS);
        assert_int_equal(bytes, list[i].bytes);
        assert_int_equal(fake.calls, list[i].asked);
        assert_int_equal(CALLS(sg_core_pin), list[i].pinned);
    }
    fake.block = CUDA_SUCCESS;
    fake.plain = true;
    assert_int_equal(cuMemGetAddressRange_v2(NULL, NULL, OURS), CUDA_SUCCESS);
}

/* Only a block that is an allocation of the driver's by itself may be given away by a legacy handle. */
static void handles_are_of_whole_allocations(void **state)
{
    static const struct {
        struct allocation allocation;
        CUresult block, result;
        int calls, refused;
    } list[] = {
        {{.legacy = 1, .base = OURS}, 0, CUDA_SUCCESS, 2, 0}, /* the range, and the handle */
        {{.legacy = 1, .base = OURS - 512}, 0, CUDA_ERROR_INVALID_VALUE, 1, 1},
        {{.legacy = 1, .base = OURS, .range = CUDA_ERROR_NOT_FOUND}, 0, CUDA_ERROR_INVALID_VALUE, 0, 1},
        {{.legacy = 0, .base = OURS}, 0, CUDA_ERROR_INVALID_VALUE, 0, 1},
        {{.legacy = 1, .base = OURS, .attribute = CUDA_ERROR_NOT_SUPPORTED}, 0, CUDA_ERROR_INVALID_VALUE, 0, 1},
        {{.legacy = 1, .base = OURS}, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE, 0, 0}, /* it was freed */
    };
    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        CUipcMemHandle handle;
        allocation = list[i].allocation;
        fake.block = list[i].block;
        fake.calls = 0;
        FORGET(sg_ipc_refused);
        assert_int_equal(cuIpcGetMemHandle(&handle, OURS), list[i].result);
        assert_int_equal(fake.calls, list[i].calls);
        assert_int_equal(CALLS(sg_ipc_refused), list[i].refused);
        assert_true(!list[i].refused || (int)ARGUMENT(sg_ipc_refused, 0) == list[i].allocation.legacy);
        assert_true(list[i].result != CUDA_SUCCESS || strcmp(fake.called, "cuIpcGetMemHandle") == 0);
    }
    fake.answer = CUDA_ERROR_INVALID_CONTEXT;
    assert_int_equal(cuIpcGetMemHandle(NULL, THEIRS), CUDA_ERROR_INVALID_CONTEXT);
}

/* Modules that need the driver's own memory get that. The return address of the call tells them apart. */
static void modules_get_the_drivers_own(void **state)
{
    (void)state;
    CUdeviceptr address = 0;
    size_t pitch = 0;
    fake.passes = true;
    assert_int_equal(cuMemAlloc_v2(&address, BYTES), CUDA_SUCCESS);
    assert_true(address == THEIRS && fake.passed == BYTES && !fake.allocated);
    fake.device = 7;
    fake.pitch = 512;
    assert_int_equal(cuMemAllocPitch_v2(&address, &pitch, 100, 3, 4), CUDA_SUCCESS);
    assert_true(address == THEIRS && pitch == 512 && fake.passed == BYTES + 3 * 512);
    fake.torch = true; /* who called the runtime is known already */
    assert_int_equal(cuMemAlloc_v2(&address, BYTES), CUDA_SUCCESS);
    assert_true(address == OURS && fake.allocated == BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_remembers_pages_pins_them),
        TEST(what_may_remember_any_page_pins_all),
        TEST(mappings_of_ours_are_nobody_s),
        TEST(what_the_cache_unmaps_is_waited_for),
        TEST(synchronous_copies_are_asked_of_the_context),
        TEST(questions_are_answered_for_live_blocks),
        TEST(nccl_hears_of_mappings),
        TEST(handles_are_of_whole_allocations),
        TEST(modules_get_the_drivers_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
