/* For example, 8 GiB are saved at 5 GiB a second: lines come at about 5 GiB, and at the end none. */
#include "serve/contents_copies.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/size.h"
#include "process/log.h"
#include "process/process.h"

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

/* True if the driver has all that copies need. */
static bool contents_can_copy(const struct sg_driver *driver)
{
    return driver->stream_create && driver->stream_destroy && driver->stream_synchronize &&
           driver->copy_to_host_async && driver->copy_from_host_async && driver->set_async;
}

CUresult sg_contents_on_stream(struct sg_contents *contents, const struct sg_memory_piece *pieces, size_t count,
    sg_contents_each *each)
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
