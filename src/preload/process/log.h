/* Lines on standard error, the only words that the library has for its user.

   Why by write(): stdio may be locked by the thread that a signal handler interrupted, and its buffer may never be
   flushed. A line is written whole by one call, so those of several processes do not mix.

   For example, sg_log_line("no trace in /t: No space left on device") writes "segalloc: no trace in /t: No space left
   on device\n", 50 bytes. A line is cut at 1,024 bytes, with that beginning and its end. */
#ifndef SG_LOG_H
#define SG_LOG_H

#include <stddef.h>

/* One line to stderr, "segalloc: LINE", written at once. errno stays as it was. */
void sg_log_line(const char *line);

/* A whole text to stderr, whose lines have their beginnings already. Also in a handler of a signal; errno stays as it was,
   and no signal comes of it. */
void sg_log_write(const char *text, size_t length);

#endif
