/* Refused calls that no_refusals.c has got. */
#ifndef NO_REFUSALS_H
#define NO_REFUSALS_H

#include "report/refusals.h"

extern unsigned no_refusals_outside;
extern enum segalloc_outside no_refusals_by;

#endif
