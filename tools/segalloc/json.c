#include "json.h"

#include <stdlib.h>
#include <string.h>

#include "base/plain_text.h"
#include "tool.h"

/* Digits that a double has whatever its value is: 0.1 is printed as it is written. */
enum { REAL_DIGITS = 15, NUMBER_TEXT = 512 };

static json_t *json_made(json_t *value)
{
    if (!value)
        exit(sg_tool_error("", "no host memory left for what is to be printed"));
    return value;
}

static void json_done(int error)
{
    if (error)
        (void)json_made(NULL);
}

json_t *sg_json_object(const char *schema)
{
    json_t *object = json_made(json_object());
    if (schema)
        sg_json_set_text(object, "schema", schema);
    return object;
}

json_t *sg_json_array(void)
{
    return json_made(json_array());
}

/* A copy of a text in which each byte that is no UTF-8 is replaced; to be freed. */
static char *json_utf8(const char *text)
{
    static const char replacement[] = "\xef\xbf\xbd";
    char *copy = malloc(strlen(text) * (sizeof replacement - 1) + 1), *end = copy;
    while (copy && *text) {
        size_t length = sg_utf8_length(text);
        memcpy(end, length ? text : replacement, length ? length : sizeof replacement - 1);
        end += length ? length : sizeof replacement - 1;
        text += length ? length : 1;
    }
    if (copy)
        *end = '\0';
    return copy;
}

json_t *sg_json_text(const char *text)
{
    if (!text)
        return json_null();
    json_t *value = json_string(text);
    if (value)
        return value;
    char *utf8 = json_utf8(text);
    value = utf8 ? json_string(utf8) : NULL;
    free(utf8);
    return json_made(value);
}

json_t *sg_json_number(uint64_t value)
{
    return json_made(value <= INT64_MAX ? json_integer((json_int_t)value) : json_real((double)value));
}

json_t *sg_json_real(double value, int digits)
{
    char text[NUMBER_TEXT];
    snprintf(text, sizeof text, "%.*f", digits, value);
    return json_made(json_real(strtod(text, NULL)));
}

void sg_json_add(json_t *array, json_t *value)
{
    json_done(json_array_append_new(array, value));
}

void sg_json_set(json_t *object, const char *key, json_t *value)
{
    json_done(json_object_set_new(object, key, value));
}

void sg_json_set_text(json_t *object, const char *key, const char *text)
{
    sg_json_set(object, key, sg_json_text(text));
}

void sg_json_set_flag(json_t *object, const char *key, bool value)
{
    sg_json_set(object, key, json_boolean(value));
}

void sg_json_set_known(json_t *object, const char *key, uint64_t value, bool known)
{
    sg_json_set(object, key, known ? sg_json_number(value) : json_null());
}

void sg_json_set_signed(json_t *object, const char *key, int64_t value)
{
    sg_json_set(object, key, json_integer(value));
}

void sg_json_set_ratio(json_t *object, const char *key, double value)
{
    enum { RATIO_DIGITS = 6 };
    sg_json_set(object, key, value >= 0 ? sg_json_real(value, RATIO_DIGITS) : json_null());
}

void sg_json_set_numbers(json_t *object, const struct sg_json_member *member)
{
    for (; member->key; member++)
        sg_json_set(object, member->key, sg_json_number(member->value));
}

/* Pieces of a text, gathered: jansson hands over a few bytes at a time, and each call of a file takes the file's lock. An object of
   75 bytes comes in 40 pieces, for instance, and is one write. */
struct json_pieces {
    FILE *out;
    size_t used;
    char text[4096];
};

static int json_flush(struct json_pieces *pieces)
{
    size_t used = pieces->used;
    pieces->used = 0;
    return fwrite(pieces->text, 1, used, pieces->out) == used ? 0 : -1;
}

/* A piece of what is dumped, as jansson calls back; -1 where it could not be written. */
static int json_gather(const char *piece, size_t size, void *user)
{
    struct json_pieces *pieces = user;
    if (size > sizeof pieces->text - pieces->used && json_flush(pieces) != 0)
        return -1;
    if (size > sizeof pieces->text)
        return fwrite(piece, 1, size, pieces->out) == size ? 0 : -1;
    memcpy(pieces->text + pieces->used, piece, size);
    pieces->used += size;
    return 0;
}

static void json_dump_to(FILE *out, json_t *value, size_t flags)
{
    struct json_pieces pieces;
    pieces.out = out;
    pieces.used = 0;
    int error = json_dump_callback(value, json_gather, &pieces,
        flags | JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(REAL_DIGITS));
    json_done((error || json_flush(&pieces)) && !ferror(out)); /* the caller asks about the file */
    json_decref(value);
}

void sg_json_write(FILE *out, json_t *value)
{
    json_dump_to(out, value, 0);
}

void sg_json_write_members(FILE *out, json_t *value)
{
    json_dump_to(out, value, JSON_EMBED);
}

void sg_json_write_key(FILE *out, const char *key)
{
    putc(',', out);
    sg_json_write(out, sg_json_text(key));
    putc(':', out);
}

char *sg_json_line(json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(REAL_DIGITS));
    json_done(!text);
    json_decref(value);
    return text;
}

void sg_json_print(json_t *value)
{
    sg_json_write(stdout, value);
    putchar('\n');
}
