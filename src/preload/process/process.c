#include "process/process.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lock.h"
#include "process/environment.h"
#include "process/process_state.h"
#include "process/symbols.h"
#include "process/upward_calls.h"
#include "rest.h"

enum {
    START_STEP_NS = 50000,
    START_STEPS = 4000, /* how long another thread's start is waited for */
};

struct sg_process sg_process = {
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
    return atomic_load(&sg_process.made);
}

struct sg_core *sg_process_core(void)
{
    return atomic_load_explicit(&sg_process.state, memory_order_acquire) == SG_PROCESS_LIVE ? sg_process.core : NULL;
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
    sg_lock(&sg_process.locks[guard]);
}

bool sg_process_lock_try(enum sg_process_lock guard)
{
    unsigned before = sg_self.guards;
    guard_begin(guard);
    bool taken = sg_lock_try(&sg_process.locks[guard]);
    if (!taken && !(before >> guard & 1)) /* else a handler asks within it */
        guard_end(guard);
    return taken;
}

void sg_process_unlock(enum sg_process_lock guard)
{
    sg_unlock(&sg_process.locks[guard]);
    guard_end(guard);
}

void sg_process_assert_locked(enum sg_process_lock guard)
{
    (void)guard;
    SG_ASSERT_HELD(&sg_process.locks[guard]);
}

void sg_process_locks_reset(void)
{
    for (int i = 0; i < SG_LOCK_COUNT; i++) {
        if (!sg_self.fork.guarded && sg_self.guards >> i & 1)
            continue; /* what the handler has interrupted gives it back */
        sg_lock_init(&sg_process.locks[i], (enum sg_lock_rank)(SG_RANK_PROCESS + i), 0);
        guard_end((enum sg_process_lock)i);
    }
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

unsigned sg_process_read_conf(struct sg_conf *conf, sg_conf_warn_fn *warn)
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
    if (!atomic_load_explicit(&sg_process.conf_read, memory_order_acquire)) {
        sigset_t all, before; /* a handler that allocates would come to this lock, too */
        sigfillset(&all);
        (void)sigprocmask(SIG_SETMASK, &all, &before);
        sg_process_lock(SG_LOCK_PROCESS);
        if (!atomic_load_explicit(&sg_process.conf_read, memory_order_relaxed)) {
            sg_process_read_conf(&sg_process.conf, NULL);
            atomic_store_explicit(&sg_process.conf_read, true, memory_order_release);
        }
        sg_process_unlock(SG_LOCK_PROCESS);
        (void)sigprocmask(SIG_SETMASK, &before, NULL);
    }
    return &sg_process.conf;
}

/* A tool that replaces or checks the driver's memory calls would be misled by blocks inside one mapping. */
static bool watched(void)
{
    int known = atomic_load_explicit(&sg_process.watched, memory_order_relaxed);
    if (!known) {
        const char *injection = sg_environment("CUDA_INJECTION64_PATH");
        bool found = (injection && *injection) || sg_library_loaded("libsanitizer-collection") ||
            sg_library_loaded("libInterceptorInjection");
        int unknown = 0;
        known = found ? 2 : 1;
        if (atomic_compare_exchange_strong(&sg_process.watched, &unknown, known) && found)
            sg_log_line("a profiler or checker is in this process (CUDA_INJECTION64_PATH, compute-sanitizer): the driver "
                        "serves its memory, not segalloc");
    }
    return known == 2;
}

bool sg_process_watched(void)
{
    return atomic_load_explicit(&sg_process.state, memory_order_acquire) == SG_PROCESS_PASSTHROUGH || watched();
}

bool sg_process_is_passthrough(void)
{
    enum sg_process_state state = atomic_load_explicit(&sg_process.state, memory_order_acquire);
    return state == SG_PROCESS_PASSTHROUGH ||
           (state == SG_PROCESS_EARLY && (watched() || sg_process_conf()->backend == SG_BACKEND_CUDA_MALLOC_ASYNC));
}

bool sg_process_over(void)
{
    enum sg_process_state state = atomic_load_explicit(&sg_process.state, memory_order_acquire);
    return state == SG_PROCESS_CHILD || state == SG_PROCESS_EXITING;
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
    enum sg_process_state state = atomic_load_explicit(&sg_process.state, memory_order_acquire);
    return (state == SG_PROCESS_LIVE || state == SG_PROCESS_CHILD || state == SG_PROCESS_EXITING) && sg_process.core &&
           sg_core_owns(sg_process.core, address);
}

static void *look_up(void *user, const char *symbol)
{
    (void)user;
    return sg_cuda_symbol(symbol);
}

const struct sg_driver *sg_process_driver(void)
{
    int known = atomic_load_explicit(&sg_process.driver_known, memory_order_acquire);
    if (!known) {
        struct sg_driver driver = {0};
        if (!sg_cuda_symbol("cuInit"))
            return NULL;
        known = sg_driver_load(&driver, look_up, NULL) ? 2 : 1;
        sg_process_lock(SG_LOCK_REAL);
        if (!atomic_load_explicit(&sg_process.driver_known, memory_order_relaxed)) {
            sg_process.driver = driver;
            atomic_store_explicit(&sg_process.driver_known, known, memory_order_release);
        }
        sg_process_unlock(SG_LOCK_REAL);
    }
    return known == 1 ? &sg_process.driver : NULL;
}

enum sg_share sg_process_share(void)
{
    struct sg_core *core = sg_process_core_made(); /* which has served whoever asks */
    enum sg_share share = SG_SHARE_FORBIDDEN;
    sg_process_lock(SG_LOCK_PROCESS);
    if (sg_process.conf.ipc != SG_IPC_NEVER)
        share = sg_process.conf.ipc == SG_IPC_AUTO ? SG_SHARE_BEGINS : SG_SHARE_GOES_ON;
    if (share == SG_SHARE_BEGINS)
        sg_process.conf.ipc = SG_IPC_ALWAYS;
    sg_process_unlock(SG_LOCK_PROCESS);
    if (share == SG_SHARE_BEGINS)
        sg_core_share(core);
    return share;
}

enum sg_process_state sg_process_wait_for_start(void)
{
    enum sg_process_state state = SG_PROCESS_STARTING;
    for (int i = 0; i < START_STEPS && state == SG_PROCESS_STARTING; i++) {
        sg_rest(START_STEP_NS);
        state = atomic_load_explicit(&sg_process.state, memory_order_acquire);
    }
    return state;
}

struct sg_core *sg_enter(void)
{
    if (sg_self.inside || sg_self.guards ||
        atomic_load_explicit(&sg_process.state, memory_order_acquire) != SG_PROCESS_LIVE)
        return NULL;
    sg_self.inside = true;
    return sg_process.core;
}

struct sg_core *sg_enter_allocation(void)
{
    sg_self.reached = true;
    if (sg_self.inside || sg_self.guards)
        return NULL;
    sg_self.inside = true;
    enum sg_process_state state = atomic_load_explicit(&sg_process.state, memory_order_acquire);
    if (state == SG_PROCESS_EARLY && sg_cuda_symbol("cuInit"))
        state = sg_upward_calls.start();
    else if (state == SG_PROCESS_STARTING)
        state = sg_process_wait_for_start();
    sg_self.inside = state == SG_PROCESS_LIVE;
    if (!sg_self.inside)
        return NULL;
    sg_upward_calls.allocates();
    return sg_process.core;
}

void sg_leave(void)
{
    sg_self.inside = false;
}
