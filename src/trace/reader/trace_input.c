#include "reader/trace_input.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int sg_trace_fail(struct sg_trace_reader *reader, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reader->error, sizeof(reader->error), format, arguments);
    va_end(arguments);
    return -EINVAL;
}

void sg_trace_damaged(struct sg_trace_reader *reader, uint64_t offset, const char *what)
{
    if (reader->info.end != SG_TRACE_OPEN)
        return; /* the source has already said what is wrong with it */
    snprintf(reader->end_room, sizeof(reader->end_room), "byte %" PRIu64 ": %s", offset, what);
    reader->info.end = SG_TRACE_DAMAGED;
    reader->info.end_text = reader->end_room;
}

bool sg_trace_more(struct sg_trace_reader *reader)
{
    assert(reader->size <= SG_SOURCE_HEADROOM);
    if (reader->source_end)
        return false;
    unsigned char *data;
    size_t size;
    int status = sg_source_next(reader->source, &data, &size);
    if (status == 1) {
        if (reader->size)
            memcpy(data - reader->size, reader->data, reader->size);
        reader->data = data - reader->size;
        reader->size += size;
        return true;
    }
    reader->source_end = true;
    if (status == -EBADMSG) {
        sg_trace_damaged(reader, sg_source_damaged_at(reader->source), "the compressed data are damaged");
    } else if (status == -ENODATA) {
        snprintf(reader->end_room, sizeof(reader->end_room), "byte %" PRIu64 ": the compressed data end early",
            sg_source_damaged_at(reader->source));
        reader->info.end = SG_TRACE_CUT;
        reader->info.end_text = reader->end_room;
    } else if (status < 0) {
        sg_trace_fail(reader, "reading failed: %s", strerror(-status));
    }
    return false;
}
