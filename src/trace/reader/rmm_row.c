#include "reader/rmm_row.h"

#include <string.h>

#include "reader/rmm_csv.h"

/* Writes a number in decimal. Like all functions below it returns the place behind what it has written. */
static char *row_put_decimal(char *at, uint64_t value)
{
    char digits[20];
    int n = 0;
    do
        digits[n++] = (char)('0' + value % 10);
    while (value /= 10);
    while (n)
        *at++ = digits[--n];
    return at;
}

/* Writes a number in hexadecimal, without 0x. */
static char *row_put_hex(char *at, uint64_t value)
{
    char digits[16];
    int n = 0;
    do
        digits[n++] = "0123456789abcdef"[value & 15];
    while (value >>= 4);
    while (n)
        *at++ = digits[--n];
    return at;
}

static char *row_put_text(char *at, const char *text)
{
    size_t length = strlen(text);
    memcpy(at, text, length);
    return at + length;
}

static char *row_put_two(char *at, unsigned value)
{
    *at++ = (char)('0' + value / 10 % 10);
    *at++ = (char)('0' + value % 10);
    return at;
}

/* Writes ns since midnight as HH:MM:SS, a mark, and microseconds. */
static char *row_put_time(char *at, uint64_t ns, char before_micros)
{
    uint64_t micros = ns / 1000, seconds = micros / 1000000;
    unsigned rest = (unsigned)(micros % 1000000);
    at = row_put_two(at, (unsigned)(seconds / 3600 % 24));
    *at++ = ':';
    at = row_put_two(at, (unsigned)(seconds / 60 % 60));
    *at++ = ':';
    at = row_put_two(at, (unsigned)(seconds % 60));
    *at++ = before_micros;
    at = row_put_two(at, rest / 10000);
    at = row_put_two(at, rest / 100 % 100);
    return row_put_two(at, rest % 100);
}

size_t sg_rmm_row(const struct sg_dictionary *dictionary, const struct segalloc_trace_record *record, char *buffer)
{
    const char *action = sg_rmm_action(record->kind);
    if (!action)
        return 0;
    const struct sg_thread_info *thread = sg_dictionary_thread(dictionary, record->thread);
    const struct sg_stream_info *stream = sg_dictionary_stream(dictionary, record->stream);
    char *at = row_put_decimal(buffer, thread->id);
    *at++ = ',';
    at = row_put_time(at, record->time_ns, thread->flags & SEGALLOC_FLAG_POINT_TIME ? '.' : ':');
    *at++ = ',';
    at = row_put_text(at, action);
    *at++ = ',';
    /* The id of such a failure is the bytes that were short, and no pointer. */
    bool failed = record->kind == SEGALLOC_RECORD_ALLOCATE_FAILURE && record->flags & SEGALLOC_FLAG_SHORT;
    uint64_t pointer = failed ? 0 : record->id;
    if (record->flags & SEGALLOC_FLAG_NIL && !pointer) {
        at = row_put_text(at, "(nil)");
    } else {
        if (!(thread->flags & SEGALLOC_FLAG_BARE_HEX))
            at = row_put_text(at, "0x");
        at = row_put_hex(at, pointer);
    }
    *at++ = ',';
    at = row_put_decimal(at, record->size);
    *at++ = ',';
    if (stream->flags & SEGALLOC_FLAG_NIL && !stream->handle)
        at = row_put_text(at, "(nil)");
    else if (stream->flags & SEGALLOC_FLAG_HEX_STREAM)
        at = row_put_hex(row_put_text(at, "0x"), stream->handle);
    else if (stream->flags & SEGALLOC_FLAG_BARE_HEX)
        at = row_put_hex(at, stream->handle);
    else
        at = row_put_decimal(at, stream->handle);
    *at++ = '\n';
    return (size_t)(at - buffer);
}
