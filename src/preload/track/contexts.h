/* The contexts that are alive, with their devices.

   Nouns. A *context* is CUDA's address space on one device; work and memory belong to one. Its *handle* is used again
   after its end, its *number* (cuCtxGetId, CUDA 12) never. The *primary* context is the one a device's runtime shares. A
   *green* context has part of a device's processors; the primary one stands for it here, since memory is never its own.

   Why. The core waits for contexts and maps memory for their devices. A core that is created late must know all of them,
   so they are followed from the start of the process. A context that another thread has ended must not be named any more.

   How. hooks/context_hooks.c notes each context that the driver makes or names. Its end has three steps. First,
   begin_ending() waits until no call of ours names it (context_pins.h). Then the driver is asked. Last,
   hooks/context_end.c announces the end to every table and to the core. claim_end() has one thread announce it.

   Limits. 1,024 contexts have entries (context_table.h); others are served too, but looked up each time. Drivers before
   CUDA 12 give no numbers: a handle that came back is then told from the old one by its end alone.

   For example, context 0x5500 of device 0 has number 7. Thread A destroys it; the driver gives thread B a new context with
   the same handle, number 9, before A has announced the end. B's hook finds number 7 noted and announces that end itself.
   Then it notes number 9. A finds another number in the entry and announces nothing. */
#ifndef SG_CONTEXTS_H
#define SG_CONTEXTS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/core.h"
#include "track/context_table.h"

/* Announces every context there is, and peer access, to a new core; one that the core knows already may come again.
   Holding no lock of ours. */
void sg_contexts_announce_all(struct sg_core *core);

/* The calling thread's current context and its device. The driver's error, or CUDA_ERROR_INVALID_CONTEXT when there is
   none. Between sg_enter() and sg_leave(). */
CUresult sg_contexts_current(struct sg_core *core, CUcontext *ret_context, int *ret_device);

/* Notes a context that the driver has named, and announces it to the core unless it is green. `core`: NULL if there was none
   as the call began. seen(): asks the driver for the number of a context that has no entry. Holding no lock of ours. */
void sg_contexts_seen(struct sg_core *core, CUcontext context, int device, bool primary);
void sg_contexts_seen_as(struct sg_core *core, const struct sg_context_info *context);

/* The number of a context by the driver; by its entry. 0: the driver gives none, or the context has gone; no entry. */
uint64_t sg_contexts_id(CUcontext context);
uint64_t sg_contexts_noted_id(CUcontext context);

/* The program has retained a device's primary context, or released it: once, or `wholly` by a reset. */
void sg_contexts_retained(CUdevice device);
void sg_contexts_released(CUdevice device, bool wholly);

/* True if the context is its device's last but for green ones, and would end by the call that is about to be made. `ends`:
   it does so however often a primary context was retained. *ret_device: its device; below 0: not known. */
bool sg_contexts_is_last(CUcontext context, bool ends, int *ret_device);

/* Around the driver's call that may end a context; NULL is none. begin: returns once calls of ours that name it are over,
   and no other one begins; the result is its noted number, for claim_end(). end: it has not ended. Without a core nothing
   names contexts, so nothing is waited for. */
uint64_t sg_contexts_begin_ending(struct sg_core *core, CUcontext context);
void sg_contexts_end_ending(struct sg_core *core, CUcontext context);

/* Claims the announcement of a context's end for this thread, which then announces it and calls forget(). False: another
   thread has done so by now, or the entry is another context's. `id`: as from begin_ending(); 0: not known. *ret: the entry,
   left as it is where there was none. forget(): true if it was its device's last. Both wait for other threads. */
bool sg_contexts_claim_end(CUcontext context, uint64_t id, struct sg_context_info *ret);
bool sg_contexts_forget(CUcontext context);

/* The context, where there is only one in the process; NULL: there are several, or none yet. No lock. */
CUcontext sg_contexts_only(void);

/* The device of any context; false: the driver doesn't know it. ask_device() always asks the driver, with the context
   current meanwhile. */
bool sg_contexts_device(CUcontext context, int *ret_device);
CUresult sg_contexts_ask_device(const struct sg_driver *driver, CUcontext context, int *ret_device);

/* True if there are contexts of several devices. No lock. */
bool sg_contexts_devices(void);

/* The primary context of a device, as far as it was met; NULL. */
CUcontext sg_contexts_primary_of(int device);

/* True if waiting for this context is waiting for all that there is on its device. */
bool sg_contexts_stands_for_all(CUcontext context);

/* The context that was made of a green one; NULL if none was. */
CUcontext sg_contexts_of_green(CUgreenCtx green);

/* True if a context was made of a green one. */
bool sg_contexts_green(CUcontext context);

/* A context of the device that is alive, its primary one if it can be; NULL. */
CUcontext sg_contexts_any(int device);

/* True if a context is the primary one of its device. */
bool sg_contexts_primary(CUcontext context);

/* `device` may access memory of `home` from here on, or may not: kept for a core that is made later. Both below
   SG_DEVICES_MAX. */
void sg_contexts_set_peer(int home, int device, bool enable);

/* The devices that may access memory of `home`, a bit each. */
uint64_t sg_contexts_peers(int home);

#endif
