/* The helper thread, its questions and answers.

   `known` has a bit for each device whose UUID is in the shared table. The helper gives memory back in relaxed capture
   mode and with a context pinned, since another thread may end that one.

   For example, a question comes with a bit for device 1 and `keep` 0. The helper wakes and gives device 1's idle pages back.
   It writes what it holds now, and marks the question as answered. */
#include "inspect/core_state.h"
#include "services/trim.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "process/capture_mode.h"
#include "track/captures.h"
#include "track/contexts.h"
#include "track/held_outside.h"
#include "track/pool_streams.h"
#include "process/worker_thread.h"
#include "process/process.h"
#include "process/upward_calls.h"
#include "base/neighbours.h"
#include "process/symbols.h"
#include "track/context_pins.h"
#include "base/wrap.h"
#include "services/pressure.h"

#define MS UINT64_C(1000000)

enum {
    TELL_MS = 200,        /* how long others are waited for to say what they have idle; a busy machine takes its time */
    HELP_MS = 2000,       /* how long others are waited for: they may be inside a call that waits for work */
    OWING_MS = 300,       /* the same for one that has not answered before, as it may be stopped */
    CAPTURE_STEP_MS = 20, /* where a capture keeps all there is, its end is waited for; how often that is looked at */
    CAPTURE_STEPS = 20,
    POOLS_MS = 1000,   /* how long memory on its way back to pools is waited for */
    MARGIN = 64 << 20, /* a device with as much more free than was asked for is not what is short */
    NEARLY_FULL = 16,  /* less than this part of the device is free */
};

static struct {
    struct sg_neighbours *table;           /* NULL: none, and then nothing of the rest */
    _Atomic(struct sg_neighbour *) own;
    uint64_t idle_ns;                      /* 0: idle memory stays */
    _Atomic uint64_t known;                /* bit by ordinal: its id is in `own` */
    int device[SG_NEIGHBOUR_DEVICES];      /* ordinal, by index in `own` */
    atomic_int devices;
    atomic_flag adding;
} neighbours = {.adding = ATOMIC_FLAG_INIT};

typedef CUresult uuid_fn(CUuuid *ret, CUdevice device);

/* A number that means the same device in all processes; 0 if it can't be had. */
static uint64_t trim_device_id(int device)
{
    CUuuid uuid;
    uuid_fn *get;
    void *symbol = sg_cuda_symbol("cuDeviceGetUuid_v2"); /* tells the parts of a divided device apart */
    if (!symbol)
        symbol = sg_cuda_symbol("cuDeviceGetUuid");
    memcpy(&get, &symbol, sizeof symbol);
    if (!symbol || get(&uuid, device) != CUDA_SUCCESS)
        return 0;
    uint64_t hash = SG_FNV_BASIS; /* FNV-1a */
    for (size_t i = 0; i < sizeof uuid.bytes; i++)
        hash = sg_fnv(hash, (unsigned char)uuid.bytes[i]);
    return hash ? hash : 1;
}

/* Wakes the helper, which nobody asks for anything. */
static void trim_wake(void)
{
    struct sg_neighbour *own = atomic_load(&neighbours.own);
    if (own)
        sg_neighbour_ask(own, 0, 0);
}

/* Makes the device known to others by its UUID. Only one thread adds at a time; another one's device is added by its
   next allocation. */
void sg_trim_use(int device)
{
    struct sg_neighbour *own = atomic_load_explicit(&neighbours.own, memory_order_acquire);
    uint64_t bit = UINT64_C(1) << device;
    if (!own || atomic_load_explicit(&neighbours.known, memory_order_acquire) & bit ||
        atomic_flag_test_and_set(&neighbours.adding))
        return;
    int index = atomic_load(&neighbours.devices);
    uint64_t id = index < SG_NEIGHBOUR_DEVICES && !(atomic_load(&neighbours.known) & bit) ? trim_device_id(device) : 0;
    if (id) {
        neighbours.device[index] = device;
        atomic_store(&neighbours.devices, index + 1);
        atomic_store(&own->devices[index], id);
    }
    atomic_fetch_or(&neighbours.known, bit);
    atomic_flag_clear(&neighbours.adding);
    if (id)
        sg_pressure_watch(device, trim_wake);
}

struct visit {
    int use; /* of the pinned context; below 0: none */
    bool relaxed;
    CUstreamCaptureMode mode; /* from before, if relaxed */
};

