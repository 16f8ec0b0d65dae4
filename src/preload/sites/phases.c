/* Phases by number in a table like that of sites. A phase is its name within the phase around it, so "forward" in "step
   6" and in "step 7" are two.

   NVTX comes at the end: a program's NVTX asks for InitializeInjectionNvtx2 and is given our functions for push, pop
   and register. */
#include "process/glibc_symver.h"

#include "sites/phases.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "process/hooks.h"
#include "process/process.h"
#include "base/meta.h"
#include "services/recorder.h"
#include "segalloc/segalloc.h"
#include "segalloc/trace_format.h"
#include "sites/sites.h"

enum { PHASES_MOST = 1 << 15 };

/* A phase within another one. All but `written` is as it is once its number is known. */
struct phase {
    uint32_t around, name;    /* the phase around it; a text of sites.h */
    _Atomic uint32_t written; /* the trace that has it (sg_sites_trace()) */
};

struct table {
    struct phase phase[PHASES_MOST]; /* by number; [0] is none */
    uint32_t bucket[2 * PHASES_MOST]; /* by hash */
};

static struct {
    _Atomic(struct table *) table;
    uint32_t count;           /* guarded by SG_LOCK_SITES, as `bucket` */
    _Atomic uint32_t marked;  /* by segalloc_mark(): around the outermost range of each thread */
    _Atomic uint32_t latest;  /* of the thread that opened or closed a range last */
} phases = {.count = 1};

/* NULL: phases are not followed. */
static struct table *open_table(void)
{
    struct table *table = atomic_load_explicit(&phases.table, memory_order_acquire), *before = NULL;
    if (table || !sg_sites_open(sg_process_conf()) || !(table = sg_meta_map(sizeof *table)))
        return table;
    if (atomic_compare_exchange_strong(&phases.table, &before, table)) {
        sg_recorder_follow_phase(sg_phases_latest);
        return table;
    }
    sg_meta_unmap(table, sizeof *table);
    return before;
}

/* The number of a phase; 0: there is no room. */
static uint32_t phase_number(struct table *table, uint32_t around, const char *text)
{
    uint32_t name = sg_sites_intern(text), number;
    uint64_t hash = ((uint64_t)around << 32 | name) * UINT64_C(0x9e3779b97f4a7c15) >> 20;
    if (!name)
        return 0;
    sg_process_lock(SG_LOCK_SITES);
    for (uint64_t i = hash;; i++) {
        uint32_t *bucket = &table->bucket[i % (2 * PHASES_MOST)];
        const struct phase *phase = &table->phase[*bucket];
        number = *bucket;
        if (number && (phase->around != around || phase->name != name))
            continue;
        if (!number && phases.count < PHASES_MOST) {
            number = *bucket = phases.count++;
            table->phase[number].around = around;
            table->phase[number].name = name;
        }
        break;
    }
    sg_process_unlock(SG_LOCK_SITES);
    return number;
}

static uint32_t top_of(const struct sg_thread *self)
{
    uint32_t depth = self->place.phases < SG_PHASES_DEEP ? self->place.phases : SG_PHASES_DEEP;
    return depth ? self->place.phase_stack[depth - 1] : atomic_load_explicit(&phases.marked, memory_order_relaxed);
}

/* Opens a range. Past the sixteenth only the depth is counted, so the same number of pops leads back. An empty name
   keeps the phase around it. */
static void phase_push(const char *name)
{
    struct table *table = open_table();
    struct sg_thread *self = sg_this_thread();
    if (!table)
        return;
    if (self->place.phases < SG_PHASES_DEEP)
        self->place.phase_stack[self->place.phases] = name && *name ? phase_number(table, top_of(self), name)
                                                                    : top_of(self);
    self->place.phases++;
    atomic_store_explicit(&phases.latest, top_of(self), memory_order_relaxed);
}

static void phase_pop(void)
{
    struct sg_thread *self = sg_this_thread();
    if (!self->place.phases)
        return;
    self->place.phases--;
    atomic_store_explicit(&phases.latest, top_of(self), memory_order_relaxed);
}

static __attribute__((noinline)) void write_phase(struct table *table, uint32_t number, uint32_t trace)
{
    struct phase *phase = &table->phase[number];
    if (phase->around && atomic_load(&table->phase[phase->around].written) != trace)
        write_phase(table, phase->around, trace);
    struct segalloc_trace_record define = {.kind = SEGALLOC_RECORD_DEFINE_PHASE, .stream = number, .id = phase->around,
                                           .size = phase->name};
    if (sg_sites_write_text(phase->name) && sg_recorder_define(&define, 1))
        atomic_store_explicit(&phase->written, trace, memory_order_relaxed);
}

/* A phase that the current trace lacks is defined first, with those around it. A thread without a range has the latest
   one of any thread. */
uint32_t sg_phases_note(struct sg_thread *self)
{
    struct table *table = atomic_load_explicit(&phases.table, memory_order_acquire);
    if (!table)
        return 0;
    uint32_t number = self->place.phases ? top_of(self) : atomic_load_explicit(&phases.latest, memory_order_relaxed);
    uint32_t trace = sg_sites_trace();
    if (number && atomic_load_explicit(&table->phase[number].written, memory_order_relaxed) != trace)
        write_phase(table, number, trace);
    return number;
}

