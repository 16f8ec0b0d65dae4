/* Tags of memory: pauses and resumes beside the work of other threads. A pause or a resume is a writer. A thread that gives
   work on memory of a tag is a reader, so no such work is given while its memory is away. Frees and all
   other memory need no leave. */
#include <time.h>

#include "threads_world.h"

enum { NOT_PERMITTED = 800, NOT_SUPPORTED = 801, NOT_READY = 600, CAPTURING = 900 };

static const char *const names[FT_TAGS + 1] = {NULL, "weights", "optimizer", "kv"};

enum { IN_FILES = 2 };

static bool discards(unsigned tag)
{
    return tag == FT_TAGS;
}

static unsigned flags_of(const struct ft_plan *plan, unsigned tag)
{
    return discards(tag) ? SEGALLOC_TAG_DISCARD : tag == IN_FILES && plan->files ? SEGALLOC_TAG_FILE : 0;
}

void ft_tag_push(struct ft_thread *t, unsigned tag)
{
    if (tag)
        FT_MUST(t->world, (CUresult)ft_found.tag_push(names[tag], flags_of(t->world->plan, tag)));
}

void ft_tag_pop(struct ft_thread *t)
{
    FT_MUST(t->world, (CUresult)ft_found.tag_pop());
}

bool ft_touch_begin(struct ft_thread *t, struct ft_block *b)
{
    struct ft_world *w = t->world;
    if (!b->tag)
        return true;
    pthread_rwlock_rdlock(&w->pausing);
    const struct ft_tag *tag = &w->tag[b->tag];
    if (tag->state != FT_AWAKE) {
        pthread_rwlock_unlock(&w->pausing);
        return false;
    }
    /* Other bytes than zeros would be another's, whether the block was written or not. */
    if (b->discards != tag->discards) {
        b->value = 0;
        b->written = true;
    }
    if (b->maybe != tag->maybe)
        b->written = false;
    b->discards = tag->discards;
    b->maybe = tag->maybe;
    return true;
}

void ft_touch_end(struct ft_thread *t, const struct ft_block *b)
{
    if (b->tag)
        pthread_rwlock_unlock(&t->world->pausing);
}

/* Counts other answers than those that a program must expect. A driver may fail, a device may have no regions, and work may
   not end while other threads free and allocate. */
static void judge(struct ft_world *w, int answer, const char *what)
{
    bool legal = answer == CUDA_SUCCESS || answer == CUDA_ERROR_OUT_OF_MEMORY || answer == NOT_SUPPORTED ||
                 answer == NOT_READY || answer == CAPTURING || w->plan->refusals;
    if (!legal)
        ft_fault(w->result, "%s answers %d", what, answer);
}

/* The tag of an operation; 0: all. */
static unsigned tag_of(const struct ft_operation *operation)
{
    return operation->how % (FT_TAGS + 1);
}

/* Where the driver goes on failing some blocks are in fixed segments, which stay where they are. */
static void note_paused(const struct ft_world *w, struct ft_tag *tag, bool discarded)
{
    bool all = tag->state == FT_AWAKE && !w->plan->refuses_on;
    tag->discards += discarded && all;
    tag->maybe += discarded && !all && tag->state != FT_PAUSED;
    tag->state = FT_PAUSED;
}

/* A pause that fails may have left a tag half paused, and then says so. A paused tag stays paused. */
static void note_not_paused(struct ft_tag *tag, bool discarded)
{
    if (tag->state == FT_PAUSED)
        return;
    tag->maybe += discarded;
    tag->state = FT_UNKNOWN;
}

void ft_pause(struct ft_thread *t, const struct ft_operation *operation)
{
    struct ft_world *w = t->world;
    unsigned chosen = tag_of(operation);
    pthread_rwlock_wrlock(&w->pausing);
    int answer = ft_found.pause(names[chosen]);
    bool unborn = chosen && answer == CUDA_ERROR_NOT_FOUND; /* nobody has pushed it */
    if (!unborn)
        judge(w, answer, "segalloc_pause");
    bool untouched = unborn || answer == NOT_SUPPORTED || answer == CAPTURING;
    for (unsigned i = 1; i <= FT_TAGS && !untouched; i++) {
        if (chosen && chosen != i)
            continue;
        if (answer == CUDA_SUCCESS)
            note_paused(w, &w->tag[i], discards(i));
        else
            note_not_paused(&w->tag[i], discards(i));
    }
    pthread_rwlock_unlock(&w->pausing);
}

/* A tag that is refused stays as it is, and the call can be repeated. */
static int resume(struct ft_world *w, unsigned chosen)
{
    pthread_rwlock_wrlock(&w->pausing);
    int answer = ft_found.resume(names[chosen]);
    bool unborn = chosen && answer == CUDA_ERROR_NOT_FOUND;
    if (!unborn)
        judge(w, answer, "segalloc_resume");
    for (unsigned i = 1; i <= FT_TAGS && answer != CAPTURING && !unborn; i++) {
        if (chosen && chosen != i)
            continue;
        if (answer == CUDA_SUCCESS)
            w->tag[i].state = FT_AWAKE;
        else if (!chosen && w->tag[i].state == FT_PAUSED)
            w->tag[i].state = FT_UNKNOWN; /* some of them may be back */
    }
    pthread_rwlock_unlock(&w->pausing);
    return unborn ? CUDA_SUCCESS : answer;
}

void ft_resume(struct ft_thread *t, const struct ft_operation *operation)
{
    (void)resume(t->world, tag_of(operation));
}

void ft_resume_end(struct ft_thread *t)
{
    enum { TRIES = 2000, TRY_NS = 1000000 };
    struct ft_world *w = t->world;
    int answer = resume(w, 0);
    for (int tries = 0; tries < TRIES && answer != CUDA_SUCCESS && answer != NOT_SUPPORTED && !w->plan->refuses_on;
         tries++) {
        nanosleep(&(struct timespec){.tv_nsec = TRY_NS}, NULL);
        ft_wait_all(w, t->card->device);
        answer = resume(w, 0);
    }
    if (answer != CUDA_SUCCESS && answer != NOT_SUPPORTED && !w->plan->refuses_on)
        ft_fault(w->result, "memory of tags does not come back at the end: %d", answer);
}
