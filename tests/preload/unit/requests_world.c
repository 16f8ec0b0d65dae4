/* See requests_world.h. */
#include "inspect/core_state.h"
#include "requests_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "balance.h"
#include "process/capture_mode.h"
#include "serve/make_room.h"
#include "track/captures.h"
#include "services/alias_probe.h"
#include "track/contexts.h"
#include "track/context_wait.h"
#include "services/hazard_annotations.h"
#include "report/oom_report.h"
#include "services/recorder.h"
#include "track/streams.h"
#include "torch/torch_current.h"
#include "track/torch_mode.h"
#include "services/trim.h"

struct fake fake;

atomic_bool sg_following_order, sg_captures_begun;
atomic_int sg_captures_deferred, sg_graphs_blocks, sg_graphs_gone;
atomic_uint sg_captures_ended;
bool sg_annotate_on, sg_recorder_on;
__thread struct sg_thread sg_self;

const struct sg_conf *sg_process_conf(void)
{
    return &fake.conf;
}

struct sg_core *sg_enter(void)
{
    return balance_begin(fake.no_core ? NULL : CORE);
}

struct sg_core *sg_enter_traced(void)
{
    return sg_enter();
}

bool sg_process_over(void)
{
    return false;
}

bool sg_thread_inside(void)
{
    return false;
}

static CUresult get_current(CUcontext *ret)
{
    *ret = CONTEXT;
    fake.looks++;
    return fake.look;
}

static CUresult no_record(CUcontext of, CUevent event)
{
    (void)of, (void)event;
    return CUDA_SUCCESS;
}

static CUresult create_event(CUevent *ret, unsigned flags)
{
    (void)flags;
    *ret = NULL;
    fake.events += fake.create == CUDA_SUCCESS;
    return fake.create;
}

static CUresult record_event(CUevent event, CUstream asked)
{
    (void)event, (void)asked;
    return fake.step;
}

static CUresult wait_for_event(CUevent event)
{
    (void)event;
    fake.waits++;
    return fake.waited_for;
}

static CUresult destroy_event(CUevent event)
{
    (void)event;
    fake.events--;
    return CUDA_SUCCESS;
}

static CUresult mem_info(size_t *ret_free, size_t *ret_total)
{
    *ret_free = fake.driver_has;
    *ret_total = fake.driver_has + fake.idle;
    return CUDA_SUCCESS;
}

const struct sg_driver *sg_process_driver(void)
{
    static struct sg_driver driver;
    driver = (struct sg_driver){.ctx_get_current = get_current, .ctx_record_event = fake.no_event ? NULL : no_record,
        .event_create = create_event, .event_record = record_event, .event_synchronize = wait_for_event,
        .event_destroy = destroy_event, .mem_info = mem_info};
    return &driver;
}

static CUresult alloc(CUdeviceptr *ret, size_t bytes)
{
    fake.probes++;
    if (fake.idle + fake.driver_has && bytes > fake.driver_has)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (ret && fake.probe == CUDA_SUCCESS)
        *ret = 1;
    return fake.probe;
}

static CUresult free_it(CUdeviceptr address)
{
    (void)address;
    return CUDA_SUCCESS;
}

static CUresult pointer_attribute(void *ret, CUpointer_attribute attribute, CUdeviceptr address)
{
    (void)attribute, (void)address;
    *(CUcontext *)ret = CONTEXT;
    return CUDA_SUCCESS;
}

static CUresult query(CUstream asked)
{
    (void)asked;
    return fake.stream_answer;
}

const struct sg_real *sg_real(void)
{
    static const struct sg_real real = {.cuMemAlloc_v2 = alloc, .cuMemFree_v2 = free_it,
        .cuPointerGetAttribute = pointer_attribute, .cuStreamQuery = query};
    return &real;
}

/* Streams. */
bool sg_streams_complete(void)
{
    return fake.complete;
}

bool sg_streams_untracked(void)
{
    return fake.blind;
}

void sg_follow(void)
{
    fake.follows++;
}

void sg_streams_serve(int device)
{
    (void)device;
}

bool sg_streams_track(struct sg_core *core, CUstream asked, bool per_thread, struct sg_tracked_stream *ret)
{
    (void)core, (void)asked, (void)per_thread;
    *ret = (struct sg_tracked_stream){.device = fake.place_device, .slot = SLOT};
    return fake.placed;
}

bool sg_streams_track_on(struct sg_core *core, CUstream asked, int device, struct sg_tracked_stream *ret)
{
    (void)core, (void)asked;
    *ret = (struct sg_tracked_stream){.device = device, .slot = SLOT};
    return fake.on_device;
}

CUcontext sg_streams_context_of(CUstream asked)
{
    (void)asked;
    return fake.stream_context;
}

