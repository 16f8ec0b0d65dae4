/* What a program does with streams and events. */
#include "program.h"

static void join(struct clock *into, const struct clock *from)
{
    for (int i = 0; i < STREAMS; i++) {
        if (into->at[i] < from->at[i])
            into->at[i] = from->at[i];
    }
}

bool stream_exists(const struct program *p, int stream)
{
    return p->stream[stream].context >= 0;
}

/* Handles 0 and 0x2 mean a stream of the thread and of its context. */
static bool usable(const struct program *p, int stream)
{
    return stream_exists(p, stream) && !p->stream[stream].captured &&
        (stream < PER_THREAD || stream == PER_THREAD + p->thread);
}

int stream_pick(struct program *p, int context)
{
    int found = -1;
    unsigned seen = 0;
    for (int i = 0; i < STREAMS; i++) {
        if (usable(p, i) && (context < 0 || p->stream[i].context == context) && program_random(p, ++seen) == 0)
            found = i;
    }
    if (found >= LEGACY)
        program_enter(p, p->stream[found].context);
    return found;
}

void stream_submitted(struct program *p, int stream)
{
    struct stream *s = &p->stream[stream];
    join(&s->knows, &p->host);
    s->knows.at[stream] = s->given = ++s->position;
    s->work = s->knows;
}

static void host_knows(struct program *p, const struct clock *clock)
{
    join(&p->host, clock);
}

void stream_synchronize(struct program *p, int stream)
{
    program_enter(p, p->stream[stream].context);
    struct clock clock = p->stream[stream].work;
    bool mine = usable(p, stream);
    if (mine ? MUST(p, cuStreamSynchronize(p->stream[stream].handle)) : MUST(p, cuCtxSynchronize()))
        host_knows(p, &clock);
}

static void make_event(struct program *p, struct event *event, int context)
{
    program_enter(p, context);
    event->context = context;
    event->clock = (struct clock){{0}};
    unsigned flags = CU_EVENT_DISABLE_TIMING | (program_random(p, 10) ? 0 : CU_EVENT_INTERPROCESS);
    if (!MUST(p, cuEventCreate(&event->handle, flags)))
        event->handle = NULL;
}

struct event *event_pick(struct program *p, int context)
{
    struct event *empty = NULL, *found = NULL;
    unsigned seen = 0;
    for (int i = 0; i < EVENTS; i++) {
        struct event *event = &p->event[i];
        if (!event->handle)
            empty = event;
        else if ((context < 0 || event->context == context) && program_random(p, ++seen) == 0)
            found = event;
    }
    if ((!found || program_random(p, 8) == 0) && empty && context >= 0) {
        make_event(p, empty, context);
        found = empty;
    } else if (!found && context >= 0) { /* all belong to other contexts */
        found = &p->event[program_random(p, EVENTS)];
        MUST(p, cuEventDestroy_v2(found->handle));
        make_event(p, found, context);
    }
    return found && found->handle ? found : NULL;
}

void event_record(struct program *p, struct event *event, int stream)
{
    struct stream *s = &p->stream[stream];
    program_enter(p, s->context);
    if (!(program_random(p, 8) ? MUST(p, cuEventRecord(event->handle, s->handle))
                               : MUST(p, cuEventRecordWithFlags(event->handle, s->handle, 0))))
        return;
    stream_submitted(p, stream);
    event->clock = s->knows;
}

void event_wait(struct program *p, struct event *event, int stream)
{
    struct stream *s = &p->stream[stream];
    program_enter(p, s->context);
    if (MUST(p, cuStreamWaitEvent(s->handle, event->handle, 0))) {
        join(&s->knows, &event->clock);
        join(&s->work, &event->clock);
    }
}

void stream_order(struct program *p, int from, int to)
{
    struct event *event = usable(p, from) ? event_pick(p, p->stream[from].context) : NULL;
    if (!event || !usable(p, to)) {
        stream_synchronize(p, from);
        return;
    }
    event_record(p, event, from);
    if (program_random(p, 12) == 0) /* the handle may go: the wait stands for what was recorded */
        (void)cuEventQuery(event->handle);
    event_wait(p, event, to);
    if (program_random(p, 10) == 0) {
        MUST(p, cuEventDestroy_v2(event->handle));
        event->handle = NULL;
    }
}

/* A driver before 12.5 has no events over contexts. The library answers for a name that the driver lacks. */
static bool is_lacking(CUresult result)
{
    return result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_NOT_INITIALIZED;
}

/* An event over all streams of a context; a wait of all of them. */
static bool record_context(struct program *p, struct event *event)
{
    int context = event->context;
    program_enter(p, context);
    CUresult result = cuCtxRecordEvent(p->context[context], event->handle);
    if (is_lacking(result) || !MUST(p, result))
        return false;
    event->clock = (struct clock){{0}};
    for (int i = 0; i < STREAMS; i++) {
        if (stream_exists(p, i) && p->stream[i].context == context)
            join(&event->clock, &p->stream[i].work);
    }
    return true;
}

/* False: only a stream can wait for the event. */
static bool wait_context(struct program *p, struct event *event, int context)
{
    program_enter(p, context);
    CUresult result = cuCtxWaitEvent(p->context[context], event->handle);
    if (is_lacking(result))
        return false;
    if (!MUST(p, result))
        return true;
    for (int i = 0; i < STREAMS; i++) {
        if (stream_exists(p, i) && p->stream[i].context == context)
            join(&p->stream[i].knows, &event->clock);
    }
    return true;
}

