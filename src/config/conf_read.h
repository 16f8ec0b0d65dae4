/* Reading configurations: texts of options, the files that hold them, and the order of sources. conf.h has the options.

   For example, a process with SEGALLOC_CONF="limit:8GiB" and /etc/segalloc.conf with the lines "limit:20GiB # the card" and
   "sites:True". sg_conf_load() applies the file first, and the environment over it: limit is 8 GiB, from SEGALLOC_CONF, and
   sites is on, from the file. */
#ifndef SG_CONF_READ_H
#define SG_CONF_READ_H

#include "conf.h"

/* Receives one line without a newline for each problem: the key, the value, the bounds, the nearest name. */
typedef void sg_conf_warn_fn(void *user, const char *line);

/* Applies "key:value,key:value" (white space allowed, lists in brackets, a new line separates as a comma does; in the
   two files # starts a comment) from `source`. A bad part is reported through `warn` (NULL: dropped) and leaves that
   option as it was. The rest is still applied; of several values for one key the last one stands. For SG_CONF_PYTORCH only
   keys that are PyTorch's too and that no better source has set are taken, and unknown keys are not reported.
   large_segment_size_mb is taken first and bounds the other two of PyTorch's splitting from below (PyTorch,
   c10/core/AllocatorConfig.h). Returns the number of bad parts. A `text` of NULL has none. */
unsigned sg_conf_apply(struct sg_conf *conf, enum sg_conf_source source, const char *text, sg_conf_warn_fn *warn,
                       void *user);

/* sg_conf_apply() with SG_CONF_ARGUMENT, for a caller that discards the settings when a part of them is bad. So the
   messages name the accepted values, not the settings in force. `place` begins the messages; NULL: the part itself. */
unsigned sg_conf_check(struct sg_conf *conf, const char *place, const char *text, sg_conf_warn_fn *warn, void *user);

/* Applies the file at `path`; one that is missing has no bad part. Files of 16 KiB and more are refused. */
unsigned sg_conf_apply_file(struct sg_conf *conf, enum sg_conf_source source, const char *path, sg_conf_warn_fn *warn,
    void *user);

/* The texts that a process was given, as getenv() returns them: NULL where there is nothing. */
struct sg_conf_inputs {
    const char *system_file;        /* path, "/etc/segalloc.conf"; skipped where it doesn't exist */
    const char *conf_file;          /* SEGALLOC_CONF_FILE: a path; that it can't be read is reported */
    const char *environment;        /* SEGALLOC_CONF */
    const char *trace, *stats;      /* SEGALLOC_TRACE, SEGALLOC_STATS: the options of these names, commas allowed */
    const char *pytorch_cuda;       /* PYTORCH_CUDA_ALLOC_CONF: PyTorch reads the first of the two that is set */
    const char *pytorch;            /* PYTORCH_ALLOC_CONF */
};

/* The defaults, then everything in `inputs` by rising order. Files of 16 KiB and more are refused. Uses open, read
   and close, and 20 KiB of stack. Returns the number of bad parts; conf->abort_conf says if they are fatal. */
unsigned sg_conf_load(struct sg_conf *conf, const struct sg_conf_inputs *inputs, sg_conf_warn_fn *warn, void *user);

#endif
