#include "plan.h"

#include <assert.h>
#include <string.h>

#include "alias.h"
#include "mappings.h"
#include "meta.h"
#include "sew.h"

enum { SCRATCH_LEAST = 1 << 16 };

/* While there is room a program that grows by a page or two at a time is given some ahead, since one call gives access
   to all of them: where there has been more than one call to PAGES_AN_ACCESS granules, TOGETHER at a time, but not more
   ahead than that share of what is held. */
enum { PAGES_AN_ACCESS = 4, TOGETHER = 8, AHEAD_SHARE = 256 };

/* The thrash guard: a bucket of tokens that fills by one an allocation. Moves are paid in driver time by the cost table
   (cost.def), TOKEN_NS a token. */
enum { TOKEN_NS = 500, TOKENS_MOST = 1 << 18 };

/* Pages are scarce while less than this part of what is held could be had besides those that are wanted. At a slack
   that the user has fixed, where moves may cost anything, that is what is free. Else it is what is free or may still be
   made, and with fewer tokens than TOKENS_AMPLE the part is smaller: who has few keeps them for the last pages. */
enum { SCARCE_SHARE_FIXED = 4, SCARCE_SHARE = 16, TOKENS_AMPLE = 1 << 15 };

static uint64_t page_bytes(const struct sg_region *region)
{
    return (uint64_t)region->page_units << SG_UNIT_SHIFT;
}

/* Makes room for `count` elements in scratch memory that only grows; keeps what is there. False: no host memory. */
static bool room_for(struct sg_scratch *scratch, size_t count, size_t size)
{
    if (count * size <= scratch->bytes)
        return true;
    size_t bytes = scratch->bytes ? scratch->bytes : SCRATCH_LEAST;
    while (bytes < count * size)
        bytes *= 2;
    void *memory = sg_meta_map(bytes);
    if (!memory)
        return false;
    if (scratch->bytes)
        memcpy(memory, scratch->memory, scratch->bytes);
    sg_meta_unmap(scratch->memory, scratch->bytes);
    *scratch = (struct sg_scratch){memory, bytes};
    return true;
}

static bool room_for_run(struct sg_plan *plan)
{
    bool room = room_for(&plan->device->runs, plan->run_count + 1, sizeof *plan->runs);
    plan->runs = plan->device->runs.memory;
    return room;
}

static uint64_t transferable(const struct sg_plan *plan)
{
    uint64_t pages = 0;
    for (uint32_t i = 0; i < plan->run_count; i++)
        if (plan->runs[i].region->page_units == plan->region->page_units)
            pages += plan->runs[i].pages;
    return pages;
}

/* Bytes of pages of another size, which go back to the driver before the place's own are made. */
static uint64_t given_back(const struct sg_plan *plan)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan->run_count; i++)
        if (plan->runs[i].region->page_units != plan->region->page_units)
            bytes += plan->runs[i].pages * page_bytes(plan->runs[i].region);
    return bytes;
}

/* Where pages are taken from. */
enum source {
    COMPLETE,  /* of the size that the place needs */
    ANEW,      /* of another size: released and made anew */
    TWICE,     /* such as must keep their address for now */
    SOURCES
};

/* How many of a region's pages may get a second address, besides those that the plan gives one already. */
static uint64_t alias_room(const struct sg_plan *plan, const struct sg_region *region)
{
    uint64_t room = sg_alias_room(plan->device, region), taken = plan->place.head + plan->place.tail;
    for (uint32_t i = 0; i < plan->run_count; i++)
        taken += plan->runs[i].alias ? plan->runs[i].pages : 0;
    return room > taken ? room - taken : 0;
}

/* How many of a region's pages may be had from a source, of `bytes`. */
static uint32_t pages_wanted(const struct sg_plan *plan, const struct sg_region *region, uint64_t bytes,
    enum source source)
{
    bool same = region->page_units == plan->region->page_units;
    uint64_t page = page_bytes(region), want = (bytes + page - 1) / page,
             most = source == TWICE ? alias_room(plan, region) : UINT32_MAX;
    if (same == (source == ANEW) || region->whole_free == 0)
        return 0;
    return (uint32_t)(want < most ? want : most);
}

