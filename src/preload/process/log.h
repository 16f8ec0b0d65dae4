/* Lines on standard error, the only words that the library has for its user.

   Why by write(): stdio may be locked by the thread that a signal handler interrupted, and its buffer may never be
   flushed. A line is written whole by one call, so those of several processes do not mix.

   Why the descriptor is looked at. A program may close descriptor 2, and the next file that it opens is number 2 then. A
   line would be written into that file. So the file behind 2 is noted as the library is loaded. Another one is taken for
   standard error only where the program has most likely put it there for that: log_is_for_words() has the signs. Else the
   text is lost, as where nobody reads it.

   Limits. A regular file that freopen() or dup2() has put there looks like one that is opened after a close(). So the text is lost,
   unless another descriptor has that file too, or it is open for appending.

   For example, sg_log_line("no trace in /t: No space left on device") writes "segalloc: no trace in /t: No space left
   on device\n", 50 bytes. A line is cut at 1,024 bytes, with that beginning and its end. */
#ifndef SG_LOG_H
#define SG_LOG_H

#include <stddef.h>

/* Notes the file that is standard error now. For the constructor: later the program may have another one there. */
void sg_log_keep(void);

/* One line to stderr, "segalloc: LINE", written at once. errno stays as it was. */
void sg_log_line(const char *line);

/* A whole text to stderr, whose lines have their beginnings already. Also in a handler of a signal; errno stays as it was,
   and no signal comes of it. */
void sg_log_write(const char *text, size_t length);

#endif
