/* From below: one tag on one device, the words for what became of it, then the loops over devices and tags. Orders are
   carried out one at a time, by a flag: driver calls and waits happen under it. */
#include "serve/pause.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/rest.h"
#include "base/size.h"
#include "check/state.h"
#include "process/capture_mode.h"
#include "process/log.h"
#include "process/process.h"
#include "serve/contents.h"
#include "serve/contents_file.h"
#include "serve/deferred_frees.h"
#include "services/trim.h"
#include "track/captures.h"
#include "track/context_pins.h"
#include "track/contexts.h"

#define SECOND_NS UINT64_C(1000000000)
enum { REST_NS = 100000 };

static atomic_flag ordering = ATOMIC_FLAG_INIT;
static _Atomic uint32_t begun;        /* orders so far */
static bool retains;                  /* sg_pause_retain(); changes between orders */
static bool torn; /* in a forked child: an order was under way in the parent, so its notes may be half made */
static atomic_bool said_segments;     /* the line about fixed segments was printed */
static _Atomic uint32_t
    passed_on; /* a bit for each tag of which the driver has served a block since the last line about it */
static _Atomic uint32_t said_refused; /* a bit for each tag of which a line was printed since it was paused */

/* An order for one tag on one device. */
struct order {
    struct sg_core *core;
    bool pause, discards;
    int device;
    uint32_t tag;
    struct sg_pause_result result;
};

/* Each reason why an order failed, as its line ends. */
static const char *pause_reason(const struct order *order, CUresult answer, char *ret, size_t size)
{
    char bytes[SG_SIZE_TEXT];
    const char *const words[] = {
        [SG_PAUSE_FINE] = "it is in that state",
        [SG_PAUSE_PINNED] = "others remember its pages: they were exported, or registered with a network card",
        [SG_PAUSE_BUSY] = "its memory is in use by work that does not end",
        [SG_PAUSE_NO_HOST] = "the host has no memory for the books",
        [SG_PAUSE_CONTENTS] = order->pause ? "its contents could not be saved" : "its contents could not be put back",
        [SG_PAUSE_DRIVER] = "the driver has refused a call",
        [SG_PAUSE_CANNOT] = "the device can't map memory by pages, or its context or its work can't be had now",
    };
    if (order->result.why == SG_PAUSE_FULL)
        snprintf(ret, size, "%s are not to be had on the device; it stays paused, and can be resumed later",
            sg_size_format(order->result.lacking, bytes));
    else
        snprintf(ret, size, "%s (CUDA error %d)", words[order->result.why], (int)answer);
    return ret;
}

/* A line for an order that failed, and for one that has taken more than a second. */
static void pause_say(const struct order *order, CUresult answer, const char *name, uint64_t took_ns)
{
    char line[320], reason[160], bytes[SG_SIZE_TEXT], contents[SG_SIZE_TEXT];
    if (answer != CUDA_SUCCESS)
        snprintf(line, sizeof line, "tag \"%s\" can't be %s on device %d: %s", name, order->pause ? "paused" : "resumed",
            order->device, pause_reason(order, answer, reason, sizeof reason));
    else if (order->result.changed && took_ns > SECOND_NS)
        snprintf(line, sizeof line, "tag \"%s\" was %s on device %d in %.1f s: %s of pages, %s of contents", name,
            order->pause ? "paused" : "resumed", order->device, (double)took_ns / 1e9,
            sg_size_format(order->result.bytes, bytes), sg_size_format(order->result.contents, contents));
    else
        return;
    sg_log_line(line);
}

/* Asks the core, with contents on the host. A device that is full gets what other processes hold idle. */
static CUresult pause_ask(struct order *order, struct sg_contents *contents, bool discard)
{
    const struct sg_backup backup = {.save = discard || order->discards ? NULL : sg_contents_save,
        .restore = sg_contents_are_saved(contents) ? sg_contents_restore : sg_contents_clear,
        .user = contents};
    if (order->pause)
        return sg_core_pause(order->core, order->device, order->tag, /* everything */ sg_captures_any(), &backup,
            &order->result);
    CUresult answer = sg_core_resume(order->core, order->device, order->tag, &backup, &order->result);
    if (answer == CUDA_ERROR_OUT_OF_MEMORY && order->result.why == SG_PAUSE_FULL &&
        sg_trim_ask_others(contents->driver, order->device, order->result.bytes))
        answer = sg_core_resume(order->core, order->device, order->tag, &backup, &order->result);
    return answer;
}

