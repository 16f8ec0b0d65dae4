#include "ledger_device.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/meta.h"
#include "base/size.h"

enum { ADDRESS_ALIGN = 2 << 20 };

struct hole {
    struct sg_keynode node; /* major: the address */
    uint64_t size;
};

static struct hole *hole_of(struct sg_keynode *node)
{
    return (struct hole *)(void *)node; /* its first member */
}

void sg_ledger_device_init(struct sg_ledger_device *card, uint64_t capacity)
{
    *card = (struct sg_ledger_device){.capacity = capacity, .segments_end = SG_TIB,
        .last_reservation = UINT64_C(1) << 62};
}

void sg_ledger_device_clear(struct sg_ledger_device *card)
{
    for (struct sg_keynode *node; (node = sg_keytree_first(&card->holes));) {
        sg_keytree_erase(&card->holes, node);
        free(hole_of(node));
    }
}

/* Bytes that nobody has. */
static uint64_t card_unused(const struct sg_ledger_device *card)
{
    uint64_t left = card->capacity - card->used;
    return left > card->outside ? left - card->outside : 0;
}

/* Takes bytes; false: there are not so many. */
static bool card_take(struct sg_ledger_device *card, uint64_t bytes)
{
    if (bytes > card_unused(card))
        return false;
    card->used += bytes;
    if (card->used > card->peak)
        card->peak = card->used;
    return true;
}

static void card_give(struct sg_ledger_device *card, uint64_t bytes)
{
    assert(bytes <= card->used);
    card->used -= bytes;
}

/* Segments begin at multiples of 2 MiB, as on the machine that the addresses are modelled after. */
static uint64_t card_aligned(uint64_t bytes)
{
    return (bytes + ADDRESS_ALIGN - 1) / ADDRESS_ALIGN * ADDRESS_ALIGN;
}

/* An address for a segment: the lowest hole that fits, else behind all segments. */
static uint64_t card_place(struct sg_ledger_device *card, uint64_t size)
{
    for (struct sg_keynode *node = sg_keytree_first(&card->holes); node; node = sg_keytree_next(node)) {
        struct hole *hole = hole_of(node);
        uint64_t address = node->major;
        if (hole->size < size)
            continue;
        sg_keytree_erase(&card->holes, node);
        hole->size -= size;
        if (hole->size)
            sg_keytree_insert(&card->holes, node, address + size, 0);
        else
            free(hole);
        return address;
    }
    card->segments_end += size;
    return card->segments_end - size;
}

/* Leaves a hole, joined with those beside it. Without host memory for it the hole is forgotten: addresses are plentiful. */
static void card_leave_hole(struct sg_ledger_device *card, uint64_t address, uint64_t size)
{
    /* The holes on both sides: one behind joins the new one, one in front takes it in. */
    struct sg_keynode *after = sg_keytree_at_least(&card->holes, address, 0);
    struct sg_keynode *before = after ? sg_keytree_prev(after) : sg_keytree_last(&card->holes);
    if (after && after->major == address + size) {
        size += hole_of(after)->size;
        sg_keytree_erase(&card->holes, after);
        free(hole_of(after));
    }
    if (before && before->major + hole_of(before)->size == address) {
        hole_of(before)->size += size;
        return;
    }
    struct hole *hole = sg_meta_noted(malloc(sizeof *hole));
    if (!hole)
        return;
    hole->size = size;
    sg_keytree_insert(&card->holes, &hole->node, address, 0);
}

/* cudaMalloc: the call counts, whether it fits or not. */
static int card_segment_alloc(void *user, uint64_t bytes, uint64_t *ret_address)
{
    struct sg_ledger_device *card = user;
    card->calls[SG_TORCH_CUDA_MALLOC]++;
    if (!card_take(card, bytes))
        return -ENOMEM;
    *ret_address = card_place(card, card_aligned(bytes));
    return 0;
}

static void card_segment_free(void *user, uint64_t address, uint64_t bytes)
{
    struct sg_ledger_device *card = user;
    card->calls[SG_TORCH_CUDA_FREE]++;
    card_give(card, bytes);
    card_leave_hole(card, address, card_aligned(bytes));
}

/* cuMemAddressReserve, which takes no memory and never fails here. */
static int card_reserve(void *user, uint64_t bytes, uint64_t *ret_address)
{
    struct sg_ledger_device *card = user;
    card->calls[SG_TORCH_ADDRESS_RESERVE]++;
    /* Downwards from 2^62, far from segments, which begin at 1 TiB. */
    card->last_reservation -= card_aligned(bytes);
    *ret_address = card->last_reservation;
    return 0;
}

static void card_unreserve(void *user, uint64_t address, uint64_t bytes)
{
    struct sg_ledger_device *card = user;
    (void)address;
    (void)bytes;
    card->calls[SG_TORCH_ADDRESS_FREE]++;
}

/* PyTorch creates every chunk before it maps the first, and releases those it has when one fails. */
static int card_map(void *user, uint64_t address, uint64_t bytes, uint64_t chunk)
{
    struct sg_ledger_device *card = user;
    (void)address;
    uint64_t chunks = bytes / chunk, room = card_unused(card) / chunk, made = chunks < room ? chunks : room;
    card->calls[SG_TORCH_CREATE] += made;
    (void)card_take(card, made * chunk);
    if (made < chunks) {
        card->calls[SG_TORCH_CREATE]++;
        card->calls[SG_TORCH_RELEASE] += made;
        card_give(card, made * chunk);
        return -ENOMEM;
    }
    card->calls[SG_TORCH_MAP] += chunks;
    card->calls[SG_TORCH_SET_ACCESS]++;
    return 0;
}

/* PyTorch waits for the stream first, and unmaps and releases each chunk by a call of its own. */
static void card_unmap(void *user, uint64_t address, uint64_t bytes, uint64_t chunk, uint64_t stream)
{
    struct sg_ledger_device *card = user;
    (void)address;
    (void)stream;
    card->calls[SG_TORCH_STREAM_SYNCHRONIZE]++;
    card->calls[SG_TORCH_UNMAP] += bytes / chunk;
    card->calls[SG_TORCH_RELEASE] += bytes / chunk;
    card_give(card, bytes);
}

const struct sg_torch_ops sg_ledger_device_ops = {
    .segment_alloc = card_segment_alloc,
    .segment_free = card_segment_free,
    .reserve = card_reserve,
    .unreserve = card_unreserve,
    .map = card_map,
    .unmap = card_unmap,
};
