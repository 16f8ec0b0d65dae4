/* The contents of paused memory, on the host.

   Nouns. *Kept* memory is host memory with the contents of one tag on one device. It has no more bytes than the tag's live
   blocks, rounded to a page of the host. A *span* is one mapping of it. It is *retained* where it stays after a resume. Each block
   has a place in a span (contents_places.h).

   Why: a tag that comes back has its bytes, and they must be somewhere meanwhile. How: one span for all blocks, one
   behind the other. It is registered with the driver 256 MiB at a time, so that copies run at full speed and a stop in
   between loses little. Copies go on a stream of our own, in order, and are waited for at the end. It stays registered until
   the tag is resumed, so that copies home need no second registration. After a resume the span is given back.

   Why not by cudaMallocHost: it rounds to powers of two in some frameworks, and keeps what is freed. It takes seconds for the
   whole before the first copy. A span has the exact size, its chunks are registered while earlier ones are copied, and
   it goes back to the system as a whole.

   Why retain: a program has lent a copy to others, by its address, and wants it to stay. The next pause needs no new memory
   then. Each block that is there has its place again, and new ones get a span more. A block that is freed loses its
   contents; a span without any is given back.

   A tag whose contents go to files has none of this (contents_file.h).

   Limits. Where the driver registers nothing, copies go through its own buffers. Lines say how far a copy has come, one a
   second, beginning after the first.

   For example, "weights" has blocks of 3, 4 and 1 GiB. 8 GiB are mapped, and the third stands at offset 7 GiB. The second is freed
   while it is paused: the resume asks for the others, and both are found. The 4 GiB in between go with the resume. */
#ifndef SG_CONTENTS_H
#define SG_CONTENTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/core.h"

/* The tag of a device whose contents are kept, for the functions below. */
struct sg_contents {
    const struct sg_driver *driver;
    struct sg_core *core;
    int device;
    uint32_t tag;
    const char *name;
    bool in_files;    /* they go to files */
    bool saved;       /* sg_contents_save() was called */
    uint64_t said_ns; /* when the last line was printed, or the work began */
};

/* Functions of struct sg_backup; `user` is a struct sg_contents. save: CUDA_ERROR_OUT_OF_MEMORY where the host has no memory.
   clear: in place of restore where nothing was saved; sets the pieces to zeros. `grow` of the device is held. */
CUresult sg_contents_save(void *user, const struct sg_memory_piece *pieces, size_t count);
CUresult sg_contents_restore(void *user, const struct sg_memory_piece *pieces, size_t count);
CUresult sg_contents_clear(void *user, const struct sg_memory_piece *pieces, size_t count);

/* True if the tag was saved, and is not back since. */
bool sg_contents_are_saved(const struct sg_contents *contents);

/* The place on the host where the contents of [address, address + bytes) are kept, of one block; NULL: they are not. No order is
   carried out meanwhile, so nothing is saved or given back. Good until the tag is resumed, or its block is freed.

   Why: programs send weights to others, or write them to a file, while the card is another's. They need no resume for it.
   For example, a checkpoint of paused weights reads 8 GiB from here, and the device has nothing to do with it. */
const void *sg_contents_find(CUdeviceptr address, uint64_t bytes);

/* Ends what is kept of a tag, once it is resumed, or could not be paused, or was paused without contents. `retain`: its
   spans stay, for the next pause. A context of the device is current, if there is one. */
void sg_contents_end(const struct sg_contents *contents, bool retain);

/* True while anything is kept: then sg_contents_freed() is called after each free, and no free takes the fast path. */
extern _Atomic int sg_contents_any __attribute__((visibility("hidden")));

/* Gives up the contents of a block that was freed. No order is carried out meanwhile. */
void sg_contents_freed(CUdeviceptr address);

#endif
