#include "process/glibc_symver.h"

#include "process/process.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "track/captures.h"
#include "clock.h"
#include "services/alias_probe.h"
#include "track/context_wait.h"
#include "track/contexts.h"
#include "services/hazard_annotations.h"
#include "process/environment.h"
#include "process/worker_thread.h"
#include "track/free_policy.h"
#include "track/ipc.h"
#include "lock.h"
#include "serve/requests.h"
#include "writer/path_pattern.h"
#include "services/recorder.h"
#include "process/symbols.h"
#include "rest.h"
#include "segalloc/segalloc.h"
#include "sites/sites.h"
#include "track/streams.h"
#include "torch/torch.h"
#include "services/trim.h"
#include "track/context_pins.h"

enum state { EARLY, STARTING, LIVE, PASSTHROUGH, CHILD, EXITING };

enum {
    STATUS_BAD_CONF = 125,    /* as of env(1) and the like: it was us, not the program */
    START_STEP_NS = 50000,
    START_STEPS = 4000,       /* how long another thread's start is waited for */
};

static struct {
    _Atomic(enum state) state;
    struct sg_core *core; /* set before the state leaves EARLY */
    pid_t pid;            /* likewise: of the process that the core is of */
    _Atomic(struct sg_core *) made; /* the same, from when it can be told things on */
    atomic_int driver_known; /* 0 not looked for, 1 complete, 2 lacking something */
    struct sg_driver driver;
    struct sg_driver capture_safe; /* the same for the core */
    atomic_bool conf_read;
    struct sg_conf conf;
    atomic_int watched; /* 0 not looked at, 1 no, 2 yes */
    struct sg_lock locks[SG_LOCK_COUNT];
} life = {
    .locks =
        {
#define CORE_LOCK(name, guards)
#define PROCESS_LOCK(name, guards) [SG_LOCK_##name] = SG_LOCK_INIT(SG_RANK_##name),
#include "locks.def"
#undef CORE_LOCK
#undef PROCESS_LOCK
        },
};

__thread struct sg_thread sg_self;
__thread struct sg_thread *sg_self_found;
_Atomic unsigned sg_fast_path_epoch;

struct sg_core *sg_process_core_made(void)
{
    return atomic_load(&life.made);
}

struct sg_core *sg_process_core(void)
{
    return atomic_load_explicit(&life.state, memory_order_acquire) == LIVE ? life.core : NULL;
}

struct sg_thread *sg_thread_find(void)
{
    sg_self_found = &sg_self;
    return sg_self_found;
}

bool sg_thread_inside(void)
{
    return sg_self.inside;
}

bool sg_thread_enter(void)
{
    bool outer = sg_self.inside;
    sg_self.inside = true;
    return outer;
}

void sg_thread_leave(bool outer)
{
    sg_self.inside = outer;
}

/* A handler that comes between two of these steps finds the bit set. */
static void guard_begin(enum sg_process_lock guard)
{
    sg_self.guards |= 1u << guard;
    atomic_signal_fence(memory_order_seq_cst);
}

static void guard_end(enum sg_process_lock guard)
{
    atomic_signal_fence(memory_order_seq_cst);
    sg_self.guards &= ~(1u << guard);
}

void sg_process_lock(enum sg_process_lock guard)
{
    guard_begin(guard);
    sg_lock(&life.locks[guard]);
}

bool sg_process_lock_try(enum sg_process_lock guard)
{
    unsigned before = sg_self.guards;
    guard_begin(guard);
    bool taken = sg_lock_try(&life.locks[guard]);
    if (!taken && !(before >> guard & 1)) /* else a handler asks within it */
        guard_end(guard);
    return taken;
}

void sg_process_unlock(enum sg_process_lock guard)
{
    sg_unlock(&life.locks[guard]);
    guard_end(guard);
}

void sg_process_assert_locked(enum sg_process_lock guard)
{
    (void)guard;
    SG_ASSERT_HELD(&life.locks[guard]);
}

