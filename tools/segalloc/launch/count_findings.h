/* The number of findings in all processes of a command, by a file that they share (base/finding_count.h).

   The file is 24 bytes in /dev/shm, else in TMPDIR or /tmp, and is removed when the command has ended. A `segalloc run`
   that another one has started adds its numbers to that one's. */
#ifndef SG_COUNT_FINDINGS_H
#define SG_COUNT_FINDINGS_H

#include <stdbool.h>
#include <stdint.h>

/* Makes the file and names it in the environment. False after a line on stderr. Once. */
bool sg_count_findings_begin(const char *verb);

/* Sums over all processes of the command. */
struct sg_findings_counted {
    uint64_t findings;
    uint64_t processes; /* with a finding */
    uint64_t checked;   /* processes that were looked at at all */
};

/* The counts; removes the file. */
void sg_count_findings_end(struct sg_findings_counted *ret);

#endif
