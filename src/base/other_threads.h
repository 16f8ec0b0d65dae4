/* Letting the other threads of this process go on.

   Why. A thread that looks at a flag and acts on it a few instructions later may lose its processor between the two.
   Whoever sets the flag would have to know that no thread stands there. A mark that each thread sets around the two
   would say so, at a cost in each of its calls. This asks the kernel instead, and costs nothing until it is needed.

   How. A thread that sleeps isn't between the two, because nothing there sleeps. A thread that has run for 50 us since
   has left, since there are a few hundred instructions. So each thread is looked at until it sleeps or has run so
   much.

   For example, thread A has seen "no capture" and was put aside by the scheduler for 12 ms. Thread B begins a capture and
   calls this. A is runnable and its clock stands still, so B rests. Then A runs, enters the driver and sleeps there: B
   goes on after 12 ms. */
#ifndef SG_OTHER_THREADS_H
#define SG_OTHER_THREADS_H

#include <stdbool.h>
#include <stdint.h>

/* Rests until each other thread of this process has slept or run for 50 us since the call, for `limit_ns` in all. False:
   that was not seen, because the time was over or /proc says nothing about threads. No lock of ours may be held.
   Leaves errno as it was, and no thread is cancelled in it. */
bool sg_other_threads_pass(uint64_t limit_ns);

#endif
