/* Leaving and coming mirror each other. Each has the step of one run, its undo, and the loop over all runs. Books change
   under `lock`, in the section that emits the step.

   In a replay the driver is a ledger that refuses nothing. So a call that failed in the recorded run is not made: the
   step takes its result from the trace, and maps just the pages that stayed mapped then. */
#include "core/remap/pause_pages.h"

#include <assert.h>

#include "core/remap/page_calls.h"
#include "core/space/paused.h"
#include "core/state/accounts.h"
#include "core/state/replay_steps.h"

/* The runs of a pause or a resume. */
static struct sg_page_run *runs_growing(struct sg_device *device) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    return device->growth.runs.memory;
}

/* Adds pages [first, end) to the list. False: no host memory. */
static bool add_run_growing(struct sg_device *device, uint32_t count, struct sg_region *region, uint32_t first,
    uint32_t end) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    if (!sg_scratch_reserve(&device->growth.runs, count + 1, sizeof(struct sg_page_run)))
        return false;
    runs_growing(device)[count] = (struct sg_page_run){.region = region, .first = first, .pages = end - first};
    return true;
}

/* The next run of a region from page *page on: [*page, return value). The region's `pages`, both: there is none. *id as
   of sg_region_paused_page_locked(). */
static uint32_t pause_next_run_locked(const struct sg_region *region, bool lacking, uint32_t *page, uint32_t *id)
    SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    const CUmemGenericAllocationHandle *handle = region->memory.handle;
    if (!lacking) {
        while (*page < region->pages && !sg_page_is_there(handle[*page]))
            ++*page;
        uint32_t end = *page;
        while (end < region->pages && sg_page_is_there(handle[end]))
            end++;
        return end;
    }
    /* A page counts if a live block touches it, and only where its memory is gone. */
    while ((*page = sg_region_paused_page_locked(region, *page, id)) < region->pages &&
           handle[*page] != SG_PAGE_PAUSED)
        ++*page;
    uint32_t end = *page;
    while (end < region->pages && handle[end] == SG_PAGE_PAUSED && sg_region_paused_page_locked(region, end, id) == end)
        end++;
    return end;
}

uint32_t sg_pause_runs_locked(struct sg_device *device, uint32_t tag, bool lacking, uint64_t *ret_bytes)
{
    SG_ASSERT_HELD(&device->lock);
    SG_ASSERT_HELD(&device->growth.grow);
    uint32_t count = 0;
    *ret_bytes = 0;
    for (uint32_t i = 0; i < device->regions.count; i++) {
        struct sg_region *region = device->regions.region[i];
        uint32_t id = region->first;
        if (sg_purpose_tag(device->regions.purpose[i]) != tag)
            continue;
        for (uint32_t page = 0, end; (end = pause_next_run_locked(region, lacking, &page, &id)) > page; page = end) {
            if (!add_run_growing(device, count, region, page, end))
                return UINT32_MAX;
            count++;
            *ret_bytes += (end - page) * sg_region_page_bytes(region);
        }
    }
    return count;
}

/* Maps a run with its memory in `handles` and gives access. *ret_stay: after an error, how many pages from its first on
   are still mapped. */
static CUresult map_run_growing(struct sg_device *device, const struct sg_page_run *run,
    const CUmemGenericAllocationHandle *handles, uint32_t *ret_stay) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    CUresult result = CUDA_SUCCESS;
    uint32_t mapped = 0;
    while (mapped < run->pages && result == CUDA_SUCCESS) {
        result = sg_page_calls_map_growing(device, run->region, run->first + mapped, handles[mapped]);
        mapped += result == CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS)
        result = sg_page_calls_access_growing(device, run->region, run->first, run->pages);
    bool stays = result != CUDA_SUCCESS && mapped &&
                 sg_page_calls_unmap_growing(device, run->region, run->first, mapped) != CUDA_SUCCESS;
    *ret_stay = stays ? mapped : 0;
    return result;
}

