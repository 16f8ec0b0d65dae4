/* Start-up, fork and exit: what makes the parts of the library and puts them together.

   The constructor keeps the environment, notes which file is standard error, and registers fork handlers, no more. The
   first allocation does the rest. It begins with the configuration of the process and of its card. Then come worker,
   driver, sites, checker, PyTorch, IPC, recorder, core, contexts, following, trim. Each part may use those before it.

   Exit goes the other way. The core is disabled first, so that destructors find frees that do nothing. Files are closed
   last, and only if no thread holds the core's locks. */
#include "process/glibc_symver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/host_memory.h"
#include "check/check_run.h"
#include "process/card_conf.h"
#include "process/environment.h"
#include "process/interposers.h"
#include "process/log.h"
#include "process/process.h"
#include "process/process_state.h"
#include "process/upward_calls.h"
#include "process/worker_thread.h"
#include "base/rest.h"
#include "segalloc/segalloc.h"
#include "serve/capture_safe_driver.h"
#include "serve/contents_file.h"
#include "serve/free.h"
#include "serve/pause.h"
#include "services/alias_probe.h"
#include "services/hazard_annotations.h"
#include "services/outside_trace.h"
#include "services/overflow_peers.h"
#include "services/recorder.h"
#include "report/refusals.h"
#include "report/summary.h"
#include "services/trim.h"
#include "sites/note.h"
#include "sites/sites.h"
#include "torch/torch_question.h"
#include "track/torch_mode.h"
#include "track/captures.h"
#include "track/context_pins.h"
#include "track/context_wait.h"
#include "track/contexts.h"
#include "track/free_policy.h"
#include "track/memory_tags.h"
#include "track/held_outside.h"
#include "track/ipc.h"
#include "track/streams.h"
#include "trace/writer/path_pattern.h"

enum { STATUS_BAD_CONF = 125 }; /* as of env(1) and the like: it was us, not the program */

/* One line for each wrong entry of the configuration. */
static void say_problem(void *user, const char *line)
{
    (void)user;
    sg_log_line(line);
}

/* A process that allocates says what is wrong with the configuration; those that only look whether there is a device do
   not. */
static void process_complain(void)
{
    struct sg_conf scratch;
    if (sg_process_read_conf(&scratch, say_problem) && scratch.abort_conf)
        _exit(STATUS_BAD_CONF);
}

/* One line for each option with its value and where that came from, for confirm_conf:True. */
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

/* Bytes of the host's memory that pages may take: beyond the reserve of the machine and of the control group. */
static uint64_t host_room(void)
{
    struct sg_host_memory memory;
    double reserve = sg_process.conf.host_reserve;
    return sg_host_memory_read("", reserve, &memory) ? sg_host_memory_room(&memory, reserve) : 0;
}

/* True if this is Windows' Linux, whose driver has neither exportable handles nor network cards that reach the
   device. */
static bool is_wsl(void)
{
    struct utsname system;
    return uname(&system) == 0 && (strstr(system.release, "microsoft") || strstr(system.release, "Microsoft"));
}

