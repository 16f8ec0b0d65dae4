/* What PyTorch's words and the Python module ask of the library, against a core and a driver made up here: devices that
   there are and can't be, before the first allocation, beside captures and at the end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "config/conf_read.h"
#include "inspect/core_state.h"
#include "balance.h"
#include "track/captures.h"
#include "process/hooks.h"
#include "process/process.h"
#include "process/upward_calls.h"
#include "process/symbols.h"
#include "segalloc/segalloc.h"
#include "torch/torch_current.h"
#include "torch/torch_overrides.h"
#include "torch/torch_switch.h"
#include "torch/torch_allocator.h"
#include "process/stand_ins.h"

/* No block is shown elsewhere than the core has it. */
atomic_bool sg_stand_ins_any;

CUdeviceptr sg_stand_ins_inner(CUdeviceptr shown)
{
    return shown;
}

CUdeviceptr sg_stand_ins_shown(CUdeviceptr inner)
{
    return inner;
}

/* Of torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator. */
#define CACHE_INFO _ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator9cacheInfoEaPm
void CACHE_INFO(void *self, int8_t device, size_t *largest);
#define BEGIN_POOL                                                                                                     \
    "_ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator19beginAllocateToPoolEaSt4pairIyyESt8functionIFbP1" \
    "1"                                                                                                                \
    "CUstream_stEE"
void begin_pool(void *self, int8_t device, uint64_t first, uint64_t second, void *filter) __asm__(BEGIN_POOL);

enum { TOTAL = 1 << 20, DEVICES = SG_DEVICES_MAX };

static struct {
    bool no_core, no_driver, over, passing, live, no_stats;
    CUresult total, info, block;
    uint64_t pending;
    int pushed, synchronized, fails_at, trims, peaks; /* fails_at: the wait that fails; 0: none */
    size_t limit, pieces;
    int limited; /* the device */
    bool live_after; /* a capture begins with the first trim */
    bool none, itself; /* PyTorch's library isn't there; its name is the library's own */
    int pools;
    uint64_t pool;
} fake;

static CUresult device_total(size_t *ret, CUdevice device)
{
    (void)device;
    *ret = TOTAL;
    return fake.total;
}

static CUresult mem_info(size_t *available, size_t *total)
{
    assert_int_equal(fake.pushed, 1);
    *available = 100;
    *total = TOTAL;
    return fake.info;
}

const struct sg_driver *sg_process_driver(void)
{
    static const struct sg_driver driver = {.device_total = device_total, .mem_info = mem_info};
    return fake.no_driver ? NULL : &driver;
}

struct sg_core *sg_enter(void)
{
    return balance_begin(fake.no_core ? NULL : (struct sg_core *)&fake);
}

struct sg_core *sg_enter_allocation(void)
{
    return sg_enter();
}

bool sg_process_over(void)
{
    return fake.over;
}

bool sg_process_is_passthrough(void)
{
    return fake.passing;
}

static bool allocator_answers;

bool sg_torch_overrides_answer(void)
{
    return allocator_answers;
}

const struct sg_conf *sg_process_conf(void)
{
    static struct sg_conf conf;
    static const struct sg_conf_inputs none;
    (void)sg_conf_load(&conf, &none, NULL, NULL);
    return &conf;
}

static void their_begin_pool(void *self, int8_t device, uint64_t first, uint64_t second, void *filter)
{
    assert_true(self == &fake && device == 1 && first == 2 && second == 3 && filter == &fake.pool);
    fake.pools++;
}

static void *find(void *handle, const char *symbol)
{
    void *found;
    void (*function)(void *, int8_t, uint64_t, uint64_t, void *) = fake.itself ? begin_pool : their_begin_pool;
    assert_true(handle == &fake && strcmp(symbol, BEGIN_POOL) == 0);
    memcpy(&found, &function, sizeof found);
    return found;
}

sg_dlsym_fn *sg_dlsym(void)
{
    return find;
}

