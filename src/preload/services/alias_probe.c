/* The trial. A trial's state goes from NOT_TRIED to TRYING by one thread, and to a finding by the thread that tries.
   NO_MEMORY is tried again, the others stay.

   For example, round 3 writes a pattern by address B and has A's bytes copied behind the page's first words. Read on
   the host, piece 4 has that pattern: what B wrote was visible at A. */
#include "services/alias_probe.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "process/capture_mode.h"
#include "track/captures.h"
#include "process/worker_thread.h"
#include "process/process.h"
#include "base/meta.h"
#include "base/rest.h"
#include "track/context_pins.h"

/* The first words of the page are written and read by either address. The words that were read stand behind them, a piece
   for each reading. Behind those are rows which two streams write at once, each by an address of its own. */
enum {
    ROUNDS = 16,
    READINGS = 1 + 2 * ROUNDS, /* the first by the address that was written */
    WORDS = 4096,
    WORD_BYTES = 4,
    PIECE_BYTES = WORDS * WORD_BYTES,
    ROWS_AT = (1 + READINGS) * PIECE_BYTES,
    ROWS = 64,
    ROW_WORDS = 128, /* 512 bytes, the least that blocks of two owners are apart */
    ROWS_BYTES = 2 * ROWS * ROW_WORDS * WORD_BYTES,
    TESTED_BYTES = ROWS_AT + ROWS_BYTES
};

/* A device may be too busy for it, with a kernel that never ends. The growth that wants a second address goes on without one
   then. The test is expected to take 5 to 30 ms: its first sets make the driver load its kernels for them. */
enum { SLICE_NS = 200000, GROWTH_SLICES = 250, PAGE_SLICES = 5000 };

enum finding { NOT_TRIED, TRYING, NO_MEMORY, COHERENT, INCOHERENT, UNTRIED };

static const char *const texts[] = {
    [NOT_TRIED] = "not tried: no page was to have a second address yet",
    [TRYING] = "off: the test of two addresses of a page is under way, as the device is busy",
    [NO_MEMORY] = "off: the device had no page to test two addresses with",
    [COHERENT] = "on",
    [INCOHERENT] = "off: two addresses of a page are not coherent",
    [UNTRIED] = "off: whether two addresses of a page are coherent could not be tested",
};

static const char *const chosen_texts[] = {
    [SG_ALIAS_AUTO] = NULL,
    [SG_ALIAS_ON] = "on, by the configuration and not by a test",
    [SG_ALIAS_OFF] = "off, by the configuration",
};

/* A thread of ours that the device never comes to still has its own. */
static struct trial {
    const struct sg_driver *driver;
    CUcontext context;
    CUdevice device;
    _Atomic(enum finding) found;
} trials[SG_DEVICES_MAX];

static atomic_bool has_pages_anywhere; /* the first device that was allocated on has */
static atomic_int first_device = -1, failed_device = -1;

struct page {
    CUdeviceptr a, b; /* both of the same page */
    size_t bytes;
    CUstream stream, other;
    uint32_t *seen;   /* TESTED_BYTES */
};

static uint32_t probe_pattern(int round)
{
    return 0x9e3779b9u * (unsigned)(round + 2); /* 0 is what memory may have been before */
}

/* Queues the readings. */
static bool write_and_read(const struct sg_driver *driver, const struct page *page)
{
    CUdeviceptr kept = page->a + PIECE_BYTES;
    bool done = driver->set_async(page->a, probe_pattern(-1), WORDS, page->stream) == CUDA_SUCCESS &&
        driver->copy_async(kept, page->a, PIECE_BYTES, page->stream) == CUDA_SUCCESS;
    for (int i = 0; i < 2 * ROUNDS && done; i++) {
        CUdeviceptr to = i % 2 ? page->b : page->a, from = i % 2 ? page->a : page->b;
        kept += PIECE_BYTES;
        done = driver->set_async(to, probe_pattern(i), WORDS, page->stream) == CUDA_SUCCESS &&
            driver->copy_async(kept, from, PIECE_BYTES, page->stream) == CUDA_SUCCESS;
    }
    return done;
}

/* Queues what two streams write in turns of a row each. */
static bool write_rows(const struct sg_driver *driver, const struct page *page)
{
    const size_t row = ROW_WORDS * WORD_BYTES;
    bool done = true;
    for (int i = 0; i < ROUNDS && done; i++)
        done = driver->set_rows_async(page->a + ROWS_AT, 2 * row, probe_pattern(i), ROW_WORDS, ROWS, page->stream) ==
                CUDA_SUCCESS &&
            driver->set_rows_async(page->b + ROWS_AT + row, 2 * row, ~probe_pattern(i), ROW_WORDS, ROWS, page->other) ==
                CUDA_SUCCESS;
    return done && driver->stream_synchronize(page->other) == CUDA_SUCCESS &&
        driver->stream_synchronize(page->stream) == CUDA_SUCCESS;
}

