/* Blocks: how they are allocated, used and freed, and what remains of them while work may touch them. */
#include "play.h"

#include <stdlib.h>

#include "rooms.h"

static void drop_spans(struct play_block *block)
{
    if (block->span != block->few)
        free(block->span);
    block->span = NULL;
}

static void find_spans(struct play_block *block)
{
    static struct books_span spans[1 << 15];
    block->spans = books_spans(block->address, block->bytes, block->device, spans, sizeof spans / sizeof *spans);
    block->span = block->few;
    if (block->spans > sizeof block->few / sizeof *block->few)
        block->span = malloc(block->spans * sizeof *block->span);
    if (!block->span)
        abort();
    block->lowest = UINT64_MAX;
    block->highest = 0;
    for (uint32_t i = 0; i < block->spans; i++) {
        block->span[i] = spans[i];
        block->lowest = spans[i].begin < block->lowest ? spans[i].begin : block->lowest;
        block->highest = spans[i].end > block->highest ? spans[i].end : block->highest;
    }
}

void play_allocate(const struct fuzz_op *op)
{
    struct play_block *block = &play.block[op->block];
    bool of_stream = play_is_alive(op->stream);
    int stream = of_stream ? op->stream : -1, device = of_stream ? play_device_of(op->stream) : op->other;
    if (block->bytes || device >= play.setup->devices)
        return;
    int context = of_stream ? work.stream[stream].context : play_some_context(device);
    if (context < 0)
        return;
    play_make_current(context);
    bool known = of_stream && !(op->flags & FUZZ_UNKNOWN);
    const struct sg_tag tag = {.context = play_context_handle(context),
        .slot = known ? play.slot[stream] : 0,
        .has_stream = known,
        .stream = known ? play_stream_handle(stream) : NULL,
        .sync = SG_FREE_SYNC_STREAM,
        .overflow = sg_conf_overflows(&play.conf) && op->block % 4};
    CUdeviceptr address = 0;
    play.asked = op->bytes;
    struct verify_aliases before = verify_aliases_now(device);
    CUresult result = sg_core_malloc(play.core, device, op->bytes, &tag, &address);
    play.asked = 0;
    verify_aliased(device, &before, address);
    play_digest(result);
    play.done++;
    if (result != CUDA_SUCCESS) {
        play.refused++;
        if (address)
            books_breaks("an output is changed by a call that failed");
        verify_refused(device, op->bytes, &tag);
        if (op->block % 2)
            (void)sg_core_return_from(play.core, device);
        return;
    }
    play_digest(address);
    play.allocated++;
    *block = (struct play_block){.address = address, .bytes = op->bytes, .device = (int8_t)device,
        .context = (int8_t)context, .stream = known ? (int8_t)stream : -1};
    if (known)
        block->alloc_seq = work_up_to(stream);
    find_spans(block);
    verify_given(block);
    play.live[play.lives++] = op->block;
    play.requested[device] += op->bytes;
    if (known && op->flags & FUZZ_WORKS)
        play_submit((unsigned)stream, block, true);
}

struct play_block *play_live_block(const struct fuzz_op *op)
{
    return op->block < play.blocks && play.block[op->block].address ? &play.block[op->block] : NULL;
}

/* Whether a block is in a fixed segment. A device that gave its pages up has blocks of both kinds. */
static bool is_fixed(const struct play_block *block)
{
    return sg_core_segments_at(play.core, block->address) != NULL;
}

static void forget_complete(void)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < play.pasts; i++) {
        if (work_is_complete(&play.past[i].touched)) {
            drop_spans(&play.past[i]);
            continue;
        }
        if (left != i) {
            play.past[left] = play.past[i];
            if (play.past[i].span == play.past[i].few)
                play.past[left].span = play.past[left].few;
        }
        left++;
    }
    play.pasts = left;
}

void play_bury(struct play_block *block)
{
    uint32_t number = (uint32_t)(block - play.block);
    play.requested[block->device] -= block->bytes;
    for (uint32_t i = 0; i < play.lives; i++)
        if (play.live[i] == number)
            play.live[i--] = play.live[--play.lives];
    forget_complete();
    if (work_is_complete(&block->touched)) {
        drop_spans(block);
    } else {
        if (play.pasts == play.past_room) {
            uint32_t room = play.past_room ? 2 * play.past_room : 64;
            struct play_block *past = malloc(room * sizeof *past);
            if (!past)
                abort();
            for (uint32_t i = 0; i < play.pasts; i++) {
                past[i] = play.past[i];
                if (past[i].spans <= sizeof past[i].few / sizeof *past[i].few)
                    past[i].span = past[i].few;
            }
            free(play.past);
            play.past = past;
            play.past_room = room;
        }
        struct play_block *past = &play.past[play.pasts++];
        *past = *block;
        if (block->span == block->few)
            past->span = past->few;
    }
    block->address = 0;
}

static bool is_ordered_after(unsigned stream, const struct play_block *block)
{
    if (!play_is_alive(stream) || play_device_of(stream) != block->device)
        return false;
    struct work_after next = work_up_to((int)stream);
    for (uint32_t i = 0; i < work.streams; i++)
        if (block->touched.work[i] > work.stream[i].complete && block->touched.work[i] > next.work[i])
            return false;
    return true;
}