void sg_log_line(const char *line)
{
    int before = errno;
    char text[1024];
    int length = snprintf(text, sizeof text, "segalloc: %s\n", line);
    if (length >= (int)sizeof text) {
        length = sizeof text;
        text[sizeof text - 1] = '\n';
    }
    int cancel = sg_cancel_off();
    ssize_t written = write(STDERR_FILENO, text, (size_t)length);
    (void)written;
    sg_cancel_restore(cancel);
    errno = before;
}

static void say_problem(void *user, const char *line)
{
    (void)user;
    sg_log_line(line);
}

static unsigned read_conf(struct sg_conf *conf, sg_conf_warn_fn *warn)
{
    const struct sg_conf_inputs inputs = {
        .system_file = SG_CONF_SYSTEM_FILE,
        .conf_file = sg_environment("SEGALLOC_CONF_FILE"),
        .environment = sg_environment("SEGALLOC_CONF"),
        .trace = sg_environment("SEGALLOC_TRACE"),
        .stats = sg_environment("SEGALLOC_STATS"),
        .pytorch_cuda = sg_environment("PYTORCH_CUDA_ALLOC_CONF"),
        .pytorch = sg_environment("PYTORCH_ALLOC_CONF"),
    };
    return sg_conf_load(conf, &inputs, warn, NULL);
}

const struct sg_conf *sg_process_conf(void)
{
    if (!atomic_load_explicit(&life.conf_read, memory_order_acquire)) {
        sg_process_lock(SG_LOCK_PROCESS);
        if (!atomic_load_explicit(&life.conf_read, memory_order_relaxed)) {
            read_conf(&life.conf, NULL);
            atomic_store_explicit(&life.conf_read, true, memory_order_release);
        }
        sg_process_unlock(SG_LOCK_PROCESS);
    }
    return &life.conf;
}

const char *segalloc_record(const char *path)
{
    (void)sg_process_conf();
    sg_process_lock(SG_LOCK_PROCESS);
    bool early = atomic_load(&life.state) == EARLY, has_trace = *life.conf.trace != '\0';
    if (early && path && strlen(path) < sizeof life.conf.trace) {
        if (!has_trace)
            strcpy(life.conf.trace, path);
        life.conf.sites = true;
    }
    bool will = early && *life.conf.trace && life.conf.sites;
    sg_process_unlock(SG_LOCK_PROCESS);
    return will ? life.conf.trace : life.conf.sites ? sg_recorder_path() : NULL;
}

/* What is wrong with the configuration is said by a process that allocates, not by all those that only look whether
   there is a device. */
static void process_complain(void)
{
    struct sg_conf scratch;
    if (read_conf(&scratch, say_problem) && scratch.abort_conf)
        _exit(STATUS_BAD_CONF);
}

/* A tool that replaces or checks the driver's memory calls would be misled by blocks inside one mapping. */
static bool watched(void)
{
    int known = atomic_load_explicit(&life.watched, memory_order_relaxed);
    if (!known) {
        const char *injection = sg_environment("CUDA_INJECTION64_PATH");
        bool found = (injection && *injection) || sg_library_loaded("libsanitizer-collection") ||
            sg_library_loaded("libInterceptorInjection");
        known = found ? 2 : 1;
        atomic_store_explicit(&life.watched, known, memory_order_relaxed);
    }
    return known == 2;
}

bool sg_process_watched(void)
{
    return atomic_load_explicit(&life.state, memory_order_acquire) == PASSTHROUGH || watched();
}

bool sg_process_is_passthrough(void)
{
    enum state state = atomic_load_explicit(&life.state, memory_order_acquire);
    return state == PASSTHROUGH ||
        (state == EARLY && (watched() || sg_process_conf()->backend == SG_BACKEND_CUDA_MALLOC_ASYNC));
}

bool sg_process_over(void)
{
    enum state state = atomic_load_explicit(&life.state, memory_order_acquire);
    return state == CHILD || state == EXITING;
}

