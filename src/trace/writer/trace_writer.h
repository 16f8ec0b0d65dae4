/* Writes the trace of the process it runs in. libc only; no heap, no stdio.

   An event is a few stores into a mapped file: what was written survives the process, whatever ends it. A helper
   thread with all signals blocked takes blocks of the file (posix_fallocate), maps and touches them ahead. An event
   therefore meets neither a full nor a slow disk. Where no block is ready one event waits for the helper, at most 5 ms for
   the disk and 50 ms for a processor. Then events are dropped and counted until the helper has caught up. The number of blocks ready ahead grows from
   4 to 32 blocks when the helper is late, which is what bounds memory. A disk that refuses space ends the trace, with
   one line to the user, and nothing else.

   One spin lock, held for a few stores, orders the events of several devices; one device's events come under its own
   lock anyway. */
#ifndef SG_TRACE_WRITER_H
#define SG_TRACE_WRITER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/event.h"
#include "writer/path_pattern.h"
#include "segalloc/trace_format.h"
#include "base/stats.h"

struct sg_trace_writer;

struct sg_trace_writer_options {
    const char *path;    /* pattern of sg_path_expand(); copied */
    const char *conf;    /* configuration in force, "key:value,…"; copied, NULL: none */
    const char *command; /* command line; copied, NULL: none */
    uint64_t limit_bytes;
    sg_environment_fn *environment;
    void (*warn)(const char *line); /* one line for the user, without a newline, at most a few in a process; may be
                                       called under the core's lock and from the helper. NULL: dropped */
    /* pthread_create(), which is not in libc itself before glibc 2.34 and so is handed in. NULL: no helper; blocks are
       then made by the thread that needs one. */
    int (*create_thread)(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *user);
};

/* Makes a writer; no file and no thread before the first event. 0 or a negative errno. */
int sg_trace_writer_create(const struct sg_trace_writer_options *options, struct sg_trace_writer **ret);

/* The event sink of a writer: writes one record; time and thread are filled in. Definitions of devices also fill in the
   header. */
struct sg_event_sink sg_trace_writer_sink(struct sg_trace_writer *writer);
void sg_trace_writer_emit(void *writer, const struct segalloc_trace_record *record);

/* The same, with word before it of where the calling thread asks from, where that differs from what was said last of
   this thread. 0: unknown. */
void sg_trace_writer_emit_from(struct sg_trace_writer *writer, const struct segalloc_trace_record *event, uint32_t site,
                               uint32_t phase);

/* Writes definitions, all of them or at least not the last one: false then. True too where the trace has ended. */
bool sg_trace_writer_define(struct sg_trace_writer *writer, struct segalloc_trace_record *define, uint32_t count);

/* Writes what differs from the last snapshot of this device: the figures that a report of the trace has (reserved,
   allocated, driver calls …) are as of the last one. Cheap enough for every growth of the device; to be called also
   when sg_trace_writer_due() says so and before closing, never with figures older than those of the call before. */
void sg_trace_writer_statistics(struct sg_trace_writer *writer, uint32_t device, const struct sg_stats *stats);

/* Whether it is time for another snapshot of `device`: with the first events, each time that their number has doubled,
   so that short processes that are killed leave one too; then every SG_TRACE_SNAPSHOT_EVENTS. Lock-free. */
enum { SG_TRACE_SNAPSHOT_EVENTS = 16384, SG_TRACE_DEVICES = 64 };
bool sg_trace_writer_due(const struct sg_trace_writer *writer, uint32_t device);

/* Ends the trace: later events are ignored. Waits for the helper, at most two seconds. */
void sg_trace_writer_close(struct sg_trace_writer *writer);

/* In a forked child, where no other thread is: lets go of the parent's file. The next event opens a file of its own. */
void sg_trace_writer_fork_child(struct sg_trace_writer *writer);

/* Close, and free the writer. For tests and tools: nobody may be using it. */
void sg_trace_writer_destroy(struct sg_trace_writer *writer);

struct sg_trace_writer_state {
    bool open;         /* a file is being written */
    uint64_t records;  /* written */
    uint64_t dropped;
    int error;         /* negative errno that ended the trace, or 0 */
    const char *path;  /* of the file, once open */
};
void sg_trace_writer_state(struct sg_trace_writer *writer, struct sg_trace_writer_state *ret);

#endif
