/* Blocks that begin or end in a page of which others use the rest. A page is only moved when it is wholly free, and
   where blocks of odd sizes stand side by side what each of them leaves of its first and last page is too little for
   the next, or has no room behind it. So where no whole page is left to be had, a block may begin with the free end of
   one page and end with the free beginning of another: those two pages are mapped a second time, before and behind the
   whole pages of the block.

     home          ...used|lent]                          [lent|used...
     the block      [others|head][ whole pages ]...[ tail|others]

   What is lent is busy at home, what is others' is busy here, so each byte can be had at one of its addresses only. The
   page belongs where it was; here it is an old address (alias.h) that is in use for now. Once nothing here is in use
   any more, what was lent is free at home again, and the address goes as old ones do. A page doesn't move while it has
   lent something. */
#ifndef SG_SEW_H
#define SG_SEW_H

#include "plan.h"

/* A place for what is wanted that takes fewer new pages than `most`, with what it borrows. False: there is none.
   Changes nothing. Under the lock. */
bool sg_sew_find(const struct sg_device *device, const struct sg_want *want, uint32_t most, struct sg_sewing *ret);

/* What the place needs is lent, or free at home again as if it had not been. Nodes were set aside by its claim. Under
   the lock. */
void sg_sew_lend(struct sg_sewing *sewing);
void sg_sew_undo(struct sg_sewing *sewing);

/* The block stands in its place, whose pages are mapped. Under the lock. */
void sg_sew_commit(struct sg_device *device, const struct sg_sewing *sewing, uint32_t block);

/* What has been lent and is free again goes home. Returns how many parts. Under the lock, with `grow`. */
uint32_t sg_sew_return(struct sg_device *device);

#endif
