/* A core with statistics, and a clock that stands, for tests of the recorder. To be included by one file of a program. */
#ifndef RECORDER_FAKES_H
#define RECORDER_FAKES_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "apart.h"
#include "expect_in_child.h"
#include "inspect/core_state.h"
#include "services/alias_probe.h"
#include "process/environment.h"
#include "process/process.h"
#include "services/recorder.h"
#include "process/symbols.h"
#include "writer/live_pages.h"
#include "writer/stats_file.h"
#include "track/streams.h"
#include "track/torch_mode.h"
#include "writer/trace_writer.h"

enum { COMMAND_BYTES = 8192, DEVICES = 3 };
static const uint64_t SECOND_NS = 1000000000;

struct sg_trace_writer {
    int snapshots, closed, forked;
    bool due, held; /* for good */
};

static struct {
    struct sg_trace_writer writer;
    struct sg_trace_writer_options options;
    int create, write; /* what the writer of the trace, and of statistics, answers */
    uint64_t now;
    const char *model; /* what the driver calls devices; NULL: it does not say */
    int models, uuids; /* names of devices in the trace */
    const char *by;    /* the order of streams was lost by this call */
    char text[64];     /* the same as the trace has it */
    int pieces, lasts;
    int files, said;
    char path[128];
    struct sg_stats_file file;
    char phase[16];
    struct sg_stats_device devices[DEVICES]; /* of that */
    void (*meanwhile)(void);
    bool no_stats;   /* the core knows none of the device */
    int defined;     /* records of sites in the trace */
    bool full;       /* and it takes no more */
    CUresult naming; /* what the driver answers */
    CUresult granularity, total;
    bool lacks_granularity;
    int asked; /* the driver about a device */
} fake;

static struct sg_core *const core = (struct sg_core *)&fake;

struct sg_thread *sg_thread_find(void)
{
    return &sg_self;
}

/* recorder.c calls it in place of the system's. */
int stopped_clock(clockid_t clock, struct timespec *ret)
{
    (void)clock;
    *ret = (struct timespec){.tv_sec = (time_t)(fake.now / SECOND_NS), .tv_nsec = (long)(fake.now % SECOND_NS)};
    return 0;
}

int sg_trace_writer_create(const struct sg_trace_writer_options *options, struct sg_trace_writer **ret)
{
    fake.options = *options;
    if (!fake.create)
        *ret = &fake.writer;
    return fake.create;
}

void sg_trace_writer_emit_from(struct sg_trace_writer *writer, const struct segalloc_trace_record *event, uint32_t site,
    uint32_t phase)
{
    (void)site;
    (void)phase;
    sg_trace_writer_emit(writer, event);
}

bool sg_trace_writer_define(struct sg_trace_writer *writer, struct segalloc_trace_record *define, uint32_t count)
{
    EXPECT(writer == &fake.writer && define->kind == SEGALLOC_RECORD_DEFINE_SITE);
    fake.defined += (int)count;
    return !fake.full;
}

void sg_trace_writer_emit(void *writer, const struct segalloc_trace_record *record)
{
    char piece[sizeof record->id + sizeof record->size];
    if (record->kind == SEGALLOC_RECORD_DEFINE_MODEL) {
        memcpy(piece, &record->id, sizeof record->id);
        EXPECT(fake.model && memcmp(piece, fake.model, sizeof record->id) == 0 && record->stream == 1);
        EXPECT(record->flags == (SEGALLOC_FLAG_FIRST | SEGALLOC_FLAG_LAST));
        fake.models++;
        return;
    }
    if (record->kind == SEGALLOC_RECORD_DEFINE_UUID) { /* see device_uuid() */
        memcpy(piece, &record->id, sizeof record->id);
        memcpy(piece + sizeof record->id, &record->size, sizeof record->size);
        for (size_t i = 0; i < sizeof piece; i++)
            EXPECT((unsigned char)piece[i] == (i == 15 ? record->stream : 0xf0 + i));
        fake.uuids++;
        return;
    }
    EXPECT(writer == &fake.writer && record->kind == SEGALLOC_RECORD_UNTRACKED);
    EXPECT(sizeof piece * (size_t)(fake.pieces + 1) <= sizeof fake.text);
    memcpy(piece, &record->id, sizeof record->id);
    memcpy(piece + sizeof record->id, &record->size, sizeof record->size);
    memcpy(fake.text + sizeof piece * (size_t)fake.pieces++, piece, sizeof piece);
    fake.lasts += (record->flags & SEGALLOC_FLAG_LAST) != 0;
}

struct sg_event_sink sg_trace_writer_sink(struct sg_trace_writer *writer)
{
    return (struct sg_event_sink){sg_trace_writer_emit, writer};
}

bool sg_trace_writer_due(const struct sg_trace_writer *writer, uint32_t device)
{
    (void)device;
    return writer->due;
}

