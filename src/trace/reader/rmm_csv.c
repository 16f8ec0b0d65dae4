/* RMM's CSV, read row by row.

   A *row* becomes one record, and before it the definitions of its thread and its stream where they are new. A *lead* is
   the beginning of a row up to its microseconds, "1,12:34:56:". The *spelling* of a field is how a file writes it: with 0x
   or without, as (nil), with a point in the time. It is kept as flags of definitions, so that the file can be written out
   the same to the byte.

   Why two parsers: traces have hundreds of thousands of rows. Nearly all begin as the row before and name a known stream,
   all spelt in the usual way. csv_parse_alike() compares the lead and takes four fields. csv_parse_row() takes any row,
   and says what is wrong with a bad one.

   Example, the first two rows:
     1,12:34:56:000100,allocate,0x7f2000000000,307200,0
         DEFINE_THREAD   thread 1, id 1
         DEFINE_STREAM   stream 1, id 0
         ALLOCATE        thread 1, stream 1, id 0x7f2000000000, size 307200, time 45296000100000 ns since midnight
     1,12:34:56:000250,free,0x7f2000000000,307200,0
         FREE            thread 1, stream 1, the same id and size, time 45296000250000 ns; taken by the lead "1,12:34:56:"

   Times go on past midnight: a row more than half a day before the last one is of the next day. */
#include "reader/rmm_csv.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reader/dictionary.h"
#include "reader/rmm_fields.h"
#include "reader/rmm_numbers.h"
#include "reader/trace_input.h"

enum {
    LINE_MAX_BYTES = 4096,
    MEMO = 64,
    STREAMS_MAX = SG_DICTIONARY_STREAMS - 1,
    THREADS_MAX = SG_DICTIONARY_THREADS - 1,
    LEAD = 32,       /* bytes of a row up to its microseconds, at most, that the next is compared with */
    ALIKE_MAX = 128, /* no row that is parsed by its lead is longer */
    ROW_RECORDS = 3  /* a row and the definitions of its thread and stream */
};

#define NS_PER_DAY (UINT64_C(24) * 3600 * 1000000000)

/* The words of the third field, and the records that they mean. Only the first three are RMM's own. */
static const struct {
    const char *action;
    enum segalloc_record_kind kind;
} actions[] = {
    {"allocate", SEGALLOC_RECORD_ALLOCATE},
    {"free", SEGALLOC_RECORD_FREE},
    {"allocate failure", SEGALLOC_RECORD_ALLOCATE_FAILURE},
    {"record_stream", SEGALLOC_RECORD_RECORD_STREAM},
    {"launch", SEGALLOC_RECORD_LAUNCH},
    {"record", SEGALLOC_RECORD_EVENT_RECORD},
    {"wait", SEGALLOC_RECORD_STREAM_WAIT},
    {"event_sync", SEGALLOC_RECORD_EVENT_SYNC},
    {"event_query", SEGALLOC_RECORD_EVENT_QUERY},
    {"stream_sync", SEGALLOC_RECORD_STREAM_SYNC},
    {"device_sync", SEGALLOC_RECORD_DEVICE_SYNC},
    {"empty_cache", SEGALLOC_RECORD_EMPTY_CACHE},
    {"pause", SEGALLOC_RECORD_PAUSE},
    {"resume", SEGALLOC_RECORD_RESUME},
};

const char *sg_rmm_action(enum segalloc_record_kind kind)
{
    for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++)
        if (actions[i].kind == kind)
            return actions[i].action;
    return NULL;
}

/* A file that is being read. */
struct state {
    struct sg_rmm_numbers streams, threads;
    struct sg_rmm_number *memo[MEMO]; /* of streams, by value */
    struct sg_rmm_number *thread;     /* of the row before */
    uint64_t day_ns, last_ns;
    char prefix[9];           /* HH:MM:SS: of the row before, and what it stands for */
    uint64_t prefix_ns;
    struct segalloc_trace_record pending[ROW_RECORDS];
    unsigned pending_at, pending_count;
    unsigned char lead[LEAD]; /* how the row before begins, up to its microseconds */
    size_t lead_bytes;        /* 0: that is longer */
    bool open_end; /* the line read last has no newline: the end of the file, or where its writer was stopped */
};

