#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <inttypes.h>

#include "files.h"
#include "random.h"
#include "reader/rmm_csv.h"
#include "reader/rmm_row.h"
#include "reader/trace_reader.h"
#ifdef SG_HAVE_ZSTD
#include <zstd.h>
#endif

#define HEADER SG_RMM_HEADER "\n"

static struct sg_trace_reader *open_text(const char *text, size_t size)
{
    char error[SG_TRACE_ERROR] = "";
    char *path = test_file(text, size);
    struct sg_trace_reader *reader = NULL;
    int status = sg_trace_open(path, &reader, error);
    unlink(path);
    free(path);
    if (status < 0)
        fail_msg("%s", error);
    return reader;
}

/* Everything that `reader` has, written out as CSV again. */
static char *rows(struct sg_trace_reader *reader, size_t batch, size_t *ret_size)
{
    struct segalloc_trace_record *record = calloc(batch, sizeof(*record));
    struct sg_dictionary dictionary = {0};
    char *text = NULL;
    size_t size = 0, n;
    FILE *out = open_memstream(&text, &size);
    fputs(HEADER, out);
    while ((n = sg_trace_read(reader, record, batch)) > 0) {
        assert_int_equal(sg_trace_info(reader)->next, 0); /* rows have lines */
        for (size_t i = 0; i < n; i++) {
            char row[SG_RMM_ROW];
            assert_int_equal(sg_dictionary_add(&dictionary, &record[i]), 0);
            fwrite(row, 1, sg_rmm_row(&dictionary, &record[i], row), out);
        }
    }
    fclose(out);
    sg_dictionary_free(&dictionary);
    free(record);
    *ret_size = size;
    return text;
}

static void same_back(const char *text)
{
    static const size_t batches[] = {1, 2, 3, 7, 4096};
    for (size_t i = 0; i < sizeof(batches) / sizeof(batches[0]); i++) {
        struct sg_trace_reader *reader = open_text(text, strlen(text));
        size_t size;
        char *back = rows(reader, batches[i], &size);
        assert_null(sg_trace_error(reader));
        assert_int_equal(sg_trace_info(reader)->end, SG_TRACE_CLOSED);
        assert_string_equal(back, text);
        free(back);
        sg_trace_close(reader);
    }
}

static void spellings_come_back(void **state)
{
    (void)state;
    same_back(HEADER "0,00:00:00:000000,allocate,0x200,262144000,0\n"
                     "0,00:00:00:000001,record_stream,0x200,0,10\n"
                     "0,00:00:00:000001,launch,0x0,2,10\n"
                     "0,00:00:00:000001,record,0x1,0,10\n0,00:00:00:000001,wait,0x1,0,0\n"
                     "0,00:00:00:000001,event_sync,0x1,0,0\n0,00:00:00:000001,event_query,0x1,0,0\n"
                     "0,00:00:00:000001,stream_sync,0x0,0,10\n0,00:00:00:000001,device_sync,0x0,0,0\n"
                     "0,00:00:00:000002,free,0x200,262144000,0\n");
    same_back(HEADER "140234,23:59:59:999999,allocate,0x7f0012345600,1,(nil)\n"
                     "140235,00:00:00:000001,allocate,0x7f0012345800,18446744073709551615,0x5581a0\n"
                     "140235,00:00:00:000002,allocate failure,(nil),123,0x5581a0\n"
                     "140234,00:00:00:000003,free,0x7f0012345600,1,0\n");
    same_back(HEADER "1,10:20:30:000000,allocate,7f0012345600,8,7f00ab\n"
                     "1,10:20:30:000001,allocate,0x7f0012345800,8,0x0\n"
                     "2,10:20:30:000002,free,7f0012345600,8,7f00ab\n");
    same_back(HEADER "1,10:20:30.000000,allocate failure,(nil),8,0\n1,10:20:30.000001,allocate,7f00,8,0\n"
                     "1,10:20:30:000002,allocate failure,(nil),8,0\n2,10:20:30.000003,free,7f00,8,0\n"
                     "1,10:20:30.000004,allocate,0x7f00,8,0\n");
}

