/* A table of processes, a driver and a core, for tests of memory that others need. To be included by one file of a program. */
#ifndef TRIM_FAKES_H
#define TRIM_FAKES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "inspect/core_state.h"
#include "balance.h"
#include "process/capture_mode.h"
#include "track/captures.h"
#include "track/held_outside.h"
#include "track/pool_streams.h"
#include "track/contexts.h"
#include "process/worker_thread.h"
#include "neighbours.h"
#include "process/symbols.h"
#include "process/upward_calls.h"
#include "services/pressure.h"
#include "services/trim.h"
#include "track/context_pins.h"

static size_t const mib = 1 << 20;
enum { LOOKS = 8, OTHER = 1 << 20 /* a process of this number is nobody */ };

static struct {
    struct sg_neighbours table;
    struct sg_neighbour own;
    int map;                   /* what mapping the table answers */
    bool full, no_thread, no_core, live, over, gone; /* gone: the device has no context any more */
    void *(*helper)(void *user);
    int asks;
    int looks;                 /* how often the helper has slept */
    bool asked[LOOKS];         /* whether somebody woke it */
    void (*before)(int look);
    int captures_left;         /* naps until captures end; below 0: they do not */
    int answered, left, naps;
    int uses, pushes, relaxed; /* that are under way */
    bool cannot_relax;
    bool uses_pools;
    size_t leaving; /* bytes that pools give back when they are waited for */
    CUresult push, info, uuid;
    bool old;                  /* the driver names devices by its older call only */
    int trims, trimmed;        /* calls, and the last one's device */
    size_t keep, idle;
    size_t available, total;
    struct sg_stats stats;
    bool no_stats;
    uint64_t asked_id, given;  /* of others */
    uint64_t held[SG_NEIGHBOUR_DEVICES], said_idle[SG_NEIGHBOUR_DEVICES];
    bool outside, unwilling;   /* this process has no row; or neither asks nor answers */
    int current, devices;      /* device; how many have a name, 0: all */
    uint64_t ids;              /* bits: asked about */
    void (*meanwhile)(void);
    enum sg_neighbour_order order;
    char order_tag[SG_NEIGHBOUR_TAG];
    uint32_t order_result;
    uint64_t order_bytes;
    uint64_t wanted, look_ns;  /* by limits: what should go back at the next look; when that is */
    uint64_t slept[LOOKS];     /* for how long it was to sleep */
    int watched, last_watched; /* devices whose limits are watched */
    void (*wake)(void);
} fake;

/* The table of processes. */
int sg_neighbours_map(uid_t user, bool create, struct sg_neighbours **ret)
{
    (void)user, (void)create;
    *ret = &fake.table;
    return fake.map;
}

struct sg_neighbour *sg_neighbours_join(struct sg_neighbours *table)
{
    assert_ptr_equal(table, &fake.table);
    atomic_store(&fake.own.pid, (int32_t)getpid());
    return fake.full ? NULL : &fake.own;
}

void sg_neighbours_leave(struct sg_neighbour *own)
{
    assert_ptr_equal(own, &fake.own);
    fake.left++;
}

uint64_t sg_neighbours_ask_all(struct sg_neighbours *table, const struct sg_neighbour *own, uint64_t id,
    uint64_t timeout_ns, uint64_t owing_ns)
{
    (void)owing_ns;
    assert_ptr_equal(table, &fake.table);
    assert_ptr_equal(own, fake.outside ? NULL : &fake.own);
    assert_true(timeout_ns > 0);
    fake.asked_id = id;
    fake.asks++;
    return fake.given;
}

void sg_neighbours_hold(struct sg_neighbours *table, const struct sg_neighbour *own, int index, uint64_t bytes,
    uint64_t idle)
{
    assert_ptr_equal(table, &fake.table);
    assert_ptr_equal(own, &fake.own);
    fake.held[index] = bytes;
    fake.said_idle[index] = idle;
}

uint64_t sg_neighbours_idle(struct sg_neighbours *table, const struct sg_neighbour *own, uint64_t id,
    uint64_t timeout_ns)
{
    assert_ptr_equal(table, &fake.table);
    assert_ptr_equal(own, fake.outside ? NULL : &fake.own);
    assert_true(timeout_ns > 0);
    fake.asked_id = id;
    return fake.given;
}

