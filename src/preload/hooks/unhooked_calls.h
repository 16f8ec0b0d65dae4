/* Calls of the driver that nothing here knows, and that may give streams work or order them, or remember pages.

   Why. A newer driver has functions that this version has not read about. If one orders streams, frees by the order of
   streams would no longer be safe.

   How. The program gets a stub in place of the function. The stub notes the first call and jumps on.

   For example, a driver of CUDA 14 has cuStreamWaitFoo. A runtime looks its address up: nothing happens. The program
   calls it: order is not trusted from there on, and frees wait for all work that there is. */
#ifndef SG_UNHOOKED_CALLS_H
#define SG_UNHOOKED_CALLS_H

enum sg_untracked {
    SG_UNTRACKED_ORDER, /* sg_streams_untrack() */
    SG_UNTRACKED_PAGES, /* sg_pin_all() */
    SG_UNTRACKED_KINDS
};

/* The answer in place of `real`, the driver's function of that name. It is a stub that takes any parameters, does
   what `what` says and jumps to `real`. Being asked for a name proves nothing: NVIDIA's runtimes look all names up
   at their first call. Each function has one stub; 16 stubs are kept for calls that remember pages, four names so
   far. Where there are too many, the call counts as made at once and `real` itself is returned. Any thread; takes
   SG_LOCK_UNTRACKED. */
void *sg_untracked_stub(enum sg_untracked what, const char *name, void *real);

#endif
