/* From below. First come the steps of a plan, in the order of sg_plan_execute_growing(), and those of an undo. The last
   part gives idle pages back, which go to no other place. Every function here has `grow`, so the extents that it works
   on are busy and its plan is the only one. */
#include "core/remap/execute.h"

#include <assert.h>

#include "core/remap/page_calls.h"
#include "core/state/accounts.h"
#include "core/state/replay_steps.h"

/* True if the pages of a run go to the place as they are. */
static bool run_transfers(const struct sg_plan *plan, const struct sg_page_run *run)
{
    return run->region->page_units == plan->region->page_units;
}

/* Unmaps a run's pages by one call, and notes that for the plan's end. A run that the driver refused stays as it was. */
static CUresult unmap_run_growing(struct sg_plan *plan, struct sg_page_run *run) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&plan->device->growth.grow);
    CUresult result = sg_page_calls_unmap_growing(plan->device, run->region, run->first, run->pages);
    if (result != CUDA_SUCCESS)
        return result;
    plan->unmaps++;
    plan->unmapped += run->pages;
    run->unmapped = true;
    return CUDA_SUCCESS;
}

/* Pages of another size cannot be used as they are: they go back to the driver, which makes room for new ones. */
static CUresult release_runs_growing(struct sg_plan *plan) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&plan->device->growth.grow);
    for (uint32_t i = 0; i < plan->run_count; i++) {
        struct sg_page_run *run = &plan->runs[i];
        if (run->unmapped || run_transfers(plan, run))
            continue;
        CUresult result = unmap_run_growing(plan, run);
        if (result != CUDA_SUCCESS)
            return result;
        /* A run that was released before the driver refused a page stays so: its pages can't come back, and the
           plan's end makes a hole of it. */
        for (uint32_t page = run->first; page < run->first + run->pages; page++)
            sg_page_calls_release_growing(plan->device, run->region->memory.handle[page]);
        plan->releases += run->pages;
    }
    return CUDA_SUCCESS;
}

/* A place has refused a page of a plan for overflow, so it gets no further ones. True: the places behind it may
   have the rest. */
static bool part_anew_growing(struct sg_plan *plan, enum sg_place place) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&plan->device->growth.grow);
    struct sg_plan_parts *parts = &plan->parts;
    uint32_t near = place == SG_PLACE_NEAR ? plan->created : parts->create[SG_PLACE_NEAR];
    if (place == SG_PLACE_PEER)
        parts->create[place] = plan->created - near;
    return place < SG_PLACE_HOST && sg_plan_part(plan, near, place + 1);
}

/* Creates the pages that the plan lacks. A second call goes on where the first was refused. A plan for overflow
   goes on at the next place where one has no more. */
static CUresult create_pages_growing(struct sg_plan *plan) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&plan->device->growth.grow);
    uint64_t page = sg_region_page_bytes(plan->region);
    while (plan->created < plan->create) {
        enum sg_place place = sg_plan_place_of(plan, plan->created);
        CUresult result = sg_page_calls_create_at_growing(plan->device, place, page, &plan->handles[plan->created]);
        plan->created += result == CUDA_SUCCESS;
        bool out = result == CUDA_ERROR_OUT_OF_MEMORY ||
                   (place == SG_PLACE_PEER && result != CUDA_SUCCESS && !sg_driver_is_sticky(result));
        if (result != CUDA_SUCCESS && !(out && plan->parts.overflow && part_anew_growing(plan, place)))
            return result;
    }
    return CUDA_SUCCESS;
}

enum { PEERS_SHIFT = 32 }; /* of another device's pages, over the host's, in the record of what was created elsewhere */

/* The plan has parted the pages by the books. The driver may have had less, as others take memory meanwhile. So
   how many there are of each place stands in the trace, and a replay makes as many. */
static CUresult create_parted_pages_growing(struct sg_plan *plan) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&plan->device->growth.grow);
    struct sg_device *device = plan->device;
    const struct segalloc_trace_record *replayed = sg_replay_step(device);
    uint32_t *create = plan->parts.create;
    uint64_t parted = (uint64_t)create[SG_PLACE_PEER] << PEERS_SHIFT | create[SG_PLACE_HOST];
    uint64_t far = sg_replay_step_outcome(replayed, SEGALLOC_TURN_ELSEWHERE, parted);
    uint64_t peer = far >> PEERS_SHIFT, host = (uint32_t)far;
    create[SG_PLACE_PEER] = peer < plan->create ? (uint32_t)peer : plan->create;
    create[SG_PLACE_HOST] = peer + host < plan->create ? (uint32_t)host : plan->create - create[SG_PLACE_PEER];
    create[SG_PLACE_NEAR] = plan->create - create[SG_PLACE_PEER] - create[SG_PLACE_HOST];
    CUresult result = create_pages_growing(plan);
    if (result != CUDA_SUCCESS)
        return result;
    sg_device_lock(device);
    sg_emit_step_locked(device, SEGALLOC_TURN_ELSEWHERE,
        (uint64_t)create[SG_PLACE_PEER] << PEERS_SHIFT | create[SG_PLACE_HOST]);
    sg_device_unlock(device);
    (void)sg_replay_step(device);
    return CUDA_SUCCESS;
}

