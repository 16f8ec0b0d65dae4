/* A finding as records of the trace: a run of SEGALLOC_RECORD_FINDING, a field each (segalloc/trace_format.h).

   Why a field a record, and not a larger record: all records have 32 bytes. A reader of an earlier version skips a field that it does
   not know, so a later version may say more of a finding.

   Limits. 24 fields, 768 bytes. The first of each kind and place is written, 16 of a process at most; statistics count all.

   For example, a write after a free of a block of 5,000 bytes is a run of 15 records. KIND comes first. BLOCK, ALLOCATED and FREED
   say whose the block was, NOW whose it is, and WHERE, BYTES, LAST and WORDS what was read. */
#ifndef SG_FINDING_RECORD_H
#define SG_FINDING_RECORD_H

#include "check/findings.h"

/* Writes a finding to the trace, if there is one. The sites in it are defined there already, since the threads that were
   at them have noted them. Any thread, no lock. A run for which the trace has no room is tried again, and then left out. */
void sg_finding_record(const struct sg_finding *finding);

#endif
