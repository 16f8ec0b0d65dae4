/* The life of a guarded block, as far as it is decided here: whether it gets pages, when they go, what its slack says.

   A step that fails leaves the block where the core has it, and takes back what was done. The order of a free matters: the
   block leaves the table of stand-ins before the core frees it, since the core may give the same bytes to another thread's
   guarded block at once.

   One block from begin to end. A program asks for 5,000 bytes on stream 7. The draw says that they are to be guarded.

      1. The core gives 5,632 bytes at A, the tail of `canary` with them. It has the block in its books as any other.
      2. sg_guard_given() takes an unused guard, reserves 4 MiB at R and maps a page of 2 MiB there. The block is shown
         at R + 2,092,032, and 5,120 bytes behind that is the gap.
      3. A stream of ours writes 120 bytes of 0xdb at R + 2,097,032, the slack. Nobody waits for that.
      4. The program has R + 2,092,032. Kernels, copies and sets work there, and A lies idle.
      5. The program frees it. sg_inner() says A, and the gates of a free are gone through for A. sg_guard_freeing() takes
         the block out of the stand-ins: A may be another block's as soon as the core has freed it.
      6. The core has freed A in the order of stream 7. Events are recorded over both contexts of the process. The guard is
         FREED, number 12.
      7. Two allocations later both events have passed. 120 bytes of slack are read and are 0xdb still. The page is
         unmapped and released, and the guard is GONE: 4 MiB of addresses at R have no memory.
      8. A kernel that still has the pointer reads R + 2,092,032, and the GPU stops with error 700. The next call of the
         program gets it, and faults.c says who allocated and who freed what is there.
      9. 1,024 frees of guarded blocks later the 4 MiB of addresses are the driver's again.

   Why events over all contexts, and not the order of the free alone. A free in the order of a stream lets that stream have
   the memory at once. Here the memory is taken from all of them, so whatever was queued before the free has to be over. */
#include "check/guard.h"

#include "base/clock.h"
#include "base/rest.h"
#include "check/findings.h"
#include "check/frees.h"
#include "check/guard_choice.h"
#include "check/guard_pages.h"
#include "check/guard_table.h"
#include "check/guard_wait.h"
#include "check/live.h"
#include "check/read_back.h"
#include "check/samples.h"
#include "check/state.h"
#include "check/work.h"
#include "inspect/inventory.h"
#include "process/hooks.h"
#include "process/process.h"
#include "sites/note.h"
#include "sites/sites.h"
#include "track/captures.h"
#include "track/context_pins.h"
#include "track/contexts.h"

enum {
    UNIT = 512,               /* bytes: blocks begin at multiples of it, as the core's do */
    SETTLED_AT_ONCE = 4,      /* blocks whose pages go back in one call of the program's */
    PATIENCE_NS = 1000000000, /* of a thorough run for the work before a free */
    REST_NS = 20000
};

void sg_guard_open(const struct sg_conf *conf)
{
    if (!(conf->check & SG_CHECK_GUARD))
        return;
    sg_guard_choice_open(conf);
    sg_guard_begin();
}

bool sg_guard_wants(size_t bytes)
{
    return bytes && sg_guard_on() && sg_guard_choose(bytes);
}

/* Allocations. */

/* A block that fills its last unit has no slack: 4,096 bytes end at the gap, and the first byte behind them is an error of the
   GPU. The slack of 5,000 bytes is 120.

   Writes the canary into the slack, on a stream of ours that waits for nobody. The program's own writes come after it: else an
   overrun that comes first would be written over. So it is waited for, 2 s at most. A driver whose thread
   gets no time on a busy host is late by milliseconds. A slack that takes longer is not checked. */
