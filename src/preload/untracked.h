/* Calls of the driver that nothing here knows, and that may give streams work or order them, or remember pages. */
#ifndef SG_UNTRACKED_H
#define SG_UNTRACKED_H

enum sg_untracked {
    SG_UNTRACKED_ORDER, /* sg_streams_untrack() */
    SG_UNTRACKED_PAGES, /* sg_pin_all() */
    SG_UNTRACKED_KINDS
};

/* What to hand out in place of `real`, the driver's function of that name: a stub that takes any parameters, calls
   what `what` says and goes on in `real`. Being asked for a name proves nothing: NVIDIA's runtimes look all names up
   at their first call. One stub for each function, of which 16 are kept for those of pages, four names so far; where
   there are too many, it counts as called at once and `real` itself is returned. Any thread; takes
   SG_GUARD_UNTRACKED. */
void *sg_untracked_stub(enum sg_untracked what, const char *name, void *real);

#endif
