/* Observer, texts, statistics. `busy` is a flag and no lock. A thread that finds it set goes on without a snapshot,
   since another one is just written.

   For example, two threads allocate as event 256 comes. Both find statistics due; one sets `busy` and writes the
   file, the other goes on. The next snapshot is due with event 512, if half a second has passed. */
#include "inspect/core_state.h"
#include "services/recorder.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <dlfcn.h>

#include "services/alias_probe.h"
#include "services/hazard_annotations.h"
#include "process/environment.h"
#include "process/process.h"
#include "process/symbols.h"
#include "base/rest.h"
#include "trace/writer/live_pages.h"
#include "trace/writer/stats_file.h"
#include "track/streams.h"
#include "track/torch_mode.h"
#include "trace/writer/trace_writer.h"
#include "base/wrap.h"

enum { TEXT_BYTES = 8192, STATS_EVENTS = 256, STATS_PERIOD_NS = 500000000 };

/* Written before the core exists or under `busy`. */
static struct {
    struct sg_trace_writer *trace; /* NULL: none */
    _Atomic(const char *) stats;   /* path pattern, NULL: none */
    _Atomic(sg_recorder_phase_fn *) phase; /* NULL: nothing follows phases */
    uint64_t pid_namespace;
    char live[SG_LIVE_PATH]; /* of `live`: the path, which goes with the process; "" where it is not asked for */
    uint64_t start_ns;
    _Atomic uint64_t written_ns;
    char conf[TEXT_BYTES], command[TEXT_BYTES];
    bool untracked; /* the trace says so */
    uint64_t named; /* bit by ordinal: it says the device's model and UUID */
    struct sg_stats_device devices[SG_DEVICES_MAX]; /* by ordinal */
    CUuuid uuids[SG_DEVICES_MAX];                   /* by ordinal; where `devices` has a text of it */
    _Atomic uint64_t met, known; /* bit by ordinal: a thread looks at the device; what it found is in `devices` */
    _Atomic uint64_t events;
    atomic_flag busy; /* somebody takes a snapshot: an older one must not be written after it */
    double limit_fraction;
    uint64_t limit_bytes;
} recorder = {.busy = ATOMIC_FLAG_INIT};

static uint64_t recorder_now_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The command line of this process, its arguments apart by spaces; cut where it is too long. */
static void recorder_read_command(char *command, size_t size)
{
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? 0 : read(fd, command, size - 1);
    if (fd >= 0)
        close(fd);
    for (ssize_t i = 0; i + 1 < length; i++) {
        if (command[i] == '\0')
            command[i] = ' ';
    }
    command[length > 0 ? length : 0] = '\0';
}

/* Makes the writer. Its thread is started by the program's own pthread_create, found by name: it has moved between
   glibc's libraries. */
static void recorder_open_trace(const struct sg_conf *conf)
{
    struct sg_trace_writer_options options = {
        .path = conf->trace,
        .conf = recorder.conf,
        .command = recorder.command,
        .limit_bytes = conf->limit_bytes,
        .ring_bytes = conf->trace_bytes,
        .environment = sg_environment,
        .warn = sg_log_line,
    };
    void *create_thread = sg_dlsym()(RTLD_DEFAULT, "pthread_create");
    memcpy(&options.create_thread, &create_thread, sizeof create_thread);
    int error = sg_trace_writer_create(&options, &recorder.trace);
    if (error) {
        char line[SG_PATH_BYTES + 64];
        snprintf(line, sizeof line, "no trace in %s: %s", conf->trace, strerror(-error));
        sg_log_line(line);
    }
}

bool sg_recorder_on;

/* With word of where the program asks for memory. */
static void recorder_emit(void *sink, const struct segalloc_trace_record *record)
{
    if (record->kind == SEGALLOC_RECORD_ALLOCATE || record->kind == SEGALLOC_RECORD_SLOW_BEGIN ||
        record->kind == SEGALLOC_RECORD_ALLOCATE_FAILURE || record->kind == SEGALLOC_RECORD_OUTSIDE ||
        record->kind == SEGALLOC_RECORD_REFUSED_OUTSIDE)
        sg_trace_writer_emit_from(sink, record, sg_this_thread()->place.site, sg_this_thread()->place.phase);
    else
        sg_trace_writer_emit(sink, record);
}

bool sg_recorder_define(struct segalloc_trace_record *define, uint32_t count)
{
    return !recorder.trace || sg_trace_writer_define(recorder.trace, define, count);
}

void sg_recorder_follow_phase(sg_recorder_phase_fn *write)
{
    atomic_store_explicit(&recorder.phase, write, memory_order_release);
}