static void write_slack(struct sg_guard *guard, const struct sg_tag *tag)
{
    uint64_t slack = guard->at.begin + guard->mapped - guard->at.shown - guard->block->bytes;
    bool vain = sg_samples_waits_are_vain();
    struct sg_lane *lane = slack && !vain ? sg_work_enter(tag->context) : NULL;
    if (slack && vain)
        sg_check_left_out(SG_LEFT_OUT_RING);
    if (!lane)
        return;
    struct sg_reader reader = {.lane = lane, .stream = sg_lane_reads(lane), .kept_all = true};
    bool written = sg_reader_begin(&reader) &&
                   sg_work_went_well(sg_real()->cuMemsetD8Async(guard->at.shown + guard->block->bytes, SG_CANARY_BYTE,
                       slack, reader.stream));
    sg_reader_send(&reader);
    sg_work_leave();
    sg_reader_settle(&reader);
    guard->block->canary = written && !reader.gave_up;
    if (!guard->block->canary)
        sg_check_left_out(SG_LEFT_OUT_RING);
}

/* Notes who the block is for, and lets the program have it.

   The start is a multiple of 512 bytes, as that of all blocks is: texture loads and PyTorch's vector loads rely on it. So up to
   511 bytes of slack stay between the block and the gap. */
static bool guard_begins(struct sg_guard *guard, int device, const struct sg_tag *tag, size_t bytes, CUdeviceptr inner)
{
    sg_process_lock(SG_LOCK_CHECK);
    struct sg_freed *block = sg_shadow_freed(&sg_check_shadow);
    sg_process_unlock(SG_LOCK_CHECK);
    if (!block)
        return false;
    guard->at.inner = inner;
    guard->at.shown = guard->at.begin + guard->mapped - (bytes + UNIT - 1) / UNIT * UNIT;
    guard->at.shown_bytes = bytes;
    guard->context = tag->context;
    guard->block = block;
    block->device = device;
    block->base = guard->at.shown;
    block->bytes = bytes;
    block->fill.room = guard->at.begin + guard->mapped - guard->at.shown;
    block->allocated = sg_check_note_now(tag);
    write_slack(guard, tag);
    return sg_guards_live(guard);
}

bool sg_guard_given(struct sg_core *core, int device, const struct sg_tag *tag, size_t bytes, CUdeviceptr *address)
{
    struct sg_stand_in end;
    if (sg_captures_active())
        return sg_guard_not(SG_UNGUARDED_CAPTURE);
    if (!sg_guard_pages_serve(device, *address))
        return sg_guard_not(SG_UNGUARDED_DEVICE);
    if (!sg_guard_pages_have_room(device, bytes))
        return sg_guard_not(SG_UNGUARDED_ROOM);
    struct sg_guard *guard = sg_guards_new(&end);
    if (!guard)
        return sg_guard_not(SG_UNGUARDED_ROOM);
    sg_guard_pages_end(&end);
    if (!sg_guard_pages_take(guard, device, bytes)) {
        sg_guards_unused(guard);
        return sg_guard_not(SG_UNGUARDED_DRIVER);
    }
    if (!guard_begins(guard, device, tag, bytes, *address)) {
        sg_guard_pages_give(guard, device);
        sg_guard_pages_end(&guard->at);
        sg_guards_unused(guard);
        return sg_guard_not(SG_UNGUARDED_DRIVER);
    }
    *address = guard->at.shown;
    sg_guard_one_more();
    sg_core_count(core, device, SG_STAT_check_guarded, 1);
    sg_guard_pages_note(core, device);
    return true;
}

/* Frees. */

struct sg_guard *sg_guard_freeing(struct sg_core *core, CUdeviceptr inner, const struct sg_tag *tag)
{
    static const char *const orders[] = {
        [SG_FREE_SYNC_STRICT] = "after a wait",
        [SG_FREE_SYNC_EVENT] = "after all work",
        [SG_FREE_SYNC_STREAM] = "in the order of its stream",
        [SG_FREE_SYNC_COMPLETE] = "after a wait of the caller",
    };
    struct sg_guard *guard = sg_guards_take(inner);
    if (!guard)
        return NULL;
    if (sg_sites_on)
        sg_sites_note(sg_this_thread());
    guard->block->freed = sg_check_note_now(tag);
    sg_check_count_free(core, guard->block->device);
    guard->block->order = orders[tag->sync];
    return guard;
}

