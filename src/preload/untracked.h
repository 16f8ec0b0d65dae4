/* Calls of the driver that nothing here knows, and that may give streams work or order them. */
#ifndef SG_UNTRACKED_H
#define SG_UNTRACKED_H

/* What to hand out in place of `real`, the driver's function of that name: a stub that takes any parameters, calls
   sg_streams_untrack() and goes on in `real`. Being asked for a name proves nothing: NVIDIA's runtimes look all names up
   at their first call. One stub for each function; where there are too many, order is given up at once and `real`
   itself is returned. Any thread; takes SG_GUARD_UNTRACKED. */
void *sg_untracked_stub(const char *name, void *real);

#endif
