/* Our own format, read block by block: a block is handed out only when all of it is known to be good.

   Why whole blocks: a checksum covers a block, so nothing is known of its records before the last one has been read. A
   caller never gets records that are then taken back.

   Example, the end of a file whose process was killed while it wrote block 7. Blocks 0 to 6 have checksums. Block 7 has
   magic, sequence 7, count 120 and checksum 0: it is open. Its 120 records are good, since `count` is raised after each.
   Block 8 is zeros, made ahead. The trace ends there as KILLED, with all that was written. */
#include "trace_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reader/trace_check.h"
#include "reader/trace_input.h"

_Static_assert(sizeof(struct segalloc_trace_record) == 32, "a record has 32 bytes");
_Static_assert(sizeof(struct segalloc_trace_block) == 32, "a block header has 32 bytes");

/* A trace that is being read: one block of it. */
struct state {
    unsigned char *block; /* SEGALLOC_TRACE_BLOCK bytes */
    size_t at, count;     /* records of it handed out, and good */
    uint64_t sequence;    /* of the next block */
    uint64_t offset;      /* of the block in the file, decompressed */
    char beginning[160];  /* of a trace that has a bound: what is left out */
    bool unclosed, ended; /* the block has no checksum; SEGALLOC_RECORD_END was read */
};

static const char killed[] = "the process ended without closing it";

/* True for a file that begins with the magic. */
static bool segalloc_detect(const unsigned char *data, size_t size)
{
    uint64_t magic;
    return size >= sizeof(magic) && (memcpy(&magic, data, sizeof(magic)), magic == SEGALLOC_TRACE_MAGIC);
}

/* Takes up to `size` bytes; NULL skips them. Returns how many there were. */
static size_t trace_take_bytes(struct sg_trace_reader *reader, unsigned char *out, size_t size)
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

/* The error of a header that is not all there. */
static int trace_cut_off(struct sg_trace_reader *reader)
{
    return reader->error[0] ? -EIO
                            : sg_trace_fail(reader, "byte %" PRIu64 ": the header is cut off", reader->info.offset);
}

/* Reads the header and the two texts behind it, which get a NUL each. A longer header of a later version is skipped over. */
static int trace_read_header(struct sg_trace_reader *reader)
{
    struct segalloc_trace_header *header = &reader->info.header;
    char fault[SG_TRACE_FAULT];
    uint64_t at;
    if (trace_take_bytes(reader, (unsigned char *)header, sizeof(*header)) != sizeof(*header))
        return trace_cut_off(reader);
    if (!sg_trace_check_header(header, &at, fault))
        return sg_trace_fail(reader, "byte %" PRIu64 ": %s", at, fault);
    /* The check has bounded all of these numbers: the header ends within 16 MiB, and the texts lie before its end. */
    uint64_t rest = header->data_offset - sizeof(*header);
    reader->text = calloc(1, rest + 2);
    if (!reader->text)
        return sg_trace_fail(reader, "out of memory");
    if (trace_take_bytes(reader, (unsigned char *)reader->text, rest) != rest)
        return trace_cut_off(reader);
    char *conf = reader->text + (header->header_bytes - sizeof(*header)), *command = conf + header->conf_bytes;
    memmove(command + 1, command, header->command_bytes);
    command[0] = '\0';
    command[1 + header->command_bytes] = '\0';
    reader->info.conf = conf;
    reader->info.command = command + 1;
    return 0;
}

/* Begins a trace: one block of memory, and the header. */
static int segalloc_open(struct sg_trace_reader *reader)
{
    struct state *state = calloc(1, sizeof(*state));
    reader->state = state;
    if (!state || !(state->block = malloc(SEGALLOC_TRACE_BLOCK)))
        return sg_trace_fail(reader, "out of memory");
    return trace_read_header(reader);
}

static void segalloc_close(struct sg_trace_reader *reader)
{
    struct state *state = reader->state;
    if (state)
        free(state->block);
    free(state);
}

/* Notes how the trace ends, unless that is known already. */
static void trace_set_end(struct sg_trace_reader *reader, enum sg_trace_end how, const char *text)
{
    if (reader->info.end != SG_TRACE_OPEN)
        return; /* the source has already said what is wrong with it */
    reader->info.end = how;
    reader->info.end_text = text;
}

/* There is no whole block header where the next block would be. */
static void trace_end_of_file(struct sg_trace_reader *reader, size_t got)
{
    const struct state *state = reader->state;
    if (got)
        trace_set_end(reader, SG_TRACE_CUT, "the file ends inside a block");
    else if (state->ended)
        trace_set_end(reader, SG_TRACE_CLOSED, NULL);
    else if (state->unclosed)
        trace_set_end(reader, SG_TRACE_KILLED, killed);
    else
        trace_set_end(reader, SG_TRACE_CUT, "the file ends before the trace does");
}

