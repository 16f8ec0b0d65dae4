/* A trace file whose process or host fails: a kill, a fork, a full disk, no place, a stolen descriptor. */
#include "trace_writer_files.h"

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

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        TEST(killed_process),
        TEST(forked_child),
        TEST(full_disk),
        TEST(no_place_for_it),
        TEST(stolen_descriptor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