static void spellings_are_one_stream(void **state)
{
    (void)state;
    static const char text[] = HEADER "1,10:20:30:000000,allocate,0x1,8,0\n1,10:20:30:000000,allocate,0x2,8,0x0\n"
                                      "1,10:20:30:000000,allocate,0x3,8,(nil)\n1,10:20:30:000000,allocate,0x4,8,00000\n"
                                      "\r\n\n1,10:20:30.000000,allocate,0x5,8,0\r\n1,10:20:30:000000,allocate,0x6,8,0";
    struct sg_trace_reader *reader = open_text(text, sizeof(text) - 1);
    struct segalloc_trace_record record[64];
    size_t n = sg_trace_read(reader, record, 64), allocations = 0;
    for (size_t i = 0; i < n; i++)
        if (record[i].kind == SEGALLOC_RECORD_ALLOCATE) {
            assert_int_equal(record[i].stream, 1);
            assert_int_equal(record[i].thread, 1);
            assert_int_equal(record[i].time_ns, UINT64_C(37230) * 1000000000);
            assert_int_equal(record[i].id, ++allocations);
        }
    assert_int_equal(allocations, 6);
    assert_null(sg_trace_error(reader));
    sg_trace_close(reader);
}

static void errors_name_the_line(void **state)
{
    (void)state;
    static const struct {
        const char *row, *error;
    } cases[] = {
        {"0,00:00:00:000001,foo,0x200,1,0", "unknown action 'foo' in line 3"},
        {"0,00:00:00:000001,allocated,0x200,1,0", "unknown action 'allocated' in line 3"},
        {"0,00:00:00:000001,allocate,0x200,many,0", "bad size 'many' in line 3"},
        {"0,00:00:00:000001,allocate,0x200,-1,0", "bad size '-1' in line 3"},
        {"0,00:00:00:000001,allocate,0x200,18446744073709551616,0", "bad size '18446744073709551616' in line 3"},
        {"0,00:00:00:000001,allocate,0x200,1x,0", "bad size '1x' in line 3"},
        {"0,00:00:00:000001,allocate,0xx,1,0", "bad pointer '0xx' in line 3"},
        {"0,00:00:00:000001,allocate,0x10000000000000000,1,0", "bad pointer '0x10000000000000000' in line 3"},
        {"0,00:00:00:000001,allocate,0x200,1,s", "bad stream 's' in line 3"},
        {"0,24:00:00:000001,allocate,0x200,1,0", "bad time '24:00:00:000001' in line 3"},
        {"0,00:00:00:00a001,allocate,0x200,1,0", "bad time '00:00:00:00a001' in line 3"},
        {"0,00:00:00:0000010,allocate,0x200,1,0", "bad time '00:00:00:0000010' in line 3"},
        {"t,00:00:00:000001,allocate,0x200,1,0", "bad thread 't' in line 3"},
        {"0,00:00:00:000001,allocate,0x200,1", "line 3 has fewer than 6 fields"},
        {"0", "line 3 has fewer than 6 fields"},
        {"0,00:00:00:000001,allocate,0x200,1,0,0", "line 3 has more than 6 fields"},
        {SG_RMM_HEADER, "bad thread 'Thread' in line 3"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[512];
        int size = snprintf(text, sizeof(text), "%s0,00:00:00:000000,allocate,0x200,1,0\n%s\n", HEADER, cases[i].row);
        struct sg_trace_reader *reader = open_text(text, (size_t)size);
        struct segalloc_trace_record record[16];
        assert_int_equal(sg_trace_read(reader, record, 16), 3); /* the good row and its definitions */
        assert_int_equal(sg_trace_read(reader, record, 16), 0);
        assert_non_null(sg_trace_error(reader));
        assert_string_equal(sg_trace_error(reader), cases[i].error);
        sg_trace_close(reader);
    }
}

/* A file that ends within a row is one whose writer was stopped: what came before it is there. */
static void cut_rows_leave_the_others(void **state)
{
    (void)state;
    static const char row[] = "123,12:34:56:789012,allocate failure,0x7f00123400,1048576,0x55aa55aa";
    const size_t stream = (size_t)(strrchr(row, ',') + 1 - row);
    for (size_t cut = 1; cut < sizeof(row); cut++) {
        char text[256];
        int size = snprintf(text, sizeof(text), "%s0,00:00:00:000000,allocate,0x200,1,0\n%.*s", HEADER, (int)cut, row);
        struct sg_trace_reader *reader = open_text(text, (size_t)size);
        struct segalloc_trace_record record[16];
        bool whole = cut > stream && cut != stream + 2; /* "0" is a stream of its own, "0x" is none */
        /* with its thread, and its stream where that is not the first row's */
        size_t more = !whole ? 0 : cut == stream + 1 ? 2 : 3;
        assert_int_equal(sg_trace_read(reader, record, 16), 3 + more);
        assert_int_equal(sg_trace_read(reader, record, 16), 0);
        assert_null(sg_trace_error(reader));
        assert_int_equal(sg_trace_info(reader)->end, whole ? SG_TRACE_CLOSED : SG_TRACE_CUT);
        assert_true(whole || strcmp(sg_trace_info(reader)->end_text, "the last row is incomplete") == 0);
        sg_trace_close(reader);
    }
    /* What no row begins with is wrong all the same. */
    char text[256];
    int size = snprintf(text, sizeof(text), "%s0,00:00:00:000000,foo,0x200,1,0", HEADER);
    struct sg_trace_reader *reader = open_text(text, (size_t)size);
    struct segalloc_trace_record record[16];
    assert_int_equal(sg_trace_read(reader, record, 16), 0);
    assert_string_equal(sg_trace_error(reader), "unknown action 'foo' in line 2");
    sg_trace_close(reader);
}

static void not_a_trace(void **state)
{
    (void)state;
    static const char *texts[] = {"", "\n", "Thread,Time,Action,Pointer,Size\n", "hello", "\x80\x04\x95 a pickle",
                                  SG_RMM_HEADER "s\n"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        char error[SG_TRACE_ERROR] = "";
        char *path = test_file(texts[i], strlen(texts[i]));
        struct sg_trace_reader *reader = NULL;
        assert_int_equal(sg_trace_open(path, &reader, error), -EINVAL);
        assert_null(reader);
        assert_string_not_equal(error, "");
        assert_null(strchr(error, '\n'));
        unlink(path);
        free(path);
    }
    char error[SG_TRACE_ERROR] = "";
    struct sg_trace_reader *reader = NULL;
    assert_int_equal(sg_trace_open("/nonexistent/file", &reader, error), -ENOENT);
    assert_string_equal(error, "No such file or directory");
    assert_int_equal(sg_trace_open("/tmp", &reader, error), -EISDIR);
}

static void long_line(void **state)
{
    (void)state;
    size_t size = 100000, header = strlen(HEADER);
    char *text = malloc(size);
    memset(text, '1', size);
    memcpy(text, HEADER, header);
    struct sg_trace_reader *reader = open_text(text, size);
    struct segalloc_trace_record record[16];
    assert_int_equal(sg_trace_read(reader, record, 16), 0);
    assert_string_equal(sg_trace_error(reader), "line 2 is longer than 4096 bytes");
    sg_trace_close(reader);
    free(text);
}

/* Several chunks long, with streams and threads that need the tables to grow. */
static char *long_text(size_t rows_wanted, size_t *ret_size)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, ret_size);
    fputs(HEADER, out);
    for (size_t i = 0; i < rows_wanted; i++)
        fprintf(out, "%zu,%02zu:%02zu:%02zu:%06zu,%s,0x%zx,%zu,%s%zx\n", i % 700, i / 36000 % 24, i / 600 % 60,
                i / 10 % 60, i * 7919 % 1000000, i % 2 ? "free" : "allocate", i * 512, i * i, i % 3 ? "0x" : "0x",
                i * 31 % 1000);
    fclose(out);
    return text;
}

