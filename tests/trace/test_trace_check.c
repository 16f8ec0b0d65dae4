/* What a trace may not hold, field by field, and at which byte the reader says that it stands. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "files.h"
#include "reader/trace_check.h"
#include "trace_file.h"
#include "reader/trace_reader.h"

#define FIELD(name) offsetof(struct segalloc_trace_header, name), sizeof(((struct segalloc_trace_header *)0)->name)
#define MIB (UINT64_C(1) << 20)

enum { FIRST = 4096, RECORDS = FIRST + sizeof(struct segalloc_trace_block) };

static struct segalloc_trace_header good(void)
{
    return (struct segalloc_trace_header){.magic = SEGALLOC_TRACE_MAGIC, .version = SEGALLOC_TRACE_VERSION,
        .header_bytes = sizeof(struct segalloc_trace_header), .data_offset = FIRST, .pid = 7, .devices = 1,
        .granularity = 2 * MIB, .device_bytes = 1024 * MIB};
}

static void damaged_headers_are_refused(void **state)
{
    (void)state;
    static const struct {
        size_t offset, size;
        uint64_t value;
        bool fine;
    } cases[] = {
        {FIELD(version), 2, false},
        {FIELD(header_bytes), sizeof(struct segalloc_trace_header) + 8, true},
        {FIELD(header_bytes), sizeof(struct segalloc_trace_header) - 1, false},
        {FIELD(data_offset), 2 * FIRST, true},
        {FIELD(data_offset), FIRST + 8, false},
        {FIELD(data_offset), 0, false},
        {FIELD(data_offset), UINT64_C(1) << 40, false},
        {FIELD(conf_bytes), FIRST - sizeof(struct segalloc_trace_header), true},
        {FIELD(conf_bytes), FIRST, false},
        {FIELD(conf_bytes), UINT32_MAX, false},
        {FIELD(pid), UINT64_C(1) << 40, false},
        {FIELD(imported), 1, true},
        {FIELD(imported), 2, false},
        {FIELD(devices), 64, true},
        {FIELD(devices), 65, false},
        {FIELD(granularity), 0, true},
        {FIELD(granularity), 64 << 10, true},
        {FIELD(granularity), 512, false},
        {FIELD(granularity), 3 * MIB, false},
        {FIELD(granularity), UINT64_C(1) << 63, false},
        {FIELD(device_bytes), 0, true},
        {FIELD(device_bytes), UINT64_C(64) << 40, true},
        {FIELD(device_bytes), MIB, false},
        {FIELD(device_bytes), UINT64_MAX, false},
        {FIELD(limit_bytes), UINT64_MAX, true}, /* what the user asked for */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct segalloc_trace_header header = good();
        char fault[SG_TRACE_FAULT] = "";
        uint64_t at = 0;
        memcpy((char *)&header + cases[i].offset, &cases[i].value, cases[i].size); /* little-endian */
        bool fine = sg_trace_check_header(&header, &at, fault);
        if (fine != cases[i].fine || (!fine && (at != cases[i].offset || !*fault)))
            fail_msg("byte %zu as %llu: \"%s\" at %llu", cases[i].offset, (unsigned long long)cases[i].value, fault,
                (unsigned long long)at);
    }
}

static void damaged_records_are_refused(void **state)
{
    (void)state;
    static const struct {
        struct segalloc_trace_record record;
        bool fine;
    } cases[] = {
        {{.kind = SEGALLOC_RECORD_ALLOCATE, .stream = SEGALLOC_TRACE_STREAMS - 1, .size = UINT64_MAX}, true},
        {{.kind = SEGALLOC_RECORD_ALLOCATE, .stream = SEGALLOC_TRACE_STREAMS}, false},
        {{.kind = SEGALLOC_RECORD_SLOT, .stream = UINT32_MAX, .id = 1}, false},
        {{.kind = SEGALLOC_RECORD_SLOT, .stream = 1, .id = 63}, true},
        {{.kind = SEGALLOC_RECORD_COMPLETE, .id = 64}, false},
        {{.kind = SEGALLOC_RECORD_TICK, .id = UINT64_MAX}, true}, /* a bit each */
        {{.kind = SEGALLOC_RECORD_DEFINE_STREAM, .stream = 1, .size = 64}, false},
        {{.kind = SEGALLOC_RECORD_DEFINE_STREAM, .stream = 1, .size = UINT64_C(9) << 32 | 63}, true},
        {{.kind = SEGALLOC_RECORD_DEFINE_DEVICE, .stream = 64}, false},
        {{.kind = SEGALLOC_RECORD_DEFINE_CARD, .size = SEGALLOC_TRACE_DEVICE_MOST}, true},
        {{.kind = SEGALLOC_RECORD_DEFINE_CARD, .size = SEGALLOC_TRACE_DEVICE_MOST + 1}, false},
        {{.kind = SEGALLOC_RECORD_DEFINE_MODEL, .stream = 64}, false},
        {{.kind = SEGALLOC_RECORD_DEFINE_MODEL, .stream = 63}, true},
        {{.kind = SEGALLOC_RECORD_DEFINE_UUID, .stream = 64, .id = UINT64_MAX}, false},
        {{.kind = SEGALLOC_RECORD_DEFINE_UUID, .stream = 63, .id = UINT64_MAX, .size = UINT64_MAX}, true},
        {{.kind = SEGALLOC_RECORD_DEFINE_DEVICE, .stream = 63, .id = 2 * MIB, .size = 64 * MIB}, true},
        {{.kind = SEGALLOC_RECORD_DEFINE_DEVICE, .id = 2 * MIB + 1, .size = 64 * MIB}, false},
        {{.kind = SEGALLOC_RECORD_DEFINE_DEVICE, .id = 2 * MIB, .size = UINT64_MAX}, false},
        {{.kind = SEGALLOC_RECORD_STATISTIC, .stream = 64}, false},
        {{.kind = 99, .stream = UINT32_MAX}, true}, /* of a later version */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!sg_trace_check_record(&cases[i].record) != cases[i].fine)
            fail_msg("case %zu, of kind %d", i, cases[i].record.kind);
}

