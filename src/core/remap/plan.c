/* First runs: how one is chosen and cut. Then the place: how it is found, and whether its pages can be had. Then the
   plan as a whole: made, gone on with after a refusal, committed or abandoned. A plan is a row of decisions, each of
   which leaves the next one something to do: place, claim, runs, `create`. Whatever fails on the way is undone by
   sg_plan_abandon_locked(). */
#include "core/remap/plan.h"

#include <assert.h>
#include <string.h>

#include "core/state/accounts.h"
#include "core/state/budget.h"
#include "core/state/clocks.h"
#include "core/state/mappings.h"
#include "core/state/regions.h"

/* Makes room for one more run in the scratch memory. False: no host memory. */
static bool room_for_run_growing(struct sg_plan *plan) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&plan->device->growth.grow);
    bool room = sg_scratch_reserve(&plan->device->growth.runs, plan->run_count + 1, sizeof *plan->runs);
    plan->runs = plan->device->growth.runs.memory;
    return room;
}

/* Bytes of the pages taken so far. With `own_size` those that transfer to the place; else those of another size,
   which are released so that new ones can be created. */
static uint64_t taken_bytes(const struct sg_plan *plan, bool own_size)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan->run_count; i++)
        if ((plan->runs[i].region->page_units == plan->region->page_units) == own_size)
            bytes += plan->runs[i].pages * sg_region_page_bytes(plan->runs[i].region);
    return bytes;
}

/* The kinds of pages that a plan takes. */
enum source {
    COMPLETE, /* of the size that the place needs, with no work on them */
    ANEW,     /* of another size: released and made anew */
    ALIASED,  /* with work on them, which the stream is ordered after: they leave an alias */
    SOURCES,
    OF_PEER = SOURCES, /* as COMPLETE, but far ones: for plans for overflow alone */
    OF_HOST
};

/* The place whose pages a source has. */
static enum sg_place source_place(enum source source)
{
    return source == OF_PEER ? SG_PLACE_PEER : source == OF_HOST ? SG_PLACE_HOST : SG_PLACE_NEAR;
}

/* How many of a region's pages may leave an alias, besides those of this plan. */
static uint64_t alias_room_locked(const struct sg_plan *plan, const struct sg_region *region) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&plan->device->lock);
    uint64_t room = sg_alias_room_locked(plan->device, region), taken = 0;
    for (uint32_t i = 0; i < plan->run_count; i++)
        taken += plan->runs[i].alias ? plan->runs[i].pages : 0;
    return room > taken ? room - taken : 0;
}

/* How many pages for `bytes` a region may give from a source. 0: its pages have the wrong size for that, or none is
   idle. */
static uint32_t pages_wanted_locked(const struct sg_plan *plan, const struct sg_region *region, uint64_t bytes,
    enum source source) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&plan->device->lock);
    bool same = region->page_units == plan->region->page_units;
    uint64_t page = sg_region_page_bytes(region), want = (bytes + page - 1) / page,
             most = source == ALIASED ? alias_room_locked(plan, region) : UINT32_MAX;
    if (same == (source == ANEW) || region->lookup.whole_free == 0 ||
        (source_place(source) && !region->memory.far_pages))
        return 0;
    return (uint32_t)(want < most ? want : most);
}

/* Cuts one run of at most `bytes` out of the free pages of a source. Returns its bytes; 0: there are none. */
static uint64_t take_run_locked(struct sg_plan *plan, uint64_t bytes, enum source source) SG_REQUIRES(lock)
    SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&plan->device->lock);
    SG_ASSERT_HELD(&plan->device->growth.grow);
    struct sg_device *device = plan->device;
    struct sg_source best = {0};
    struct sg_page_run run = {.alias = source == ALIASED};
    /* The best source of all regions: each look replaces `best` only by a better one. */
    for (uint32_t i = 0; i < device->regions.count; i++) {
        uint32_t want = pages_wanted_locked(plan, device->regions.region[i], bytes, source);
        if (want && sg_region_find_source_locked(device->regions.region[i], want,
                        (struct sg_taker){plan->slot, run.alias, source_place(source)}, &best))
            run.region = device->regions.region[i];
    }
    if (!run.region || !room_for_run_growing(plan))
        return 0;
    uint32_t want = pages_wanted_locked(plan, run.region, bytes, source);
    run.pages = best.pages < want ? best.pages : want;
    run.busy = sg_region_cut_source_locked(run.region, &best, want, &run.first);
    if (!run.busy)
        return 0;
    plan->runs[plan->run_count++] = run;
    return run.pages * sg_region_page_bytes(run.region);
}

