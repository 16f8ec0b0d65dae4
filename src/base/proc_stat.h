/* Files "stat" of /proc: the kernel's word on a process, or on one of its threads. Source: proc(5).

   For example, /proc/4711/stat is "4711 (a (b) c) S 1 ...". The name may hold blanks and brackets, so fields are counted
   from the last bracket on. Behind it comes field 3, the state: S here. */
#ifndef SG_PROC_STAT_H
#define SG_PROC_STAT_H

#include <stddef.h>

/* Reads the file at `path` into `text`, as far as `size` bytes go. Returns where field 3 begins there. NULL: there is no such process
   or thread, or /proc is not to be had. It is a point at which a thread may end. */
const char *sg_proc_stat_read(const char *path, char *text, size_t size);

#endif
