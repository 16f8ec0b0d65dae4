/* Return addresses on the calling thread's stack, by its unwinding tables, and the module of each.

   Why sizes are remembered. Unwinding by tables takes microseconds a frame. A function that returns to one address
   nearly always has a frame of one size. So sizes are kept by return address, and a stack whose addresses were met
   before is followed by one look at each.

   Limits. x86-64 only has the short way. A frame of several sizes (alloca) is marked and unwound by tables. 256 frames
   at most.

   For example, main calls load() calls cudaMalloc. First time: 3 frames by tables, sizes 48 and 112 bytes noted. Second
   time: at the address after load's call the size is 48, so the next return address lies 48 bytes up. */
#ifndef SG_UNWIND_H
#define SG_UNWIND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sites/frames.h"

enum { SG_NATIVE_SIZES = 1 << 14 };

/* Known functions: the size of a frame by its return address. A stack whose addresses were met before is then
   followed by one look at each. Zero at first. */
struct sg_unwinder {
    _Atomic uint64_t size[SG_NATIVE_SIZES];
};

/* Addresses between which a thread was seen to have its stack; zeros at first. Another stack of the same thread, as of
   a coroutine or a signal's handler, takes its place. */
struct sg_stack {
    uintptr_t low, top;
};

/* Writes the return addresses outside this library, the innermost first, at most `most`, and returns how many. If the
   stack is deeper, the last `outer` are the outermost ones (frames.h); beyond 254 frames, the last of those. `stack`:
   the thread's, kept up to date. 0 where the runtime that unwinds is not there. The first call of a process may load
   it. */
unsigned sg_unwind_frames(struct sg_unwinder *unwinder, struct sg_stack *stack, struct sg_frame *ret, unsigned most,
    unsigned outer);

/* Where a return address lies: the module's file, the exported function in it or "", and the offset as the file's
   symbols count. Texts are cut to `room` bytes. False: there is none. Takes the loader's lock. */
bool sg_unwind_describe(uint64_t address, char *module, char *function, size_t room, uint32_t *ret_offset);

#endif