/* Cuts one run of at most `bytes` out of the free pages of a source. Returns its bytes; 0: there are none. */
static uint64_t take_run(struct sg_plan *plan, uint64_t bytes, enum source source)
{
    struct sg_device *device = plan->device;
    struct sg_source best = {0};
    struct sg_run run = {.alias = source == TWICE};
    for (uint32_t i = 0; i < device->region_count; i++) {
        uint32_t want = pages_wanted(plan, device->region[i], bytes, source);
        if (want && sg_region_find_source(device->region[i], want,
                        (struct sg_taker){.slot = plan->slot, .aliases = run.alias}, &best))
            run.region = device->region[i];
    }
    if (!run.region || !room_for_run(plan))
        return 0;
    uint32_t want = pages_wanted(plan, run.region, bytes, source);
    run.pages = best.pages < want ? best.pages : want;
    run.busy = sg_region_cut_source(run.region, &best, want, &run.first);
    if (!run.busy)
        return 0;
    plan->runs[plan->run_count++] = run;
    return run.pages * page_bytes(run.region);
}

static uint64_t take_from(struct sg_plan *plan, uint64_t bytes, enum source source)
{
    uint64_t got = 0, part;
    while (got < bytes && (part = take_run(plan, bytes - got, source)) > 0)
        got += part;
    return got;
}

/* Takes pages of which several streams have parts, all of which this one has come after. They get a second address. */
static uint64_t take_borders(struct sg_plan *plan, uint64_t bytes)
{
    struct sg_device *device = plan->device;
    uint64_t got = 0, page = page_bytes(plan->region);
    for (uint32_t i = 0; plan->aliases && i < device->region_count; i++) {
        struct sg_run run = {.region = device->region[i], .pages = 1, .alias = true};
        uint32_t from = 0;
        if (run.region->page_units != plan->region->page_units)
            continue;
        while (got < bytes && alias_room(plan, run.region) > 0 && room_for_run(plan) &&
               (run.busy = sg_region_cut_border(run.region, plan->slot, &from, &run.first)) != 0) {
            plan->runs[plan->run_count++] = run;
            got += page;
        }
    }
    return got;
}

/* Takes `bytes` of free pages. What is complete costs least; where other streams may want that, what they could not use
   goes first. Returns what could be had, which is more than `bytes` where the last page was larger than what was still
   wanted: pages of another size need not divide it. */
static uint64_t take(struct sg_plan *plan, uint64_t bytes)
{
    static const enum source alone[SOURCES] = {COMPLETE, ANEW, TWICE}, shared[SOURCES] = {TWICE, COMPLETE, ANEW};
    const enum source *source = sg_device_is_shared(plan->device, plan->slot) ? shared : alone;
    uint64_t got = 0;
    for (int i = 0; i < SOURCES && got < bytes; i++)
        if (source[i] != TWICE || plan->aliases)
            got += take_from(plan, bytes - got, source[i]);
    return got < bytes ? got + take_borders(plan, bytes - got) : got;
}

/* Sets create so that what is taken and what is created make up the place. No more pages of the place's own size are
   ever taken than it lacks: plan->handles has no room for others. */
static void settle(struct sg_plan *plan)
{
    uint64_t pages = transferable(plan);
    assert(pages + plan->created <= plan->place.new_pages);
    plan->create = plan->place.new_pages - (uint32_t)pages;
}

static bool find_place(const struct sg_device *device, struct sg_want want, enum sg_thrift thrift, bool later,
    struct sg_plan *plan)
{
    const struct sg_taker taker = {want.slot, want.aliases, later};
    bool found = false;
    for (uint32_t i = 0; i < device->region_count; i++) {
        struct sg_place place;
        if (!sg_device_suits(device, i, want.class, want.lane, want.units) ||
            !sg_region_find_place(device->region[i], want.units, want.end == SG_END_HIGH, thrift, taker, &place))
            continue;
        if (place.new_pages && !sg_mappings_grows(device, i))
            continue;
        if (!found || place.new_pages < plan->place.new_pages) {
            plan->place = place;
            plan->region = device->region[i];
            found = true;
        }
    }
    return found;
}

