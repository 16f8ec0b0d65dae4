/* The contents of paused memory, on the host.

   Nouns. *Kept* memory is host memory with the contents of one tag on one device. It has no more bytes than the tag's live
   blocks, rounded to a page of the host.

   Why: a tag that comes back has its bytes, and they must be somewhere meanwhile. How: one mapping for all pieces, one
   behind the other. It is registered with the driver 256 MiB at a time, so that copies run at full speed and a stop in
   between loses little. Copies go on a stream of our own, in order, and are waited for at the end. After a resume the
   mapping is given back.

   Why not by cudaMallocHost: it rounds to powers of two in some frameworks, keeps what is freed, and takes seconds for the
   whole before the first copy. A mapping has the exact size, its chunks are registered while earlier ones are copied, and
   it goes back to the system as a whole.

   Limits. Where the driver registers nothing, copies go through its own buffers. Lines say how far a copy has come, one a
   second, beginning after the first.

   For example, "weights" has pieces of 3 GiB and 5 GiB. 8 GiB are mapped; piece 2 stands at offset 3 GiB. A block of 1 GiB
   in it is freed while it is paused: the resume asks for the rest, in two pieces, and both are found in piece 2. */
#ifndef SG_CONTENTS_H
#define SG_CONTENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/core.h"

/* The tag of a device whose contents are kept, for the functions below. */
struct sg_contents {
    const struct sg_driver *driver;
    int device;
    uint32_t tag;
    const char *name;
    bool saved;       /* sg_contents_save() was called */
    uint64_t said_ns; /* when the last line was printed, or the work began */
};

/* Functions of struct sg_backup; `user` is a struct sg_contents. save: CUDA_ERROR_OUT_OF_MEMORY where the host has no memory.
   clear: in place of restore where nothing was saved; sets the pieces to zeros. `grow` of the device is held. */
CUresult sg_contents_save(void *user, const struct sg_memory_piece *pieces, size_t count);
CUresult sg_contents_restore(void *user, const struct sg_memory_piece *pieces, size_t count);
CUresult sg_contents_clear(void *user, const struct sg_memory_piece *pieces, size_t count);

/* The place on the host where the contents of [address, address + bytes) are kept, of one block; NULL: they are not. No order is
   carried out meanwhile, so nothing is saved or given back. Good until the tag is resumed.

   Why: programs send weights to others, or write them to a file, while the card is another's. They need no resume for it.
   For example, a checkpoint of paused weights reads 8 GiB from here, and the device has nothing to do with it. */
const void *sg_contents_find(CUdeviceptr address, uint64_t bytes);

/* Gives back what is kept of a tag, once it is resumed or could not be paused. */
void sg_contents_drop(int device, uint32_t tag);

#endif
