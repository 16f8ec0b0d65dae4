/* The number of findings in all processes of a command, by a file that they share (base/finding_count.h).

   The file is 16 bytes in /dev/shm, else in TMPDIR or /tmp, and is removed when the command has ended. A `segalloc run`
   that another one has started adds its number to that one's. */
#ifndef SG_COUNT_FINDINGS_H
#define SG_COUNT_FINDINGS_H

#include <stdbool.h>
#include <stdint.h>

/* Makes the file and names it in the environment. False after a line on stderr. Once. */
bool sg_count_findings_begin(const char *verb);

/* The findings, and the processes that had one; removes the file. */
void sg_count_findings_end(uint64_t *ret_findings, uint64_t *ret_processes);

#endif