/* The names of a phase and of those around it, the outermost first. Returns the length so far. */
static size_t put_names(const struct table *table, uint32_t number, char *text, size_t size)
{
    const struct phase *phase = &table->phase[number];
    size_t used = phase->around ? put_names(table, phase->around, text, size) : 0;
    if (used < size)
        used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", sg_sites_text(phase->name));
    return used;
}

void sg_phases_latest(char *text, size_t size)
{
    struct table *table = atomic_load_explicit(&phases.table, memory_order_acquire);
    uint32_t number = table ? atomic_load_explicit(&phases.latest, memory_order_relaxed) : 0;
    *text = '\0';
    if (number)
        (void)put_names(table, number, text, size);
}

/* The mark lies around the outermost range of every thread, until the next mark. An empty name ends it. */
void segalloc_mark(const char *name)
{
    struct table *table = open_table();
    if (!table)
        return;
    uint32_t number = name && *name ? phase_number(table, 0, name) : 0;
    atomic_store_explicit(&phases.marked, number, memory_order_relaxed);
    atomic_store_explicit(&phases.latest, top_of(sg_this_thread()), memory_order_relaxed);
}

void segalloc_phase_push(const char *name)
{
    phase_push(name);
}

void segalloc_phase_pop(void)
{
    phase_pop();
}

/* NVTX, version 3. A program's NVTX loads the library that NVTX_INJECTION64_PATH names, and asks it for this function;
   it is given the addresses of NVTX's own pointers, which are set to ours. Source of all numbers and layouts:
   nvtxDetail/nvtxTypes.h and nvToolsExt.h of NVIDIA's NVTX 3. */
typedef void nvtx_function(void);
struct nvtx_callbacks {
    size_t bytes;
    int (*functions_of)(int module, nvtx_function ****ret_table, unsigned *ret_count);
};
enum { NVTX_CALLBACKS = 1, NVTX_CORE = 1, NVTX_CORE2 = 5, NVTX_ASCII = 1, NVTX_REGISTERED = 3 };
enum { CORE_PUSH_EX = 8, CORE_PUSH_A = 9, CORE_POP = 11 };
enum { CORE2_PUSH_EX = 4, CORE2_POP = 5, CORE2_REGISTER_A = 10 };

struct nvtx_event {
    uint16_t version, size;
    uint32_t category, color_type, color, payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    union {
        const char *ascii;
        const void *registered;
    } message;
};

static int phase_depth(void)
{
    return (int)sg_this_thread()->place.phases;
}

static int nvtx_push(const char *message)
{
    phase_push(message);
    return phase_depth() - 1;
}

static int nvtx_push_ex(const struct nvtx_event *event)
{
    bool named = event && (event->message_type == NVTX_ASCII || event->message_type == NVTX_REGISTERED);
    return nvtx_push(named ? event->message.ascii : NULL); /* a registered one is the text itself, see below */
}

static int nvtx_pop(void)
{
    phase_pop();
    return phase_depth();
}

static int nvtx_domain_push_ex(void *domain, const struct nvtx_event *event)
{
    (void)domain;
    return nvtx_push_ex(event);
}

static int nvtx_domain_pop(void *domain)
{
    (void)domain;
    return nvtx_pop();
}

static const void *nvtx_register(void *domain, const char *text)
{
    (void)domain;
    return open_table() ? sg_sites_text(sg_sites_intern(text ? text : "")) : NULL;
}

/* False: NVTX has no such function, because it is older. */
static bool nvtx_put(const struct nvtx_callbacks *callbacks, int module, unsigned index, const void *function)
{
    nvtx_function ***table;
    unsigned count;
    if (!callbacks->functions_of(module, &table, &count) || index >= count || !table[index])
        return false;
    memcpy(table[index], function, sizeof(nvtx_function *));
    return true;
}

SG_EXPORT int InitializeInjectionNvtx2(const void *(*table)(uint32_t id));
/* Called by the program's NVTX when it is first used. Not 0: our functions are in its tables. Older NVTX without one of
   them is left alone. */
int InitializeInjectionNvtx2(const void *(*table)(uint32_t id))
{
    const struct nvtx_callbacks *callbacks = table(NVTX_CALLBACKS);
    if (!callbacks || callbacks->bytes < sizeof *callbacks || !sg_process_conf()->sites)
        return 0;
    int (*push_a)(const char *) = nvtx_push, (*pop_any)(void) = nvtx_pop;
    int (*push_ex)(const struct nvtx_event *) = nvtx_push_ex;
    int (*domain_push)(void *, const struct nvtx_event *) = nvtx_domain_push_ex;
    int (*domain_pop)(void *) = nvtx_domain_pop;
    const void *(*register_a)(void *, const char *) = nvtx_register;
    return nvtx_put(callbacks, NVTX_CORE, CORE_PUSH_A, &push_a) &&
           nvtx_put(callbacks, NVTX_CORE, CORE_PUSH_EX, &push_ex) &&
           nvtx_put(callbacks, NVTX_CORE, CORE_POP, &pop_any) &&
           nvtx_put(callbacks, NVTX_CORE2, CORE2_PUSH_EX, &domain_push) &&
           nvtx_put(callbacks, NVTX_CORE2, CORE2_POP, &domain_pop) &&
           nvtx_put(callbacks, NVTX_CORE2, CORE2_REGISTER_A, &register_a);
}
