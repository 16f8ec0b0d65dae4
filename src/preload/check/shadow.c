/* Pieces stand in one tree by place. Structs are carved from host memory of the kernel's, and unused ones are kept.

   Why one tree for all pages. A block may lie on many pages, and a page has many blocks. With places that never come
   again there is nothing to move when a page moves, and a page's end is one range of places to forget.

   For example, 2 pages of 4 MiB come one after the other: places 2 to 6 MiB and 6 to 10 MiB. A block of 5 MiB at their
   start is freed. Its bytes are one row of addresses, looked up chunk by chunk: three pieces, of 2, 2 and 1 MiB. */
#include "check/shadow.h"

#include "base/meta.h"

enum { CHUNK_SHIFT = 21, CARVE_BYTES = 1 << 18, HELD_MOST = 1 << 22 };
#define CHUNK (UINT64_C(1) << CHUNK_SHIFT)
#define PLACE_IS_ADDRESS (UINT64_C(1) << 62) /* for memory that is in no chunk */

struct piece {
    struct sg_keynode node; /* major: the place of the first byte; also links unused ones */
    uint64_t bytes, offset; /* offset in the freed block */
    struct sg_freed *freed;
};

struct page {
    uint64_t chunk, chunks;
    uint32_t maps; /* addresses that it stands at */
    bool held;     /* by its handle */
    CUmemGenericAllocationHandle handle;
};

bool sg_shadow_begin(struct sg_shadow *shadow)
{
    shadow->next_chunk = 1;
    shadow->begun = sg_idmap_init(&shadow->chunks) && sg_idmap_init(&shadow->pages) &&
        sg_idmap_init(&shadow->handles) && sg_idmap_init(&shadow->segments);
    return shadow->begun;
}

/* Links `bytes` of new memory as unused structs of `size`; the first word of each is the link. */
static void *shadow_carve(size_t size)
{
    char *memory = sg_meta_map(CARVE_BYTES);
    void *list = NULL;
    for (size_t at = 0; memory && at + size <= CARVE_BYTES; at += size) {
        *(void **)(void *)(memory + at) = list;
        list = memory + at;
    }
    return list;
}

/* A piece of zeros; NULL: no host memory, or more structs in use than a shadow may take. */
static struct piece *piece_new(struct sg_shadow *shadow)
{
    if (!shadow->unused_pieces && shadow->held < HELD_MOST)
        shadow->unused_pieces = shadow_carve(sizeof(struct piece));
    struct piece *piece = shadow->unused_pieces;
    if (!piece)
        return NULL;
    shadow->unused_pieces = *(void **)piece;
    shadow->held++;
    *piece = (struct piece){.bytes = 0};
    return piece;
}

struct sg_freed *sg_shadow_freed(struct sg_shadow *shadow)
{
    if (!shadow->unused_freed && shadow->held < HELD_MOST)
        shadow->unused_freed = shadow_carve(sizeof(struct sg_freed));
    struct sg_freed *freed = shadow->unused_freed;
    if (!freed)
        return NULL;
    shadow->unused_freed = freed->next;
    shadow->held++;
    *freed = (struct sg_freed){.refs = 1};
    return freed;
}

void sg_shadow_unref(struct sg_shadow *shadow, struct sg_freed *freed)
{
    if (--freed->refs)
        return;
    freed->next = shadow->unused_freed;
    shadow->unused_freed = freed;
    shadow->held--;
}

/* Gives a piece, which is in no tree, and its reference back. */
static void piece_drop(struct sg_shadow *shadow, struct piece *piece)
{
    sg_shadow_unref(shadow, piece->freed);
    *(void **)piece = shadow->unused_pieces;
    shadow->unused_pieces = piece;
    shadow->held--;
}

static uint64_t piece_begin(const struct piece *piece)
{
    return piece->node.major;
}

static uint64_t piece_end(const struct piece *piece)
{
    return piece->node.major + piece->bytes;
}

/* The first piece that ends behind `place`, or NULL. */
static struct piece *piece_at(const struct sg_shadow *shadow, uint64_t place)
{
    struct sg_keynode *next = sg_keytree_at_least(&shadow->pieces, place, 0);
    struct sg_keynode *before = next ? sg_keytree_prev(next) : sg_keytree_last(&shadow->pieces);
    if (before && piece_end((struct piece *)before) > place)
        return (struct piece *)before;
    return (struct piece *)next;
}