bool sg_trace_writer_comes_free(struct sg_trace_writer *writer)
{
    return !writer->held;
}

void sg_trace_writer_statistics(struct sg_trace_writer *writer, uint32_t device, const struct sg_stats *stats)
{
    EXPECT(stats->value[0] == device + 1);
    writer->snapshots++;
}

void sg_trace_writer_state(struct sg_trace_writer *writer, struct sg_trace_writer_state *ret)
{
    *ret = (struct sg_trace_writer_state){.open = writer->snapshots > 0, .path = "the trace"};
}

void sg_trace_writer_close(struct sg_trace_writer *writer)
{
    writer->closed++;
}

void sg_trace_writer_fork_child(struct sg_trace_writer *writer)
{
    writer->forked++;
}

int sg_stats_file_write(const char *path, sg_environment_fn *environment, const struct sg_stats_file *file)
{
    void (*meanwhile)(void) = fake.meanwhile;
    (void)environment;
    fake.meanwhile = NULL;
    if (meanwhile)
        meanwhile();
    fake.files++;
    snprintf(fake.path, sizeof fake.path, "%s", path);
    EXPECT(file->count <= DEVICES);
    fake.file = *file;
    snprintf(fake.phase, sizeof fake.phase, "%s", file->phase);
    memcpy(fake.devices, file->devices, file->count * sizeof *file->devices);
    return fake.write;
}

const char *sg_streams_untracked_by(void)
{
    return fake.by;
}

bool sg_core_stats(struct sg_core *asked, int device, struct sg_stats *ret)
{
    (void)asked;
    *ret = (struct sg_stats){.value = {(uint64_t)device + 1}};
    return !fake.no_stats;
}

void sg_log_line(const char *line)
{
    EXPECT(strstr(line, "no ") == line);
    fake.said++;
}

static inline void *no_symbol(void *handle, const char *name)
{
    (void)handle, (void)name;
    return NULL;
}

sg_dlsym_fn *sg_dlsym(void)
{
    return no_symbol;
}

static inline CUresult device_name(char *name, int size, CUdevice device)
{
    (void)device;
    snprintf(name, (size_t)size, "%s", fake.model);
    return fake.naming;
}

static inline CUresult device_uuid(CUuuid *id, CUdevice device)
{
    for (size_t i = 0; i < sizeof id->bytes; i++)
        id->bytes[i] = (char)(0xf0 + i);
    id->bytes[15] = (char)device;
    return fake.naming;
}

void *sg_cuda_symbol(const char *name)
{
    CUresult (*function)(char *, int, CUdevice) = device_name;
    void *symbol;
    if (strcmp(name, "cuDeviceGetUuid") == 0) {
        CUresult (*uuid)(CUuuid *, CUdevice) = device_uuid;
        memcpy(&symbol, &uuid, sizeof symbol);
        return fake.model ? symbol : NULL;
    }
    if (strcmp(name, "cuDeviceGetUuid_v2") == 0) /* of newer drivers */
        return NULL;
    EXPECT(strcmp(name, "cuDeviceGetName") == 0);
    memcpy(&symbol, &function, sizeof symbol);
    return fake.model ? symbol : NULL;
}

static inline CUresult granularity(size_t *ret, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags flags)
{
    (void)prop, (void)flags;
    *ret = 4096;
    fake.asked++;
    return fake.granularity;
}

static inline CUresult device_total(size_t *ret, CUdevice device)
{
    (void)device;
    *ret = 1000;
    return fake.total;
}

static inline void use(int device)
{
    const struct sg_driver driver = {.granularity = fake.lacks_granularity ? NULL : granularity,
        .device_total = device_total};
    sg_recorder_device(&driver, device);
}

static inline struct sg_event_sink open_with(const char *trace, const char *stats, bool live)
{
    static struct sg_conf conf;
    sg_conf_init(&conf);
    snprintf(conf.trace, sizeof conf.trace, "%s", trace);
    snprintf(conf.stats, sizeof conf.stats, "%s", stats);
    conf.live = live;
    conf.limit_fraction = 0.5;
    return sg_recorder_open(&conf);
}

static inline void tick(int times)
{
    for (int i = 0; i < times; i++)
        sg_recorder_tick(core, 0);
}

/* Where no trace is written a definition has been taken for good; else it is the writer that says so. */
static inline void define(void)
{
    struct segalloc_trace_record record = {.kind = SEGALLOC_RECORD_DEFINE_SITE};
    open_with("", "s", false);
    EXPECT(sg_recorder_define(&record, 1) && fake.defined == 0 && !sg_recorder_path());
    open_with("t", "s", false);
    EXPECT(sg_recorder_define(&record, 1) && fake.defined == 1);
    fake.full = true;
    EXPECT(!sg_recorder_define(&record, 1) && fake.defined == 2);
}

#endif
