/* Files for the tests of the record layer. */
#ifndef SG_TEST_FILES_H
#define SG_TEST_FILES_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A new file with these bytes; the name is the caller's, to unlink and free. */
static inline char *test_file(const void *data, size_t size)
{
    char *path = strdup("/tmp/segalloc-test-XXXXXX");
    int fd = mkstemp(path);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    close(fd);
    return path;
}

static inline char *test_read(const char *path, size_t *ret_size)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        abort();
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    char *data = calloc(1, (size_t)size + 1);
    if (fread(data, 1, (size_t)size, file) != (size_t)size)
        abort();
    fclose(file);
    *ret_size = (size_t)size;
    return data;
}

#endif
