/* Limits, idle memory and access to it, and questions that change nothing. */
#include "inspect/core_state.h"
#include "play.h"

void play_limit(const struct fuzz_op *op)
{
    struct sg_stats stats;
    int device = op->other;
    uint64_t bytes = op->bytes;
    if (device >= play.setup->devices)
        return;
    uint64_t before = sg_core_stats(play.core, device, &stats) ? stats.value[SG_STAT_reserved_bytes] : 0,
             set = sg_core_set_limit(play.core, device, bytes);
    play.most_reserved[device] = before;
    if (set > bytes)
        books_breaks("another limit is in force than was asked for");
    play_digest(set);
    play.done++;
}

void play_trim(const struct fuzz_op *op)
{
    int device = op->other;
    if (device >= play.setup->devices)
        return;
    if (play_some_context(device) >= 0)
        play_make_current(play_some_context(device));
    play_digest(sg_core_trim(play.core, device, op->bytes));
    verify_trimmed(device, op->bytes);
    play.done++;
}

void play_look(const struct fuzz_op *op)
{
    static struct sg_piece piece[512];
    char text[4096];
    struct play_block *block = play_live_block(op);
    struct sg_block_info info;
    for (int device = 0; device < play.setup->devices; device++) {
        play_digest(sg_core_pieces(play.core, device, piece, op->bytes % 512));
        play_digest(sg_core_oom_text(play.core, device, NULL, text, op->bytes % sizeof text));
        play_digest(sg_core_limit(play.core, device) + sg_core_is_limited(play.core, device));
    }
    play.done++;
    if (!block)
        return;
    if (sg_core_block(play.core, block->address + op->bytes % block->bytes, &info) != CUDA_SUCCESS ||
        info.base != block->address || info.bytes != block->bytes || info.device != block->device ||
        info.context != play_context_handle(block->context) || !sg_core_owns(play.core, block->address))
        books_breaks("a live block is not what it was asked for");
}

void play_free_badly(const struct fuzz_op *op)
{
    struct play_block *block = play_live_block(op);
    const struct sg_tag tag = {.context = play_current_handle(), .sync = SG_FREE_SYNC_EVENT,
        .tentative = op->other & 1};
    CUdeviceptr address = block ? block->address + 1 + op->bytes % (block->bytes ? block->bytes : 1) : op->bytes;
    for (uint32_t i = 0; i < play.lives; i++)
        if (play.block[play.live[i]].address == address)
            return;
    if (sg_core_free(play.core, address, &tag) == CUDA_SUCCESS)
        books_breaks("what is no block can be freed");
    play.done++;
}

void play_pin(const struct fuzz_op *op)
{
    struct play_block *block = play_live_block(op);
    if (block)
        sg_core_pin(play.core, block->address, op->bytes / 2 < block->bytes ? op->bytes : block->bytes);
    play.done += block != NULL;
}

void play_mem_info(const struct fuzz_op *op)
{
    int device = op->other;
    if (device >= play.setup->devices || play_some_context(device) < 0)
        return;
    play_make_current(play_some_context(device));
    size_t free_bytes = play.setup->total - books_used(device), total_bytes = play.setup->total;
    sg_core_mem_info(play.core, device, &free_bytes, &total_bytes);
    if (free_bytes > total_bytes || total_bytes > play.setup->total)
        books_breaks("more is said to be free than there is");
    play_digest(free_bytes);
    play.done++;
}

void play_peer(const struct fuzz_op *op)
{
    if (play.setup->devices < 2 || op->other >= play.setup->devices)
        return;
    CUresult result = sg_core_peer_access(play.core, op->other, 1 - op->other, op->bytes != 0);
    if (result == CUDA_SUCCESS)
        play.peers[op->other] = op->bytes != 0;
    play_digest(result);
    play.done++;
}

