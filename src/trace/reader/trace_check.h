/* What no writer of our trace format can have written. */
#ifndef SG_TRACE_CHECK_H
#define SG_TRACE_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "segalloc/trace_format.h"

enum { SG_TRACE_FAULT = 160 };

/* Looks at every field of a header that says how long something is or what a device is like. False: `fault` says in a
   clause what is wrong with the field at *ret_offset, in bytes from the start of the header. */
bool sg_trace_check_header(const struct segalloc_trace_header *header, uint64_t *ret_offset, char fault[SG_TRACE_FAULT]);

/* Whether the indices and ordinals in a record of a known kind can be, as far as it alone tells. NULL, or a clause that
   says what cannot. */
const char *sg_trace_check_record(const struct segalloc_trace_record *record);

#endif
