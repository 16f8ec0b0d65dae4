#include "export/export.h"

#include <stddef.h>
#include <string.h>

#include "export/torch_snapshot.h"

static const struct sg_export_format formats[] = {
#define FORMAT(name, text, moment) {#name, text, sg_export_##name, SG_MOMENT_##moment},
#include "export/formats.def"
};
enum { FORMATS = sizeof formats / sizeof *formats };

const struct sg_export_format *sg_export_format(const char *name)
{
    for (size_t i = 0; i < FORMATS; i++)
        if (!name || strcmp(name, formats[i].name) == 0)
            return &formats[i];
    return NULL;
}

int sg_export_torch(struct sg_trace_reader *reader, const struct sg_export_options *options, FILE *out,
                    struct sg_exported *ret)
{
    struct sg_moment_found found = {.all = UINT64_MAX};
    bool whole = options->moment == SG_MOMENT_END || options->moment == SG_MOMENT_TIME;
    int error = whole ? 0 : sg_moment_find(reader, options->moment, options->to_ns, &found);
    if (error)
        return error;
    error = sg_trace_export_torch(reader, options->from_ns, options->to_ns, found.all, out, &ret->events);
    ret->shown = ret->events;
    return error;
}
