#include "analysis/refusals.h"

#include <stdlib.h>
#include <string.h>

#include "outside.h"
#include "refusal.h"

static enum sg_refusal_end end_of(const struct sg_refusal *refusal, const struct segalloc_trace_record *record)
{
    switch (record->kind) {
    case SEGALLOC_RECORD_ALLOCATE:
    case SEGALLOC_RECORD_PASSED_ON:
        return !refusal->raised && sg_refusal_is_made_good(refusal->bytes, record->size) ? SG_REFUSAL_MADE_GOOD
                                                                                          : SG_REFUSAL_FAILED;
    case SEGALLOC_RECORD_ALLOCATE_FAILURE:
    case SEGALLOC_RECORD_REFUSED_OUTSIDE:
        return !refusal->raised && sg_refusal_is_another_try(refusal->bytes, record->size) ? SG_REFUSAL_MADE_GOOD
                                                                                            : SG_REFUSAL_FAILED;
    case SEGALLOC_RECORD_SETTLED:
        return !refusal->raised && record->id != SEGALLOC_SETTLED_FAILED ? SG_REFUSAL_MADE_GOOD : SG_REFUSAL_FAILED;
    default:
        return SG_REFUSAL_STAYS;
    }
}

enum sg_refusal_end sg_refusals_settle(struct sg_refusals *refusals, const struct segalloc_trace_record *record,
    struct sg_refusal *ret)
{
    if (!refusals->open || record->thread >= refusals->threads || !refusals->of_thread[record->thread].open)
        return SG_REFUSAL_STAYS;
    struct sg_refusal *refusal = &refusals->of_thread[record->thread];
    enum sg_refusal_end end = end_of(refusal, record);
    if (end == SG_REFUSAL_STAYS)
        return end;
    *ret = *refusal;
    refusal->open = false;
    refusals->open--;
    return end;
}

struct sg_refusal *sg_refusal_open(struct sg_refusals *refusals, const struct segalloc_trace_record *record)
{
    uint32_t threads = record->thread + UINT32_C(1);
    if (threads > refusals->threads) {
        struct sg_refusal *larger = realloc(refusals->of_thread, threads * sizeof *larger);
        if (!larger)
            return NULL;
        memset(larger + refusals->threads, 0, (threads - refusals->threads) * sizeof *larger);
        refusals->of_thread = larger;
        refusals->threads = threads;
    }
    struct sg_refusal *refusal = &refusals->of_thread[record->thread];
    refusals->open += !refusal->open;
    *refusal = (struct sg_refusal){.open = true,
        .raised = record->flags & SEGALLOC_FLAG_TORCH,
        .bytes = record->size,
        .by = record->kind == SEGALLOC_RECORD_REFUSED_OUTSIDE ? sg_outside_kind(record->id) : SEGALLOC_OUTSIDE_OTHER};
    return refusal;
}

bool sg_refusals_take_open(struct sg_refusals *refusals, struct sg_refusal *ret)
{
    for (uint32_t i = 0; refusals->open && i < refusals->threads; i++) {
        if (!refusals->of_thread[i].open)
            continue;
        *ret = refusals->of_thread[i];
        refusals->of_thread[i].open = false;
        refusals->open--;
        return true;
    }
    return false;
}

void sg_refusals_free(struct sg_refusals *refusals)
{
    free(refusals->of_thread);
    *refusals = (struct sg_refusals){0};
}