/* Maps the first `stay` pages of a run, as the recorded driver has left them. */
static void map_as_recorded_growing(struct sg_device *device, const struct sg_page_run *run,
    const CUmemGenericAllocationHandle *handles, uint32_t stay) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    for (uint32_t page = 0; page < stay; page++)
        (void)sg_page_calls_map_growing(device, run->region, run->first + page, handles[page]);
}

/* The pages of a run from `first` on have no memory from here on. */
static void empty_run_locked(struct sg_device *device, const struct sg_page_run *run, uint32_t first) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    for (uint32_t page = run->first + first; page < run->first + run->pages; page++)
        run->region->memory.handle[page] = SG_PAGE_PAUSED;
    sg_device_count_pages_locked(device, run->region, -(int64_t)(run->pages - first));
    device->room.refused_at = 0; /* the driver has pages again */
}

/* Releases the memory of a run's pages from `first` on. */
static void release_run_growing(struct sg_device *device, const struct sg_page_run *run, uint32_t first) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    for (uint32_t page = run->first + first; page < run->first + run->pages; page++)
        sg_page_calls_release_growing(device, run->region->memory.handle[page]);
}

/* Unmaps a run. With `empties` its memory is released too; else its pages keep their handles. */
static CUresult leave_run_growing(struct sg_device *device, const struct sg_page_run *run, bool empties)
    SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    CUresult result = (CUresult)sg_replay_step_outcome(sg_replay_step(device), SEGALLOC_TURN_PAUSE_RUN, CUDA_SUCCESS);
    if (result == CUDA_SUCCESS)
        result = sg_page_calls_unmap_growing(device, run->region, run->first, run->pages);
    empties = empties && result == CUDA_SUCCESS;
    if (empties)
        release_run_growing(device, run, 0);
    sg_device_lock(device);
    if (empties)
        empty_run_locked(device, run, 0);
    sg_emit_step_locked(device, SEGALLOC_TURN_PAUSE_RUN, result);
    sg_device_unlock(device);
    return result;
}

/* Maps a run again that was unmapped. False: its memory could not be put back, and is released but for what stays. */
static bool return_run_growing(struct sg_device *device, const struct sg_page_run *run) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    const struct segalloc_trace_record *replayed = sg_replay_step(device);
    const CUmemGenericAllocationHandle *handles = &run->region->memory.handle[run->first];
    uint64_t outcome = sg_replay_step_outcome(replayed, SEGALLOC_TURN_PAUSE_BACK, 0);
    uint32_t stay = outcome && outcome - 1 < run->pages ? (uint32_t)outcome - 1 : 0;
    if (outcome)
        map_as_recorded_growing(device, run, handles, stay);
    else if (map_run_growing(device, run, handles, &stay) != CUDA_SUCCESS)
        outcome = 1 + (uint64_t)stay;
    if (outcome)
        release_run_growing(device, run, stay);
    sg_device_lock(device);
    if (outcome)
        empty_run_locked(device, run, stay);
    sg_emit_step_locked(device, SEGALLOC_TURN_PAUSE_BACK, outcome);
    sg_device_unlock(device);
    return !outcome;
}

CUresult sg_pause_leave_growing(struct sg_device *device, uint32_t count, bool *ret_half)
{
    SG_ASSERT_HELD(&device->growth.grow);
    CUresult result = CUDA_SUCCESS;
    uint32_t done = 0;
    *ret_half = false;
    while (done < count && result == CUDA_SUCCESS) {
        result = leave_run_growing(device, &runs_growing(device)[done], /* empties */ false);
        done += result == CUDA_SUCCESS;
    }
    for (uint32_t i = 0; i < done && result != CUDA_SUCCESS; i++)
        *ret_half = !return_run_growing(device, &runs_growing(device)[i]) || *ret_half;
    /* Released only now: until here each run could be put back. */
    for (uint32_t i = 0; i < done && result == CUDA_SUCCESS; i++)
        release_run_growing(device, &runs_growing(device)[i], 0);
    return result;
}

void sg_pause_left_locked(struct sg_device *device, uint32_t count)
{
    SG_ASSERT_HELD(&device->lock);
    SG_ASSERT_HELD(&device->growth.grow);
    for (uint32_t i = 0; i < count; i++)
        empty_run_locked(device, &runs_growing(device)[i], 0);
}

