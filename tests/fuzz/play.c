#include "inspect/core_state.h"
#include "play.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/conf_read.h"

struct play play;

static const char *const kind_names[] = {
#define OP(name, text) #name,
#include "ops.def"
};

const char *fuzz_kind_name(enum fuzz_kind kind)
{
    return kind_names[kind];
}

static bool record_begin(void)
{
    return !play.capturing;
}

static void record_end(void)
{
}

static bool begin_aside(CUresult (*run)(void *user), void *user)
{
    if (play.aside)
        return false;
    play.aside = run;
    play.aside_user = user;
    return true;
}

static int enter_context(CUcontext context)
{
    int number = (int)(uintptr_t)context - 1, before = books_current();
    if (!play.context[number].alive)
        return -1;
    play_make_current(number);
    return before;
}

static void leave_context(int use)
{
    play_make_current(use);
}

enum { BOUND = 12 };

/* Waits for a context, but not where much is to be waited for. */
static CUresult wait_for_context(CUcontext context)
{
    int number = context ? (int)(uintptr_t)context - 1 : books_current();
    struct work_after all = work_of_context(number);
    uint64_t left = 0;
    for (uint32_t i = 0; i < work.streams; i++)
        left += all.work[i] > work.stream[i].complete ? all.work[i] - work.stream[i].complete : 0;
    if (left > BOUND)
        return CUDA_ERROR_NOT_READY;
    work_finish(&all);
    return CUDA_SUCCESS;
}

static uint64_t now_ns(void)
{
    static uint64_t now;
    return now += 100;
}

static void on_unmap(CUdeviceptr address, uint64_t bytes)
{
    play.moved++;
    for (uint32_t i = 0; i < play.lives; i++) {
        const struct play_block *block = &play.block[play.live[i]];
        bool in_use = block != play.freed || !work_is_complete(&block->touched);
        if (in_use && block->address < address + bytes && address < block->address + block->bytes)
            books_breaks("memory is taken from under a live block");
    }
    for (uint32_t i = 0; i < play.pasts; i++) {
        const struct play_block *past = &play.past[i];
        if (past->address < address + bytes && address < past->address + past->bytes &&
            !work_is_complete(&past->touched))
            books_breaks("memory is taken from an address that queued work can touch");
    }
}

/* The other device, with what nobody uses of it but for 1/16. */
static bool find_neighbour(int device, uint64_t peers, uint64_t among, int *ret_device, uint64_t *ret_room)
{
    int other = 1 - device;
    uint64_t used = books_used(other) + play.setup->total / 16;
    (void)peers;
    if (play.setup->devices < 2 || !(among >> other & 1))
        return false;
    *ret_device = other;
    *ret_room = play.setup->total > used ? play.setup->total - used : 0;
    return true;
}

static void make_core(void)
{
    const struct fuzz_setup *setup = play.setup;
    struct sg_core_params params = {.conf = &play.conf,
        .callbacks = {.now_ns = now_ns,
            .record_begin = record_begin,
            .record_end = record_end,
            .neighbour = find_neighbour},
        .driver = setup->older ? &books_older_driver : &books_driver};
    sg_conf_init(&play.conf);
    if (sg_conf_apply(&play.conf, SG_CONF_ARGUMENT, setup->conf, NULL, NULL))
        books_breaks("the configuration is not understood");
    if (setup->bounded)
        params.callbacks.wait_for_context = wait_for_context;
    if (setup->contexts) {
        params.callbacks.begin_aside = begin_aside;
        params.callbacks.enter_context = enter_context;
        params.callbacks.leave_context = leave_context;
    }
    play.core = sg_core_create(&params);
    if (!play.core)
        abort();
}

static void start(const struct fuzz_program *program)
{
    const struct fuzz_setup *setup = &program->setup;
    uint32_t blocks = 0;
    struct play kept = play;
    for (uint32_t i = 0; i < program->ops; i++)
        blocks = program->op[i].kind == FUZZ_ALLOCATE && program->op[i].block >= blocks ? program->op[i].block + 1
                                                                                        : blocks;
    memset(&play, 0, sizeof play);
    play.setup = setup;
    play.blocks = blocks;
    play.block = kept.block;
    play.live = kept.live;
    play.past = kept.past;
    play.past_room = kept.past_room;
    play.block = realloc(play.block, (blocks + 1) * sizeof *play.block);
    play.live = realloc(play.live, (blocks + 1) * sizeof *play.live);
    if (!play.block || !play.live)
        abort();
    memset(play.block, 0, (blocks + 1) * sizeof *play.block);
    play.digest = UINT64_C(0xcbf29ce484222325);
    work_reset();
    books_reset(setup->devices, setup->total, setup->granularity, setup->contexts > 0);
    books_on_unmap = on_unmap;
    books_on_create = verify_made;
    make_core();
    play.context[0].alive = true;
    for (int i = 0; i < setup->contexts; i++)
        play_meet_context(i, i % setup->devices);
    for (int i = 0; i < setup->streams; i++)
        play_meet_stream(i, setup->nature[i], setup->contexts ? setup->context_of[i] % setup->contexts : 0);
    for (int i = 0; i < FUZZ_DEVICES; i++)
        play.most_reserved[i] = UINT64_MAX;
}

void play_aside(void)
{
    CUresult (*run)(void *user) = play.aside;
    play.aside = NULL;
    if (run)
        play_digest(run(play.aside_user));
}