/* Cuts runs out of a source until `bytes` are had or it has none left. Returns what was had. */
static uint64_t take_from_locked(struct sg_plan *plan, uint64_t bytes, enum source source) SG_REQUIRES(lock)
    SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&plan->device->lock);
    SG_ASSERT_HELD(&plan->device->growth.grow);
    uint64_t got = 0, part;
    while (got < bytes && (part = take_run_locked(plan, bytes - got, source)) > 0)
        got += part;
    return got;
}

/* Takes idle pages for `bytes`. Complete pages cost least, so a stream that is alone takes them first. Where other
   streams may want those, pages that they could not use go first. Returns the bytes that were had. That is more than
   `bytes` where the last page was larger than the rest: pages of another size need not divide it. */
static uint64_t take_free_pages_locked(struct sg_plan *plan, uint64_t bytes) SG_REQUIRES(lock) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&plan->device->lock);
    SG_ASSERT_HELD(&plan->device->growth.grow);
    static const enum source alone[SOURCES] = {COMPLETE, ANEW, ALIASED}, shared[SOURCES] = {ALIASED, COMPLETE, ANEW};
    const enum source *source = sg_device_is_shared_locked(plan->device, plan->slot) ? shared : alone;
    uint64_t got = 0;
    for (int i = 0; i < SOURCES && got < bytes; i++)
        if (source[i] != ALIASED || plan->aliases)
            got += take_from_locked(plan, bytes - got, source[i]);
    return got;
}

/* Sets `create`, so that pages taken and pages created make up the place. No more pages of the place's own size are
   ever taken than it lacks: plan->handles has no room for others. */
static void settle_creates(struct sg_plan *plan)
{
    uint64_t pages = taken_bytes(plan, /* own_size */ true) / sg_region_page_bytes(plan->region);
    assert(pages + plan->created <= plan->placement.new_pages);
    plan->create = plan->placement.new_pages - (uint32_t)pages;
}

/* Finds the place that lacks the fewest pages, over all regions of the kind. A region whose pages are of an older,
   smaller size counts only if it lacks none. */
static bool find_placement_locked(const struct sg_device *device, struct sg_want want, enum sg_placement_goal goal,
    struct sg_plan *plan) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    const struct sg_taker taker = {want.slot, want.aliases, SG_PLACE_NEAR};
    bool found = false;
    for (uint32_t i = 0; i < device->regions.count; i++) {
        struct sg_placement placement;
        if (!sg_device_suits_locked(device, i, want.purpose, want.units) ||
            !sg_region_find_placement_locked(device->regions.region[i], want.units, want.end == SG_END_HIGH, goal,
                taker, &placement))
            continue;
        if (placement.new_pages && !sg_mappings_grows_locked(device, i))
            continue;
        if (!found || placement.new_pages < plan->placement.new_pages) {
            plan->placement = placement;
            plan->region = device->regions.region[i];
            found = true;
        }
    }
    return found;
}

/* Bytes of pages that could move to the place and leave an alias. */
static uint64_t shareable_bytes_locked(const struct sg_device *device, const struct sg_plan *plan) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    uint64_t bytes = 0;
    for (uint32_t i = 0; plan->aliases && i < device->regions.count; i++) {
        const struct sg_region *region = device->regions.region[i];
        uint64_t room = sg_alias_room_locked(device, region) * sg_region_page_bytes(region), more;
        if (region->page_units != plan->region->page_units || room <= bytes)
            continue;
        more = sg_region_shareable_pages_locked(region, plan->slot) * sg_region_page_bytes(region);
        bytes += more < room - bytes ? more : room - bytes;
    }
    return bytes;
}

