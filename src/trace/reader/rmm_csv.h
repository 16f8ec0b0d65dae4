/* RMM's replay CSV and the further actions that we write into it.

   Thread,Time,Action,Pointer,Size,Stream: thread decimal; time HH:MM:SS:microseconds, or as RMM itself writes it
   with a point before them; pointer hexadecimal with or without 0x, or (nil); size decimal; stream decimal, as a
   pointer, or (nil).
   RMM writes allocate, free and allocate failure (include/rmm/mr/logging_resource_adaptor.hpp, rapidsai/rmm); the
   other actions stand in rmm_csv.c. */
#ifndef SG_RMM_CSV_H
#define SG_RMM_CSV_H

#include "segalloc/trace_format.h"

#define SG_RMM_HEADER "Thread,Time,Action,Pointer,Size,Stream"

/* The action of a kind of record, NULL for kinds that CSV has no row for. */
const char *sg_rmm_action(enum segalloc_record_kind kind);

#endif