/* Called by the one thread that took the state from EARLY to STARTING. */
static enum sg_process_state create_core(const struct sg_driver *driver)
{
    if (sg_card_conf_read(say_problem) && sg_process.conf.abort_conf)
        _exit(STATUS_BAD_CONF);
    sg_worker_prepare();
    sg_captures_make_driver_safe(driver, &sg_process.capture_safe);
    if (sg_process.conf.check) {
        sg_process_lock(SG_LOCK_PROCESS);
        sg_process.conf.sites = true; /* a finding names lines of the program */
        sg_process_unlock(SG_LOCK_PROCESS);
    }
    if (!sg_memory_tags_open(sg_process.conf.tag))
        sg_log_line("the option tag takes a name of 63 bytes at most: memory has no tag");
    sg_sites_open(&sg_process.conf);
    sg_check_open(&sg_process.conf, &sg_process.capture_safe);
    sg_annotate_start();
    sg_torch_begins();
    if (sg_ipc_decide() || (sg_process.conf.ipc == SG_IPC_AUTO && sg_torch_caches())) {
        sg_process_lock(SG_LOCK_PROCESS);
        sg_process.conf.ipc = SG_IPC_ALWAYS;
        sg_process_unlock(SG_LOCK_PROCESS);
    }
    if (sg_process.conf.confirm_conf)
        confirm_conf(&sg_process.conf);
    sg_alias_probe_first(&sg_process.conf, driver);
    struct sg_core_params params = {
        .conf = &sg_process.conf,
        .driver = &sg_process.capture_safe,
        .observer = sg_recorder_open(&sg_process.conf),
        .callbacks =
            {
                .now_ns = sg_clock_coarse_ns,
                .measure_ns = sg_annotate_clock(),
                .warn = sg_log_line,
                .record_begin = record_begin,
                .record_end = sg_captures_allow,
                .wait_for_context = sg_context_wait,
                .aside = sg_worker_run,
                .begin_aside = sg_worker_begin,
                .await_begun = sg_worker_await_begun,
                .enter_context = sg_context_pin_current,
                .leave_context = sg_context_unpin_current,
                .outside = sg_held_outside,
                .host_room = host_room,
                .neighbour = sg_process.conf.overflow.peer ? sg_overflow_peers_find : NULL,
                .aliases = sg_process.conf.alias == SG_ALIAS_AUTO ? sg_alias_probe_allows : NULL,
            },
        .plain_pages = is_wsl(),
    };
    sg_process.pid = getpid();
    sg_process.core = sg_core_create(&params);
    if (!sg_process.core)
        return SG_PROCESS_PASSTHROUGH;
    atomic_store(&sg_process.made, sg_process.core);
    sg_contexts_announce_all(sg_process.core);
    if (sg_process.conf.free_sync == SG_FREE_SYNC_STREAM)
        sg_follow_as_configured();
    else if (sg_process.conf.free_sync == SG_FREE_SYNC_EVENT && !driver->ctx_record_event)
        sg_follow(); /* instead of an event over a context, one on each of its streams */
    return SG_PROCESS_LIVE;
}

/* The first allocation. Stays EARLY where the program can't allocate yet: without a driver or a context. */
static enum sg_process_state process_start(enum sg_start_needs needs)
{
    CUcontext context = NULL;
    const struct sg_driver *driver = sg_process_driver();
    bool passing = sg_process_is_passthrough() || !driver;
    if (!passing && needs == SG_START_WITH_CONTEXT && (driver->ctx_get_current(&context) != CUDA_SUCCESS || !context))
        return SG_PROCESS_EARLY;
    enum sg_process_state state = SG_PROCESS_EARLY;
    if (!atomic_compare_exchange_strong(&sg_process.state, &state, SG_PROCESS_STARTING))
        return state == SG_PROCESS_STARTING ? sg_process_wait_for_start() : state;
    sigset_t all, before; /* a handler that allocates could come while the loader's lock is held */
    sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, &before);
    int cancel = sg_cancel_off();
    process_complain();
    state = passing ? SG_PROCESS_PASSTHROUGH : create_core(driver);
    atomic_store_explicit(&sg_process.state, state, memory_order_release);
    if (state == SG_PROCESS_LIVE) {
        sg_contexts_announce_all(sg_process.core);
        sg_trim_open(&sg_process.conf);
        sg_interposer_hidden();
    }
    sg_cancel_restore(cancel);
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    return state;
}

static void note_allocation(void)
{
    if (sg_sites_on)
        sg_sites_note(sg_this_thread());
    sg_ipc_look();
}

const struct sg_upward_calls sg_upward_calls = {
    .start = process_start,
    .allocates = note_allocation,
    .free = sg_memory_free,
    .record_stream = segalloc_record_stream,
    .order = sg_pause_order,
    .synchronize = sg_captures_synchronize,
};

/* Takes effect before the first allocation only. Returns the trace's path: the program's own, or the one of the
   environment, which stands. */
const char *segalloc_record(const char *path)
{
    (void)sg_process_conf();
    sg_process_lock(SG_LOCK_PROCESS);
    bool early = atomic_load(&sg_process.state) == SG_PROCESS_EARLY, has_trace = *sg_process.conf.trace != '\0';
    if (early && path && strlen(path) < sizeof sg_process.conf.trace) {
        if (!has_trace)
            strcpy(sg_process.conf.trace, path);
        sg_process.conf.sites = true;
    }
    bool will = early && *sg_process.conf.trace && sg_process.conf.sites;
    sg_process_unlock(SG_LOCK_PROCESS);
    return will ? sg_process.conf.trace : sg_process.conf.sites ? sg_recorder_path() : NULL;
}

