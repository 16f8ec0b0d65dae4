/* Sums of bytes, and questions about them: no lock and no device is needed. */
#include "inspect/oom_cause.h"

#include "config/conf.h"

uint64_t sg_oom_total(const struct sg_shortage *shortage, const struct sg_oom_around *around)
{
    return around->quota ? sg_oom_at_most(around->quota, shortage->total) : shortage->total;
}

uint64_t sg_oom_room(uint64_t total, uint64_t limit, uint64_t outside)
{
    return sg_oom_at_most(limit, total - sg_oom_at_most(outside, total));
}

/* Takes up to `bytes` away from what is left, and returns how much that was. */
static uint64_t take_from(uint64_t *left, uint64_t bytes)
{
    uint64_t taken = sg_oom_at_most(bytes, *left);
    *left -= taken;
    return taken;
}

uint64_t sg_oom_listed(const struct sg_oom_around *around)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < around->processes; i++)
        bytes += around->process[i].bytes;
    return bytes;
}

/* Known memory of this process comes first, then the listed processes.
   If more than a tenth of the device is left then, it is counted as other processes' that nobody here can list.
   Contexts and libraries of this one take less. */
struct sg_oom_holders sg_oom_holders(const struct sg_oom_around *around, const struct sg_shortage *shortage)
{
    enum { WORTH_NAMING = 10 };
    struct sg_oom_holders holders = {0};
    uint64_t left = sg_oom_at_most(shortage->outside, shortage->total);
    for (size_t i = 0; i < around->owns; i++) {
        uint64_t taken = take_from(&left, around->own[i].bytes);
        *(around->own[i].idle ? &holders.pools : &holders.own) += taken;
        holders.guards += around->own[i].guards ? taken : 0;
    }
    holders.others = take_from(&left, sg_oom_listed(around));
    bool much = left > shortage->total / WORTH_NAMING;
    if (much && around->complete)
        holders.own += take_from(&left, left);
    else if (much && (!holders.others || around->some_only))
        holders.others += take_from(&left, left);
    holders.rest = left;
    return holders;
}

/* Bytes that the device lacks, by cause: as many would be there without it. `need`: bytes in use with the request. */
struct lacks {
    uint64_t total; /* that may be used in all */
    uint64_t need, graphs, limit, quota, pools, own, others;
};

/* The lacks of a device. The limit is one too, and the quota: the part of the device beyond it can't be had. */
static struct lacks lacks_of(const struct sg_shortage *shortage, const struct sg_oom_around *around)
{
    const struct sg_oom_holders holders = sg_oom_holders(around, shortage);
    uint64_t allocated = shortage->allocated - sg_oom_at_most(around->parked, shortage->allocated);
    return (struct lacks){
        .need = allocated + shortage->asked,
        .graphs = sg_oom_at_most(around->graphs, allocated),
        .total = sg_oom_total(shortage, around),
        .limit = shortage->total - sg_oom_at_most(shortage->limit, shortage->total),
        .quota = shortage->total - sg_oom_total(shortage, around),
        .pools = holders.pools,
        .own = holders.own + holders.pools,
        .others = holders.others,
    };
}

static unsigned bit_of(enum sg_oom_cause cause)
{
    return 1U << cause;
}

/* True if the request would be served by the device as it would be without the causes in `gone`. */
static bool is_served_without(unsigned gone, const struct sg_shortage *shortage, const struct lacks *lacks)
{
    uint64_t total = gone & bit_of(SG_OOM_QUOTA) ? shortage->total : lacks->total,
             limit = gone & bit_of(SG_OOM_LIMIT) ? shortage->total : shortage->limit,
             need = lacks->need - (gone & bit_of(SG_OOM_GRAPHS) ? lacks->graphs : 0),
             outside = sg_oom_at_most(shortage->outside, shortage->total);
    if (gone & bit_of(SG_OOM_OWN))
        outside -= lacks->own;
    else if (gone & bit_of(SG_OOM_POOLS))
        outside -= lacks->pools;
    if (gone & bit_of(SG_OOM_OTHERS))
        outside -= lacks->others;
    return need <= sg_oom_room(total, limit, outside);
}

/* The cause of those in `of` that takes most. Pools where they are most of this process's own. */
static enum sg_oom_cause cause_largest(unsigned of, const struct lacks *lacks)
{
    enum sg_oom_cause cause = SG_OOM_TOO_BIG;
    uint64_t most = 0;
    const struct {
        uint64_t bytes;
        enum sg_oom_cause cause;
    } list[] = {{lacks->limit, SG_OOM_LIMIT}, {lacks->quota, SG_OOM_QUOTA}, {lacks->graphs, SG_OOM_GRAPHS},
        {lacks->pools, SG_OOM_POOLS}, {lacks->own, SG_OOM_OWN}, {lacks->others, SG_OOM_OTHERS}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        if (of & bit_of(list[i].cause) && list[i].bytes > most) {
            most = list[i].bytes;
            cause = list[i].cause;
        }
    }
    return cause;
}