/* True if `must` bytes can be moved as far as idle pages go. The idle pages that the place itself stands on are no
   source. */
static bool plan_is_feasible_locked(const struct sg_device *device, const struct sg_plan *plan, uint64_t must)
    SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    uint64_t needed = must + plan->placement.whole * sg_region_page_bytes(plan->region);
    return must == 0 || needed <= sg_device_idle_locked(device) ||
           needed <= sg_device_idle_locked(device) + shareable_bytes_locked(device, plan);
}

/* How much of the plan's pages should, and must, be moved. */
static struct sg_wanted moves_of_locked(const struct sg_plan *plan) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&plan->device->lock);
    return sg_device_moves_wanted_locked(plan->device, plan->placement.new_pages * sg_region_page_bytes(plan->region),
        (uint64_t)plan->placement.units << SG_UNIT_SHIFT, plan->refused);
}

/* How much of the pages of a plan for overflow should be moved. There may be no room for new ones, and what is idle beyond the
   spare serves then. The rest may be the host's, so none must be moved. */
static struct sg_wanted near_moves_locked(const struct sg_plan *plan) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&plan->device->lock);
    uint64_t page = sg_region_page_bytes(plan->region), need = plan->placement.new_pages * page,
             room = sg_device_spared_room_locked(plan->device, 0),
             most = sg_device_spared_room_locked(plan->device, sg_device_idle_locked(plan->device));
    uint64_t near = (need < most ? need : most) / page * page;
    return (struct sg_wanted){.should = near > room ? near - room : 0};
}

/* Chooses the place, and how much of it is moved.

   The place with the fewest new pages costs least. But it may stand on idle pages that would have to move. So where
   that cannot be done, or where few idle pages are left, the place with the fewest new and idle pages together is
   taken. The bounds of docs/bounds.md rest on that. */
static CUresult choose_placement_locked(const struct sg_device *device, struct sg_want want, struct sg_plan *plan,
    struct sg_wanted *ret) SG_REQUIRES(lock) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->lock);
    SG_ASSERT_HELD(&device->growth.grow);
    if (!find_placement_locked(device, want, SG_FEWEST_NEW_PAGES, plan))
        return CUDA_ERROR_NOT_FOUND;
    if (plan->parts.overflow) {
        *ret = near_moves_locked(plan);
        return CUDA_SUCCESS;
    }
    struct sg_wanted wanted = moves_of_locked(plan);
    /* With few idle pages left, moving them would leave parts of pages that no later block might fit. */
    bool scarce = wanted.should && sg_device_idle_locked(device) < device->accounts.usage.reserved.now / SG_SCARCE_SHARE;
    if ((scarce && !sg_device_is_shared_locked(device, want.slot)) ||
        !plan_is_feasible_locked(device, plan, wanted.should)) {
        find_placement_locked(device, want, SG_FEWEST_PAGES_TOTAL, plan);
        wanted = moves_of_locked(plan);
    }
    if (plan->refused && !plan_is_feasible_locked(device, plan, wanted.must)) { /* the driver may have more by now */
        plan->refused = false;
        wanted = moves_of_locked(plan);
    }
    *ret = wanted;
    return plan_is_feasible_locked(device, plan, wanted.must) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

bool sg_plan_part(struct sg_plan *plan, uint32_t near, enum sg_place first)
{
    struct sg_plan_parts *parts = &plan->parts;
    uint32_t left = plan->create - near, create[SG_PLACES] = {near};
    for (enum sg_place place = SG_PLACE_PEER; place < SG_PLACES; place++) {
        create[place] = place < first ? parts->create[place] : parts->most[place];
        create[place] = create[place] < left ? create[place] : left;
        left -= create[place];
    }
    if (left)
        return false;
    memcpy(parts->create, create, sizeof create);
    return true;
}

