/* Live pages: statistics that running processes keep in shared memory (`live:True`), one file a process.

   A *page* is a file like that of `stats` (stats_file.h), at /dev/shm/segalloc-live-PID. `segalloc report` and `segalloc
   top` read it while the program runs. It is removed at the end of the process.

   Why a sweep: a process that is killed leaves its page behind, and a later process with the same id would seem to have it.
   So a page also says when its process began, and in which namespace of process ids.

   Example, four files, and processes 100 and 200 alive in namespace 4026531836:
     segalloc-live-100           pid_namespace 4026531836, written after 100 began    stays
     segalloc-live-150           pid_namespace 4026531836, no such process            goes
     segalloc-live-200.200.new   begun 5 s ago, and not put in its place yet          stays; after 60 s it goes
     segalloc-live-7             pid_namespace 4026532201                             stays: a container's

   libc only, no heap: both the programs that write pages and the tools that read them use this. */
#ifndef SG_LIVE_PAGES_H
#define SG_LIVE_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#define SG_LIVE_FOLDER "/dev/shm"
#define SG_LIVE_PREFIX "segalloc-live-" /* a process id follows */

enum { SG_LIVE_PATH = 64 };

/* Writes the path of a process's page. Returns `ret`. */
char *sg_live_page_path(uint64_t pid, char ret[SG_LIVE_PATH]);

/* The namespace of process ids that this process is in, as the kernel numbers it; 0: not known. In another namespace the
   same id is another process. */
uint64_t sg_live_namespace(void);

/* True if the process `pid` runs and began before `page_ns` (CLOCK_REALTIME), so that a page of then is its own. A second
   is allowed for the clocks. */
bool sg_live_is_alive(uint64_t pid, uint64_t page_ns);

/* Removes the pages that killed processes of this user have left behind, and what they had begun to write. Pages of another
   namespace stay, since nothing is known of their processes. Returns the number of files removed. */
uint32_t sg_live_sweep(void);

#endif
