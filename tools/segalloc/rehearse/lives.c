#include "rehearse/lives.h"

#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "signals.h"

void sg_lives_begin(struct sg_lives *lives, const char *folder)
{
    *lives = (struct sg_lives){.watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC)};
    if (lives->watch < 0 || inotify_add_watch(lives->watch, folder, IN_CREATE | IN_CLOSE_WRITE) >= 0)
        return;
    close(lives->watch);
    lives->watch = -1;
}

struct sg_life *sg_lives_of(struct sg_lives *lives, const char *name)
{
    for (unsigned i = 0; i < lives->count; i++)
        if (strcmp(lives->life[i].name, name) == 0)
            return &lives->life[i];
    if (lives->count == lives->room) {
        unsigned room = lives->room ? 2 * lives->room : 8;
        struct sg_life *larger = realloc(lives->life, room * sizeof *larger);
        if (!larger)
            return NULL;
        lives->life = larger;
        lives->room = room;
    }
    struct sg_life *life = &lives->life[lives->count++];
    memset(life, 0, sizeof *life);
    life->ended = UINT_MAX;
    snprintf(life->name, sizeof life->name, "%s", name);
    const char *rank = strchr(name, '-');
    life->rank = rank && strstr(name, ".trace") ? atoi(rank + 1) : 0;
    return life;
}

static void lives_take_event(struct sg_lives *lives, const struct inotify_event *event)
{
    struct sg_life *life = event->len && (strstr(event->name, ".trace") || strstr(event->name, ".peaks")) ? sg_lives_of(lives, event->name) : NULL;
    if (!life)
        return;
    lives->events++;
    if (event->mask & IN_CREATE)
        life->began = lives->events;
    if (event->mask & IN_CLOSE_WRITE)
        life->ended = lives->events;
}

static void lives_read(struct sg_lives *lives)
{
    _Alignas(struct inotify_event) char bytes[16384];
    ssize_t got;
    while (lives->watch >= 0 && (got = read(lives->watch, bytes, sizeof bytes)) > 0) {
        for (const char *at = bytes; at < bytes + got;) {
            const struct inotify_event *event = (const void *)at;
            lives->broken |= event->mask & IN_Q_OVERFLOW;
            lives_take_event(lives, event);
            at += sizeof *event + event->len;
        }
    }
}

static unsigned lives_going_on(const struct sg_lives *lives)
{
    unsigned count = 0;
    for (unsigned i = 0; i < lives->count; i++)
        count += strstr(lives->life[i].name, ".peaks") && lives->life[i].ended == UINT_MAX;
    return count;
}

unsigned sg_lives_wait(struct sg_lives *lives)
{
    enum { STEP_MS = 20, ANY_MS = 3000, BEGUN_MS = 10000 };
    for (int ms = 0;; ms += STEP_MS) {
        if (sg_signals_first())
            sg_signals_end_children();
        lives_read(lives);
        unsigned going_on = lives_going_on(lives);
        if (!sg_signals_any_child() || ms >= (going_on ? BEGUN_MS : ANY_MS) || sg_signals_first())
            return going_on;
        poll(NULL, 0, STEP_MS);
    }
}

void sg_lives_end(struct sg_lives *lives)
{
    lives_read(lives);
    bool whole = lives->watch >= 0 && !lives->broken;
    if (lives->watch >= 0)
        close(lives->watch);
    lives->watch = -1;
    for (unsigned i = 0; i < lives->count && !whole; i++) {
        lives->life[i].began = 0;
        lives->life[i].ended = UINT_MAX;
    }
}

/* Figures that are summed up. One that a part does not know is not known of the whole. */
static void figure_add(uint64_t *sum, bool *known, uint64_t part)
{
    *sum += part;
    *known = *known && part;
}

static void at_least(uint64_t *most, uint64_t value)
{
    if (value > *most)
        *most = value;
}

/* The needs of one device by all processes that were there when `now` began. */
struct together {
    unsigned processes;
    struct sg_life_need need;
    bool known, known_pytorch, known_expandable;
};

static void lives_add_up(const struct sg_lives *lives, const struct sg_life *now, int device, struct together *ret)
{
    *ret = (struct together){.known = true, .known_pytorch = true, .known_expandable = true};
    for (unsigned i = 0; i < lives->count; i++) {
        const struct sg_life *life = &lives->life[i];
        const struct sg_life_need *need = &life->need[device];
        if (!need->used || life->first > now->first || life->last <= now->first)
            continue;
        ret->processes++;
        ret->need.exact += need->exact;
        ret->need.requested += need->requested;
        ret->need.reserved += need->reserved;
        ret->need.taken += need->taken;
        figure_add(&ret->need.alone.segalloc, &ret->known, need->alone.segalloc);
        figure_add(&ret->need.alone.pytorch, &ret->known_pytorch, need->alone.pytorch);
        figure_add(&ret->need.alone.pytorch_expandable, &ret->known_expandable, need->alone.pytorch_expandable);
    }
}

