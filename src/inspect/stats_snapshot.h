/* Snapshots: all statistics of a device at one moment, with peaks since one of four beginnings. */
#ifndef SG_STATS_SNAPSHOT_H
#define SG_STATS_SNAPSHOT_H

#include "base/stats.h"
#include "core/core.h"

/* Takes a snapshot with the peaks since the start. False: the device was never used. Takes `lock`, as all of these
   do. */
bool sg_core_stats(struct sg_core *core, int device, struct sg_stats *ret);

/* Takes a snapshot with the peaks since sg_core_reset_peaks(), which lets the peaks of levels begin again at the
   present value. Neither decisions by a peak nor sg_core_stats() change by that. */
bool sg_core_stats_recent(struct sg_core *core, int device, struct sg_stats *ret);
void sg_core_reset_peaks(struct sg_core *core, int device);

/* Takes a snapshot with the peaks since the last call of this function, for which they begin again at the present
   value. The peaks of the two snapshots above stay as they are. False: the device was never used. */
bool sg_core_take_peaks(struct sg_core *core, int device, struct sg_stats *ret);

/* Takes a snapshot with the peaks of an interval, which began when this was last called with `ends`. The other peaks stay
   as they are. False: the device was never used. */
bool sg_core_interval_peaks(struct sg_core *core, int device, bool ends, struct sg_stats *ret);

/* The most recent failed allocation on `device`. False: there was none. */
bool sg_core_shortage(struct sg_core *core, int device, struct sg_shortage *ret);

#endif
