/* Arena, lengths, command line, and running out in the middle. */
#include "fixture.h"
#include "options.h"
#include "training.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECES = 64 };

struct piece {
    char *pointer;
    size_t bytes;
};

static bool overlap(const struct piece *a, const struct piece *b)
{
    return a->pointer < b->pointer + b->bytes && b->pointer < a->pointer + a->bytes;
}

/* Takes and gives by a seed; `checked` looks that no two pieces share a byte. Returns the last pointer. */
static char *play(struct allocator *arena, bool checked)
{
    struct piece pieces[PIECES] = {0};
    uint64_t state = 5;
    char *last = NULL;
    for (int i = 0; i < 20000; i++) {
        struct piece *piece = &pieces[random_next(&state) % PIECES];
        if (piece->pointer) {
            assert_int_equal(arena->give(arena, piece->pointer, piece->bytes), CUDA_SUCCESS_VALUE);
            piece->pointer = NULL;
            continue;
        }
        void *pointer;
        size_t bytes = 1 + random_next(&state) % (i % 7 ? 3000 : 60000);
        assert_int_equal(arena->take(arena, bytes, &pointer), CUDA_SUCCESS_VALUE);
        *piece = (struct piece){pointer, bytes};
        last = pointer;
        assert_int_equal((uintptr_t)pointer % TENSOR_ALIGNMENT, 0);
        for (int j = 0; checked && j < PIECES; j++)
            assert_true(&pieces[j] == piece || !pieces[j].pointer || !overlap(piece, &pieces[j]));
    }
    for (int i = 0; i < PIECES; i++)
        if (pieces[i].pointer)
            arena->give(arena, pieces[i].pointer, pieces[i].bytes);
    return last;
}

static void arena_never_overlaps_and_repeats(void **state)
{
    (void)state;
    struct allocator *plan, *again;
    alloc_arena_open(NULL, 0, &plan);
    alloc_arena_open(NULL, 0, &again);
    assert_ptr_equal(play(plan, true), play(again, false));
    assert_int_equal(alloc_arena_extent(plan), alloc_arena_extent(again));
    /* All is free again, in one piece. */
    void *whole;
    assert_int_equal(plan->take(plan, alloc_arena_extent(plan), &whole), CUDA_SUCCESS_VALUE);
    assert_int_equal(alloc_arena_extent(plan), alloc_arena_extent(again));
    plan->close(plan);
    again->close(again);
}

static void arena_of_the_planned_size_is_enough_and_no_less(void **state)
{
    (void)state;
    struct device device;
    fixture_open(&device); /* for the runtime */
    const struct cuda_rt *rt = device.rt;
    struct allocator *arena;
    assert_int_equal(alloc_arena_open(rt, 1024, &arena), CUDA_SUCCESS_VALUE);
    void *first, *second, *third = NULL;
    assert_int_equal(arena->take(arena, 1, &first), CUDA_SUCCESS_VALUE);
    assert_int_equal(arena->take(arena, 512, &second), CUDA_SUCCESS_VALUE);
    assert_int_equal(arena->take(arena, 1, &third), CUDA_ERROR_OUT_OF_MEMORY);
    assert_null(third);
    arena->give(arena, first, 1);
    assert_int_equal(arena->take(arena, 500, &third), CUDA_SUCCESS_VALUE);
    assert_ptr_equal(third, first);
    arena->close(arena);
    fixture_close(&device);
}

