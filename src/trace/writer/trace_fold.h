/* Shortens the beginning of a trace to what it leaves behind: names, what lives, and the last figures.

   Why: a trace has a bound (`trace_mb`), so its oldest part goes. The rest must still say which blocks live, from which
   line, and what the allocator's figures are. How: the part is read twice. The first reading notes the last record of each
   block of memory and of each figure. The second writes those, and all definitions, in their order.

   For example, a part has 300 records of names, 400,000 allocations and 399,990 frees. Shortened, it begins with a record:
   799,980 events are left out. Then come the 300 names, 10 blocks with their lines, and some 150 statistics. */
#ifndef SG_TRACE_FOLD_H
#define SG_TRACE_FOLD_H

#include <stdbool.h>
#include <stdint.h>

/* Reads the first `blocks` blocks of a trace, all closed, and writes what they leave as closed blocks. Both files have
   their blocks from `data_offset` on. *ret_blocks: how many it has written. `go_on` is called before each block is read;
   where it says no, the end is -ECANCELED. 0 or a negative errno; what is written by then is of no use. No heap: host
   memory by the table of blocks of memory, up to the size of the part. */
typedef bool sg_trace_go_on_fn(void *user);
int sg_trace_fold(int from, int to, uint64_t data_offset, uint64_t blocks, sg_trace_go_on_fn *go_on, void *user,
    uint64_t *ret_blocks);

/* Reads or writes a whole block by its number. 0 or a negative errno. */
int sg_trace_block_read(int fd, uint64_t data_offset, uint64_t number, void *block);
int sg_trace_block_write(int fd, uint64_t data_offset, uint64_t number, const void *block);

#endif
