/* Streams that may wait for the program: work of ours there could have the program wait for itself.

   Nouns. A stream is *held* once the program gives it work that may end only after the program has done something. That is a wait
   for memory or for a semaphore, or a graph that may have one. It is held until the driver says that it is idle. While a function
   of the host runs, any stream is. One that is still to run says nothing: frameworks have some in each queue, and hardly any waits.

   Why. A stream takes only so many pieces of work, some 1,024. A call that gives it one more returns when there is room. Say that
   the program fills a stream behind a wait for a word, and then writes the word. A mark of ours too many, and the program
   never comes to write it.

   Why one held stream is in the way of others. They may wait for it by events, by the legacy stream's rules or by a
   context's wait. So while any is held, only streams that are idle are given work of ours: an idle one waits for nobody. The
   stream for fills waits for all work, so it is given none.

   Limits. Functions in graphs are not known of, nor is work that was given before the first allocation. 64 streams are held
   at a time. One more, and all count as held for good. A stream that is destroyed is held no more. Kernels that wait for a
   word of memory can't be told from others: marks.h bounds what is out.

   For example, the program has stream 5 wait for a word, sets 600 blocks there, frees them, and writes the word. Stream 5 is
   held from the first call on: it writes no mark, and fills none of the blocks. */
#ifndef SG_HELD_H
#define SG_HELD_H

#include <stdbool.h>

#include "core/core.h"

/* Around a call that gives a stream work which may wait for the program. begin() is called before the driver is: the call itself
   may wait. It returns what end() takes. Any thread, no lock. */
int sg_held_begin(CUstream stream, bool per_thread);
void sg_held_end(int held);

/* Has a function of the host noted while it runs. Replaces the function and what it is given; not during a capture, whose graph may
   run it many times. Any thread, no lock. */
void sg_held_wrap_function(CUhostFn *call, void **user);
void sg_held_wrap_callback(CUstreamCallback *call, void **user);

/* True if any stream is held. Asks the driver about those that were. No capture may be active, nor begin; `context` is the current
   one. */
bool sg_held_any(CUcontext context);

/* True if any was held by the last such question. */
bool sg_held_some(void);

/* A stream is about to be destroyed; a context is gone, and its streams with it. */
void sg_held_stream_gone(CUstream stream);
void sg_held_context_gone(CUcontext context);

#endif