static void lengths_keep_to_their_bounds(void **state)
{
    (void)state;
    static const char *const models[] = {"lognormal:735:0.7", "lognormal", "bimodal:200:0.3",
                                         "growing:300", "uniform", "fixed", "fixed:100"};
    char error[256];
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        struct lengths a, b;
        assert_int_equal(lengths_open(&a, models[m], 1536, 1, error, sizeof error), 0);
        assert_int_equal(lengths_open(&b, models[m], 1536, 1, error, sizeof error), 0);
        int distinct = 0, last = 0;
        for (int i = 0; i < 1000; i++) {
            int length = lengths_next(&a);
            assert_int_equal(length, lengths_next(&b));
            assert_in_range(length, LENGTH_LEAST, 1536);
            assert_int_equal(length % LENGTH_STEP, 0);
            distinct += length != last;
            last = length;
        }
        if (strncmp(models[m], "fixed", 5))
            assert_true(distinct > 500);
        else
            assert_int_equal(distinct, 1);
        lengths_close(&a);
        lengths_close(&b);
    }
    struct lengths bad;
    assert_int_equal(lengths_open(&bad, "normal", 100, 0, error, sizeof error), -1);
    assert_non_null(strstr(error, "lognormal"));
    assert_int_equal(lengths_open(&bad, "lognormal:x", 100, 0, error, sizeof error), -1);
    assert_int_equal(lengths_open(&bad, "file:/nonexistent/lengths", 100, 0, error, sizeof error), -1);
    assert_non_null(strstr(error, "/nonexistent/lengths"));
}

static int parse(struct options *options, char *error, const char *words)
{
    static char copy[256];
    char *argv[32] = {(char *)(uintptr_t) "segalloc-train"};
    int argc = 1;
    snprintf(copy, sizeof copy, "%s", words);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    return options_parse(options, argc, argv, error, 256);
}

static void options_change_the_preset_wherever_they_stand(void **state)
{
    (void)state;
    struct options o;
    char error[256];
    assert_int_equal(parse(&o, error, "--max-len 512 --dry --preset qwen25-7b-lora --rank=16 --alloc arena"), 0);
    assert_string_equal(o.preset->name, "qwen25-7b-lora");
    assert_int_equal(o.set.longest, 512);
    assert_int_equal(o.set.shape.rank, 16);
    assert_int_equal(o.set.shape.layers, 28);
    assert_true(o.arena && o.dry && !o.set.no_checkpoint);
    static const char *const wrong[] = {
        "--dry --preset nosuch",
        "--dry --steps",
        "--dry --steps x",
        "--dry --steps -1",
        "--dry --json=1",
        "--dry extra",
        "--dry --alloc lazy",
        "--preset tiny",
        "--dry --heads 3",
        "--dry --nosuch",
        "--preset qwen25-7b-lora --text x --backend cpu",
        "--dry --rank 0 --train lora",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        *error = 0;
        assert_int_equal(parse(&o, error, wrong[i]), -1);
        assert_true(*error && !strchr(error, '\n'));
    }
}

static void running_out_anywhere_unwinds(void **state)
{
    (void)state;
    struct options o;
    char error[256];
    assert_int_equal(parse(&o, error, "--dry --steps 1"), 0);
    struct device device;
    fixture_open(&device);
    struct run_result r;
    training_run(&o, device.rt, NULL, NULL, &r);
    assert_int_equal(r.outcome, OUTCOME_COMPLETED);
    void (*set_limit)(size_t);
    *(void **)&set_limit = dlsym(device.rt->library, "stub_set_limit");
    assert_non_null(set_limit);
    for (size_t limit = r.peak - 1; limit > r.peak / 4; limit -= r.peak / 16) {
        struct run_result short_of;
        o.arena = !o.arena;
        set_limit(limit);
        training_run(&o, device.rt, NULL, NULL, &short_of);
        set_limit((size_t)1 << 40);
        assert_int_equal(short_of.outcome, OUTCOME_OUT_OF_MEMORY);
        assert_true(short_of.peak <= limit);
        assert_non_null(strstr(short_of.error, "memory"));
    }
    fixture_close(&device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena_never_overlaps_and_repeats),
        cmocka_unit_test(arena_of_the_planned_size_is_enough_and_no_less),
        cmocka_unit_test(lengths_keep_to_their_bounds),
        cmocka_unit_test(options_change_the_preset_wherever_they_stand),
        cmocka_unit_test(running_out_anywhere_unwinds),
    };
    return cmocka_run_group_tests_name("train parts", tests, NULL, NULL);
}