static void poll(const struct fuzz_op *op)
{
    sg_core_poll(play.core, op->other);
}

static void capture(const struct fuzz_op *op)
{
    play.capturing = op->bytes != 0;
}

static void outside(const struct fuzz_op *op)
{
    if (op->other < play.setup->devices)
        books_outside(op->other, op->bytes);
}

static void fault(const struct fuzz_op *op)
{
    if (op->other < BOOKS_CALL_COUNT)
        books_fail(op->other, op->bytes, op->flags & FUZZ_FOR_EVER);
}

static void host_fault(const struct fuzz_op *op)
{
    host_fail(op->bytes);
    play.unsure = true;
}

static void reset_peaks(const struct fuzz_op *op)
{
    if (op->other < play.setup->devices)
        sg_core_reset_peaks(play.core, op->other);
}

static void do_aside(const struct fuzz_op *op)
{
    (void)op;
    play_aside();
}

static void (*const does[FUZZ_KINDS])(const struct fuzz_op *op) = {
    [FUZZ_ALLOCATE] = play_allocate, [FUZZ_FREE] = play_free, [FUZZ_USE] = play_use, [FUZZ_WORK] = play_work,
    [FUZZ_PROGRESS] = play_progress, [FUZZ_RECORD] = play_event_op, [FUZZ_WAIT] = play_event_op,
    [FUZZ_EVENT_QUERY] = play_event_op, [FUZZ_EVENT_SYNC] = play_event_op, [FUZZ_STREAM_SYNC] = play_stream_idle,
    [FUZZ_STREAM_QUERY] = play_stream_idle, [FUZZ_CONTEXT_SYNC] = play_sync_context,
    [FUZZ_STREAM_NEW] = play_new_stream, [FUZZ_STREAM_GONE] = play_end_stream, [FUZZ_CONTEXT_NEW] = play_new_context,
    [FUZZ_CONTEXT_GONE] = play_end_context, [FUZZ_CONTEXT_CURRENT] = play_use_context, [FUZZ_TRIM] = play_trim,
    [FUZZ_POLL] = poll, [FUZZ_MEM_INFO] = play_mem_info, [FUZZ_LIMIT] = play_limit, [FUZZ_PIN] = play_pin,
    [FUZZ_PEER] = play_peer, [FUZZ_CAPTURE] = capture, [FUZZ_OUTSIDE] = outside, [FUZZ_FAULT] = fault,
    [FUZZ_HOST_FAULT] = host_fault, [FUZZ_ABROAD] = play_abroad, [FUZZ_RESET_PEAKS] = reset_peaks,
    [FUZZ_ASIDE] = do_aside, [FUZZ_LOOK] = play_look, [FUZZ_BAD_FREE] = play_free_badly};

/* Everything goes: blocks, work, what is idle, and the core. */
static void finish(void)
{
    struct work_after all = work_of_context(-1);
    books_heal();
    play.host_faults = host_heal();
    play.capturing = false;
    for (int device = 0; device < play.setup->devices; device++)
        books_outside(device, 0);
    for (uint32_t i = 0; play.lives && i < play.blocks; i++)
        if (play.block[i].address)
            play_free(&(struct fuzz_op){.block = i, .other = i % 3 == 0 ? FUZZ_FREE_STREAM : FUZZ_FREE_EVENT});
    work_finish(&all);
    play_aside();
    for (int device = 0; device < play.setup->devices; device++) {
        sg_core_poll(play.core, device);
        for (int context = 0; context < FUZZ_CONTEXTS; context++)
            play_sync_context(&(struct fuzz_op){.other = (uint8_t)context});
        sg_core_poll(play.core, device);
        play_trim(&(struct fuzz_op){.other = (uint8_t)device});
    }
    verify_empty();
    sg_core_destroy(play.core);
    verify_gone();
    play_forget_all();
}

/* What was given to the streams `lag` operations ago is complete. */
static void fall_behind(uint8_t lag)
{
    uint32_t *then = play.works[play.step % lag];
    for (uint32_t i = 0; i < work.streams; i++) {
        struct work_after until = {{0}};
        until.work[i] = then[i];
        work_finish(&until);
        then[i] = work.stream[i].works;
    }
}

void fuzz_play(const struct fuzz_program *program, struct fuzz_outcome *ret)
{
    uint32_t every = program->setup.check_every, checks = 0;
    start(program);
    for (play.step = 0; play.step < program->ops && !books_broken(); play.step++) {
        does[program->op[play.step].kind](&program->op[play.step]);
        if (program->setup.lag)
            fall_behind(program->setup.lag);
        if (every && play.step % every == 0 && !books_broken())
            verify(checks++ % 32 == 31 ? SG_CHECK_TABLES : SG_CHECK_EXTENTS);
    }
    *ret = (struct fuzz_outcome){.at = play.step};
    if (!books_broken())
        verify(program->setup.slots ? SG_CHECK_BUCKETS : SG_CHECK_TABLES);
    if (!books_broken())
        finish();
    if (books_broken())
        snprintf(ret->broken, sizeof ret->broken, "%s", books_broken());
    ret->digest = play.digest;
    ret->done = play.done;
    ret->allocated = play.allocated;
    ret->refused = play.refused;
    ret->moved = play.moved;
    ret->faults = books_failed() + play.host_faults;
}
