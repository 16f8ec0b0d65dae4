/* Pause and resume for the whole process: over all devices, with contents on the host, and words for the user.

   Nouns. An *order* is a pause or resume of one name, or of all. Why here: the core knows one device and keeps no contents;
   captures, graphs and `check` are known to this layer.

   How. Frees that are due come first. Then each device and each tag of the name is paused, with its context current. Tags whose
   contents are saved come before those whose contents are given up. One
   that can't be paused has those before it resumed again: an order is carried out as a whole. A resume goes on until one
   fails, and asks other processes for idle memory before it does.

   Words for the user: a line for each order that failed, with the reason and, on a full card, how much is lacking. A line for
   one that took more than a second, with bytes and time. A line for the first allocation of a tag that is refused.

   Limits. While a capture is active, and beside `check`, nothing is paused. Once a graph was captured all work of the device
   is waited for: a graph's kernels name no block.

   For example, "kv" has 8 GiB on device 0 and 8 GiB on device 1, where a page was exported. Device 0 is paused, device 1
   refuses, device 0 is resumed. The answer is CUDA_ERROR_NOT_PERMITTED, and one line says why. */
#ifndef SG_PAUSE_H
#define SG_PAUSE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/core.h"

/* Pauses or resumes all tags of a name; NULL: all tags, and on a pause all that is idle goes too. *ret_bytes: of pages that
   left, or came. CUDA_ERROR_NOT_FOUND: nobody has used that name. Another thread's order is waited for. The calling thread is
   inside (sg_enter()). */
CUresult sg_pause_tags(struct sg_core *core, const char *name, uint64_t *ret_bytes);
CUresult sg_resume_tags(struct sg_core *core, const char *name, uint64_t *ret_bytes);

/* sg_pause_tags() without contents, whatever the tag's flags say: zeros come back. */
CUresult sg_discard_tags(struct sg_core *core, const char *name, uint64_t *ret_bytes);

/* The same for an order from outside, of the tool (services/trim.c). The calling thread is one of ours. */
CUresult sg_pause_order(bool pause, const char *name, uint64_t *ret_bytes);

/* Bytes asked for under tags of a name and not freed, over all devices; NULL: under any. */
uint64_t sg_pause_bytes(struct sg_core *core, const char *name);

/* Where on the host the contents of paused memory are kept, which all belongs to one block; NULL: they are not. */
const void *sg_pause_backup(CUdeviceptr address, uint64_t bytes);

/* True: from the next resume on, memory that has kept contents stays, and serves the next pause. */
void sg_pause_retain(bool retain);

/* Where files of contents go (contents_file.h). */
CUresult sg_pause_folder(const char *folder, uint64_t staging);

/* In a forked child: an order of another thread is not waited for. */
void sg_pause_fork_child(void);

/* How many orders have begun. */
uint32_t sg_pause_orders(void);

/* Gives up contents of a block that was freed; `orders`: as it was before the free. While an order is carried out they stay until
   the next. So they do after one that has begun since: another block may have the address by now, and its contents be kept. */
void sg_pause_freed(CUdeviceptr address, uint32_t orders);

/* The driver has served a block that was asked for under a tag, 0: none. A pause leaves it where it is, and says so. */
void sg_pause_passed_on(uint32_t tag);

/* Says once for each tag that an allocation of it was refused, because it is paused. */
void sg_pause_refused(struct sg_core *core, const struct sg_tag *tag, size_t bytes);

#endif
