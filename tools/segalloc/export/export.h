/* Traces as other programs read them: `segalloc trace export --format NAME`. */
#ifndef SG_EXPORT_H
#define SG_EXPORT_H

#include <stdint.h>
#include <stdio.h>

#include "analysis/walk.h"

struct sg_export_options {
    enum sg_moment moment;  /* what a picture of one moment is of, and where a timeline ends */
    uint64_t from_ns, to_ns; /* since the first event; to_ns: of SG_MOMENT_TIME */
    uint64_t points;        /* samples a device of a timeline at most; 0: all */
    const struct sg_window *window; /* the peak within it instead of `moment`, of pictures of one moment; NULL: none */
};

struct sg_exported {
    uint64_t events, shown; /* of those from from_ns on; what stands for them */
};

/* 0 or a negative errno, as of sg_moment_find(). */
typedef int sg_export_fn(struct sg_trace_reader *reader, const struct sg_export_options *options, FILE *out,
                         struct sg_exported *ret);

struct sg_export_format {
    const char *name, *text;   /* text: its line in the help */
    sg_export_fn *write;
    enum sg_moment moment; /* where none is asked for; PEAK: a picture of one moment */
};

/* The format of that name; NULL: there is none. `name` NULL: the first format. */
const struct sg_export_format *sg_export_format(const char *name);

sg_export_fn sg_export_torch, sg_export_chrome, sg_export_csv, sg_export_folded, sg_export_speedscope, sg_export_json;

#endif
