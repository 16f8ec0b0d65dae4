/* The slow half of an allocation: the growing ladder.

   Nouns. A *rung* is a way to serve the request, and each is dearer than the one before. A *plan* is one place with
   the pages that go there (remap/plan.h). An *attempt* is a look for free memory and, if there is none, one plan that
   is carried out.

   Why in this order: memory that is complete costs nothing. A new page costs driver calls, and memory for good. A
   moved page costs an unmap besides. A wait comes last, because ranks that wait for one another would deadlock in a
   wait of the allocator while memory could be had otherwise.

   How. The rungs, each only where those before it have not served:

      1. the driver is asked which fences have passed, and new ones are recorded where they may help (streams/fences.h;
         how_to_ask);
      2. idle pages go back beyond garbage_collection_threshold, or beyond a limit that was lowered
         (collect_garbage_growing);
      3. free memory is searched once more, to the last depth (search/take.h): another thread may have freed or grown
         (serve_or_plan_growing);
      4. a plan: pages within the budget are created, the others are moved (state/budget.h; perform_plan_growing);
      5. if the driver refuses to create one, idle pages are taken for the rest (perform_plan_growing);
      6. if that failed too, a plan that counts the refusal as a limit (attempt_allocation_growing);
      7. where no plan can be made, free memory of another kind of region (serve_or_plan_growing);
      8. a plan that another call failed is undone, and tried a second time (attempt_twice_growing);
      9. a wait for the oldest pending free, without `grow`, then all over again (grow_wait_for_memory);
     10. with the option `overflow`, and only where the caller says that nothing else is left: the pages that are lacking
         are made on another device or in the host's memory (remap/overflow.h).

   Limits. Pinned pages and pages under unfinished work are not moved. One thread at a time grows a device; the others
   wait for `grow`. After all rungs the caller climbs a second ladder, of what only the process knows: graphs, captures,
   the driver's pools, idle pages, other processes, and last the driver (sg_memory_not_served() of preload/serve/alloc.c).

   For example, 300 MiB on a card of 24 GiB, which is 24,576 MiB. Its pages are of 4 MiB. 24,400 MiB are held, of
   which two blocks of 200 MiB have been freed: 400 MiB idle, but in no piece of 300. Rung 3 finds nothing. Rung 4
   looks for a place: behind the last block is a hole, where the block lacks 75 pages. 24,400 + 300 is 124 MiB beyond
   the card, so 31 pages are moved and 44 created. One unmap takes the last 31 pages of the block that was freed last.
   75 maps and one call for access put them behind the 44. Then all 24,576 MiB are held, and 276 are idle. The next
   300 MiB come to rung 9, where nothing is pending. They fail, short by 24 MiB. (tests/core/test_worked_cases.c) */
#ifndef SG_CORE_GROW_H
#define SG_CORE_GROW_H

#include "core/search/take.h"

/* Serves a request of `bytes` that free memory did not serve at once; `want` is what sg_core_malloc() looked for.
   CUDA_SUCCESS: *ret is the block's address. CUDA_ERROR_OUT_OF_MEMORY: the shortage is noted.
   CUDA_ERROR_NOT_SUPPORTED: the driver should serve it by cuMemAlloc. Another result is an error that ended the
   context. Takes `asking`, `grow` and `lock`, one after the other; the caller holds none. */
CUresult sg_grow(struct sg_device *device, struct sg_want want, size_t bytes, const struct sg_tag *tag,
    CUdeviceptr *ret);

/* Notes what an allocation of `bytes` that cannot be had was short of, with a record and a count. Where it was modest
   the record says only that its caller asks again. Returns CUDA_ERROR_OUT_OF_MEMORY. Takes `lock`. */
CUresult sg_device_ran_out(struct sg_device *device, size_t bytes, const struct sg_tag *tag);

/* Notes and reports a call for `bytes` (0: not known) that the core does not serve, and that the driver has refused. No lock
   held. */
void sg_device_refused_outside(struct sg_device *device, enum segalloc_outside by, uint64_t bytes);

#endif