/* Bytes of pages that could get a second address for the place. */
static uint64_t shareable(const struct sg_device *device, const struct sg_plan *plan)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; plan->aliases && i < device->region_count; i++) {
        const struct sg_region *region = device->region[i];
        uint64_t room = sg_alias_room(device, region) * page_bytes(region), more;
        if (region->page_units != plan->region->page_units || room <= bytes)
            continue;
        more = sg_region_shareable_pages(region, plan->slot) + sg_region_border_pages(region, plan->slot);
        more *= page_bytes(region);
        bytes += more < room - bytes ? more : room - bytes;
    }
    return bytes;
}

/* Whether the place's pages can be had at all, as far as our own limit goes. */
static bool feasible(const struct sg_device *device, const struct sg_plan *plan, uint64_t must)
{
    uint64_t needed = must + plan->place.whole * page_bytes(plan->region);
    return must == 0 || needed <= sg_device_idle(device) || needed <= sg_device_idle(device) + shareable(device, plan);
}

static struct sg_wanted moves_of(const struct sg_plan *plan)
{
    return sg_device_moves_wanted(plan->device, plan->place.new_pages * page_bytes(plan->region),
        (uint64_t)plan->place.units << SG_UNIT_SHIFT, plan->refused);
}

static uint64_t pages_of(const struct sg_plan *plan, uint64_t bytes)
{
    return (bytes + page_bytes(plan->region) - 1) / page_bytes(plan->region);
}

/* Whether there are tokens for moving some pages to one place, likely from one or two others. What it did cost is paid
   in the end, so there may be less than nothing left. */
static bool is_affordable(const struct sg_device *device, uint64_t pages)
{
    uint64_t cost = pages * SG_COST_map + SG_COST_set_access + 2 * SG_COST_unmap;
    return device->move_tokens >= (int64_t)(cost / TOKEN_NS);
}

/* Pages to make beyond those that the place needs, for whoever comes next: only where nothing has to be moved for
   them. */
static uint32_t pages_ahead(const struct sg_plan *plan)
{
    const struct sg_device *device = plan->device;
    uint64_t page = page_bytes(plan->region), most = device->usage.reserved.now / AHEAD_SHARE / page;
    uint32_t needed = plan->place.new_pages, ahead = needed < TOGETHER ? TOGETHER - needed : 0;
    if (device->grown.accesses * PAGES_AN_ACCESS <= device->grown.pages)
        return 0;
    ahead = ahead < most ? ahead : (uint32_t)most;
    return needed && !plan->sewing.region && !device->refused_at && sg_device_is_roomy(device, (needed + ahead) * page)
               ? ahead
               : 0;
}

/* Whether there would be a place that takes fewer pages if old addresses were gone: beside them part of a page is free,
   which the block could begin or end in. It can do that elsewhere. */
static bool are_old_in_the_way(const struct sg_plan *plan, struct sg_want want)
{
    struct sg_plan later = {.device = plan->device, .place = plan->place};
    if (!plan->device->old.first)
        return false;
    (void)find_place(plan->device, want, SG_FEWEST_WHOLE, /* later */ true, &later); /* that of the plan is one */
    return later.place.new_pages + later.place.whole < plan->place.new_pages + plan->place.whole;
}

/* How much should be left for whoever comes next, where nothing but tokens bounds what is done for it. */
static uint64_t reserve_of(const struct sg_device *device)
{
    int64_t tokens = device->move_tokens < TOKENS_AMPLE ? device->move_tokens : TOKENS_AMPLE;
    return tokens > 0 ? device->usage.reserved.now / SCARCE_SHARE / TOKENS_AMPLE * (uint64_t)tokens : 0;
}

