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

/* ThreadSanitizer ends a child that makes threads after its parent had some, unless it is told not to: what is tested
   here. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "die_after_fork=0";
}

/* Events that a block has, the first with the definition of the thread; what is left is for the end of the trace. */
enum { EVENTS = SG_BLOCK_RECORDS - 161 };

static char folder[64], warned[512];

/* Events emitted once more, by children too: those that were dropped, as they are to be, because the helper came later
   than an event waits for it, on a machine with other work. */
static uint64_t *repeated;

static void warn(const char *line)
{
    snprintf(warned, sizeof(warned), "%s", line);
}

static int make_folder(void **state)
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

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command);
}

static const char *in_folder(const char *name)
{
    static char path[256];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static char *environment(const char *name)
{
    return !strcmp(name, "SLURM_PROCID") ? (char *)(uintptr_t)"3/../4" : NULL;
}

static struct sg_trace_writer *make_bounded_writer(const char *name, bool helper, uint64_t ring_bytes)
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

static struct sg_trace_writer *make_writer(const char *name, bool helper)
{
    return make_bounded_writer(name, helper, 0);
}

static uint64_t dropped_late(struct sg_trace_writer *writer)
{
    struct sg_trace_writer_state state;
    sg_trace_writer_state(writer, &state);
    return state.open && !state.error ? state.dropped : 0;
}

static void emit(struct sg_trace_writer *writer, uint64_t from, uint64_t to)
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

static void define_device(struct sg_trace_writer *writer, uint32_t device, uint64_t bytes)
{
    sg_trace_writer_emit(writer,
                         &(struct segalloc_trace_record){
                             .kind = SEGALLOC_RECORD_DEFINE_DEVICE, .stream = device, .id = 2 << 20, .size = bytes});
}

static struct sg_trace_reader *open_trace(const char *path)
{
    struct sg_trace_reader *reader = NULL;
    char error[SG_TRACE_ERROR] = "";
    if (sg_trace_open(path, &reader, error) < 0)
        fail_msg("%s: %s", path, error);
    return reader;
}

/* Counts the allocations, which must be numbered one after another from `from` on. */
static uint64_t count(struct sg_trace_reader *reader, uint64_t from)
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

static void written_and_read(bool helper)
{
    struct sg_trace_writer *writer = make_writer("a/b/t.%r.%%", helper);
    struct stat status;
    assert_int_equal(stat(in_folder("a"), &status), -1); /* nothing before the first event */
    define_device(writer, 0, UINT64_C(80) << 30);
    emit(writer, 0, 100000);
    define_device(writer, 1, UINT64_C(40) << 30);
    struct sg_trace_writer_state state;
    sg_trace_writer_state(writer, &state);
    assert_string_equal(state.path, in_folder("a/b/t.3_.._4.%"));
    assert_int_equal(state.dropped, *repeated);
    assert_int_equal(fcntl(3, F_GETFD), -1); /* low descriptors are the program's */
    sg_trace_writer_close(writer);
    emit(writer, 0, 10);
    sg_trace_writer_destroy(writer);
    struct sg_trace_reader *reader = open_trace(in_folder("a/b/t.3_.._4.%"));
    for (int round = 0; round < 2; round++) {
        const struct sg_trace_info *info = sg_trace_info(reader);
        assert_string_equal(info->format, "segalloc");
        assert_string_equal(info->conf, "reserve_slack:1.5");
        assert_string_equal(info->command, "train --steps 3");
        assert_int_equal(info->header.limit_bytes, 99);
        assert_int_equal(info->header.devices, 2);
        assert_int_equal(info->header.device_bytes, UINT64_C(80) << 30);
        assert_int_equal(info->header.pid, getpid());
        assert_int_equal(count(reader, 0), 100000);
        assert_int_equal(info->end, SG_TRACE_CLOSED);
        assert_null(info->end_text);
        assert_int_equal(info->records, 100000 + 4); /* two devices, a thread, the end */
        assert_int_equal(info->dropped, *repeated);
        assert_int_equal(sg_trace_rewind(reader), 0);
    }
    sg_trace_close(reader);
    assert_string_equal(warned, "");
}

static void with_helper(void **state)
{
    (void)state;
    written_and_read(true);
}

static void without_helper(void **state)
{
    (void)state;
    written_and_read(false);
}

static void killed_process(void **state)
{
    (void)state;
    static const uint64_t counts[] = {1, 1000, EVENTS - 2, EVENTS - 1, EVENTS, 70001};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        pid_t child = fork();
        if (!child) {
            struct sg_trace_writer *writer = make_writer("killed", true);
            emit(writer, 7, 7 + counts[i]);
            kill(getpid(), SIGKILL);
        }
        int status;
        waitpid(child, &status, 0);
        assert_true(WIFSIGNALED(status));
        struct sg_trace_reader *reader = open_trace(in_folder("killed"));
        assert_int_equal(count(reader, 7), counts[i]);
        assert_int_equal(sg_trace_info(reader)->end, SG_TRACE_KILLED);
        sg_trace_close(reader);
        unlink(in_folder("killed"));
    }
}