static void long_traces_and_rewinding(void **state)
{
    (void)state;
    size_t size, back_size;
    char *text = long_text(50000, &size);
    struct sg_trace_reader *reader = open_text(text, size);
    for (int round = 0; round < 3; round++) {
        char *back = rows(reader, 1000, &back_size);
        assert_int_equal(back_size, size);
        assert_memory_equal(back, text, size);
        free(back);
        assert_int_equal(sg_trace_rewind(reader), 0);
    }
    sg_trace_close(reader);
    free(text);
}

enum { POINTERS = 6, SIZES = 2, STREAMS = 5 }; /* that are right; the ways after them are wrong */

static void put_pointer(FILE *out, uint64_t way, uint64_t id)
{
    static const char *const before[] = {"0x", "", "0X", "0x0000000000000", "0x", "(nil)", "0x"};
    fputs(before[way], out);
    if (way != POINTERS - 1)
        fprintf(out, way == 4 ? "%" PRIX64 : "%" PRIx64, id);
    fputs(way == POINTERS ? "g" : "", out);
}

static void put_size(FILE *out, uint64_t way, uint64_t size)
{
    static const char *const before[] = {"", "000000", "1844674407370955161", ""};
    fprintf(out, "%s%" PRIu64 "%s", before[way], size, way == SIZES + 1 ? " " : "");
}

