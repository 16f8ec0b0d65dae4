/* A driver with pages, for tests of the probe of second addresses. To be included by one file of a program. */
#ifndef ALIAS_PROBE_FAKES_H
#define ALIAS_PROBE_FAKES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "expect_in_child.h"
#include "process/capture_mode.h"
#include "track/captures.h"
#include "services/alias_probe.h"
#include "process/worker_thread.h"
#include "process/process.h"
#include "meta.h"
#include "rest.h"
#include "track/context_pins.h"

enum { GRANULE = 2 << 20, QUEUED = 256, HANDLE = 77, DEVICE = 1, ROUNDS = 16, ROW = 512, PIECE = 16384 };
static const CUdeviceptr BASE = 0x700000000000;

enum fault { NONE, STALE, WORDS_STALE, ROWS_MIXED, ROWS_STALE, DEAD, SECOND_READ };
enum helper { RUNS, RUNS_LATER, NEVER_RUNS, NO_THREAD };

static struct {
    enum fault fault;
    enum helper helper;
    int refuse;   /* the call of this number; 0: none */
    bool is_full; /* no page is to be had */
    int calls, vmm, device;
    size_t granule;
    bool no_context, no_memory, ending, no_calls;
    /* Pages and addresses that are held. */
    int reserved, created, mapped, streams, entered, memory, said, rests;
    bool accessible;
    uint32_t *page, *stale; /* by the first address, and what the second sees where it is apart */
    void *(*later)(void *); /* runs within a wait */
    void *(*late)(void *);  /* what would have run */
    void *later_user;
} fake;

struct operation {
    bool (*done)(const struct operation *operation);
    CUdeviceptr to, from;
    uint32_t value;
    size_t bytes, rows, pitch;
    void *host;
};

static struct queue {
    struct operation list[QUEUED];
    int used;
    bool there;
} queue[2];

__thread struct sg_thread sg_self;

/* Below, every call of the driver's can be the one that it refuses. */
static inline bool refused(void)
{
    return ++fake.calls == fake.refuse;
}
#define CALL_OR_REFUSE()               \
    do {                               \
        if (refused())                 \
            return CUDA_ERROR_UNKNOWN; \
    } while (0)

static inline uint32_t *at(CUdeviceptr address, size_t bytes)
{
    EXPECT(fake.mapped == 2 && fake.accessible && address >= BASE && address + bytes <= BASE + 2 * fake.granule);
    size_t offset = address - BASE;
    bool second = offset >= fake.granule;
    EXPECT(second || offset + bytes <= fake.granule);
    bool apart = second && (fake.fault == STALE || (fake.fault == ROWS_STALE && bytes == ROW) ||
                               (fake.fault == WORDS_STALE && bytes == PIECE));
    return (apart ? fake.stale : fake.page) + offset % fake.granule / sizeof(uint32_t);
}

static inline bool set(const struct operation *o)
{
    for (size_t row = 0; row < o->rows; row++) {
        uint32_t *to = at(o->to + row * o->pitch, o->bytes);
        for (size_t i = 0; i < o->bytes / sizeof *to && fake.fault != DEAD; i++)
            to[i] = o->value;
        if (fake.fault == ROWS_MIXED && o->rows > 1 && o->to < BASE + fake.granule)
            to[o->bytes / sizeof *to] = 0; /* a line of a cache that is larger than what was written */
    }
    return true;
}

static inline bool copy(const struct operation *o)
{
    uint32_t *from = at(o->from, o->bytes);
    memmove(o->host ? o->host : at(o->to, o->bytes), from, o->bytes);
    return true;
}

static inline CUresult add(CUstream stream, struct operation operation)
{
    struct queue *its = (struct queue *)stream;
    CALL_OR_REFUSE();
    EXPECT(its->there && its->used < QUEUED);
    its->list[its->used++] = operation;
    return CUDA_SUCCESS;
}

static inline CUresult stream_create(CUstream *ret, unsigned flags)
{
    CALL_OR_REFUSE();
    EXPECT(flags == CU_STREAM_NON_BLOCKING);
    struct queue *its = queue[0].there ? &queue[1] : &queue[0];
    *its = (struct queue){.there = true};
    *ret = (CUstream)its;
    fake.streams++;
    return CUDA_SUCCESS;
}

