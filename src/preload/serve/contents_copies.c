/* For example, 8 GiB are saved at 5 GiB a second: lines come at about 5 GiB, and at the end none. */
#include "serve/contents_copies.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/size.h"
#include "process/log.h"
#include "process/process.h"
#include "services/hazard_annotations.h"

#define SECOND_NS UINT64_C(1000000000)

_Atomic int sg_contents_any;

void sg_contents_count(int change)
{
    atomic_fetch_add(&sg_contents_any, change);
    atomic_fetch_add(&sg_fast_path_epoch, 1);
}

void sg_contents_say(struct sg_contents *contents, const char *what, uint64_t done, uint64_t bytes)
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

static CUresult copy_one(struct sg_copies *copies, void *host, CUdeviceptr device, uint64_t bytes)
{
    const struct sg_driver *driver = copies->driver;
    return copies->home ? driver->copy_from_host_async(device, host, bytes, copies->stream)
                        : driver->copy_to_host_async(host, device, bytes, copies->stream);
}

CUresult sg_copies_add(struct sg_copies *copies, unsigned char *host, CUdeviceptr device, uint64_t bytes,
    bool registered)
{
    if (!registered || copies->refused || !copies->driver->copy_batch_async)
        return copy_one(copies, host, device, bytes);
    copies->to[copies->count] = copies->home ? device : (CUdeviceptr)(uintptr_t)host;
    copies->from[copies->count] = copies->home ? (CUdeviceptr)(uintptr_t)host : device;
    copies->bytes[copies->count++] = bytes;
    return copies->count == SG_BATCH ? sg_copies_begin(copies) : CUDA_SUCCESS;
}

/* A batch that was refused may be under way in part. Its copies are made again, one by one, with the same bytes. */
CUresult sg_copies_begin(struct sg_copies *copies)
{
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    size_t first = 0, failed, count = copies->count;
    CUresult result = CUDA_SUCCESS;
    copies->count = 0;
    if (count > 1 && copies->driver->copy_batch_async(copies->to, copies->from, copies->bytes, count, &attributes,
                         &first, 1, &failed, copies->stream) == CUDA_SUCCESS)
        return CUDA_SUCCESS;
    copies->refused = copies->refused || count > 1;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = copy_one(copies, (void *)(uintptr_t)(copies->home ? copies->from[i] : copies->to[i]),
            copies->home ? copies->to[i] : copies->from[i], copies->bytes[i]);
    return result;
}

CUresult sg_copies_await(struct sg_copies *copies)
{
    CUresult begun = sg_copies_begin(copies), ended = copies->driver->stream_synchronize(copies->stream);
    return begun == CUDA_SUCCESS ? ended : begun;
}

/* A wait that fails says nothing of the copies. So another is made: of the stream, and then of all that the context has. Where that fails
   too the context is lost, and nothing of it goes on.

   For example, copies to pages of a resume are under way, and the wait for them fails with error 2. The second wait ends, the pages are
   unmapped, and the answer is 2. */
CUresult sg_copies_end(struct sg_copies *copies, CUresult result)
{
    if (result == CUDA_SUCCESS)
        result = sg_copies_await(copies);
    if (result == CUDA_SUCCESS)
        return CUDA_SUCCESS;
    copies->count = 0;
    if (copies->driver->stream_synchronize(copies->stream) != CUDA_SUCCESS)
        (void)copies->driver->ctx_synchronize();
    return result;
}

/* True if the driver has all that copies need. */
static bool contents_can_copy(const struct sg_driver *driver)
{
    return driver->stream_create && driver->stream_destroy && driver->stream_synchronize &&
           driver->copy_to_host_async && driver->copy_from_host_async && driver->set_async;
}

CUresult sg_contents_on_stream(struct sg_contents *contents, const struct sg_memory_piece *pieces, size_t count,
    bool home, sg_contents_each *each)
{
    const struct sg_driver *driver = contents->driver;
    struct sg_copies copies = {.driver = driver, .home = home};
    if (!contents_can_copy(driver))
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = driver->stream_create(&copies.stream, CU_STREAM_NON_BLOCKING);
    if (result != CUDA_SUCCESS)
        return result;
    contents->said_ns = sg_clock_coarse_ns();
    /* Blocks that a graph holds, or that another thread frees now, are given back already for whoever looks for hazards. */
    sg_annotate_upkeep(true);
    result = each(contents, pieces, count, &copies);
    result = sg_copies_end(&copies, result);
    sg_annotate_upkeep(false);
    (void)driver->stream_destroy(copies.stream);
    return result;
}
