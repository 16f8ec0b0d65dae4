/* The page of statistics that a process with live:True keeps, by the process's number. */
#ifndef SG_MONITOR_LIVE_PAGE_H
#define SG_MONITOR_LIVE_PAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "writer/live_pages.h"

enum sg_live_page {
    SG_LIVE_NONE,  /* there is none; one that another process of this number has left is none */
    SG_LIVE_RUNS,  /* its process runs */
    SG_LIVE_ENDED, /* its process was killed, and no other has the number */
};

/* A process's number as text. False: it is none. */
bool sg_live_pid(const char *text, uint64_t *ret);

/* Looks for the page; `ret_path` is where it is. */
enum sg_live_page sg_live_page(uint64_t pid, char ret_path[SG_LIVE_PATH]);

#endif
