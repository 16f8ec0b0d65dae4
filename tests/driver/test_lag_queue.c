/* The card's queue of work against a model that keeps every piece of work and what it comes after. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ledger_driver.h"

enum { STREAMS = 5, PIECES = 4000, EVENTS = 8, STEPS = 3000 };

struct piece {
    int stream;
    uint64_t due;              /* allocations made */
    bool done;
    int before[STREAMS];       /* number + 1 of the last piece of each stream that it comes after */
};

struct model {
    struct piece piece[PIECES];
    int pieces;
    uint64_t allocations, ahead;
    int waits[STREAMS][STREAMS]; /* what the stream's next piece comes after, its own last one included */
    int event[EVENTS][STREAMS];
};

/* A piece is complete when it is due and all that it comes after is; what the host has waited for is done. */
static bool is_done(struct model *model, int number)
{
    struct piece *piece = &model->piece[number];
    if (piece->done)
        return true;
    if (piece->due > model->allocations)
        return false;
    for (int i = 0; i < STREAMS; i++)
        if (piece->before[i] && !is_done(model, piece->before[i] - 1))
            return false;
    return piece->done = true;
}

static void finish(struct model *model, int number)
{
    struct piece *piece = &model->piece[number];
    if (piece->done)
        return;
    piece->done = true;
    for (int i = 0; i < STREAMS; i++)
        if (piece->before[i])
            finish(model, piece->before[i] - 1);
}

static void submit(struct model *model, int stream)
{
    struct piece *piece = &model->piece[model->pieces++];
    *piece = (struct piece){.stream = stream, .due = model->allocations + model->ahead};
    memcpy(piece->before, model->waits[stream], sizeof piece->before);
    model->waits[stream][stream] = model->pieces;
}

static void join(int *to, const int *from)
{
    for (int i = 0; i < STREAMS; i++)
        to[i] = to[i] > from[i] ? to[i] : from[i];
}

static bool all_done(struct model *model, const int *numbers)
{
    for (int i = 0; i < STREAMS; i++)
        if (numbers[i] && !is_done(model, numbers[i] - 1))
            return false;
    return true;
}

static void play(unsigned seed, uint64_t ahead)
{
    struct model *model = calloc(1, sizeof *model);
    struct sg_lag_queue *queue = sg_lag_queue_new(ahead);
    struct sg_ledger_clock clock[EVENTS] = {0};
    assert_non_null(model);
    assert_non_null(queue);
    model->ahead = ahead;
    srand(seed);
    for (uint32_t i = 0; i < STREAMS; i++)
        assert_int_equal(sg_lag_queue_stream(queue, i, 0), i);
    for (int step = 0; step < STEPS; step++) {
        int stream = rand() % STREAMS, event = rand() % EVENTS;
        switch (rand() % 8) {
        case 0:
        case 1:
            submit(model, stream);
            sg_lag_queue_submit(queue, (uint32_t)stream);
            break;
        case 2:
            model->allocations++;
            sg_lag_queue_made(queue);
            break;
        case 3:
            memcpy(model->event[event], model->waits[stream], sizeof model->event[event]);
            sg_lag_queue_record(queue, (uint32_t)stream, &clock[event]);
            break;
        case 4:
            join(model->waits[stream], model->event[event]);
            sg_lag_queue_wait(queue, (uint32_t)stream, &clock[event]);
            break;
        case 5:
            if (rand() % 20)
                break;
            for (int i = 0; i < STREAMS; i++)
                if (model->event[event][i])
                    finish(model, model->event[event][i] - 1);
            sg_lag_queue_finish(queue, &clock[event]);
            break;
        case 6:
            if (rand() % 10)
                break;
            memset(model->event[event], 0, sizeof model->event[event]);
            for (int i = 0; i < STREAMS; i++)
                join(model->event[event], model->waits[i]);
            sg_lag_queue_record_all(queue, 0, &clock[event]);
            break;
        default:
            assert_int_equal(sg_lag_queue_is_complete(queue, &clock[event]), all_done(model, model->event[event]));
        }
        assert_true(queue->due_end - queue->due_first <= STREAMS * (ahead + 1));
    }
    sg_lag_queue_delete(queue);
    free(model);
}

