/* The moment at which a free takes effect, and the streams that it waits for.

   Nouns. The *mode* of a free (enum sg_free_sync): STRICT waits for the whole context, as the driver's cuMemFree does. STREAM
   follows the order of streams. EVENT waits for an event over all work so far. COMPLETE waits for nothing. The *users* of a
   block are the streams whose work may still touch it. The *tag* is how the core gets all of this with a call.

   Why. A program that calls cudaFree expects that the memory is unused when it returns. PyTorch orders its own work, so for
   its tensors that wait would cost time and gain nothing.

   How. Three things decide: the caller (its module, its interface), the option `free_sync`, and whether the streams are
   followed. Captures, graphs and streams that can't be followed may change the mode later (serve/deferred_frees.h,
   serve/free.c).

   For example, with free_sync:auto a C program's cudaFree is STRICT. A tensor of PyTorch's in direct mode, freed on
   stream 7, is STREAM. Then stream 7 may have the memory at once, and others after stream 7's work. Once the program
   has called a driver function that nothing here follows, that free is EVENT. With streams that PyTorch records it
   stays STREAM. */
#ifndef SG_FREE_MODE_H
#define SG_FREE_MODE_H

#include "config/conf.h"
#include "core/core.h"
#include "track/request.h"

/* The origin of a call through the runtime by a module of this kind (enum sg_caller). Asks PyTorch for its current stream,
   where the call is for a tensor. */
struct sg_request sg_memory_origin(int caller);

/* The mode of a free by the caller and the options alone. No lock. */
enum sg_free_sync sg_free_mode(const struct sg_request *request);

/* The tag for the core: of memory of `device`, asked for in `context`. Between sg_enter() and sg_leave(); the first call for
   a stream asks the driver about it. */
struct sg_tag sg_memory_tag(struct sg_core *core, const struct sg_request *request, CUcontext context, int device);

/* The tag for a call in the current context, and its device. The driver's error where there is none. Likewise. */
CUresult sg_memory_describe(struct sg_core *core, const struct sg_request *request, struct sg_tag *ret, int *ret_device);

#endif