static void trim_leave(const struct sg_driver *driver, struct visit *visit)
{
    CUcontext ignored;
    if (visit->relaxed)
        sg_capture_mode_restore(&visit->mode);
    driver->ctx_pop(&ignored);
    sg_context_unpin(visit->use);
}

/* Makes a context of the device current in the helper, keeps it from ending, and relaxes the mode. False, and nothing is done:
   there is none any more, or a capture is active that calls of the helper would ruin. */
static bool trim_enter(const struct sg_driver *driver, int device, struct visit *visit)
{
    CUcontext context = sg_contexts_any(device);
    visit->use = sg_context_pin(context);
    if (visit->use < 0)
        return false;
    if (driver->ctx_push(context) != CUDA_SUCCESS) {
        sg_context_unpin(visit->use);
        return false;
    }
    visit->relaxed = sg_capture_mode_relax(&visit->mode);
    if (visit->relaxed || !sg_captures_active())
        return true;
    trim_leave(driver, visit);
    return false;
}

/* Memory on its way back to pools and graphs is the device's once somebody has waited for it. This process may not do so for
   long. Any wait counts, those of the core too. So the driver is asked how much more is free than `before`; other processes may have
   changed that too. */
static uint64_t trim_pools(const struct sg_driver *driver, size_t before)
{
    size_t after, total;
    (void)sg_pool_streams_waited(POOLS_MS * MS);
    return driver->mem_info(&after, &total) == CUDA_SUCCESS && after > before ? after - before : 0;
}

/* Gives idle pages of a device back until `keep` bytes are left, and returns how many went. While a capture is active the core
   waits for nothing that would ruin it. */
static uint64_t trim_device(int device, uint64_t keep)
{
    struct sg_core *core = sg_enter();
    const struct sg_driver *driver = sg_process_driver();
    struct visit visit;
    uint64_t given = 0;
    if (!core)
        return 0;
    if (trim_enter(driver, device, &visit)) {
        size_t before, total;
        bool pools = sg_outside_uses_pools() && driver->mem_info(&before, &total) == CUDA_SUCCESS;
        given = sg_core_trim(core, device, keep);
        given += keep ? 0 : sg_core_return_from(core, device);
        uint64_t more = pools ? trim_pools(driver, before) : 0;
        given = more > given ? more : given;
        trim_leave(driver, &visit);
    }
    sg_leave();
    return given;
}

/* Bytes of a device that would go back if another process asked now. */
static uint64_t idle_of(struct sg_core *core, int device)
{
    const struct sg_driver *driver = sg_process_driver();
    struct visit visit;
    size_t idle = 0, ignored = 0;
    if (!trim_enter(driver, device, &visit))
        return 0;
    sg_core_mem_info(core, device, &idle, &ignored);
    trim_leave(driver, &visit);
    return idle;
}

/* For others that run out, or want to know what they could have: what this process holds of each device. */
static void note_held(struct sg_neighbour *own)
{
    struct sg_core *core = sg_enter();
    if (!core)
        return;
    for (int i = 0; i < atomic_load(&neighbours.devices); i++) {
        int device = neighbours.device[i];
        uint64_t held = sg_core_reserved(core, device), idle = idle_of(core, device);
        sg_neighbours_hold(neighbours.table, own, i, held, idle < held ? idle : held);
    }
    sg_leave();
}

/* The devices are those of a bit in `wanted`, by their index. */
static uint64_t trim_devices(uint32_t wanted, uint64_t keep)
{
    uint64_t given = 0;
    for (int i = 0; i < atomic_load(&neighbours.devices); i++) {
        if (wanted >> i & 1)
            given += trim_device(neighbours.device[i], keep);
    }
    return given;
}

/* Carries out an order that this process was given. */
static void trim_obey(struct sg_neighbour *own)
{
    char tag[SG_NEIGHBOUR_TAG];
    uint64_t bytes = 0;
    enum sg_neighbour_order what = sg_neighbour_take_order(neighbours.table, own, tag);
    if (what == SG_NEIGHBOUR_NO_ORDER)
        return;
    CUresult result = sg_upward_calls.order(what == SG_NEIGHBOUR_PAUSE, *tag ? tag : NULL, &bytes);
    sg_neighbour_note_order(neighbours.table, own, (uint32_t)result, bytes);
}

/* Answers the questions of other processes. Carries an order out, and gives memory back for each device that was asked about. Memory that captures keep is
   there at their end: where nothing else is idle, that is waited for a moment. Then says what is left, and wakes those who asked. */
