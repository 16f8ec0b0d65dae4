/* Copies go piece by piece, and within a piece up to the end of what is registered. A table has the kept memory of each
   tag and device. One order at a time is carried out, and changes entries. A free does so between orders.

   For example, a chunk is 256 MiB. A piece of 300 MiB at offset 100 MiB: [0, 256) MiB are registered, 156 MiB are copied.
   The next chunk is registered while that copy runs, and the other 144 MiB follow. */
#include "serve/contents.h"

#include <sys/mman.h>

#include "base/meta.h"
#include "serve/contents_copies.h"
#include "serve/contents_file.h"

enum { CHUNK = 256 << 20 };

/* One mapping. Chunks are registered in order, so that all up to `registered` is. */
struct span {
    unsigned char *host; /* NULL: it was given back */
    uint64_t bytes, registered;
    const struct sg_driver *driver;
};

/* One piece of kept memory. `span` has its place. */
struct kept_piece {
    CUdeviceptr address;
    uint64_t bytes, offset;
    size_t span;
};

static struct kept {
    struct span *span;
    struct kept_piece *piece;
    size_t spans, count;
    bool saved; /* the tag was saved, and is not back since */
} kept_of[SG_DEVICES_MAX][SG_TAGS];

/* The kept memory of a tag, empty or not. */
static struct kept *contents_kept(const struct sg_contents *contents)
{
    return &kept_of[contents->device][contents->tag];
}

static void span_drop(struct span *span)
{
    if (!span->host)
        return;
    for (uint64_t at = 0; at < span->registered; at += CHUNK)
        (void)span->driver->host_unregister(span->host + at);
    (void)munmap(span->host, span->bytes);
    span->host = NULL;
}

/* Gives back all that is kept, and forgets it. */
static void kept_drop(struct kept *kept)
{
    for (size_t i = 0; i < kept->spans; i++)
        span_drop(&kept->span[i]);
    if (kept->spans)
        sg_contents_count(-1);
    sg_meta_unmap(kept->span, kept->spans * sizeof *kept->span);
    sg_meta_unmap(kept->piece, kept->count * sizeof *kept->piece);
    *kept = (struct kept){0};
}

/* Gives back the spans in which no piece stands. Spans keep their places in the table, since pieces name them by it.

   For example, span 0 has a piece of 8 MiB and span 1 one of 5 MiB, whose block is freed. Span 1 is unmapped, and the next new
   one is span 2. Once the block of 8 MiB is freed, the table goes. */
static void kept_drop_empty(struct kept *kept)
{
    size_t left = kept->spans;
    for (size_t i = 0; i < kept->spans; i++) {
        bool used = false;
        for (size_t j = 0; j < kept->count && !used; j++)
            used = kept->piece[j].span == i && kept->piece[j].bytes;
        if (!used)
            span_drop(&kept->span[i]);
        left -= !kept->span[i].host;
    }
    if (left == 0)
        kept_drop(kept);
}

void sg_contents_end(const struct sg_contents *contents, bool retain)
{
    struct kept *kept = contents_kept(contents);
    sg_contents_file_end(contents);
    if (retain)
        kept->saved = false;
    else
        kept_drop(kept);
}

/* Registers the next chunk, if the driver can; copies do without it too. Returns up to where copies may go now. */
static uint64_t span_register(struct span *span, uint64_t from)
{
    const struct sg_driver *driver = span->driver;
    if (from < span->registered)
        return span->registered;
    uint64_t bytes = span->bytes - from < CHUNK ? span->bytes - from : CHUNK;
    if (from == span->registered && driver->host_register && driver->host_unregister &&
        driver->host_register(span->host + from, bytes, 0) == CUDA_SUCCESS)
        span->registered += bytes;
    return from + bytes;
}

/* The part of a piece that is kept already, from `into` on, or else up to where one begins. *ret: its bytes. NULL: it has no
   place yet. For example, of a piece of 10 MiB the last 4 have a place: NULL and 6 MiB, then that place and 4 MiB. */
