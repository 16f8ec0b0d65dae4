/* The options: one table (options.def), and everything that follows from it.

   Values come from, in rising order: the built-in default, /etc/segalloc.conf, the file named by SEGALLOC_CONF_FILE,
   SEGALLOC_CONF; for keys that none of these names, PYTORCH_CUDA_ALLOC_CONF, else PYTORCH_ALLOC_CONF. Nothing here
   reads the environment: the caller hands the texts over. No locale, no stdio, no heap: this runs in other people's
   processes. */
#ifndef SG_CONF_H
#define SG_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* When freed memory may be used again. The option has the first four, a single free the last four. */
enum sg_free_sync {
    SG_FREE_SYNC_AUTO, /* of the option: by the caller. Of a free: not set, and the core refuses it, because a tag that
                          is all zeros must not say that nothing uses the block any more */
    SG_FREE_SYNC_STRICT,
    SG_FREE_SYNC_EVENT,
    SG_FREE_SYNC_STREAM,
    SG_FREE_SYNC_COMPLETE /* all work on the block is complete: every stream may use the memory at once */
};
enum sg_backend { SG_BACKEND_NATIVE, SG_BACKEND_CUDA_MALLOC_ASYNC };
enum sg_pytorch { SG_PYTORCH_AUTO, SG_PYTORCH_DIRECT, SG_PYTORCH_BENEATH };
enum sg_alias { SG_ALIAS_AUTO, SG_ALIAS_ON, SG_ALIAS_OFF };
enum sg_ipc { SG_IPC_AUTO, SG_IPC_ALWAYS, SG_IPC_NEVER };
enum sg_oom_report { SG_OOM_FIRST, SG_OOM_EVERY, SG_OOM_NEVER };

enum sg_conf_source {
    SG_CONF_DEFAULT,
    SG_CONF_SYSTEM,       /* /etc/segalloc.conf */
    SG_CONF_FILE,         /* SEGALLOC_CONF_FILE */
    SG_CONF_ENVIRONMENT,  /* SEGALLOC_CONF */
    SG_CONF_PYTORCH,      /* PYTORCH_ALLOC_CONF */
    SG_CONF_PYTORCH_CUDA, /* or its older name, PYTORCH_CUDA_ALLOC_CONF */
    SG_CONF_ARGUMENT      /* --conf */
};

enum { SG_ROUNDUP_INTERVALS = 16, SG_PATH_BYTES = 512 };
#define SG_AUTO UINT64_MAX /* "auto" in an integer option */

enum sg_option {
#define OPTION(name, ...) SG_OPTION_##name,
#include "options.def"
    SG_OPTION_COUNT
};

/* Effective values, in base units: bytes, fractions. */
struct sg_conf {
    bool expandable_segments;
    uint64_t max_split_size;          /* bytes; 0: no limit */
    uint64_t max_non_split_rounding;  /* bytes */
    uint64_t roundup_divisions[SG_ROUNDUP_INTERVALS]; /* interval i: [2^i MiB, 2^(i+1) MiB); 0: off */
    double garbage_collection_threshold;
    double per_process_memory_fraction;
    uint64_t large_segment_size;      /* bytes */
    enum sg_backend backend;
    enum sg_free_sync free_sync;
    uint64_t pending_limit;           /* bytes or SG_AUTO */
    double wait_limit;                /* seconds */
    double reserve_slack;             /* 0: auto */
    uint64_t page_size;               /* bytes or SG_AUTO */
    double mapping_limit;             /* a whole number */
    uint64_t limit_bytes;             /* 0: none */
    double limit_fraction;            /* 0: none; one of the two at most is set */
    bool limit_visible;
    enum sg_alias alias;
    enum sg_ipc ipc;
    enum sg_pytorch pytorch;
    char trace[SG_PATH_BYTES];
    char stats[SG_PATH_BYTES];
    bool live;
    bool sites;
    enum sg_oom_report oom_report;
    bool trim_on_request;
    double trim_idle_s;               /* seconds; 0: never */
    bool confirm_conf;
    bool abort_conf;
    unsigned char source[SG_OPTION_COUNT]; /* enum sg_conf_source of each */
};

