/* Writes a trace file of our format from records that are already there: for imports and for parts of traces.

   It needs neither a mapping nor a thread, since nobody waits for it. Records fill a block of 1 MiB in memory, which goes out
   with its checksum by write(). So it can write to a pipe too.

   Example, 40000 records and short texts:
     header     4096 bytes
     block 0    1048576 bytes    32767 records
     block 1     231520 bytes    7233 records and END: 32 + 7234 * 32
     file       1284192 bytes */
#ifndef SG_TRACE_OUTPUT_H
#define SG_TRACE_OUTPUT_H

#include <stdint.h>

#include "segalloc/trace_format.h"

struct sg_trace_output;

/* Begins a trace on `fd` (also a pipe; stays open). The header is taken from `header`, but for what follows from the
   format and the texts (NULL: none). 0 or a negative errno. */
int sg_trace_output_open(int fd, const struct segalloc_trace_header *header, const char *conf, const char *command,
                         struct sg_trace_output **ret);

/* Appends one record as it is. 0, or the negative errno of the first write that failed. */
int sg_trace_output_put(struct sg_trace_output *output, const struct segalloc_trace_record *record);

/* Ends the trace, noting `dropped` lost records, and frees `output`. 0 or the first error. */
int sg_trace_output_close(struct sg_trace_output *output, uint64_t dropped);

#endif