static void forked_child(void **state)
{
    (void)state;
    struct sg_trace_writer *writer = make_writer("forked", true);
    emit(writer, 0, 500);
    pid_t child = fork();
    if (!child) {
        sg_trace_writer_fork_child(writer);
        emit(writer, 1000, 41000);
        sg_trace_writer_close(writer);
        _exit(0);
    }
    emit(writer, 500, 40000);
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    sg_trace_writer_destroy(writer);
    struct sg_trace_reader *reader = open_trace(in_folder("forked"));
    assert_int_equal(count(reader, 0), 40000);
    assert_int_equal(sg_trace_info(reader)->end, SG_TRACE_CLOSED);
    sg_trace_close(reader);
    char name[64];
    snprintf(name, sizeof(name), "forked.%ld", (long)child);
    reader = open_trace(in_folder(name));
    assert_int_equal(count(reader, 1000), 40000);
    assert_int_equal(sg_trace_info(reader)->header.pid, child);
    sg_trace_close(reader);
}

static void full_disk(void **state)
{
    (void)state;
    /* Both a limit on the size of files and a full file system are refused when space is taken, ahead. */
    pid_t child = fork();
    if (!child) {
        struct rlimit limit = {5 << 20, 5 << 20};
        setrlimit(RLIMIT_FSIZE, &limit);
        struct sg_trace_writer *writer = make_writer("full", true);
        struct sg_stats stats = {.value = {1, 2, 3}};
        emit(writer, 0, 10);
        sg_trace_writer_statistics(writer, 0, &stats);
        emit(writer, 10, 1000000);
        struct sg_trace_writer_state at;
        sg_trace_writer_state(writer, &at);
        for (stats.value[SG_STAT_allocs] = 100; stats.value[SG_STAT_allocs] <= 1000; stats.value[SG_STAT_allocs]++)
            sg_trace_writer_statistics(writer, 0, &stats);
        sg_trace_writer_destroy(writer);
        bool told = strstr(warned, "the limit on the size of files is reached; the trace ends here") != NULL;
        _exit(at.error == -EFBIG && at.records + at.dropped > 1000001 && told ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    struct sg_trace_reader *reader = open_trace(in_folder("full"));
    struct segalloc_trace_record record;
    uint64_t allocs = 0;
    while (sg_trace_read(reader, &record, 1))
        if (record.kind == SEGALLOC_RECORD_STATISTIC && record.id == sg_name_hash("allocs"))
            allocs = record.size;
    assert_int_equal(allocs, 1000); /* the last statistics have a place kept for them */
    sg_trace_rewind(reader);
    uint64_t kept = count(reader, 0);
    assert_true(kept > 3 * SG_BLOCK_RECORDS && kept < 5 * SG_BLOCK_RECORDS);
    assert_int_equal(sg_trace_info(reader)->end, SG_TRACE_CLOSED);
    assert_int_equal(sg_trace_info(reader)->dropped, 1000000 - kept + *repeated);
    sg_trace_close(reader);
}

static void no_place_for_it(void **state)
{
    (void)state;
    struct sg_trace_writer *writer = make_writer("file", true);
    emit(writer, 0, 1);
    sg_trace_writer_destroy(writer);
    writer = make_writer("file/t", true);
    emit(writer, 0, 10);
    emit(writer, 0, 10);
    struct sg_trace_writer_state at;
    sg_trace_writer_state(writer, &at);
    assert_int_equal(at.error, -ENOTDIR);
    assert_int_equal(at.dropped, 20);
    assert_non_null(strstr(warned, "no trace is written"));
    sg_trace_writer_destroy(writer);
    writer = make_writer("t%q", true);
    emit(writer, 0, 1);
    assert_non_null(strstr(warned, "t%q: only %p, %h, %r, %e"));
    sg_trace_writer_destroy(writer);
    /* A file that is there is left alone. */
    writer = make_writer("file", true);
    emit(writer, 0, 1);
    sg_trace_writer_state(writer, &at);
    char name[64];
    snprintf(name, sizeof(name), "file.%ld", (long)getpid());
    assert_string_equal(at.path, in_folder(name));
    sg_trace_writer_destroy(writer);
    writer = make_writer("file", true);
    emit(writer, 0, 1);
    sg_trace_writer_state(writer, &at);
    strcat(name, ".1");
    assert_string_equal(at.path, in_folder(name));
    sg_trace_writer_destroy(writer);
}

/* A program that closes descriptors it does not know gets no bytes of ours into files of its own. */
static void stolen_descriptor(void **state)
{
    (void)state;
    struct sg_trace_writer *writer = make_writer("stolen", false);
    emit(writer, 0, 10);
    int other = open(in_folder("other"), O_RDWR | O_CREAT, 0666);
    for (int fd = 100; fd < 110; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            dup2(other, fd);
    emit(writer, 10, 100000);
    sg_trace_writer_destroy(writer);
    struct stat status;
    fstat(other, &status);
    assert_int_equal(status.st_size, 0);
    close(other);
    assert_non_null(strstr(warned, "its descriptor was closed by the program"));
    struct sg_trace_reader *reader = open_trace(in_folder("stolen"));
    assert_in_range(count(reader, 0), EVENTS - 1, 4 * SG_BLOCK_RECORDS); /* the blocks taken before */
    sg_trace_close(reader);
    for (int fd = 100; fd < 110; fd++)
        close(fd);
}

enum { THREADS = 4, EACH = 50000 };

static void *emit_own(void *user)
{
    struct sg_trace_writer *writer = user;
    static _Atomic uint32_t number;
    uint32_t stream = ++number;
    for (uint64_t i = 0; i < EACH; i++)
        sg_trace_writer_emit(writer,
                             &(struct segalloc_trace_record){.kind = SEGALLOC_RECORD_FREE, .stream = stream, .id = i});
    return NULL;
}

static void several_threads(void **state)
{
    (void)state;
    struct sg_trace_writer *writer = make_writer("threads", true);
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&thread[i], NULL, emit_own, writer);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    struct sg_trace_writer_state at;
    sg_trace_writer_state(writer, &at);
    sg_trace_writer_destroy(writer);
    struct sg_trace_reader *reader = open_trace(in_folder("threads"));
    struct segalloc_trace_record record;
    uint64_t last[THREADS + 1] = {0}, seen = 0, index[THREADS + 1] = {0};
    while (sg_trace_read(reader, &record, 1))
        if (record.kind == SEGALLOC_RECORD_FREE) {
            assert_in_range(record.stream, 1, THREADS);
            assert_true(record.id >= last[record.stream]);
            assert_true(!index[record.stream] || index[record.stream] == record.thread);
            index[record.stream] = record.thread;
            last[record.stream] = record.id;
            seen++;
        }
    assert_int_equal(seen + sg_trace_info(reader)->dropped, THREADS * EACH);
    assert_int_equal(sg_trace_info(reader)->dropped, at.dropped);
    sg_trace_close(reader);
}

static void statistics(void **state)
{
    (void)state;
    struct sg_trace_writer *writer = make_writer("statistics", true);
    struct sg_stats stats = {0};
    stats.value[SG_STAT_reserved_bytes] = 5;
    stats.peak[SG_STAT_reserved_bytes] = 9;
    stats.value[SG_STAT_allocs] = 1;
    sg_trace_writer_statistics(writer, 1, &stats);
    sg_trace_writer_statistics(writer, 1, &stats); /* nothing new: no record */
    assert_false(sg_trace_writer_due(writer, 1));
    emit(writer, 0, SG_TRACE_SNAPSHOT_EVENTS);
    assert_true(sg_trace_writer_due(writer, 1));
    stats.value[SG_STAT_allocs] = 2;
    sg_trace_writer_statistics(writer, 1, &stats);
    assert_false(sg_trace_writer_due(writer, 1));
    sg_trace_writer_destroy(writer);
    struct sg_trace_reader *reader = open_trace(in_folder("statistics"));
    struct segalloc_trace_record record;
    unsigned seen = 0, ends = 0, levels = 0;
    for (int i = 0; i < SG_STAT_COUNT; i++)
        levels += sg_stat_info((enum sg_stat)i)->kind == SG_STAT_LEVEL;
    while (sg_trace_read(reader, &record, 1))
        if (record.kind == SEGALLOC_RECORD_STATISTIC) {
            seen++;
            ends += !!(record.flags & SEGALLOC_FLAG_LAST);
            assert_int_equal(record.stream, 1);
            if (record.id == sg_name_hash("reserved_bytes"))
                assert_int_equal(record.size, record.flags & SEGALLOC_FLAG_PEAK ? 9 : 5);
        }
    assert_int_equal(seen, SG_STAT_COUNT + levels + 1);
    assert_int_equal(ends, 2);
    sg_trace_close(reader);
}

/* Every way of cutting a file short, and every damaged byte, is survived, and good blocks before it are read. */
static void damage(void **state)
{
    (void)state;
    struct sg_trace_writer *writer = make_writer("whole", true);
    emit(writer, 0, 2 * SG_BLOCK_RECORDS + 100);
    sg_trace_writer_destroy(writer);
    size_t size, first = 4096 + SEGALLOC_TRACE_BLOCK;
    char *data = test_read(in_folder("whole"), &size);
    static const size_t cuts[] = {0, 1, 7, 8, 100, 4095, 4096, 4100, 4096 + 32, 4096 + 33, 4096 + 64, 1000000};
    for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
        char *path = test_file(data, cuts[i]), error[SG_TRACE_ERROR];
        struct sg_trace_reader *reader = NULL;
        int status = sg_trace_open(path, &reader, error);
        assert_int_equal(status < 0, cuts[i] < 4096);
        if (!status) {
            uint64_t kept = count(reader, 0);
            assert_int_equal(kept, cuts[i] < 4096 + 96 ? 0 : (cuts[i] - 4096 - 64) / 32);
            assert_int_equal(sg_trace_info(reader)->end, SG_TRACE_CUT);
            sg_trace_close(reader);
        }
        unlink(path);
        free(path);
    }
    static const size_t at[] = {4096, 4100, 4105, 4115, 4096 + 500};
    for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++)
        for (int block = 0; block < 2; block++) {
            size_t where = at[i] + (size_t)block * SEGALLOC_TRACE_BLOCK;
            data[where] ^= 0x10;
            char *path = test_file(data, size);
            struct sg_trace_reader *reader = open_trace(path);
            assert_int_equal(count(reader, 0), block ? EVENTS - 1 : 0);
            assert_int_equal(sg_trace_info(reader)->end, SG_TRACE_DAMAGED);
            sg_trace_close(reader);
            data[where] ^= 0x10;
            unlink(path);
            free(path);
        }
    char *path = test_file(data, first); /* between two blocks */
    struct sg_trace_reader *reader = open_trace(path);
    assert_int_equal(count(reader, 0), EVENTS - 1);
    assert_int_equal(sg_trace_info(reader)->end, SG_TRACE_CUT);
    sg_trace_close(reader);
    unlink(path);
    free(path);
    /* Headers that lie. */
    for (size_t i = 8; i < sizeof(struct segalloc_trace_header); i++) {
        char *bad, error[SG_TRACE_ERROR];
        data[i] ^= 0x7f;
        bad = test_file(data, size);
        reader = NULL;
        if (!sg_trace_open(bad, &reader, error)) {
            struct segalloc_trace_record record[100];
            while (sg_trace_read(reader, record, 100))
                ;
            sg_trace_close(reader);
        }
        data[i] ^= 0x7f;
        unlink(bad);
        free(bad);
    }
    free(data);
}

