/* Values that no writer of our trace format can have written.

   Why: a number of a file decides how much memory a tool takes and where it reads. A file may be damaged, or made to do
   harm. So each number that says how long something is, or which, is compared with what the format allows
   (SEGALLOC_TRACE_... in segalloc/trace_format.h), before anything is done with it.

   The limits, all of them in segalloc/trace_format.h:
     version 1                           a first block at a multiple of 4096, up to 16 MiB
     64 devices, 64 slots                2^20 streams, 2^20 texts, sites and phases
     64 TiB a device                     granularity a power of two from 64 KiB to 1 GiB, or 0

   Example: a header has a data_offset of 32 MiB, where 16 MiB is the most. sg_trace_check_header() is false, *ret_offset is
   16, the byte at which that field stands, and `fault` ends with "up to 16 MiB: 33554432". */
#ifndef SG_TRACE_CHECK_H
#define SG_TRACE_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "segalloc/trace_format.h"

enum { SG_TRACE_FAULT = 160 };

/* Looks at every field of a header that says how long something is or what a device is like. False: `fault` says in a
   clause what is wrong with the field at *ret_offset, in bytes from the start of the header. */
bool sg_trace_check_header(const struct segalloc_trace_header *header, uint64_t *ret_offset, char fault[SG_TRACE_FAULT]);

/* Looks at the indices and ordinals in a record of a known kind, as far as it alone tells. NULL: all can be. Else a clause,
   constant, that says which cannot. */
const char *sg_trace_check_record(const struct segalloc_trace_record *record);

#endif
