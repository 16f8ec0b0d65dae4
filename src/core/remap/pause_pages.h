/* The pages of a paused tag: they leave for the driver, and come back.

   Nouns. A *run* is a row of pages of one region that leave, or come, together. A page *stays* where it is mapped after
   an error, because the driver would not unmap it.

   Why by runs: the driver unmaps a row by one call, and gives access by one. How: each run is a replay step, whose
   outcome is the driver's answer. A step that fails is undone, and its undo is a step too. Pages that an undo can't put
   back leave all the same: their contents are saved by then. Pages that stay serve again when the tag wakes.

   Why all are unmapped before one is released: until then each can be mapped again with the memory that it had.

   Limits. `grow` is held, and no other lock. The tag's regions are paused (space/paused.h), so nobody else looks at the
   pages.

   For example, a tag has runs of 10 and of 3 pages. The first is unmapped, and the driver refuses to unmap the second.
   So the first is mapped again. Were that refused at its 4th page, the first 3 would be unmapped and all 10 released:
   their handles are SG_PAGE_PAUSED then, and the other run still has its memory. */
#ifndef SG_CORE_REMAP_PAUSE_PAGES_H
#define SG_CORE_REMAP_PAUSE_PAGES_H

#include "core/remap/page_alias.h"

/* Lists the runs of a tag that are mapped in device->growth.runs; or with `lacking` those which paused blocks need and
   that have no memory. Returns how many; UINT32_MAX: no host memory. *ret_bytes: of all their pages. */
uint32_t sg_pause_runs_locked(struct sg_device *device, uint32_t tag, bool lacking, uint64_t *ret_bytes)
    SG_REQUIRES(lock) SG_REQUIRES(grow);

/* Unmaps all runs. On an error those unmapped before it are mapped again, and *ret_half says whether some could not be.
   On success their memory is released, and sg_pause_left_locked() must follow. Takes `lock` for moments. */
CUresult sg_pause_leave_growing(struct sg_device *device, uint32_t count, bool *ret_half) SG_REQUIRES(grow);

/* Notes that the runs have no memory: their pages are SG_PAGE_PAUSED. In the section that says so in the trace. */
void sg_pause_left_locked(struct sg_device *device, uint32_t count) SG_REQUIRES(lock) SG_REQUIRES(grow);

/* Gives access to runs that are mapped: to pages that stay, which may lack it. Takes `lock` for moments. */
CUresult sg_pause_access_growing(struct sg_device *device, uint32_t count) SG_REQUIRES(grow);

/* Creates and maps the memory of runs from *done on, and counts *done on. On an error nothing of the run at *done has
   memory but pages that stay. Takes `lock` for moments. */
CUresult sg_pause_come_growing(struct sg_device *device, uint32_t count, uint32_t *done) SG_REQUIRES(grow);

/* Takes the memory of the first `done` runs away again. Pages that the driver does not unmap stay. */
void sg_pause_come_undo_growing(struct sg_device *device, uint32_t done) SG_REQUIRES(grow);

#endif
