/* What is written to the trace and to the statistics, and when, against a writer, a core and a clock made up here. The
   recorder is opened once in a process: each test has its own. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

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
    bool due;
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
    bool no_stats;     /* the core knows none of the device */
    int defined;       /* records of sites in the trace */
    bool full;         /* and it takes no more */
    CUresult naming;   /* what the driver answers */
    CUresult granularity, total;
    bool lacks_granularity;
    int asked;         /* the driver about a device */
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

/* In a child, cmocka's long jump would go on with the parent's tests. */
#define EXPECT(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: error: %s\n", __FILE__, __LINE__, #condition); \
            _exit(1); \
        } \
    } while (0)

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

static void *no_symbol(void *handle, const char *name)
{
    (void)handle, (void)name;
    return NULL;
}

sg_dlsym_fn *sg_dlsym(void)
{
    return no_symbol;
}

static CUresult device_name(char *name, int size, CUdevice device)
{
    (void)device;
    snprintf(name, (size_t)size, "%s", fake.model);
    return fake.naming;
}

static CUresult device_uuid(CUuuid *id, CUdevice device)
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

static CUresult granularity(size_t *ret, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags flags)
{
    (void)prop, (void)flags;
    *ret = 4096;
    fake.asked++;
    return fake.granularity;
}

static CUresult device_total(size_t *ret, CUdevice device)
{
    (void)device;
    *ret = 1000;
    return fake.total;
}

static void use(int device)
{
    const struct sg_driver driver = {.granularity = fake.lacks_granularity ? NULL : granularity,
        .device_total = device_total};
    sg_recorder_device(&driver, device);
}

static struct sg_event_sink open_with(const char *trace, const char *stats, bool live)
{
    static struct sg_conf conf;
    sg_conf_init(&conf);
    snprintf(conf.trace, sizeof conf.trace, "%s", trace);
    snprintf(conf.stats, sizeof conf.stats, "%s", stats);
    conf.live = live;
    conf.limit_fraction = 0.5;
    return sg_recorder_open(&conf);
}

static void tick(int times)
{
    for (int i = 0; i < times; i++)
        sg_recorder_tick(core, 0);
}

static void apart(void (*test)(void))
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        test();
        exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void ask_for_nothing(void)
{
    EXPECT(!open_with("", "", false).emit && !sg_recorder_on);
    use(0);
    tick(10);
    sg_recorder_close(core);
    sg_recorder_forget();
    EXPECT(fake.files + fake.asked + fake.writer.closed + fake.writer.forked == 0);
}

static void nothing_is_written_unasked(void **state)
{
    (void)state;
    apart(ask_for_nothing);
}

/* Often at first, then as events and time go by. */
static void ask_for_statistics(void)
{
    fake.now = 100 * SECOND_NS;
    EXPECT(!open_with("", "s", false).emit && sg_recorder_on);
    use(1);
    tick(1);
    EXPECT(fake.files == 1 && fake.file.count == 1 && fake.file.start_realtime_ns == fake.now);
    tick(511);
    EXPECT(fake.files == 9);
    fake.now += SECOND_NS / 4;
    tick(256);
    EXPECT(fake.files == 9);
    fake.now += SECOND_NS / 2;
    tick(256);
    EXPECT(fake.files == 10 && strcmp(fake.path, "s") == 0);
    fake.by = "cuSomethingNew";
    sg_recorder_close(core);
    EXPECT(fake.files == 11 && fake.file.untracked_by == fake.by);
}

static void statistics_are_written_as_they_change(void **state)
{
    (void)state;
    apart(ask_for_statistics);
}

static void tick_once(void)
{
    tick(1);
}

/* One thread writes; what another would write meanwhile is older. */
static void write_from_two_threads(void)
{
    open_with("t", "s", false);
    fake.meanwhile = tick_once;
    tick(1);
    EXPECT(fake.files == 1 && !fake.meanwhile);
    tick(2); /* the third event is none to write at */
    EXPECT(fake.files == 2);
}

static void one_thread_writes_at_a_time(void **state)
{
    (void)state;
    apart(write_from_two_threads);
}