/* Says once that part of a tag stays on its device: what was allocated since the device has fixed segments. */
static void pause_say_segments(const struct order *order, const char *name)
{
    char line[256];
    if (!order->pause || !order->result.changed || !sg_core_left_pages(order->core, order->device) ||
        atomic_exchange(&said_segments, true))
        return;
    snprintf(line, sizeof line,
        "memory of tag \"%s\" stays on device %d as far as it lies in fixed segments: allocated for other processes "
        "(ipc), or since pages were not to be had",
        name, order->device);
    sg_log_line(line);
}

/* Says that part of a tag stays: blocks that the driver has served, where the core could not. */
static void pause_say_passed_on(const struct order *order, const char *name)
{
    char line[256];
    uint32_t bit = UINT32_C(1) << order->tag;
    if (!order->pause || !order->result.changed || !(atomic_fetch_and(&passed_on, ~bit) & bit))
        return;
    snprintf(line, sizeof line,
        "memory of tag \"%s\" stays on its device as far as the driver served it, because pages were not to be had",
        name);
    sg_log_line(line);
}

/* Makes a context of a device current, which is kept from its end until the order is carried out. CUDA_ERROR_INVALID_CONTEXT: there is
   none; then the device has no block either. Another thread may end one while it is looked for. */
static CUresult pause_enter_context(int device, int *ret_use)
{
    CUcontext context = sg_contexts_any(device), tried = NULL;
    *ret_use = -1;
    while (context && context != tried) {
        *ret_use = sg_context_pin_current(context);
        if (*ret_use >= 0)
            return CUDA_SUCCESS;
        tried = context;
        context = sg_contexts_any(device);
    }
    return context ? CUDA_ERROR_NOT_READY : CUDA_ERROR_INVALID_CONTEXT;
}

/* For example, "w" is paused with 8 GiB of contents, and resumed with retain: its host memory stays. The next pause by discard
   gives that up, since zeros are to come back, and a copy of older bytes must not.

   Carries one order out, with a context of the device current, if there is one. */
static CUresult pause_with_context(struct order *order, const char *name, enum sg_tag_keep keep)
{
    CUstreamCaptureMode mode;
    struct sg_contents contents = {.driver = sg_process_driver(),
        .core = order->core,
        .device = order->device,
        .tag = order->tag,
        .name = name,
        .in_files = keep == SG_TAG_FILED};
    bool relaxed = sg_capture_mode_relax(&mode);
    CUresult answer = pause_ask(order, &contents, keep == SG_TAG_DISCARDED);
    /* Contents go once they are back, or where the tag was not paused after they were saved. A pause without contents needs
       nothing of those before. */
    if (order->pause ? contents.saved != order->result.changed : order->result.changed)
        sg_contents_end(&contents, retains && !order->discards);
    if (relaxed)
        sg_capture_mode_restore(&mode);
    return answer;
}

/* Carries one order out. A device whose contexts have ended has no memory to pause. A tag that was paused there before is resumed without
   one: no block is left, and the tag can be allocated again. */
static CUresult pause_carry_out(struct order *order)
{
    int use;
    enum sg_tag_keep keep = SG_TAG_SAVED;
    const char *name = sg_core_tag_name(order->core, order->tag, &keep);
    order->result = (struct sg_pause_result){.why = SG_PAUSE_CANNOT};
    CUresult answer = pause_enter_context(order->device, &use);
    bool gone = answer == CUDA_ERROR_INVALID_CONTEXT;
    if (gone && order->pause) {
        order->result.why = SG_PAUSE_FINE;
        return CUDA_SUCCESS;
    }
    uint64_t began = sg_clock_coarse_ns();
    if (answer == CUDA_SUCCESS || gone)
        answer = pause_with_context(order, name, keep);
    uint64_t took = sg_clock_coarse_ns() - began;
    if (use >= 0)
        sg_context_unpin_current(use);
    if (order->result.changed)
        atomic_fetch_and(&said_refused, ~(UINT32_C(1) << order->tag));
    pause_say(order, answer, name, took);
    pause_say_segments(order, name);
    pause_say_passed_on(order, name);
    return answer;
}

/* True if a tag has that name; NULL: any has. */
static bool pause_names(const struct sg_core *core, uint32_t tag, const char *name)
{
    enum sg_tag_keep keep;
    const char *its = sg_core_tag_name(core, tag, &keep);
    return its && (!name || strcmp(its, name) == 0);
}

/* True if a pause of the tag gives its contents up. */
static bool pause_gives_up(const struct order *order)
{
    enum sg_tag_keep keep = SG_TAG_SAVED;
    (void)sg_core_tag_name(order->core, order->tag, &keep);
    return order->discards || keep == SG_TAG_DISCARDED;
}