void play_free(const struct fuzz_op *op)
{
    struct play_block *block = play_live_block(op);
    struct sg_tag tag = {.context = play_current_handle(),
        .missed_calls = play.setup->missed_calls,
        .user_rule = play.setup->sees_possible ? SG_USERS_POSSIBLE : SG_USERS_RECORDED};
    if (!block)
        return;
    /* what the stream came after may still touch it */
    struct work_after own = block->stream < 0 ? work_of_context(-1) : work_up_to(block->stream);
    switch (op->other) {
    case FUZZ_FREE_STREAM:
        tag.sync = block->stream < 0 ? SG_FREE_SYNC_EVENT : SG_FREE_SYNC_STREAM;
        break;
    case FUZZ_FREE_STRICT:
        tag.sync = SG_FREE_SYNC_STRICT;
        if (is_fixed(block))
            work_finish(&block->touched); /* of a fixed segment: it waits for its context alone, as natively */
        break;
    case FUZZ_FREE_AUTO:
        tag.sync = work_is_complete(&block->touched) && work_is_complete(&own) ? SG_FREE_SYNC_COMPLETE
                                                                               : SG_FREE_SYNC_STREAM;
        break;
    case FUZZ_FREE_STEP:
        tag.sync = SG_FREE_SYNC_STREAM;
        if (is_ordered_after(op->stream, block)) {
            tag.slot = play.slot[op->stream];
            tag.in_order = true;
        } else if (block->stream < 0) {
            tag.sync = SG_FREE_SYNC_EVENT;
        }
        break;
    default:
        tag.sync = SG_FREE_SYNC_EVENT;
        break;
    }
    play.freed = block;
    CUresult result = sg_core_free(play.core, block->address, &tag);
    play.freed = NULL;
    play_digest(result);
    play.done++;
    if (result == CUDA_SUCCESS) {
        CUdeviceptr address = block->address;
        play_bury(block);
        if (sg_core_free(play.core, address, &tag) == CUDA_SUCCESS)
            books_breaks("a block is freed twice");
    } else if (!books_failed()) {
        books_breaks("a live block cannot be freed");
    }
}

/* Whether what a stream is given next comes after all that the block's own was given before the allocation: perhaps
   because it did so before the block was allocated, and the other was given nothing between. */
static bool comes_after_allocation(unsigned user, const struct play_block *block)
{
    for (uint32_t i = 0; i < work.streams; i++)
        if (block->alloc_seq.work[i] > work.stream[user].after.work[i] &&
            block->alloc_seq.work[i] > play.host.work[i] &&
            i != user)
            return false;
    return true;
}

/* Names the user of a block; false: the core knows of no such stream. */
static void name_user(struct play_block *block, unsigned user, bool unnamed)
{
    sg_slot slot = unnamed ? 0 : play.slot[user];
    CUresult result = sg_core_record_stream(play.core, block->address, slot);
    if (result == CUDA_ERROR_NOT_FOUND) /* in a fixed segment */
        sg_core_used_cross_device(play.core, block->address);
    else if (result != CUDA_SUCCESS)
        books_breaks("a live block's user cannot be named");
}

/* Another stream than the block's own uses it. */
static void use_elsewhere(const struct fuzz_op *op, struct play_block *block)
{
    unsigned user = op->stream, own = (unsigned)block->stream;
    const struct work_after before = work.stream[user].after;
    bool possible = play.setup->sees_possible, alive = play_is_alive(own);
    if (!play_is_told(own))
        return; /* who may have come after that one is not known */
    if (possible && is_fixed(block) && work.stream[user].context != work.stream[own].context)
        return; /* a free in a fixed segment waits for its context alone, as natively */
    work_come_after_by_rules((int)user); /* as what it is given now does */
    if (!possible && alive && work_is_by_legacy_rules((int)user, (int)own) && op->flags & FUZZ_WAITED_FOR) {
        play_submit(user, block, true); /* so what its own stream is given next comes after that, its end too */
        return;
    }
    if (alive && play_is_told(user) && op->flags & FUZZ_WAITS) { /* as programs do */
        struct play_event now;
        play_record(&now, own);
        play_follow(&now, user);
    }
    if ((play_is_unseen(user) || work.stream[own].nature == FUZZ_OPAQUE) && alive && op->flags & FUZZ_WORKS) {
        struct work_after after = work_up_to((int)own); /* nobody is told */
        work_come_after((int)user, &after);
    } else if (!comes_after_allocation(user, block)) {
        work.stream[user].after = before;
        return;
    }
    if (!possible && alive && play_is_told(user) && op->flags & FUZZ_WAITED_FOR) {
        struct play_event done; /* its own stream waits, so nobody has to be told of the user */
        play_submit(user, block, true);
        play_record(&done, user);
        play_follow(&done, own);
        return;
    }
    if (!possible)
        name_user(block, user, op->flags & FUZZ_UNNAMED);
    play_submit(user, block, true);
}

void play_use(const struct fuzz_op *op)
{
    struct play_block *block = play_live_block(op);
    if (!block || !play_is_alive(op->stream) || play_device_of(op->stream) != block->device)
        return;
    if (block->stream < 0 && is_fixed(block) && work.stream[op->stream].context != block->context)
        return; /* in a fixed segment, as below */
    play.done++;
    if (op->stream == block->stream || block->stream < 0)
        play_submit(op->stream, block, true);
    else
        use_elsewhere(op, block);
}

void play_abroad(const struct fuzz_op *op)
{
    const struct play_block *block = play_live_block(op);
    if (block)
        sg_core_used_cross_device(play.core, block->address);
    play.done += block != NULL;
}

void play_forget_all(void)
{
    for (uint32_t i = 0; i < play.pasts; i++)
        drop_spans(&play.past[i]);
    play.pasts = 0;
}
