/* A record as a row of RMM's CSV, spelt as the file that it came from spelt it: rmm_csv.h has the columns.

   For example, thread 12 allocates 4,096 bytes at 0x7f00 an hour after midnight, on the default stream. The row is
   "12,01:00:00:000000,allocate,0x7f00,4096,0". */
#ifndef SG_RMM_ROW_H
#define SG_RMM_ROW_H

#include <stddef.h>

#include "reader/dictionary.h"
#include "segalloc/trace_format.h"

enum { SG_RMM_ROW = 160 }; /* bytes that any row has room in, with its newline */

/* Writes the row of `record`, with its newline but without a NUL, to buffer[SG_RMM_ROW]; returns its length, 0 for
   kinds without a row. The dictionary has been given every definition before it. */
size_t sg_rmm_row(const struct sg_dictionary *dictionary, const struct segalloc_trace_record *record, char *buffer);

#endif
