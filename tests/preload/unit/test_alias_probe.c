/* The test of coherent aliases on a fake driver, with each of its calls refused in turn. Queued work runs when the stream
   is waited for. The result is kept for the life of a process, so each case is a process. */
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
    int refuse; /* the call of this number; 0: none */
    bool is_full; /* no page is to be had */
    int calls, vmm, device;
    size_t granule;
    bool no_context, no_memory, ending, no_calls;
    /* What is held. */
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

/* In a child, cmocka's long jump would go on with the parent's tests. */
#define EXPECT(condition)                                                          \
    do {                                                                           \
        if (!(condition)) {                                                        \
            fprintf(stderr, "%s:%d: error: %s\n", __FILE__, __LINE__, #condition); \
            _exit(1);                                                              \
        }                                                                          \
    } while (0)

/* Below, every call of the driver's can be the one that it refuses. */
static bool refused(void)
{
    return ++fake.calls == fake.refuse;
}
#define CALL_OR_REFUSE()               \
    do {                               \
        if (refused())                 \
            return CUDA_ERROR_UNKNOWN; \
    } while (0)

static uint32_t *at(CUdeviceptr address, size_t bytes)
{
    EXPECT(fake.mapped == 2 && fake.accessible && address >= BASE && address + bytes <= BASE + 2 * fake.granule);
    size_t offset = address - BASE;
    bool second = offset >= fake.granule;
    EXPECT(second || offset + bytes <= fake.granule);
    bool apart = second && (fake.fault == STALE || (fake.fault == ROWS_STALE && bytes == ROW) ||
                               (fake.fault == WORDS_STALE && bytes == PIECE));
    return (apart ? fake.stale : fake.page) + offset % fake.granule / sizeof(uint32_t);
}

static bool set(const struct operation *o)
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

static bool copy(const struct operation *o)
{
    uint32_t *from = at(o->from, o->bytes);
    memmove(o->host ? o->host : at(o->to, o->bytes), from, o->bytes);
    return true;
}

static CUresult add(CUstream stream, struct operation operation)
{
    struct queue *its = (struct queue *)stream;
    CALL_OR_REFUSE();
    EXPECT(its->there && its->used < QUEUED);
    its->list[its->used++] = operation;
    return CUDA_SUCCESS;
}

static CUresult stream_create(CUstream *ret, unsigned flags)
{
    CALL_OR_REFUSE();
    EXPECT(flags == CU_STREAM_NON_BLOCKING);
    struct queue *its = queue[0].there ? &queue[1] : &queue[0];
    *its = (struct queue){.there = true};
    *ret = (CUstream)its;
    fake.streams++;
    return CUDA_SUCCESS;
}

static CUresult stream_synchronize(CUstream stream)
{
    struct queue *its = (struct queue *)stream;
    for (int i = 0; i < its->used; i++)
        EXPECT(its->list[i].done(&its->list[i]));
    its->used = 0;
    CALL_OR_REFUSE(); /* an error of something else; the work is done all the same */
    return CUDA_SUCCESS;
}

static CUresult stream_destroy(CUstream stream)
{
    struct queue *its = (struct queue *)stream;
    EXPECT(its->there);
    its->there = false;
    fake.streams--;
    return CUDA_SUCCESS;
}

static CUresult set_async(CUdeviceptr address, unsigned value, size_t count, CUstream stream)
{
    return add(stream, (struct operation){set, .to = address, .value = value, .bytes = 4 * count, .rows = 1});
}

static CUresult set_rows_async(CUdeviceptr address, size_t pitch, unsigned value, size_t width, size_t height,
    CUstream stream)
{
    return add(stream,
        (struct operation){set, .to = address, .value = value, .bytes = 4 * width, .rows = height, .pitch = pitch});
}

static CUresult copy_async(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return add(stream, (struct operation){copy, .to = to, .from = from, .bytes = bytes});
}

static CUresult copy_to_host_async(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    if (fake.fault == SECOND_READ && from >= BASE + fake.granule)
        fake.page[bytes / sizeof(uint32_t) - 1] ^= 1; /* the last word of the rows, seen by the second address */
    return add(stream, (struct operation){copy, .host = to, .from = from, .bytes = bytes});
}

static CUresult get_current(CUcontext *ret)
{
    CALL_OR_REFUSE();
    *ret = fake.no_context ? NULL : (CUcontext)&fake;
    return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *ret)
{
    CALL_OR_REFUSE();
    *ret = fake.device;
    return CUDA_SUCCESS;
}

static CUresult device_attribute(int *ret, CUdevice_attribute attribute, CUdevice device)
{
    CALL_OR_REFUSE();
    EXPECT(device == fake.device && attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
    *ret = fake.vmm;
    return CUDA_SUCCESS;
}

static CUresult granularity(size_t *ret, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option)
{
    CALL_OR_REFUSE();
    EXPECT(option == CU_MEM_ALLOC_GRANULARITY_MINIMUM && prop->location.id == fake.device);
    *ret = fake.granule;
    return CUDA_SUCCESS;
}

static CUresult address_reserve(CUdeviceptr *ret, size_t bytes, size_t alignment, CUdeviceptr hint,
    unsigned long long flags)
{
    CALL_OR_REFUSE();
    EXPECT(bytes == 2 * fake.granule && !alignment && !hint && !flags);
    *ret = BASE;
    fake.reserved++;
    return CUDA_SUCCESS;
}

static CUresult address_free(CUdeviceptr address, size_t bytes)
{
    EXPECT(address == BASE && bytes == 2 * fake.granule && !fake.mapped);
    fake.reserved--;
    return CUDA_SUCCESS;
}

static CUresult create(CUmemGenericAllocationHandle *ret, size_t bytes, const CUmemAllocationProp *prop,
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

static CUresult release(CUmemGenericAllocationHandle handle)
{
    EXPECT(handle == HANDLE && !fake.mapped);
    fake.created--;
    return CUDA_SUCCESS;
}

static CUresult map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
    unsigned long long flags)
{
    CALL_OR_REFUSE();
    EXPECT((address == BASE || address == BASE + fake.granule) && bytes == fake.granule && !offset &&
           handle == HANDLE && !flags);
    fake.mapped++;
    return CUDA_SUCCESS;
}

static CUresult unmap(CUdeviceptr address, size_t bytes)
{
    EXPECT((address == BASE || address == BASE + fake.granule) && bytes == fake.granule);
    EXPECT(!(queue[0].used || queue[1].used)); /* not under work */
    fake.mapped--;
    fake.accessible = false;
    return CUDA_SUCCESS;
}

static CUresult set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *desc, size_t count)
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

static int begin(void **state)
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

static int end(void **state)
{
    (void)state;
    free(fake.page);
    free(fake.stale);
    return 0;
}

static bool is_nothing_held(void)
{
    return fake.reserved + fake.created + fake.mapped + fake.streams + fake.entered + fake.memory == 0;
}

/* Whether second addresses are allowed where one is wanted, in a process of its own; nothing is held afterwards. */
static const char *settle(bool expected)
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

static void in_a_process(void (*run)(void))
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        run();
        EXPECT(is_nothing_held());
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void a_page_that_is_coherent(void **state)
{
    (void)state;
    assert_string_equal(settle(true), "on");
    fake.helper = RUNS_LATER;
    assert_string_equal(settle(true), "on");
    assert_in_range(rests, 100, 110); /* looked at again and again, and no longer than needed */
    assert_int_equal(said, 0);
}

/* By what the reading of each kind sees. */
static void a_page_that_is_not(void **state)
{
    static const enum fault faults[] = {STALE, WORDS_STALE, ROWS_MIXED, ROWS_STALE, SECOND_READ};
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        fake.fault = faults[i];
        assert_string_equal(settle(false), "off: two addresses of a page are not coherent");
        assert_int_equal(said, 1);
    }
}