static const struct kept_piece *kept_part(const struct kept *kept, const struct sg_memory_piece *piece, uint64_t into,
    uint64_t *ret)
{
    CUdeviceptr begin = piece->address + into;
    uint64_t left = piece->bytes - into;
    const struct kept_piece *at = NULL;
    *ret = left;
    for (size_t i = 0; i < kept->count && !at; i++) {
        const struct kept_piece *other = &kept->piece[i];
        if (begin - other->address < other->bytes)
            at = other;
        else if (other->address - begin < *ret && other->bytes)
            *ret = other->address - begin;
    }
    if (at)
        *ret = at->address + at->bytes - begin < left ? at->address + at->bytes - begin : left;
    return at;
}

/* For example, two blocks of 8 and 6 MiB are kept in one span of 14 MiB. A third of 5 MiB has come beside them. The row of all three
   is one piece of 19 MiB. It becomes two parts: 14 MiB where they were, and 5 MiB in a new span. A program that holds the
   address of the first block's copy still has it right.

   Has each piece have its place: where it is kept already, or one behind the other in a new span, the last. Returns how many
   parts there are, and the new span's bytes in *ret_bytes. `made` is NULL to count only. */
static size_t kept_lay_out(const struct kept *kept, const struct sg_memory_piece *pieces, size_t count,
    struct kept_piece *made, uint64_t *ret_bytes)
{
    size_t parts = 0;
    uint64_t bytes = 0, part;
    for (size_t i = 0; i < count; i++) {
        for (uint64_t into = 0; into < pieces[i].bytes; into += part, parts++) {
            const struct kept_piece *at = kept_part(kept, &pieces[i], into, &part);
            CUdeviceptr begin = pieces[i].address + into;
            if (made && at)
                made[parts] = (struct kept_piece){begin, part, at->offset + (begin - at->address), at->span};
            else if (made)
                made[parts] = (struct kept_piece){begin, part, bytes, kept->spans};
            bytes += at ? 0 : part;
        }
    }
    *ret_bytes = bytes;
    return parts;
}

/* Maps host memory for the pieces that have none yet, and notes where each goes. */
static bool kept_make(struct kept *kept, const struct sg_driver *driver, const struct sg_memory_piece *pieces,
    size_t count)
{
    uint64_t bytes;
    struct kept made = {.count = kept_lay_out(kept, pieces, count, NULL, &bytes)};
    made.spans = kept->spans + (bytes != 0);
    made.piece = sg_meta_map(made.count * sizeof *made.piece);
    made.span = sg_meta_map(made.spans * sizeof *made.span);
    void *host = NULL;
    if (made.piece && made.span && bytes)
        host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!made.piece || !made.span || host == MAP_FAILED) {
        sg_meta_unmap(made.piece, made.count * sizeof *made.piece);
        sg_meta_unmap(made.span, made.spans * sizeof *made.span);
        return false;
    }
    (void)kept_lay_out(kept, pieces, count, made.piece, &bytes);
    for (size_t i = 0; i < kept->spans; i++)
        made.span[i] = kept->span[i];
    if (host) {
        /* The span is as large as the contents, and no memory is taken before the copies come. */
        (void)madvise(host, bytes, MADV_HUGEPAGE); /* fewer faults, where the system has such pages */
        made.span[kept->spans] = (struct span){.host = host, .bytes = bytes, .driver = driver};
    }
    if (!kept->spans)
        sg_contents_count(1);
    sg_meta_unmap(kept->span, kept->spans * sizeof *kept->span);
    sg_meta_unmap(kept->piece, kept->count * sizeof *kept->piece);
    *kept = made;
    kept_drop_empty(kept);
    return true;
}

