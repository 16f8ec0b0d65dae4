#include "device/phases.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { FLAG_DISCARD = 1 }; /* of segalloc.h */

const char *const colocate_names[COLOCATE_COUNT] = {"free", "keep", "pause", "pause-discard"};
static const char *const tags[PHASE_COUNT] = {"training", "rollout"};
static const char scratch[] = "kv";

static void phases_check(struct phases *phases, int result, const char *call)
{
    char fault[64];
    snprintf(fault, sizeof fault, "it answers with error %d", result);
    if (result)
        device_fail(phases->device, call, fault);
}

static void phases_find(struct phases *phases, const char *name, void *ret)
{
    void *symbol = dlsym(RTLD_DEFAULT, name);
    memcpy(ret, &symbol, sizeof symbol);
    if (!symbol)
        device_fail(phases->device, "--colocate", "pauses are segalloc's: segalloc run -- segalloc-train ...");
}

static bool phases_pause(const struct phases *phases)
{
    return phases->way == COLOCATE_PAUSE || phases->way == COLOCATE_DISCARD;
}

/* True if tags reach a device. */
static bool phases_are_real(const struct phases *phases)
{
    return phases_pause(phases) && phases->device->rt && phases->device->state == DEVICE_OK;
}

static void phases_push(struct phases *phases)
{
    bool discard = phases->way == COLOCATE_DISCARD && phases->now == PHASE_ROLLOUT;
    if (phases_are_real(phases))
        phases_check(phases, phases->push(tags[phases->now], discard ? FLAG_DISCARD : 0), "segalloc_tag_push");
}

void phases_open(struct phases *phases, struct device *device, enum colocate way)
{
    *phases = (struct phases){.device = device, .way = way};
    if (!phases_are_real(phases))
        return;
    phases_find(phases, "segalloc_tag_push", &phases->push);
    phases_find(phases, "segalloc_tag_pop", &phases->pop);
    phases_find(phases, "segalloc_pause", &phases->pause);
    phases_find(phases, "segalloc_resume", &phases->resume);
    phases_push(phases);
}

void phases_note_peak(struct phases *phases)
{
    struct device *device = phases->device;
    size_t own = device->phase_peak - phases->held[!phases->now];
    if (own > phases->peak[phases->now])
        phases->peak[phases->now] = own;
}

void phases_turn(struct phases *phases, enum phase to)
{
    struct device *device = phases->device;
    enum phase from = phases->now;
    if (phases->way == COLOCATE_FREE || from == to)
        return;
    device_wait(device);
    phases_note_peak(phases);
    phases->now = to;
    if (phases_pause(phases))
        device_swap(device, &phases->paused[to], &phases->paused[from]);
    else
        phases->held[from] = device->live - phases->held[to];
    device->phase_peak = device->live;
    if (!phases_are_real(phases))
        return;
    phases_check(phases, phases->pop(), "segalloc_tag_pop");
    phases_check(phases, phases->pause(NULL), "segalloc_pause");
    if (to == PHASE_ROLLOUT && phases->paused[to].live) {
        phases_check(phases, phases->resume(tags[to]), "segalloc_resume");
        phases_check(phases, phases->resume(scratch), "segalloc_resume");
    } else if (to == PHASE_TRAINING) {
        phases_check(phases, phases->resume(tags[to]), "segalloc_resume");
    }
    phases_push(phases);
}

void phases_begin_scratch(struct phases *phases)
{
    if (phases_are_real(phases))
        phases_check(phases, phases->push(scratch, FLAG_DISCARD), "segalloc_tag_push");
}

void phases_end_scratch(struct phases *phases)
{
    if (phases_are_real(phases))
        phases_check(phases, phases->pop(), "segalloc_tag_pop");
}

void phases_close(struct phases *phases)
{
    struct device *device = phases->device;
    if (phases->way == COLOCATE_FREE)
        return;
    phases_note_peak(phases);
    if (!phases_pause(phases))
        return;
    const struct paused *paused = &phases->paused[!phases->now]; /* a paused block can be freed as it is */
    device->live += paused->live;
    for (int i = 0; i < BUDGET_COUNT; i++)
        device->live_by[i] += paused->live_by[i];
}
