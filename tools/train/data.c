#include "data.h"
#include "lengths.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int text_open(struct text *ret_text, const char *path, size_t least, uint64_t seed, char *error, size_t error_size)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        snprintf(error, error_size, "cannot read %s: %s", path, strerror(errno));
        return -1;
    }
    struct text text = {.state = seed ^ UINT64_C(0x7465787473656564)};
    size_t room = 0, got;
    do {
        room = room ? 2 * room : 65536;
        text.bytes = realloc(text.bytes, room);
        if (!text.bytes)
            abort();
        got = fread(text.bytes + text.size, 1, room - text.size, file);
        text.size += got;
    } while (got && text.size == room);
    int failed = ferror(file) ? errno : 0;
    fclose(file);
    if (failed || text.size < least) {
        if (failed)
            snprintf(error, error_size, "cannot read %s: %s", path, strerror(failed));
        else
            snprintf(error, error_size, "%s has %zu bytes, %zu are needed; use a longer text or a smaller --max-len",
                     path, text.size, least);
        free(text.bytes);
        return -1;
    }
    *ret_text = text;
    return 0;
}

void text_close(struct text *text)
{
    free(text->bytes);
    text->bytes = NULL;
}

void text_window(struct text *text, int64_t length, int64_t *ret_tokens)
{
    size_t first = (size_t)(random_next(&text->state) % (text->size - (size_t)length + 1));
    for (int64_t i = 0; ret_tokens && i < length; i++)
        ret_tokens[i] = text->bytes[first + (size_t)i];
}
