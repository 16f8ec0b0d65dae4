/* Other libraries that define names which this library exports: preloaded before it, or after it. A program calls the
   first of them in the order of the loader, and each hands on to the next (dlsym with RTLD_NEXT).

   Example: LD_PRELOAD=saver.so:libsegalloc.so. PyTorch's cudaMalloc is saver's. Its next is ours, and ours calls the
   runtime. A look-up by way of the caller's library, which for others finds the runtime that it was linked with, would
   find saver's own function again. With LD_PRELOAD=libsegalloc.so:saver.so ours hands on to saver's. */
#ifndef SG_INTERPOSERS_H
#define SG_INTERPOSERS_H

#include <link.h>
#include <stdbool.h>

/* The function `name` of a library that comes after this one, to which every call would go if this library were not
   there. NULL: none, or a CUDA runtime's, which has versions: which of several a caller means depends on what the caller
   was linked with. Takes the loader's lock. */
void *sg_interposer_next(const char *name);

/* True if two addresses lie in one loaded library. Takes the loader's lock. */
bool sg_interposer_same_library(const void *one, const void *other);

/* True if a library comes before this one in the loader's order, as what is preloaded before it does. */
bool sg_interposer_is_before(const struct link_map *library);

/* True if there is such a library, before or after, for the runtime's cudaMalloc or cudaFree. Takes the loader's lock. */
bool sg_interposer_of_runtime(void);

/* An allocation through the runtime succeeded, and no call of the driver came by. Prints a line, once, if a library
   before this one answers in its place. Takes the loader's lock. */
void sg_interposer_hides(void);

/* The first allocation is served. Prints a line if functions of the driver in a preloaded library after this one are not
   called any more. Takes the loader's lock. */
void sg_interposer_hidden(void);

#endif
