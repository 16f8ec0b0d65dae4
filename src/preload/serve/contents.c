/* Copies go piece by piece, and within a piece up to the end of what is registered. A table has the kept memory of each
   tag and device; the device's `grow` guards its entries.

   For example, a chunk is 256 MiB. A piece of 300 MiB at offset 100 MiB: [0, 256) MiB are registered, 156 MiB are copied.
   The next chunk is registered while that copy runs, and the other 144 MiB follow. */
#include "serve/contents.h"

#include <stdio.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/meta.h"
#include "base/size.h"
#include "process/log.h"

#define SECOND_NS UINT64_C(1000000000)
enum { CHUNK = 256 << 20 };

/* One piece of kept memory. */
struct kept_piece {
    CUdeviceptr address;
    uint64_t bytes, offset;
};

static struct kept {
    unsigned char *host;
    uint64_t bytes, registered; /* from its begin on */
    struct kept_piece *piece;
    size_t count;
} kept_of[SG_DEVICES_MAX][SG_TAGS];

/* The kept memory of a tag, empty or not. */
static struct kept *contents_kept(const struct sg_contents *contents)
{
    return &kept_of[contents->device][contents->tag];
}

/* True if the driver has all that copies need. */
static bool contents_can_copy(const struct sg_driver *driver)
{
    return driver->stream_create && driver->stream_destroy && driver->stream_synchronize &&
           driver->copy_to_host_async && driver->copy_from_host_async && driver->set_async;
}

void sg_contents_drop(int device, uint32_t tag)
{
    struct kept *kept = &kept_of[device][tag];
    if (kept->host)
        (void)munmap(kept->host, kept->bytes);
    sg_meta_unmap(kept->piece, kept->count * sizeof *kept->piece);
    *kept = (struct kept){0};
}

/* Unregisters all. The mapping stays. */
static void contents_unregister(const struct sg_driver *driver, struct kept *kept)
{
    for (uint64_t at = 0; at < kept->registered; at += CHUNK)
        (void)driver->host_unregister(kept->host + at);
    kept->registered = 0;
}

/* Registers the next chunk, if the driver can; copies do without it too. Returns up to where copies may go now. */
static uint64_t contents_register(const struct sg_driver *driver, struct kept *kept, uint64_t from)
{
    /* Chunks are registered in order, so that all up to `registered` is. */
    if (from < kept->registered)
        return kept->registered;
    uint64_t bytes = kept->bytes - from < CHUNK ? kept->bytes - from : CHUNK;
    if (from == kept->registered && driver->host_register && driver->host_unregister &&
        driver->host_register(kept->host + from, bytes, 0) == CUDA_SUCCESS)
        kept->registered += bytes;
    return from + bytes;
}

/* Maps host memory for pieces of `bytes` in all, and notes where each goes. */
static bool contents_make(struct kept *kept, const struct sg_memory_piece *pieces, size_t count, uint64_t bytes)
{
    struct kept made = {.bytes = bytes, .count = count, .piece = sg_meta_map(count * sizeof *made.piece)};
    void *host = made.piece ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                            : MAP_FAILED;
    if (host == MAP_FAILED) {
        sg_meta_unmap(made.piece, count * sizeof *made.piece);
        return false;
    }
    /* The mapping is as large as the contents, and no memory is taken before the copies come. */
    (void)madvise(host, bytes, MADV_HUGEPAGE); /* fewer faults, where the system has such pages */
    made.host = host;
    uint64_t offset = 0;
    for (size_t i = 0; i < count; i++) {
        made.piece[i] = (struct kept_piece){pieces[i].address, pieces[i].bytes, offset};
        offset += pieces[i].bytes;
    }
    *kept = made;
    return true;
}

/* One line a second about long copies. */
static void contents_say(struct sg_contents *contents, const char *what, uint64_t done, uint64_t bytes)
{
    uint64_t now = sg_clock_coarse_ns();
    char line[200], part[SG_SIZE_TEXT], whole[SG_SIZE_TEXT];
    if (now - contents->said_ns < SECOND_NS)
        return;
    contents->said_ns = now;
    snprintf(line, sizeof line, "tag \"%s\" on device %d: %s of %s %s", contents->name, contents->device,
        sg_size_format(done, part), sg_size_format(bytes, whole), what);
    sg_log_line(line);
}