/* The most that any device has to have at any time. A figure that is unknown at one time is unknown altogether. */
struct most {
    struct sg_rehearse_alone alone;
    bool unknown, unknown_pytorch, unknown_expandable;
};

static void join_moment(const struct together *together, int device, struct sg_rehearse *rehearse, struct most *most)
{
    const struct sg_life_need *need = &together->need;
    struct sg_rehearse_device *used = &rehearse->device[device];
    if (need->alone.segalloc > most->alone.segalloc)
        rehearse->together = together->processes;
    at_least(&most->alone.segalloc, need->alone.segalloc);
    at_least(&most->alone.pytorch, need->alone.pytorch);
    at_least(&most->alone.pytorch_expandable, need->alone.pytorch_expandable);
    most->unknown |= !together->known;
    most->unknown_pytorch |= !together->known_pytorch;
    most->unknown_expandable |= !together->known_expandable;
    at_least(&rehearse->peak_requested, need->requested);
    at_least(&rehearse->peak_reserved, need->reserved);
    at_least(&rehearse->peak_taken, need->taken);
    at_least(&rehearse->peak_own, need->taken);
    if (together->processes > used->processes || (together->processes == used->processes && need->taken > used->taken))
        *used = (struct sg_rehearse_device){together->processes, need->requested, need->taken};
    for (unsigned i = 0; i < rehearse->card_count && together->processes > 1; i++)
        rehearse->card[i].fits &= need->exact <= rehearse->card[i].bytes;
}

/* The next process with a trace after `after`, by its begin; NULL: there is none. */
static struct sg_life *lives_next(struct sg_lives *lives, const struct sg_life *after)
{
    struct sg_life *next = NULL;
    for (unsigned i = 0; i < lives->count; i++) {
        struct sg_life *life = &lives->life[i];
        bool later = !after || life->began > after->began || (life->began == after->began && life > after);
        if (strstr(life->name, ".trace") && later && (!next || life->began < next->began))
            next = life;
    }
    return next;
}

/* A job begins at `from` and ends before `to`, NULL: at the end. */
static void lives_join_job(struct sg_lives *lives, struct sg_life *from, const struct sg_life *to)
{
    unsigned last = 0;
    for (struct sg_life *life = from; life && life != to; life = lives_next(lives, life))
        last = life->ended > last ? life->ended : last;
    for (struct sg_life *life = from; life && life != to; life = lives_next(lives, life)) {
        life->first = from->began;
        life->last = last;
    }
}

static void lives_join_jobs(struct sg_lives *lives)
{
    for (unsigned i = 0; i < lives->count; i++) {
        lives->life[i].first = lives->life[i].began;
        lives->life[i].last = lives->life[i].ended;
    }
    for (struct sg_life *from = lives_next(lives, NULL), *to; from; from = to) {
        for (to = lives_next(lives, from); to; to = lives_next(lives, to)) {
            bool again = false;
            for (struct sg_life *life = from; life != to && !again; life = lives_next(lives, life))
                again = life->rank == to->rank;
            if (again)
                break;
        }
        lives_join_job(lives, from, to);
    }
}

void sg_lives_join(struct sg_lives *lives, struct sg_rehearse *rehearse)
{
    struct most most = {.unknown = false};
    rehearse->together = 1;
    lives_join_jobs(lives);
    for (unsigned i = 0; i < lives->count; i++) {
        for (int device = 0; device < SG_DEVICES_MAX; device++) {
            struct together together;
            if (!lives->life[i].need[device].used)
                continue;
            lives_add_up(lives, &lives->life[i], device, &together);
            join_moment(&together, device, rehearse, &most);
        }
    }
    bool pytorch = rehearse->torch && !rehearse->beneath;
    rehearse->alone = (struct sg_rehearse_alone){
        .segalloc = most.unknown ? 0 : most.alone.segalloc,
        .pytorch = most.unknown_pytorch || !pytorch ? 0 : most.alone.pytorch,
        .pytorch_expandable = most.unknown_expandable || !pytorch ? 0 : most.alone.pytorch_expandable,
    };
    /* Each process has a context of its own. A margin that the user says is of the card. */
    for (unsigned i = 0; i < rehearse->card_count && rehearse->margin == SG_REHEARSE_MEASURED && !rehearse->true_size;
         i++)
        rehearse->card[i].margin *= rehearse->together;
}

void sg_lives_free(struct sg_lives *lives)
{
    if (lives->watch >= 0)
        close(lives->watch);
    free(lives->life);
    *lives = (struct sg_lives){.watch = -1};
}