static bool is_all(const uint32_t *words, size_t count, uint32_t value)
{
    for (size_t i = 0; i < count; i++)
        if (words[i] != value)
            return false;
    return true;
}

static bool are_rows_right(const uint32_t *words)
{
    bool right = true;
    for (int i = 0; i < 2 * ROWS && right; i++)
        right = is_all(words + (size_t)i * ROW_WORDS, ROW_WORDS,
            i % 2 ? ~probe_pattern(ROUNDS - 1) : probe_pattern(ROUNDS - 1));
    return right;
}

/* Brings what was read to the host, and compares. The readings say whether one address saw what the other wrote. The
   rows, read by each address, say whether two streams that wrote side by side lost anything. */
static enum finding probe_judge(const struct sg_driver *driver, const struct page *page)
{
    const uint32_t *kept = page->seen + WORDS, *rows = page->seen + ROWS_AT / WORD_BYTES;
    if (driver->copy_to_host_async(page->seen, page->a, TESTED_BYTES, page->stream) != CUDA_SUCCESS ||
        driver->stream_synchronize(page->stream) != CUDA_SUCCESS || !is_all(kept, WORDS, probe_pattern(-1)))
        return UNTRIED;
    for (int i = 0; i < 2 * ROUNDS; i++)
        if (!is_all(kept + (size_t)(1 + i) * WORDS, WORDS, probe_pattern(i)))
            return INCOHERENT;
    if (!are_rows_right(rows))
        return INCOHERENT;
    if (driver->copy_to_host_async(page->seen, page->b, TESTED_BYTES, page->stream) != CUDA_SUCCESS ||
        driver->stream_synchronize(page->stream) != CUDA_SUCCESS)
        return UNTRIED;
    return are_rows_right(rows) ? COHERENT : INCOHERENT;
}