static const char untested[] = "off: whether two addresses of a page are coherent could not be tested";

static void a_driver_that_does_nothing_was_not_tested(void **state)
{
    (void)state;
    fake.fault = DEAD;
    assert_string_equal(settle(false), untested);
    assert_int_equal(said, 0);
}

/* Each call of the driver in turn: what was not tested is off, and nothing is left behind. */
static void each_refusal(void **state)
{
    (void)state;
    settle(true);
    int calls = fake.calls;
    assert_true(calls > 4 * ROUNDS);
    for (fake.refuse = 1; fake.refuse <= calls; fake.refuse++) {
        const char *text = settle(false);
        if (strcmp(text, "") != 0)
            assert_string_equal(text, untested);
    }
    assert_int_equal(said, 0);
}

static void what_cannot_be_tested(void **state)
{
    (void)state;
    fake.no_context = true;
    assert_string_equal(settle(false), untested);
    fake.no_context = false;
    fake.ending = true;
    assert_string_equal(settle(false), untested);
    fake.ending = false;
    fake.no_memory = true;
    assert_string_equal(settle(false), untested);
    fake.no_memory = false;
    fake.granule = 64 << 10; /* smaller than what is tested */
    assert_string_equal(settle(false), untested);
    fake.granule = GRANULE;
    fake.helper = NO_THREAD;
    assert_string_equal(settle(false), untested);
    fake.helper = RUNS;
    assert_string_equal(settle(true), "on");
}