/* Nothing is opened here but the writer's struct. With `live` alone, statistics go to a page that other processes read,
   and which goes with the process. */
struct sg_event_sink sg_recorder_open(const struct sg_conf *conf)
{
    sg_recorder_on = conf->trace[0] || conf->stats[0] || conf->live;
    if (!sg_recorder_on)
        return (struct sg_event_sink){NULL, NULL};
    recorder.start_ns = recorder_now_ns(CLOCK_REALTIME);
    recorder.limit_bytes = conf->limit_bytes;
    recorder.limit_fraction = conf->limit_fraction;
    sg_conf_print(conf, recorder.conf, sizeof recorder.conf);
    recorder_read_command(recorder.command, sizeof recorder.command);
    if (conf->live && !conf->stats[0]) {
        (void)sg_live_sweep(); /* what others have left, since nobody else may look */
        recorder.pid_namespace = sg_live_namespace();
        recorder.stats = sg_live_page_path((uint64_t)getpid(), recorder.live);
    } else if (conf->stats[0]) {
        recorder.stats = conf->stats;
    }
    if (conf->trace[0])
        recorder_open_trace(conf);
    if (recorder.trace && conf->sites)
        return (struct sg_event_sink){recorder_emit, recorder.trace};
    return recorder.trace ? sg_trace_writer_sink(recorder.trace) : (struct sg_event_sink){NULL, NULL};
}

/* The driver's name of a device's model; "" where it gives none. */
static void read_model(int device, char ret[SG_STATS_MODEL])
{
    CUresult (*get)(char *name, int size, CUdevice device);
    void *symbol = sg_cuda_symbol("cuDeviceGetName");
    memcpy(&get, &symbol, sizeof symbol);
    if (!symbol || get(ret, SG_STATS_MODEL, device) != CUDA_SUCCESS)
        *ret = '\0';
    ret[SG_STATS_MODEL - 1] = '\0';
}

/* The device's UUID, also in nvidia-smi's form, by which figures join with those of other exporters; "" where the driver
   does not say. A part of a divided GPU (MIG) has one of its own, by the second version of the call. */