size_t sg_neighbours_holding(struct sg_neighbours *table, const struct sg_neighbour *own, uint64_t id,
    struct sg_neighbour_holds *ret, size_t most)
{
    assert_ptr_equal(table, &fake.table);
    assert_ptr_equal(own, fake.outside ? NULL : &fake.own);
    assert_int_equal(most, 1);
    *ret = (struct sg_neighbour_holds){77, 1000};
    fake.asked_id = id;
    return 1;
}

void sg_neighbour_ask(struct sg_neighbour *other, uint32_t wanted, uint64_t keep)
{
    assert_ptr_equal(other, &fake.own);
    assert_true(wanted == 0 && keep == 0); /* of this process nobody asks for memory */
    atomic_fetch_add(&other->asked, 1);
}

void sg_neighbour_answered(struct sg_neighbour *own)
{
    assert_int_equal(atomic_load(&own->answered), atomic_load(&own->asked));
    fake.answered++;
}

/* An order for this process. */
enum sg_neighbour_order sg_neighbour_take_order(struct sg_neighbours *table, const struct sg_neighbour *own,
    char *ret_tag)
{
    assert_ptr_equal(table, &fake.table);
    assert_ptr_equal(own, &fake.own);
    strcpy(ret_tag, fake.order_tag);
    return fake.order;
}

void sg_neighbour_note_order(struct sg_neighbours *table, const struct sg_neighbour *own, uint32_t result,
    uint64_t bytes)
{
    assert_ptr_equal(table, &fake.table);
    assert_ptr_equal(own, &fake.own);
    assert_int_equal(fake.answered, 0);
    fake.order_result = result;
    fake.order_bytes = bytes;
    fake.order = SG_NEIGHBOUR_NO_ORDER;
}

