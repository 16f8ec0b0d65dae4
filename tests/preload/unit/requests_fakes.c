/* See requests_fakes.h. */
#include "requests_fakes.h"

#include <string.h>

#include "balance.h"
#include "serve/make_room.h"

struct fake fake;

int recorded(void)
{
    return CALLS(sg_core_record_stream) ? (int)ARGUMENT(sg_core_record_stream, 2) : NO_RECORD;
}

const struct sg_conf *sg_process_conf(void)
{
    return &fake.conf;
}

struct sg_core *sg_enter(void)
{
    return balance_begin(fake.no_core ? NULL : CORE);
}

/* The driver. */
static CUresult get_current(CUcontext *ret)
{
    *ret = CONTEXT;
    (void)RECORD(fake_driver.ctx_get_current, 0);
    return fake.look;
}

static CUresult create_event(CUevent *ret, unsigned flags)
{
    CUresult result = (CUresult)RECORD(fake_driver.event_create, flags);
    *ret = NULL;
    fake.events += result == CUDA_SUCCESS;
    return result;
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

static CUresult alloc(CUdeviceptr *ret, size_t bytes)
{
    fake.probes++;
    if (fake.idle + fake.driver_has && bytes > fake.driver_has)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (ret && fake.probe == CUDA_SUCCESS)
        *ret = 1;
    return fake.probe;
}

static CUresult pointer_attribute(void *ret, CUpointer_attribute attribute, CUdeviceptr address)
{
    (void)attribute, (void)address;
    *(CUcontext *)ret = CONTEXT;
    return CUDA_SUCCESS;
}

/* Streams, captures and graphs. */
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

bool sg_streams_device(CUstream asked, int *ret)
{
    (void)asked;
    *ret = fake.stream_device;
    return true;
}

bool sg_captures_active(void)
{
    return fake.live;
}

bool sg_captures_own(CUstream *ret)
{
    *ret = fake.own;
    return fake.own != NULL;
}

bool sg_captures_await(uint64_t *left_ns)
{
    (void)RECORD(sg_captures_await, (uintptr_t)left_ns);
    if (fake.drops)
        fake.live = false;
    return !fake.live;
}

bool sg_graphs_reuse(CUstream asked, size_t bytes, CUdeviceptr *ret)
{
    (void)asked, (void)bytes;
    if (fake.again)
        *ret = BLOCK;
    return fake.again;
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

bool sg_made_room_by(struct sg_core *core)
{
    (void)core;
    fake.driver_has += fake.idle;
    fake.idle = 0;
    return !fake.no_room;
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
    CUresult result = fake.free;
    (void)RECORD(sg_core_free, (uintptr_t)core, address);
    fake.tag = *tag;
    fake.free = fake.next_free;
    fake.block = fake.block ? fake.block : fake.free_block;
    return result;
}

CUresult sg_core_wait(struct sg_core *core, CUdeviceptr address, CUcontext current, bool *ret_all)
{
    (void)core, (void)address;
    fake.waited_in = current;
    *ret_all = fake.all;
    return fake.wait;
}

bool sg_core_owns(const struct sg_core *core, CUdeviceptr address)
{
    (void)core;
    return address == BLOCK;
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
    (void)RECORD(sg_oom_report, (uintptr_t)core, (uint64_t)device);
    memset(buffer, '\n', size);
    return fake.text;
}

/* The rest. */
CUresult sg_contexts_current(struct sg_core *core, CUcontext *ret, int *ret_device)
{
    (void)core;
    *ret_device = 0;
    *ret = CONTEXT;
    return fake.current;
}

bool sg_torch_stream(CUstream *ret)
{
    *ret = STREAM;
    return !fake.no_stream;
}

const struct sg_request plain = {0}, torch = {.torch = true, .has_stream = true, .stream = STREAM},
                              named = {.named = true, .has_stream = true, .stream = STREAM},
                              in_order = {.stream_order = true, .has_stream = true, .stream = STREAM};

int start_afresh(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    fakes_reset(NULL);
    fake_driver.ctx_get_current = get_current;
    fake_driver.event_create = create_event;
    fake_driver.event_destroy = destroy_event;
    fake_driver.mem_info = mem_info;
    fake_real.cuMemAlloc_v2 = alloc;
    fake_real.cuPointerGetAttribute = pointer_attribute;
    ANSWER(sg_streams_complete, true);
    ANSWER(sg_streams_context_of, 64);   /* CONTEXT */
    ANSWER(sg_contexts_primary_of, 128); /* OTHER_CONTEXT */
    ANSWER(sg_graphs_adopt, true);
    ANSWER(sg_torch_direct, true);
    fake.placed = fake.on_device = true;
    fake.conf.free_sync = SG_FREE_SYNC_AUTO;
    atomic_store(&sg_following_order, true);
    atomic_store(&sg_captures_deferred, 0);
    atomic_store(&sg_graphs_blocks, 0);
    atomic_store(&sg_captures_begun, false);
    sg_annotate_on = false;
    return 0;
}
