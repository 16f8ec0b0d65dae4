/* What the targets share: libFuzzer's entry, and its input as a file. */
#ifndef SG_FUZZ_TARGET_H
#define SG_FUZZ_TARGET_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FUZZ_PATH = 64 };

/* Writes `data` to a file in memory, in the place of what was there before, and its name to path[FUZZ_PATH]. */
static inline void fuzz_file(const uint8_t *data, size_t size, char *path)
{
    static int fd = -1;
    if (fd < 0)
        fd = memfd_create("input", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, 0) != 0 || pwrite(fd, data, size, 0) != (ssize_t)size)
        abort();
    snprintf(path, FUZZ_PATH, "/proc/self/fd/%d", fd);
}

/* A copy that ends with a NUL, which the caller frees. */
static inline char *fuzz_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text)
        abort();
    memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

/* What should be never so, by whatever input. */
#define FUZZ_EXPECT(condition)                                           \
    do {                                                                 \
        if (!(condition)) {                                              \
            fprintf(stderr, "%s:%d: not %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                     \
        }                                                                \
    } while (0)

#endif
