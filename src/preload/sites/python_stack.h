/* The Python frames of the calling thread, looked at from outside. Nothing is imported or run, no reference is taken,
   and nobody is waited for.

   Why in place. PyTorch gives the interpreter's lock away before it allocates. A thread's own frames stand still all
   the same while it is in a call of C, and they keep their code alive. So they are read in place (python_stack.def).

   Limits. If a version's layout is not known, or not confirmed on this stack, the interpreter's functions are asked
   instead. Only a thread that holds the lock may do so. Others have no frames then.

   For example, CPython 3.12 runs train.py:50 in step(), called by main(). From the thread's state the frame of step()
   is read, then its `back`, main()'s. Each gives a code object and the offset in it, from which line 50 is found later,
   when the site is first described. */
#ifndef SG_PYTHON_STACK_H
#define SG_PYTHON_STACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sites/frames.h"

/* The frames of the calling thread, the innermost first, at most `most`; 0 where it runs no Python. If the stack is
   deeper, the last `outer` are the outermost ones (frames.h). */
unsigned sg_python_frames(struct sg_frame *ret, unsigned most, unsigned outer);

/* File, function and line of one of those frames, as long as the thread has not returned from there. Texts are cut
   to `room` bytes. False: they could not be had. */
bool sg_python_describe(const struct sg_frame *frame, char *file, char *function, size_t room, uint32_t *ret_line);

#endif
