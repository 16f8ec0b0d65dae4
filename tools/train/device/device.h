/* The device as the training schedule sees it: memory, a stream of kernels, copies, and what went wrong first.
   After a failure every call does nothing, so that a schedule unwinds by running to its end. Host thread only. */
#ifndef TRAIN_DEVICE_H
#define TRAIN_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory/alloc.h"
#include "backend/arithmetic.h"

enum device_state { DEVICE_OK, DEVICE_OUT_OF_MEMORY, DEVICE_BROKEN };

/* Purposes of memory, in the words in which people draw up budgets. */
enum budget {
#define BUDGET(name, text) BUDGET_##name,
#include "device/budget.def"
#undef BUDGET
    BUDGET_COUNT
};

struct tensor;
struct launch_ring;
struct comm;

/* Copies beside the kernels, on a stream of their own, which is made at the first. */
struct transfers {
    void *stream, *before, *after; /* before: all that was queued when the last copy was; after: that copy is made */
    void *scratch;                 /* page-locked: what a dry run copies to and from */
    bool unjoined;
};

struct device {
    const struct cuda_rt *rt; /* NULL while planning: nothing reaches a device */
    struct allocator *alloc;
    const struct arithmetic *arithmetic; /* NULL in a dry run */
    bool started;         /* it is */
    struct launch_ring *ring;
    struct transfers transfers;
    struct comm *comm;    /* NULL: this process is alone */
    struct tensor *spare; /* tensor headers to use again */
    size_t live, peak;    /* bytes asked for by tensors, not rounded; without what is paused */
    size_t phase_peak;    /* of live, since phases.h has set it back */
    size_t limit;         /* of live, 0 for none: what a card of that size would refuse is refused here */
    enum budget label;    /* what is taken now is for this */
    size_t live_by[BUDGET_COUNT], peak_by[BUDGET_COUNT]; /* the parts of live, and of live when it was at its peak */
    size_t refused;       /* how many bytes the call asked for that ran out */
    uint64_t allocations, launches;
    enum device_state state;
    char error[256];
};

/* Takes over `alloc`. With `rt` NULL only counts. */
void device_open(struct device *device, const struct cuda_rt *rt, struct allocator *alloc,
                 const struct arithmetic *arithmetic, int threads);
/* True if the host can read and write the device's memory: only a simulated GPU's, or one's that shares the host's. */
bool device_host_reaches(const struct cuda_rt *rt);
/* Waits for queued work. All tensors must have been dropped, and tensor_forget_spare() called. */
void device_close(struct device *device);

/* Returns NULL after a failure, and makes one by running out. */
void *device_take(struct device *device, size_t bytes);
void device_give(struct device *device, void *pointer, size_t bytes, enum budget label);

/* Bytes of tensors that are paused, by purpose. */
struct paused {
    size_t live, live_by[BUDGET_COUNT];
};

/* All that lives leaves the card, and `come` is there in its place. */
void device_swap(struct device *device, const struct paused *come, struct paused *ret_left);

/* Says what is taken from here on is for, and returns what it was for before. */
enum budget device_label(struct device *device, enum budget label);

/* Queues a kernel; in a dry run, an empty one for every few: waiting for them is all that they cost there. */
void device_launch(struct device *device, const struct kernel_args *args);

/* Queues a call of `run` on the host, with a copy of the arguments. Nothing happens in a dry run. */
void device_call(struct device *device, const struct kernel_args *args, void (*run)(const struct kernel_args *args));

/* Queues a copy between device memory and page-locked host memory, which must stay as it is until device_wait. */
void device_copy_in(struct device *device, void *to, const void *pinned, size_t bytes);
void device_copy_out(struct device *device, void *pinned, const void *from, size_t bytes);
void device_wait(struct device *device);

/* Queues such a copy on a second stream, after all that is queued so far. Work that is queued later waits for it in
   device_join only. Tensors that it copies to or from may be dropped after device_join only. Where `pinned` is
   NULL, as in a dry run, the first DRY_TRANSFER bytes are copied to or from a place that nobody reads. */
enum { DRY_TRANSFER = 1 << 20 };
void device_send(struct device *device, void *pinned, const void *from, size_t bytes);
void device_fetch(struct device *device, void *to, const void *pinned, size_t bytes);
/* A call on the host between those copies; `argument` must stay until device_wait. */
void device_send_call(struct device *device, void (*run)(void *argument), void *argument);
/* Work that is queued from here on waits for the copies so far. */
void device_join(struct device *device);

/* Marks the device broken if `fault` is not NULL. */
void device_fail(struct device *device, const char *what, const char *fault);

/* Page-locked host memory; NULL after a failure. While planning it comes from the heap. */
void *device_pin(struct device *device, size_t bytes);
void device_unpin(struct device *device, void *pinned);

#endif
