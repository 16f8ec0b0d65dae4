/* Statistics of a process as a file: one JSON object, schema "segalloc.stats/1".

   {"schema", "version", "pid", "pid_namespace", "start_realtime_ns", "end_realtime_ns", "conf", "command",
   "untracked_order": 0 or 1, "untracked_by", "pytorch", "aliases", "phase", "devices"}.

   With tags of memory there is "tags": {"tag", "backup", "paused", "requested_bytes", "reserved_bytes", "pauses", "resumes",
   "peak_requested_bytes", "peak_reserved_bytes", "backup_bytes_peak"} each.

   A device: {"device", "model", "uuid", "granularity_bytes", "total_bytes", "limit_bytes", "statistics": {NAME: value,
   "peak_NAME": peak of a level, …}}; names by stats.def, all numbers integers, times nanoseconds. Fields are added, none is
   taken away.

   Peaks of a tag are sums of the devices' peaks. With one device they are exact; with several they are no less than what
   the tag had at once.

   Why a file and no socket: it is there after the process has ended, and any tool reads it. The writer runs inside the
   program, at most twice a second. So it uses neither heap nor stdio streams, and writes through a buffer of 4 KiB.

   Example, shortened, of a process with one block of 300 KiB in its first page:
     {"schema":"segalloc.stats/1","pid":4711,"conf":"","command":"python train.py","devices":[{"device":0,
      "granularity_bytes":2097152,"total_bytes":25769803776,"limit_bytes":0,"statistics":{"requested_bytes":307200,
      "peak_requested_bytes":307200,"reserved_bytes":2097152,"grows":1}}]} */
#ifndef SG_STATS_FILE_H
#define SG_STATS_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "writer/path_pattern.h"
#include "base/stats.h"

enum {
    SG_STATS_DEVICES = 64,
    SG_STATS_ERROR = 512,
    SG_STATS_MODEL = 64,
    SG_STATS_UUID = 48,
    SG_STATS_TAGS = 32,
    SG_STATS_TAG_NAME = 64
};

/* A tag of memory (docs/pause.md), over all devices. Sizes in bytes. */
struct sg_stats_tag {
    char name[SG_STATS_TAG_NAME];
    bool backup; /* a pause saves its contents */
    bool paused; /* on any device */
    uint64_t requested, reserved, peak_requested, peak_reserved, peak_saved, pauses, resumes;
};

/* The statistics of one device. */
struct sg_stats_device {
    uint32_t device;                                /* ordinal */
    char model[SG_STATS_MODEL];                     /* as the driver calls it; "": unknown */
    char uuid[SG_STATS_UUID];                       /* as nvidia-smi writes it, "GPU-…"; "": unknown */
    uint64_t granularity, total_bytes, limit_bytes; /* 0: unknown, or no limit */
    struct sg_stats stats;
};

/* The content of a file. The texts are the caller's, or sg_stats_file_read()'s. */
struct sg_stats_file {
    uint64_t pid, start_realtime_ns, end_realtime_ns;
    uint64_t pid_namespace;     /* in which the id is the process's; 0: unknown */
    const char *conf, *command; /* NULL: none */
    const char *untracked_by; /* the call through which the order of streams could not be followed; NULL or "": none */
    const char *pytorch;        /* the mode of PyTorch's tensors: "direct", "beneath" …; NULL: no PyTorch */
    const char *aliases;        /* second addresses of pages: "on", or "off" and why; NULL: there are none */
    const char *phase;          /* the phase that the program says it is in; NULL or "": unknown */
    const struct sg_stats_device *devices;
    uint32_t count;
    const struct sg_stats_tag *tags; /* NULL: none */
    uint32_t tag_count;
    bool is_private; /* only this user may read the file */
};

/* Writes the file whose name is the pattern `path`; what stood there is replaced whole, in one step. For use inside
   the program that is measured: libc only, no heap. 0 or a negative errno. */
int sg_stats_file_write(const char *path, sg_environment_fn *environment, const struct sg_stats_file *file);

#endif