static void read_uuid(int device, CUuuid *ret_id, char ret[SG_STATS_UUID])
{
    CUuuid id;
    CUresult (*get)(CUuuid *id, CUdevice device);
    void *symbol = sg_cuda_symbol("cuDeviceGetUuid_v2");
    if (!symbol)
        symbol = sg_cuda_symbol("cuDeviceGetUuid");
    memcpy(&get, &symbol, sizeof symbol);
    if (!symbol || get(&id, device) != CUDA_SUCCESS)
        return;
    size_t length = (size_t)snprintf(ret, SG_STATS_UUID, "GPU-");
    for (size_t i = 0; i < sizeof id.bytes; i++)
        length += (size_t)snprintf(ret + length, SG_STATS_UUID - length, "%s%02x",
            i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", (unsigned)(unsigned char)id.bytes[i]);
    *ret_id = id;
}

/* Two bits a device: `met` for the thread that writes its row, `known` once the row is whole. The driver is asked
   before, so that no thread waits for another. */
void sg_recorder_device(const struct sg_driver *driver, int device)
{
    uint64_t bit = UINT64_C(1) << device;
    if ((!recorder.trace && !recorder.stats) || atomic_load_explicit(&recorder.known, memory_order_acquire) & bit)
        return;
    size_t granularity = 0, bytes = 0;
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    if (!driver->granularity ||
        driver->granularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS)
        granularity = 0;
    if (driver->device_total(&bytes, device) != CUDA_SUCCESS)
        bytes = 0;
    if (atomic_fetch_or(&recorder.met, bit) & bit)
        return;
    recorder.devices[device] = (struct sg_stats_device){
        .device = (uint32_t)device,
        .granularity = granularity,
        .total_bytes = bytes,
        .limit_bytes = recorder.limit_fraction > 0 ? (uint64_t)((double)bytes * recorder.limit_fraction)
                                                   : recorder.limit_bytes,
    };
    read_model(device, recorder.devices[device].model);
    read_uuid(device, &recorder.uuids[device], recorder.devices[device].uuid);
    atomic_fetch_or_explicit(&recorder.known, bit, memory_order_release);
}

/* Writes a text in as many records as it takes. */
static void recorder_write_text(enum segalloc_record_kind kind, uint32_t stream, const char *from)
{
    for (size_t left = strlen(from), piece, first = SEGALLOC_FLAG_FIRST; left > 0;
         from += piece, left -= piece, first = 0) {
        struct segalloc_trace_record record = {.kind = (uint8_t)kind, .stream = stream};
        char text[sizeof record.id + sizeof record.size] = {0};
        piece = left < sizeof text ? left : sizeof text;
        memcpy(text, from, piece);
        memcpy(&record.id, text, sizeof record.id);
        memcpy(&record.size, text + sizeof record.id, sizeof record.size);
        record.flags = (uint8_t)(first | (piece == left ? SEGALLOC_FLAG_LAST : 0));
        sg_trace_writer_emit(recorder.trace, &record);
    }
}

/* Writes a device's UUID, where it is known. */
static void write_uuid(uint32_t device)
{
    struct segalloc_trace_record record = {.kind = SEGALLOC_RECORD_DEFINE_UUID, .stream = device};
    const char *bytes = recorder.uuids[device].bytes;
    if (!*recorder.devices[device].uuid)
        return;
    memcpy(&record.id, bytes, sizeof record.id);
    memcpy(&record.size, bytes + sizeof record.id, sizeof record.size);
    sg_trace_writer_emit(recorder.trace, &record);
}

/* Writes the cards that a rehearsal is asked about, as the tool has them: "BYTES+MARGIN,BYTES+MARGIN". Holding `busy`. */
static void write_cards(void)
{
    const char *at = sg_environment("SEGALLOC_REHEARSED_CARDS");
    while (at && *at) {
        char *end;
        struct segalloc_trace_record record = {.kind = SEGALLOC_RECORD_DEFINE_CARD};
        record.size = strtoull(at, &end, 10);
        if (*end == '+')
            record.id = strtoull(end + 1, &end, 10);
        if (end == at || record.size == 0)
            return;
        sg_trace_writer_emit(recorder.trace, &record);
        at = end + (*end == ',');
    }
}

/* Writes to the trace, once each, by which call the order of streams was lost, and the models and UUIDs of devices.
   Holding `busy`. */
static void write_texts(void)
{
    const char *by = sg_streams_untracked_by();
    if (by && !recorder.untracked) {
        recorder.untracked = true;
        recorder_write_text(SEGALLOC_RECORD_UNTRACKED, 0, by);
    }
    uint64_t known = atomic_load_explicit(&recorder.known, memory_order_acquire);
    if (known && !recorder.named)
        write_cards();
    for (uint32_t i = 0; known != recorder.named && i < SG_DEVICES_MAX; i++) {
        if (!((known & ~recorder.named) >> i & 1))
            continue;
        recorder_write_text(SEGALLOC_RECORD_DEFINE_MODEL, i, recorder.devices[i].model);
        write_uuid(i);
    }
    recorder.named = known;
}

/* The tags of memory, summed over the devices. Returns how many there are. */
static uint32_t recorder_list_tags(struct sg_core *core, struct sg_stats_tag ret[SG_STATS_TAGS])
{
    uint32_t count = 0;
    enum sg_tag_keep keep;
    for (const char *name; count + 1 < SG_TAGS && (name = sg_core_tag_name(core, count + 1, &keep)); count++) {
        struct sg_stats_tag tag = {.backup = keep != SG_TAG_DISCARDED};
        struct sg_tag_figures figures;
        snprintf(tag.name, sizeof tag.name, "%s", name);
        for (int device = 0; device < SG_DEVICES_MAX; device++) {
            if (!sg_core_tag_figures(core, device, count + 1, &figures))
                continue;
            tag.paused = tag.paused || figures.paused;
            tag.requested += figures.requested;
            tag.reserved += figures.reserved;
            tag.peak_requested += figures.peak_requested;
            tag.peak_reserved += figures.peak_reserved;
            tag.peak_saved += figures.peak_saved;
            tag.pauses += figures.pauses;
            tag.resumes += figures.resumes;
        }
        ret[count] = tag;
    }
    return count;
}

/* A device's statistics: the core's, and beside them what the simulated GPU alone can count. The core decides by its events, and so it
   knows nothing of the latter. False: nothing was allocated there. */
static bool recorder_read_stats(struct sg_core *core, int device, struct sg_stats *ret)
{
    if (!sg_core_stats(core, device, ret))
        return false;
    struct sg_annotate_link link = sg_annotate_link(device);
    ret->value[SG_STAT_link_bytes] = link.touched_bytes;
    ret->value[SG_STAT_link_peer_bytes] = link.peer_bytes;
    ret->value[SG_STAT_link_untold] = link.untold;
    return true;
}

/* Holding `busy`. */
static void write_stats_file(struct sg_core *core)
{
    static struct sg_stats_device used[SG_DEVICES_MAX]; /* too much for the stack of somebody else's thread */
    static struct sg_stats_tag tags[SG_STATS_TAGS];
    char phase[SG_RECORDER_PHASE] = "";
    sg_recorder_phase_fn *write_phase = atomic_load_explicit(&recorder.phase, memory_order_acquire);
    if (write_phase)
        write_phase(phase, sizeof phase);
    struct sg_stats_file file = {
        .pid = (uint64_t)getpid(),
        .pid_namespace = recorder.pid_namespace,
        .start_realtime_ns = recorder.start_ns,
        .end_realtime_ns = recorder_now_ns(CLOCK_REALTIME),
        .conf = recorder.conf,
        .command = recorder.command,
        .untracked_by = sg_streams_untracked_by(),
        .pytorch = sg_torch_mode_text(),
        .aliases = sg_alias_probe_text(),
        .phase = phase,
        .devices = used,
        .is_private = recorder.live[0] != '\0',
        .tags = tags,
        .tag_count = recorder_list_tags(core, tags),
    };
    uint64_t known = atomic_load_explicit(&recorder.known, memory_order_acquire);
    for (int i = 0; i < SG_DEVICES_MAX; i++) {
        if (known >> i & 1 && recorder_read_stats(core, i, &recorder.devices[i].stats))
            used[file.count++] = recorder.devices[i];
    }
    const char *path = recorder.stats;
    int error = path ? sg_stats_file_write(path, sg_environment, &file) : 0;
    recorder.written_ns = recorder_now_ns(CLOCK_MONOTONIC_COARSE);
    if (!error)
        return;
    char line[SG_PATH_BYTES + 64];
    snprintf(line, sizeof line, "no statistics in %s: %s", path, strerror(-error));
    sg_log_line(line);
    recorder.stats = NULL;
}

/* Often at first, so that a short process leaves a file, then twice a second. */
static bool stats_due(void)
{
    if (!atomic_load_explicit(&recorder.stats, memory_order_relaxed))
        return false;
    uint64_t events = atomic_fetch_add_explicit(&recorder.events, 1, memory_order_relaxed) + 1;
    if (events <= STATS_EVENTS)
        return !sg_has_several_bits(events);
    return events % STATS_EVENTS == 0 && recorder_now_ns(CLOCK_MONOTONIC_COARSE) - recorder.written_ns > STATS_PERIOD_NS;
}

/* Two cheap questions first; one thread at a time goes on. Texts come before statistics, so that a trace cut short
   names its devices. */
void sg_recorder_tick(struct sg_core *core, int device)
{
    bool trace = recorder.trace && sg_trace_writer_due(recorder.trace, (uint32_t)device);
    bool stats = stats_due();
    if ((!trace && !stats) || atomic_flag_test_and_set_explicit(&recorder.busy, memory_order_acquire))
        return;
    int cancel = sg_cancel_off();
    struct sg_stats snapshot;
    if (trace)
        write_texts();
    if (trace && recorder_read_stats(core, device, &snapshot))
        sg_trace_writer_statistics(recorder.trace, (uint32_t)device, &snapshot);
    if (stats)
        write_stats_file(core);
    atomic_flag_clear_explicit(&recorder.busy, memory_order_release);
    sg_cancel_restore(cancel);
}

static void end_trace(struct sg_core *core)
{
    uint64_t known = atomic_load(&recorder.known);
    struct sg_stats snapshot;
    write_texts();
    for (int i = 0; i < SG_DEVICES_MAX; i++) {
        if (known >> i & 1 && recorder_read_stats(core, i, &snapshot))
            sg_trace_writer_statistics(recorder.trace, (uint32_t)i, &snapshot);
    }
    sg_trace_writer_close(recorder.trace);
}

/* Waits 0.1 s at most for a thread that takes a snapshot. That one may have left by a long jump, and hold the writer too. */
void sg_recorder_close(struct sg_core *core)
{
    if (!recorder.trace && !recorder.stats)
        return;
    for (int i = 0; i < 100 && atomic_flag_test_and_set(&recorder.busy); i++)
        sg_rest(1000000);
    if (recorder.trace && sg_trace_writer_comes_free(recorder.trace))
        end_trace(core);
    if (recorder.live[0])
        unlink(recorder.live);
    else if (recorder.stats)
        write_stats_file(core);
}

const char *sg_recorder_path(void)
{
    struct sg_trace_writer_state state = {0};
    if (recorder.trace)
        sg_trace_writer_state(recorder.trace, &state);
    return state.open ? state.path : NULL;
}

void sg_recorder_forget(void)
{
    if (recorder.trace)
        sg_trace_writer_fork_child(recorder.trace);
    recorder.stats = NULL;
}
