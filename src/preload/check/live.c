/* SG_LOCK_CHECK guards the table, as it does the counts of references.

   For example, 1,000 bytes are allocated at A, in a block of 1,536: sg_live_bytes(A, 1,536) is 1,000. The tail of 512 bytes
   counts for its device until the block is taken out. */
#include "check/live.h"

#include <stdatomic.h>

#include "base/idmap.h"
#include "check/samples.h"
#include "process/locks.h"

static struct sg_idmap live; /* address to block; guarded by SG_LOCK_CHECK */
static _Atomic uint64_t tails[SG_DEVICES_MAX]; /* bytes; changed under SG_LOCK_CHECK */

bool sg_live_begin(void)
{
    return sg_idmap_init(&live);
}

uint64_t sg_live_tails(int device)
{
    return atomic_load_explicit(&tails[device], memory_order_relaxed);
}

/* A block comes to the table, or has left it. Under SG_LOCK_CHECK. */
static void live_count_tail(const struct sg_freed *block, bool comes)
{
    if (block->fill.has_tail && comes)
        tails[block->device] += SG_TAIL;
    else if (block->fill.has_tail)
        tails[block->device] -= SG_TAIL;
}

size_t sg_live_bytes(CUdeviceptr base, size_t room)
{
    sg_process_lock(SG_LOCK_CHECK);
    const struct sg_freed *block = (const struct sg_freed *)(uintptr_t)sg_idmap_get(&live, base);
    size_t bytes = block ? block->bytes : room;
    sg_process_unlock(SG_LOCK_CHECK);
    return bytes;
}

struct sg_freed *sg_live_take(CUdeviceptr address)
{
    sg_process_lock(SG_LOCK_CHECK);
    struct sg_freed *block = (struct sg_freed *)(uintptr_t)sg_idmap_take(&live, address);
    if (block)
        live_count_tail(block, false);
    sg_process_unlock(SG_LOCK_CHECK);
    return block;
}

void sg_live_forget(CUdeviceptr address)
{
    struct sg_freed *former = sg_live_take(address);
    if (former)
        sg_live_drop(former);
}

void sg_live_put(struct sg_freed *block)
{
    sg_process_lock(SG_LOCK_CHECK);
    struct sg_freed *former = (struct sg_freed *)(uintptr_t)sg_idmap_take(&live, block->base);
    if (former) { /* its context has ended, and the memory serves again */
        live_count_tail(former, false);
        sg_shadow_unref(&sg_check_shadow, former);
    }
    if (sg_idmap_put(&live, block->base, (uintptr_t)block))
        live_count_tail(block, true);
    else
        sg_shadow_unref(&sg_check_shadow, block);
    sg_process_unlock(SG_LOCK_CHECK);
}

struct sg_freed *sg_live_find(CUdeviceptr base)
{
    return (struct sg_freed *)(uintptr_t)sg_idmap_get(&live, base);
}

void sg_live_drop(struct sg_freed *block)
{
    sg_process_lock(SG_LOCK_CHECK);
    sg_shadow_unref(&sg_check_shadow, block);
    sg_process_unlock(SG_LOCK_CHECK);
}

struct sg_freed *sg_live_at(struct sg_core *core, CUdeviceptr address, bool *ret_live, bool *ret_gone)
{
    struct sg_block_info info;
    *ret_gone = false;
    CUresult found = sg_core_block(core, address, &info);
    sg_process_lock(SG_LOCK_CHECK);
    struct sg_freed *block = NULL;
    *ret_live = found == CUDA_SUCCESS;
    if (*ret_live)
        block = (struct sg_freed *)(uintptr_t)sg_idmap_get(&live, info.base);
    if (block)
        block->refs++;
    else
        block = sg_shadow_at(&sg_check_shadow, address);
    if (!block && !*ret_live) { /* the core has given it up with its context */
        block = (struct sg_freed *)(uintptr_t)sg_idmap_get(&live, address);
        *ret_gone = block != NULL;
        if (block)
            block->refs++;
    }
    sg_process_unlock(SG_LOCK_CHECK);
    return block;
}

uint64_t sg_canary_pitch(const struct sg_freed *block)
{
    return block->fill.room - SG_CANARY - block->bytes;
}

void sg_live_reused(CUdeviceptr address, size_t bytes)
{
    sg_process_lock(SG_LOCK_CHECK);
    struct sg_freed *block = (struct sg_freed *)(uintptr_t)sg_idmap_get(&live, address);
    if (block) {
        block->bytes = bytes;
        block->canary = false;
    }
    sg_process_unlock(SG_LOCK_CHECK);
}
