/* Pause and resume: the memory of a tag leaves the device, and comes back at the same addresses.

   Nouns. A *pause* takes the pages of a tag (state/tags.h) away, with what is idle among them. A *resume* brings them
   back. *Contents* are the bytes of its live blocks. A *piece* is one of them.

   Why: a program has phases, and what the next phase does not use is memory that it lacks. Addresses stay, so pointers
   and captured graphs stay good. Why here: only who owns the pages and knows the order of streams can wait for the work
   that may touch them, and for no other.

   How a pause goes. First it waits, without a lock of ours, for the streams that may use the tag's blocks; if one is not
   known, for the contexts of the device. The rest is under `grow`:

      1. aliases that may go are unmapped;
      2. the regions become paused (space/paused.h), unless work came meanwhile, or pages are pinned;
      3. contents are saved by the caller's function;
      4. all runs are unmapped, and then released (remap/pause_pages.h).

   A resume makes room for the pages by giving idle ones back. It creates, maps and gives access to those that a live
   block needs, has contents put back, and wakes the regions. In between blocks can be freed, which takes no memory, and
   allocations of the tag are refused with CUDA_ERROR_NOT_PERMITTED.

   A step that fails leaves memory as it was: a pause that failed is undone, and a resume that failed leaves the tag
   paused, to be repeated. Only a pause whose undo fails too is left half done. Then the tag is paused, and a resume mends it.

   Limits. Memory in fixed segments, or served by the driver, stays. Pages that others remember (state/pins.h) are refused.
   The work of copies is waited for under `grow`: others that need new pages wait as long.

   A case of an error. Tag "w" has two runs, of 10 and of 3 pages. Its contents are saved, the first run is unmapped, and the
   driver refuses to unmap the second, twice. The first is mapped again, with the memory that it had. The regions wake, and the
   answer is the driver's error: no byte has moved. Were the map refused too, the 10 pages would be released. The tag would
   be paused then, and its resume would create 10 pages and put the contents of all 13 back.

   For example, tag "kv" has a block of 3 MiB and one of 1 MiB that was freed, in pages of 2 MiB. A pause saves 3 MiB and
   gives two pages back. The program frees the block. A resume creates nothing: both pages become a hole. */
#ifndef SG_CORE_PAUSE_H
#define SG_CORE_PAUSE_H

#include "core/core_types.h"

/* A live block of a tag, with as many bytes as were asked for. Those behind them, up to the end of the last unit, are
   nobody's. */
struct sg_memory_piece {
    CUdeviceptr address;
    uint64_t bytes;
};

/* The functions that keep contents. Each gets all pieces at once, in address order within a region, and returns when its
   copies are complete. `grow` is held: no memory of the device may be allocated in it. An error ends the pause or resume. */
struct sg_backup {
    CUresult (*save)(void *user, const struct sg_memory_piece *pieces, size_t count);
    /* The pieces may be parts of those that were saved: blocks that were freed since are left out. */
    CUresult (*restore)(void *user, const struct sg_memory_piece *pieces, size_t count);
    void *user;
};

/* Why a tag could not be paused or resumed. The numbers stand in traces. */
enum sg_pause_why {
    SG_PAUSE_FINE,
    SG_PAUSE_PINNED,   /* others remember its pages: they were exported, or registered with a network card */
    SG_PAUSE_BUSY,     /* work on it began again and again, or does not end */
    SG_PAUSE_FULL,     /* resume: the device, or what may be held of it, lacks the pages */
    SG_PAUSE_NO_HOST,  /* the host has no memory for the books */
    SG_PAUSE_CONTENTS, /* contents could not be saved, or put back */
    SG_PAUSE_DRIVER,   /* the driver has refused to unmap, create or map pages */
    SG_PAUSE_CANNOT    /* the device has no regions, or a capture is live */
};

struct sg_pause_result {
    enum sg_pause_why why;
    bool changed;      /* the tag is paused now and was not, or the other way round */
    uint64_t bytes;    /* of pages that left, or came */
    uint64_t contents; /* bytes of the blocks on them */
    uint64_t lacking;  /* FULL: bytes that are not to be had */
};

/* Pauses a tag on a device. `everything`: blocks may be used in ways that no clock shows, so all work of the device is
   waited for. Without `backup` nothing is saved, which is meant for tests and replays, and for tags that discard.
   CUDA_SUCCESS too where it is paused, or has nothing there. The result of an error is the driver's number: NOT_PERMITTED
   for pinned pages, NOT_READY where work does not end, NOT_SUPPORTED for a device without regions. The device's context is
   current. Takes `asking`, `grow` and `lock`. */
CUresult sg_core_pause(struct sg_core *core, int device, uint32_t tag, bool everything, const struct sg_backup *backup,
    struct sg_pause_result *ret);

/* Resumes it. OUT_OF_MEMORY: it stays paused, and the call can be repeated. A device without regions has nothing that is paused,
   which is no error. */
CUresult sg_core_resume(struct sg_core *core, int device, uint32_t tag, const struct sg_backup *backup,
    struct sg_pause_result *ret);

/* True if a tag has pages on a device that others remember, so that a pause is refused. Takes `lock`. */
bool sg_core_tag_is_pinned(struct sg_core *core, int device, uint32_t tag);

/* The use of a tag on a device, bytes. False: the device is not in use. Takes `lock`. */
struct sg_tag_figures {
    uint64_t requested, reserved, saved, peak_requested, peak_reserved, peak_saved, pauses, resumes;
    bool paused;
};
bool sg_core_tag_figures(struct sg_core *core, int device, uint32_t tag, struct sg_tag_figures *ret);

#endif
