#include "process/log.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/rest.h"

void sg_log_line(const char *line)
{
    int before = errno;
    char text[1024];
    int length = snprintf(text, sizeof text, "segalloc: %s\n", line);
    if (length >= (int)sizeof text) {
        length = sizeof text;
        text[sizeof text - 1] = '\n';
    }
    int cancel = sg_cancel_off();
    ssize_t written = write(STDERR_FILENO, text, (size_t)length);
    (void)written;
    sg_cancel_restore(cancel);
    errno = before;
}
