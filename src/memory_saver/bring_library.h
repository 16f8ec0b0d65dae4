/* The library behind this one: where only this file stands in LD_PRELOAD, the program starts once more with both.

   Why anew: what is preloaded has its functions found before all others, and only the loader can put a library there. How:
   LD_PRELOAD names both then, and the program at /proc/self/exe is executed with the same arguments.

   For example, LD_PRELOAD=/lib/libsegalloc_torch_memory_saver.so becomes that, a colon and /lib/libsegalloc.so.0. */
#ifndef SG_BRING_LIBRARY_H
#define SG_BRING_LIBRARY_H

/* Returns where the library is loaded, or can't be brought, after a line on stderr. Else the program begins anew, with
   these arguments. */
void sg_bring_library(char **argv);

#endif