/* Receives one line without a newline for each problem: the key, the value, the bounds, the nearest name. */
typedef void sg_conf_warn_fn(void *user, const char *line);

/* Fills in the built-in defaults. */
void sg_conf_init(struct sg_conf *conf);

/* Applies "key:value,key:value" (white space allowed, lists in brackets, a new line separates as a comma does; in the
   two files # starts a comment) from `source`. A bad part is reported through `warn` (NULL: dropped) and leaves that
   option as it was; the rest is still applied, the last of several values for one key stands. For SG_CONF_PYTORCH only
   keys that are PyTorch's too and that no better source has set are taken, and unknown keys are not reported.
   large_segment_size_mb is taken first and bounds the other two of PyTorch's splitting from below. Returns how many
   parts were bad. */
unsigned sg_conf_apply(struct sg_conf *conf, enum sg_conf_source source, const char *text, sg_conf_warn_fn *warn,
                       void *user);

/* sg_conf_apply() with SG_CONF_ARGUMENT, for a caller that discards the settings when a part of them is bad. So the
   messages name the accepted values, not the settings in force. `place` begins the messages; NULL: the part itself. */
unsigned sg_conf_check(struct sg_conf *conf, const char *place, const char *text, sg_conf_warn_fn *warn, void *user);

/* What a process was given, as getenv() returns it: NULL where there is nothing. */
struct sg_conf_inputs {
    const char *system_file;        /* path, "/etc/segalloc.conf"; skipped where it doesn't exist */
    const char *conf_file;          /* SEGALLOC_CONF_FILE: a path; that it can't be read is reported */
    const char *environment;        /* SEGALLOC_CONF */
    const char *trace, *stats;      /* SEGALLOC_TRACE, SEGALLOC_STATS: the options of these names, commas allowed */
    const char *pytorch_cuda;       /* PYTORCH_CUDA_ALLOC_CONF: PyTorch reads the first of the two that is set */
    const char *pytorch;            /* PYTORCH_ALLOC_CONF */
};
#define SG_CONF_SYSTEM_FILE "/etc/segalloc.conf"

/* The defaults, then everything in `inputs` by rising order. Files of 16 KiB and more are refused. Uses open, read
   and close, and 20 KiB of stack. Returns how many parts were bad; whether that is fatal says conf->abort_conf. */
unsigned sg_conf_load(struct sg_conf *conf, const struct sg_conf_inputs *inputs, sg_conf_warn_fn *warn, void *user);

/* Sets one option, leaving its source alone; false, changing nothing, for a value that it doesn't take. A path must be
   shorter than SG_PATH_BYTES. */
bool sg_conf_set(struct sg_conf *conf, enum sg_option option, const char *value);

/* Writes the value of `option` as the user would write it, truncated to `size` bytes with the NUL; returns `buffer`. */
char *sg_conf_format(const struct sg_conf *conf, enum sg_option option, char *buffer, size_t size);

/* Writes all options that differ from their defaults as "key:value,…", which sg_conf_apply() reads back to the same
   values; returns the length as snprintf does. */
size_t sg_conf_print(const struct sg_conf *conf, char *buffer, size_t size);

struct sg_option_info {
    const char *name, *def, *text, *type;
    bool torch; /* PyTorch has it too */
};
const struct sg_option_info *sg_option_info(enum sg_option option);

/* Writes what values `option` takes ("True or False", "0 for off, or 20 to 16777216 (MiB)"), truncated to `size` bytes
   with the NUL; returns `buffer`. `conf` gives the bounds that follow from other options; NULL for the defaults. */
char *sg_option_values(const struct sg_conf *conf, enum sg_option option, char *buffer, size_t size);

/* "default", "/etc/segalloc.conf", "SEGALLOC_CONF_FILE" … */
const char *sg_conf_source_name(enum sg_conf_source source);

/* What may be held of a device with `total` bytes: the least of it, `limit` and per_process_memory_fraction. */
uint64_t sg_conf_limit(const struct sg_conf *conf, uint64_t total);

#endif
