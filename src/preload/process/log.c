/* One write() for each text, by sg_own_write(): errno is kept, because a hook may print in the middle of a call whose
   error the program reads. Where nobody reads stderr the text is lost, and the program goes on. */
#include "process/log.h"

#include <stdio.h>
#include <unistd.h>

#include "base/own_write.h"

void sg_log_write(const char *text, size_t length)
{
    (void)sg_own_write(STDERR_FILENO, text, length);
}

/* snprintf() into the stack, so that no memory is asked for: the process may have none. */
void sg_log_line(const char *line)
{
    char text[1024];
    int length = snprintf(text, sizeof text, "segalloc: %s\n", line);
    if (length >= (int)sizeof text) {
        length = sizeof text;
        text[sizeof text - 1] = '\n';
    }
    sg_log_write(text, (size_t)length);
}