/* Copies [from, from + bytes) of a span to the host, or with `home` back to the device. */
static CUresult contents_copy(struct sg_contents *contents, struct span *span, CUdeviceptr address, uint64_t offset,
    uint64_t bytes, bool home, CUstream stream)
{
    const struct sg_driver *driver = contents->driver;
    CUresult result = CUDA_SUCCESS;
    for (uint64_t done = 0; done < bytes && result == CUDA_SUCCESS;) {
        uint64_t end = span_register(span, (offset + done) / CHUNK * CHUNK), left = bytes - done;
        uint64_t part = end - offset - done < left ? end - offset - done : left;
        result = home ? driver->copy_from_host_async(address + done, span->host + offset + done, part, stream)
                      : driver->copy_to_host_async(span->host + offset + done, address + done, part, stream);
        done += part;
        if (result == CUDA_SUCCESS && offset % CHUNK + done >= CHUNK) { /* so that what is said is true */
            result = driver->stream_synchronize(stream);
            sg_contents_say(contents, home ? "put back" : "saved", offset + done, span->bytes);
        }
    }
    return result;
}

/* Saves all pieces, in their order. */
static CUresult save_each(struct sg_contents *contents, const struct sg_memory_piece *pieces, size_t count,
    CUstream stream)
{
    struct kept *kept = contents_kept(contents);
    CUresult result = CUDA_SUCCESS;
    (void)pieces;
    (void)count;
    for (size_t i = 0; i < kept->count && result == CUDA_SUCCESS; i++) {
        const struct kept_piece *piece = &kept->piece[i];
        result = contents_copy(contents, &kept->span[piece->span], piece->address, piece->offset, piece->bytes,
            /* home */ false, stream);
    }
    return result;
}

CUresult sg_contents_save(void *user, const struct sg_memory_piece *pieces, size_t count)
{
    struct sg_contents *contents = user;
    struct kept *kept = contents_kept(contents);
    contents->saved = true;
    if (contents->in_files)
        return sg_contents_file_save(contents, pieces, count);
    if (!kept_make(kept, contents->driver, pieces, count))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = sg_contents_on_stream(contents, pieces, count, save_each);
    kept->saved = result == CUDA_SUCCESS;
    return result;
}

bool sg_contents_are_saved(const struct sg_contents *contents)
{
    return contents->in_files ? sg_contents_file_has(contents) : contents_kept(contents)->saved;
}

/* Each piece may stand in several parts. */
static CUresult restore_each(struct sg_contents *contents, const struct sg_memory_piece *pieces, size_t count,
    CUstream stream)
{
    struct kept *kept = contents_kept(contents);
    CUresult result = CUDA_SUCCESS;
    size_t at = 0; /* the kept piece that was found last: both lists are in one order */
    for (size_t i = 0; i < count; i++) {
        uint64_t part;
        for (uint64_t into = 0; into < pieces[i].bytes && result == CUDA_SUCCESS; into += part) {
            CUdeviceptr begin = pieces[i].address + into;
            while (at < kept->count && begin - kept->piece[at].address >= kept->piece[at].bytes)
                at++;
            if (at == kept->count)
                return CUDA_ERROR_INVALID_VALUE;
            uint64_t skip = begin - kept->piece[at].address, left = kept->piece[at].bytes - skip;
            part = pieces[i].bytes - into < left ? pieces[i].bytes - into : left;
            result = contents_copy(contents, &kept->span[kept->piece[at].span], begin, kept->piece[at].offset + skip,
                part, /* home */ true, stream);
        }
    }
    return result;
}

CUresult sg_contents_restore(void *user, const struct sg_memory_piece *pieces, size_t count)
{
    struct sg_contents *contents = user;
    return contents->in_files ? sg_contents_file_restore(contents, pieces, count)
                              : sg_contents_on_stream(contents, pieces, count, restore_each);
}