/* Copies [from, from + bytes) of a kept piece to the host, or with `home` back to the device. */
static CUresult contents_copy(struct sg_contents *contents, struct kept *kept, CUdeviceptr address, uint64_t offset,
    uint64_t bytes, bool home, CUstream stream)
{
    const struct sg_driver *driver = contents->driver;
    CUresult result = CUDA_SUCCESS;
    for (uint64_t done = 0; done < bytes && result == CUDA_SUCCESS;) {
        uint64_t end = contents_register(driver, kept, (offset + done) / CHUNK * CHUNK), left = bytes - done;
        uint64_t part = end - offset - done < left ? end - offset - done : left;
        result = home ? driver->copy_from_host_async(address + done, kept->host + offset + done, part, stream)
                      : driver->copy_to_host_async(kept->host + offset + done, address + done, part, stream);
        done += part;
        if (result == CUDA_SUCCESS && offset % CHUNK + done >= CHUNK) { /* so that what is said is true */
            result = driver->stream_synchronize(stream);
            contents_say(contents, home ? "put back" : "saved", offset + done, kept->bytes);
        }
    }
    return result;
}

/* Runs copies on a stream of ours, and waits for them. */
static CUresult contents_on_stream(struct sg_contents *contents, const struct sg_memory_piece *pieces, size_t count,
    CUresult (*each)(struct sg_contents *, const struct sg_memory_piece *, size_t, CUstream))
{
    const struct sg_driver *driver = contents->driver;
    CUstream stream;
    if (!contents_can_copy(driver))
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = driver->stream_create(&stream, CU_STREAM_NON_BLOCKING);
    if (result != CUDA_SUCCESS)
        return result;
    contents->said_ns = sg_clock_coarse_ns();
    result = each(contents, pieces, count, stream);
    CUresult ended = driver->stream_synchronize(stream);
    (void)driver->stream_destroy(stream);
    return result == CUDA_SUCCESS ? ended : result;
}

/* Saves all pieces, in their order. */
static CUresult save_each(struct sg_contents *contents, const struct sg_memory_piece *pieces, size_t count,
    CUstream stream)
{
    struct kept *kept = contents_kept(contents);
    CUresult result = CUDA_SUCCESS;
    (void)pieces;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = contents_copy(contents, kept, kept->piece[i].address, kept->piece[i].offset, kept->piece[i].bytes,
            /* home */ false, stream);
    return result;
}

CUresult sg_contents_save(void *user, const struct sg_memory_piece *pieces, size_t count)
{
    struct sg_contents *contents = user;
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += pieces[i].bytes;
    contents->saved = true;
    sg_contents_drop(contents->device, contents->tag);
    if (!contents_make(contents_kept(contents), pieces, count, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = contents_on_stream(contents, pieces, count, save_each);
    contents_unregister(contents->driver, contents_kept(contents));
    return result;
}

/* Both lists are in one order, so each piece is looked for where the one before was found. */
static CUresult restore_each(struct sg_contents *contents, const struct sg_memory_piece *pieces, size_t count,
    CUstream stream)
{
    struct kept *kept = contents_kept(contents);
    CUresult result = CUDA_SUCCESS;
    size_t at = 0; /* the kept piece that was found last */
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        while (at < kept->count && pieces[i].address - kept->piece[at].address >= kept->piece[at].bytes)
            at++;
        if (at == kept->count)
            return CUDA_ERROR_INVALID_VALUE;
        result = contents_copy(contents, kept, pieces[i].address,
            kept->piece[at].offset + (pieces[i].address - kept->piece[at].address), pieces[i].bytes, /* home */ true,
            stream);
    }
    return result;
}

CUresult sg_contents_restore(void *user, const struct sg_memory_piece *pieces, size_t count)
{
    struct sg_contents *contents = user;
    CUresult result = contents_on_stream(contents, pieces, count, restore_each);
    contents_unregister(contents->driver, contents_kept(contents));
    return result;
}

/* Sets all pieces to zeros: other processes may have written to these pages before. */
static CUresult clear_each(struct sg_contents *contents, const struct sg_memory_piece *pieces, size_t count,
    CUstream stream)
{
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = contents->driver->set_async(pieces[i].address, 0, pieces[i].bytes / sizeof(uint32_t), stream);
    return result;
}

CUresult sg_contents_clear(void *user, const struct sg_memory_piece *pieces, size_t count)
{
    return contents_on_stream(user, pieces, count, clear_each);
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
        if (address >= piece->address && into <= piece->bytes && bytes <= piece->bytes - into)
            return kept->host + piece->offset + into;
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