bool sg_streams_device(CUstream asked, int *ret)
{
    (void)asked;
    *ret = fake.stream_device;
    return true;
}

/* Captures and graphs. */
bool sg_captures_active(void)
{
    return fake.live;
}

bool sg_captures_capturing(CUstream asked, bool per_thread)
{
    (void)asked, (void)per_thread;
    return fake.capturing;
}

bool sg_captures_own(CUstream *ret)
{
    *ret = fake.own;
    return fake.own != NULL;
}

bool sg_captures_await(uint64_t *left_ns)
{
    (void)left_ns;
    fake.awaits++;
    if (fake.drops)
        fake.live = false;
    return !fake.live;
}

bool sg_captures_runs_deferred(void)
{
    return fake.settling;
}

void sg_captures_run_deferred(struct sg_core *core)
{
    (void)core;
    fake.settled++;
}

CUresult sg_captures_defer_free(struct sg_core *core, CUdeviceptr address, const struct sg_request *request)
{
    (void)core, (void)address, (void)request;
    fake.parked++;
    return CUDA_SUCCESS;
}

bool sg_capture_mode_relax(CUstreamCaptureMode *ret)
{
    (void)ret;
    fake.relaxed += fake.relaxes;
    return fake.relaxes;
}

void sg_capture_mode_restore(CUstreamCaptureMode *mode)
{
    (void)mode;
    fake.restored++;
}

bool sg_graphs_adopt(struct sg_core *core, CUstream asked, CUdeviceptr address, bool fresh)
{
    (void)core, (void)asked, (void)address;
    fake.adopted++;
    fake.fresh = fresh;
    return true;
}

enum sg_graphs_answer sg_graphs_retain(CUdeviceptr address, const struct sg_request *request, bool waited)
{
    (void)address, (void)request;
    fake.kept++;
    fake.waited = waited;
    return fake.keeps;
}

void sg_graphs_add_spare(CUstream asked, CUdeviceptr address)
{
    (void)asked, (void)address;
    fake.spared++;
}

bool sg_graphs_reuse(CUstream asked, size_t bytes, CUdeviceptr *ret)
{
    (void)asked, (void)bytes;
    if (fake.again)
        *ret = BLOCK;
    return fake.again;
}

void sg_graphs_run_deferred(struct sg_core *core)
{
    (void)core;
}

bool sg_graphs_retain_freed(void)
{
    return fake.kept_freed > 0 && fake.kept_freed--;
}

void sg_graphs_await_destroyed(void)
{
    fake.tells++;
}

CUresult sg_context_wait(CUcontext context)
{
    assert_ptr_equal(context, CONTEXT);
    fake.context_waits++;
    return fake.context_wait;
}

/* The core. */
CUresult sg_core_block(struct sg_core *core, CUdeviceptr address, struct sg_block_info *ret)
{
    (void)core;
    *ret = (struct sg_block_info){.base = address & ~(CUdeviceptr)(BLOCK - 1), .bytes = BLOCK, .context = CONTEXT};
    return fake.block;
}

void sg_core_mem_info(struct sg_core *core, int device, size_t *free_bytes, size_t *total_bytes)
{
    (void)core, (void)device, (void)total_bytes;
    *free_bytes += fake.idle;
}

bool sg_made_room_by_others(int device)
{
    (void)device;
    return false;
}

bool sg_made_room_by(struct sg_core *core)
{
    (void)core;
    fake.driver_has += fake.idle;
    fake.idle = 0;
    return !fake.no_room;
}

bool sg_core_left_pages(struct sg_core *core, int device)
{
    (void)core, (void)device;
    return fake.left_pages;
}

CUresult sg_core_malloc(struct sg_core *core, int device, size_t bytes, const struct sg_tag *tag, CUdeviceptr *ret)
{
    (void)core, (void)device, (void)bytes;
    fake.tag = *tag;
    atomic_fetch_add(&sg_captures_ended, fake.mallocs < fake.ends);
    CUresult result = fake.mallocs < 32 ? fake.malloc[fake.mallocs++] : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        *ret = BLOCK;
    return result;
}

CUresult sg_core_free(struct sg_core *core, CUdeviceptr address, const struct sg_tag *tag)
{
    (void)core, (void)address;
    CUresult result = fake.free;
    fake.tag = *tag;
    fake.frees++;
    fake.free = fake.next_free;
    fake.block = fake.block ? fake.block : fake.free_block;
    return result;
}

CUresult sg_core_record_stream(struct sg_core *core, CUdeviceptr address, sg_slot slot)
{
    (void)core, (void)address;
    fake.recorded = (int)slot;
    return fake.record;
}