CUresult sg_pause_access_growing(struct sg_device *device, uint32_t count)
{
    SG_ASSERT_HELD(&device->growth.grow);
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        const struct sg_page_run *run = &runs_growing(device)[i];
        const struct segalloc_trace_record *replayed = sg_replay_step(device);
        result = sg_page_calls_access_growing(device, run->region, run->first, run->pages);
        result = (CUresult)sg_replay_step_outcome(replayed, SEGALLOC_TURN_PAUSE_RUN, result);
        sg_device_lock(device);
        sg_emit_step_locked(device, SEGALLOC_TURN_PAUSE_RUN, result);
        sg_device_unlock(device);
    }
    return result;
}

/* Creates the memory of a run, in `handles`. On an error none is left. */
static CUresult create_run_growing(struct sg_device *device, const struct sg_page_run *run,
    CUmemGenericAllocationHandle *handles) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    CUresult result = CUDA_SUCCESS;
    uint32_t created = 0;
    while (created < run->pages && result == CUDA_SUCCESS) {
        result = sg_page_calls_create_growing(device, sg_region_page_bytes(run->region), &handles[created]);
        created += result == CUDA_SUCCESS;
    }
    while (result != CUDA_SUCCESS && created)
        sg_page_calls_release_growing(device, handles[--created]);
    return result;
}

enum { STAY_SHIFT = 32 }; /* of pages that stay, over the driver's answer */

/* Creates and maps a run. */
static CUresult come_run_growing(struct sg_device *device, const struct sg_page_run *run) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    uint64_t recorded = sg_replay_step_outcome(sg_replay_step(device), SEGALLOC_TURN_PAUSE_RUN, CUDA_SUCCESS);
    CUmemGenericAllocationHandle *handles = device->growth.handles.memory;
    CUresult result = (CUresult)(uint32_t)recorded;
    uint32_t stay = (uint32_t)(recorded >> STAY_SHIFT) < run->pages ? (uint32_t)(recorded >> STAY_SHIFT) : 0;
    CUresult create = result == CUDA_SUCCESS || stay ? create_run_growing(device, run, handles) : result;
    bool created = create == CUDA_SUCCESS;
    if (created && result == CUDA_SUCCESS)
        result = map_run_growing(device, run, handles, &stay);
    else if (created)
        map_as_recorded_growing(device, run, handles, stay);
    else
        result = create;
    /* All pages are the run's from here on, or those that the driver would not unmap again. The rest goes back. */
    uint32_t have = result == CUDA_SUCCESS ? run->pages : stay;
    for (uint32_t page = have; page < run->pages && created; page++)
        sg_page_calls_release_growing(device, handles[page]);
    sg_device_lock(device);
    for (uint32_t page = 0; page < have; page++)
        run->region->memory.handle[run->first + page] = handles[page];
    sg_device_count_pages_locked(device, run->region, have);
    sg_emit_step_locked(device, SEGALLOC_TURN_PAUSE_RUN, (uint64_t)stay << STAY_SHIFT | (uint32_t)result);
    sg_device_unlock(device);
    return result;
}

CUresult sg_pause_come_growing(struct sg_device *device, uint32_t count, uint32_t *done)
{
    SG_ASSERT_HELD(&device->growth.grow);
    CUresult result = CUDA_SUCCESS;
    while (*done < count && result == CUDA_SUCCESS) {
        const struct sg_page_run *run = &runs_growing(device)[*done];
        result = sg_scratch_reserve(&device->growth.handles, run->pages, sizeof(CUmemGenericAllocationHandle))
                     ? come_run_growing(device, run)
                     : CUDA_ERROR_OUT_OF_MEMORY;
        *done += result == CUDA_SUCCESS;
    }
    return result;
}

void sg_pause_come_undo_growing(struct sg_device *device, uint32_t done)
{
    SG_ASSERT_HELD(&device->growth.grow);
    for (uint32_t i = 0; i < done; i++)
        (void)leave_run_growing(device, &runs_growing(device)[i], /* empties */ true);
}