/* Whether there would be few pages left. */
static bool is_scarce(const struct sg_plan *plan, struct sg_wanted wanted)
{
    const struct sg_device *device = plan->device;
    uint64_t held = device->usage.reserved.now,
             room = device->capacity_bytes > held ? device->capacity_bytes - held : 0;
    uint64_t need = plan->place.new_pages * page_bytes(plan->region) + reserve_of(device);
    if (!wanted.should)
        return false;
    if (device->core->conf.reserve_slack != 0)
        return !feasible(device, plan, wanted.should + held / SCARCE_SHARE_FIXED);
    return !feasible(device, plan, need > room ? need - room : 0);
}

/* Whether to look for a place that borrows parts of pages, which costs about as much as moving them does: where pages
   are scarce, by itself only as long as tokens pay for it, or where the limit leaves no other way. Where a run-ahead
   alone keeps the block from such parts it does not take what is free elsewhere instead. */
static bool is_worth_sewing(const struct sg_plan *plan, struct sg_want want, struct sg_wanted wanted)
{
    /* all that it may touch would be moved, or borrowed */
    uint64_t pages = (plan->place.units - 1) / plan->region->page_units + 2;
    bool paid = plan->device->core->conf.reserve_slack != 0 || is_affordable(plan->device, pages);
    if (!feasible(plan->device, plan, wanted.must) || (paid && is_scarce(plan, wanted)))
        return true;
    return (wanted.must || (wanted.should && paid)) && are_old_in_the_way(plan, want);
}

/* Makes the plan one for such a place, where that saves pages. */
static bool sew(struct sg_plan *plan, const struct sg_want *want)
{
    struct sg_sewing sewing;
    if (!plan->device->core->conf.alias ||
        !sg_sew_find(plan->device, want, plan->place.new_pages + plan->place.whole, &sewing))
        return false;
    plan->sewing = sewing;
    plan->region = sewing.region;
    plan->place = sewing.place;
    return true;
}

/* The limit leaves no other way: whatever place takes the fewest pages, among whose blocks it may be and however soon
   those whose pages it borrows may be gone. */
static void find_anywhere(const struct sg_device *device, struct sg_want want, struct sg_plan *plan)
{
    static const enum sg_class large[] = {SG_CLASS_CROWD, SG_CLASS_REGULAR};
    if (want.class != SG_CLASS_CROWD && want.class != SG_CLASS_REGULAR)
        return;
    assert(device->page_bytes[SG_CLASS_CROWD] == device->page_bytes[SG_CLASS_REGULAR]);
    want.units = want.least;
    want.lane = SG_CROWD_LANES;
    for (uint32_t i = 0; i < sizeof large / sizeof *large; i++) {
        struct sg_plan other = {.device = plan->device, .slot = plan->slot, .aliases = plan->aliases,
            .refused = plan->refused};
        want.class = large[i];
        if (find_place(device, want, SG_FEWEST_WHOLE, /* later */ false, &other) &&
            other.place.new_pages + other.place.whole < plan->place.new_pages + plan->place.whole)
            *plan = other;
    }
    sew(plan, &want);
}