/* Makes two streams that wait for no other, and has them write and read the page. */
static enum finding try_on_streams(const struct sg_driver *driver, struct page *page)
{
    enum finding found = UNTRIED;
    if (driver->stream_create(&page->stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        return found;
    if (driver->stream_create(&page->other, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS) {
        bool written = write_and_read(driver, page) && write_rows(driver, page);
        if (written)
            found = probe_judge(driver, page);
        else /* what was queued is done before the page goes */
            (void)(driver->stream_synchronize(page->other), driver->stream_synchronize(page->stream));
        (void)driver->stream_destroy(page->other);
    }
    (void)driver->stream_destroy(page->stream);
    return found;
}

/* Two mappings of one handle side by side. */
static enum finding try_mapped(const struct trial *its, struct page *page, CUmemGenericAllocationHandle handle)
{
    const struct sg_driver *driver = its->driver;
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = its->device},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    enum finding found = UNTRIED;
    if (driver->map(page->a, page->bytes, 0, handle, 0) != CUDA_SUCCESS)
        return found;
    if (driver->map(page->b, page->bytes, 0, handle, 0) == CUDA_SUCCESS) {
        if (driver->set_access(page->a, 2 * page->bytes, &access, 1) == CUDA_SUCCESS)
            found = try_on_streams(driver, page);
        (void)driver->unmap(page->b, page->bytes);
    }
    (void)driver->unmap(page->a, page->bytes);
    return found;
}

/* A page of the smallest size at two adjacent ranges of addresses. Everything is undone in reverse order. NO_MEMORY:
   the device had no page, so the trial is made again later. */
static enum finding try_device(const struct trial *its)
{
    const struct sg_driver *driver = its->driver;
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = its->device}};
    struct page page = {0};
    CUmemGenericAllocationHandle handle;
    enum finding found = UNTRIED;
    if (driver->granularity(&page.bytes, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS ||
        page.bytes < TESTED_BYTES || !(page.seen = sg_meta_map(TESTED_BYTES)))
        return found;
    if (driver->address_reserve(&page.a, 2 * page.bytes, 0, 0, 0) == CUDA_SUCCESS) {
        page.b = page.a + page.bytes;
        CUresult created = driver->create(&handle, page.bytes, &prop, 0);
        if (created == CUDA_SUCCESS) {
            found = try_mapped(its, &page, handle);
            (void)driver->release(handle);
        } else if (created == CUDA_ERROR_OUT_OF_MEMORY) {
            found = NO_MEMORY;
        }
        (void)driver->address_free(page.a, 2 * page.bytes);
    }
    sg_meta_unmap(page.seen, TESTED_BYTES);
    return found;
}

/* An incoherent device is no fault of the program's; the line says what it costs. */
static void probe_complain(CUdevice device)
{
    char line[256];
    snprintf(line, sizeof line,
        "what is written at one address of a page is not read at another on device %d: no page of it "
        "gets a second address, and memory may have to be waited for instead",
        device);
    sg_log_line(line);
}

/* The finding is stored last: a thread that sees it may use it at once. */
static void probe_settle(struct trial *trial, enum finding finding)
{
    if (finding == INCOHERENT)
        probe_complain(trial->device);
    if (finding != COHERENT)
        atomic_store(&failed_device, trial->device);
    atomic_store(&trial->found, finding);
}

/* On a thread of ours: the program's must not wait for a device that never comes to it. */
static void *probe_run(void *user)
{
    struct trial *trial = user;
    CUstreamCaptureMode mode;
    enum finding finding = UNTRIED;
    sg_self.inside = sg_self.aside = true;
    (void)sg_capture_mode_relax(&mode);
    int use = sg_context_pin_current(trial->context);
    if (use >= 0) {
        finding = try_device(trial);
        sg_context_unpin_current(use);
    }
    probe_settle(trial, finding);
    return NULL;
}

/* Waits for a trial to end. False: it has not within these. */
static bool probe_await(struct trial *trial, int slices)
{
    for (int i = 0; i < slices && atomic_load(&trial->found) == TRYING; i++)
        sg_rest(SLICE_NS);
    return atomic_load(&trial->found) != TRYING;
}

static bool probe_attribute(const struct sg_driver *driver, CUdevice_attribute which, CUdevice device, int *ret)
{
    return driver->device_attribute(ret, which, device) == CUDA_SUCCESS;
}

static bool has_calls(const struct sg_driver *driver)
{
    return sg_driver_has_vmm(driver) && driver->stream_create && driver->stream_destroy && driver->stream_synchronize &&
           driver->set_async && driver->set_rows_async && driver->copy_async && driver->copy_to_host_async;
}

static bool has_pages(const struct sg_conf *conf, const struct sg_driver *driver, CUdevice device)
{
    int vmm = 0;
    return conf->expandable_segments && conf->ipc != SG_IPC_ALWAYS && sg_driver_has_vmm(driver) &&
        probe_attribute(driver, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device, &vmm) && vmm;
}

/* Called by the one thread that has set the trial to TRYING. */
static void probe_begin(const struct sg_driver *driver, struct trial *trial, int device)
{
    trial->driver = driver;
    trial->device = device;
    bool can = has_calls(driver) && driver->ctx_get_current(&trial->context) == CUDA_SUCCESS && trial->context;
    CUdevice current = -1;
    if (!can || driver->ctx_get_device(&current) != CUDA_SUCCESS || current != device ||
        !sg_worker_start(probe_run, trial))
        probe_settle(trial, UNTRIED);
}

/* Notes if the first device can have such pages at all, for the text in the statistics. */
void sg_alias_probe_first(const struct sg_conf *conf, const struct sg_driver *driver)
{
    CUdevice device;
    if (driver->ctx_get_device(&device) != CUDA_SUCCESS || device < 0 || device >= SG_DEVICES_MAX)
        return;
    atomic_store(&first_device, device);
    atomic_store(&has_pages_anywhere, has_pages(conf, driver, device));
}

/* The thread that sets TRYING waits up to 50 ms for the finding; others go on without a second address meanwhile. */
bool sg_alias_probe_allows(int device, bool wanted)
{
    struct trial *trial = &trials[device];
    enum finding found = atomic_load_explicit(&trial->found, memory_order_acquire);
    bool is_due = wanted && (found == NOT_TRIED || found == NO_MEMORY);
    if (is_due && atomic_compare_exchange_strong(&trial->found, &found, TRYING)) {
        probe_begin(sg_process_driver(), trial, device);
        (void)probe_await(trial, GROWTH_SLICES);
        found = atomic_load(&trial->found);
    }
    return found == COHERENT;
}

bool sg_alias_probe_gave_back(int device)
{
    return atomic_load_explicit(&trials[device].found, memory_order_acquire) == TRYING &&
           probe_await(&trials[device], PAGE_SLICES);
}

/* The device that failed last has the word, else the first: a user looks for the reason why something is off. */
const char *sg_alias_probe_text(void)
{
    static char text[128]; /* guarded by `busy` of the recorder, the only caller */
    enum sg_alias chosen = sg_process_conf()->alias;
    int failed = atomic_load(&failed_device), first = atomic_load(&first_device), shown = failed >= 0 ? failed : first;
    if (first < 0 || !atomic_load(&has_pages_anywhere))
        return NULL;
    if (chosen_texts[chosen])
        return chosen_texts[chosen];
    enum finding found = atomic_load(&trials[shown].found);
    if (shown == first || found == COHERENT)
        return texts[found];
    snprintf(text, sizeof text, "off on device %d%s", shown, texts[found] + strlen("off"));
    return text;
}
