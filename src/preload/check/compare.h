/* The comparison of what was read back with what was filled.

   The verdict follows from which part differs. Each stream writes its own part last, so a part that is as it was before
   the free says that this stream had not come to the free:
      a stamp differs                          that stream had not come to it: handed out too early
      the whole first half of the tail, and    the stream of the free had not come to it: handed out too early
      all of the body that was read
      anything else                            it was filled, and somebody wrote there: a write after the free
      the canary                               an overrun, of the block that was just freed

   For example, a batch has two samples of one block, 512 bytes at its start and its tail. The first word is 0x3f800000
   where 0xa5010203 was filled, and the tail is whole. That is one finding: a write after the free, 4 of 1,024 bytes. Had
   stamp 5 of the tail been missing, stream 5 had not come to the free: the memory was handed out too early. */
#ifndef SG_CHECK_COMPARE_H
#define SG_CHECK_COMPARE_H

#include "check/samples.h"

/* Compares a batch that has arrived, and says what differs. No lock. */
void sg_check_compare(struct sg_batch *batch);

/* Bytes compared so far. */
uint64_t sg_check_compared(void);

#endif