/* Sets a piece to zeros: words by a set, and what is left of the last word by a copy. */
static CUresult contents_clear(const struct sg_driver *driver, const struct sg_memory_piece *piece, CUstream stream)
{
    static const uint32_t zero;
    uint64_t words = piece->bytes / sizeof zero, rest = piece->bytes % sizeof zero;
    CUresult result = words ? driver->set_async(piece->address, 0, words, stream) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS && rest)
        result = driver->copy_from_host_async(piece->address + piece->bytes - rest, &zero, rest, stream);
    return result;
}

/* Clears all pieces: other processes may have written to these pages before. */
static CUresult clear_each(struct sg_contents *contents, const struct sg_memory_piece *pieces, size_t count,
    CUstream stream)
{
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = contents_clear(contents->driver, &pieces[i], stream);
    return result;
}

CUresult sg_contents_clear(void *user, const struct sg_memory_piece *pieces, size_t count)
{
    return sg_contents_on_stream(user, pieces, count, clear_each);
}

/* The place of a range in one kept tag; NULL: it is not there. A range that goes beyond a piece is no block's: two pieces stand
   one behind the other on the host, and not on the device.

   For example, a piece of 8 MiB at 0x7f0000000000 stands at offset 3 MiB. Then 16 bytes at 0x7f0000100000 are at offset
   4 MiB, and a range of 8 MiB from there on is not found. */
static const void *contents_in(const struct kept *kept, CUdeviceptr address, uint64_t bytes)
{
    for (size_t i = 0; i < kept->count; i++) {
        const struct kept_piece *piece = &kept->piece[i];
        uint64_t into = address - piece->address;
        if (address >= piece->address && into <= piece->bytes && bytes <= piece->bytes - into && piece->bytes)
            return kept->span[piece->span].host + piece->offset + into;
    }
    return NULL;
}

const void *sg_contents_find(CUdeviceptr address, uint64_t bytes)
{
    const void *found = NULL;
    for (int device = 0; device < SG_DEVICES_MAX && !found; device++)
        for (uint32_t tag = 0; tag < SG_TAGS && !found; tag++)
            found = contents_in(&kept_of[device][tag], address, bytes);
    return found;
}

/* Cuts [begin, end) out of the pieces of a tag. One that is cut in the middle becomes two, for which a table with one more is
   made. Without memory for that, all stays until the tag is resumed.

   For example, a piece of 10 MiB loses [4, 6) MiB. Two of 4 MiB are left, at offsets 0 and 6 MiB of the same span, and the
   copy of either is where it was. */
static void kept_cut(struct kept *kept, CUdeviceptr begin, CUdeviceptr end)
{
    for (size_t i = 0; i < kept->count; i++) {
        struct kept_piece *piece = &kept->piece[i], was = *piece;
        if (begin - was.address >= was.bytes)
            continue;
        CUdeviceptr to = end < was.address + was.bytes ? end : was.address + was.bytes;
        struct kept_piece rest = {to, was.address + was.bytes - to, was.offset + (to - was.address), was.span};
        piece->bytes = begin - was.address;
        if (rest.bytes && !piece->bytes) {
            *piece = rest;
        } else if (rest.bytes) {
            struct kept_piece *more = sg_meta_map((kept->count + 1) * sizeof *more);
            if (!more) {
                *piece = was;
                return;
            }
            for (size_t j = 0; j <= kept->count; j++)
                more[j] = j <= i ? kept->piece[j] : j == i + 1 ? rest : kept->piece[j - 1];
            sg_meta_unmap(kept->piece, kept->count * sizeof *kept->piece);
            kept->piece = more;
            kept->count++;
        }
        kept_drop_empty(kept);
        return;
    }
}

void sg_contents_freed(CUdeviceptr address, uint64_t bytes)
{
    for (int device = 0; device < SG_DEVICES_MAX; device++)
        for (uint32_t tag = 0; tag < SG_TAGS; tag++)
            if (kept_of[device][tag].count)
                kept_cut(&kept_of[device][tag], address, address + bytes);
    sg_contents_file_freed(address, bytes);
}