/* The causes that it takes together where none is enough alone: graphs only if all others are not enough. */
static enum sg_oom_cause cause_of_several(const struct sg_shortage *shortage, const struct lacks *lacks)
{
    unsigned all = bit_of(SG_OOM_LIMIT) | bit_of(SG_OOM_QUOTA) | bit_of(SG_OOM_OWN) | bit_of(SG_OOM_OTHERS);
    if (!is_served_without(all, shortage, lacks))
        all |= bit_of(SG_OOM_GRAPHS);
    if (!is_served_without(all, shortage, lacks))
        return SG_OOM_TOO_BIG;
    enum sg_oom_cause cause = cause_largest(all, lacks);
    return cause == SG_OOM_OWN && lacks->pools > lacks->own - lacks->pools ? SG_OOM_POOLS : cause;
}

enum sg_oom_cause sg_oom_cause(const struct sg_shortage *shortage, const struct sg_oom_around *around)
{
    const struct lacks lacks = lacks_of(shortage, around);
    uint64_t most = sg_oom_room(lacks.total, shortage->limit, shortage->outside);
    /* Each question is whether the device as it would be without one cause has room for the need. The need of a
       defragmented device counts pending memory as in use; from then on it does not. */
    if (shortage->asked > UINT64_MAX - shortage->used)
        return SG_OOM_TOO_BIG;
    if (shortage->used + shortage->asked <= most)
        return SG_OOM_FRAGMENTED;
    if (lacks.need <= most)
        return SG_OOM_QUEUED;
    if (is_served_without(bit_of(SG_OOM_GRAPHS), shortage, &lacks))
        return SG_OOM_GRAPHS;
    if (is_served_without(bit_of(SG_OOM_LIMIT), shortage, &lacks))
        return SG_OOM_LIMIT;
    if (is_served_without(bit_of(SG_OOM_QUOTA), shortage, &lacks))
        return SG_OOM_QUOTA;
    unsigned alone = 0;
    const enum sg_oom_cause each[] = {SG_OOM_POOLS, SG_OOM_OWN, SG_OOM_OTHERS};
    for (size_t i = 0; i < sizeof each / sizeof *each; i++)
        alone |= is_served_without(bit_of(each[i]), shortage, &lacks) ? bit_of(each[i]) : 0;
    if (alone & bit_of(SG_OOM_POOLS))
        alone &= ~bit_of(SG_OOM_OWN);
    return alone ? cause_largest(alone, &lacks) : cause_of_several(shortage, &lacks);
}

/* One more cause, if one is enough, or else the largest of those left, and so on. */
unsigned sg_oom_also(const struct sg_shortage *shortage, const struct sg_oom_around *around, enum sg_oom_cause first)
{
    const struct lacks lacks = lacks_of(shortage, around);
    const enum sg_oom_cause each[] = {SG_OOM_OWN, SG_OOM_OTHERS, SG_OOM_LIMIT, SG_OOM_QUOTA, SG_OOM_GRAPHS};
    unsigned gone = bit_of(first == SG_OOM_POOLS ? SG_OOM_OWN : first), also = 0;
    if (first < SG_OOM_GRAPHS || first == SG_OOM_TOO_BIG)
        return 0;
    while (!is_served_without(gone | also, shortage, &lacks)) {
        unsigned left = 0, one = 0;
        for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
            unsigned bit = bit_of(each[i]);
            left |= (gone | also) & bit ? 0 : bit;
            if (!one && left & bit && is_served_without(gone | also | bit, shortage, &lacks))
                one = bit;
        }
        enum sg_oom_cause largest = cause_largest(left, &lacks);
        if (!one && largest == SG_OOM_TOO_BIG)
            break; /* none is left */
        also |= one ? one : bit_of(largest);
    }
    return also;
}

uint64_t sg_oom_short_unlimited(const struct sg_shortage *shortage, const struct sg_oom_around *around)
{
    const struct lacks lacks = lacks_of(shortage, around);
    uint64_t room = sg_oom_room(lacks.total, shortage->total, shortage->outside);
    return lacks.need > room ? lacks.need - room : 0;
}

struct sg_oom_limit sg_oom_limit(const struct sg_conf *conf, const struct sg_shortage *shortage)
{
    struct sg_conf without = *conf;
    struct sg_oom_limit source = {
        .need = shortage->allocated + shortage->asked +
                (shortage->reserved - sg_oom_at_most(shortage->used + shortage->idle, shortage->reserved))};
    if (shortage->limit < sg_conf_limit(conf, shortage->total))
        return source;
    without.per_process_memory_fraction = 1;
    source.option = sg_conf_limit(&without, shortage->total) < source.need;
    without = *conf;
    without.limit_bytes = 0;
    without.limit_fraction = 0;
    source.fraction = sg_conf_limit(&without, shortage->total) < source.need;
    return source;
}
