/* Call sites: where the program asks for memory. On by `sites`.

   Nouns. A *frame* is one level of a stack. A *site* is a stack that was met, known by a number. The *shown* site is
   the first one with the same line of text, for lists that have a row for each line.

   Why numbers. A trace has millions of allocations and some thousand stacks. A record has the number alone, and the
   trace defines each number once.

   How. Frames are of Python where the thread runs it, else return addresses, else the node of a backward pass. They are
   hashed, and a table without a lock says whether the stack was met. Only a new one takes the lock and is described.

   Limits. 65,535 sites, 32,767 texts, 4 MiB of text. Stacks without room are site 0.

   For example, train.py:50 allocates 10,000 times. Its first call makes site 12: 3 frames, 2 texts, and a definition in
   the trace. The other 9,999 find number 12 by hash, without a lock. */
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