static inline CUresult stream_synchronize(CUstream stream)
{
    struct queue *its = (struct queue *)stream;
    for (int i = 0; i < its->used; i++)
        EXPECT(its->list[i].done(&its->list[i]));
    its->used = 0;
    CALL_OR_REFUSE(); /* an error of something else; the work is done all the same */
    return CUDA_SUCCESS;
}

static inline CUresult stream_destroy(CUstream stream)
{
    struct queue *its = (struct queue *)stream;
    EXPECT(its->there);
    its->there = false;
    fake.streams--;
    return CUDA_SUCCESS;
}

static inline CUresult set_async(CUdeviceptr address, unsigned value, size_t count, CUstream stream)
{
    return add(stream, (struct operation){set, .to = address, .value = value, .bytes = 4 * count, .rows = 1});
}

static inline CUresult set_rows_async(CUdeviceptr address, size_t pitch, unsigned value, size_t width, size_t height,
    CUstream stream)
{
    return add(stream,
        (struct operation){set, .to = address, .value = value, .bytes = 4 * width, .rows = height, .pitch = pitch});
}

static inline CUresult copy_async(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return add(stream, (struct operation){copy, .to = to, .from = from, .bytes = bytes});
}

static inline CUresult copy_to_host_async(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    if (fake.fault == SECOND_READ && from >= BASE + fake.granule)
        fake.page[bytes / sizeof(uint32_t) - 1] ^= 1; /* the last word of the rows, seen by the second address */
    return add(stream, (struct operation){copy, .host = to, .from = from, .bytes = bytes});
}

static inline CUresult get_current(CUcontext *ret)
{
    CALL_OR_REFUSE();
    *ret = fake.no_context ? NULL : (CUcontext)&fake;
    return CUDA_SUCCESS;
}

static inline CUresult get_device(CUdevice *ret)
{
    CALL_OR_REFUSE();
    *ret = fake.device;
    return CUDA_SUCCESS;
}

static inline CUresult device_attribute(int *ret, CUdevice_attribute attribute, CUdevice device)
{
    CALL_OR_REFUSE();
    EXPECT(device == fake.device && attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
    *ret = fake.vmm;
    return CUDA_SUCCESS;
}

static inline CUresult granularity(size_t *ret, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option)
{
    CALL_OR_REFUSE();
    EXPECT(option == CU_MEM_ALLOC_GRANULARITY_MINIMUM && prop->location.id == fake.device);
    *ret = fake.granule;
    return CUDA_SUCCESS;
}

static inline CUresult address_reserve(CUdeviceptr *ret, size_t bytes, size_t alignment, CUdeviceptr hint,
    unsigned long long flags)
{
    CALL_OR_REFUSE();
    EXPECT(bytes == 2 * fake.granule && !alignment && !hint && !flags);
    *ret = BASE;
    fake.reserved++;
    return CUDA_SUCCESS;
}

static inline CUresult address_free(CUdeviceptr address, size_t bytes)
{
    EXPECT(address == BASE && bytes == 2 * fake.granule && !fake.mapped);
    fake.reserved--;
    return CUDA_SUCCESS;
}

static inline CUresult create(CUmemGenericAllocationHandle *ret, size_t bytes, const CUmemAllocationProp *prop,
    unsigned long long flags)
{
    CALL_OR_REFUSE();
    if (fake.is_full)
        return CUDA_ERROR_OUT_OF_MEMORY;
    EXPECT(bytes == fake.granule && prop->type == CU_MEM_ALLOCATION_TYPE_PINNED && prop->location.id == fake.device &&
           prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE && !flags);
    *ret = HANDLE;
    fake.created++;
    return CUDA_SUCCESS;
}

static inline CUresult release(CUmemGenericAllocationHandle handle)
{
    EXPECT(handle == HANDLE && !fake.mapped);
    fake.created--;
    return CUDA_SUCCESS;
}

static inline CUresult map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
    unsigned long long flags)
{
    CALL_OR_REFUSE();
    EXPECT((address == BASE || address == BASE + fake.granule) && bytes == fake.granule && !offset &&
           handle == HANDLE && !flags);
    fake.mapped++;
    return CUDA_SUCCESS;
}

static inline CUresult unmap(CUdeviceptr address, size_t bytes)
{
    EXPECT((address == BASE || address == BASE + fake.granule) && bytes == fake.granule);
    EXPECT(!(queue[0].used || queue[1].used)); /* not under work */
    fake.mapped--;
    fake.accessible = false;
    return CUDA_SUCCESS;
}