/* True for a file whose first line is RMM's header. */
static bool csv_detect(const unsigned char *data, size_t size)
{
    size_t length = strlen(SG_RMM_HEADER);
    return size >= length && !memcmp(data, SG_RMM_HEADER, length) &&
           (size == length || data[length] == '\n' || data[length] == '\r');
}

/* The next line, without its end, or NULL at the end of the file or after an error. `data` may be read a little past
   the end of the line. */
static inline const unsigned char *csv_next_line(struct sg_trace_reader *reader, const unsigned char **ret_end)
{
    for (;;) {
        unsigned char *newline = reader->size ? memchr(reader->data, '\n', reader->size) : NULL;
        const unsigned char *line = reader->data;
        if (newline) {
            *ret_end = newline;
            reader->size -= (size_t)(newline + 1 - reader->data);
            reader->data = newline + 1;
            reader->info.line++;
            return line;
        }
        if (reader->size > LINE_MAX_BYTES) {
            sg_trace_fail(reader, "line %llu is longer than %d bytes", (unsigned long long)reader->info.line + 1,
                          LINE_MAX_BYTES);
            return NULL;
        }
        if (sg_trace_more(reader))
            continue;
        if (!reader->size || reader->error[0] || reader->info.end_text) /* part of a row where the data are cut */
            return NULL;
        ((struct state *)reader->state)->open_end = true;
        *ret_end = reader->data + reader->size;
        line = reader->data;
        reader->size = 0;
        reader->info.line++;
        return line;
    }
}

/* Begins a file: passes over its first line. Nothing in a CSV says what the devices were. */
static int csv_open(struct sg_trace_reader *reader)
{
    const unsigned char *end;
    reader->state = calloc(1, sizeof(struct state));
    if (!reader->state)
        return sg_trace_fail(reader, "out of memory");
    reader->info.header.imported = 1;
    reader->info.header.devices = 1;
    csv_next_line(reader, &end);
    return reader->error[0] ? -EINVAL : 0;
}

static void csv_close(struct sg_trace_reader *reader)
{
    struct state *state = reader->state;
    if (state) {
        free(state->streams.entry);
        free(state->threads.entry);
    }
    free(state);
}

/* Notes the fault of the field that starts at `field`, with its text and its line. Always returns false. */
static bool csv_bad_field(struct sg_trace_reader *reader, const unsigned char *field, const unsigned char *end, const char *what)
{
    char text[48];
    size_t length = 0;
    while (field < end && *field != ',' && *field != '\r' && length < sizeof(text) - 1) {
        text[length++] = isprint(*field) ? (char)*field : '?';
        field++;
    }
    text[length] = '\0';
    sg_trace_fail(reader, "%s '%s' in line %llu", what, text, (unsigned long long)reader->info.line);
    return false;
}

/* HH:MM:SS:ffffff, also with a point before the microseconds; rows that fall back by more than half a day are of the
   next day. */