void *sg_library_find(const char *prefix)
{
    assert_string_equal(prefix, "libtorch_cuda.so");
    return fake.none ? NULL : &fake;
}

int sg_library_close(void *handle)
{
    assert_ptr_equal(handle, &fake);
    return 0;
}

void sg_torch_pool_begins(uint64_t first, uint64_t second)
{
    fake.pool = 10 * first + second;
}

bool sg_captures_active(void)
{
    return fake.live;
}

static CUresult synchronize(void)
{
    assert_int_equal(fake.pushed, 1);
    fake.synchronized++;
    return fake.synchronized == fake.fails_at ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}

const struct sg_upward_calls sg_upward_calls = {.synchronize = synchronize};

bool sg_torch_push_device(const struct sg_driver *driver, int device)
{
    (void)device;
    assert_non_null(driver);
    fake.pushed++;
    return true;
}

void sg_torch_pop_device(const struct sg_driver *driver, bool pushed)
{
    (void)driver;
    fake.pushed -= pushed;
}

bool sg_core_stats(struct sg_core *core, int device, struct sg_stats *ret)
{
    (void)core, (void)device;
    memset(ret, 0, sizeof *ret);
    ret->value[SG_STAT_pending_bytes] = fake.pending;
    return !fake.no_stats;
}

size_t sg_core_trim(struct sg_core *core, int device, size_t keep)
{
    (void)core, (void)device, (void)keep;
    fake.trims++;
    fake.live = fake.live_after;
    return 0;
}

size_t sg_core_set_limit(struct sg_core *core, int device, size_t bytes)
{
    (void)core;
    assert_int_equal(fake.pushed, 1);
    fake.limited = device;
    fake.limit = bytes;
    return bytes;
}

CUresult sg_core_block(struct sg_core *core, CUdeviceptr address, struct sg_block_info *ret)
{
    (void)core;
    if (fake.block == CUDA_SUCCESS)
        *ret = (struct sg_block_info){.base = address & ~(CUdeviceptr)511, .bytes = 1000};
    return fake.block;
}

void sg_core_reset_peaks(struct sg_core *core, int device)
{
    (void)core, (void)device;
    fake.peaks++;
}

size_t sg_core_pieces(struct sg_core *core, int device, struct sg_piece *ret, size_t room)
{
    (void)core, (void)device;
    for (size_t i = 0; i < fake.pieces && i < room; i++)
        ret[i] = (struct sg_piece){.address = 512 * i, .bytes = 512, .requested = i, .stream = (CUstream)(64 * i),
            .state = SG_PIECE_ALLOCATED, .small = i % 2 == 0};
    return fake.pieces;
}

void sg_core_mem_info(struct sg_core *core, int device, size_t *available, size_t *total)
{
    (void)core, (void)device, (void)total;
    *available += 600;
}

static int start(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    fake.limited = -1;
    return 0;
}

/* A device is waited for where that can give memory back; not beside a capture, nor once one begins. */
static void reset_waits_and_gives_back(void **state)
{
    (void)state;
    segalloc_torch_reset();
    assert_true(fake.trims == DEVICES && fake.synchronized == 0);
    fake.pending = 1;
    fake.no_stats = true;
    segalloc_torch_reset();
    assert_int_equal(fake.synchronized, 0);
    fake.no_stats = false;
    segalloc_torch_reset();
    assert_true(fake.trims == 3 * DEVICES && fake.synchronized == DEVICES && fake.pushed == 0);
    fake.live_after = true;
    segalloc_torch_reset();
    segalloc_torch_reset();
    assert_int_equal(fake.trims, 3 * DEVICES + 1);
    fake.live = fake.live_after = false;
    fake.no_core = true;
    segalloc_torch_reset();
    assert_int_equal(fake.trims, 3 * DEVICES + 1);
}

