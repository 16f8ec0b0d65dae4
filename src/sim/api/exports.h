/* Exports of the library, for dlsym and the loader: the functions that a driver of some version has, and no later one.

   Both look names up in the symbol table of this library. A symbol that is undefined there, with the value 0, is not found
   (check_match() of glibc's elf/dl-lookup.c). So functions newer than the driver are made undefined in this process's copy of
   the table. An example: under `driver=12.2` cuCtxRecordEvent, of 12.5, becomes undefined, and dlsym returns NULL with the
   loader's own message. A program that is linked with -z now has bound its calls before, and is not refused. */
#ifndef SIM_API_EXPORTS_H
#define SIM_API_EXPORTS_H

#include <stddef.h>

typedef void sim_driver_fn(void);

struct sim_export {
    const char *name;
    unsigned version; /* of CUDA, with which it came */
    sim_driver_fn *legacy,
        *per_thread; /* the latter NULL where there is one form for all meanings of the default stream */
};

/* The table, once: it stays the caller's, and stays. Before that nothing is hidden. */
void sim_exports_set(const struct sim_export *exports, size_t count);
/* Hides what came after that version, and shows what was hidden before. */
void sim_exports_follow(int driver);

#endif
