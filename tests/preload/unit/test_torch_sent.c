/* A tensor that was sent to another process stays where it is, and so does its copy. */
#include "torch_blocks_fakes.h"

static void expect_sent(void *block, uintptr_t as)
{
    struct data_ptr sent = sent_data(block, 0x0102);
    assert_int_equal(sent.words[0], as);
    assert_int_equal(sent.words[1], 0x0102);
    assert_int_equal(fake.found, fake.closed);
}

static void tensor_moves_to_a_block_of_the_cache(void **state)
{
    (void)state;
    assert_ptr_equal(sg_torch_sent_copy(BLOCK_AT(1)), COPY_AT(0));
    assert_int_equal(fake.device, DEVICE);
    assert_int_equal(fake.pushed, 1);
    assert_int_equal(fake.popped, 1);
    assert_int_equal(fake.waits, 2); /* until the block is written, and the copy */
    assert_int_equal(fake.waits_before, 1);
    assert_int_equal(fake.probed, BYTES + MORE);
    assert_int_equal(fake.frees, 1);
    assert_int_equal(fake.resets, 0);
    assert_int_equal(fake.got, BYTES);
    assert_int_equal(fake.copied, BYTES);
    assert_int_equal(fake.noted_sent, BYTES);
    assert_ptr_equal(fake.to, COPY_AT(0));
    assert_ptr_equal(fake.from, BLOCK_AT(1));
    expect_sent(BLOCK_AT(1), (uintptr_t)COPY_AT(0));
    expect_sent(BLOCK_AT(1), (uintptr_t)BLOCK_AT(1)); /* once */
    assert_int_equal(atomic_load(&sg_torch_sent_copies), 1);
    sg_torch_sent_freed(BLOCK_AT(2));
    assert_int_equal(fake.puts, 0);
    sg_torch_sent_freed(BLOCK_AT(1));
    assert_int_equal(fake.puts, 1);
    assert_ptr_equal(fake.put, COPY_AT(0));
    sg_torch_sent_freed(BLOCK_AT(1));
    assert_int_equal(fake.puts, 1);
    assert_int_equal(atomic_load(&sg_torch_sent_copies), 0);
}

/* What is sent next may be another tensor, which stays where it is. */
static void only_that_tensor_moves(void **state)
{
    (void)state;
    assert_non_null(sg_torch_sent_copy(BLOCK_AT(1)));
    expect_sent(BLOCK_AT(2), (uintptr_t)BLOCK_AT(2));
    expect_sent(BLOCK_AT(1), (uintptr_t)BLOCK_AT(1)); /* its step is over */
    sg_torch_sent_freed(BLOCK_AT(1));
    expect_sent(NULL, 0);
}

static void tensor_stays_where_it_cannot_move(void **state)
{
    for (int i = 0; i < 10; i++) {
        start_afresh(state);
        fake.no_core = i == 0;
        fake.block = i == 1 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
        fake.inside_block = i == 2;
        atomic_store(&sg_captures_begun, i == 3);
        fake.fixed = i == 4;
        fake.wait = i == 5 ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS;
        fake.full = i == 6 ? CUDA_ERROR_OUT_OF_MEMORY : i == 7 ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS;
        fake.then = CUDA_ERROR_OUT_OF_MEMORY;
        fake.free = i == 8 ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS;
        fake.no_copy = i == 9;
        assert_null(sg_torch_sent_copy(BLOCK_AT(1)));
        assert_int_equal(fake.noted_sent, 0);
        assert_int_equal(sg_torch_sent_lacked(), i == 6 ? BYTES : 0);
        assert_int_equal(fake.pushed, i >= 5);
        assert_int_equal(fake.popped, i >= 5);
        assert_int_equal(fake.probes, i < 6 ? 0 : i == 6 ? 2 : 1);
        assert_int_equal(fake.resets, i == 6);
        assert_int_equal(fake.frees, i >= 8);
        assert_int_equal(fake.copies + fake.puts, 0);
        expect_sent(BLOCK_AT(1), (uintptr_t)BLOCK_AT(1));
        assert_int_equal(atomic_load(&sg_torch_sent_copies), 0);
    }
}

static void idle_memory_makes_room_for_it(void **state)
{
    (void)state;
    fake.full = CUDA_ERROR_OUT_OF_MEMORY;
    assert_non_null(sg_torch_sent_copy(BLOCK_AT(1)));
    assert_int_equal(fake.resets, 1);
    assert_int_equal(fake.probes, 2);
    assert_int_equal(fake.probed, BYTES + MORE);
    assert_int_equal(fake.frees, 1);
    sg_torch_sent_freed(BLOCK_AT(1));
}

/* Whichever goes first. */
static void each_copy_goes_with_its_block(void **state)
{
    static const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        start_afresh(state);
        for (int k = 0; k < 3; k++) {
            fake.pushed = fake.popped = 0;
            assert_ptr_equal(sg_torch_sent_copy(BLOCK_AT(k)), COPY_AT(k));
        }
        for (int k = 0; k < 3; k++) {
            sg_torch_sent_freed(BLOCK_AT(orders[i][k]));
            assert_int_equal(fake.puts, k + 1);
            assert_ptr_equal(fake.put, COPY_AT(orders[i][k]));
            assert_int_equal(atomic_load(&sg_torch_sent_copies), 2 - k);
        }
    }
}

static void copies_beyond_the_table_are_given_back(void **state)
{
    (void)state;
    for (int i = 0; i < COPIES; i++) {
        fake.pushed = fake.popped = 0;
        assert_non_null(sg_torch_sent_copy(BLOCK_AT(i)));
    }
    assert_int_equal(fake.puts, 0);
    for (int i = 0; i < 2; i++) {
        fake.pushed = fake.popped = 0;
        assert_null(sg_torch_sent_copy(BLOCK_AT(COPIES)));
        assert_int_equal(fake.puts, i + 1);
        assert_ptr_equal(fake.put, COPY_AT(COPIES + i));
        expect_sent(BLOCK_AT(COPIES), (uintptr_t)BLOCK_AT(COPIES));
    }
    assert_int_equal(atomic_load(&sg_torch_sent_copies), COPIES);
    for (int i = 0; i < COPIES; i++)
        sg_torch_sent_freed(BLOCK_AT(i));
    assert_int_equal(fake.puts, COPIES + 2);
    assert_int_equal(atomic_load(&sg_torch_sent_copies), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(tensor_moves_to_a_block_of_the_cache),
        TEST(only_that_tensor_moves),
        TEST(tensor_stays_where_it_cannot_move),
        TEST(idle_memory_makes_room_for_it),
        TEST(each_copy_goes_with_its_block),
        TEST(copies_beyond_the_table_are_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
