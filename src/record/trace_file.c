/* Our own format, read block by block: a block is handed out only when all of it is known to be good. */
#include "trace_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dictionary.h"
#include "trace_input.h"

_Static_assert(sizeof(struct segalloc_trace_record) == 32, "a record has 32 bytes");
_Static_assert(sizeof(struct segalloc_trace_block) == 32, "a block header has 32 bytes");

/* More than any header needs; what a hostile one may make us read. */
enum { HEADER_MAX = 16 << 20 };

struct state {
    unsigned char *block; /* SEGALLOC_TRACE_BLOCK bytes */
    size_t at, count;     /* records of it handed out, and good */
    uint64_t sequence;    /* of the next block */
    bool unclosed, ended; /* the block has no checksum; SEGALLOC_RECORD_END was read */
};

static bool detect(const unsigned char *data, size_t size)
{
    uint64_t magic;
    return size >= sizeof(magic) && (memcpy(&magic, data, sizeof(magic)), magic == SEGALLOC_TRACE_MAGIC);
}

/* Takes up to `size` bytes; NULL skips them. Returns how many there were. */
static size_t take(struct sg_trace_reader *reader, unsigned char *out, size_t size)
{
    size_t done = 0;
    while (done < size) {
        if (!reader->size && !sg_trace_more(reader))
            break;
        size_t part = reader->size < size - done ? reader->size : size - done;
        if (out)
            memcpy(out + done, reader->data, part);
        reader->data += part;
        reader->size -= part;
        done += part;
    }
    reader->info.offset += done;
    return done;
}

static int read_header(struct sg_trace_reader *reader)
{
    struct segalloc_trace_header *header = &reader->info.header;
    if (take(reader, (unsigned char *)header, sizeof(*header)) != sizeof(*header))
        return sg_trace_fail(reader, "the header is cut off");
    if (header->version != SEGALLOC_TRACE_VERSION)
        return sg_trace_fail(reader, "version %u of the trace format; this segalloc reads version %u", header->version,
                             SEGALLOC_TRACE_VERSION);
    uint64_t texts = (uint64_t)header->conf_bytes + header->command_bytes;
    if (header->header_bytes < sizeof(*header) || header->data_offset % 4096 || header->data_offset > HEADER_MAX ||
        header->header_bytes > header->data_offset || texts > header->data_offset - header->header_bytes)
        return sg_trace_fail(reader, "the header contradicts itself");
    uint64_t rest = header->data_offset - sizeof(*header);
    reader->text = calloc(1, rest + 2);
    if (!reader->text)
        return sg_trace_fail(reader, "out of memory");
    if (take(reader, (unsigned char *)reader->text, rest) != rest)
        return sg_trace_fail(reader, "the header is cut off");
    char *conf = reader->text + (header->header_bytes - sizeof(*header)), *command = conf + header->conf_bytes;
    memmove(command + 1, command, header->command_bytes);
    command[0] = '\0';
    command[1 + header->command_bytes] = '\0';
    reader->info.conf = conf;
    reader->info.command = command + 1;
    return 0;
}

static int open_trace(struct sg_trace_reader *reader)
{
    struct state *state = calloc(1, sizeof(*state));
    reader->state = state;
    if (!state || !(state->block = malloc(SEGALLOC_TRACE_BLOCK)))
        return sg_trace_fail(reader, "out of memory");
    return read_header(reader);
}

static void close_trace(struct sg_trace_reader *reader)
{
    struct state *state = reader->state;
    if (state)
        free(state->block);
    free(state);
}

static void end(struct sg_trace_reader *reader, enum sg_trace_end how, const char *text)
{
    if (reader->info.end != SG_TRACE_OPEN)
        return; /* the source has already said what is wrong with it */
    reader->info.end = how;
    reader->info.end_text = text;
}