static inline bool csv_parse_time(struct sg_trace_reader *reader, const unsigned char **at, const unsigned char *end,
                              uint64_t *ret, uint8_t *ret_style)
{
    struct state *state = reader->state;
    const unsigned char *p = *at;
    if (end - p < 15)
        return csv_bad_field(reader, p, end, "bad time");
    /* Hour, minute and second are those of the row before nearly always: then they are compared and not parsed. */
    if (memcmp(state->prefix, p, sizeof(state->prefix)) != 0) {
        for (int i = 0; i < 8; i++)
            if (i % 3 == 2 ? p[i] != ':' : !isdigit(p[i]))
                return csv_bad_field(reader, p, end, "bad time");
        unsigned hour = (p[0] - '0') * 10u + (p[1] - '0'), minute = (p[3] - '0') * 10u + (p[4] - '0');
        unsigned second = (p[6] - '0') * 10u + (p[7] - '0');
        if ((p[8] != ':' && p[8] != '.') || hour > 23 || minute > 59 || second > 60)
            return csv_bad_field(reader, p, end, "bad time");
        memcpy(state->prefix, p, sizeof(state->prefix));
        state->prefix_ns = ((hour * UINT64_C(60) + minute) * 60 + second) * 1000000000;
    }
    uint32_t micros;
    if (!sg_rmm_six_digits(p + 9, &micros))
        return csv_bad_field(reader, p, end, "bad time");
    uint64_t now = state->day_ns + state->prefix_ns + micros * UINT64_C(1000);
    /* Threads write their rows a little out of order, so a small step back is no new day. */
    if (now < state->last_ns && state->last_ns - now > NS_PER_DAY / 2) {
        state->day_ns += NS_PER_DAY;
        now += NS_PER_DAY;
    }
    state->last_ns = now;
    *ret_style = p[8] == '.' ? SEGALLOC_FLAG_POINT_TIME : 0;
    *ret = now;
    *at = p + 15;
    return true;
}

/* The third field. The two frequent actions are compared first. */
static inline bool csv_parse_action(struct sg_trace_reader *reader, const unsigned char **at, const unsigned char *end,
                                uint8_t *ret)
{
    const unsigned char *p = *at;
    if (end - p > 9 && !memcmp(p, "allocate,", 9)) {
        *ret = SEGALLOC_RECORD_ALLOCATE;
        *at = p + 8;
        return true;
    }
    if (end - p > 5 && !memcmp(p, "free,", 5)) {
        *ret = SEGALLOC_RECORD_FREE;
        *at = p + 4;
        return true;
    }
    for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
        size_t length = strlen(actions[i].action);
        if ((size_t)(end - p) > length && !memcmp(p, actions[i].action, length) && p[length] == ',') {
            *ret = (uint8_t)actions[i].kind;
            *at = p + length;
            return true;
        }
    }
    return csv_bad_field(reader, p, end, "unknown action");
}

/* The index of a thread; a record that defines it where it is new or its rows are spelt another way now, as far as
   this one shows. */
static bool csv_thread_index(struct sg_trace_reader *reader, uint64_t value, uint8_t style, uint8_t style_seen,
                      struct segalloc_trace_record **out, uint16_t *ret)
{
    struct state *state = reader->state;
    struct sg_rmm_number *entry = state->thread;
    bool new = false;
    if (!entry || entry->value != value) {
        entry = state->thread = sg_rmm_number_intern(&state->threads, value, &new);
        if (!entry) {
            sg_trace_fail(reader, "out of memory");
            return false;
        }
        if (state->threads.used > THREADS_MAX) {
            sg_trace_fail(reader, "more than %d threads in line %llu", THREADS_MAX,
                          (unsigned long long)reader->info.line);
            return false;
        }
    }
    if (new || (entry->flags & style_seen) != style) {
        entry->flags = (uint8_t)((entry->flags & ~style_seen) | style);
        *(*out)++ = (struct segalloc_trace_record){.kind = SEGALLOC_RECORD_DEFINE_THREAD, .flags = entry->flags,
                                                   .thread = (uint16_t)entry->index, .id = value};
    }
    *ret = (uint16_t)entry->index;
    return true;
}

/* The place of a stream in the memo: streams are few, and most rows name one of the last 64. */
static inline struct sg_rmm_number **csv_memo_of(struct state *state, uint64_t stream)
{
    return &state->memo[(stream ^ stream >> 8) % MEMO];
}