static void trim_answer(struct sg_neighbour *own)
{
    uint32_t asked = atomic_load(&own->asked), wanted = atomic_exchange(&own->wanted, 0);
    uint64_t keep = atomic_exchange(&own->keep, 0);
    trim_obey(own);
    uint64_t given = trim_devices(wanted, keep);
    bool captures = !given && wanted && sg_captures_active();
    for (int i = 0; i < CAPTURE_STEPS && captures && sg_captures_active(); i++)
        usleep(CAPTURE_STEP_MS * 1000);
    if (captures)
        given = trim_devices(wanted, keep);
    atomic_fetch_add(&own->given, given);
    note_held(own);
    atomic_store(&own->answered, asked);
    sg_neighbour_answered(own);
}

/* True if a device is nearly full and holds memory of ours that is idle. */
static bool is_short(struct sg_core *core, int device)
{
    const struct sg_driver *driver = sg_process_driver();
    struct sg_stats stats;
    size_t available, total;
    bool known = false;
    struct visit visit;
    if (!sg_core_stats(core, device, &stats) ||
        stats.value[SG_STAT_reserved_bytes] == stats.value[SG_STAT_allocated_bytes])
        return false;
    if (trim_enter(driver, device, &visit)) {
        known = driver->mem_info(&available, &total) == CUDA_SUCCESS;
        trim_leave(driver, &visit);
    }
    return known && available < total / NEARLY_FULL;
}

/* `events`: how many there had been of each device when it was looked at before. */
static void look_for_idle(uint64_t events[SG_NEIGHBOUR_DEVICES])
{
    for (int i = 0; i < atomic_load(&neighbours.devices); i++) {
        int device = neighbours.device[i];
        struct sg_core *core = sg_enter();
        struct sg_stats stats;
        if (!core)
            return;
        bool quiet = false, lacking = false;
        if (sg_core_stats(core, device, &stats)) {
            uint64_t now = stats.value[SG_STAT_allocs] + stats.value[SG_STAT_frees];
            quiet = now == events[i];
            events[i] = now;
            lacking = quiet && !sg_captures_active() && is_short(core, device);
        }
        sg_leave();
        if (lacking)
            trim_device(device, 0);
    }
}

/* Gives back what should go before a limit is passed, as far as it is idle, and keeps the rest for the program.

   For example, 100 MiB are held and 60 of them idle. A limit wants 25 back, so 35 stay idle: that is what sg_core_trim()
   is to keep. */
static void heed_pressure(void)
{
    for (int i = 0; i < atomic_load(&neighbours.devices); i++) {
        int device = neighbours.device[i];
        uint64_t wanted = sg_pressure_take(device), idle = 0;
        struct sg_core *core = wanted ? sg_enter() : NULL;
        struct sg_stats stats;
        if (!core)
            continue;
        if (sg_core_stats(core, device, &stats))
            idle = stats.value[SG_STAT_reserved_bytes] - stats.value[SG_STAT_allocated_bytes];
        sg_leave();
        if (idle)
            trim_device(device, idle > wanted ? idle - wanted : 0);
    }
}

/* How long the helper sleeps: until the next look at idle memory, which `passed` ns of sleep are taken off, or at
   limits. 0: until somebody asks. */
static uint64_t sleep_ns(uint64_t passed)
{
    uint64_t look = sg_pressure_look_ns(), idle = neighbours.idle_ns > passed ? neighbours.idle_ns - passed : 0;
    if (!neighbours.idle_ns || !look)
        return look ? look : idle;
    return !idle ? 1 : look < idle ? look : idle;
}

/* The helper thread's life: asleep until a question comes or `trim_idle` has passed. It ends with the process, or where
   another process has taken its place in the table. */
static void *trim_help(void *user)
{
    (void)user;
    uint64_t events[SG_NEIGHBOUR_DEVICES] = {0}, passed = 0;
    struct sg_neighbour *own;
    prctl(PR_SET_NAME, "segalloc-trim", 0, 0, 0);
    while ((own = atomic_load(&neighbours.own)) != NULL && !sg_process_over()) {
        uint64_t slept = sleep_ns(passed);
        bool asked = sg_neighbour_sleep(own, slept);
        if (atomic_load(&own->pid) != (int32_t)getpid())
            break; /* left at the end of this process, which may take a while; or somebody took it for dead: it is in another
                      container. The next owner's questions are not to be answered here */
        passed = asked ? 0 : passed + slept;
        if (asked)
            trim_answer(own);
        heed_pressure();
        if (!asked && neighbours.idle_ns && passed >= neighbours.idle_ns) {
            passed = 0;
            look_for_idle(events);
        }
    }
    return NULL;
}

