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
