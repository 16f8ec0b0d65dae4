/* Writing by a library that nobody asked for: the program's signals stay the program's.

   A write to a pipe whose reader has closed raises SIGPIPE, and one past the largest file that the process may have
   SIGXFSZ. Either ends a program which has written nothing itself. So both are blocked in the calling thread around the
   write, and one that it raised is taken back.

   For example, `python train.py 2>&1 | head -1` has closed its pipe when the process ends. The last line of a run that
   checks itself is lost then, sg_own_write() returns -EPIPE, and the program ends with its own status. */
#ifndef SG_OWN_WRITE_H
#define SG_OWN_WRITE_H

#include <stddef.h>

/* Writes all bytes to the descriptor, whatever signals come; 0 or -errno, with some of them written perhaps. It is no
   point at which a thread is cancelled, leaves errno and the handlers of signals alone, and may run in a handler. No
   locks. A signal that was pending before stays so. */
int sg_own_write(int fd, const void *bytes, size_t size);

#endif
