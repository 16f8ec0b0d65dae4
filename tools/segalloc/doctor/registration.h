/* How network cards and other processes will have a job's memory.

   Nouns. A card *registers* a range before it reads or writes there. nvidia_peermem takes no range over several handles, and a
   block in pages has several. A known *module* is a row of preload/process/modules.def that shares memory.

   For example, a job loads libnixl.so: each block is one allocation of the driver's by itself. For one that loads
   only libibverbs the line has what to set. */
#ifndef SG_DOCTOR_REGISTRATION_H
#define SG_DOCTOR_REGISTRATION_H

#include "doctor/examination.h"

enum sg_registration_way {
    SG_REGISTRATION_PAGES,      /* blocks lie over pages: by dma-buf alone */
    SG_REGISTRATION_CONTIGUOUS, /* from a size on a block is one allocation */
    SG_REGISTRATION_EACH_BLOCK, /* every block is */
    SG_REGISTRATION_SEGMENTS    /* blocks lie within larger allocations */
};

struct sg_registration {
    enum sg_registration_way way;
    bool matters;       /* somebody may register memory, or it was asked for */
    bool verbs;         /* libibverbs was loaded */
    const char *module; /* the known one; NULL: none */
    const char *set;    /* the option that would do; NULL: nothing is to be set */
};

struct sg_registration sg_doctor_registration(const struct sg_examination *examination);

/* The word that --json has for a way. */
const char *sg_registration_word(enum sg_registration_way way);

/* A line to stdout, where it matters. */
void sg_registration_print(const struct sg_examination *examination);

#endif
