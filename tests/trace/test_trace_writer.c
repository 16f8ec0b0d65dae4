/* A trace file has what was recorded, whole and in order, from one thread or several. */
#include <errno.h>

#include "trace_writer_files.h"
#include "writer/trace_writer_file.h"

static void define_device(struct sg_trace_writer *writer, uint32_t device, uint64_t bytes)
{
    sg_trace_writer_emit(writer,
                         &(struct segalloc_trace_record){
                             .kind = SEGALLOC_RECORD_DEFINE_DEVICE, .stream = device, .id = 2 << 20, .size = bytes});
}

static void written_and_read(bool helper)
{
    static char name[] = "/../5"; /* a slash would lead elsewhere */
    char *before = program_invocation_short_name;
    program_invocation_short_name = name;
    struct sg_trace_writer *writer = make_writer("a/b/t.%r.%e.%%", helper);
    struct stat status;
    assert_int_equal(stat(in_folder("a"), &status), -1); /* nothing before the first event */
    define_device(writer, 0, UINT64_C(80) << 30);
    emit(writer, 0, 100000);
    define_device(writer, 1, UINT64_C(40) << 30);
    struct sg_trace_writer_state state;
    sg_trace_writer_state(writer, &state);
    program_invocation_short_name = before;
    assert_string_equal(state.path, in_folder("a/b/t.34._.._5.%"));
    assert_int_equal(state.dropped, *repeated);
    assert_int_equal(fcntl(3, F_GETFD), -1); /* low descriptors are the program's */
    sg_trace_writer_close(writer);
    emit(writer, 0, 10);
    sg_trace_writer_destroy(writer);
    struct sg_trace_reader *reader = open_trace(in_folder("a/b/t.34._.._5.%"));
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

struct bounded_thread {
    struct sg_trace_writer *writer;
    uint64_t number;
};

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
    struct segalloc_trace_record finding[] = {
        {.kind = SEGALLOC_RECORD_FINDING, .stream = SEGALLOC_FINDING_BLOCK, .flags = SEGALLOC_FLAG_FIRST},
        {.kind = SEGALLOC_RECORD_FINDING, .stream = SEGALLOC_FINDING_NOW, .flags = SEGALLOC_FLAG_LAST},
    };
    struct sg_stats stats = {.value = {[SG_STAT_allocs] = 5}};
    define_device(writer, 0, 1 << 30);
    assert_true(sg_trace_writer_define(writer, &text, 1));
    assert_true(sg_trace_writer_define(writer, finding, 2));
    sg_trace_writer_statistics(writer, 0, &stats);
    for (uint64_t i = 0; i < BOUNDED_THREADS; i++) {
        self[i] = (struct bounded_thread){writer, i};
        assert_int_equal(pthread_create(&thread[i], NULL, emit_bounded, &self[i]), 0);
    }
    for (int i = 0; i < BOUNDED_THREADS; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
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
    struct sg_trace_writer *writer = make_bounded_writer("bounded", true, BOUND_BYTES);
    emit_all_bounded(writer);
    for (int i = 0; i < 3000 && blocks_used("bounded") > BOUND_BYTES / SEGALLOC_TRACE_BLOCK + 1; i++)
        usleep(10000); /* these events come faster than they are shortened */
    sg_trace_writer_close(writer);
    sg_trace_writer_destroy(writer);
    assert_string_equal(warned, "");
    expect_bounded("bounded", SG_TRACE_CLOSED, /* late */ false);
    assert_int_equal(stat(in_folder("bounded"), &status), 0);
    assert_in_range(status.st_size, BOUND_BYTES / 2, BOUND_BYTES + (2 << 20));
    assert_int_equal(access(in_folder("bounded.turn"), F_OK), -1);
}

/* A process that is killed leaves all of it, whichever file it was at. */
static void a_bound_and_no_end(void **state)
{
    enum { LATE = 3 };
    (void)state;
    int status;
    for (int i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "killed%d", i);
        pid_t child = fork();
        if (child == 0) {
            struct sg_trace_writer *writer = make_bounded_writer(name, true, BOUND_BYTES);
            struct sg_trace_writer_state at;
            emit_all_bounded(writer);
            sg_trace_writer_state(writer, &at);
            _exit(at.dropped ? LATE : 0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        bool late = WIFEXITED(status) && WEXITSTATUS(status) == LATE;
        assert_true(status == 0 || late);
        expect_bounded(name, SG_TRACE_KILLED, late);
    }
}

static void a_writer_held_for_good(void **state)
{
    (void)state;
    struct sg_trace_writer *writer = make_writer("held", true);
    emit(writer, 0, 10);
    assert_true(sg_trace_writer_comes_free(writer));
    sg_writer_lock(writer);
    assert_false(sg_trace_writer_comes_free(writer));
    sg_writer_unlock(writer);
    assert_true(sg_trace_writer_comes_free(writer));
    sg_trace_writer_destroy(writer);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        TEST(with_helper),
        TEST(without_helper),
        TEST(several_threads),
        TEST(statistics),
        TEST(damage),
        TEST(a_bound),
        TEST(a_bound_and_no_end),
        TEST(a_writer_held_for_good),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
