/* Tokens: the bytes of a text file, in windows drawn by a seed. */
#ifndef TRAIN_DATA_H
#define TRAIN_DATA_H

#include <stddef.h>
#include <stdint.h>

struct text {
    unsigned char *bytes;
    size_t size;
    uint64_t state;
};

/* Reads the whole file. Returns 0, or -1 with one line in `error`, also if it has less than `least` bytes. */
int text_open(struct text *ret_text, const char *path, size_t least, uint64_t seed, char *error, size_t error_size);
void text_close(struct text *text);

/* Draws one window of `length` tokens, and writes it unless NULL is given for where to. */
void text_window(struct text *text, int64_t length, int64_t *ret_tokens);

#endif
