/* Handlers of errors in the source of a Python program. */
#ifndef SG_REHEARSE_HANDLERS_H
#define SG_REHEARSE_HANDLERS_H

#include <stdbool.h>
#include <stdint.h>

/* True if a handler stands around this line of the file, in the same function, that goes on after running out of memory. The file
   is read as it is now. Lines count from 1.

   An example, where each of the lines with f() has one:
       try: f()
       except RuntimeError: pass
       with contextlib.suppress(torch.OutOfMemoryError):
           f() */
bool sg_handler_is_around(const char *path, uint64_t line);

/* True if errors of what this file of Python's library calls go no further. A thread keeps them for others, or ends by them,
   and the program goes on. */
bool sg_handler_ends_errors(const char *path);

#endif
