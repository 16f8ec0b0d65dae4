/* Sums of bytes, and questions about them: no lock and no device is needed. */
#include "inspect/oom_cause.h"

#include "config/conf.h"

uint64_t sg_oom_room(const struct sg_shortage *shortage, uint64_t limit, uint64_t outside)
{
    return sg_oom_at_most(limit, shortage->total - sg_oom_at_most(outside, shortage->total));
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
    for (size_t i = 0; i < around->owns; i++)
        *(around->own[i].idle ? &holders.pools : &holders.own) += take_from(&left, around->own[i].bytes);
    holders.others = take_from(&left, sg_oom_listed(around));
    bool much = left > shortage->total / WORTH_NAMING;
    if (much && around->complete)
        holders.own += take_from(&left, left);
    else if (much && (!holders.others || around->some_only))
        holders.others += take_from(&left, left);
    holders.rest = left;
    return holders;
}

/* Bytes that the device lacks, by cause: as many would be there without it. */
struct lacks {
    uint64_t limit, pools, own, others;
};

/* The lacks of a device. The limit is one too: the part of the device beyond it can't be had. */
static struct lacks lacks_of(const struct sg_shortage *shortage, const struct sg_oom_holders *holders)
{
    return (struct lacks){
        .limit = shortage->total - sg_oom_at_most(shortage->limit, shortage->total),
        .pools = holders->pools,
        .own = holders->own + holders->pools,
        .others = holders->others,
    };
}

/* The cause that takes most of what is given. */
static enum sg_oom_cause cause_largest(uint64_t limit, uint64_t pools, uint64_t own, uint64_t others)
{
    enum sg_oom_cause cause = SG_OOM_TOO_BIG;
    uint64_t most = 0;
    const struct {
        uint64_t bytes;
        enum sg_oom_cause cause;
    } list[] = {{limit, SG_OOM_LIMIT}, {pools, SG_OOM_POOLS}, {own, SG_OOM_OWN}, {others, SG_OOM_OTHERS}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        if (list[i].bytes > most) {
            most = list[i].bytes;
            cause = list[i].cause;
        }
    }
    return cause;
}

enum sg_oom_cause sg_oom_cause(const struct sg_shortage *shortage, const struct sg_oom_around *around)
{
    const struct sg_oom_holders holders = sg_oom_holders(around, shortage);
    const struct lacks lacks = lacks_of(shortage, &holders);
    uint64_t outside = sg_oom_at_most(shortage->outside, shortage->total), most = sg_oom_room(shortage, shortage->limit, outside), asked = shortage->asked,
             allocated = shortage->allocated - sg_oom_at_most(around->parked, shortage->allocated), need = allocated + asked;
    /* Each question is whether the device as it would be without one cause has room for the need. The need of a
       defragmented device counts pending memory as in use; from then on it does not. */
    if (asked > UINT64_MAX - shortage->used)
        return SG_OOM_TOO_BIG;
    if (shortage->used + asked <= most)
        return SG_OOM_FRAGMENTED;
    if (need <= most)
        return SG_OOM_QUEUED;
    if (lacks.limit && need <= sg_oom_room(shortage, shortage->total, outside))
        return SG_OOM_LIMIT;
    bool pools = need <= sg_oom_room(shortage, shortage->limit, outside - lacks.pools),
         own = need <= sg_oom_room(shortage, shortage->limit, outside - lacks.own),
         others = need <= sg_oom_room(shortage, shortage->limit, outside - lacks.others);
    if (pools || own || others)
        return cause_largest(0, pools ? lacks.pools : 0, own && !pools ? lacks.own : 0, others ? lacks.others : 0);
    if (need <= sg_oom_room(shortage, shortage->total, outside - lacks.own - lacks.others))
        return cause_largest(lacks.limit, holders.pools > holders.own ? lacks.own : 0, lacks.own, lacks.others);
    return SG_OOM_TOO_BIG;
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
