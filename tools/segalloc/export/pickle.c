#include "export/pickle.h"

#include <stdlib.h>
#include <string.h>

#include "plain_text.h"

static void pickle_put_bytes(struct sg_pickle *pickle, const void *bytes, size_t size)
{
    fwrite(bytes, 1, size, pickle->out);
}

static void put_length(struct sg_pickle *pickle, uint32_t length)
{
    const unsigned char bytes[] = {length & 255, length >> 8 & 255, length >> 16 & 255, length >> 24};
    pickle_put_bytes(pickle, bytes, sizeof bytes);
}

void sg_pickle_begin(struct sg_pickle *pickle, FILE *out)
{
    *pickle = (struct sg_pickle){.out = out};
    pickle_put_bytes(pickle, "\x80\x02", 2);
}

void sg_pickle_end(struct sg_pickle *pickle)
{
    putc('.', pickle->out);
}

void sg_pickle_open_dict(struct sg_pickle *pickle)
{
    pickle_put_bytes(pickle, "}(", 2);
}

void sg_pickle_close_dict(struct sg_pickle *pickle)
{
    putc('u', pickle->out);
}

void sg_pickle_open_list(struct sg_pickle *pickle)
{
    pickle_put_bytes(pickle, "](", 2);
}

void sg_pickle_close_list(struct sg_pickle *pickle)
{
    putc('e', pickle->out);
}

/* Python refuses a whole pickle for one byte that is no UTF-8. */
void sg_pickle_text(struct sg_pickle *pickle, const char *from)
{
    char *copy = strdup(from);
    const char *text = copy ? sg_plain_text(copy) : "";
    size_t length = strlen(text);
    putc('X', pickle->out);
    put_length(pickle, (uint32_t)length);
    pickle_put_bytes(pickle, text, length);
    free(copy);
}

void sg_pickle_word(struct sg_pickle *pickle, const char *literal)
{
    for (unsigned i = 0; i < pickle->words; i++) {
        if (pickle->word[i] == literal) {
            putc('h', pickle->out);
            putc((int)i, pickle->out);
            return;
        }
    }
    sg_pickle_text(pickle, literal);
    if (pickle->words == SG_PICKLE_WORDS)
        return;
    putc('q', pickle->out);
    putc((int)pickle->words, pickle->out);
    pickle->word[pickle->words++] = literal;
}

void sg_pickle_number(struct sg_pickle *pickle, uint64_t value)
{
    if (value <= INT32_MAX) {
        putc('J', pickle->out);
        put_length(pickle, (uint32_t)value);
        return;
    }
    const unsigned char head[] = {0x8a, 9}; /* LONG1; the ninth byte keeps it positive */
    unsigned char bytes[9] = {0};
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(value >> (8 * i));
    pickle_put_bytes(pickle, head, sizeof head);
    pickle_put_bytes(pickle, bytes, sizeof bytes);
}

void sg_pickle_bool(struct sg_pickle *pickle, bool value)
{
    putc(value ? 0x88 : 0x89, pickle->out);
}

void sg_pickle_pair(struct sg_pickle *pickle, uint64_t first, uint64_t second)
{
    sg_pickle_number(pickle, first);
    sg_pickle_number(pickle, second);
    putc(0x86, pickle->out);
}
