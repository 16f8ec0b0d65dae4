/* One write() for each line. errno is kept, because a hook may print in the middle of a call whose error the program
   reads. Cancellation is off meanwhile, because write() is a point at which a thread may end. */
#include "process/log.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/rest.h"

/* snprintf() into the stack, so that no memory is asked for: the process may have none. */
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
