/* For example, two blocks were given stand-ins. The tree has their ranges, at 0x7f1000000000 and 0x7f1000800000, of 4 MiB each.
   The table has the core's addresses of both, 0x7f0000400000 and 0x7f0000402000. The first one is freed: the table has the
   second one alone, and the tree still has both. An address in the first range leads to a stand-in that is not live.

   One tree for the program's addresses, and a table from the core's. A block that is freed leaves the table at once, since
   the core may give its bytes to another one. Its range stays in the tree for as long as nobody else has it. */
#include "process/stand_ins.h"

#include "base/idmap.h"
#include "process/locks.h"
#include "process/thread.h"

atomic_bool sg_stand_ins_any;
static struct sg_keytree ranges;
static struct sg_idmap by_inner; /* start of a live block in the core -> its struct */

/* False: this is a signal handler, and what it has interrupted holds the lock. */
static bool stand_ins_lock(void)
{
    if (sg_this_thread()->guards >> SG_LOCK_GUARD & 1)
        return false;
    sg_process_lock(SG_LOCK_GUARD);
    return true;
}

/* The range with the highest start that is not above the address is the only one that can hold it. */
struct sg_stand_in *sg_stand_ins_at_locked(CUdeviceptr address)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_GUARD);
    struct sg_keynode *after = sg_keytree_at_least(&ranges, address + 1, 0);
    struct sg_keynode *node = after ? sg_keytree_prev(after) : sg_keytree_last(&ranges);
    struct sg_stand_in *found = node ? (struct sg_stand_in *)(void *)((char *)node - offsetof(struct sg_stand_in, node))
                                     : NULL;
    return found && address - found->begin < found->bytes ? found : NULL;
}

struct sg_stand_in *sg_stand_ins_of_locked(CUdeviceptr inner)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_GUARD);
    return by_inner.entry ? (struct sg_stand_in *)(uintptr_t)sg_idmap_get(&by_inner, inner) : NULL;
}

/* A block of the core's is shown at one place at most, so its entry is new, or the one that was taken before its free. */
bool sg_stand_ins_lives_locked(struct sg_stand_in *stand_in)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_GUARD);
    stand_in->live = (by_inner.entry || sg_idmap_init(&by_inner)) &&
                     sg_idmap_put(&by_inner, stand_in->inner, (uintptr_t)stand_in);
    return stand_in->live;
}

bool sg_stand_ins_put_locked(struct sg_stand_in *stand_in)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_GUARD);
    if (!sg_stand_ins_lives_locked(stand_in))
        return false;
    sg_keytree_insert(&ranges, &stand_in->node, stand_in->begin, 0);
    atomic_store_explicit(&sg_stand_ins_any, true, memory_order_release);
    return true;
}

void sg_stand_ins_ended_locked(struct sg_stand_in *stand_in)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_GUARD);
    if (stand_in->live)
        (void)sg_idmap_take(&by_inner, stand_in->inner);
    stand_in->live = false;
}

void sg_stand_ins_take_locked(struct sg_stand_in *stand_in)
{
    sg_stand_ins_ended_locked(stand_in);
    sg_keytree_erase(&ranges, &stand_in->node);
}

/* The live block that is shown around an address; NULL. The slack behind a block is none of it, as the rest of the last unit is
   none of any block of the core's. */
static const struct sg_stand_in *shown_locked(CUdeviceptr shown)
{
    const struct sg_stand_in *found = sg_stand_ins_at_locked(shown);
    return found && found->live && shown - found->shown < found->shown_bytes ? found : NULL;
}

CUdeviceptr sg_stand_ins_inner(CUdeviceptr shown)
{
    if (!stand_ins_lock())
        return shown;
    const struct sg_stand_in *found = shown_locked(shown);
    CUdeviceptr inner = found ? found->inner + (shown - found->shown) : shown;
    sg_process_unlock(SG_LOCK_GUARD);
    return inner;
}

bool sg_stand_ins_block(CUdeviceptr shown, CUdeviceptr *ret_base, size_t *ret_bytes)
{
    if (!stand_ins_lock())
        return false;
    const struct sg_stand_in *found = shown_locked(shown);
    if (found) {
        *ret_base = found->shown;
        *ret_bytes = found->shown_bytes;
    }
    sg_process_unlock(SG_LOCK_GUARD);
    return found != NULL;
}

CUdeviceptr sg_stand_ins_shown(CUdeviceptr inner)
{
    if (!stand_ins_lock())
        return inner;
    const struct sg_stand_in *found = sg_stand_ins_of_locked(inner);
    CUdeviceptr shown = found ? found->shown : inner;
    sg_process_unlock(SG_LOCK_GUARD);
    return shown;
}

bool sg_stand_ins_hold(CUdeviceptr address)
{
    if (!stand_ins_lock())
        return false;
    bool holds = sg_stand_ins_at_locked(address) != NULL;
    sg_process_unlock(SG_LOCK_GUARD);
    return holds;
}