static void work_completes_as_in_the_model(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < 60; seed++)
        play(seed, (const uint64_t[]){0, 1, 3, 20}[seed % 4]);
}

/* Through the driver's table: events of the allocator's own, and what is counted as a wait. */
static void events_and_waits_of_the_driver_lag(void **state)
{
    (void)state;
    const struct sg_driver *driver = &sg_ledger_driver;
    struct sg_ledger card;
    CUevent event[3];
    CUstream one = (CUstream)(uintptr_t)1, two = (CUstream)(uintptr_t)2;
    sg_ledger_init(&card, UINT64_C(1) << 30, UINT64_C(2) << 20);
    sg_ledger_use(&card);
    card.queue = sg_lag_queue_new(2);
    assert_non_null(card.queue);
    for (int i = 0; i < 3; i++)
        assert_int_equal(driver->event_create(&event[i], 0), CUDA_SUCCESS);
    assert_int_equal(driver->event_query(event[0]), CUDA_SUCCESS); /* never recorded */
    sg_lag_queue_stream(card.queue, 2, 0);
    sg_lag_queue_submit(card.queue, 1);
    assert_int_equal(driver->event_record(event[0], one), CUDA_SUCCESS);
    assert_int_equal(driver->event_record(event[1], two), CUDA_SUCCESS);
    assert_int_equal(driver->ctx_record_event(NULL, event[2]), CUDA_SUCCESS);
    assert_int_equal(driver->event_query(event[0]), CUDA_ERROR_NOT_READY);
    assert_int_equal(driver->event_query(event[1]), CUDA_SUCCESS);
    assert_int_equal(driver->event_query(event[2]), CUDA_ERROR_NOT_READY);
    sg_lag_queue_made(card.queue);
    assert_int_equal(driver->event_query(event[0]), CUDA_ERROR_NOT_READY);
    sg_lag_queue_made(card.queue);
    assert_int_equal(driver->event_query(event[0]), CUDA_SUCCESS);
    assert_int_equal(driver->event_query(event[2]), CUDA_SUCCESS);
    assert_int_equal(driver->event_synchronize(event[1]), CUDA_SUCCESS); /* nothing to wait for */
    assert_int_equal(card.host_waits, 0);
    sg_lag_queue_submit(card.queue, 2);
    assert_int_equal(driver->ctx_synchronize(), CUDA_SUCCESS);
    assert_int_equal(card.host_waits, 1);
    assert_int_equal(driver->event_destroy(event[1]), CUDA_SUCCESS);
    assert_int_equal(driver->event_create(&event[0], 0), CUDA_SUCCESS);
    assert_ptr_equal(event[0], event[1]); /* numbers are used again: none are lost however many come and go */
    sg_lag_queue_delete(card.queue);
    sg_ledger_fini(&card);
}

/* The case of lag_queue.h. */
static void worked_case(void **state)
{
    (void)state;
    struct sg_lag_queue *queue = sg_lag_queue_new(2);
    struct sg_ledger_clock event, last;
    assert_non_null(queue);
    assert_int_equal(sg_lag_queue_stream(queue, 0, 0), 0);
    assert_int_equal(sg_lag_queue_stream(queue, 1, 0), 1);
    sg_lag_queue_submit(queue, 0);
    sg_lag_queue_record(queue, 0, &event);
    assert_int_equal(event.at[0], 1);
    sg_lag_queue_wait(queue, 1, &event);
    sg_lag_queue_submit(queue, 1);
    sg_lag_queue_record(queue, 1, &last);
    assert_int_equal(last.at[0], 1);
    assert_int_equal(last.at[1], 1);
    sg_lag_queue_made(queue);
    assert_false(sg_lag_queue_is_complete(queue, &event));
    sg_lag_queue_made(queue);
    assert_true(sg_lag_queue_is_complete(queue, &last));
    sg_lag_queue_submit(queue, 1);
    sg_lag_queue_record(queue, 1, &last);
    sg_lag_queue_finish(queue, &last);
    assert_true(sg_lag_queue_is_complete(queue, &last));
    sg_lag_queue_delete(queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(worked_case), cmocka_unit_test(work_completes_as_in_the_model),
        cmocka_unit_test(events_and_waits_of_the_driver_lag)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