/* The index of a stream, with a definition before its first use or when it is spelt another way from here on. */
static bool csv_stream_index(struct sg_trace_reader *reader, uint64_t value, uint8_t style, struct segalloc_trace_record **out,
                      uint32_t *ret)
{
    struct state *state = reader->state;
    struct sg_rmm_number **memo = csv_memo_of(state, value), *entry = *memo;
    bool new = false;
    if (!entry || entry->value != value) {
        uint32_t room = state->streams.room;
        entry = sg_rmm_number_intern(&state->streams, value, &new);
        if (!entry) {
            sg_trace_fail(reader, "out of memory");
            return false;
        }
        /* The table has moved, and the memo points into it. */
        if (room != state->streams.room)
            memset(state->memo, 0, sizeof(state->memo));
        *memo = entry;
        if (state->streams.used > STREAMS_MAX) {
            sg_trace_fail(reader, "more than %d streams in line %llu", STREAMS_MAX,
                          (unsigned long long)reader->info.line);
            return false;
        }
    }
    if (new || entry->flags != style) {
        entry->flags = style;
        *(*out)++ = (struct segalloc_trace_record){.kind = SEGALLOC_RECORD_DEFINE_STREAM, .flags = style,
                                                   .stream = entry->index, .id = value};
    }
    *ret = entry->index;
    return true;
}

/* Takes the comma behind a field. Without one the field is bad, or the row has too few. */
static inline bool csv_take_comma(struct sg_trace_reader *reader, const unsigned char **at, const unsigned char *end,
                         const unsigned char *field, const char *what)
{
    if (*at < end && **at == ',') {
        ++*at;
        return true;
    }
    if (*at < end)
        return csv_bad_field(reader, field, end, what);
    sg_trace_fail(reader, "line %llu has fewer than 6 fields", (unsigned long long)reader->info.line);
    return false;
}

/* One row; up to ROW_RECORDS records are written and *out is moved behind them. False: an error. */
static inline bool csv_parse_row(struct sg_trace_reader *reader, const unsigned char *line, const unsigned char *end,
                             struct segalloc_trace_record **out)
{
    struct state *state = reader->state;
    const unsigned char *at = line, *field = line;
    struct segalloc_trace_record row = {0};
    uint64_t thread = 0, stream = 0;
    uint8_t time_style = 0, pointer_style, pointer_style_seen, stream_style;
    if (!sg_rmm_take_decimal(&at, end, &thread))
        return csv_bad_field(reader, field, end, "bad thread");
    if (!csv_take_comma(reader, &at, end, field, "bad thread"))
        return false;
    field = at;
    if (!csv_parse_time(reader, &at, end, &row.time_ns, &time_style) || !csv_take_comma(reader, &at, end, field, "bad time"))
        return false;
    state->lead_bytes = field + 9 - line <= LEAD ? (size_t)(field + 9 - line) : 0;
    memcpy(state->lead, line, state->lead_bytes);
    if (!csv_parse_action(reader, &at, end, &row.kind))
        return false;
    field = ++at;
    if (!sg_rmm_parse_pointer(&at, end, &row, &pointer_style, &pointer_style_seen))
        return csv_bad_field(reader, field, end, "bad pointer");
    if (!csv_take_comma(reader, &at, end, field, "bad pointer"))
        return false;
    field = at;
    if (!sg_rmm_take_decimal(&at, end, &row.size))
        return csv_bad_field(reader, field, end, "bad size");
    if (!csv_take_comma(reader, &at, end, field, "bad size"))
        return false;
    field = at;
    if (!sg_rmm_parse_stream(&at, end, &stream, &stream_style))
        return csv_bad_field(reader, field, end, "bad stream");
    if (at != end) {
        if (*at == ',') {
            sg_trace_fail(reader, "line %llu has more than 6 fields", (unsigned long long)reader->info.line);
            return false;
        }
        if (at + 1 != end || *at != '\r')
            return csv_bad_field(reader, field, end, "bad stream");
    }
    if (!csv_thread_index(reader, thread, time_style | pointer_style, SEGALLOC_FLAG_POINT_TIME | pointer_style_seen, out,
                   &row.thread) ||
        !csv_stream_index(reader, stream, stream_style, out, &row.stream))
        return false;
    *(*out)++ = row;
    return true;
}

/* An allocation or a free that begins as the row before does, on a known stream, all spelt in the usual way: most rows.
   False: nothing was read, and the row is csv_parse_row()'s. */