static void put_stream(FILE *out, uint64_t way, uint64_t stream)
{
    static const char *const before[] = {"", "0x", "", "0000", "(nil)", "", ""};
    fputs(before[way], out);
    if (way != STREAMS - 1)
        fprintf(out, way == 1 || way == 2 ? "%" PRIx64 : "%" PRIu64, stream);
    fputs(way == STREAMS ? "a" : way == STREAMS + 1 ? "," : "", out);
}

/* Rows of which most begin as the one before does; what is rare is spelt in each of the ways, or wrong. */
static char *mixed_text(uint64_t seed, const char *line_end, size_t *ret_size)
{
    static const char *const threads[] = {"0", "7", "1402345", "12345678901234567", "00000000000000000000000000007",
        "x"};
    static const char *const times[] = {"00:00:01:", "00:00:01.", "10:20:30:", "23:59:59:", "00:00:00:", "1:00:00:"};
    static const char *const actions[] = {"allocate", "free", "allocate failure", "record_stream", "fre", "allocated"};
    const char *thread = threads[0], *time = times[0];
    struct random random = {seed};
    char *text = NULL;
    FILE *out = open_memstream(&text, ret_size);
    fprintf(out, "%s%s", SG_RMM_HEADER, line_end);
    for (int i = 0; i < 8000; i++) {
        uint64_t odd = random_below(&random, 40), wrong = random_below(&random, 800) == 0;
        if (odd == 0)
            thread = threads[random_below(&random, 5 + wrong)];
        if (odd == 1)
            time = times[random_below(&random, 5 + wrong)];
        fprintf(out, "%s,%s%06u%s,%s,", thread, time, (unsigned)random_below(&random, 1000000),
            odd == 2 && wrong ? "0" : "", actions[random_below(&random, odd == 3 ? 4 + 2 * wrong : 2)]);
        put_pointer(out, odd == 4 ? random_below(&random, POINTERS + wrong) : 0, 512 * random_below(&random, 1 << 30));
        fputc(',', out);
        put_size(out, odd == 5 ? random_below(&random, SIZES + 2 * wrong) : 0,
            random_below(&random, 1 << 30) * random_below(&random, 9));
        fputc(',', out);
        put_stream(out, odd == 6 ? random_below(&random, STREAMS + 2 * wrong) : 0,
            random_below(&random, odd == 7 ? 5000 : 3));
        fputs(line_end, out);
    }
    fclose(out);
    return text;
}

