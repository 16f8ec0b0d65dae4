#include "proc_stat.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

const char *sg_proc_stat_read(const char *path, char *text, size_t size)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? -1 : read(file, text, size - 1);
    if (file >= 0)
        close(file);
    if (length <= 0)
        return NULL;
    text[length] = '\0';
    const char *end = strrchr(text, ')');
    return end && end[1] == ' ' ? end + 2 : NULL;
}