/* The core has not freed the block. It has it still, unless the context has ended meanwhile.

   For example, a capture begins between the look at it and the core's wait. The core refuses, the free is put off, and the
   program's kernels in that capture may use the block: it is shown again, with its pages. */
static bool goes_on(struct sg_core *core, struct sg_guard *guard)
{
    struct sg_block_info info;
    if (sg_core_block(core, guard->at.inner, &info) != CUDA_SUCCESS || info.base != guard->at.inner)
        return false;
    guard->block->freed = (struct sg_check_note){0};
    return sg_guards_live(guard);
}

/* Reads the slack back, as the work before the free is over, and compares it with what was written. False: the copy may be
   under way still. */
static bool read_slack(struct sg_guard *guard)
{
    struct sg_freed *block = guard->block;
    int use = block->canary ? sg_context_pin_current(guard->context) : -1;
    bool over = true;
    struct sg_lane *lane = use >= 0 ? sg_work_enter(guard->context) : NULL;
    if (lane) {
        struct sg_reader reader = {.lane = lane,
            .stream = sg_lane_reads(lane),
            .kept_all = true,
            .now = {block->base, 0, block->freed}};
        sg_reader_add(&reader, (struct sg_sample){.freed = block,
                                   .canary = true,
                                   .offset = block->bytes,
                                   .address = block->base + block->bytes,
                                   .bytes = (uint32_t)(block->fill.room - block->bytes),
                                   .rows = 1});
        sg_reader_send(&reader);
        sg_work_leave();
        sg_reader_settle(&reader);
        over = !reader.gave_up;
    }
    if (use >= 0)
        sg_context_unpin_current(use);
    block->canary = false;
    return over;
}

/* Gives back the pages of up to so many blocks. */
static bool guard_settle(unsigned most)
{
    bool any = false;
    for (unsigned i = 0; i < most && sg_guard_on() && !sg_captures_active(); i++) {
        struct sg_guard *guard = sg_guards_take_freed();
        if (!guard)
            break;
        if (!sg_guard_wait_ended(guard)) {
            sg_guards_back(guard);
            break;
        }
        if (!read_slack(guard)) { /* that copy is waited for as the program's work was */
            sg_guards_renumber(guard);
            sg_guard_wait_begins(guard, false);
            sg_guards_freed_again(guard);
            continue;
        }
        int device = guard->block->device;
        sg_guard_pages_give(guard, device);
        sg_guards_gone(guard);
        sg_core_count(sg_process_core(), device, SG_STAT_check_quarantined, 1);
        any = true;
    }
    for (struct sg_guard *old; (old = sg_guards_take_surplus());) {
        sg_guard_pages_end(&old->at);
        sg_guards_unused(old);
    }
    return any;
}

/* A free that has waited for the only context leaves nothing to wait for. A caller that has waited by itself has waited for the
   program's work, and not for the write of the slack. */
void sg_guard_freed(struct sg_core *core, struct sg_guard *guard, const struct sg_tag *tag, bool done)
{
    if (!done && goes_on(core, guard))
        return;
    uint64_t until = sg_check_thorough() ? sg_clock_ns() + PATIENCE_NS : 0, number = guard->number;
    sg_guard_wait_begins(guard, done && tag->sync == SG_FREE_SYNC_STRICT && sg_contexts_only() == tag->context);
    sg_guards_freed(guard);
    sg_guard_settle();
    while (until && !sg_guard_wait_is_over(number) && sg_clock_ns() < until && !sg_captures_active() && sg_guard_on()) {
        sg_rest(REST_NS);
        (void)guard_settle(SG_GUARDS);
    }
}

void sg_guard_settle(void)
{
    if (sg_guard_on())
        (void)guard_settle(SETTLED_AT_ONCE);
}

/* For example, a program waits for stream 1 after each step, while a kernel of stream 2 runs for a minute. The first such wait
   takes 100 microseconds more, for the event over stream 2's work has not passed. The others take none, until another guarded
   block is freed.

   Work that outlasts a wait stands behind something that the program has yet to do. So the next wait comes only after another
   free. */
