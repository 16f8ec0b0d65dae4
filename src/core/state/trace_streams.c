/* A stream is looked up by walking the list. Programs that do not follow streams have few of them, and followed ones
   need no look. */
#include "core/state/trace_streams.h"

uint32_t sg_segments_pool_locked(struct sg_segments *fixed, CUcontext context)
{
    SG_ASSERT_HELD(&fixed->device->lock);
    uint32_t pool = 0;
    while (context && pool < fixed->contexts && fixed->context[pool] != context)
        pool++;
    if (!context || pool == SG_CONTEXTS_MAX)
        return 0;
    fixed->context[pool] = context;
    fixed->contexts += pool == fixed->contexts;
    return pool;
}

enum { CONTEXT_SHIFT = 32 }; /* of a DEFINE_STREAM record */

/* Indices are unique over all devices; the first of each device stands for a stream that is not known. Fixed segments
   have a pool for each context, so there a stream of another context is another one. */
uint32_t sg_device_stream_locked(struct sg_device *device, const struct sg_tag *tag)
{
    SG_ASSERT_HELD(&device->lock);
    uint32_t unknown = sg_device_unknown_stream(device), i = 0;
    uint32_t context = device->fixed ? sg_segments_pool_locked(device->fixed, tag->context) : 0;
    CUstream stream = tag->has_stream ? tag->stream : NULL;
    if (tag->slot)
        return sg_device_slot_stream(device, tag->slot);
    if (!tag->has_stream && !context)
        return unknown;
    while (i < device->streams.count && (device->streams.stream[i] != stream || device->streams.context[i] != context))
        i++;
    if (i == SG_STREAMS_MAX)
        return unknown;
    /* The record that defines the index comes before the one that first uses it, under the same lock. */
    if (i == device->streams.count) {
        device->streams.context[device->streams.count] = context;
        device->streams.stream[device->streams.count++] = stream;
        sg_emit(device, SEGALLOC_RECORD_DEFINE_STREAM, 0, unknown + i + 1, (uint64_t)(uintptr_t)stream,
            (uint64_t)context << CONTEXT_SHIFT | (uint64_t)device->ordinal);
    }
    return unknown + i + 1;
}