/* A driver that lacks one of the calls is not asked for the others. */
static void each_call_is_needed(void **state)
{
    (void)state;
    void **calls[] = {(void **)&driver.stream_create, (void **)&driver.stream_destroy,
        (void **)&driver.stream_synchronize, (void **)&driver.set_async, (void **)&driver.set_rows_async,
        (void **)&driver.copy_async, (void **)&driver.copy_to_host_async};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        void *kept = *calls[i];
        *calls[i] = NULL;
        assert_string_equal(settle(false), untested);
        *calls[i] = kept;
    }
    driver.create = NULL; /* without pages there is nothing to say */
    assert_string_equal(settle(false), "");
}

/* A process that wants no second address has nothing of the test: the first allocation asks for an attribute. */
static void use_without_want(void)
{
    sg_alias_probe_first(&conf, &driver);
    EXPECT(fake.calls == 2 && !fake.rests);
    EXPECT(!sg_alias_probe_allows(DEVICE, false) && fake.calls == 2 && !fake.rests);
    EXPECT(strncmp(sg_alias_probe_text(), "not tried", strlen("not tried")) == 0);
}

static void a_test_that_is_not_wanted_is_not_made(void **state)
{
    (void)state;
    in_a_process(use_without_want);
}

/* The device is busy: the growth waits for 50 ms, and none after it. What is found late counts from then on. */
static void use_busy_device(void)
{
    enum { GROWTH_RESTS = 250 };
    fake.helper = NEVER_RUNS;
    sg_alias_probe_first(&conf, &driver);
    EXPECT(!sg_alias_probe_gave_back(DEVICE)); /* no test is under way */
    EXPECT(!sg_alias_probe_allows(DEVICE, true) && fake.rests == GROWTH_RESTS);
    EXPECT(!sg_alias_probe_allows(DEVICE, true) && fake.rests == GROWTH_RESTS);
    EXPECT(strstr(sg_alias_probe_text(), "the device is busy"));
    EXPECT(!sg_alias_probe_gave_back(DEVICE) && fake.rests > GROWTH_RESTS); /* it still has its page */
    int before = fake.rests;
    EXPECT(before <= GROWTH_RESTS + 5000);
    fake.late(fake.later_user);
    EXPECT(sg_alias_probe_allows(DEVICE, true) && strcmp(sg_alias_probe_text(), "on") == 0 && fake.rests == before);
    EXPECT(!sg_alias_probe_gave_back(DEVICE));
}

/* The device has run out while the test has a page, which is given back meanwhile. */
static void use_full_device_meanwhile(void)
{
    fake.helper = NEVER_RUNS;
    sg_alias_probe_first(&conf, &driver);
    EXPECT(!sg_alias_probe_allows(DEVICE, true));
    fake.rests = 0;
    fake.later = fake.late;
    EXPECT(sg_alias_probe_gave_back(DEVICE) && fake.rests == 100);
}

static void a_busy_device_holds_nobody_up(void **state)
{
    (void)state;
    in_a_process(use_busy_device);
    in_a_process(use_full_device_meanwhile);
}

/* Where there is no page for the test, it is made when one is wanted again. */
static void use_full_device(void)
{
    fake.is_full = true;
    sg_alias_probe_first(&conf, &driver);
    EXPECT(!sg_alias_probe_allows(DEVICE, true) && !sg_alias_probe_allows(DEVICE, true));
    EXPECT(strcmp(sg_alias_probe_text(), "off: the device had no page to test two addresses with") == 0);
    fake.is_full = false;
    EXPECT(!sg_alias_probe_allows(DEVICE, false) && sg_alias_probe_allows(DEVICE, true));
    EXPECT(strcmp(sg_alias_probe_text(), "on") == 0 && fake.said == 0);
}

static void a_full_device_is_tried_again(void **state)
{
    (void)state;
    in_a_process(use_full_device);
}