/* Joins the table of this user's processes and starts the helper. Without a free row, or a thread, the process does
   without. */
void sg_trim_open(const struct sg_conf *conf)
{
    struct sg_neighbours *table;
    if (!conf->trim_on_request || sg_neighbours_map(geteuid(), /* create */ true, &table) != 0)
        return;
    struct sg_neighbour *own = sg_neighbours_join(table);
    if (!own)
        return;
    neighbours.table = table;
    neighbours.idle_ns = (uint64_t)(conf->trim_idle_s * 1e9);
    atomic_store_explicit(&neighbours.own, own, memory_order_release);
    if (!sg_worker_start(trim_help, NULL))
        sg_trim_close();
}

/* Others are asked only if the device itself is short: with 64 MiB more free than was asked for, its fullness is not
   the reason. */
bool sg_trim_ask_others(const struct sg_driver *driver, int device, size_t bytes)
{
    struct sg_neighbour *own = atomic_load(&neighbours.own);
    size_t available, total;
    if (!own || driver->mem_info(&available, &total) != CUDA_SUCCESS || bytes > total || available > bytes + MARGIN)
        return false;
    for (int i = 0; i < atomic_load(&neighbours.devices); i++) {
        if (neighbours.device[i] == device)
            return sg_neighbours_ask_all(neighbours.table, own, atomic_load(&own->devices[i]), HELP_MS * MS,
                       OWING_MS * MS) > 0;
    }
    return false;
}

/* The table, for a process that need not be in it. NULL: there is none, or it is not to be used. */
static struct sg_neighbours *table_of_others(void)
{
    static _Atomic(struct sg_neighbours *) seen;
    struct sg_neighbours *table = atomic_load(&neighbours.own) ? neighbours.table : atomic_load(&seen);
    if (table || !sg_process_conf()->trim_on_request)
        return table;
    if (sg_neighbours_map(geteuid(), /* create */ false, &table) != 0)
        return NULL;
    atomic_store(&seen, table); /* two threads at once map it twice, for good */
    return table;
}

/* The device of the current context; below 0: there is none. */
static int trim_current_device(void)
{
    CUresult (*get)(CUdevice *ret);
    CUdevice device = -1;
    void *symbol = sg_cuda_symbol("cuCtxGetDevice");
    memcpy(&get, &symbol, sizeof symbol);
    return symbol && get(&device) == CUDA_SUCCESS ? device : -1;
}

static bool ask_about(struct sg_neighbours *table, int device)
{
    uint64_t id = device >= 0 ? trim_device_id(device) : 0;
    return id && sg_neighbours_ask_all(table, atomic_load(&neighbours.own), id, HELP_MS * MS, OWING_MS * MS) > 0;
}

/* For callers that do not know what they lack. The current device's users come first, then those of each device. */
bool sg_trim_ask_others_of(int device)
{
    struct sg_neighbours *table = table_of_others();
    if (!table)
        return false;
    if (device >= 0 || ask_about(table, trim_current_device()))
        return device < 0 || ask_about(table, device);
    bool given = false;
    for (int i = 0; i < SG_NEIGHBOUR_DEVICES && trim_device_id(i); i++)
        given |= ask_about(table, i);
    return given;
}

uint64_t sg_trim_idle_of_others(void)
{
    struct sg_neighbours *table = table_of_others();
    int device = table ? trim_current_device() : -1;
    uint64_t id = device >= 0 ? trim_device_id(device) : 0;
    return id ? sg_neighbours_idle(table, atomic_load(&neighbours.own), id, TELL_MS * MS) : 0;
}

/* Read from the answers to the last question; nobody is asked now. The device may be one that this process has not
   told others of: it has served nothing there. */
size_t sg_trim_others(int device, struct sg_neighbour_holds *ret, size_t most)
{
    struct sg_neighbours *table = table_of_others();
    uint64_t id = table ? trim_device_id(device) : 0;
    return id ? sg_neighbours_holding(table, atomic_load(&neighbours.own), id, ret, most) : 0;
}

void sg_trim_close(void)
{
    struct sg_neighbour *own = atomic_exchange(&neighbours.own, NULL);
    if (own)
        sg_neighbours_leave(own);
}

void sg_trim_forget(void)
{
    atomic_store(&neighbours.own, NULL);
}
