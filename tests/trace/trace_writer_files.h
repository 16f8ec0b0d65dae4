/* Trace files written and read back, for tests of the writer. */
#ifndef TRACE_WRITER_FILES_H
#define TRACE_WRITER_FILES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "files.h"
#include "trace_file.h"
#include "reader/trace_reader.h"
#include "writer/trace_writer.h"

/* ThreadSanitizer ends a child that makes threads after its parent had some, unless this option says otherwise. That is
   tested here. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "die_after_fork=0";
}

/* Events that a block has, the first with the definition of the thread; what is left is for the end of the trace. */
enum { EVENTS = SG_BLOCK_RECORDS - 161 };

static char folder[64], warned[512];

/* Events emitted once more, by children too. They were dropped because the helper came later than an event waits for
   it, on a machine with other work. */
static uint64_t *repeated;

static inline void warn(const char *line)
{
    snprintf(warned, sizeof(warned), "%s", line);
}

static inline int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/segalloc-test-XXXXXX");
    warned[0] = '\0';
    if (!repeated)
        repeated = mmap(NULL, sizeof *repeated, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (repeated == MAP_FAILED)
        return -1;
    *repeated = 0;
    return mkdtemp(folder) ? 0 : -1;
}

static inline int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command);
}

static inline const char *in_folder(const char *name)
{
    static char path[256];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static inline char *environment(const char *name)
{
    if (!strcmp(name, "LOCAL_RANK"))
        return (char *)(uintptr_t) "3/../4"; /* no number, so no rank */
    return !strcmp(name, "SLURM_PROCID") ? (char *)(uintptr_t) "34" : NULL;
}

static inline struct sg_trace_writer *make_bounded_writer(const char *name, bool helper, uint64_t ring_bytes)
{
    struct sg_trace_writer *writer = NULL;
    struct sg_trace_writer_options options = {.path = in_folder(name),
        .conf = "reserve_slack:1.5",
        .command = "train --steps 3",
        .limit_bytes = 99,
        .ring_bytes = ring_bytes,
        .environment = environment,
        .warn = warn,
        .create_thread = helper ? pthread_create : NULL};
    assert_int_equal(sg_trace_writer_create(&options, &writer), 0);
    return writer;
}

static inline struct sg_trace_writer *make_writer(const char *name, bool helper)
{
    return make_bounded_writer(name, helper, 0);
}

static inline uint64_t dropped_late(struct sg_trace_writer *writer)
{
    struct sg_trace_writer_state state;
    sg_trace_writer_state(writer, &state);
    return state.open && !state.error ? state.dropped : 0;
}

static inline void emit(struct sg_trace_writer *writer, uint64_t from, uint64_t to)
{
    struct sg_event_sink sink = sg_trace_writer_sink(writer);
    uint64_t known = dropped_late(writer);
    for (uint64_t i = from; i < to; i++) {
        struct segalloc_trace_record record = {.kind = SEGALLOC_RECORD_ALLOCATE, .stream = 1, .id = i, .size = i * 3};
        sink.emit(sink.sink, &record);
        while (dropped_late(writer) > known) {
            known++;
            ++*repeated;
            usleep(1000);
            sink.emit(sink.sink, &record);
        }
    }
}

static inline struct sg_trace_reader *open_trace(const char *path)
{
    struct sg_trace_reader *reader = NULL;
    char error[SG_TRACE_ERROR] = "";
    if (sg_trace_open(path, &reader, error) < 0)
        fail_msg("%s: %s", path, error);
    return reader;
}

/* Counts the allocations, which must be numbered one after another from `from` on. */
static inline uint64_t count(struct sg_trace_reader *reader, uint64_t from)
{
    struct segalloc_trace_record record[1000];
    uint64_t next = from;
    size_t n;
    while ((n = sg_trace_read(reader, record, 1000)) > 0)
        for (size_t i = 0; i < n; i++)
            if (record[i].kind == SEGALLOC_RECORD_ALLOCATE) {
                assert_int_equal(record[i].id, next);
                assert_int_equal(record[i].size, next * 3);
                assert_int_equal(record[i].thread, 1);
                next++;
            }
    assert_null(sg_trace_error(reader));
    return next - from;
}

enum { THREADS = 4, EACH = 50000 };

/* A program of two threads that keeps every KEPT_OF-th block, each thread at two lines in turn. */
enum { BOUND_BYTES = 4 << 20, BOUNDED_EVENTS = 200000, KEPT_OF = 1000, BOUNDED_THREADS = 2 };

static inline uint32_t site_of(uint64_t id)
{
    return 1 + (uint32_t)(id / 7 % 2);
}

/* The file has the blocks that live, with their lines. Names and figures are there, and every event is counted. `late`:
   some were dropped, which a process that is killed meanwhile may not have written. */
static inline void expect_bounded(const char *name, enum sg_trace_end end, bool late)
{
    enum { THREADS_SEEN = 16 };
    char error[SG_TRACE_ERROR];
    struct sg_trace_reader *reader;
    struct segalloc_trace_record record;
    static unsigned char lives[BOUNDED_THREADS][BOUNDED_EVENTS + 1];
    uint64_t site[THREADS_SEEN] = {0}, events = 0, lost = 0, unknown = 0, texts = 0, devices = 0, allocs = 0,
             findings = 0;
    bool first = true, is_bounded = false;
    memset(lives, 0, sizeof lives);
    assert_int_equal(sg_trace_open(in_folder(name), &reader, error), 0);
    while (sg_trace_read(reader, &record, 1) == 1) {
        is_bounded |= record.kind == SEGALLOC_RECORD_LEFT_OUT;
        assert_true(first || record.kind != SEGALLOC_RECORD_LEFT_OUT);
        first = false;
        events += record.kind == SEGALLOC_RECORD_LEFT_OUT ? record.id : record.kind <= SEGALLOC_RECORD_FREE;
        texts += record.kind == SEGALLOC_RECORD_DEFINE_TEXT;
        devices += record.kind == SEGALLOC_RECORD_DEFINE_DEVICE;
        if (record.kind == SEGALLOC_RECORD_FINDING) /* both of them, in their order */
            findings = findings * 10 + record.stream;
        if (record.kind == SEGALLOC_RECORD_STATISTIC && record.id == sg_name_hash("allocs"))
            allocs = record.size;
        assert_in_range(record.thread, 0, THREADS_SEEN - 1);
        if (record.kind == SEGALLOC_RECORD_SITE)
            site[record.thread] = record.id;
        if (record.kind == SEGALLOC_RECORD_ALLOCATE) {
            assert_int_equal(site[record.thread], site_of(record.id));
            lives[record.id & 0xff][record.id >> 8] = 1;
        }
        if (record.kind == SEGALLOC_RECORD_FREE) {
            unknown += !lives[record.id & 0xff][record.id >> 8];
            lives[record.id & 0xff][record.id >> 8] = 0;
        }
    }
    assert_null(sg_trace_error(reader));
    assert_int_equal(sg_trace_info(reader)->end, end);
    if (is_bounded)
        assert_non_null(strstr(sg_trace_info(reader)->begin_text, "are left out"));
    assert_true(is_bounded || end == SG_TRACE_KILLED); /* before the first turn ended */
    lost = sg_trace_info(reader)->dropped;
    sg_trace_close(reader);
    assert_int_equal(texts, 1);
    assert_int_equal(devices, 1);
    assert_int_equal(findings, 12);
    assert_int_equal(allocs, 5);
    if (lost || late) /* a machine with so much other work that the helper was late */
        return;
    assert_int_equal(unknown, 0); /* frees of blocks that are not in the file */
    assert_int_equal(events, BOUNDED_THREADS * (2 * BOUNDED_EVENTS - BOUNDED_EVENTS / KEPT_OF));
    for (int i = 0; i < BOUNDED_THREADS; i++)
        for (uint64_t j = 1; j <= BOUNDED_EVENTS; j++)
            assert_int_equal(lives[i][j], j % KEPT_OF == 0);
}

#endif
