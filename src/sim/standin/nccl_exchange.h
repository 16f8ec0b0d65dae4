/* The exchange of ranks on one machine: the bytes of small collectives, by shared memory. */
#ifndef SG_NCCL_EXCHANGE_H
#define SG_NCCL_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An operation of more bytes than this exchanges nothing. */
enum { SG_EXCHANGE_BYTES = 1 << 20 };

struct sg_exchange;

/* Joins the ranks that name the same `key`, and waits until all have come. NULL: they are not to be had (more than one
   of them in this process, no shared memory, or they have not come within ten minutes); the caller does without. */
struct sg_exchange *sg_exchange_join(uint64_t key, int ranks, int rank);

/* Waits no more, in any thread. The memory stays: queued work may use it. */
void sg_exchange_abort(struct sg_exchange *exchange);

/* One round, in which each rank gives `bytes` (SG_EXCHANGE_BYTES at most) and then sees what rank i gave at
   sg_exchange_given(…, i), until sg_exchange_end(). All ranks must come to the same rounds in the same order; a round
   is numbered when it is made, and the rounds of a rank begin in that order. False, and then no end: a rank has
   gone. */
uint64_t sg_exchange_number(struct sg_exchange *exchange);
bool sg_exchange_begin(struct sg_exchange *exchange, uint64_t number, const void *given, size_t bytes);
const void *sg_exchange_given(const struct sg_exchange *exchange, int rank);
void sg_exchange_end(struct sg_exchange *exchange, uint64_t number);

/* Messages from one rank to another: numbered when they are made, on either side, and sent and received in that order.
   A few may be on their way before a sender waits. False: the other rank has gone. */
uint64_t sg_exchange_number_to(struct sg_exchange *exchange, int peer);
uint64_t sg_exchange_number_from(struct sg_exchange *exchange, int peer);
bool sg_exchange_send(struct sg_exchange *exchange, int peer, uint64_t number, const void *bytes, size_t size);
bool sg_exchange_receive(struct sg_exchange *exchange, int peer, uint64_t number, void *ret, size_t size);

#endif