/* The core's locks come before those of this layer. A handler that has interrupted the holder of one of the latter takes
   no others: another thread may wait for that one with them. */
static void fork_prepare(void)
{
    sg_self.fork.guarded = !sg_self.guards;
    sg_self.fork.live = atomic_load(&sg_process.state) == SG_PROCESS_LIVE;
    sg_self.fork.locked = sg_self.fork.live && !sg_self.inside && sg_self.fork.guarded;
    if (sg_self.fork.locked)
        sg_self.fork.devices = sg_core_fork_prepare(sg_process.core);
    for (int i = 0; sg_self.fork.guarded && i < SG_LOCK_COUNT; i++)
        sg_process_lock((enum sg_process_lock)i);
}

static void fork_parent(void)
{
    for (int i = SG_LOCK_COUNT - 1; sg_self.fork.guarded && i >= 0; i--)
        sg_process_unlock((enum sg_process_lock)i);
    if (sg_self.fork.locked)
        sg_core_fork_parent(sg_process.core, sg_self.fork.devices);
}

/* In the child of a process with a core: frees of the parent's blocks succeed and do nothing from here on, and
   allocations go to the driver, which refuses them in a forked child as it does natively. Files and shared memory are
   the parent's. A child of a thread that was just making the core has none, for good. */
static void fork_child(void)
{
    if (sg_self.fork.live) {
        sg_core_fork_child(sg_process.core);
        sg_core_disable(sg_process.core);
        sg_recorder_forget();
        sg_sites_forget();
        sg_trim_forget();
        sg_refusals_forget();
        sg_check_forget();
        atomic_store(&sg_process.state, SG_PROCESS_CHILD);
        atomic_fetch_add(&sg_fast_path_epoch, 1);
    } else if (atomic_load(&sg_process.state) == SG_PROCESS_STARTING) {
        atomic_store(&sg_process.state, SG_PROCESS_PASSTHROUGH);
    }
    sg_captures_fork_child();
    sg_pause_fork_child();
    sg_process_locks_reset();
}

__attribute__((constructor)) static void process_load(void)
{
    sg_environment_keep();
    sg_log_keep();
    pthread_atfork(fork_prepare, fork_parent, fork_child);
}

/* The process that `segalloc run -o` became ends, and has written no trace: says so, unless one of its children has.
   SEGALLOC_RUN is its number and when it began. */
static void miss_trace(enum sg_process_state state)
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
        state == SG_PROCESS_PASSTHROUGH ? "the driver served all allocations" : "no device memory was asked for");
    sg_log_line(line);
}

/* Destructors and handlers that come later may still free: they find a disabled core. A signal handler may end the
   process within a call of ours and hold locks of ours. A thread that has left a call by a long jump may, too. The
   files are left as by a kill then. In a child of the kernel's clone() no handler of fork() has run, and all that is
   shared is the parent's. */
__attribute__((destructor)) static void process_unload(void)
{
    enum sg_process_state live = SG_PROCESS_LIVE;
    enum sg_process_state now = atomic_load(&sg_process.state);
    if (now == SG_PROCESS_EARLY || now == SG_PROCESS_PASSTHROUGH)
        miss_trace(now);
    if (now != live)
        return;
    bool own = sg_process.pid == getpid();
    if (!atomic_compare_exchange_strong(&sg_process.state, &live, own ? SG_PROCESS_EXITING : SG_PROCESS_CHILD))
        return;
    atomic_fetch_add(&sg_fast_path_epoch, 1);
    sg_core_disable(sg_process.core);
    if (!own)
        return;
    sg_trim_close();
    sg_contents_file_close();
    sg_refusals_end();
    if (sg_self.inside || sg_self.guards || !sg_core_is_free(sg_process.core) || !sg_process_locks_come_free())
        return;
    for (int device = 0; device < SG_DEVICES_MAX; device++)
        if (sg_core_limit(sg_process.core, device)) /* it has been used */
            sg_refusals_count_questions(sg_process.core, device);
    sg_summary_print(sg_process.core);
    sg_recorder_close(sg_process.core);
}