/* The next order of a name after this one, by device and tag. False: there is none. */
static bool pause_next(struct order *order, const char *name)
{
    struct sg_tag_figures figures;
    while (order->device < SG_DEVICES_MAX) {
        if (++order->tag == SG_TAGS) {
            order->tag = 0;
            order->device++;
        } else if (pause_names(order->core, order->tag, name) &&
                   sg_core_tag_figures(order->core, order->device, order->tag, &figures)) {
            return true;
        }
    }
    return false;
}

/* For example, "weights" has 3 GiB with backup on device 0, and 1 GiB without on device 1: two tags of that name have 4 GiB, and
   it is no matter whether either is paused. No order is waited for, so the figure may be between two of them. */
uint64_t sg_pause_bytes(struct sg_core *core, const char *name)
{
    struct order at = {.core = core};
    struct sg_tag_figures figures;
    uint64_t bytes = 0;
    while (pause_next(&at, name))
        if (sg_core_tag_figures(core, at.device, at.tag, &figures))
            bytes += figures.requested;
    return bytes;
}

/* Resumes what an order has paused before it failed: `paused` has a bit for each tag of a device. */
static void pause_take_back(struct sg_core *core, const uint32_t *paused)
{
    for (int device = 0; device < SG_DEVICES_MAX; device++) {
        for (uint32_t left = paused[device]; left; left &= left - 1) {
            struct order order = {.core = core, .device = device, .tag = (uint32_t)__builtin_ctz(left)};
            (void)pause_carry_out(&order);
        }
    }
}

/* Why no order can be carried out now; CUDA_SUCCESS: one can. */
static CUresult pause_is_possible(bool pause)
{
    const char *line = NULL;
    CUresult answer = CUDA_SUCCESS;
    if (sg_captures_active()) {
        line = "memory can't be paused or resumed while a stream is captured";
        answer = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    } else if (pause && sg_check_on()) {
        line = "memory can't be paused in a run that checks itself (check)";
        answer = CUDA_ERROR_NOT_SUPPORTED;
    }
    if (line)
        sg_log_line(line);
    return answer;
}

/* True if a tag of the name has pages that others remember, with the reason in a line. Asked before anything is paused: nothing
   is copied, or given up, for a pause that can only fail. */
static bool pause_is_pinned(struct sg_core *core, const char *name)
{
    struct order order = {.core = core, .pause = true};
    while (pause_next(&order, name)) {
        if (!sg_core_tag_is_pinned(core, order.device, order.tag))
            continue;
        order.result.why = SG_PAUSE_PINNED;
        pause_say(&order, CUDA_ERROR_NOT_PERMITTED, sg_core_tag_name(core, order.tag, &(enum sg_tag_keep){0}), 0);
        return true;
    }
    return false;
}

/* Pauses all tags of a name, or none. Those whose contents are saved come first, on all devices: saving may fail, and what
   was given up before it would be lost.

   For example, "kv" is given up and "weights" is saved, for which the host lacks 2 GiB. The pause of both fails, weights are where
   they were, and "kv" has its bytes, since its turn has not come. */
static CUresult pause_each(struct sg_core *core, const char *name, bool discards, uint64_t *ret_bytes)
{
    uint32_t paused[SG_DEVICES_MAX] = {0};
    /* A set of tags for each device, so that what was paused by this order can be told from what was paused before it:
       the latter stays paused where the order fails. */
    CUresult answer = pause_is_pinned(core, name) ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
    for (int gives_up = 0; gives_up <= 1; gives_up++) {
        struct order order = {.core = core, .pause = true, .discards = discards};
        while (answer == CUDA_SUCCESS && pause_next(&order, name)) {
            if (pause_gives_up(&order) != gives_up)
                continue;
            answer = pause_carry_out(&order);
            *ret_bytes += order.result.changed ? order.result.bytes : 0;
            if (order.result.changed)
                paused[order.device] |= UINT32_C(1) << order.tag;
        }
    }
    if (answer != CUDA_SUCCESS)
        pause_take_back(core, paused);
    return answer;
}

/* Resumes the tags of a name until one fails. */
static CUresult resume_each(struct sg_core *core, const char *name, uint64_t *ret_bytes)
{
    struct order order = {.core = core};
    CUresult answer = CUDA_SUCCESS;
    while (answer == CUDA_SUCCESS && pause_next(&order, name)) {
        answer = pause_carry_out(&order);
        *ret_bytes += order.result.changed ? order.result.bytes : 0;
    }
    return answer;
}