/* Other devices are tried when they first want one, each once and each by itself. */
static void use_others(void)
{
    static const char *const texts[] = {"off on device 2: two addresses of a page are not coherent",
        "off on device 3: whether two addresses of a page are coherent could not be tested"};
    sg_alias_probe_first(&conf, &driver);
    EXPECT(sg_alias_probe_allows(DEVICE, true));
    int calls = fake.calls;
    EXPECT(sg_alias_probe_allows(DEVICE, true) && fake.calls == calls); /* it was tried */
    fake.device = 0;
    EXPECT(sg_alias_probe_allows(0, true) && fake.calls > calls && fake.said == 0);
    EXPECT(strcmp(sg_alias_probe_text(), "on") == 0);
    fake.device = 2;
    fake.fault = STALE;
    EXPECT(!sg_alias_probe_allows(2, true) && fake.said == 1 && strcmp(sg_alias_probe_text(), texts[0]) == 0);
    fake.fault = NONE;
    calls = fake.calls;
    EXPECT(!sg_alias_probe_allows(2, true) && fake.calls == calls);
    fake.device = 3;
    fake.no_memory = true;
    EXPECT(!sg_alias_probe_allows(3, true) && fake.said == 1 && strcmp(sg_alias_probe_text(), texts[1]) == 0);
    EXPECT(sg_alias_probe_allows(DEVICE, true));
}

/* The thread's context is of another device by now. */
static void use_one_that_is_not_current(void)
{
    sg_alias_probe_first(&conf, &driver);
    fake.device = 2;
    EXPECT(!sg_alias_probe_allows(3, true) && !sg_alias_probe_allows(2, false) && fake.said == 0);
    EXPECT(strcmp(sg_alias_probe_text(),
               "off on device 3: whether two addresses of a page are coherent could not be tested") == 0);
}

static void each_device_is_tried(void **state)
{
    (void)state;
    in_a_process(use_others);
    in_a_process(use_one_that_is_not_current);
}

static void nothing_is_said_of_what_was_not_used(void)
{
    EXPECT(!sg_alias_probe_text());
    fake.device = -1;
    sg_alias_probe_first(&conf, &driver);
    EXPECT(!sg_alias_probe_text());
    fake.device = SG_DEVICES_MAX;
    sg_alias_probe_first(&conf, &driver);
    EXPECT(!sg_alias_probe_text());
}

static void a_device_that_cannot_be(void **state)
{
    (void)state;
    in_a_process(nothing_is_said_of_what_was_not_used);
}

static void say_what_is_chosen(void)
{
    sg_alias_probe_first(&conf, &driver);
    EXPECT(fake.calls <= 2);
    const char *text = sg_alias_probe_text();
    if (conf.expandable_segments && conf.ipc != SG_IPC_ALWAYS && fake.vmm)
        EXPECT(strcmp(text, conf.alias == SG_ALIAS_ON ? "on, by the configuration and not by a test"
                                                      : "off, by the configuration") == 0);
    else
        EXPECT(!text);
}

static void what_the_configuration_says(void **state)
{
    (void)state;
    conf.alias = SG_ALIAS_ON;
    in_a_process(say_what_is_chosen);
    conf.alias = SG_ALIAS_OFF;
    in_a_process(say_what_is_chosen);
    fake.vmm = 0;
    in_a_process(say_what_is_chosen);
    fake.vmm = 1;
    conf.ipc = SG_IPC_ALWAYS;
    in_a_process(say_what_is_chosen);
    conf.ipc = SG_IPC_AUTO;
    conf.expandable_segments = false;
    in_a_process(say_what_is_chosen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_page_that_is_coherent, begin, end),
        cmocka_unit_test_setup_teardown(a_page_that_is_not, begin, end),
        cmocka_unit_test_setup_teardown(a_driver_that_does_nothing_was_not_tested, begin, end),
        cmocka_unit_test_setup_teardown(each_refusal, begin, end),
        cmocka_unit_test_setup_teardown(what_cannot_be_tested, begin, end),
        cmocka_unit_test_setup_teardown(each_call_is_needed, begin, end),
        cmocka_unit_test_setup_teardown(a_test_that_is_not_wanted_is_not_made, begin, end),
        cmocka_unit_test_setup_teardown(a_busy_device_holds_nobody_up, begin, end),
        cmocka_unit_test_setup_teardown(a_full_device_is_tried_again, begin, end),
        cmocka_unit_test_setup_teardown(each_device_is_tried, begin, end),
        cmocka_unit_test_setup_teardown(a_device_that_cannot_be, begin, end),
        cmocka_unit_test_setup_teardown(what_the_configuration_says, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
