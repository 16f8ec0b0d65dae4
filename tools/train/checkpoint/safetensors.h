/* Files in the safetensors format: the length of a JSON header in eight bytes, the header, the tensors' bytes. */
#ifndef TRAIN_SAFETENSORS_H
#define TRAIN_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

struct safetensors_entry {
    char name[112];
    int64_t rows, columns; /* rows 0: one dimension only */
    const float *values;   /* of a file to write */
};

/* Writes a whole new file beside `path` and then puts it in its place. `metadata` is the inside of a JSON object of
   strings, without braces. Returns 0, or -1 with one line in `error`. */
int safetensors_write(const char *path, const struct safetensors_entry *entries, size_t count, const char *metadata,
                      char *error, size_t error_size);

struct safetensors {
    char *header;
    char *bytes; /* after the header */
    size_t size;
};

int safetensors_open(struct safetensors *ret_file, const char *path, char *error, size_t error_size);
void safetensors_close(struct safetensors *file);
/* The values of a float tensor of that name and of `count` elements; NULL if the file has none. */
const float *safetensors_find(const struct safetensors *file, const char *name, int64_t count);
/* A string of the metadata, which must be a number; -1 if there is none. */
int safetensors_number(const struct safetensors *file, const char *key, uint64_t *ret_number);

#endif