void sg_process_recover(void)
{
    struct sg_core *core = sg_process_core();
    if (!core)
        return;
    sg_core_enable(core);
    if (sg_process_over()) /* it has come to that meanwhile */
        sg_core_disable(core);
}

bool sg_process_owns(CUdeviceptr address)
{
    enum state state = atomic_load_explicit(&life.state, memory_order_acquire);
    return (state == LIVE || state == CHILD || state == EXITING) && life.core && sg_core_owns(life.core, address);
}

static void *look_up(void *user, const char *symbol)
{
    (void)user;
    return sg_cuda_symbol(symbol);
}

/* A libcuda may export calls that the driver beneath it is too old for (the simulated one, and the forward
   compatibility packages): they aren't there. Source of the versions: hooks.def. */
static void leave_out_newer(struct sg_driver *driver)
{
    CUresult (*get_version)(int *);
    void *symbol = sg_cuda_symbol("cuDriverGetVersion");
    int version = 0;
    memcpy(&get_version, &symbol, sizeof symbol);
    if (!symbol || get_version(&version) != CUDA_SUCCESS)
        return;
    if (version < 12050)
        driver->ctx_record_event = NULL;
    if (version < 13000)
        driver->ctx_synchronize_of = NULL;
}

const struct sg_driver *sg_process_driver(void)
{
    int known = atomic_load_explicit(&life.driver_known, memory_order_acquire);
    if (!known) {
        struct sg_driver driver = {0};
        if (!sg_cuda_symbol("cuInit"))
            return NULL;
        known = sg_driver_load(&driver, look_up, NULL) ? 2 : 1;
        leave_out_newer(&driver);
        sg_process_lock(SG_LOCK_REAL);
        if (!atomic_load_explicit(&life.driver_known, memory_order_relaxed)) {
            life.driver = driver;
            atomic_store_explicit(&life.driver_known, known, memory_order_release);
        }
        sg_process_unlock(SG_LOCK_REAL);
    }
    return known == 1 ? &life.driver : NULL;
}

enum sg_share sg_process_share(void)
{
    struct sg_core *core = sg_process_core_made();
    enum sg_share share = SG_SHARE_FORBIDDEN;
    sg_process_lock(SG_LOCK_PROCESS);
    if (core && life.conf.ipc != SG_IPC_NEVER)
        share = life.conf.ipc == SG_IPC_AUTO ? SG_SHARE_BEGINS : SG_SHARE_GOES_ON;
    if (share == SG_SHARE_BEGINS)
        life.conf.ipc = SG_IPC_ALWAYS;
    sg_process_unlock(SG_LOCK_PROCESS);
    if (share == SG_SHARE_BEGINS)
        sg_core_share(core);
    return share;
}

static void confirm_conf(const struct sg_conf *conf)
{
    for (int i = 0; i < SG_OPTION_COUNT; i++) {
        char value[SG_PATH_BYTES], line[SG_PATH_BYTES + 128];
        snprintf(line, sizeof line, "%s:%s (%s)", sg_option_info((enum sg_option)i)->name,
                 sg_conf_format(conf, (enum sg_option)i, value, sizeof value),
                 sg_conf_source_name((enum sg_conf_source)conf->source[i]));
        sg_log_line(line);
    }
}

/* Around an event of ours that is recorded on a stream. */
static bool record_begin(void)
{
    sg_captures_exclude();
    if (!sg_captures_active())
        return true;
    sg_captures_allow();
    return false;
}

/* Whether this is Windows' Linux, whose driver has neither exportable handles nor network cards that reach the
   device. */
static bool is_wsl(void)
{
    struct utsname system;
    return uname(&system) == 0 && (strstr(system.release, "microsoft") || strstr(system.release, "Microsoft"));
}