/* Takes idle far pages for what a plan lacks beyond `near` new ones of the device. */
static void take_far_pages_locked(struct sg_plan *plan, uint32_t near) SG_REQUIRES(lock) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&plan->device->lock);
    SG_ASSERT_HELD(&plan->device->growth.grow);
    uint64_t page = sg_region_page_bytes(plan->region);
    plan->parts.moved[SG_PLACE_NEAR] = plan->placement.new_pages - plan->create;
    for (enum source source = OF_PEER; source <= OF_HOST && plan->create > near; source++) {
        uint64_t got = take_from_locked(plan, (plan->create - near) * page, source);
        plan->parts.moved[source_place(source)] = (uint32_t)(got / page);
        settle_creates(plan);
    }
}

/* Parts the pages that a plan for overflow lacks yet. New ones of the device come first, as far as there is
   room. The others are far ones, idle ones before new ones. False: that is more than may be. A plan for
   anything else has no far ones. */
static bool part_pages_locked(struct sg_plan *plan) SG_REQUIRES(lock) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&plan->device->lock);
    SG_ASSERT_HELD(&plan->device->growth.grow);
    struct sg_device *device = plan->device;
    if (!plan->parts.overflow)
        return true;
    const struct sg_far_bound *far = device->growth.far;
    uint64_t page = sg_region_page_bytes(plan->region);
    uint64_t near = (sg_device_spared_room_locked(device, 0) + taken_bytes(plan, /* own_size */ false)) / page;
    near = near < plan->create ? near : plan->create;
    for (enum sg_place place = SG_PLACE_PEER; place < SG_PLACES; place++)
        plan->parts.most[place] = far[place].most / page < UINT32_MAX ? (uint32_t)(far[place].most / page) : UINT32_MAX;
    take_far_pages_locked(plan, (uint32_t)near);
    if (sg_plan_part(plan, (uint32_t)near, SG_PLACE_PEER))
        return true;
    device->room.overflow_lacks.peer = far[SG_PLACE_PEER].lack;
    device->room.overflow_lacks.host = far[SG_PLACE_HOST].lack;
    return false;
}