/* Notes `bytes` bytes at `place` as those of a freed block from `offset` on. No other piece may be there. */
static bool piece_insert(struct sg_shadow *shadow, struct sg_freed *freed, uint64_t place, uint64_t bytes,
    uint64_t offset)
{
    struct piece *piece = piece_new(shadow);
    if (!piece)
        return false;
    piece->bytes = bytes;
    piece->offset = offset;
    piece->freed = freed;
    freed->refs++;
    sg_keytree_insert(&shadow->pieces, &piece->node, place, 0);
    return true;
}

/* Cuts [begin, end) out of the piece that begins the overlap: what is left on both sides stays. Without host memory for
   the right side that is forgotten. */
static void piece_cut(struct sg_shadow *shadow, struct piece *piece, uint64_t begin, uint64_t end)
{
    uint64_t from = piece_begin(piece), to = piece_end(piece);
    if (to > end)
        (void)piece_insert(shadow, piece->freed, end, to - end, piece->offset + (end - from));
    if (from < begin) {
        piece->bytes = begin - from;
    } else {
        sg_keytree_erase(&shadow->pieces, &piece->node);
        piece_drop(shadow, piece);
    }
}

/* Forgets what is known of the places [begin, end). For example, a piece at 0 to 100 and another at 100 to 200: clear(50,
   150) leaves 0 to 50 and 150 to 200. */
static void shadow_clear(struct sg_shadow *shadow, uint64_t begin, uint64_t end)
{
    for (struct piece *piece; (piece = piece_at(shadow, begin)) && piece_begin(piece) < end;)
        piece_cut(shadow, piece, begin, end);
}

/* The place of an address, and in *ret_bytes how far it goes on there, at most `bytes`. */
static uint64_t shadow_place(const struct sg_shadow *shadow, CUdeviceptr address, uint64_t bytes, uint64_t *ret_bytes)
{
    uint64_t left = CHUNK - (address & (CHUNK - 1)), chunk = sg_idmap_get(&shadow->chunks, address >> CHUNK_SHIFT);
    *ret_bytes = left < bytes ? left : bytes;
    return chunk ? (chunk << CHUNK_SHIFT) + (address & (CHUNK - 1)) : PLACE_IS_ADDRESS | address;
}

void sg_shadow_created(struct sg_shadow *shadow, CUmemGenericAllocationHandle handle, uint64_t bytes)
{
    struct page *page = bytes % CHUNK ? NULL : (struct page *)(void *)piece_new(shadow);
    _Static_assert(sizeof(struct page) <= sizeof(struct piece), "a page takes the struct of a piece");
    if (!page)
        return;
    *page = (struct page){.chunk = shadow->next_chunk, .chunks = bytes >> CHUNK_SHIFT, .held = true, .handle = handle};
    shadow->next_chunk += page->chunks;
    (void)sg_idmap_put(&shadow->pages, page->chunk, (uintptr_t)page);
    (void)sg_idmap_put(&shadow->handles, handle, (uintptr_t)page);
}

/* Forgets a page that has neither a handle nor an address any more. Its places are not used again. */
static void page_drop(struct sg_shadow *shadow, struct page *page)
{
    if (page->maps || page->held)
        return;
    shadow_clear(shadow, page->chunk << CHUNK_SHIFT, (page->chunk + page->chunks) << CHUNK_SHIFT);
    (void)sg_idmap_take(&shadow->pages, page->chunk);
    *(void **)page = shadow->unused_pieces;
    shadow->unused_pieces = page;
    shadow->held--;
}

void sg_shadow_released(struct sg_shadow *shadow, CUmemGenericAllocationHandle handle)
{
    struct page *page = (struct page *)(uintptr_t)sg_idmap_take(&shadow->handles, handle);
    if (!page)
        return;
    page->held = false;
    page_drop(shadow, page);
}

/* Only whole pages are mapped by the core. */
void sg_shadow_mapped(struct sg_shadow *shadow, CUdeviceptr address, uint64_t bytes, uint64_t offset,
    CUmemGenericAllocationHandle handle)
{
    struct page *page = (struct page *)(uintptr_t)sg_idmap_get(&shadow->handles, handle);
    if (!page || offset || address % CHUNK || bytes != page->chunks << CHUNK_SHIFT)
        return;
    page->maps++;
    for (uint64_t i = 0; i < page->chunks; i++)
        (void)sg_idmap_put(&shadow->chunks, (address >> CHUNK_SHIFT) + i, page->chunk + i);
}

void sg_shadow_unmapped(struct sg_shadow *shadow, CUdeviceptr address, uint64_t bytes)
{
    for (CUdeviceptr at = address; at < address + bytes; at += CHUNK) {
        uint64_t chunk = sg_idmap_take(&shadow->chunks, at >> CHUNK_SHIFT);
        struct page *page = chunk ? (struct page *)(uintptr_t)sg_idmap_get(&shadow->pages, chunk) : NULL;
        if (page) {
            page->maps--;
            page_drop(shadow, page);
        }
    }
    shadow_clear(shadow, PLACE_IS_ADDRESS | address, (PLACE_IS_ADDRESS | address) + bytes);
}