static inline bool csv_parse_alike(struct sg_trace_reader *reader, struct segalloc_trace_record **out)
{
    struct state *state = reader->state;
    const unsigned char *at = reader->data, *end = at + ALIKE_MAX;
    size_t lead = state->lead_bytes;
    struct segalloc_trace_record row = {0};
    uint64_t stream;
    uint32_t micros;
    if (reader->size < ALIKE_MAX + LEAD || !lead || memcmp(at, state->lead, lead) != 0 ||
        !sg_rmm_six_digits(at + lead, &micros))
        return false;
    at += lead + 6;
    if (memcmp(at, ",allocate,0x", 12) == 0) {
        row.kind = SEGALLOC_RECORD_ALLOCATE;
        at += 12;
    } else if (memcmp(at, ",free,0x", 8) == 0) {
        row.kind = SEGALLOC_RECORD_FREE;
        at += 8;
    } else {
        return false;
    }
    if (!sg_rmm_take_hexadecimal(&at, end, &row.id) || *at++ != ',' || !sg_rmm_take_decimal(&at, end, &row.size) ||
        *at++ != ',' || !sg_rmm_take_decimal(&at, end, &stream) || *at++ != '\n')
        return false;
    /* Only a known stream in its usual spelling: a new one needs a definition, which csv_parse_row() writes. */
    const struct sg_rmm_number *known = *csv_memo_of(state, stream), *thread = state->thread;
    if (!known || known->value != stream || known->flags || thread->flags & SEGALLOC_FLAG_BARE_HEX)
        return false;
    row.stream = known->index;
    row.thread = (uint16_t)thread->index;
    row.time_ns = state->last_ns = state->day_ns + state->prefix_ns + micros * UINT64_C(1000);
    *(*out)++ = row;
    reader->size -= (size_t)(at - reader->data);
    reader->data = (unsigned char *)at;
    reader->info.line++;
    return true;
}

/* True if a line is only the beginning of a row, by its fields: the last line of a file whose writer was stopped. */
static bool csv_is_cut(const unsigned char *line, const unsigned char *end)
{
    static const char *const begun[] = {"", "0x", "(", "(n", "(ni", "(nil"};
    enum { COMMAS = 5 };
    unsigned commas = 0;
    for (const unsigned char *at = line; at < end; at++)
        if (*at == ',' && ++commas == COMMAS)
            line = at + 1;
    for (size_t i = 0; commas == COMMAS && i < sizeof(begun) / sizeof(begun[0]); i++)
        if ((size_t)(end - line) == strlen(begun[i]) && memcmp(line, begun[i], strlen(begun[i])) == 0)
            return true;
    return commas < COMMAS;
}

/* sg_trace_read() of this format. A row is three records at most; where `out` has room for fewer they wait in `pending`. */
static size_t csv_read(struct sg_trace_reader *reader, struct segalloc_trace_record *out, size_t n)
{
    struct state *state = reader->state;
    struct segalloc_trace_record *at = out, *end = out + n;
    while (at < end) {
        if (state->pending_at < state->pending_count) {
            *at++ = state->pending[state->pending_at++];
            continue;
        }
        if (csv_parse_alike(reader, &at))
            continue;
        const unsigned char *line_end, *line = csv_next_line(reader, &line_end);
        if (!line) {
            if (!reader->error[0] && reader->info.end == SG_TRACE_OPEN)
                reader->info.end = SG_TRACE_CLOSED;
            break;
        }
        if (line == line_end || (line + 1 == line_end && *line == '\r'))
            continue;
        if (state->open_end && csv_is_cut(line, line_end)) {
            reader->info.end = SG_TRACE_CUT;
            reader->info.end_text = "the last row is incomplete";
            break;
        }
        if (end - at >= ROW_RECORDS) {
            if (!csv_parse_row(reader, line, line_end, &at))
                break;
        } else {
            struct segalloc_trace_record *to = state->pending;
            state->pending_at = state->pending_count = 0;
            if (!csv_parse_row(reader, line, line_end, &to))
                break;
            state->pending_count = (unsigned)(to - state->pending);
        }
    }
    return (size_t)(at - out);
}

const struct sg_trace_format sg_format_rmm_csv = {"rmm-csv", csv_detect, csv_open, csv_read, csv_close};
