/* Where the program asks for memory: the frames of the caller, each stack known by a number. On by `sites`. */
#ifndef SG_SITES_H
#define SG_SITES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/conf.h"

struct sg_thread;

/* True if any of this is done. Set before the core is made, by sg_sites_open(), which returns it. */
extern bool sg_sites_on __attribute__((visibility("hidden")));
bool sg_sites_open(const struct sg_conf *conf);

/* Notes the stack of this thread in `self->place.site` and `self->place.shown` (0: not known). A stack that was met before
   costs no lock. For a thread inside a call of ours (process.h), where sites are on. */
void sg_sites_note_stack(struct sg_thread *self);

/* Writes one line for a site as the core keeps it. False: it is not known. */
bool sg_sites_describe(uint32_t site, char *text, size_t size);

/* Texts that stay, by number: as `sites` names frames, and phases.h what the program is doing. 0 is "", and what
   there is no room for. sg_sites_write_text() writes its definition to the trace, once; false: it was not taken. */
uint32_t sg_sites_intern(const char *text);
const char *sg_sites_text(uint32_t text);
bool sg_sites_write_text(uint32_t text);

/* The trace of this process: from 1, another number in a forked child. */
uint32_t sg_sites_trace(void);

/* In a forked child: what was written to the trace of its parent is not in its own. */
void sg_sites_forget(void);

#endif
