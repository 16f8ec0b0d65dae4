/* Findings of all processes of a command, and how many were checked, counted where `segalloc run` reads them.

   Why. A process with a finding can't always say so by its own status. It may end by _exit() or by a signal, or become another
   program. A parent may pass over its child's status. And a command without a finding may be one of which nothing was checked.

   How. The tool makes a file of this size and names it in the environment. Each process maps it when `check` begins there. A
   mapping stays where a program closes all descriptors, changes its root, or clears its environment. The count is there at
   once, whatever ends the process.

   For example, a script runs two programs. The first has 3 findings and is killed, the second has 1. The file has 2, 4 and 2. */
#ifndef SG_FINDING_COUNT_H
#define SG_FINDING_COUNT_H

#include <stdatomic.h>
#include <stdint.h>

/* The variable with the path of the file. */
#define SG_FINDING_COUNT_FILE "SEGALLOC_CHECK_COUNT"

/* All zero at first. */
struct sg_finding_count {
    _Atomic uint64_t processes; /* with a finding */
    _Atomic uint64_t findings;
    _Atomic uint64_t checked; /* processes that were looked at, with a finding or without */
};

#endif