CUresult sg_plan_make_locked(struct sg_device *device, struct sg_want want, struct sg_plan *ret)
{
    SG_ASSERT_HELD(&device->lock);
    SG_ASSERT_HELD(&device->growth.grow);
    struct sg_plan plan = {.device = device,
        .slot = want.slot,
        .aliases = want.aliases,
        .refused = want.refused,
        .parts.overflow = sg_purpose_kind(want.purpose) == SG_KIND_OVERFLOW};
    struct sg_wanted wanted;
    /* Places are priced by free ranges, so everything that can join does so first. Page sizes are looked at before a
       place is chosen, since that may rule a region out. */
    sg_device_drain_quick_lists_locked(device);
    sg_device_coalesce_completed_locked(device);
    sg_mappings_watch_locked(device);
    CUresult result = choose_placement_locked(device, want, &plan, &wanted);
    if (result != CUDA_SUCCESS)
        return result;
    if (!sg_scratch_reserve(&device->growth.handles, plan.placement.new_pages, sizeof *plan.handles))
        return CUDA_ERROR_OUT_OF_MEMORY;
    plan.handles = device->growth.handles.memory;
    /* The place is claimed before runs are cut, so that no run is taken out of the place itself. */
    plan.busy = sg_region_claim_locked(plan.region, &plan.placement);
    if (!plan.busy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const struct sg_extent *extent = &device->regions.extents.extent[plan.busy];
    plan.first_page = extent->begin / plan.region->page_units;
    plan.last_page = (extent->begin + extent->size - 1) / plan.region->page_units;
    uint64_t got = wanted.should ? take_free_pages_locked(&plan, wanted.should) : 0;
    settle_creates(&plan);
    if (got < wanted.must || !part_pages_locked(&plan)) {
        sg_plan_abandon_locked(&plan);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret = plan;
    return CUDA_SUCCESS;
}

bool sg_plan_continue_with_idle_locked(struct sg_plan *plan)
{
    SG_ASSERT_HELD(&plan->device->growth.grow);
    SG_ASSERT_HELD(&plan->device->lock);
    assert(plan->created < plan->create);
    struct sg_device *device = plan->device;
    /* Pages of another size that were taken go back to the driver when the plan goes on. So they count as memory that
       it can have: one large page may need both such pages and what the driver still has. */
    uint64_t missing = (plan->create - plan->created) * sg_region_page_bytes(plan->region);
    uint64_t held = device->accounts.usage.reserved.now - taken_bytes(plan, /* own_size */ false) +
                    device->room.outside_bytes;
    uint64_t left = device->total_bytes > held ? device->total_bytes - held : 0;
    sg_device_drain_quick_lists_locked(device);
    uint64_t got = take_free_pages_locked(plan, missing);
    if (got == 0 || got + left < missing)
        return false;
    settle_creates(plan);
    return true;
}

/* Counts the pages of a run as moved. */
static void count_moved(struct sg_device *device, const struct sg_page_run *run)
{
    sg_count(device, SG_STAT_pages_moved, run->pages);
    sg_count(device, SG_STAT_bytes_moved, run->pages * sg_region_page_bytes(run->region));
}

/* Ends the runs: those unmapped are holes now, the others free again. A run that left an alias stays busy until it is
   unmapped. */
static void settle_runs_locked(struct sg_plan *plan, bool moved) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&plan->device->lock);
    struct sg_device *device = plan->device;
    for (uint32_t i = 0; i < plan->run_count; i++) {
        struct sg_page_run *run = &plan->runs[i];
        /* The pages of an alias count at their new place from here on, and the run's extent goes to the queue of
           aliases. */
        if (run->alias && moved) {
            count_moved(device, run);
            sg_device_count_pages_locked(device, run->region, -(int64_t)run->pages);
        } else if (run->unmapped) {
            sg_device_uncount_far_locked(device, run->region, run->first, run->pages);
            for (uint32_t page = run->first; page < run->first + run->pages; page++)
                run->region->memory.handle[page] = run->lost ? SG_PAGE_LOST : 0;
            sg_device_count_pages_locked(device, run->region, -(int64_t)run->pages);
            if (moved)
                count_moved(device, run);
            if (!run->lost)
                sg_region_cut_done_locked(run->region, run->busy);
        } else {
            sg_region_cut_undone_locked(run->region, run->busy);
        }
    }
}

/* Charges the estimated cost of a plan's calls (driver/cost.h) to growing or to moving. A page that was made anew
   because one of another size was given up counts as moved. */
static void charge_plan_locked(struct sg_device *device, const struct sg_plan *plan) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    uint64_t anew = plan->releases < plan->created ? plan->releases : plan->created,
             moved = plan->placement.new_pages - plan->created + anew;
    uint64_t grown = plan->created - anew, devices = sg_mappings_devices(device);
    uint64_t moves = sg_cost_ns(device->accounts.cost, SG_COST_map, moved, moved) +
                     sg_cost_ns(device->accounts.cost, SG_COST_create, anew, anew) +
                     sg_cost_ns(device->accounts.cost, SG_COST_set_access, moved ? plan->accesses : 0, moved * devices) +
                     sg_cost_ns(device->accounts.cost, SG_COST_unmap, plan->unmaps, plan->unmapped) +
                     sg_cost_ns(device->accounts.cost, SG_COST_release, plan->releases, plan->releases);
    uint64_t growth = sg_cost_ns(device->accounts.cost, SG_COST_create, grown, grown) +
                      sg_cost_ns(device->accounts.cost, SG_COST_map, grown, grown) +
                      sg_cost_ns(device->accounts.cost, SG_COST_set_access, moved ? 0 : plan->accesses, grown * devices);
    sg_count(device, SG_STAT_move_cost_ns, moves);
    sg_count(device, SG_STAT_growth_cost_ns, growth);
}