/* The outcome of one undo. */
enum undone { AS_IT_WAS, GIVEN_BACK, LOST };
enum { UNDONE_SHIFT = 2 }; /* of the step's number, in the record of one that failed */

/* The outcome of an undo by the trace, where this is a replay, which *ret_replayed says. Only failures are recorded:
   a step that the trace does not name went well. */
static enum undone replayed_undone(const struct sg_device *device, uint32_t step, bool *ret_replayed)
{
    const struct segalloc_trace_record *replayed = sg_replay_step(device);
    *ret_replayed = replayed;
    bool failed = replayed && sg_replay_step_is(replayed, SEGALLOC_TURN_UNDONE) &&
        replayed->size >> UNDONE_SHIFT == step;
    uint64_t outcome = failed ? replayed->size & ((1 << UNDONE_SHIFT) - 1) : AS_IT_WAS;
    return outcome <= LOST ? (enum undone)outcome : LOST;
}

/* Emits an undo that failed. */
static void emit_undone(struct sg_device *device, uint32_t step, enum undone outcome)
{
    if (outcome == AS_IT_WAS)
        return;
    sg_device_lock(device);
    sg_emit_step_locked(device, SEGALLOC_TURN_UNDONE, (uint64_t)step << UNDONE_SHIFT | outcome);
    sg_device_unlock(device);
}

/* Maps a run's pages where they were. GIVEN_BACK: that failed, and none of them is mapped there. LOST: some are, and
   do not go away. */
static enum undone map_again_growing(struct sg_device *device, const struct sg_page_run *run) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    uint32_t page = run->first, end = run->first + run->pages;
    while (page < end && sg_page_calls_map_growing(device, run->region, page, run->region->memory.handle[page]) == CUDA_SUCCESS)
        page++;
    if (page == end && sg_page_calls_access_growing(device, run->region, run->first, run->pages) == CUDA_SUCCESS)
        return AS_IT_WAS;
    bool gone = page == run->first ||
                sg_page_calls_unmap_growing(device, run->region, run->first, page - run->first) == CUDA_SUCCESS;
    return gone ? GIVEN_BACK : LOST;
}

/* Puts a run's pages back where they were. Where even that fails they are given back to the driver, and their place
   is a hole or lost. */
static void restore_run_growing(struct sg_plan *plan, struct sg_page_run *run, uint32_t step) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&plan->device->growth.grow);
    struct sg_device *device = plan->device;
    bool replayed;
    enum undone outcome = replayed_undone(device, step, &replayed);
    if (!replayed)
        outcome = map_again_growing(device, run);
    run->unmapped = outcome != AS_IT_WAS;
    run->lost = outcome == LOST;
    for (uint32_t page = run->first; run->unmapped && page < run->first + run->pages; page++)
        sg_page_calls_release_growing(device, run->region->memory.handle[page]);
    emit_undone(device, step, outcome);
}

/* Unmaps the runs where they were, but for those that leave aliases, and takes their pages in hand. */
static CUresult take_pages_growing(struct sg_plan *plan) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&plan->device->growth.grow);
    uint32_t next = plan->created;
    for (uint32_t i = 0; i < plan->run_count; i++) {
        struct sg_page_run *run = &plan->runs[i];
        if (!run_transfers(plan, run))
            continue;
        /* A run that leaves an alias stays mapped: its handles are mapped at the place as well. */
        if (!run->alias) {
            CUresult result = unmap_run_growing(plan, run);
            if (result != CUDA_SUCCESS)
                return result;
        }
        for (uint32_t page = run->first; page < run->first + run->pages; page++)
            plan->handles[next++] = run->region->memory.handle[page];
    }
    assert(next == plan->placement.new_pages);
    return CUDA_SUCCESS;
}

/* Finds the next gap of the place from page *first on, and sets *first to where it begins. Returns its length in
   pages; 0: there is none. */
static uint32_t next_gap_growing(const struct sg_plan *plan, uint32_t *first) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&plan->device->growth.grow);
    const CUmemGenericAllocationHandle *handle = plan->region->memory.handle;
    while (*first <= plan->last_page && handle[*first])
        ++*first;
    uint32_t end = *first;
    while (end <= plan->last_page && !handle[end])
        end++;
    return end - *first;
}

