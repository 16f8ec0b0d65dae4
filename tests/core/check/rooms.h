/* Every room of the core, for tests that look into it. */
#ifndef ROOMS_H
#define ROOMS_H

#include "core.h"
#include "grow.h"
#include "remap/execute.h"
#include "remap/page_alias.h"
#include "remap/plan.h"
#include "search/take.h"
#include "segments/fixed_segments.h"
#include "space/coalesce.h"
#include "space/extents.h"
#include "space/owner_lists.h"
#include "space/placement.h"
#include "space/region.h"
#include "space/window.h"
#include "start.h"
#include "state/access.h"
#include "state/accounts.h"
#include "state/budget.h"
#include "state/clocks.h"
#include "state/locks.h"
#include "state/mappings.h"
#include "state/outside_bytes.h"
#include "state/pins.h"
#include "state/regions.h"
#include "state/replay_steps.h"
#include "state/trace_streams.h"
#include "streams/fences.h"
#include "streams/pending_frees.h"
#include "streams/suspend.h"

#endif
