/* Other orders in which a program may free: what is freed in a row, as by a set of Python that goes or by two threads,
   comes in another order in the next run, and then lies elsewhere. */
#ifndef SG_FREE_ORDERS_H
#define SG_FREE_ORDERS_H

#include <stddef.h>
#include <stdint.h>

#include "segalloc/trace_format.h"

/* Orders that are tried besides the recorded one. */
enum { SG_ORDERS = 3 };

/* Shuffles the frees that no allocation comes between. `random` is the state of the generator, of which each value
   gives the same orders again. For replays that are not as recorded: what a trace says of the allocator's own steps stays
   where it was. */
void sg_orders_shuffle(struct segalloc_trace_record *records, size_t n, uint64_t *random);

#endif
