/* RMM's replay CSV and the further actions that we write into it.

   Thread,Time,Action,Pointer,Size,Stream: thread decimal; time HH:MM:SS:microseconds, or as RMM itself writes it
   with a point before them; pointer hexadecimal with or without 0x, or (nil); size decimal; stream decimal, as a
   pointer, or (nil).
   RMM writes allocate, free and allocate failure (include/rmm/mr/logging_resource_adaptor.hpp, rapidsai/rmm); the
   other actions stand in rmm_csv.c.

   Examples, with what the last field may look like:
     1,12:34:56:000100,allocate,0x7f2000000000,307200,0
     1,12:34:56.000250,free,0x7f2000000000,307200,0x55d0
     1,12:34:56:000300,record,0x7,0,(nil)              recording 7 of an event, on the default stream
     2,12:34:56:000400,wait,0x7,0,0x55d0               stream 0x55d0 waits for recording 7 */
#ifndef SG_RMM_CSV_H
#define SG_RMM_CSV_H

#include "segalloc/trace_format.h"

#define SG_RMM_HEADER "Thread,Time,Action,Pointer,Size,Stream"

/* The third field of a kind of record, constant; NULL for kinds that CSV has no row for. */
const char *sg_rmm_action(enum segalloc_record_kind kind);

#endif
