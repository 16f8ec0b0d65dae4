/* A trace file of any kind through all that looks into one: what `trace cat` does, and, by its length, the report, `trace
   info` or `trace export`. Where the checksum of the first block is odd it is made right first, so that damage gets past
   it. */
#include "report/findings.h"
#include "report/report.h"
#include "reader/rmm_row.h"
#include "target.h"
#include "reader/trace_check.h"
#include "export/export.h"
#include "trace_file.h"
#include "reader/trace_reader.h"

enum { BATCH = 256 };

int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    return freopen("/dev/null", "w", stdout) ? 0 : 1; /* where reports go */
}

static void seal(uint8_t *data, size_t size)
{
    struct segalloc_trace_header header;
    struct segalloc_trace_block block;
    if (size < sizeof header)
        return;
    memcpy(&header, data, sizeof header);
    if (header.magic != SEGALLOC_TRACE_MAGIC || header.data_offset > size || size - header.data_offset < sizeof block)
        return;
    uint8_t *first = data + header.data_offset;
    memcpy(&block, first, sizeof block);
    if (!(block.checksum & 1) ||
        block.count > (size - header.data_offset - sizeof block) / sizeof(struct segalloc_trace_record))
        return;
    uint64_t sum = SG_FNV_BASIS;
    for (uint32_t i = 0; i < block.count; i++) {
        struct segalloc_trace_record record;
        memcpy(&record, first + sizeof block + i * sizeof record, sizeof record);
        sum = sg_checksum_add(sum, &record);
    }
    block.checksum = sg_checksum_end(sum);
    memcpy(first, &block, sizeof block);
}

static void report(const char *path)
{
    struct sg_findings findings;
    char error[SG_FINDINGS_ERROR];
    if (sg_findings_read(path, /* cards */ true, &findings, error) != 0) {
        FUZZ_EXPECT(*error && !strchr(error, '\n'));
        return;
    }
    const struct sg_findings *all[] = {&findings, &findings};
    sg_report_text(&findings, /* all */ true);
    sg_json_print(sg_report_json(&findings, false));
    sg_report_table(all, 2);
    sg_findings_free(&findings);
}

/* Every record that is handed out stands at the byte that the reader says, and is one that can be. */
static void read_all(struct sg_trace_reader *reader, const uint8_t *data, size_t size)
{
    struct segalloc_trace_record record[BATCH];
    struct sg_dictionary dictionary = {0};
    const struct sg_trace_info *info = sg_trace_info(reader);
    char row[SG_RMM_ROW];
    for (size_t n; (n = sg_trace_read(reader, record, BATCH)) > 0;) {
        uint64_t place = info->next ? info->next - n * sizeof *record : 0;
        if (place && !info->compressed)
            FUZZ_EXPECT(info->next <= size && memcmp(data + place, record, n * sizeof *record) == 0);
        for (size_t i = 0; i < n; i++) {
            FUZZ_EXPECT(!sg_trace_check_record(&record[i]) && sg_dictionary_add(&dictionary, &record[i]) == 0);
            sg_rmm_row(&dictionary, &record[i], row);
        }
    }
    sg_dictionary_free(&dictionary);
}

static void export(struct sg_trace_reader *reader)
{
    static sg_export_fn *const formats[] = {
#define FORMAT(name, text, moment) sg_export_##name,
#include "export/formats.def"
    };
    static FILE *null;
    if (!null && !(null = fopen("/dev/null", "w")))
        abort();
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        struct sg_export_options options = {.moment = SG_MOMENT_END, .to_ns = UINT64_MAX, .points = 100};
        struct sg_exported exported = {0};
        if (sg_trace_rewind(reader) == 0)
            (void)formats[i](reader, &options, null, &exported);
        options.moment = SG_MOMENT_AUTO;
        if (sg_trace_rewind(reader) == 0)
            (void)formats[i](reader, &options, null, &exported);
    }
}

static void summarize(struct sg_trace_reader *reader)
{
    struct sg_summary summary;
    if (sg_trace_rewind(reader) != 0)
        return;
    (void)sg_summary_read(&summary, reader, true);
    for (int i = 0; i < SG_BOUND_COUNT; i++)
        (void)sg_bound_result(summary.bound[i]);
    sg_summary_free(&summary);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sg_trace_reader *reader;
    char path[FUZZ_PATH], error[SG_TRACE_ERROR];
    uint8_t *copy = (uint8_t *)fuzz_text(data, size);
    seal(copy, size);
    fuzz_file(copy, size, path);
    if (size % 3 == 0)
        report(path);
    if (sg_trace_open(path, &reader, error) == 0) {
        read_all(reader, copy, size);
        if (size % 3 == 1)
            export(reader);
        if (size % 3 == 2)
            summarize(reader);
        sg_trace_close(reader);
    } else {
        FUZZ_EXPECT(*error && !strchr(error, '\n'));
    }
    free(copy);
    return 0;
}
