/* Copies go block by block, and within a block up to the end of what is registered. A table has the kept memory of each
   tag and device. One order at a time is carried out, and changes entries. A free does so between orders.

   For example, a chunk is 256 MiB. A block of 300 MiB at offset 100 MiB: [0, 256) MiB are registered, 156 MiB are copied.
   The next chunk is registered while that copy runs, and the other 144 MiB follow. To register is to have each page of the
   host made and cleared, which takes about as long as its copy. */
#include "serve/contents.h"

#include <sys/mman.h>

#include "base/meta.h"
#include "serve/contents_copies.h"
#include "serve/contents_file.h"
#include "serve/contents_places.h"

enum { CHUNK = 256 << 20 };

/* One mapping. Chunks are registered in order, so that all up to `registered` is. */
struct span {
    unsigned char *host; /* NULL: it was given back */
    uint64_t bytes, registered;
    const struct sg_driver *driver;
    size_t places; /* that are in it */
};

static struct kept {
    struct span *span; /* places name them by index */
    struct sg_places places;
    size_t spans;
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
    *span = (struct span){0};
}

/* Gives back all that is kept, and forgets it. */
static void kept_drop(struct kept *kept)
{
    for (size_t i = 0; i < kept->spans; i++)
        span_drop(&kept->span[i]);
    if (kept->spans)
        sg_contents_count(-1);
    sg_meta_unmap(kept->span, kept->spans * sizeof *kept->span);
    sg_places_drop(&kept->places);
    *kept = (struct kept){0};
}

/* Gives back the spans in which no place is. Spans stay where they are in the table, since places name them by it.

   For example, span 0 has a block of 8 MiB and span 1 one of 5 MiB, which is freed. Span 1 is unmapped, and the next new span has
   its number. Once the block of 8 MiB is freed, the table goes. */
static void kept_drop_empty(struct kept *kept)
{
    bool any = false;
    for (size_t i = 0; i < kept->spans; i++) {
        if (!kept->span[i].places)
            span_drop(&kept->span[i]);
        any = any || kept->span[i].host;
    }
    if (!any)
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

/* Registers the chunk from `from` on, unless it is or the driver can't; copies do without it too. Returns its end. */
static uint64_t span_register(struct span *span, uint64_t from)
{
    const struct sg_driver *driver = span->driver;
    uint64_t bytes = span->bytes - from < CHUNK ? span->bytes - from : CHUNK;
    if (from == span->registered && driver->host_register && driver->host_unregister &&
        driver->host_register(span->host + from, bytes, 0) == CUDA_SUCCESS)
        span->registered += bytes;
    return from + bytes;
}

/* The first span that is not mapped; the number of spans: all are. */
static uint32_t kept_unused_span(const struct kept *kept)
{
    uint32_t span = 0;
    while (span < kept->spans && kept->span[span].host)
        span++;
    return span;
}

/* Has each block have its place: where it is kept already, or one behind the other in a new span. Returns the new span's bytes.

   For example, two blocks of 8 and 6 MiB are kept in one span of 14 MiB. A third of 5 MiB has come between them. The two stay
   where they were, and 5 MiB are new. A program that holds the address of the first block's copy still has it right. */
static uint64_t kept_lay_out(const struct kept *kept, struct sg_places *places, uint32_t new_span)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < places->count; i++) {
        struct sg_place *place = &places->place[i];
        const struct sg_place *before = sg_places_find_block(&kept->places, place->address, place->bytes);
        place->holder = before ? before->holder : new_span;
        place->offset = before ? before->offset : bytes;
        bytes += before ? 0 : place->bytes;
    }
    return bytes;
}

/* Maps host memory for the blocks that have none yet, and notes where each goes. */
static bool kept_make(struct kept *kept, const struct sg_driver *driver, const struct sg_memory_piece *pieces,
    size_t count)
{
    struct kept made = {0};
    if (!sg_places_make(&made.places, pieces, count))
        return false;
    uint32_t new_span = kept_unused_span(kept);
    uint64_t bytes = kept_lay_out(kept, &made.places, new_span);
    made.spans = new_span < kept->spans || !bytes ? kept->spans : kept->spans + 1;
    made.span = sg_meta_map(made.spans * sizeof *made.span);
    void *host = NULL;
    if (made.span && bytes)
        host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!made.span || host == MAP_FAILED) {
        sg_meta_unmap(made.span, made.spans * sizeof *made.span);
        sg_places_drop(&made.places);
        return false;
    }
    for (size_t i = 0; i < kept->spans; i++) {
        made.span[i] = kept->span[i];
        made.span[i].places = 0;
    }
    if (host) {
        /* The span is as large as the contents, and no memory is taken before the copies come. */
        (void)madvise(host, bytes, MADV_HUGEPAGE); /* fewer faults, where the system has such pages */
        made.span[new_span] = (struct span){.host = host, .bytes = bytes, .driver = driver};
    }
    for (size_t i = 0; i < made.places.count; i++)
        made.span[made.places.place[i].holder].places++;
    if (!kept->spans)
        sg_contents_count(1);
    sg_meta_unmap(kept->span, kept->spans * sizeof *kept->span);
    sg_places_drop(&kept->places);
    *kept = made;
    kept_drop_empty(kept);
    return true;
}