static void context_event(struct program *p)
{
    int context = (int)program_random(p, CONTEXTS);
    struct event *event = p->context[context] ? event_pick(p, context) : NULL;
    if (event && record_context(p, event) && program_random(p, 2))
        (void)wait_context(p, event, context);
}

/* Work of the legacy stream comes after that of blocking ones, and theirs after its. */
static bool ordered_by_legacy(const struct program *p, int from, int to)
{
    const struct stream *a = &p->stream[from], *b = &p->stream[to];
    return a->context == b->context && ((from == LEGACY && b->blocking) || (to == LEGACY && a->blocking));
}

void stream_show(struct program *p, int from, int to)
{
    unsigned choice = program_random(p, 8);
    struct event *event;
    if (choice < 4 && ordered_by_legacy(p, from, to))
        join(&p->stream[to].knows, &p->stream[from].knows);
    else if (choice < 2 || !usable(p, from))
        stream_synchronize(p, from);
    else if (choice == 2 && (event = event_pick(p, p->stream[from].context)) != NULL) {
        event_record(p, event, from);
        if (!wait_context(p, event, p->stream[to].context))
            event_wait(p, event, to);
    } else {
        stream_order(p, from, to);
    }
}

static void ask(struct program *p, CUresult result, const struct clock *clock, const char *what)
{
    if (result == CUDA_SUCCESS)
        host_knows(p, clock);
    else if (result != CUDA_ERROR_NOT_READY)
        program_check(p, result, what);
}

void move_events(struct program *p)
{
    int s = stream_pick(p, -1), t = stream_pick(p, -1);
    struct event *event;
    switch (program_random(p, 16)) {
    case 0:
    case 1:
    case 2:
    case 3:
        stream_order(p, s, t);
        return;
    case 4:
    case 5:
        if ((event = event_pick(p, p->stream[s].context)) != NULL)
            event_record(p, event, s);
        return;
    case 6:
    case 7:
        if ((event = event_pick(p, -1)) != NULL)
            event_wait(p, event, s);
        return;
    case 8:
    case 9:
    case 10:
        if ((event = event_pick(p, -1)) != NULL)
            ask(p, cuEventQuery(event->handle), &event->clock, "cuEventQuery");
        return;
    case 11:
        if ((event = event_pick(p, -1)) != NULL && MUST(p, cuEventSynchronize(event->handle)))
            host_knows(p, &event->clock);
        return;
    case 12:
        if ((event = event_pick(p, -1)) != NULL && MUST(p, cuEventDestroy_v2(event->handle)))
            event->handle = NULL;
        return;
    case 13:
        context_event(p);
        return;
    default:
        program_enter(p, p->stream[s].context);
        ask(p, cuStreamQuery(p->stream[s].handle), &p->stream[s].work, "cuStreamQuery");
    }
}

static void make_stream(struct program *p, int at)
{
    int context = (int)program_random(p, CONTEXTS);
    if (!p->context[context] || program_random(p, 2))
        context = 0;
    if (p->kind != KIND_CUDA && context == 1)
        context = 0;
    program_enter(p, context);
    struct stream *s = &p->stream[at];
    s->blocking = program_random(p, 3) == 0;
    if (!MUST(p, cuStreamCreate(&s->handle, s->blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING)))
        return;
    s->context = context;
    s->knows = p->host;
    s->knows.at[at] = s->position;
    s->work = (struct clock){{0}};
}

/* What others than the block's own stream did on a stream that goes must be settled first. */
static void settle_before_going(struct program *p, int stream)
{
    bool unsettled = false;
    for (int i = 0; i < BLOCKS; i++) {
        struct block *b = &p->block[i];
        bool open = b->address && (b->home != stream || b->of_pool) && b->used[stream] && !(b->recorded >> stream & 1);
        if (p->kind == KIND_CUDA && !b->of_pool)
            b->plain |= open;
        else
            unsettled |= open;
    }
    if (unsettled)
        stream_synchronize(p, stream);
    for (int i = 0; i < BLOCKS; i++) {
        struct block *b = &p->block[i];
        b->used[stream] = 0;
        b->recorded &= ~(1u << stream);
        if (b->home == stream)
            b->home = -1;
    }
}

static void destroy_stream(struct program *p, int at)
{
    settle_before_going(p, at);
    if (MUST(p, cuStreamDestroy_v2(p->stream[at].handle)))
        p->stream[at].context = -1;
}

void move_streams(struct program *p)
{
    int at = (int)program_random(p, CREATED_MAX);
    switch (program_random(p, 8)) {
    case 0:
        stream_synchronize(p, stream_pick(p, -1));
        return;
    case 1: {
        struct clock all = {{0}};
        int context = p->stream[stream_pick(p, -1)].context;
        program_enter(p, context);
        for (int i = 0; i < STREAMS; i++) {
            if (stream_exists(p, i) && p->stream[i].context == context)
                join(&all, &p->stream[i].work);
        }
        if (MUST(p, cuCtxSynchronize()))
            host_knows(p, &all);
        return;
    }
    default:
        if (!stream_exists(p, at))
            make_stream(p, at);
        else if (program_random(p, 2))
            destroy_stream(p, at);
    }
}
