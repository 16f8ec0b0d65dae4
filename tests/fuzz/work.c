#include "work.h"

#include <stdlib.h>
#include <string.h>

struct work work;

void work_reset(void)
{
    for (uint32_t i = 0; i < work.streams; i++) {
        struct work_stream *stream = &work.stream[i];
        *stream = (struct work_stream){.of_work = stream->of_work, .room = stream->room};
    }
    work.streams = 0;
}

void work_meet(int i, enum fuzz_nature nature, uint8_t context)
{
    struct work_stream *stream = &work.stream[i];
    *stream = (struct work_stream){.met = true, .alive = true, .nature = nature, .context = context,
        .of_work = stream->of_work, .room = stream->room};
    if (work.streams <= (uint32_t)i)
        work.streams = (uint32_t)i + 1;
}

void work_join(struct work_after *into, const struct work_after *from)
{
    for (uint32_t i = 0; i < work.streams; i++)
        into->work[i] = from->work[i] > into->work[i] ? from->work[i] : into->work[i];
}

bool work_is_complete(const struct work_after *after)
{
    for (uint32_t i = 0; i < work.streams; i++)
        if (after->work[i] > work.stream[i].complete)
            return false;
    return true;
}

void work_progress(int i, uint64_t most)
{
    struct work_stream *stream = &work.stream[i];
    while (most-- > 0 && stream->complete < stream->works && work_is_complete(&stream->of_work[stream->complete]))
        stream->complete++;
}

void work_finish(const struct work_after *after)
{
    struct work_after need = *after, before;
    do { /* and what that comes after */
        before = need;
        for (uint32_t i = 0; i < work.streams; i++)
            if (before.work[i] > work.stream[i].complete)
                work_join(&need, &work.stream[i].of_work[before.work[i] - 1]);
    } while (memcmp(&before, &need, sizeof need) != 0);
    while (!work_is_complete(&need))
        for (uint32_t i = 0; i < work.streams; i++)
            if (need.work[i] > work.stream[i].complete)
                work_progress((int)i, need.work[i] - work.stream[i].complete);
}

struct work_after work_of_context(int context)
{
    struct work_after all = {{0}};
    for (uint32_t i = 0; i < work.streams; i++)
        if (work.stream[i].met && (context < 0 || work.stream[i].context == context))
            work_join(&all, &work.stream[i].after);
    for (uint32_t i = 0; i < work.streams; i++)
        if (context < 0 || work.stream[i].context == context)
            all.work[i] = work.stream[i].works;
    return all;
}

bool work_is_by_legacy_rules(int a, int b)
{
    enum fuzz_nature one = work.stream[a].nature, other = work.stream[b].nature;
    return work.stream[a].context == work.stream[b].context && ((one == FUZZ_LEGACY && other == FUZZ_BLOCKING) ||
                                                                   (one == FUZZ_BLOCKING && other == FUZZ_LEGACY));
}

struct work_after work_up_to(int i)
{
    struct work_after after = work.stream[i].after;
    for (uint32_t k = 0; k < work.streams; k++) {
        if (work.stream[k].met && work_is_by_legacy_rules(i, (int)k)) {
            work_join(&after, &work.stream[k].after);
            after.work[k] = work.stream[k].works;
        }
    }
    after.work[i] = work.stream[i].works;
    return after;
}

void work_come_after_by_rules(int i)
{
    work.stream[i].after = work_up_to(i);
}

void work_come_after(int i, const struct work_after *after)
{
    work_join(&work.stream[i].after, after);
}

void work_submit(int i, struct work_after *touched)
{
    struct work_stream *stream = &work.stream[i];
    work_come_after_by_rules(i);
    if (stream->works == stream->room) {
        stream->room = stream->room ? 2 * stream->room : 64;
        stream->of_work = realloc(stream->of_work, stream->room * sizeof *stream->of_work);
        if (!stream->of_work)
            abort();
    }
    stream->of_work[stream->works++] = stream->after;
    if (touched)
        touched->work[i] = stream->works;
}