/* By the one thread that took the state from EARLY to STARTING. */
static enum state create_core(const struct sg_driver *driver)
{
    sg_captures_make_driver_safe(driver, &life.capture_safe);
    sg_sites_open(&life.conf);
    sg_annotate_start();
    sg_torch_begins();
    if (sg_ipc_decide() || (life.conf.ipc == SG_IPC_AUTO && sg_torch_caches())) {
        sg_process_lock(SG_LOCK_PROCESS);
        life.conf.ipc = SG_IPC_ALWAYS;
        sg_process_unlock(SG_LOCK_PROCESS);
    }
    if (life.conf.confirm_conf)
        confirm_conf(&life.conf);
    life.conf.alias = sg_alias_probe_decide(&life.conf, driver);
    struct sg_core_params params = {
        .conf = &life.conf,
        .driver = &life.capture_safe,
        .observer = sg_recorder_open(&life.conf),
        .now_ns = sg_clock_coarse_ns,
        .measure_ns = sg_annotate_clock(),
        .warn = sg_log_line,
        .record_begin = record_begin,
        .record_end = sg_captures_allow,
        .wait_for_context = sg_context_wait,
        .aside = sg_worker_run,
        .begin_aside = sg_worker_begin,
        .enter_context = sg_context_pin_current,
        .leave_context = sg_context_unpin_current,
        .plain_pages = is_wsl(),
        .untried_aliases = life.conf.alias == SG_ALIAS_AUTO,
    };
    life.pid = getpid();
    life.core = sg_core_create(&params);
    if (!life.core)
        return PASSTHROUGH;
    atomic_store(&life.made, life.core);
    sg_contexts_tell(life.core);
    if (life.conf.free_sync == SG_FREE_SYNC_STREAM)
        sg_memory_follow();
    else if (life.conf.free_sync == SG_FREE_SYNC_EVENT && !driver->ctx_record_event)
        sg_follow(); /* instead of an event over a context, one on each of its streams */
    return LIVE;
}

/* Waits for the thread that makes the core. Not for ever: that one may need the loader's lock, and this one may be
   called by a constructor and hold it. Then the driver serves. */
static enum state wait_for_start(void)
{
    enum state state = STARTING;
    for (int i = 0; i < START_STEPS && state == STARTING; i++) {
        sg_rest(START_STEP_NS);
        state = atomic_load_explicit(&life.state, memory_order_acquire);
    }
    return state;
}

/* The first allocation. Stays EARLY where the program can't allocate yet: without a driver or a context. */
static enum state process_start(void)
{
    CUcontext context = NULL;
    const struct sg_driver *driver = sg_process_driver();
    bool passing = sg_process_is_passthrough() || !driver;
    if (!passing && (driver->ctx_get_current(&context) != CUDA_SUCCESS || !context))
        return EARLY;
    enum state state = EARLY;
    if (!atomic_compare_exchange_strong(&life.state, &state, STARTING))
        return state == STARTING ? wait_for_start() : state;
    int cancel = sg_cancel_off();
    process_complain();
    state = passing ? PASSTHROUGH : create_core(driver);
    atomic_store_explicit(&life.state, state, memory_order_release);
    if (state == LIVE) {
        sg_contexts_tell(life.core);
        sg_trim_open(&life.conf);
    }
    sg_cancel_restore(cancel);
    return state;
}

struct sg_core *sg_enter(void)
{
    if (sg_self.inside || atomic_load_explicit(&life.state, memory_order_acquire) != LIVE)
        return NULL;
    sg_self.inside = true;
    return life.core;
}

struct sg_core *sg_enter_allocation(void)
{
    if (sg_self.inside)
        return NULL;
    sg_self.inside = true;
    enum state state = atomic_load_explicit(&life.state, memory_order_acquire);
    if (state == EARLY && sg_cuda_symbol("cuInit"))
        state = process_start();
    else if (state == STARTING)
        state = wait_for_start();
    sg_self.inside = state == LIVE;
    if (!sg_self.inside)
        return NULL;
    if (sg_sites_on)
        sg_sites_note(sg_this_thread());
    sg_ipc_look();
    return life.core;
}