void sg_core_used_cross_device(struct sg_core *core, CUdeviceptr address)
{
    (void)core, (void)address;
    fake.abroad = true;
}

CUresult sg_core_wait(struct sg_core *core, CUdeviceptr address, CUcontext current, bool *ret_all)
{
    (void)core, (void)address;
    fake.waited_in = current;
    *ret_all = fake.all;
    return fake.wait;
}

CUresult sg_core_wait_for_all(struct sg_core *core)
{
    (void)core;
    fake.waits_for_all++;
    return CUDA_SUCCESS;
}

bool sg_core_owns(const struct sg_core *core, CUdeviceptr address)
{
    (void)core;
    return address == BLOCK;
}

void sg_core_disable(struct sg_core *core)
{
    (void)core;
    fake.disabled = true;
}

void sg_core_poll(struct sg_core *core, int device)
{
    (void)core, (void)device;
    fake.polls++;
}

void sg_core_passthrough(struct sg_core *core, int device, CUdeviceptr address, size_t bytes)
{
    (void)core, (void)device, (void)address, (void)bytes;
    fake.passed_on++;
}

bool sg_core_stats(struct sg_core *core, int device, struct sg_stats *ret)
{
    (void)core, (void)device;
    memset(ret, 0, sizeof *ret);
    ret->value[SG_STAT_pending_bytes] = fake.pending;
    return !fake.no_stats;
}

size_t sg_oom_report(struct sg_core *core, int device, char *buffer, size_t size)
{
    (void)core, (void)device;
    memset(buffer, '\n', size);
    fake.reports++;
    return fake.text;
}

bool sg_torch_switched(void)
{
    return false;
}

void sg_core_asked(struct sg_core *core, int device, unsigned times)
{
    (void)core, (void)device, (void)times;
}

void sg_core_failed(struct sg_core *core, int device)
{
    (void)core, (void)device;
    fake.failed++;
}

void sg_core_refused_outside(struct sg_core *core, int device, enum segalloc_outside by, uint64_t bytes)
{
    (void)core, (void)device, (void)by, (void)bytes;
}

void sg_core_settled(struct sg_core *core, int device, enum segalloc_settled how, size_t bytes)
{
    (void)core, (void)device, (void)bytes;
    fake.how = how;
}

bool sg_core_is_limited(struct sg_core *core, int device)
{
    (void)core, (void)device;
    return fake.limited;
}

/* The rest. */
CUresult sg_contexts_current(struct sg_core *core, CUcontext *ret, int *ret_device)
{
    (void)core;
    *ret_device = 0;
    *ret = CONTEXT;
    return fake.current;
}

bool sg_contexts_devices(void)
{
    return fake.others;
}

bool sg_contexts_green(CUcontext asked)
{
    (void)asked;
    return fake.green;
}

CUcontext sg_contexts_primary_of(int device)
{
    (void)device;
    return OTHER_CONTEXT;
}

bool sg_torch_direct(void)
{
    return !fake.no_torch;
}

bool sg_torch_stream(CUstream *ret)
{
    *ret = STREAM;
    return !fake.no_stream;
}

void sg_annotate_given(CUdeviceptr address, size_t bytes)
{
    (void)address, (void)bytes;
    fake.given++;
}

void sg_annotate_freed(struct sg_core *core, CUdeviceptr address)
{
    (void)core, (void)address;
    fake.freed++;
}

bool sg_alias_probe_gave_back(int device)
{
    (void)device;
    return false;
}

void sg_trim_use(int device)
{
    (void)device;
}

bool sg_trim_ask_others(const struct sg_driver *driver, int device, size_t bytes)
{
    (void)driver, (void)device, (void)bytes;
    fake.asked_others++;
    return fake.helps;
}

void sg_recorder_device(const struct sg_driver *driver, int device)
{
    (void)driver, (void)device;
}

void sg_recorder_tick(struct sg_core *core, int device)
{
    (void)core, (void)device;
}

const struct sg_request plain = {0}, torch = {.torch = true, .has_stream = true, .stream = STREAM},
                              named = {.named = true, .has_stream = true, .stream = STREAM},
                              in_order = {.stream_order = true, .has_stream = true, .stream = STREAM};

int start_afresh(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    fake.complete = fake.placed = fake.on_device = true;
    fake.stream_context = CONTEXT;
    fake.recorded = NO_RECORD;
    fake.conf.free_sync = SG_FREE_SYNC_AUTO;
    atomic_store(&sg_following_order, true);
    atomic_store(&sg_captures_deferred, 0);
    atomic_store(&sg_graphs_blocks, 0);
    atomic_store(&sg_captures_begun, false);
    sg_annotate_on = false;
    return 0;
}
