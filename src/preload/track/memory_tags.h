/* The tags of memory that a thread allocates under.

   Nouns. A *tag* is a name with flags, under which the program pauses memory (core/state/tags.h). A thread has a stack of
   them, and allocates under the topmost.

   Why a table here: a program may push a tag before its first allocation, when there is no core yet. How: a name has a
   place in the table, and its number in the core is looked up once. A push makes the thread's fast path stale, which has
   the number in its findings.

   Why a stack by thread: a region of code may call another that has a tag of its own, and other threads go on with what
   they do. A push of NULL is for code within a region whose memory must stay.

   Limits: 31 names with flags a process, of 63 bytes each; 63 tags deep. Threads that a program starts begin without one, or
   with that of the option `tag`.

   For example, a thread pushes "kv", allocates 1 MiB, and pops. The 1 MiB stand on pages of "kv"; another thread's
   allocations meanwhile do not. */
#ifndef SG_MEMORY_TAGS_H
#define SG_MEMORY_TAGS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "process/process.h"

/* Has the calling thread allocate under a tag from here on; NULL: under none. CUDA_ERROR_INVALID_VALUE: an empty or too
   long name. CUDA_ERROR_OUT_OF_MEMORY: there are too many names, or the stack is too deep. */
CUresult sg_memory_tags_push(const char *name, enum sg_tag_keep keep);

/* Ends the topmost. CUDA_ERROR_INVALID_VALUE: there is none. */
CUresult sg_memory_tags_pop(void);

/* Before the first allocation: the tag of threads that have pushed none, as the option `tag` says. False: its name is too
   long, and they have none. */
bool sg_memory_tags_open(const char *name);

/* The core's number of the calling thread's tag; 0: it has none. */
extern _Atomic uint32_t sg_memory_tags_standard; /* place of that tag in the table; 0: none */
uint32_t sg_memory_tags_now_slow(struct sg_core *core);
static inline uint32_t sg_memory_tags_now(struct sg_core *core)
{
    uint32_t standard = atomic_load_explicit(&sg_memory_tags_standard, memory_order_relaxed);
    return __builtin_expect((sg_self.rare.tags.depth | standard) != 0, 0) ? sg_memory_tags_now_slow(core) : 0;
}

#endif
