/* The state of the process as hooks ask it: the core, the configuration, the driver's table, who is inside.

   Each answer is one atomic load where a core is there. The configuration, the driver's table and a tool that watches
   are found once and kept with a flag. A thread that finds the flag unset looks for itself, and the first to finish
   writes. */
#include "process/process.h"

#include <signal.h>
#include <stdatomic.h>

#include "process/environment.h"
#include "process/host_limits.h"
#include "process/process_state.h"
#include "process/stand_ins.h"
#include "process/symbols.h"
#include "process/upward_calls.h"

struct sg_core *sg_process_core_made(void)
{
    return atomic_load(&sg_process.made);
}

struct sg_core *sg_process_core(void)
{
    return atomic_load_explicit(&sg_process.state, memory_order_acquire) == SG_PROCESS_LIVE ? sg_process.core : NULL;
}

/* The first thread reads it, with signals held off: a handler that allocates would need the configuration and wait for
   this lock. */
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
static bool process_is_watched(void)
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
    return atomic_load_explicit(&sg_process.state, memory_order_acquire) == SG_PROCESS_PASSTHROUGH ||
           process_is_watched();
}

bool sg_process_is_passthrough(void)
{
    enum sg_process_state state = atomic_load_explicit(&sg_process.state, memory_order_acquire);
    return state == SG_PROCESS_PASSTHROUGH ||
           (state == SG_PROCESS_EARLY &&
               (process_is_watched() || sg_process_conf()->backend == SG_BACKEND_CUDA_MALLOC_ASYNC));
}

bool sg_process_over(void)
{
    enum sg_process_state state = atomic_load_explicit(&sg_process.state, memory_order_acquire);
    return state == SG_PROCESS_CHILD || state == SG_PROCESS_EXITING;
}

/* An error that a context had for good disabled the core. The context is gone, so the core serves again, unless the
   process is over by now. */
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
           (sg_core_owns(sg_process.core, address) || sg_is_stand_in(address));
}

static void *process_look_up(void *user, const char *symbol)
{
    (void)user;
    return sg_cuda_symbol(symbol);
}

/* Looked up without a lock, then entered under SG_LOCK_REAL by the first. Where libcuda is not loaded, it is looked for
   again the next time. */
const struct sg_driver *sg_process_driver(void)
{
    int known = atomic_load_explicit(&sg_process.driver_known, memory_order_acquire);
    if (!known) {
        struct sg_driver driver = {0};
        if (!sg_cuda_symbol("cuInit"))
            return NULL;
        known = sg_driver_load(&driver, process_look_up, NULL) ? 2 : 1;
        sg_process_lock(SG_LOCK_REAL);
        if (!atomic_load_explicit(&sg_process.driver_known, memory_order_relaxed)) {
            if (known == 1)
                sg_host_limits_heed(&driver, sg_process_conf);
            sg_process.driver = driver;
            atomic_store_explicit(&sg_process.driver_known, known, memory_order_release);
        }
        sg_process_unlock(SG_LOCK_REAL);
    }
    return known == 1 ? &sg_process.driver : NULL;
}

/* `ipc` changes once, from auto to always. Blocks that exist stay as they are. */
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

/* One load and two tests on the way of every hook. */
struct sg_core *sg_enter(void)
{
    if (sg_self.inside || sg_self.guards ||
        atomic_load_explicit(&sg_process.state, memory_order_acquire) != SG_PROCESS_LIVE)
        return NULL;
    sg_self.inside = true;
    return sg_process.core;
}

static struct sg_core *enter_allocation(enum sg_start_needs needs)
{
    sg_self.reached = true;
    if (sg_self.inside || sg_self.guards)
        return NULL;
    sg_self.inside = true;
    enum sg_process_state state = atomic_load_explicit(&sg_process.state, memory_order_acquire);
    if (state == SG_PROCESS_EARLY && sg_cuda_symbol("cuInit"))
        state = sg_upward_calls.start(needs);
    else if (state == SG_PROCESS_STARTING)
        state = sg_process_wait_for_start();
    sg_self.inside = state == SG_PROCESS_LIVE;
    if (!sg_self.inside)
        return NULL;
    sg_upward_calls.allocates();
    return sg_process.core;
}

struct sg_core *sg_enter_allocation(void)
{
    return enter_allocation(SG_START_WITH_CONTEXT);
}

struct sg_core *sg_enter_traced(void)
{
    return enter_allocation(SG_START_ANYHOW);
}

void sg_leave(void)
{
    sg_self.inside = false;
}