/* Work may still use what was freed: only the other devices' pages go back. */
static void a_device_that_cannot_be_waited_for_keeps_its_pages(void **state)
{
    (void)state;
    fake.pending = 1;
    fake.fails_at = 1;
    segalloc_torch_reset();
    assert_true(fake.synchronized == DEVICES && fake.trims == DEVICES - 1 && fake.pushed == 0);
    fake.synchronized = fake.trims = 0;
    fake.fails_at = DEVICES;
    segalloc_torch_reset();
    assert_true(fake.synchronized == DEVICES && fake.trims == DEVICES - 1 && fake.pushed == 0);
    segalloc_torch_reset();
    assert_int_equal(fake.trims, 2 * DEVICES - 1);
}

static void limits_are_of_devices_that_can_be(void **state)
{
    static const int wrong[] = {-1, DEVICES, INT32_MAX};
    (void)state;
    assert_int_equal(segalloc_set_limit(DEVICES - 1, 5), 5);
    assert_true(fake.limited == DEVICES - 1 && fake.pushed == 0);
    fake.limited = -1;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(segalloc_set_limit(wrong[i], 5), 0);
        segalloc_torch_memory_fraction(0.5, wrong[i]);
    }
    fake.no_core = true;
    assert_int_equal(segalloc_set_limit(0, 5), 0);
    fake.no_core = false;
    fake.over = true;
    assert_int_equal(segalloc_set_limit(0, 5), 0);
    fake.over = false;
    fake.no_driver = true;
    assert_int_equal(segalloc_set_limit(0, 5), 0);
    segalloc_torch_memory_fraction(0.5, 0);
    assert_int_equal(fake.limited, -1);
}