static CUresult obey(bool pause, const char *tag, uint64_t *ret_bytes)
{
    assert_int_equal(pause, fake.order == SG_NEIGHBOUR_PAUSE);
    assert_int_equal(tag != NULL, fake.order_tag[0] != '\0');
    *ret_bytes = 7 * mib;
    return pause ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

const struct sg_upward_calls sg_upward_calls = {.order = obey};

/* The last time there is nothing more to do. */
bool sg_neighbour_sleep(struct sg_neighbour *own, uint64_t timeout_ns)
{
    int look = fake.looks++;
    assert_ptr_equal(own, &fake.own);
    if (!fake.look_ns)
        assert_int_equal(timeout_ns, 2500000000);
    assert_true(look < LOOKS);
    fake.slept[look] = timeout_ns;
    fake.over = look == LOOKS - 1;
    if (fake.before)
        fake.before(look);
    return fake.asked[look];
}

/* In place of usleep(). */
int nap(useconds_t us)
{
    assert_true(us > 0);
    if (++fake.naps == fake.captures_left)
        fake.live = false;
    return 0;
}

/* The driver. */
static CUresult uuid(CUuuid *ret, CUdevice device)
{
    void (*meanwhile)(void) = fake.meanwhile;
    memset(ret, device + 1, sizeof *ret);
    fake.meanwhile = NULL;
    if (meanwhile)
        meanwhile();
    return fake.devices && device >= fake.devices ? CUDA_ERROR_INVALID_DEVICE : fake.uuid;
}

static CUresult get_device(CUdevice *ret)
{
    *ret = fake.current;
    return fake.current < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

void *sg_cuda_symbol(const char *name)
{
    CUresult (*function)(CUuuid *, CUdevice) = uuid;
    CUresult (*get)(CUdevice *) = get_device;
    void *symbol;
    if (strcmp(name, "cuCtxGetDevice") == 0) {
        memcpy(&symbol, &get, sizeof symbol);
        return symbol;
    }
    memcpy(&symbol, &function, sizeof symbol);
    return strcmp(name, fake.old ? "cuDeviceGetUuid" : "cuDeviceGetUuid_v2") == 0 ? symbol : NULL;
}

static CUresult push(CUcontext context)
{
    assert_ptr_equal(context, (CUcontext)64);
    fake.pushes += fake.push == CUDA_SUCCESS;
    return fake.push;
}

static CUresult pop(CUcontext *ret)
{
    *ret = (CUcontext)64;
    fake.pushes--;
    return CUDA_SUCCESS;
}

static CUresult mem_info(size_t *ret_free, size_t *ret_total)
{
    *ret_free = fake.available;
    *ret_total = fake.total;
    return fake.info;
}

const struct sg_driver *sg_process_driver(void)
{
    static const struct sg_driver driver = {.ctx_push = push, .ctx_pop = pop, .mem_info = mem_info};
    return &driver;
}

/* Limits. */
void sg_pressure_watch(int device, void (*wake)(void))
{
    fake.watched++;
    fake.last_watched = device;
    fake.wake = wake;
}

uint64_t sg_pressure_look_ns(void)
{
    return fake.look_ns;
}

uint64_t sg_pressure_take(int device)
{
    uint64_t wanted = device == 0 ? fake.wanted : 0;
    fake.wanted = device == 0 ? 0 : fake.wanted;
    return wanted;
}

/* The rest of the library. */
struct sg_core *sg_enter(void)
{
    return balance_begin(fake.no_core ? NULL : (struct sg_core *)&fake);
}

bool sg_process_over(void)
{
    return fake.over;
}

bool sg_worker_start(void *(*run)(void *user), void *user)
{
    assert_null(user);
    fake.helper = run;
    return !fake.no_thread;
}

CUcontext sg_contexts_any(int device)
{
    (void)device;
    return fake.gone ? NULL : (CUcontext)64;
}

int sg_context_pin(CUcontext context)
{
    fake.uses += context != NULL;
    return context ? 5 : -1;
}

void sg_context_unpin(int use)
{
    assert_int_equal(use, 5);
    fake.uses--;
}

bool sg_captures_active(void)
{
    return fake.live;
}

bool sg_capture_mode_relax(CUstreamCaptureMode *ret)
{
    *ret = CU_STREAM_CAPTURE_MODE_GLOBAL;
    fake.relaxed += !fake.cannot_relax;
    return !fake.cannot_relax;
}

void sg_capture_mode_restore(CUstreamCaptureMode *mode)
{
    assert_int_equal(*mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    fake.relaxed--;
}

bool sg_outside_uses_pools(void)
{
    return fake.uses_pools;
}

bool sg_pool_streams_waited(uint64_t limit_ns)
{
    assert_true(fake.pushes == 1 && fake.relaxed == 1);
    assert_in_range(limit_ns, 1, 1000000000); /* others ask too */
    fake.available += fake.leaving;
    return fake.leaving > 0;
}

/* No device has pages of another one. */
size_t sg_core_return_from(struct sg_core *core, int neighbour)
{
    (void)core;
    (void)neighbour;
    return 0;
}

size_t sg_core_trim(struct sg_core *core, int device, size_t keep)
{
    (void)core;
    assert_int_equal(fake.pushes, 1);
    assert_int_equal(fake.relaxed, 1);
    fake.trims++;
    fake.trimmed = device;
    fake.keep = keep;
    return fake.idle;
}

bool sg_core_stats(struct sg_core *core, int device, struct sg_stats *ret)
{
    (void)core, (void)device;
    *ret = fake.stats;
    return !fake.no_stats;
}

void sg_core_mem_info(struct sg_core *core, int device, size_t *free_bytes, size_t *total_bytes)
{
    (void)core, (void)device, (void)total_bytes;
    assert_int_equal(fake.pushes, 1);
    assert_int_equal(fake.relaxed, 1);
    assert_int_equal(*free_bytes, 0);
    *free_bytes = fake.idle;
}

const struct sg_conf *sg_process_conf(void)
{
    static struct sg_conf conf;
    conf.trim_on_request = !fake.unwilling;
    return &conf;
}

uint64_t sg_core_reserved(struct sg_core *core, int device)
{
    (void)core;
    return 1000 + (uint64_t)device;
}

#endif