/* Maps the pages in hand into the gaps, in order, and gives access gap by gap. */
static CUresult map_placement_growing(struct sg_plan *plan) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&plan->device->growth.grow);
    uint32_t next = 0, length;
    for (uint32_t first = plan->first_page; (length = next_gap_growing(plan, &first)) > 0; first += length) {
        for (uint32_t page = first; page < first + length; page++) {
            CUresult result = sg_page_calls_map_growing(plan->device, plan->region, page, plan->handles[next++]);
            if (result != CUDA_SUCCESS)
                return result;
            plan->mapped++;
        }
        /* One call for the whole gap, because access costs by the call more than by the page. */
        plan->accesses++;
        CUresult result = sg_page_calls_access_growing(plan->device, plan->region, first, length);
        if (result != CUDA_SUCCESS)
            return result;
    }
    return CUDA_SUCCESS;
}

bool sg_plan_lacked_access_growing(const struct sg_plan *plan)
{
    SG_ASSERT_HELD(&plan->device->growth.grow);
    uint32_t mapped = 0, length;
    for (uint32_t first = plan->first_page; mapped < plan->mapped && (length = next_gap_growing(plan, &first)) > 0;
         first += length)
        mapped += length;
    return mapped > 0 && mapped == plan->mapped;
}

/* Unmaps what was mapped at the place, gap by gap. *step counts the undos so far, by which the trace names them. */
static void unmap_placement_growing(struct sg_plan *plan, uint32_t *step) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&plan->device->growth.grow);
    struct sg_device *device = plan->device;
    uint32_t mapped = plan->mapped;
    for (uint32_t first = plan->first_page, length; mapped; first += length) {
        /* The last gap may be mapped in part. */
        length = next_gap_growing(plan, &first);
        uint32_t pages = length < mapped ? length : mapped;
        assert(pages > 0);
        bool replayed;
        enum undone outcome = replayed_undone(device, *step, &replayed);
        if (!replayed)
            outcome = sg_page_calls_unmap_growing(device, plan->region, first, pages) == CUDA_SUCCESS ? AS_IT_WAS : LOST;
        for (uint32_t page = first; outcome != AS_IT_WAS && page < first + pages; page++)
            plan->region->memory.handle[page] = SG_PAGE_LOST;
        emit_undone(device, (*step)++, outcome);
        mapped -= pages;
    }
}

CUresult sg_plan_execute_growing(struct sg_plan *plan)
{
    SG_ASSERT_HELD(&plan->device->growth.grow);
    /* A plan may be carried out a second time, after sg_plan_continue_with_idle_locked(). Runs and pages that are
       done are passed over. */
    plan->mapped = 0;
    CUresult result = release_runs_growing(plan);
    if (result == CUDA_SUCCESS)
        result = plan->parts.overflow ? create_parted_pages_growing(plan) : create_pages_growing(plan);
    if (result != CUDA_SUCCESS)
        return result;
    result = take_pages_growing(plan);
    if (result == CUDA_SUCCESS)
        result = map_placement_growing(plan);
    return result;
}

void sg_plan_undo_growing(struct sg_plan *plan)
{
    SG_ASSERT_HELD(&plan->device->growth.grow);
    /* The place first: a page must be unmapped there before it can be mapped where it was, as a plain move has it at
       one address. */
    uint32_t step = 0;
    unmap_placement_growing(plan, &step);
    for (uint32_t i = 0; i < plan->run_count; i++)
        if (plan->runs[i].unmapped && run_transfers(plan, &plan->runs[i]))
            restore_run_growing(plan, &plan->runs[i], step++);
}

void sg_plan_drop_created_growing(struct sg_plan *plan)
{
    SG_ASSERT_HELD(&plan->device->growth.grow);
    for (uint32_t i = 0; i < plan->created; i++)
        sg_page_calls_release_growing(plan->device, plan->handles[i]);
    plan->created = 0;
}

/* Cuts one run of idle pages of a place out of a region, enough for `bytes` at most. False: it has none. */
static bool cut_idle_locked(struct sg_region *region, uint64_t bytes, enum sg_place place, struct sg_page_run *ret)
    SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    uint64_t page = sg_region_page_bytes(region), want = bytes / page + (bytes % page != 0);
    struct sg_page_run run = {.region = region};
    if (region->lookup.whole_free)
        run.pages =
            sg_region_cut_locked(region, want < UINT32_MAX ? (uint32_t)want : UINT32_MAX, place, &run.first, &run.busy);
    if (run.pages)
        *ret = run;
    return run.pages;
}

/* Unmaps and releases a run that was cut out: it is a hole then. Where the driver refuses it is free again, and false
   is returned. */
