#include "replay/free_orders.h"

#include <stdbool.h>

/* Knuth's generator of 64 bits (MMIX); its upper bits are used. */
static uint64_t orders_random(uint64_t *random)
{
    *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *random >> 33;
}

static bool is_free(const struct segalloc_trace_record *record)
{
    return record->kind == SEGALLOC_RECORD_FREE && !(record->flags & SEGALLOC_FLAG_PENDING);
}

/* True if it is a note that the allocator has made of itself between two frees. */
static bool is_note(const struct segalloc_trace_record *record)
{
    return record->kind == SEGALLOC_RECORD_STATISTIC || record->kind == SEGALLOC_RECORD_TICK ||
           record->kind == SEGALLOC_RECORD_ORDER || record->kind == SEGALLOC_RECORD_COMPLETE ||
           record->kind == SEGALLOC_RECORD_MARK || record->kind == SEGALLOC_RECORD_TURN;
}

/* The k-th free from `first` on, which is there. */
static struct segalloc_trace_record *orders_free_at(struct segalloc_trace_record *first, size_t k)
{
    while (!is_free(first) || k-- > 0)
        first++;
    return first;
}

void sg_orders_shuffle(struct segalloc_trace_record *records, size_t n, uint64_t *random)
{
    for (size_t begin = 0, end; begin < n; begin = end + 1) {
        size_t frees = 0;
        for (end = begin; end < n && (is_free(&records[end]) || is_note(&records[end])); end++)
            frees += is_free(&records[end]);
        for (size_t left = frees; left > 1; left--) {
            struct segalloc_trace_record *a = orders_free_at(&records[begin], left - 1),
                                         *b = orders_free_at(&records[begin], (size_t)(orders_random(random) % left)),
                                         swapped = *a;
            *a = *b;
            *b = swapped;
        }
    }
}