struct file {
    unsigned char bytes[RECORDS + 2 * sizeof(struct segalloc_trace_record)];
};

/* A trace of two records that nobody has closed. */
static struct file make(void)
{
    struct file file = {0};
    const struct segalloc_trace_header header = good();
    const struct segalloc_trace_block block = {.magic = SEGALLOC_BLOCK_MAGIC, .count = 2};
    const struct segalloc_trace_record record = {.kind = SEGALLOC_RECORD_ALLOCATE, .id = 512, .size = 1};
    memcpy(file.bytes, &header, sizeof header);
    memcpy(file.bytes + FIRST, &block, sizeof block);
    memcpy(file.bytes + RECORDS, &record, sizeof record);
    memcpy(file.bytes + RECORDS + sizeof record, &record, sizeof record);
    return file;
}

/* Opens and reads it. Returns how many records there were; `said` is what is wrong with it. */
static size_t read_all(const struct file *file, size_t size, char said[SG_TRACE_ERROR])
{
    char *path = test_file(file->bytes, size);
    struct sg_trace_reader *reader = NULL;
    struct segalloc_trace_record record[8];
    size_t count = 0;
    if (sg_trace_open(path, &reader, said) == 0) {
        count = sg_trace_read(reader, record, 8);
        assert_int_equal(sg_trace_read(reader, record, 8), 0);
        const struct sg_trace_info *info = sg_trace_info(reader);
        snprintf(said, SG_TRACE_ERROR, "%s", info->end_text ? info->end_text : "");
        if (count)
            assert_int_equal(info->next, RECORDS + count * sizeof *record);
    }
    sg_trace_close(reader);
    unlink(path);
    free(path);
    return count;
}

static void a_refusal_names_the_byte(void **state)
{
    (void)state;
    static const struct {
        size_t at, size;
        uint64_t value;
        const char *says;
    } cases[] = {
        {56, 8, 3, "byte 56: a device's granularity is no power of two from 64 KiB to 1 GiB: 3"},
        {16, 8, 17, "byte 16: the first block does not begin at "},
        {FIRST, 4, 1, "byte 4096: no block begins "},
        {FIRST + 4, 4, UINT32_MAX, "byte 4100: a block says that it has more records "},
        {FIRST + 8, 8, 1, "byte 4104: a block has not the number "},
        {FIRST + 16, 8, 1, "byte 4112: the checksum of a block is wrong"},
        {RECORDS + 32 + 4, 4, UINT32_MAX, "byte 4160: a record is of a stream that cannot be"},
    };
    char said[SG_TRACE_ERROR];
    struct file file = make();
    assert_int_equal(read_all(&file, sizeof file, said), 2);
    assert_string_equal(said, "the process ended without closing it");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        file = make();
        memcpy(file.bytes + cases[i].at, &cases[i].value, cases[i].size);
        assert_int_equal(read_all(&file, sizeof file, said), 0);
        if (strncmp(said, cases[i].says, strlen(cases[i].says)) != 0)
            fail_msg("\"%s\" instead of \"%s\"", said, cases[i].says);
    }
    file = make();
    assert_int_equal(read_all(&file, 100, said), 0);
    assert_string_equal(said, "byte 100: the header is cut off");
    assert_int_equal(read_all(&file, sizeof file - 1, said), 1); /* what was cut is no damage */
    assert_string_equal(said, "the file ends inside a block");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(damaged_headers_are_refused),
        cmocka_unit_test(damaged_records_are_refused), cmocka_unit_test(a_refusal_names_the_byte)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
