/* The public functions about memory as a whole: version, trim, statistics. */
#include "inspect/core_state.h"
#include "process/hooks.h"
#include "process/process.h"
#include "report/refusals.h"
#include "segalloc/segalloc.h"
#include "serve/deferred_frees.h"
#include "track/streams.h"

const char *segalloc_version(void)
{
    return SEGALLOC_VERSION;
}

const char *segalloc_untracked_by(void)
{
    return sg_streams_untracked_by();
}

/* Frees that are due first, so that their pages can go too. */
size_t segalloc_trim(int device, size_t keep)
{
    struct sg_core *core = sg_enter();
    if (!core)
        return 0;
    sg_memory_settle(core);
    size_t given = device >= 0 && device < SG_DEVICES_MAX ? sg_core_trim(core, device, keep) : 0;
    sg_leave();
    return given;
}

typedef bool read_fn(struct sg_core *core, int device, struct sg_stats *ret);

/* A thread that asks what became of its memory goes on without what it was refused. */
static int read_stats(read_fn *read, int device, struct segalloc_stat *ret, int count)
{
    sg_refusals_raise();
    struct sg_stats stats;
    struct sg_core *core = sg_enter();
    if (!core)
        return 0;
    bool used = device >= 0 && device < SG_DEVICES_MAX && read(core, device, &stats);
    sg_leave();
    for (int i = 0; used && i < count && i < SG_STAT_COUNT; i++) {
        const struct sg_stat_info *info = sg_stat_info((enum sg_stat)i);
        ret[i] = (struct segalloc_stat){
            .name = info->name,
            .unit = info->unit,
            .value = stats.value[i],
            .peak = info->kind == SG_STAT_LEVEL ? stats.peak[i] : 0,
        };
    }
    return used ? SG_STAT_COUNT : 0;
}

int segalloc_stats(int device, struct segalloc_stat *ret, int count)
{
    return read_stats(sg_core_stats_recent, device, ret, count);
}

int segalloc_take_peaks(int device, struct segalloc_stat *ret, int count)
{
    return read_stats(sg_core_take_peaks, device, ret, count);
}