/* Carries out an order for a name, on each device. Frees that are due come first, so their pages count as idle. */
static CUresult pause_all(struct sg_core *core, const char *name, bool pause, bool discards, uint64_t *ret_bytes)
{
    CUresult answer = pause_is_possible(pause);
    bool found = !name;
    *ret_bytes = 0;
    if (answer != CUDA_SUCCESS)
        return answer;
    for (uint32_t tag = 1; tag < SG_TAGS && !found; tag++)
        found = pause_names(core, tag, name);
    if (!found)
        return CUDA_ERROR_NOT_FOUND;
    sg_memory_settle(core);
    return pause ? pause_each(core, name, discards, ret_bytes) : resume_each(core, name, ret_bytes);
}

/* One order at a time: each is carried out as a whole. */
static void pause_begin(void)
{
    while (atomic_flag_test_and_set(&ordering))
        sg_rest(REST_NS);
    atomic_fetch_add(&begun, 1);
}

static CUresult pause_tags(struct sg_core *core, const char *name, bool discards, uint64_t *ret_bytes)
{
    pause_begin();
    CUresult answer = pause_all(core, name, /* pause */ true, discards, ret_bytes);
    atomic_flag_clear(&ordering);
    /* All that is idle besides: what is not paused keeps no page that it does not use. */
    for (int device = 0; device < SG_DEVICES_MAX && !name && answer == CUDA_SUCCESS; device++)
        *ret_bytes += sg_core_trim(core, device, 0);
    return answer;
}

CUresult sg_pause_tags(struct sg_core *core, const char *name, uint64_t *ret_bytes)
{
    return pause_tags(core, name, /* discards */ false, ret_bytes);
}

CUresult sg_discard_tags(struct sg_core *core, const char *name, uint64_t *ret_bytes)
{
    return pause_tags(core, name, /* discards */ true, ret_bytes);
}

CUresult sg_resume_tags(struct sg_core *core, const char *name, uint64_t *ret_bytes)
{
    pause_begin();
    CUresult answer = pause_all(core, name, /* pause */ false, /* discards */ false, ret_bytes);
    atomic_flag_clear(&ordering);
    return answer;
}

const void *sg_pause_backup(CUdeviceptr address, uint64_t bytes)
{
    pause_begin();
    const void *found = torn ? NULL : sg_contents_find(address, bytes);
    atomic_flag_clear(&ordering);
    return found;
}

void sg_pause_retain(bool retain)
{
    pause_begin();
    retains = retain;
    atomic_flag_clear(&ordering);
}

CUresult sg_pause_folder(const char *folder, uint64_t staging)
{
    pause_begin();
    bool fine = sg_contents_file_folder(folder, staging);
    atomic_flag_clear(&ordering);
    return fine ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The thread of an order is not in the child, so nobody would end it there. Where none was under way, copies stay to be found.

   For example, a thread pauses "w" while another forks. The child finds no copies of "w", rather than some that were not
   made yet. */
void sg_pause_fork_child(void)
{
    torn = atomic_flag_test_and_set(&ordering) || torn;
    atomic_flag_clear(&ordering);
}

uint32_t sg_pause_orders(void)
{
    return atomic_load(&begun);
}

/* A free must not wait for an order, which may copy for seconds. It may wait for work, too, that the free's own thread is to
   begin. So contents of a block that is freed meanwhile stay until the tag's next order, which lists blocks anew. */
void sg_pause_freed(CUdeviceptr address, uint32_t orders)
{
    if (atomic_flag_test_and_set(&ordering))
        return;
    if (atomic_load(&begun) == orders && !torn)
        sg_contents_freed(address);
    atomic_flag_clear(&ordering);
}

CUresult sg_pause_order(bool pause, const char *name, uint64_t *ret_bytes)
{
    struct sg_core *core = sg_enter();
    if (!core)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult answer = pause ? sg_pause_tags(core, name, ret_bytes) : sg_resume_tags(core, name, ret_bytes);
    sg_leave();
    return answer;
}

void sg_pause_passed_on(uint32_t tag)
{
    if (tag)
        atomic_fetch_or(&passed_on, UINT32_C(1) << tag);
}

void sg_pause_refused(struct sg_core *core, const struct sg_tag *tag, size_t bytes)
{
    char line[224], size[SG_SIZE_TEXT];
    enum sg_tag_keep keep;
    const char *name = sg_core_tag_name(core, tag->memory_tag, &keep);
    uint32_t bit = UINT32_C(1) << tag->memory_tag;
    if (!name || atomic_fetch_or(&said_refused, bit) & bit)
        return;
    snprintf(line, sizeof line,
        "an allocation of %s is refused, because its tag \"%s\" is paused: resume the tag, or allocate outside of it",
        sg_size_format(bytes, size), name);
    sg_log_line(line);
}