/* Only a row that ends in a newline alone is parsed by what it shares with the row before. */
static void rows_alike_are_parsed_as_others(void **state)
{
    (void)state;
    unsigned failed = 0;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        struct sg_trace_reader *reader[2];
        struct segalloc_trace_record record[2][256];
        for (int i = 0; i < 2; i++) {
            size_t size;
            char *text = mixed_text(seed, i ? "\r\n" : "\n", &size);
            reader[i] = open_text(text, size);
            free(text);
        }
        for (size_t n[2] = {1, 1}; n[0];) {
            for (int i = 0; i < 2; i++)
                n[i] = sg_trace_read(reader[i], record[i], 256);
            assert_int_equal(n[0], n[1]);
            assert_memory_equal(record[0], record[1], n[0] * sizeof record[0][0]);
        }
        assert_int_equal(sg_trace_info(reader[0])->line, sg_trace_info(reader[1])->line);
        failed += sg_trace_error(reader[0]) != NULL;
        assert_string_equal(sg_trace_error(reader[0]) ? sg_trace_error(reader[0]) : "",
            sg_trace_error(reader[1]) ? sg_trace_error(reader[1]) : "");
        for (int i = 0; i < 2; i++)
            sg_trace_close(reader[i]);
    }
    assert_in_range(failed, 10, 90);
}

/* Reads twice what may be kept, the second time after part of the first has been read again. */
static void expect_twice(const char *text, size_t size, uint64_t keep_bytes, const char *error)
{
    struct sg_trace_reader *reader = open_text(text, size);
    struct segalloc_trace_record part[100];
    size_t back_size, first_size = 0;
    sg_trace_keep(reader, keep_bytes);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(sg_trace_info(reader)->records, 0);
        assert_int_equal(sg_trace_info(reader)->end, SG_TRACE_OPEN);
        assert_null(sg_trace_error(reader));
        char *back = rows(reader, 1000, &back_size);
        assert_true(round == 0 || back_size == first_size);
        assert_memory_equal(back, text, back_size);
        assert_string_equal(sg_trace_error(reader) ? sg_trace_error(reader) : "", error);
        first_size = back_size;
        free(back);
        assert_int_equal(sg_trace_rewind(reader), 0);
        if (round == 1) {
            assert_int_equal(sg_trace_read(reader, part, 100), 100);
            assert_int_equal(sg_trace_rewind(reader), 0);
        }
    }
    assert_true(*error || first_size == size);
    sg_trace_close(reader);
}

/* Where all are kept nobody looks at the file again, which is empty by then. */
static void kept_records_need_no_file(void **state)
{
    (void)state;
    size_t size, back_size;
    char error[SG_TRACE_ERROR] = "", *text = long_text(50000, &size);
    for (uint64_t keep_bytes = 1 << 20; keep_bytes <= 64 << 20; keep_bytes <<= 6) {
        char *path = test_file(text, size);
        struct sg_trace_reader *reader;
        assert_int_equal(sg_trace_open(path, &reader, error), 0);
        sg_trace_keep(reader, keep_bytes);
        free(rows(reader, 1000, &back_size));
        assert_int_equal(truncate(path, 0), 0);
        bool all = keep_bytes == 64 << 20;
        for (int round = 0; round < 2; round++) { /* what has failed once fails again */
            assert_int_equal(sg_trace_rewind(reader) == 0, all);
            char *back = all ? rows(reader, 1000, &back_size) : NULL;
            if (all)
                assert_memory_equal(back, text, size);
            free(back);
        }
        sg_trace_close(reader);
        unlink(path);
        free(path);
    }
    free(text);
}

