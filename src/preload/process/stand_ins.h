/* Addresses of the program's at which a block of the core's stands, though the core has it elsewhere.

   Nouns. The *shown* address is the one that the program has. The *inner* one is where the core has the block. A
   *stand-in* is a range of addresses at which a block is, or was, shown.

   Why. `check:guard` gives a block pages of its own. The core goes on accounting for the block as for any other: its
   frees, streams, graphs and statistics. So what takes an address of the program's asks here for the inner one first, and
   what answers with an address asks for the shown one. Nothing else knows of it.

   Why here. Rooms on every floor take addresses of the program's: PyTorch's statistics, hooks of copies, frees. So the table
   stands below all of them, and the room that fills it above.

   How. The ranges are in a tree by their first address. Until the first one is put, each question is one load.

   For example, a block of 5,000 bytes is at 0x7f0000400000 in the core. It is shown at 0x7f10001fec00, where the last 5,120
   bytes of a page of 2 MiB begin. cuMemFree of the latter asks, and the core frees 0x7f0000400000. */
#ifndef SG_STAND_INS_H
#define SG_STAND_INS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/keytree.h"
#include "driver/cuda_abi.h"

struct sg_stand_in {
    struct sg_keynode node; /* by `begin` */
    CUdeviceptr begin;      /* of the range, which nobody else has */
    uint64_t bytes;         /* of the range */
    CUdeviceptr shown, inner;
    uint64_t shown_bytes;
    bool live; /* false: it is freed, and stands for nothing */
};

/* True once there was any. No lock. */
extern atomic_bool sg_stand_ins_any __attribute__((visibility("hidden")));

/* The same without a look at that: takes SG_LOCK_GUARD. For a handler that has interrupted its holder nothing stands for
   anything. */
CUdeviceptr sg_stand_ins_inner(CUdeviceptr shown);
CUdeviceptr sg_stand_ins_shown(CUdeviceptr inner);
bool sg_stand_ins_hold(CUdeviceptr address);
bool sg_stand_ins_block(CUdeviceptr shown, CUdeviceptr *ret_base, size_t *ret_bytes);

/* The address by which the core knows a byte of a live block; any other address as it is. */
static inline CUdeviceptr sg_inner(CUdeviceptr shown)
{
    return __builtin_expect(atomic_load_explicit(&sg_stand_ins_any, memory_order_acquire), false)
               ? sg_stand_ins_inner(shown)
               : shown;
}

/* The address by which the program knows the start of a live block; any other address as it is. */
static inline CUdeviceptr sg_shown(CUdeviceptr inner)
{
    return __builtin_expect(atomic_load_explicit(&sg_stand_ins_any, memory_order_acquire), false)
               ? sg_stand_ins_shown(inner)
               : inner;
}

/* True if an address lies in a range of ours, whatever stands there. */
static inline bool sg_is_stand_in(CUdeviceptr address)
{
    return __builtin_expect(atomic_load_explicit(&sg_stand_ins_any, memory_order_acquire), false) &&
           sg_stand_ins_hold(address);
}

/* True if a live block is shown around an address: where it begins, and the bytes that the program asked for. */
static inline bool sg_shown_block(CUdeviceptr shown, CUdeviceptr *ret_base, size_t *ret_bytes)
{
    return __builtin_expect(atomic_load_explicit(&sg_stand_ins_any, memory_order_acquire), false) &&
           sg_stand_ins_block(shown, ret_base, ret_bytes);
}

/* Puts a range of its own into the tree, and takes it out; the struct stays the caller's. ended(): its block is freed.
   lives(): the free was refused. With SG_LOCK_GUARD held; put() is followed by sg_stand_ins_any for good. */
bool sg_stand_ins_put_locked(struct sg_stand_in *stand_in);
void sg_stand_ins_take_locked(struct sg_stand_in *stand_in);
void sg_stand_ins_ended_locked(struct sg_stand_in *stand_in);
bool sg_stand_ins_lives_locked(struct sg_stand_in *stand_in);

/* The range that an address lies in; NULL. And the live block that the core has there. With SG_LOCK_GUARD held. */
struct sg_stand_in *sg_stand_ins_at_locked(CUdeviceptr address);
struct sg_stand_in *sg_stand_ins_of_locked(CUdeviceptr inner);

#endif