/* A chunk is complete, and is not the last one. Its copies begin, and the next chunk is registered beside them. Then they are waited
   for, so that a line says what is true. */
static CUresult contents_end_chunk(struct sg_contents *contents, struct span *span, uint64_t end,
    struct sg_copies *copies)
{
    CUresult result = sg_copies_begin(copies);
    (void)span_register(span, end);
    CUresult ended = sg_copies_await(copies);
    sg_contents_say(contents, copies->home ? "put back" : "saved", end, span->bytes);
    return result == CUDA_SUCCESS ? ended : result;
}

/* Copies a block to its place in a span, or back. */
static CUresult contents_copy(struct sg_contents *contents, struct span *span, CUdeviceptr address, uint64_t offset,
    uint64_t bytes, struct sg_copies *copies)
{
    CUresult result = CUDA_SUCCESS;
    for (uint64_t done = 0; done < bytes && result == CUDA_SUCCESS;) {
        uint64_t chunk = (offset + done) / CHUNK * CHUNK, end = span_register(span, chunk), left = bytes - done;
        uint64_t part = end - offset - done < left ? end - offset - done : left;
        result = sg_copies_add(copies, span->host + offset + done, address + done, part, end <= span->registered);
        done += part;
        if (result == CUDA_SUCCESS && offset + done == end && end < span->bytes)
            result = contents_end_chunk(contents, span, end, copies);
    }
    return result;
}

/* Copies the contents of each chosen place. */
static CUresult kept_copy(struct sg_contents *contents, struct sg_copies *copies)
{
    struct kept *kept = contents_kept(contents);
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < kept->places.count && result == CUDA_SUCCESS; i++) {
        const struct sg_place *place = &kept->places.place[i];
        if (place->chosen)
            result = contents_copy(contents, &kept->span[place->holder], place->address, place->offset, place->bytes,
                copies);
    }
    return result;
}

static CUresult save_each(struct sg_contents *contents, const struct sg_memory_piece *pieces, size_t count,
    struct sg_copies *copies)
{
    (void)sg_places_choose(&contents_kept(contents)->places, pieces, count);
    return kept_copy(contents, copies);
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
    CUresult result = sg_contents_on_stream(contents, pieces, count, /* home */ false, save_each);
    kept->saved = result == CUDA_SUCCESS;
    return result;
}

bool sg_contents_are_saved(const struct sg_contents *contents)
{
    return contents->in_files ? sg_contents_file_has(contents) : contents_kept(contents)->saved;
}

static CUresult restore_each(struct sg_contents *contents, const struct sg_memory_piece *pieces, size_t count,
    struct sg_copies *copies)
{
    return sg_places_choose(&contents_kept(contents)->places, pieces, count) ? kept_copy(contents, copies)
                                                                             : CUDA_ERROR_INVALID_VALUE;
}

CUresult sg_contents_restore(void *user, const struct sg_memory_piece *pieces, size_t count)
{
    struct sg_contents *contents = user;
    return contents->in_files ? sg_contents_file_restore(contents, pieces, count)
                              : sg_contents_on_stream(contents, pieces, count, /* home */ true, restore_each);
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
    struct sg_copies *copies)
{
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = contents_clear(contents->driver, &pieces[i], copies->stream);
    return result;
}

CUresult sg_contents_clear(void *user, const struct sg_memory_piece *pieces, size_t count)
{
    return sg_contents_on_stream(user, pieces, count, /* home */ true, clear_each);
}

/* The place of a range in one kept tag; NULL: it is not there. A range that goes beyond a block is none's: two blocks stand
   one behind the other on the host, and not on the device.

   For example, a block of 8 MiB at 0x7f0000000000 stands at offset 3 MiB. Then 16 bytes at 0x7f0000100000 are at offset
   4 MiB, and a range of 8 MiB from there on is not found. */
static const void *contents_in(const struct kept *kept, CUdeviceptr address, uint64_t bytes)
{
    const struct sg_place *place = sg_places_find(&kept->places, address);
    if (!place || bytes > place->bytes - (address - place->address))
        return NULL;
    return kept->span[place->holder].host + place->offset + (address - place->address);
}

const void *sg_contents_find(CUdeviceptr address, uint64_t bytes)
{
    const void *found = NULL;
    for (int device = 0; device < SG_DEVICES_MAX && !found; device++)
        for (uint32_t tag = 0; tag < SG_TAGS && !found; tag++)
            found = contents_in(&kept_of[device][tag], address, bytes);
    return found;
}

/* A block of a tag loses its contents. */
static void kept_forget(struct kept *kept, CUdeviceptr address)
{
    struct sg_place *place = sg_places_find(&kept->places, address);
    if (!place || place->address != address)
        return;
    place->bytes = 0;
    if (--kept->span[place->holder].places == 0)
        kept_drop_empty(kept);
}

void sg_contents_freed(CUdeviceptr address)
{
    for (int device = 0; device < SG_DEVICES_MAX; device++)
        for (uint32_t tag = 0; tag < SG_TAGS; tag++)
            kept_forget(&kept_of[device][tag], address);
    sg_contents_file_freed(address);
}