static void fail_to_write(void)
{
    fake.create = -ENOSPC;
    fake.write = -EACCES;
    EXPECT(!open_with("t", "s", false).emit && sg_recorder_on);
    EXPECT(fake.said == 1);
    fake.no_stats = true;
    use(0);
    tick(4);
    EXPECT(fake.said == 2 && fake.files == 1 && fake.file.count == 0);
    fake.writer.due = true;
    sg_recorder_close(core);
    EXPECT(fake.files == 1 && fake.writer.closed == 0);
}

static void what_cannot_be_written_is_said_once(void **state)
{
    (void)state;
    apart(fail_to_write);
}

/* What the driver says of a device is asked once. */
static void use_devices(void)
{
    open_with("", "s", false);
    use(0);
    use(0);
    fake.lacks_granularity = true;
    use(1);
    fake.lacks_granularity = false;
    fake.granularity = fake.total = CUDA_ERROR_INVALID_DEVICE;
    use(2);
    EXPECT(fake.asked == 2);
    tick(1);
    EXPECT(fake.file.count == 3);
    EXPECT(fake.devices[0].granularity == 4096 && fake.devices[0].total_bytes == 1000);
    EXPECT(fake.devices[0].limit_bytes == 500);
    EXPECT(fake.devices[1].granularity == 0 && fake.devices[1].total_bytes == 1000);
    EXPECT(fake.devices[2].granularity == 0 && fake.devices[2].total_bytes == 0);
}

static void devices_are_as_the_driver_says(void **state)
{
    (void)state;
    apart(use_devices);
}

/* Each once, as soon as there is a snapshot; in the file of statistics too. */
static void name_devices(void)
{
    fake.model = "simulated GPU 1";
    open_with("t", "s", false);
    use(1);
    EXPECT(fake.models == 0 && !sg_recorder_path());
    fake.writer.due = true;
    tick(3);
    EXPECT(strcmp(sg_recorder_path(), "the trace") == 0);
    EXPECT(fake.models == 1 && fake.uuids == 1 && strcmp(fake.devices[0].model, fake.model) == 0);
    EXPECT(strcmp(fake.devices[0].uuid, "GPU-f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfe01") == 0);
    sg_recorder_close(core);
    EXPECT(fake.models == 1 && fake.uuids == 1);
}

/* A buffer that the driver has written to before it failed is no name. */
static void name_no_device(void)
{
    fake.model = "simulated GPU 1";
    fake.naming = CUDA_ERROR_INVALID_DEVICE;
    open_with("t", "s", false);
    use(1);
    fake.writer.due = true;
    tick(3);
    EXPECT(fake.models == 0 && fake.uuids == 0 && fake.file.count > 0 && !*fake.devices[0].model);
}

static void models_of_devices_are_told(void **state)
{
    (void)state;
    apart(name_devices);
    apart(name_no_device);
}

/* A device is due from its first event on, but its statistics may not be had yet. */
static void take_no_snapshot(void)
{
    open_with("t", "", false);
    use(0);
    fake.writer.due = fake.no_stats = true;
    tick(3);
    EXPECT(fake.writer.snapshots == 0);
    fake.no_stats = false;
    tick(1);
    EXPECT(fake.writer.snapshots == 1);
}

static void snapshots_are_of_devices_that_are_there(void **state)
{
    (void)state;
    apart(take_no_snapshot);
}

/* Where no trace is written a definition has been taken for good; else it is the writer that says so. */
static void define(void)
{
    struct segalloc_trace_record record = {.kind = SEGALLOC_RECORD_DEFINE_SITE};
    open_with("", "s", false);
    EXPECT(sg_recorder_define(&record, 1) && fake.defined == 0 && !sg_recorder_path());
    open_with("t", "s", false);
    EXPECT(sg_recorder_define(&record, 1) && fake.defined == 1);
    fake.full = true;
    EXPECT(!sg_recorder_define(&record, 1) && fake.defined == 2);
}

static void definitions_go_to_the_trace(void **state)
{
    (void)state;
    apart(define);
}