static inline CUresult set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *desc, size_t count)
{
    CALL_OR_REFUSE();
    EXPECT(address == BASE && bytes == 2 * fake.granule && count == 1 && fake.mapped == 2);
    EXPECT(desc->location.id == fake.device && desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    fake.accessible = true;
    return CUDA_SUCCESS;
}

bool sg_capture_mode_relax(CUstreamCaptureMode *ret_mode)
{
    *ret_mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    EXPECT(sg_self.inside && sg_self.aside); /* its calls are none of the program's */
    return true;
}

int sg_context_pin_current(CUcontext context)
{
    EXPECT(context == (CUcontext)&fake);
    if (fake.ending)
        return -1;
    fake.entered++;
    return 0;
}

void sg_context_unpin_current(int use)
{
    EXPECT(use == 0);
    fake.entered--;
}

bool sg_worker_start(void *(*run)(void *), void *user)
{
    if (fake.helper == NO_THREAD)
        return false;
    if (fake.helper == RUNS)
        run(user);
    fake.later = fake.helper == RUNS_LATER ? run : NULL;
    fake.late = run;
    fake.later_user = user;
    return true;
}

void sg_rest(long ns)
{
    EXPECT(ns >= 1 && ns <= 999999999);
    if (++fake.rests == 100 && fake.later)
        fake.later(fake.later_user);
}

void *sg_meta_map(size_t bytes)
{
    if (fake.no_memory)
        return NULL;
    fake.memory++;
    return calloc(1, bytes);
}

void sg_meta_unmap(void *memory, size_t bytes)
{
    EXPECT(bytes > 0);
    fake.memory--;
    free(memory);
}

void sg_log_line(const char *line)
{
    EXPECT(strstr(line, "no page of it gets a second address"));
    fake.said++;
}

static struct sg_conf conf;
static struct sg_driver driver;

const struct sg_conf *sg_process_conf(void)
{
    return &conf;
}

const struct sg_driver *sg_process_driver(void)
{
    return &driver;
}

static int said, rests; /* of the last process */

static inline int begin(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    memset(queue, 0, sizeof queue);
    fake.device = DEVICE;
    fake.granule = GRANULE;
    fake.vmm = 1;
    fake.page = calloc(1, GRANULE);
    fake.stale = calloc(1, GRANULE);
    conf = (struct sg_conf){.expandable_segments = true, .alias = SG_ALIAS_AUTO};
    driver = (struct sg_driver){.ctx_get_current = get_current,
        .ctx_get_device = get_device,
        .device_attribute = device_attribute,
        .granularity = granularity,
        .address_reserve = address_reserve,
        .address_free = address_free,
        .create = create,
        .release = release,
        .map = map,
        .unmap = unmap,
        .set_access = set_access,
        .stream_create = stream_create,
        .stream_destroy = stream_destroy,
        .stream_synchronize = stream_synchronize,
        .set_async = set_async,
        .set_rows_async = set_rows_async,
        .copy_async = copy_async,
        .copy_to_host_async = copy_to_host_async};
    return 0;
}

static inline int end(void **state)
{
    (void)state;
    free(fake.page);
    free(fake.stale);
    return 0;
}

static inline bool is_nothing_held(void)
{
    return fake.reserved + fake.created + fake.mapped + fake.streams + fake.entered + fake.memory == 0;
}

/* The answer whether second addresses are allowed, in a process of its own. Nothing is held afterwards. */
static inline const char *settle(bool expected)
{
    static struct outcome {
        bool well;
        int calls, rests, said;
        char text[96];
    } outcome;
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        int refuse = fake.refuse;
        fake.refuse = 0;
        sg_alias_probe_first(&conf, &driver);
        fake.calls = 0;
        fake.refuse = refuse;
        bool allowed = sg_alias_probe_allows(DEVICE, true);
        const char *text = sg_alias_probe_text();
        outcome = (struct outcome){allowed == expected && is_nothing_held() &&
                                       sg_alias_probe_allows(DEVICE, false) == expected,
            fake.calls, fake.rests, fake.said, ""};
        snprintf(outcome.text, sizeof outcome.text, "%s", text ? text : "");
        _exit(write(ends[1], &outcome, sizeof outcome) != (ssize_t)sizeof outcome);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &outcome, sizeof outcome), sizeof outcome);
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0 && outcome.well);
    fake.calls = outcome.calls;
    said = outcome.said;
    rests = outcome.rests;
    return outcome.text;
}

static const char untested[] = "off: whether two addresses of a page are coherent could not be tested";

#endif