/* Loads the next block; false at the end of what is good. */
static bool next_block(struct sg_trace_reader *reader)
{
    static const char killed[] = "the process ended without closing it";
    struct state *state = reader->state;
    state->at = state->count = 0;
    size_t got = take(reader, state->block, SEGALLOC_TRACE_BLOCK);
    struct segalloc_trace_block header;
    if (reader->error[0])
        return false;
    if (got < sizeof(header)) {
        if (got)
            end(reader, SG_TRACE_CUT, "the file ends inside a block");
        else if (state->ended)
            end(reader, SG_TRACE_CLOSED, NULL);
        else if (state->unclosed)
            end(reader, SG_TRACE_KILLED, killed);
        else
            end(reader, SG_TRACE_CUT, "the file ends before the trace does");
        return false;
    }
    memcpy(&header, state->block, sizeof(header));
    if (!header.magic && !header.count && !header.sequence) {
        end(reader, state->ended ? SG_TRACE_CLOSED : SG_TRACE_KILLED, state->ended ? NULL : killed);
        return false; /* made ahead and never used */
    }
    bool known = header.magic == SEGALLOC_BLOCK_MAGIC && header.sequence == state->sequence &&
                 header.count <= SG_BLOCK_RECORDS;
    if (!known || state->unclosed) {
        end(reader, SG_TRACE_DAMAGED, known ? "a block that was not closed is followed by another"
                                            : "the header of a block is damaged");
        return false;
    }
    const unsigned char *records = state->block + sizeof(header);
    size_t there = (got - sizeof(header)) / sizeof(struct segalloc_trace_record);
    if (header.checksum && there >= header.count) {
        uint64_t sum = SG_FNV_BASIS;
        for (uint32_t i = 0; i < header.count; i++) {
            struct segalloc_trace_record record;
            memcpy(&record, records + i * sizeof(record), sizeof(record));
            sum = sg_checksum_add(sum, &record);
        }
        if (sg_checksum_end(sum) != header.checksum) {
            end(reader, SG_TRACE_DAMAGED, "the checksum of a block is wrong");
            return false;
        }
    }
    state->count = there < header.count ? there : header.count;
    for (size_t i = 0; i < state->count; i++) {
        struct segalloc_trace_record record;
        memcpy(&record, records + i * sizeof(record), sizeof(record));
        if ((record.kind == SEGALLOC_RECORD_DEFINE_STREAM && record.stream >= SG_DICTIONARY_STREAMS) ||
            (record.kind == SEGALLOC_RECORD_DEFINE_DEVICE && record.stream >= SG_DICTIONARY_DEVICES)) {
            state->count = 0;
            end(reader, SG_TRACE_DAMAGED, "a block defines a stream or device that cannot be");
            return false;
        }
    }
    if (there < header.count)
        end(reader, SG_TRACE_CUT, "the file ends inside a block");
    state->unclosed = !header.checksum;
    state->sequence++;
    if (header.dropped > reader->info.dropped)
        reader->info.dropped = header.dropped;
    return true;
}

static size_t read_trace(struct sg_trace_reader *reader, struct segalloc_trace_record *out, size_t n)
{
    struct state *state = reader->state;
    size_t done = 0;
    while (done < n) {
        if (state->at == state->count) {
            if (reader->info.end == SG_TRACE_OPEN || reader->info.end == SG_TRACE_CUT) {
                if (!next_block(reader))
                    break;
                continue;
            }
            break;
        }
        size_t part = state->count - state->at < n - done ? state->count - state->at : n - done;
        const unsigned char *from = state->block + sizeof(struct segalloc_trace_block);
        memcpy(out + done, from + state->at * sizeof(*out), part * sizeof(*out));
        const struct segalloc_trace_record *last = &out[done + part - 1];
        if (last->kind == SEGALLOC_RECORD_END && last->size >= reader->info.dropped) {
            state->ended = true;
            reader->info.dropped = last->size;
        }
        state->at += part;
        done += part;
    }
    return done;
}

const struct sg_trace_format sg_format_segalloc = {"segalloc", detect, open_trace, read_trace, close_trace};
