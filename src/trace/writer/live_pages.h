/* The pages of statistics that running processes keep in shared memory (`live:True`), one a process. libc only, no heap:
   both the programs that write them and the tools that read them use this. */
#ifndef SG_LIVE_PAGES_H
#define SG_LIVE_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#define SG_LIVE_FOLDER "/dev/shm"
#define SG_LIVE_PREFIX "segalloc-live-" /* a process id follows */

enum { SG_LIVE_PATH = 64 };

/* Where the page of a process is. Returns `ret`. */
char *sg_live_page_path(uint64_t pid, char ret[SG_LIVE_PATH]);

/* The namespace of this process's ids; 0: not known. Elsewhere the id is another process's. */
uint64_t sg_live_namespace(void);

/* Whether the process of this id runs and began before `page_ns` (CLOCK_REALTIME), so that a page of then is its own. */
bool sg_live_is_alive(uint64_t pid, uint64_t page_ns);

/* Removes the pages that killed processes of this user have left behind, and what they had begun to write. Pages of another
   namespace stay, since nothing is known of their processes. Returns how many files went. */
uint32_t sg_live_sweep(void);

#endif
