/* The options: one table (options.def), and everything that follows from it.

   An *option* has a name, a type with bounds, a default and a field of `struct sg_conf`. A *source* is a place that values
   come from. A *text* of a source is a list of *parts*, "key:value", with commas or new lines between them.

   Sources in rising order, each of which wins over those above it:
     1. the built-in default
     2. PYTORCH_CUDA_ALLOC_CONF, or PYTORCH_ALLOC_CONF where that is not set: only options that are PyTorch's too
     3. /etc/segalloc.conf
     4. the user's file for this card and driver (conf_card.h), once the first device is known
     5. the file that SEGALLOC_CONF_FILE names
     6. SEGALLOC_CONF, and SEGALLOC_TRACE and SEGALLOC_STATS for those two paths

   Why PyTorch's variables count: people have them in their scripts, and expect them to have an effect. They are read last,
   and then set only what no better source has set.

   Example, how a text becomes fields. SEGALLOC_CONF is " max_split_size_mb:128, reserve_slak:1.02, limit:0.8".
     part 1    key "max_split_size_mb", value "128"; type MIB, bounds 20 to 16777216 MiB: within
               max_split_size = 134217728 bytes; its source is SG_CONF_ENVIRONMENT
     part 2    no option has that name; the nearest is one edit away. The caller's `warn` gets
               SEGALLOC_CONF: there is no option "reserve_slak"; did you mean reserve_slack? It is ignored
     part 3    type LIMIT; a number up to 1 is a fraction: limit_fraction = 0.8, limit_bytes = 0
   The result is 1, the number of bad parts. sg_conf_limit() of a device of 24 GiB is then 19.2 GiB.

   Nothing here reads the environment: the caller hands the texts over. No locale, no stdio streams and no heap, because
   this runs in other people's processes, before main(). A `struct sg_conf` is plain data: it may be copied, and needs no
   lock as long as nobody changes it. */
#ifndef SG_CONF_H
#define SG_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The moment at which freed memory may be used again. The option has the first four, a single free the last four. */
enum sg_free_sync {
    SG_FREE_SYNC_AUTO, /* as an option: by the caller. In a free it means "not set", and the core refuses it, because a tag
                          that is all zeros must not say that nothing uses the block any more */
    SG_FREE_SYNC_STRICT, /* the free waits for the block's context, as cudaFree does; then for every stream */
    SG_FREE_SYNC_EVENT,  /* without a wait; for every stream once all work queued before the free is complete */
    SG_FREE_SYNC_STREAM, /* without a wait; at once for the block's own stream, for others when they are ordered after it */
    SG_FREE_SYNC_COMPLETE /* all work on the block is complete: every stream may use the memory at once */
};
enum sg_backend { SG_BACKEND_NATIVE, SG_BACKEND_CUDA_MALLOC_ASYNC };
enum sg_pytorch { SG_PYTORCH_AUTO, SG_PYTORCH_DIRECT, SG_PYTORCH_BENEATH };
enum sg_alias { SG_ALIAS_AUTO, SG_ALIAS_ON, SG_ALIAS_OFF };
enum sg_ipc { SG_IPC_AUTO, SG_IPC_ALWAYS, SG_IPC_NEVER };
enum sg_oom_report { SG_OOM_FIRST, SG_OOM_EVERY, SG_OOM_NEVER };

/* Parts of `check`, and how it speaks. No part: it is off. */
enum sg_check_part {
    SG_CHECK_FILL = 1,   /* freed memory is filled, and read before it serves again */
    SG_CHECK_CANARY = 2, /* bytes behind each block are compared when it is freed */
    SG_CHECK_PARTS = SG_CHECK_FILL | SG_CHECK_CANARY,
    SG_CHECK_THOROUGH = 4, /* whole blocks, not windows of them */
    SG_CHECK_FAIL = 8,     /* a process with a finding ends with status 4 */
    SG_CHECK_JSON = 16,    /* findings are JSON objects */
    SG_CHECK_GUARD = 32,   /* some blocks have pages of their own, which end at an unmapped one */
};

enum sg_conf_source {
    SG_CONF_DEFAULT,
    SG_CONF_SYSTEM,       /* /etc/segalloc.conf */
    SG_CONF_CARD,         /* the user's file for this card and driver */
    SG_CONF_FILE,         /* SEGALLOC_CONF_FILE */
    SG_CONF_ENVIRONMENT,  /* SEGALLOC_CONF */
    SG_CONF_PYTORCH,      /* PYTORCH_ALLOC_CONF */
    SG_CONF_PYTORCH_CUDA, /* or its older name, PYTORCH_CUDA_ALLOC_CONF */
    SG_CONF_ARGUMENT      /* --conf */
};