/* Notes the aliases of the runs that left one. It comes once plan->handles has the new page numbers. Each moved page
   also gets a new time. A stream that is ordered after the taking stream's present is ordered after all work at the
   alias too. */
static void keep_aliases_locked(struct sg_plan *plan) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&plan->device->lock);
    uint32_t next = plan->created;
    uint64_t now = 0;
    for (uint32_t i = 0; i < plan->run_count; i++) {
        const struct sg_page_run *run = &plan->runs[i];
        if (run->region->page_units != plan->region->page_units)
            continue;
        if (run->alias) {
            sg_alias_note_slot(plan->device, plan->slot);
            sg_alias_keep_locked(plan->device, run, plan->region, plan->handles + next);
            now = now ? now : sg_clocks_tick_locked(plan->device);
            for (uint32_t page = 0; page < run->pages; page++)
                plan->region->memory.after[plan->handles[next + page]] =
                    (struct sg_after){UINT64_C(1) << plan->slot, now};
        }
        next += run->pages;
    }
}

enum sg_place sg_plan_place_of(const struct sg_plan *plan, uint32_t index)
{
    bool moved = index >= plan->create;
    const uint32_t *pages = moved ? plan->parts.moved : plan->parts.create;
    uint32_t end = moved ? plan->create : 0;
    enum sg_place place = SG_PLACE_NEAR;
    while (plan->parts.overflow && place + 1 < SG_PLACES && index >= (end += pages[place]))
        place++;
    return place;
}

/* Accounts for far pages that a plan has brought to its region. */
static void count_far_locked(struct sg_plan *plan, const uint32_t count[SG_PLACES]) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&plan->device->lock);
    struct sg_usage *usage = &plan->device->accounts.usage;
    uint64_t page = sg_region_page_bytes(plan->region), far = (uint64_t)count[SG_PLACE_PEER] + count[SG_PLACE_HOST];
    plan->region->memory.far_pages += (uint32_t)far;
    sg_gauge_add(&usage->overflow, far * page);
    sg_gauge_add(&usage->overflow_peer, count[SG_PLACE_PEER] * page);
}

uint32_t sg_plan_commit_locked(struct sg_plan *plan)
{
    SG_ASSERT_HELD(&plan->device->lock);
    struct sg_device *device = plan->device;
    struct sg_region *region = plan->region;
    uint32_t next = 0, count[SG_PLACES] = {0};
    settle_runs_locked(plan, /* moved */ true);
    /* The pages in hand are mapped into the gaps in order, so they are noted in that order too. A new page has no
       past. */
    for (uint32_t page = plan->first_page; page <= plan->last_page; page++)
        if (!region->memory.handle[page]) {
            region->memory.handle[page] = plan->handles[next];
            region->memory.after[page] = (struct sg_after){0};
            region->memory.place[page] = (uint8_t)sg_plan_place_of(plan, next);
            count[region->memory.place[page]]++;
            plan->handles[next++] = page;
        }
    assert(next == plan->placement.new_pages);
    keep_aliases_locked(plan);
    count_far_locked(plan, count);
    sg_device_count_pages_locked(device, region, next);
    charge_plan_locked(device, plan);
    sg_count(device, SG_STAT_grows, 1);
    sg_count(device, SG_STAT_pages_created, plan->created);
    return sg_region_commit_locked(region, plan->busy, &plan->placement, plan->slot);
}

void sg_plan_abandon_locked(struct sg_plan *plan)
{
    SG_ASSERT_HELD(&plan->device->lock);
    settle_runs_locked(plan, /* moved */ false);
    sg_region_abandon_locked(plan->region, plan->busy, plan->slot, sg_clocks_tick_locked(plan->device));
}
