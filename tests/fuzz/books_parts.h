/* What the files of the driver share. */
#ifndef FUZZ_BOOKS_PARTS_H
#define FUZZ_BOOKS_PARTS_H

#include "books.h"

/* Whether this call is made to fail. */
bool books_fails(enum books_call call);
/* Notes a rule that was broken; returns what the driver would. */
CUresult books_refuses(const char *what);

/* The device that is current; events that are alive. */
int books_device(void);
uint32_t books_events(void);
void books_reset_events(bool named);
/* Those of a context are gone with it. */
void books_drop_events(int context);

CUresult books_ctx_get_current(CUcontext *ret);
CUresult books_ctx_push(CUcontext context);
CUresult books_ctx_pop(CUcontext *ret);
CUresult books_ctx_synchronize(void);
CUresult books_ctx_synchronize_of(CUcontext context);
CUresult books_event_create(CUevent *ret, unsigned flags);
CUresult books_event_destroy(CUevent id);
CUresult books_event_query(CUevent id);
CUresult books_event_synchronize(CUevent id);
CUresult books_ctx_record_event(CUcontext context, CUevent id);
CUresult books_event_record(CUevent id, CUstream handle);

#endif