static void fraction_is_of_the_device(void **state)
{
    static const struct {
        double fraction;
        size_t limit; /* 1: none was set */
    } list[] = {{0.5, TOTAL / 2}, {0, 0}, {1, TOTAL}, {3, TOTAL}, {-0.1, 1}, {0.0 / 0.0, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        fake.limit = 1;
        segalloc_torch_memory_fraction(list[i].fraction, 0);
        assert_int_equal(fake.limit, list[i].limit);
    }
    fake.limit = 1;
    fake.total = CUDA_ERROR_INVALID_DEVICE;
    segalloc_torch_memory_fraction(0.5, 0);
    assert_int_equal(fake.limit, 1);
}

/* What it says of itself is not made less. */
static void largest_piece_is_what_the_device_has_left(void **state)
{
    size_t largest = 0;
    (void)state;
    CACHE_INFO(NULL, 0, &largest);
    assert_int_equal(largest, 700);
    largest = 1000;
    CACHE_INFO(NULL, 0, &largest);
    assert_int_equal(largest, 1000);
    largest = 5;
    CACHE_INFO(NULL, -1, &largest);
    fake.info = CUDA_ERROR_INVALID_CONTEXT;
    CACHE_INFO(NULL, 0, &largest);
    fake.no_driver = true;
    CACHE_INFO(NULL, 0, &largest);
    assert_int_equal(largest, 5);
    assert_int_equal(fake.pushed, 0);
}

static void base_is_the_block_s(void **state)
{
    size_t bytes = 1;
    void *pointer = (void *)(uintptr_t)1025;
    (void)state;
    assert_int_equal((uintptr_t)segalloc_torch_base(pointer, &bytes), 1024);
    assert_int_equal(bytes, 1000);
    assert_int_equal((uintptr_t)segalloc_torch_base(pointer, NULL), 1024);
    fake.block = CUDA_ERROR_NOT_FOUND;
    assert_ptr_equal(segalloc_torch_base(pointer, &bytes), pointer);
    assert_int_equal(bytes, 0);
    fake.no_core = true;
    bytes = 1;
    assert_ptr_equal(segalloc_torch_base(pointer, &bytes), pointer);
    assert_int_equal(bytes, 0);
}

static void peaks_are_of_devices_that_can_be(void **state)
{
    (void)state;
    segalloc_reset_peaks(0);
    segalloc_reset_peaks(-1);
    segalloc_reset_peaks(DEVICES);
    assert_int_equal(fake.peaks, 1);
    fake.no_core = true;
    segalloc_reset_peaks(0);
    assert_int_equal(fake.peaks, 1);
}

/* As far as there is room; how many there are is said in any case. */
static void pieces_are_handed_over_one_by_one(void **state)
{
    struct segalloc_piece list[3];
    (void)state;
    memset(list, 255, sizeof list);
    fake.pieces = 5;
    assert_int_equal(segalloc_pieces(0, list, 2), 5);
    assert_true(list[1].address == 512 && list[1].bytes == 512 && list[1].requested == 1 && list[1].stream == 64 &&
        list[1].small == 0 && list[0].small == 1 && list[2].bytes == UINT64_MAX);
    fake.pieces = 1;
    memset(list, 255, sizeof list);
    assert_int_equal(segalloc_pieces(0, list, 3), 1);
    assert_true(list[0].bytes == 512 && list[1].bytes == UINT64_MAX);
    assert_int_equal(segalloc_pieces(0, NULL, 0), 1);
    assert_int_equal(segalloc_pieces(-1, list, 3), 0);
    fake.no_core = true;
    assert_int_equal(segalloc_pieces(0, list, 3), 0);
}

static void is_in_use_until_it_is_over(void **state)
{
    (void)state;
    assert_true(segalloc_in_use());
    fake.passing = true;
    assert_false(segalloc_in_use());
    fake.passing = false;
    fake.over = true;
    assert_false(segalloc_in_use());
}

static void options_are_cut_to_their_room(void **state)
{
    char text[16] = "before";
    (void)state;
    size_t length = segalloc_option("reserve_slack", text, sizeof text);
    assert_int_equal(length, strlen(text));
    assert_int_equal(segalloc_option("reserve_slack", text, 2), length);
    assert_int_equal(strlen(text), 1);
    assert_int_equal(segalloc_option("reserve_slack", NULL, 0), length);
    assert_int_equal(segalloc_option("no_such_option", text, sizeof text), 0);
    assert_int_equal(segalloc_option(NULL, text, sizeof text), 0);
}

/* PyTorch's own is called, and the number is kept. */
static void pools_of_a_pluggable_allocator_are_heard_of(void **state)
{
    (void)state;
    begin_pool(&fake, 1, 2, 3, &fake.pool);
    assert_true(fake.pools == 1 && fake.pool == 23);
    fake.none = true;
    begin_pool(&fake, 1, 2, 3, &fake.pool);
    fake.none = false;
    fake.itself = true;
    begin_pool(&fake, 1, 2, 3, &fake.pool);
    assert_int_equal(fake.pools, 1);
}

#define TEST(name) cmocka_unit_test_setup(name, start)

/* PyTorch's own allocator is asked where its tensors come here by it. */
static void own_allocator_answers_in_its_modes(void **state)
{
    (void)state;
    assert_false(segalloc_torch_answers());
    allocator_answers = true;
    assert_true(segalloc_torch_answers());
    fake.passing = true;
    assert_false(segalloc_torch_answers());
    allocator_answers = fake.passing = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(own_allocator_answers_in_its_modes),
        TEST(pools_of_a_pluggable_allocator_are_heard_of),
        TEST(reset_waits_and_gives_back),
        TEST(a_device_that_cannot_be_waited_for_keeps_its_pages),
        TEST(limits_are_of_devices_that_can_be),
        TEST(fraction_is_of_the_device),
        TEST(largest_piece_is_what_the_device_has_left),
        TEST(base_is_the_block_s),
        TEST(peaks_are_of_devices_that_can_be),
        TEST(pieces_are_handed_over_one_by_one),
        TEST(is_in_use_until_it_is_over),
        TEST(options_are_cut_to_their_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