/* The fault of a block's header, with its byte in *ret_offset. NULL: there is none. */
static const char *block_header_fault(const struct state *state, const struct segalloc_trace_block *header,
                                uint64_t *ret_offset)
{
    const struct {
        bool wrong;
        size_t offset;
        const char *what;
    } faults[] = {
        {header->magic != SEGALLOC_BLOCK_MAGIC, offsetof(struct segalloc_trace_block, magic),
         "no block begins where one should"},
        {header->count > SG_BLOCK_RECORDS, offsetof(struct segalloc_trace_block, count),
         "a block says that it has more records than it has room for"},
        {header->sequence != state->sequence, offsetof(struct segalloc_trace_block, sequence),
         "a block has not the number that comes next"},
        {state->unclosed, 0, "a block that was not closed is followed by another"},
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        if (faults[i].wrong) {
            *ret_offset = state->offset + faults[i].offset;
            return faults[i].what;
        }
    return NULL;
}

/* The fault of a block's records, `there` of which are in the file. NULL: there is none. Each record is looked at, and the
   checksum compared where the block was closed and is whole. A wrong checksum goes before a wrong record: then all of the
   block is in doubt. */
static const char *block_records_fault(const struct state *state, const struct segalloc_trace_block *header, size_t there,
                                 uint64_t *ret_offset)
{
    const unsigned char *records = state->block + sizeof *header;
    uint64_t sum = SG_FNV_BASIS, first = state->offset + sizeof *header;
    const char *what = NULL;
    for (size_t i = 0; i < there; i++) {
        struct segalloc_trace_record record;
        memcpy(&record, records + i * sizeof record, sizeof record);
        sum = sg_checksum_add(sum, &record);
        if (!what && (what = sg_trace_check_record(&record)) != NULL)
            *ret_offset = first + i * sizeof record;
    }
    if (!header->checksum || there < header->count || sg_checksum_end(sum) == header->checksum)
        return what;
    *ret_offset = state->offset + offsetof(struct segalloc_trace_block, checksum);
    return "the checksum of a block is wrong";
}

/* Loads the next block; false at the end of what is good. */
static bool trace_next_block(struct sg_trace_reader *reader)
{
    struct state *state = reader->state;
    struct segalloc_trace_block header;
    uint64_t at = 0;
    state->at = state->count = 0;
    state->offset = reader->info.offset;
    size_t got = trace_take_bytes(reader, state->block, SEGALLOC_TRACE_BLOCK);
    if (reader->error[0])
        return false;
    if (got < sizeof(header)) {
        trace_end_of_file(reader, got);
        return false;
    }
    memcpy(&header, state->block, sizeof(header));
    if (!header.magic && !header.count && !header.sequence) {
        trace_set_end(reader, state->ended ? SG_TRACE_CLOSED : SG_TRACE_KILLED, state->ended ? NULL : killed);
        return false; /* made ahead and never used */
    }
    const char *fault = block_header_fault(state, &header, &at);
    /* A file may end inside its last block: the whole records that are there count, without a checksum. */
    size_t there = (got - sizeof(header)) / sizeof(struct segalloc_trace_record);
    there = there < header.count ? there : header.count;
    if (!fault)
        fault = block_records_fault(state, &header, there, &at);
    if (fault) {
        sg_trace_damaged(reader, at, fault);
        return false;
    }
    state->count = there;
    if (there < header.count)
        trace_set_end(reader, SG_TRACE_CUT, "the file ends inside a block");
    state->unclosed = !header.checksum;
    state->sequence++;
    if (header.dropped > reader->info.dropped)
        reader->info.dropped = header.dropped;
    return true;
}

/* Hands out records of one block at a time, so that a caller can tell where each record stands. */
static size_t segalloc_read(struct sg_trace_reader *reader, struct segalloc_trace_record *out, size_t n)
{
    struct state *state = reader->state;
    while (state->at == state->count)
        if ((reader->info.end != SG_TRACE_OPEN && reader->info.end != SG_TRACE_CUT) || !trace_next_block(reader))
            return 0;
    size_t part = state->count - state->at < n ? state->count - state->at : n;
    const unsigned char *from = state->block + sizeof(struct segalloc_trace_block);
    memcpy(out, from + state->at * sizeof(*out), part * sizeof(*out));
    if (out->kind == SEGALLOC_RECORD_LEFT_OUT) {
        snprintf(state->beginning, sizeof state->beginning,
            "the trace has a bound: %" PRIu64 " events before its first are left out, %" PRIu64 " failures among them",
            out->id, out->size);
        reader->info.begin_text = state->beginning;
    }
    const struct segalloc_trace_record *last = &out[part - 1];
    /* END is the last record of a trace that was closed. It also says how many were lost in all. */
    if (last->kind == SEGALLOC_RECORD_END && last->size >= reader->info.dropped) {
        state->ended = true;
        reader->info.dropped = last->size;
    }
    state->at += part;
    reader->info.next = state->offset + sizeof(struct segalloc_trace_block) + state->at * sizeof(*out);
    return part;
}

const struct sg_trace_format sg_format_segalloc = {"segalloc", segalloc_detect, segalloc_open, segalloc_read, segalloc_close};
