#include "definitions.h"

#include <assert.h>
#include <stdlib.h>

enum { CONTEXT_SHIFT = 32 };

void sg_definitions_fini(struct sg_definitions *definitions)
{
    free(definitions->stream);
    free(definitions->place);
}

bool sg_define_stream(struct sg_definitions *definitions, const struct segalloc_trace_record *record)
{
    uint32_t index = record->stream, device = (uint32_t)record->size;
    assert(index < SEGALLOC_TRACE_STREAMS); /* the reader refuses others */
    if (index >= definitions->streams) {
        uint32_t streams = index + 64;
        struct sg_defined_stream *larger = realloc(definitions->stream, streams * sizeof *larger);
        if (!larger)
            return false;
        for (uint32_t i = definitions->streams; i < streams; i++)
            larger[i] = (struct sg_defined_stream){0};
        definitions->stream = larger;
        definitions->streams = streams;
    }
    definitions->stream[index] = (struct sg_defined_stream){device < SG_DEVICES_MAX ? (uint8_t)device : 0,
        (uint32_t)(record->size >> CONTEXT_SHIFT)};
    if (definitions->stream[index].device >= definitions->devices)
        definitions->devices = definitions->stream[index].device + 1;
    return true;
}

bool sg_define_place(struct sg_definitions *definitions, const struct segalloc_trace_record *record)
{
    if (!definitions->place && !(definitions->place = calloc(UINT16_MAX + 1, sizeof *definitions->place)))
        return false;
    definitions->place[record->thread] = (struct sg_defined_place){(uint32_t)record->id, (uint32_t)record->size};
    return true;
}