/* A program of two threads that keeps every KEPT_OF-th block, each thread at two lines in turn. */
enum { RING = 4 << 20, BOUNDED_EVENTS = 200000, KEPT_OF = 1000, BOUNDED_THREADS = 2 };

struct bounded_thread {
    struct sg_trace_writer *writer;
    uint64_t number;
};

static uint32_t site_of(uint64_t id)
{
    return 1 + (uint32_t)(id / 7 % 2);
}

static void *emit_bounded(void *user)
{
    const struct bounded_thread *self = user;
    for (uint64_t i = 1; i <= BOUNDED_EVENTS; i++) {
        struct segalloc_trace_record record = {.kind = SEGALLOC_RECORD_ALLOCATE, .id = i << 8 | self->number, .size = i};
        sg_trace_writer_emit_from(self->writer, &record, site_of(record.id), 0);
        record.kind = SEGALLOC_RECORD_FREE;
        if (i % KEPT_OF)
            sg_trace_writer_emit(self->writer, &record);
        if (i % 2048 == 0)
            usleep(2000); /* the helper comes to its turn on a busy machine */
    }
    return NULL;
}

static void emit_all_bounded(struct sg_trace_writer *writer)
{
    struct bounded_thread self[BOUNDED_THREADS];
    pthread_t thread[BOUNDED_THREADS];
    struct segalloc_trace_record text = {.kind = SEGALLOC_RECORD_DEFINE_TEXT,
        .stream = 1,
        .id = 'a',
        .flags = SEGALLOC_FLAG_FIRST | SEGALLOC_FLAG_LAST};
    struct sg_stats stats = {.value = {[SG_STAT_allocs] = 5}};
    define_device(writer, 0, 1 << 30);
    assert_true(sg_trace_writer_define(writer, &text, 1));
    sg_trace_writer_statistics(writer, 0, &stats);
    for (uint64_t i = 0; i < BOUNDED_THREADS; i++) {
        self[i] = (struct bounded_thread){writer, i};
        assert_int_equal(pthread_create(&thread[i], NULL, emit_bounded, &self[i]), 0);
    }
    for (int i = 0; i < BOUNDED_THREADS; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
}

/* The file has the blocks that live, with their lines. Names and figures are there, and every event is counted. */
static void expect_bounded(const char *name, enum sg_trace_end end)
{
    enum { THREADS_SEEN = 16 };
    char error[SG_TRACE_ERROR];
    struct sg_trace_reader *reader;
    struct segalloc_trace_record record;
    static unsigned char lives[BOUNDED_THREADS][BOUNDED_EVENTS + 1];
    uint64_t site[THREADS_SEEN] = {0}, events = 0, lost = 0, texts = 0, devices = 0, allocs = 0;
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
            assert_int_equal(lives[record.id & 0xff][record.id >> 8], 1);
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
    assert_int_equal(allocs, 5);
    if (lost) /* a machine with so much other work that the helper was late */
        return;
    assert_int_equal(events, BOUNDED_THREADS * (2 * BOUNDED_EVENTS - BOUNDED_EVENTS / KEPT_OF));
    for (int i = 0; i < BOUNDED_THREADS; i++)
        for (uint64_t j = 1; j <= BOUNDED_EVENTS; j++)
            assert_int_equal(lives[i][j], j % KEPT_OF == 0);
}

/* Blocks of a file that is being written: others are ready behind them. */
static uint64_t blocks_used(const char *name)
{
    struct segalloc_trace_header header;
    uint32_t magic;
    uint64_t blocks = 0;
    int fd = open(in_folder(name), O_RDONLY);
    assert_true(fd >= 0 && read(fd, &header, sizeof header) == sizeof header);
    while (
        pread(fd, &magic, sizeof magic, (off_t)(header.data_offset + blocks * SEGALLOC_TRACE_BLOCK)) == sizeof magic &&
        magic == SEGALLOC_BLOCK_MAGIC)
        blocks++;
    close(fd);
    return blocks;
}

static void a_bound(void **state)
{
    (void)state;
    struct stat status;
    struct sg_trace_writer *writer = make_bounded_writer("bounded", true, RING);
    emit_all_bounded(writer);
    for (int i = 0; i < 3000 && blocks_used("bounded") > RING / SEGALLOC_TRACE_BLOCK + 1; i++)
        usleep(10000); /* these events come faster than they are shortened */
    sg_trace_writer_close(writer);
    sg_trace_writer_destroy(writer);
    assert_string_equal(warned, "");
    expect_bounded("bounded", SG_TRACE_CLOSED);
    assert_int_equal(stat(in_folder("bounded"), &status), 0);
    assert_in_range(status.st_size, RING / 2, RING + (2 << 20));
    assert_int_equal(access(in_folder("bounded.turn"), F_OK), -1);
}

/* A process that is killed leaves all of it, whichever file it was at. */
static void a_bound_and_no_end(void **state)
{
    (void)state;
    int status;
    for (int i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "killed%d", i);
        pid_t child = fork();
        if (child == 0) {
            struct sg_trace_writer *writer = make_bounded_writer(name, true, RING);
            emit_all_bounded(writer);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        expect_bounded(name, SG_TRACE_KILLED);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        TEST(with_helper),
        TEST(without_helper),
        TEST(killed_process),
        TEST(forked_child),
        TEST(full_disk),
        TEST(no_place_for_it),
        TEST(stolen_descriptor),
        TEST(several_threads),
        TEST(statistics),
        TEST(damage),
        TEST(a_bound),
        TEST(a_bound_and_no_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