static bool give_back_run_growing(struct sg_device *device, const struct sg_page_run *run) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    struct sg_region *region = run->region;
    const struct segalloc_trace_record *replayed = sg_replay_step(device);
    /* A replay calls the driver too, since its ledger keeps books, but goes by the recorded answer. */
    bool unmapped = sg_page_calls_unmap_growing(device, region, run->first, run->pages) == CUDA_SUCCESS;
    unmapped = sg_replay_step_outcome(replayed, SEGALLOC_TURN_GIVEN, unmapped);
    if (unmapped)
        sg_page_calls_release_row_growing(device, region, run->first, run->pages);
    sg_device_lock(device);
    if (unmapped) {
        for (uint32_t page = run->first; page < run->first + run->pages; page++)
            region->memory.handle[page] = 0;
        sg_device_count_pages_locked(device, region, -(int64_t)run->pages);
        if (sg_device_uncount_far_locked(device, region, run->first, run->pages) < run->pages)
            device->room.refused_at = 0; /* the driver has a page again */
        sg_region_cut_done_locked(region, run->busy);
        sg_count(device, SG_STAT_move_cost_ns,
            sg_cost_ns(device->accounts.cost, SG_COST_unmap, 1, run->pages) +
                sg_cost_ns(device->accounts.cost, SG_COST_release, run->pages, run->pages));
    } else {
        sg_region_cut_undone_locked(region, run->busy);
    }
    sg_emit_step_locked(device, SEGALLOC_TURN_GIVEN, unmapped);
    sg_usage_derive_locked(device);
    sg_device_unlock(device);
    return unmapped;
}

/* Gives one run of idle pages of a place back. It is out of `only`, or with NULL out of the last region that
   has any. Returns its bytes; 0: there is none, or the driver refused. */
static uint64_t give_back_one_growing(struct sg_device *device, struct sg_region *only, uint64_t bytes,
    enum sg_place place) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    struct sg_page_run run = {0};
    bool found = false;
    (void)sg_replay_step(device);
    sg_device_lock(device);
    (void)(only ? sg_region_drain_quick_lists_locked(only) : sg_device_drain_quick_lists_locked(device));
    for (uint32_t i = device->regions.count; i > 0 && !found; i--)
        found = (!only || only == device->regions.region[i - 1]) &&
                cut_idle_locked(device->regions.region[i - 1], bytes, place, &run);
    sg_emit_step_locked(device, SEGALLOC_TURN_CUT, run.pages);
    sg_device_unlock(device);
    return found && give_back_run_growing(device, &run) ? run.pages * sg_region_page_bytes(run.region) : 0;
}

uint64_t sg_device_give_back_growing(struct sg_device *device, uint64_t bytes)
{
    SG_ASSERT_HELD(&device->growth.grow);
    /* Aliases first: a page that has one is not unmapped, so it would not count as idle. */
    uint64_t given = 0, part = 1;
    sg_alias_unmap_completed_growing(device);
    while (given < bytes && part > 0) {
        part = give_back_one_growing(device, NULL, bytes - given, SG_PLACE_NEAR);
        given += part;
    }
    return given;
}

uint64_t sg_device_give_back_place_growing(struct sg_device *device, enum sg_place place)
{
    SG_ASSERT_HELD(&device->growth.grow);
    uint64_t given = 0, part;
    while ((part = give_back_one_growing(device, NULL, UINT64_MAX, place)) > 0)
        given += part;
    return given;
}

bool sg_device_has_peer_pages(struct sg_device *device)
{
    sg_device_lock(device);
    bool has = device->accounts.usage.overflow_peer.now > 0;
    sg_device_unlock(device);
    return has;
}

void sg_device_give_back_far_growing(struct sg_device *device)
{
    SG_ASSERT_HELD(&device->growth.grow);
    for (enum sg_place place = SG_PLACE_HOST; place > SG_PLACE_NEAR; place--)
        if (place == SG_PLACE_HOST || sg_device_has_peer_pages(device))
            (void)sg_device_give_back_place_growing(device, place);
}

/* sg_device_retire_huge() for a thread that has `grow`. */
static void retire_growing(struct sg_device *device, struct sg_region *region) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    (void)sg_replay_step(device);
    sg_device_lock(device);
    sg_region_drain_quick_lists_locked(region);
    /* Another thread may have made the next huge block of the region meanwhile, or its last block may be pending. */
    bool idle = region->lookup.whole_free == region->pages && !region->memory.pinned;
    sg_emit_step_locked(device, SEGALLOC_TURN_RETIRE, idle);
    sg_device_unlock(device);
    if (idle)
        (void)give_back_one_growing(device, region, UINT64_MAX, SG_PLACE_NEAR);
}

void sg_device_retire_huge(struct sg_device *device, struct sg_region *region)
{
    sg_replay_grow_lock(device);
    retire_growing(device, region);
    sg_grow_unlock(device);
}
