#include "checkpoint/safetensors.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PREFIX = 8, ENTRY_TEXT = 256, MOST_HEADER = 100 << 20 };

static size_t entry_bytes(const struct safetensors_entry *e)
{
    return (size_t)(e->rows ? e->rows : 1) * (size_t)e->columns * sizeof(float);
}

/* The header, padded with spaces so that the tensors are aligned. The caller frees. */
static char *make_header(const struct safetensors_entry *entries, size_t count, const char *metadata,
                         size_t *ret_length)
{
    size_t room = count * ENTRY_TEXT + strlen(metadata) + ENTRY_TEXT, offset = 0;
    char *header = malloc(room);
    if (!header)
        abort();
    size_t length = (size_t)snprintf(header, room, "{\"__metadata__\":{%s}", metadata);
    for (size_t i = 0; i < count; i++) {
        const struct safetensors_entry *e = &entries[i];
        size_t end = offset + entry_bytes(e);
        char shape[64];
        if (e->rows)
            snprintf(shape, sizeof shape, "%lld,%lld", (long long)e->rows, (long long)e->columns);
        else
            snprintf(shape, sizeof shape, "%lld", (long long)e->columns);
        length += (size_t)snprintf(header + length, room - length,
                                   ",\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}", e->name,
                                   shape, offset, end);
        offset = end;
    }
    header[length++] = '}';
    while (length % PREFIX)
        header[length++] = ' ';
    *ret_length = length;
    return header;
}

int safetensors_write(const char *path, const struct safetensors_entry *entries, size_t count, const char *metadata,
                      char *error, size_t error_size)
{
    char *temporary = malloc(strlen(path) + 5);
    if (!temporary)
        abort();
    sprintf(temporary, "%s.new", path);
    size_t length;
    char *header = make_header(entries, count, metadata, &length);
    unsigned char prefix[PREFIX];
    for (int i = 0; i < PREFIX; i++)
        prefix[i] = (unsigned char)((uint64_t)length >> 8 * i);
    FILE *file = fopen(temporary, "wb");
    int failed = !file || fwrite(prefix, 1, PREFIX, file) != PREFIX || fwrite(header, 1, length, file) != length;
    for (size_t i = 0; i < count && !failed; i++)
        failed = fwrite(entries[i].values, 1, entry_bytes(&entries[i]), file) != entry_bytes(&entries[i]);
    failed = failed || fflush(file) || fsync(fileno(file)); /* before the old file is gone */
    int code = errno;
    if (file && fclose(file) && !failed) {
        failed = 1;
        code = errno;
    }
    if (!failed && rename(temporary, path)) {
        failed = 1;
        code = errno;
    }
    if (failed) {
        snprintf(error, error_size, "cannot write %s: %s", path, strerror(code));
        if (file)
            unlink(temporary);
    }
    free(header);
    free(temporary);
    return failed ? -1 : 0;
}

/* Reads what is left of a file behind its header. */
static void read_tensors(FILE *file, struct safetensors *f)
{
    size_t room = 0, got;
    do {
        room = room ? 2 * room : 65536;
        f->bytes = realloc(f->bytes, room);
        if (!f->bytes)
            abort();
        got = fread(f->bytes + f->size, 1, room - f->size, file);
        f->size += got;
    } while (got && f->size == room);
}

/* Reads the header. Returns a fault and the byte at which it is; or NULL, and f->header is the caller's. */
static const char *tensors_read_header(FILE *file, struct safetensors *f, size_t *ret_at)
{
    unsigned char prefix[PREFIX];
    uint64_t length = 0;
    *ret_at = 0;
    size_t got = fread(prefix, 1, PREFIX, file);
    if (got != PREFIX) {
        *ret_at = got;
        return "the file ends";
    }
    for (int i = 0; i < PREFIX; i++)
        length |= (uint64_t)prefix[i] << 8 * i;
    if (length < 2 || length > MOST_HEADER)
        return "this is no length of a header";
    f->header = calloc(1, length + 1);
    if (!f->header)
        abort();
    got = fread(f->header, 1, length, file);
    *ret_at = PREFIX + (got == length ? 0 : got);
    if (got != length)
        return "the header is cut off";
    return f->header[0] == '{' ? NULL : "no JSON object begins";
}

int safetensors_open(struct safetensors *ret_file, const char *path, char *error, size_t error_size)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        snprintf(error, error_size, "cannot read %s: %s", path, strerror(errno));
        return -1;
    }
    struct safetensors f = {0};
    size_t at;
    const char *fault = tensors_read_header(file, &f, &at);
    if (fault) {
        snprintf(error, error_size, "%s is no safetensors file: byte %zu: %s", path, at, fault);
        free(f.header);
    } else {
        read_tensors(file, &f);
        *ret_file = f;
    }
    fclose(file);
    return fault ? -1 : 0;
}

void safetensors_close(struct safetensors *file)
{
    free(file->header);
    free(file->bytes);
}

const float *safetensors_find(const struct safetensors *file, const char *name, int64_t count)
{
    char quoted[sizeof((struct safetensors_entry *)0)->name + 4];
    snprintf(quoted, sizeof quoted, "\"%s\":{", name);
    const char *at = strstr(file->header, quoted), *end = at ? strchr(at, '}') : NULL;
    const char *offsets = at ? strstr(at, "\"data_offsets\":[") : NULL;
    const char *dtype = at ? strstr(at, "\"dtype\":\"F32\"") : NULL;
    size_t first, after;
    if (!end || !offsets || offsets > end || !dtype || dtype > end ||
        sscanf(offsets, "\"data_offsets\":[%zu,%zu]", &first, &after) != 2)
        return NULL;
    if (after > file->size || first > after || after - first != (size_t)count * sizeof(float) ||
        first % sizeof(float))
        return NULL;
    return (const float *)(const void *)(file->bytes + first);
}

int safetensors_number(const struct safetensors *file, const char *key, uint64_t *ret_number)
{
    char quoted[64], *end;
    snprintf(quoted, sizeof quoted, "\"%s\":\"", key);
    const char *at = strstr(file->header, quoted);
    if (!at)
        return -1;
    uint64_t number = strtoull(at + strlen(quoted), &end, 10);
    if (end == at + strlen(quoted) || *end != '"')
        return -1;
    *ret_number = number;
    return 0;
}
