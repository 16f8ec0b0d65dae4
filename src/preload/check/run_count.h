/* The findings of this process for `segalloc run`, which ends by the sum over all processes of its command
   (base/finding_count.h).

   Limits. A process that can't open the file any more, as in a container of its own, says so once it has a finding. Its own
   status with `check:fail` is then all that there is.

   For example, the first finding of a process makes the file's counts 2 processes and 4 findings, from 1 and 3. */
#ifndef SG_RUN_COUNT_H
#define SG_RUN_COUNT_H

/* Maps the file, if the environment names one, and counts this process as checked. Once, before the core. */
void sg_run_count_open(void);

/* One more finding. Any thread, no lock. */
void sg_run_count_add(void);

#endif
