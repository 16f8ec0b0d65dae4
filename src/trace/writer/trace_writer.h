/* Writes the trace of the process it runs in. libc only; no heap, no stdio.

   A *block* is 1 MiB of the file, mapped into memory. The *helper* is a thread of the writer that makes blocks ready ahead.
   A *snapshot* is a run of records with the statistics of a device.

   Why a mapped file: an event is a few stores into it, and what was stored survives the process, whatever ends it. write()
   would cost a system call an event, and a buffer would be lost in a crash, which is when a trace is wanted most.

   Why a helper: the first store to a page of a file may wait for the disk. If that is full, it is a signal. The helper, with all signals blocked, takes the space (posix_fallocate), maps it and touches its pages. So an event meets
   neither a full nor a slow disk.

   Example, a training loop with 100,000 events a second:
     at the first event    the file is made, its header written; one block in use, two ready; the helper makes it four
     each 0.33 s           32606 events fill a block; the next is taken from those ready, the full one gets its checksum
     the disk stalls       four blocks last 1.3 s. Then one event waits 5 ms for the helper, and later ones are dropped and
                           counted; the helper is asked for 8, 16, 32 blocks ahead from then on
     the disk is full      the helper's posix_fallocate says so; one line to the user; events end with the last block
     the process ends      the last statistics and an END record go into places that each block keeps free for them

   Limits: 32 blocks ahead bound memory. A wait is at most 5 ms for the disk and 50 ms for a processor. Threads beyond 65535
   are not told apart. A disk that refuses space ends the trace, and nothing else.

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
    uint64_t ring_bytes; /* at most so much of the newest is kept, and at least half of it, beside what older parts leave
                            behind (trace_fold.h); 0: all is kept. Takes a helper */
    sg_environment_fn *environment;
    void (*warn)(const char *line); /* one line for the user, without a newline, at most a few in a process; may be
                                       called under the core's lock and from the helper. NULL: dropped */
    /* pthread_create(), which is not in libc itself before glibc 2.34 and so is handed in. NULL: no helper; blocks are
       then made by the thread that needs one. */
    int (*create_thread)(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *user);
};

/* Makes a writer; no file and no thread before the first event. 0, -ENAMETOOLONG or -ENOMEM. */
int sg_trace_writer_create(const struct sg_trace_writer_options *options, struct sg_trace_writer **ret);

/* The event sink of a writer: writes one record, with time and thread filled in. The definition of a device also goes into
   the header. Any thread may call it, with locks of its own held: it takes the writer's lock for some stores. */
struct sg_event_sink sg_trace_writer_sink(struct sg_trace_writer *writer);
void sg_trace_writer_emit(void *writer, const struct segalloc_trace_record *record);

/* Writes a record, and a SITE before it where the thread's site or phase differ from those last written. 0: unknown. */
void sg_trace_writer_emit_from(struct sg_trace_writer *writer, const struct segalloc_trace_record *event, uint32_t site,
                               uint32_t phase);

/* Writes the records of a definition. False: they did not all find a place, and the last one was not written. The
   definition is not complete then, and comes again later. True too where the trace has ended. */
bool sg_trace_writer_define(struct sg_trace_writer *writer, struct segalloc_trace_record *define, uint32_t count);

/* Writes what differs from the last snapshot of this device: the figures that a report of the trace has (reserved,
   allocated, driver calls …) are as of the last one. Cheap enough for every growth of the device; to be called also
   when sg_trace_writer_due() says so and before closing, never with figures older than those of the call before. */
void sg_trace_writer_statistics(struct sg_trace_writer *writer, uint32_t device, const struct sg_stats *stats);

/* True if it is time for another snapshot of `device`: after 1, 2, 4 … events, and from 16384 on after as many more each
   time. So a short process that is killed leaves one too. Takes no lock. */
enum { SG_TRACE_SNAPSHOT_EVENTS = 16384, SG_TRACE_DEVICES = 64 };
bool sg_trace_writer_due(const struct sg_trace_writer *writer, uint32_t device);

/* True if the writer is free at once or becomes so within a second. A thread that left a call of it by a long jump keeps it
   for ever. The trace then ends as by a kill, and nobody may wait for it. */
bool sg_trace_writer_comes_free(struct sg_trace_writer *writer);

/* Ends the trace: later events are ignored. Waits for the helper, at most two seconds. */
void sg_trace_writer_close(struct sg_trace_writer *writer);

/* In a forked child, where no other thread is: lets go of the parent's file. The next event opens a file of its own. */
void sg_trace_writer_fork_child(struct sg_trace_writer *writer);

/* Close, and free the writer. For tests and tools: nobody may be using it. */
void sg_trace_writer_destroy(struct sg_trace_writer *writer);

/* The state of a writer at one moment, for messages and tests. */
struct sg_trace_writer_state {
    bool open;         /* a file is being written */
    uint64_t records;  /* written */
    uint64_t dropped;
    int error;         /* negative errno that ended the trace, or 0 */
    const char *path;  /* of the file, once open */
};
void sg_trace_writer_state(struct sg_trace_writer *writer, struct sg_trace_writer_state *ret);

#endif
