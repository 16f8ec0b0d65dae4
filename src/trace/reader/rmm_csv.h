/* RMM's replay CSV and the further actions that we write into it.

   Thread,Time,Action,Pointer,Size,Stream: thread decimal; time HH:MM:SS:microseconds, or as RMM itself writes it
   with a point before them; pointer hexadecimal with or without 0x, or (nil); size decimal; stream decimal, as a
   pointer, or (nil).
   RMM writes allocate, free and allocate failure (include/rmm/mr/logging_resource_adaptor.hpp, rapidsai/rmm); the
   other actions stand in rmm_csv.c. */
#ifndef SG_RMM_CSV_H
#define SG_RMM_CSV_H

#include <stddef.h>

#include "reader/dictionary.h"
#include "segalloc/trace_format.h"

#define SG_RMM_HEADER "Thread,Time,Action,Pointer,Size,Stream"

enum { SG_RMM_ROW = 160 }; /* bytes that any row has room in, with its newline */

/* The action of a kind of record, NULL for kinds that CSV has no row for. */
const char *sg_rmm_action(enum segalloc_record_kind kind);

/* Writes the row of `record`, with its newline but without a NUL, to buffer[SG_RMM_ROW]; returns its length, 0 for
   kinds without a row. The dictionary has been given every definition before it. */
size_t sg_rmm_row(const struct sg_dictionary *dictionary, const struct segalloc_trace_record *record, char *buffer);

#endif