static void kept_records_are_the_same(void **state)
{
    (void)state;
    size_t size;
    char *text = long_text(50000, &size);
    expect_twice(text, size, 64 << 20, "");
    expect_twice(text, size, 1 << 20, ""); /* not all of them fit */
    expect_twice(text, size, 1, "");
    text[size / 2] = text[size / 2] == '\n' ? '!' : '\n';
    struct sg_trace_reader *reader = open_text(text, size);
    free(rows(reader, 1000, &size));
    char error[SG_TRACE_ERROR];
    snprintf(error, sizeof error, "%s", sg_trace_error(reader));
    sg_trace_close(reader);
    assert_true(*error);
    size = strlen(text);
    expect_twice(text, size, 64 << 20, error);
    expect_twice(text, size, 1 << 20, error);
    free(text);
}

#ifdef SG_HAVE_ZSTD
static void expect_end(const char *said, size_t at)
{
    char expected[64];
    snprintf(expected, sizeof expected, "byte %zu: the compressed data end early", at);
    assert_string_equal(said, expected);
}

static void compressed_texts_are_read_as_plain_ones(void **state)
{
    (void)state;
    size_t size, back_size;
    char *text = long_text(50000, &size);
    size_t room = ZSTD_compressBound(size);
    char *packed = malloc(room);
    /* Two frames one after another are one file. */
    size_t first = ZSTD_compress(packed, room, text, size / 2, 1);
    size_t packed_size = first + ZSTD_compress(packed + first, room - first, text + size / 2, size - size / 2, 1);
    struct sg_trace_reader *reader = open_text(packed, packed_size);
    for (int round = 0; round < 3; round++) {
        char *back = rows(reader, 1000, &back_size);
        assert_null(sg_trace_error(reader));
        assert_int_equal(back_size, size);
        assert_memory_equal(back, text, size);
        free(back);
        assert_int_equal(sg_trace_rewind(reader), 0);
    }
    sg_trace_close(reader); /* while the thread is at work */

    reader = open_text(packed, packed_size - 100);
    char *back = rows(reader, 1000, &back_size);
    assert_null(sg_trace_error(reader)); /* the row that it is cut in is left out */
    assert_int_equal(sg_trace_info(reader)->end, SG_TRACE_CUT);
    assert_true(back_size < size && back_size > size / 2 && memcmp(back, text, back_size) == 0);
    free(back);
    expect_end(sg_trace_info(reader)->end_text, packed_size - 100);
    sg_trace_close(reader);

    for (size_t left = 4; left <= 20; left += 8) { /* before the first byte that can be had */
        char error[SG_TRACE_ERROR] = "", *path = test_file(packed, left);
        assert_int_equal(sg_trace_open(path, &reader, error), -EINVAL);
        expect_end(error, left);
        unlink(path);
        free(path);
    }

    memset(packed + first + packed_size / 4, 0x55, 64);
    reader = open_text(packed, packed_size);
    back = rows(reader, 1000, &back_size);
    assert_true(sg_trace_error(reader) || sg_trace_info(reader)->end == SG_TRACE_DAMAGED);
    free(back);
    sg_trace_close(reader);
    free(packed);
    free(text);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spellings_come_back),
        cmocka_unit_test(spellings_are_one_stream),
        cmocka_unit_test(errors_name_the_line),
        cmocka_unit_test(cut_rows_leave_the_others),
        cmocka_unit_test(not_a_trace),
        cmocka_unit_test(long_line),
        cmocka_unit_test(long_traces_and_rewinding),
        cmocka_unit_test(rows_alike_are_parsed_as_others),
        cmocka_unit_test(kept_records_are_the_same),
        cmocka_unit_test(kept_records_need_no_file),
#ifdef SG_HAVE_ZSTD
        cmocka_unit_test(compressed_texts_are_read_as_plain_ones),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
