/* Every room of the core, for tests that look into it. */
#ifndef ROOMS_H
#define ROOMS_H

#include "core/core.h"
#include "core/grow.h"
#include "core/remap/execute.h"
#include "core/remap/page_alias.h"
#include "core/remap/plan.h"
#include "core/search/take.h"
#include "core/segments/fixed_segments.h"
#include "core/space/coalesce.h"
#include "core/space/extents.h"
#include "core/space/owner_lists.h"
#include "core/space/placement.h"
#include "core/space/region.h"
#include "core/space/window.h"
#include "core/start.h"
#include "core/state/access.h"
#include "core/state/accounts.h"
#include "core/state/budget.h"
#include "core/state/clocks.h"
#include "core/state/locks.h"
#include "core/state/mappings.h"
#include "core/state/outside_bytes.h"
#include "core/state/pins.h"
#include "core/state/regions.h"
#include "core/state/replay_steps.h"
#include "core/state/trace_streams.h"
#include "core/streams/fences.h"
#include "core/streams/pending_frees.h"
#include "core/streams/suspend.h"

#endif