/* 16 intervals reach from 1 MiB to 64 GiB and beyond: interval 0 is below 2 MiB, and the last is 32 GiB and more. */
enum { SG_ROUNDUP_INTERVALS = 16, SG_PATH_BYTES = 512 };
#define SG_AUTO UINT64_MAX /* "auto" in an integer option */
#define SG_CONF_SYSTEM_FILE "/etc/segalloc.conf"

/* An option, by the order of the table. */
enum sg_option {
#define OPTION(name, ...) SG_OPTION_##name,
#include "options.def"
    SG_OPTION_COUNT
};

/* The option overflow: bytes of other memory that a device may have. 0: none of that place; of `peer`, SG_AUTO:
   as many as another device has to spare. */
struct sg_conf_overflow {
    uint64_t peer, host;
};

/* The values in force, in base units: bytes, fractions, seconds. options.def says what each means. */
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
    struct sg_conf_overflow overflow;
    bool limit_visible;
    uint64_t contiguous; /* bytes; 0: off */
    double host_reserve; /* share of the host's memory; 0: none */
    enum sg_alias alias;
    enum sg_ipc ipc;
    enum sg_pytorch pytorch;
    char trace[SG_PATH_BYTES];
    uint64_t trace_bytes; /* of the newest of a trace; 0: all */
    char stats[SG_PATH_BYTES];
    bool live;
    bool sites;
    enum sg_oom_report oom_report;
    unsigned check; /* bits of enum sg_check_part */
    double guard_rate;              /* one allocation in so many, a whole number; 0: none by rate */
    double guard_seed;              /* a whole number */
    uint64_t guard_size;            /* bytes; 0: none by size */
    char guard_site[SG_PATH_BYTES]; /* a part of a site's text; "": none by site */
    char tag[SG_PATH_BYTES];        /* of memory that the program gives none; "": none */
    bool trim_on_request;
    double trim_idle_s;               /* seconds; 0: never */
    bool confirm_conf;
    bool abort_conf;
    unsigned char source[SG_OPTION_COUNT]; /* enum sg_conf_source of each */
};

/* True if memory may lie elsewhere. */
static inline bool sg_conf_overflows(const struct sg_conf *conf)
{
    return conf->overflow.peer || conf->overflow.host;
}

/* Fills in the built-in defaults; every source is SG_CONF_DEFAULT. */
void sg_conf_init(struct sg_conf *conf);

/* Sets one option, leaving its source alone; false, changing nothing, for a value that it doesn't take. A path must be
   shorter than SG_PATH_BYTES. */
bool sg_conf_set(struct sg_conf *conf, enum sg_option option, const char *value);

/* Writes the value of `option` as the user would write it, truncated to `size` bytes with the NUL; returns `buffer`. */
char *sg_conf_format(const struct sg_conf *conf, enum sg_option option, char *buffer, size_t size);

/* Writes all options that differ from their defaults as "key:value,…", which sg_conf_apply() reads back to the same
   values; returns the length as snprintf does. */
size_t sg_conf_print(const struct sg_conf *conf, char *buffer, size_t size);

/* A row of the table as texts, all constant: the name, the default as a user writes it, one sentence, and the type. */
struct sg_option_info {
    const char *name, *def, *text, *type;
    bool torch; /* PyTorch has it too */
};
const struct sg_option_info *sg_option_info(enum sg_option option);

/* True if commas part words of one value of the option. So a text goes on with it up to the next word that has
   a colon. */
bool sg_option_has_commas(enum sg_option option);

/* Writes what values `option` takes ("True or False", "0 for off, or 20 to 16777216 (MiB)"), truncated to `size` bytes
   with the NUL; returns `buffer`. `conf` gives the bounds that follow from other options; NULL for the defaults. */
char *sg_option_values(const struct sg_conf *conf, enum sg_option option, char *buffer, size_t size);

/* The name of a source as messages write it: "default", "/etc/segalloc.conf", "SEGALLOC_CONF_FILE" … Constant. */
const char *sg_conf_source_name(enum sg_conf_source source);

/* Bytes that may be held of a device with `total` bytes: the least of it, `limit` and per_process_memory_fraction. */
uint64_t sg_conf_limit(const struct sg_conf *conf, uint64_t total);

#endif
