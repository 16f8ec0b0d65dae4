#include "request_stream.h"

#include <stdlib.h>

#include "base/meta.h"

struct torch_stream *torch_stream_of(struct sg_torch *torch, uint64_t id)
{
    if (torch->latest && torch->latest->id == id)
        return torch->latest;
    struct torch_stream *stream;
    HASH_FIND(hh, torch->streams, &id, sizeof id, stream);
    if (!stream) {
        stream = sg_meta_noted(calloc(1, sizeof *stream));
        if (!stream)
            return NULL;
        stream->id = id;
        stream->torch = torch;
        stream->events_end = &stream->events;
        stream->pools[0] = (struct torch_pool){.stream = stream, .small = true};
        stream->pools[1] = (struct torch_pool){.stream = stream};
        HASH_ADD(hh, torch->streams, id, sizeof id, stream);
        if (!stream->hh.tbl) { /* HASH_NONFATAL_OOM */
            free(stream);
            return NULL;
        }
    }
    torch->latest = stream;
    return stream;
}
