#ifndef SG_NCCL_REDUCE_H
#define SG_NCCL_REDUCE_H

#include <stddef.h>

/* ncclDataType_t's and ncclRedOp_t's numbers. A number that is no operation's counts as a sum. */
size_t sg_nccl_bytes(int type);

/* to[i] = to[i] op from[i]; an average is a sum until it is divided. Small floats of 8 bits stay as they are. */
void sg_nccl_reduce(int type, int op, void *to, const void *from, size_t count);
void sg_nccl_average(int type, int op, void *to, size_t count, int ranks);

#endif