/* Where the block goes, and how many of its pages are to be taken from elsewhere. */
static CUresult choose_place(const struct sg_device *device, struct sg_want want, struct sg_plan *plan,
    struct sg_wanted *ret)
{
    /* Crowds stand close together: a block of one takes no whole page where the end of another's would do. */
    if (!find_place(device, want, want.class == SG_CLASS_CROWD ? SG_FEWEST_WHOLE : SG_FEWEST_NEW, /* later */ false,
            plan))
        return CUDA_ERROR_NOT_FOUND;
    struct sg_wanted wanted = moves_of(plan);
    if (!feasible(device, plan, wanted.should)) {
        find_place(device, want, SG_FEWEST_WHOLE, /* later */ false, plan);
        wanted = moves_of(plan);
    }
    if (is_worth_sewing(plan, want, wanted) && sew(plan, &want))
        wanted = moves_of(plan);
    if (!feasible(device, plan, wanted.must)) {
        find_anywhere(device, want, plan);
        wanted = moves_of(plan);
    }
    if (plan->refused && !feasible(device, plan, wanted.must)) { /* the driver may have more by now */
        plan->refused = false;
        wanted = moves_of(plan);
    }
    *ret = wanted;
    return feasible(device, plan, wanted.must) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sg_plan_make(struct sg_device *device, struct sg_want want, struct sg_plan *ret)
{
    struct sg_plan plan = {.device = device, .slot = want.slot, .aliases = want.aliases, .refused = want.refused};
    struct sg_wanted wanted;
    sg_device_flush(device);
    sg_device_tidy(device);
    sg_mappings_watch(device);
    CUresult result = choose_place(device, want, &plan, &wanted);
    if (result != CUDA_SUCCESS)
        return result;
    if (device->move_tokens > TOKENS_MOST)
        device->move_tokens = TOKENS_MOST;
    plan.paid = is_affordable(device, pages_of(&plan, wanted.should));
    if (device->core->conf.reserve_slack == 0 && wanted.should > wanted.must && !plan.paid) {
        sg_count(device, SG_STAT_thrash_backoffs, 1);
        wanted.should = wanted.must;
    }
    plan.place.ahead = want.refused ? 0 : pages_ahead(&plan);
    if (!room_for(&device->handles, plan.place.new_pages + plan.place.ahead, sizeof *plan.handles))
        return CUDA_ERROR_OUT_OF_MEMORY;
    plan.handles = device->handles.memory;
    plan.busy = sg_region_claim(plan.region, &plan.place);
    if (!plan.busy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sg_sew_lend(&plan.sewing);
    const struct sg_node *node = &device->nodes.node[plan.busy];
    plan.first_page = node->begin / plan.region->page_units;
    plan.last_page = (node->begin + node->size - 1) / plan.region->page_units;
    plan.place.ahead = plan.last_page - (plan.place.begin + plan.place.units - 1) / plan.region->page_units;
    plan.place.new_pages += plan.place.ahead;
    uint64_t got = wanted.should ? take(&plan, wanted.should) : 0;
    settle(&plan);
    if (got < wanted.must) {
        sg_plan_abandon(&plan);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret = plan;
    return CUDA_SUCCESS;
}

bool sg_plan_make_do(struct sg_plan *plan)
{
    assert(plan->created < plan->create);
    struct sg_device *device = plan->device;
    uint64_t missing = (plan->create - plan->created) * page_bytes(plan->region);
    uint64_t held = device->usage.reserved.now - given_back(plan) + device->outside_bytes;
    /* what the driver can still have: one large page may need both */
    uint64_t left = device->total_bytes > held ? device->total_bytes - held : 0;
    sg_device_flush(device);
    uint64_t got = take(plan, missing);
    if (got == 0 || got + left < missing)
        return false;
    settle(plan);
    plan->paid = false;
    return true;
}

/* What nobody could pay for takes what there is. */
static void spend(struct sg_device *device, uint64_t ns, bool paid)
{
    int64_t left = device->move_tokens - (int64_t)((ns + TOKEN_NS - 1) / TOKEN_NS);
    if (paid || device->move_tokens > 0)
        device->move_tokens = paid || left > 0 ? left : 0;
}

static void count_moved(struct sg_device *device, const struct sg_run *run, bool paid)
{
    sg_count(device, SG_STAT_pages_moved, run->pages);
    sg_count(device, SG_STAT_bytes_moved, run->pages * page_bytes(run->region));
    if (!paid)
        sg_count(device, SG_STAT_moves_forced, run->pages);
}

/* What became of the runs: those unmapped are holes now, the others free again. */
static void settle_runs(struct sg_plan *plan, bool moved)
{
    struct sg_device *device = plan->device;
    for (uint32_t i = 0; i < plan->run_count; i++) {
        struct sg_run *run = &plan->runs[i];
        if (run->alias && moved) {
            count_moved(device, run, plan->paid);
            sg_device_count_pages(device, run->region, -(int64_t)run->pages);
        } else if (run->unmapped) {
            for (uint32_t page = run->first; page < run->first + run->pages; page++)
                run->region->handle[page] = run->lost ? SG_PAGE_LOST : 0;
            sg_device_count_pages(device, run->region, -(int64_t)run->pages);
            if (moved)
                count_moved(device, run, plan->paid);
            if (!run->lost)
                sg_region_cut_done(run->region, run->busy);
        } else {
            sg_region_cut_undone(run->region, run->busy);
        }
    }
}

/* Charges a plan's calls to growing or to moving: a page made anew because one of another size was given up was moved,
   and mapping one that is borrowed saves making one. */
static void charge(struct sg_device *device, const struct sg_plan *plan)
{
    uint64_t anew = plan->releases < plan->created ? plan->releases : plan->created,
             moved = plan->place.new_pages - plan->created + anew;
    uint64_t sewn = plan->place.head + plan->place.tail;
    uint64_t late = sewn; /* old addresses, which are unmapped some time later */
    for (uint32_t i = 0; i < plan->run_count; i++)
        late += plan->runs[i].alias;
    uint64_t moves = (moved + sewn) * SG_COST_map + anew * SG_COST_create + plan->unmaps * (uint64_t)SG_COST_unmap +
                     plan->releases * (uint64_t)SG_COST_release;
    uint64_t growth = (plan->created - anew) * (SG_COST_create + SG_COST_map);
    if (!moved && !sewn) {
        device->grown.pages += plan->created * (page_bytes(plan->region) / device->granularity);
        device->grown.accesses += plan->accesses;
    }
    *(moved || sewn ? &moves : &growth) += plan->accesses * (uint64_t)SG_COST_set_access;
    sg_count(device, SG_STAT_move_cost_ns, moves);
    sg_count(device, SG_STAT_growth_cost_ns, growth);
    spend(device, moves + late * (uint64_t)SG_COST_unmap, plan->paid);
    if (!plan->paid)
        sg_count(device, SG_STAT_moves_forced, sewn);
}

/* Once plan->handles say at which pages of the place they are: those of runs with two addresses. Whoever comes after
   the present time of the stream that they are for has come after what was done at the old address. */
static void keep_aliases(struct sg_plan *plan)
{
    uint32_t next = plan->created;
    uint64_t now = 0;
    for (uint32_t i = 0; i < plan->run_count; i++) {
        const struct sg_run *run = &plan->runs[i];
        if (run->region->page_units != plan->region->page_units)
            continue;
        if (run->alias) {
            sg_alias_keep(plan->device, run, plan->region, plan->handles + next);
            now = now ? now : sg_order_tick(plan->device);
            for (uint32_t page = 0; page < run->pages; page++)
                plan->region->after[plan->handles[next + page]] = (struct sg_after){UINT64_C(1) << plan->slot, now};
        }
        next += run->pages;
    }
}

uint32_t sg_plan_commit(struct sg_plan *plan)
{
    struct sg_device *device = plan->device;
    struct sg_region *region = plan->region;
    uint32_t next = 0;
    settle_runs(plan, /* moved */ true);
    uint32_t first = plan->first_page + plan->place.head, end = plan->last_page + !plan->place.tail;
    for (uint32_t page = first; page < end; page++)
        if (!region->handle[page]) {
            region->handle[page] = plan->handles[next];
            region->after[page] = (struct sg_after){0};
            plan->handles[next++] = page;
        }
    assert(next == plan->place.new_pages);
    keep_aliases(plan);
    sg_device_count_pages(device, region, next);
    charge(device, plan);
    sg_count(device, SG_STAT_grows, 1);
    sg_count(device, SG_STAT_pages_created, plan->created);
    uint32_t block = sg_region_commit(region, plan->busy, &plan->place, plan->slot);
    sg_sew_commit(device, &plan->sewing, block);
    return block;
}

void sg_plan_abandon(struct sg_plan *plan)
{
    settle_runs(plan, /* moved */ false);
    sg_sew_undo(&plan->sewing);
    sg_region_abandon(plan->region, plan->busy, plan->slot, sg_order_tick(plan->device));
}