bool sg_guard_settle_all(uint64_t limit_ns)
{
    static _Atomic uint64_t in_vain, in_vain_ns; /* number of the last free that was waited for so, and how long */
    if (!sg_guard_on() || !sg_guards_await())
        return false;
    uint64_t number = sg_guards_frees(), until = sg_clock_ns() + limit_ns;
    bool again = atomic_load_explicit(&in_vain, memory_order_relaxed) == number &&
                 atomic_load_explicit(&in_vain_ns, memory_order_relaxed) >= limit_ns;
    bool any = guard_settle(SG_GUARDS);
    while (!again && sg_guard_on() && sg_guards_await() && !sg_captures_active() && sg_clock_ns() < until) {
        sg_rest(REST_NS);
        any |= guard_settle(SG_GUARDS);
    }
    if (!again && sg_guards_await()) {
        atomic_store_explicit(&in_vain, number, memory_order_relaxed);
        atomic_store_explicit(&in_vain_ns, limit_ns, memory_order_relaxed);
    }
    return any;
}

void sg_guard_poll(uint64_t limit_ns)
{
    struct sg_core *core = sg_enter();
    if (!core)
        return;
    (void)sg_guard_settle_all(limit_ns);
    sg_leave();
}

/* The core frees what the context had. Nobody may use it any more, so its pages go as after a free.

   For example, context C ends with two guarded blocks, one live and one freed with events over C and D. The event over C has
   gone with it, so the freed block waits for D alone. The live one is freed "with its context", and waits for D too. */
void sg_guard_context_gone(CUcontext context)
{
    sg_guard_wait_without(context);
    if (sg_sites_on)
        sg_sites_note(sg_this_thread()); /* the call that ends the context; else it would be the last free's place */
    for (struct sg_guard *guard; (guard = sg_guards_take_of(context));) {
        guard->block->freed = sg_check_note_now(&(struct sg_tag){0});
        guard->block->order = "with its context";
        guard->with_context = true;
        sg_guards_freed(guard);
    }
}

/* Uses of what is freed, by calls that name an address. */

/* Says it, as by this thread, which is inside. The finding has the place where the block was named, which is the mistake or next to
   it, since the call is the program's own. A kernel's use of a block has no such place. */
static void guard_say(enum sg_finding_kind kind, const struct sg_guard_view *view, CUdeviceptr address,
    const struct sg_tag *tag, const char *call)
{
    if (sg_sites_on)
        sg_sites_note(sg_this_thread());
    const struct sg_check_block now = {.address = address, .note = sg_check_note_now(tag)};
    const struct sg_finding finding = {.kind = kind,
        .device = view->block->device,
        .block = view->block,
        .now = &now,
        .address = address,
        .offset = address - view->base,
        .call = call};
    sg_findings_add(&finding);
}

/* Only what is shown is looked at: an address of the core's is none of the program's. For example, the program frees byte 512 of a
   guarded block. The core would find the middle of its own block, and name an address that the program has never seen. */
bool sg_guard_refuses(CUdeviceptr address, const struct sg_tag *tag)
{
    struct sg_guard_view view;
    if (!sg_guard_on() || !sg_guards_at(address, &view))
        return false;
    bool refused = view.freed || address != view.base;
    enum sg_finding_kind kind = !view.freed || address != view.base ? SG_FINDING_WRONG_FREE
                                : view.with_context                 ? SG_FINDING_GONE_FREE
                                                                    : SG_FINDING_DOUBLE_FREE;
    if (refused)
        guard_say(kind, &view, address, tag, NULL);
    sg_live_drop(view.block);
    return refused;
}

void sg_guard_used(CUdeviceptr address, const char *call)
{
    struct sg_guard_view view;
    if (!sg_guard_on() || sg_thread_inside() || sg_this_thread()->guards || !sg_guards_at(address, &view))
        return;
    struct sg_core *core = view.freed ? sg_enter() : NULL;
    if (core) {
        guard_say(SG_FINDING_USE_AFTER_FREE, &view, address, &(struct sg_tag){0}, call);
        sg_leave();
    }
    sg_live_drop(view.block);
}
