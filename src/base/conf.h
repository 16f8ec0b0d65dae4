/* The options: one table (options.def), and everything that follows from it.

   Values come from, in rising order: the built-in default, /etc/segalloc.conf, the file named by SEGALLOC_CONF_FILE, SEGALLOC_CONF; for
   keys that none of these names, PYTORCH_CUDA_ALLOC_CONF, else PYTORCH_ALLOC_CONF. Nothing here reads the environment:
   the caller hands the texts over. No locale, no stdio, no heap: this runs in other people's processes. */
#ifndef SG_CONF_H
#define SG_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sg_free_sync { SG_FREE_SYNC_AUTO, SG_FREE_SYNC_STRICT, SG_FREE_SYNC_EVENT, SG_FREE_SYNC_STREAM };
enum sg_backend { SG_BACKEND_NATIVE, SG_BACKEND_CUDA_MALLOC_ASYNC };
enum sg_pytorch { SG_PYTORCH_DIRECT, SG_PYTORCH_BENEATH };
enum sg_ipc { SG_IPC_AUTO, SG_IPC_ALWAYS, SG_IPC_NEVER };
enum sg_oom_report { SG_OOM_FIRST, SG_OOM_EVERY, SG_OOM_NEVER };

enum sg_conf_source {
    SG_CONF_DEFAULT,
    SG_CONF_SYSTEM,       /* /etc/segalloc.conf */
    SG_CONF_FILE,         /* SEGALLOC_CONF_FILE */
    SG_CONF_ENVIRONMENT,  /* SEGALLOC_CONF */
    SG_CONF_PYTORCH,      /* PYTORCH_CUDA_ALLOC_CONF or PYTORCH_ALLOC_CONF */
    SG_CONF_ARGUMENT      /* --conf */
};

enum { SG_ROUNDUP_INTERVALS = 16, SG_PATH_BYTES = 512 };
#define SG_AUTO UINT64_MAX /* "auto" in an integer option */

enum sg_option {
#define OPTION(name, type, def, low, high, text) SG_OPTION_##name,
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
    double reserve_slack;             /* 0: auto */
    uint64_t page_size;               /* bytes or SG_AUTO */
    uint64_t limit_bytes;             /* 0: none */
    double limit_fraction;            /* 0: none; one of the two at most is set */
    bool limit_visible;
    bool alias;
    enum sg_ipc ipc;
    enum sg_pytorch pytorch;
    char trace[SG_PATH_BYTES];
    char stats[SG_PATH_BYTES];
    bool live;
    enum sg_oom_report oom_report;
    bool confirm_conf;
    bool abort_conf;
    unsigned char source[SG_OPTION_COUNT]; /* enum sg_conf_source of each */
};

/* Receives one line without a newline for each problem: the key, the value, the bounds, the nearest name. */
typedef void sg_conf_warn_fn(void *user, const char *line);

/* Fills in the built-in defaults. */
void sg_conf_init(struct sg_conf *conf);

/* Applies "key:value,key:value" (white space allowed, lists in brackets) from `source`. A bad part is reported
   through `warn` (NULL: dropped) and leaves that option as it was; the rest is still applied. For SG_CONF_PYTORCH
   only keys that are PyTorch's too and that no better source has set are taken, and unknown keys are not reported. Returns how
   many parts were bad. */
unsigned sg_conf_apply(struct sg_conf *conf, enum sg_conf_source source, const char *text, sg_conf_warn_fn *warn, void *user);

/* Writes the value of `option` as the user would write it, truncated to `size` bytes with the NUL; returns `buffer`. */
char *sg_conf_format(const struct sg_conf *conf, enum sg_option option, char *buffer, size_t size);

/* Writes all options that differ from their defaults as "key:value,…"; returns the length as snprintf does. */
size_t sg_conf_print(const struct sg_conf *conf, char *buffer, size_t size);

struct sg_option_info {
    const char *name, *def, *text, *type;
};
const struct sg_option_info *sg_option_info(enum sg_option option);
const char *sg_conf_source_name(enum sg_conf_source source);

#endif
