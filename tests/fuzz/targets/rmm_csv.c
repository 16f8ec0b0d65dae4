/* RMM's CSV, read and written again: what was read once is read the same a second time. */
#include "reader/rmm_csv.h"
#include "reader/rmm_row.h"

#include "target.h"
#include "export/torch_snapshot.h"
#include "reader/trace_reader.h"

enum { BATCH = 256 };

struct text {
    char *at;
    size_t length, room;
};

static void add(struct text *text, const char *row, size_t length)
{
    if (text->length + length > text->room) {
        text->room = 2 * text->room + SG_RMM_ROW + sizeof SG_RMM_HEADER;
        text->at = realloc(text->at, text->room);
        if (!text->at)
            abort();
    }
    memcpy(text->at + text->length, row, length);
    text->length += length;
}

/* The rows of a file; false where it has none, or an error after those. */
static bool rows_of(const uint8_t *data, size_t size, struct text *ret)
{
    struct sg_dictionary dictionary = {0};
    struct segalloc_trace_record record[BATCH];
    struct sg_trace_reader *reader;
    char path[FUZZ_PATH], error[SG_TRACE_ERROR];
    fuzz_file(data, size, path);
    if (sg_trace_open(path, &reader, error) != 0) {
        FUZZ_EXPECT(*error && !strchr(error, '\n'));
        return false;
    }
    add(ret, SG_RMM_HEADER "\n", sizeof SG_RMM_HEADER);
    for (size_t n; (n = sg_trace_read(reader, record, BATCH)) > 0;) {
        for (size_t i = 0; i < n; i++) {
            char row[SG_RMM_ROW];
            FUZZ_EXPECT(sg_dictionary_add(&dictionary, &record[i]) == 0);
            size_t length = sg_rmm_row(&dictionary, &record[i], row);
            FUZZ_EXPECT(length <= sizeof row);
            add(ret, row, length);
        }
    }
    bool good = !sg_trace_error(reader) && sg_trace_info(reader)->end == SG_TRACE_CLOSED;
    sg_dictionary_free(&dictionary);
    sg_trace_close(reader);
    return good;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct text first = {0}, second = {0};
    rows_of(data, size, &first);
    if (first.at) {
        FUZZ_EXPECT(rows_of((const uint8_t *)first.at, first.length, &second));
        FUZZ_EXPECT(first.length == second.length && memcmp(first.at, second.at, first.length) == 0);
    }
    free(first.at);
    free(second.at);
    return 0;
}