/* In pieces of a record each, filled up with zeros, as soon as the trace has a snapshot. */
static void lose_order(void)
{
    static const char name[] = "cuStreamWhichHasANameOf39CharactersInAll";
    EXPECT(open_with("t", "", false).sink == &fake.writer);
    use(0);
    use(SG_DEVICES_MAX - 1);
    fake.writer.due = true;
    tick(3);
    EXPECT(fake.writer.snapshots == 3 && fake.pieces == 0);
    fake.by = name;
    tick(3);
    EXPECT(fake.pieces == 3 && fake.lasts == 1);
    sg_recorder_close(core);
    EXPECT(fake.pieces == 3 && fake.writer.closed == 1 && fake.writer.snapshots == 8);
    static char expected[sizeof fake.text];
    memcpy(expected, name, sizeof name);
    EXPECT(memcmp(fake.text, expected, sizeof expected) == 0);
}

static void trace_says_by_which_call_order_was_lost(void **state)
{
    (void)state;
    apart(lose_order);
}

static void lose_order_at_last(void)
{
    open_with("t", "", false);
    use(0);
    fake.by = "cuLast";
    fake.no_stats = true;
    fake.writer.due = true;
    sg_recorder_close(core);
    EXPECT(fake.pieces == 1 && fake.lasts == 1 && strcmp(fake.text, "cuLast") == 0);
    EXPECT(fake.writer.snapshots == 0);
}

static void trace_says_so_at_its_end_too(void **state)
{
    (void)state;
    apart(lose_order_at_last);
}

static void write_phase(char *text, size_t size)
{
    snprintf(text, size, "step 3");
}

/* Statistics that can be looked at while the process lives go with it; a file that was asked for stays. */
static void live_on(void)
{
    char path[64];
    EXPECT(!open_with("", "", true).emit && sg_recorder_on);
    sg_recorder_follow_phase(write_phase);
    tick(1);
    snprintf(path, sizeof path, "/dev/shm/segalloc-live-%ld", (long)getpid());
    EXPECT(strcmp(fake.path, path) == 0);
    EXPECT(fake.file.pid_namespace == sg_live_namespace() && strcmp(fake.phase, "step 3") == 0);
    FILE *file = fopen(path, "w");
    EXPECT(file && fclose(file) == 0);
    sg_recorder_close(core);
    EXPECT(access(path, F_OK) != 0 && fake.files == 1);
}

static void live_on_in_a_file(void)
{
    open_with("", "s", true);
    tick(1);
    EXPECT(strcmp(fake.path, "s") == 0);
    sg_recorder_close(core);
    EXPECT(fake.files == 2);
}

static void live_statistics_go_with_the_process(void **state)
{
    (void)state;
    apart(live_on);
    apart(live_on_in_a_file);
}

static void fork_away(void)
{
    open_with("t", "s", false);
    sg_recorder_forget();
    tick(4);
    EXPECT(fake.writer.forked == 1 && fake.files == 0);
}

static void the_files_are_the_parents(void **state)
{
    (void)state;
    apart(fork_away);
}

/* This program's own, which main() has made too long; also where standard input is closed, whose number a file gets. */
static void read_command(void)
{
    close(STDIN_FILENO);
    open_with("t", "", false);
    EXPECT(strlen(fake.options.command) == COMMAND_BYTES - 1);
    EXPECT(strstr(fake.options.command, "test_recorder xxx"));
    tick(1);
    EXPECT(fake.pieces == 0);
}

static void command_is_cut(void **state)
{
    (void)state;
    apart(read_command);
}

int main(int argc, char **argv)
{
    static char filler[2 * COMMAND_BYTES];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_written_unasked),
        cmocka_unit_test(statistics_are_written_as_they_change),
        cmocka_unit_test(one_thread_writes_at_a_time),
        cmocka_unit_test(what_cannot_be_written_is_said_once),
        cmocka_unit_test(devices_are_as_the_driver_says),
        cmocka_unit_test(models_of_devices_are_told),
        cmocka_unit_test(snapshots_are_of_devices_that_are_there),
        cmocka_unit_test(definitions_go_to_the_trace),
        cmocka_unit_test(trace_says_by_which_call_order_was_lost),
        cmocka_unit_test(trace_says_so_at_its_end_too),
        cmocka_unit_test(live_statistics_go_with_the_process),
        cmocka_unit_test(the_files_are_the_parents),
        cmocka_unit_test(command_is_cut),
    };
    if (argc == 1) {
        memset(filler, 'x', sizeof filler - 1);
        execv("/proc/self/exe", (char *[]){argv[0], filler, NULL});
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