void sg_shadow_segment(struct sg_shadow *shadow, CUdeviceptr address, uint64_t bytes)
{
    (void)sg_idmap_put(&shadow->segments, address, bytes);
}

void sg_shadow_segment_gone(struct sg_shadow *shadow, CUdeviceptr address)
{
    uint64_t bytes = sg_idmap_take(&shadow->segments, address);
    shadow_clear(shadow, PLACE_IS_ADDRESS | address, (PLACE_IS_ADDRESS | address) + bytes);
}

void sg_shadow_put(struct sg_shadow *shadow, struct sg_freed *freed)
{
    for (uint64_t done = 0, bytes; done < freed->fill.room; done += bytes) {
        uint64_t place = shadow_place(shadow, freed->base + done, freed->fill.room - done, &bytes);
        shadow_clear(shadow, place, place + bytes);
        (void)piece_insert(shadow, freed, place, bytes, done);
    }
}

struct sg_freed *sg_shadow_at(struct sg_shadow *shadow, CUdeviceptr address)
{
    uint64_t one, place = shadow_place(shadow, address, 1, &one);
    struct piece *piece = piece_at(shadow, place);
    if (!piece || piece_begin(piece) > place)
        return NULL;
    piece->freed->refs++;
    return piece->freed;
}

void sg_shadow_forget(struct sg_shadow *shadow, CUdeviceptr address, uint64_t bytes)
{
    for (uint64_t done = 0, run; done < bytes; done += run) {
        uint64_t place = shadow_place(shadow, address + done, bytes - done, &run);
        shadow_clear(shadow, place, place + run);
    }
}

bool sg_shadow_ends_at(const struct sg_shadow *shadow, CUdeviceptr end, unsigned *ret_place)
{
    uint64_t one, place = shadow_place(shadow, end - 1, 1, &one);
    const struct piece *piece = piece_at(shadow, place);
    if (!piece || piece_begin(piece) > place ||
        piece->offset + (place - piece_begin(piece)) + 1 != piece->freed->fill.room)
        return false;
    *ret_place = piece->freed->fill.place;
    return true;
}

/* The parts that are written so far. */
struct taking {
    struct sg_part *part;
    size_t count, room, blocks, blocks_most;
};

/* Adds a part: to the last one where it goes on there, or as a new one where there is something to look at. False: there is
   no room for it. */
static bool taking_add(struct taking *taking, const struct sg_part *part)
{
    struct sg_part *last = taking->count ? &taking->part[taking->count - 1] : NULL;
    if (last && last->freed == part->freed && last->offset + last->bytes == part->offset &&
        last->address + last->bytes == part->address) {
        last->bytes += part->bytes;
        return true;
    }
    bool is_new = true;
    for (size_t i = 0; i < taking->count; i++)
        is_new &= taking->part[i].freed != part->freed;
    if (!sg_fill_reaches(&part->freed->fill, part->offset, part->bytes) && !(is_new && part->freed->marks.count))
        return true;
    if (taking->count == taking->room || taking->blocks + is_new > taking->blocks_most)
        return false;
    taking->part[taking->count++] = *part;
    taking->blocks += is_new;
    part->freed->refs++;
    return true;
}

size_t sg_shadow_take(struct sg_shadow *shadow, CUdeviceptr address, uint64_t bytes, struct sg_part *ret, size_t room,
    size_t blocks, uint64_t *ret_bytes)
{
    struct taking taking = {.part = ret, .room = room, .blocks_most = blocks};
    for (uint64_t done = 0, run; done < bytes; done += run) {
        uint64_t place = shadow_place(shadow, address + done, bytes - done, &run), end = place + run;
        for (struct piece *piece; (piece = piece_at(shadow, place)) && piece_begin(piece) < end;) {
            uint64_t begin = piece_begin(piece) > place ? piece_begin(piece) : place;
            uint64_t until = piece_end(piece) < end ? piece_end(piece) : end;
            const struct sg_part part = {piece->freed, piece->offset + (begin - piece_begin(piece)),
                address + done + (begin - place), until - begin};
            if (!taking_add(&taking, &part)) {
                *ret_bytes = part.address - address;
                return taking.count;
            }
            piece_cut(shadow, piece, begin, until);
        }
    }
    *ret_bytes = bytes;
    return taking.count;
}