void sg_leave(void)
{
    sg_self.inside = false;
}

/* The core's locks come before those of this layer. A handler that has interrupted the holder of one of the latter takes
   no others: another thread may wait for that one with them. */
static void fork_prepare(void)
{
    sg_self.fork.guarded = !sg_self.guards;
    sg_self.fork.live = atomic_load(&life.state) == LIVE;
    sg_self.fork.locked = sg_self.fork.live && !sg_self.inside && sg_self.fork.guarded;
    if (sg_self.fork.locked)
        sg_self.fork.devices = sg_core_fork_prepare(life.core);
    for (int i = 0; sg_self.fork.guarded && i < SG_LOCK_COUNT; i++)
        sg_process_lock((enum sg_process_lock)i);
}

static void fork_parent(void)
{
    for (int i = SG_LOCK_COUNT - 1; sg_self.fork.guarded && i >= 0; i--)
        sg_process_unlock((enum sg_process_lock)i);
    if (sg_self.fork.locked)
        sg_core_fork_parent(life.core, sg_self.fork.devices);
}

static void fork_child(void)
{
    if (sg_self.fork.live) {
        sg_core_fork_child(life.core);
        sg_core_disable(life.core);
        sg_recorder_forget();
        sg_sites_forget();
        sg_trim_forget();
        atomic_store(&life.state, CHILD);
        atomic_fetch_add(&sg_fast_path_epoch, 1);
    } else if (atomic_load(&life.state) == STARTING) {
        atomic_store(&life.state, PASSTHROUGH);
    }
    sg_captures_fork_child();
    for (int i = 0; i < SG_LOCK_COUNT; i++) {
        if (!sg_self.fork.guarded && sg_self.guards >> i & 1)
            continue; /* what the handler has interrupted gives it back */
        sg_lock_init(&life.locks[i], (enum sg_lock_rank)(SG_RANK_PROCESS + i), 0);
        guard_end((enum sg_process_lock)i);
    }
}

__attribute__((constructor)) static void process_load(void)
{
    sg_environment_keep();
    pthread_atfork(fork_prepare, fork_parent, fork_child);
}

/* The process that `segalloc run -o` became ends, and has written no trace: says so, unless one of its children has.
   SEGALLOC_RUN is its number and when it began. */
static void miss_trace(enum state state)
{
    char line[SG_PATH_BYTES + 128];
    long pid;
    long long began;
    const char *run = sg_environment("SEGALLOC_RUN");
    if (!run || sscanf(run, "%ld@%lld", &pid, &began) != 2 || pid != getpid())
        return;
    const char *trace = sg_process_conf()->trace;
    if (!*trace || sg_path_is_there(trace, began))
        return;
    snprintf(line, sizeof line, "no trace in %s: %s; `segalloc doctor -- CMD` says why", trace,
        state == PASSTHROUGH ? "the driver served all allocations" : "no device memory was asked for");
    sg_log_line(line);
}

/* Destructors and handlers that come later may still free: they find a disabled core. Whoever ends the process from
   within a call of ours (a signal handler) may hold the core's locks, as may a thread that has left one by a long jump:
   the files are left as by a kill then. In a child that was made by the kernel's clone, of which no handler of fork()
   was told, all that is shared is the parent's. */
__attribute__((destructor)) static void process_unload(void)
{
    enum state live = LIVE;
    enum state now = atomic_load(&life.state);
    if (now == EARLY || now == PASSTHROUGH)
        miss_trace(now);
    if (now != live)
        return;
    bool own = life.pid == getpid();
    if (!atomic_compare_exchange_strong(&life.state, &live, own ? EXITING : CHILD))
        return;
    atomic_fetch_add(&sg_fast_path_epoch, 1);
    sg_core_disable(life.core);
    if (!own)
        return;
    sg_trim_close();
    if (!sg_self.inside && sg_core_is_free(life.core))
        sg_recorder_close(life.core);
}
