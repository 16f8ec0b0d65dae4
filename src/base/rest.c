#include "rest.h"

#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void sg_rest(long ns)
{
    int before = errno;
    struct timespec left = {.tv_nsec = ns};
    while (syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &left, &left) != 0 && errno == EINTR) {
    }
    errno = before;
}

int sg_write_all(int fd, const void *bytes, size_t size)
{
    while (size) {
        ssize_t done = write(fd, bytes, size);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return done < 0 ? -errno : -EIO;
        bytes = (const char *)bytes + done;
        size -= (size_t)done;
    }
    return 0;
}
