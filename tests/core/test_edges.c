/* Values at the edge of what they bound: a limit to the byte, memory that the driver refuses, errors counted one by one.
   And questions about devices that the core does not serve, or to drivers that lack the answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "config/conf_read.h"
#include "inspect/core_state.h"
#include "rooms.h"
#include "inspect.h"
#include "strict_kept.h"

#define MIB(n) ((uint64_t)(n) << 20)
enum { TOTAL = 64 };

static struct sg_driver driver;
static struct sg_core *core;
static const struct sg_tag tag = {.sync = SG_FREE_SYNC_COMPLETE};

/* What the driver answers for want of better. */
static struct {
    uint64_t least_free;  /* a page is refused where less would be left */
    uint64_t outside;     /* bytes of others, which it tells of */
    uint64_t other_total; /* of which cuMemGetInfo speaks; 0: the device's own */
    unsigned maps_to_fail;
    int attributes; /* of every kind; 0: as the strict driver */
    bool refuses_exportable, refuses_network, lacks_exportable;
    bool has_no_total, knows_no_device;
    bool gives_no_addresses;
    unsigned accesses_to_fail;
    uint64_t exportable, for_network; /* pages made so */
} says;

static CUresult create(CUmemGenericAllocationHandle *ret, size_t bytes, const CUmemAllocationProp *prop,
    unsigned long long flags)
{
    CUmemAllocationProp plain = *prop;
    says.exportable += prop->requestedHandleTypes != 0;
    says.for_network += prop->allocFlags.gpuDirectRDMACapable;
    plain.requestedHandleTypes = (CUmemAllocationHandleType)0;
    plain.allocFlags.gpuDirectRDMACapable = 0;
    if (strict_used(prop->location.id) + bytes + says.least_free > MIB(TOTAL))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return strict_driver.create(ret, bytes, &plain, flags);
}

static CUresult map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
    unsigned long long flags)
{
    if (says.maps_to_fail == 0)
        return strict_driver.map(address, bytes, offset, handle, flags);
    says.maps_to_fail--;
    return CUDA_ERROR_UNKNOWN;
}

/* As where a machine has no mappings left. */
static CUresult set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    if (says.accesses_to_fail == 0)
        return strict_driver.set_access(address, bytes, access, count);
    says.accesses_to_fail--;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult address_reserve(CUdeviceptr *ret, size_t bytes, size_t alignment, CUdeviceptr hint,
    unsigned long long flags)
{
    return says.gives_no_addresses ? CUDA_ERROR_UNKNOWN
                                   : strict_driver.address_reserve(ret, bytes, alignment, hint, flags);
}

static CUresult device_total(size_t *ret, CUdevice device)
{
    return says.has_no_total ? CUDA_ERROR_UNKNOWN : strict_driver.device_total(ret, device);
}

static CUresult ctx_get_device(CUdevice *ret)
{
    *ret = 0;
    return says.knows_no_device ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

static CUresult mem_info(size_t *free_bytes, size_t *total_bytes)
{
    CUresult result = strict_driver.mem_info(free_bytes, total_bytes);
    *total_bytes = says.other_total ? says.other_total : *total_bytes;
    *free_bytes -= says.outside;
    return result;
}

static CUresult granularity(size_t *ret, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option)
{
    if ((says.refuses_exportable && prop->requestedHandleTypes) ||
        (says.refuses_network && prop->allocFlags.gpuDirectRDMACapable))
        return CUDA_ERROR_NOT_SUPPORTED;
    return strict_driver.granularity(ret, prop, option);
}

static CUresult device_attribute(int *ret, CUdevice_attribute attribute, CUdevice device)
{
    if (says.lacks_exportable && attribute == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) {
        *ret = 0;
        return CUDA_SUCCESS;
    }
    *ret = says.attributes;
    return says.attributes ? CUDA_SUCCESS : strict_driver.device_attribute(ret, attribute, device);
}

static int set_up(void **state)
{
    (void)state;
    memset(&says, 0, sizeof says);
    driver = strict_driver;
    driver.create = create;
    driver.map = map;
    driver.set_access = set_access;
    driver.address_reserve = address_reserve;
    driver.device_total = device_total;
    driver.mem_info = mem_info;
    driver.granularity = granularity;
    driver.device_attribute = device_attribute;
    strict_reset(2, MIB(TOTAL), MIB(2));
    return 0;
}

static void start(const char *text, bool plain_pages)
{
    struct sg_conf conf;
    sg_conf_init(&conf);
    assert_int_equal(sg_conf_apply(&conf, SG_CONF_ARGUMENT, text, NULL, NULL), 0);
    core = sg_core_create(&(struct sg_core_params){.conf = &conf, .driver = &driver, .plain_pages = plain_pages});
    assert_non_null(core);
}

static int take_down(void **state)
{
    (void)state;
    sg_core_destroy(core);
    strict_expect_over();
    return 0;
}

static CUresult allocate(uint64_t bytes, CUdeviceptr *ret)
{
    CUresult result = sg_core_malloc(core, 0, bytes, &tag, ret);
    inspect(core, 1);
    return result;
}

static CUdeviceptr some(uint64_t bytes)
{
    CUdeviceptr address = 0;
    assert_int_equal(allocate(bytes, &address), CUDA_SUCCESS);
    return address;
}

static void release(CUdeviceptr address)
{
    assert_int_equal(sg_core_free(core, address, &tag), CUDA_SUCCESS);
}

static uint64_t value(enum sg_stat stat)
{
    struct sg_stats stats;
    assert_true(sg_core_stats(core, 0, &stats));
    return stats.value[stat];
}

static void a_byte_less_than_two_pages_is_one(void **state)
{
    CUdeviceptr address = 0;
    (void)state;
    start("", false);
    some(MIB(2));
    assert_int_equal(sg_core_set_limit(core, 0, MIB(4) - 1), MIB(4) - 1);
    assert_int_equal(allocate(MIB(2), &address), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(sg_core_set_limit(core, 0, MIB(4)), MIB(4));
    some(MIB(2));
    assert_int_equal(value(SG_STAT_reserved_bytes), MIB(4));
}

/* Others have 18 MiB of 64. A page of 36 MiB is wanted beside 8 in use. Of the 30 that are idle 10 go at first, since the
   card would be too small. Then the driver refuses the page. The other 20 do with the 18 that are left. */
static void idle_memory_and_what_is_left_are_enough_together(void **state)
{
    enum { BLOCKS = 15 };
    CUdeviceptr block[BLOCKS];
    (void)state;
    start("", false);
    some(MIB(8));
    for (int i = 0; i < BLOCKS; i++)
        block[i] = some(MIB(2));
    for (int i = 0; i < BLOCKS; i++)
        release(block[i]);
    says.outside = says.least_free = MIB(18);
    some(MIB(36));
    assert_int_equal(value(SG_STAT_retries), 1);
    assert_int_equal(value(SG_STAT_reserved_bytes), MIB(8 + 36));
}

/* 40 MiB are held of 64, and others have 16. */
static void what_others_have_is_no_room(void **state)
{
    CUdeviceptr address = 0;
    struct sg_shortage shortage;
    (void)state;
    start("", false);
    some(MIB(40));
    says.outside = says.least_free = MIB(16);
    assert_int_equal(allocate(MIB(20), &address), CUDA_ERROR_OUT_OF_MEMORY);
    assert_true(sg_core_shortage(core, 0, &shortage));
    assert_int_equal(shortage.outside, MIB(16));
    assert_int_equal(shortage.room, MIB(8));
    assert_int_equal(shortage.short_by, MIB(12));
}

static void each_error_counts(void **state)
{
    (void)state;
    start("", false);
    some(MIB(2));
    assert_int_equal(value(SG_STAT_vmm_errors), 0);
    says.maps_to_fail = 1;
    some(MIB(4));
    assert_int_equal(value(SG_STAT_vmm_errors), 1);
}

static void of_a_device_that_is_not_served_nothing_is_said(void **state)
{
    (void)state;
    start("", false);
    some(MIB(2));
    for (int device = 1; device <= SG_DEVICES_MAX; device += SG_DEVICES_MAX - 1) { /* one unused, one that none is */
        assert_false(sg_core_left_pages(core, device));
        assert_false(sg_core_take_aliased(core, device % SG_DEVICES_MAX, 1));
    }
    assert_false(sg_core_take_aliased(core, 0, 0));
    assert_false(sg_core_take_aliased(core, 0, 1));
    assert_false(sg_core_left_pages(core, 0));
    assert_false(sg_core_fix(core, SG_DEVICES_MAX, /* whole */ false));
    assert_int_equal(sg_core_peer_access(core, SG_DEVICES_MAX, 0, true), CUDA_ERROR_INVALID_VALUE);
}

/* cuMemGetInfo speaks of the current context's device. An older driver does not say which that is. */
static void another_total_counts_where_the_device_is_not_said(void **state)
{
    (void)state;
    driver.ctx_get_device = NULL;
    says.other_total = MIB(TOTAL) - MIB(32); /* a quota, of which the strict driver has all but 2 MiB free */
    says.outside = MIB(32);
    start("", false);
    some(MIB(2));
    some(MIB(4));
    assert_int_equal(sg_device_known(core, 0)->room.outside_bytes, MIB(32));
}

static void what_another_device_has_is_not_taken_for_its_own(void **state)
{
    (void)state;
    driver.ctx_get_device = ctx_get_device;
    says.other_total = MIB(TOTAL) - MIB(32);
    says.outside = MIB(32);
    says.knows_no_device = true;
    start("", false);
    some(MIB(2));
    assert_int_equal(sg_device_known(core, 0)->room.outside_bytes, 0);
    says.knows_no_device = false;
    some(MIB(4));
    assert_int_equal(sg_device_known(core, 0)->room.outside_bytes, MIB(32));
}

static void a_device_without_a_size_is_the_drivers(void **state)
{
    CUdeviceptr address;
    (void)state;
    says.has_no_total = true;
    start("", false);
    assert_int_equal(sg_core_malloc(core, 0, MIB(2), &tag, &address), CUDA_ERROR_NOT_SUPPORTED);
    assert_false(sg_core_fix(core, 0, /* whole */ false));
    assert_false(sg_core_left_pages(core, 0));
}

/* 20 MiB are held, and later 10 may be. The driver gives no addresses, so small blocks would be left to it. */
static void nothing_is_left_to_the_driver_beyond_a_lowered_limit(void **state)
{
    CUdeviceptr address;
    (void)state;
    start("", false);
    some(MIB(20));
    says.gives_no_addresses = true;
    assert_int_equal(sg_core_malloc(core, 0, 4096, &tag, &address), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(sg_core_set_limit(core, 0, MIB(10)), MIB(10));
    assert_int_equal(sg_core_malloc(core, 0, 4096, &tag, &address), CUDA_ERROR_OUT_OF_MEMORY);
}

/* Two attempts find no mappings. The third has larger pages, and nobody is there to be warned. */
static void mappings_that_are_out_are_made_do_with(void **state)
{
    (void)state;
    start("", false);
    some(MIB(2));
    says.accesses_to_fail = 2;
    some(MIB(4));
    assert_int_equal(sg_device_known(core, 0)->room.mappings_out, true);
}

static void a_phase_is_noted_without_a_site(void **state)
{
    const struct sg_tag in_phase = {.sync = SG_FREE_SYNC_COMPLETE, .phase = 3};
    CUdeviceptr address;
    (void)state;
    start("", false);
    assert_int_equal(sg_core_malloc(core, 0, MIB(2), &in_phase, &address), CUDA_SUCCESS);
    const struct sg_device *device = sg_device_known(core, 0);
    assert_non_null(device->regions.extents.sites);
    inspect(core, 1);
}

static void a_device_for_the_network_that_refuses_has_plain_pages(void **state)
{
    (void)state;
    says.attributes = 1;
    says.lacks_exportable = says.refuses_network = true;
    start("", false);
    some(MIB(2));
    assert_true(says.exportable == 0 && says.for_network == 0);
}

static void pages_are_as_the_device_has_them(void **state)
{
    (void)state;
    says.attributes = 1;
    start("", false);
    some(MIB(2));
    assert_true(says.exportable > 0 && says.for_network > 0);
}

static void pages_that_cannot_be_exported_are_for_the_network(void **state)
{
    (void)state;
    says.attributes = 1;
    says.refuses_exportable = true;
    start("", false);
    some(MIB(2));
    assert_true(says.exportable == 0 && says.for_network > 0);
}

static void plain_pages_are_asked_for_as_such(void **state)
{
    (void)state;
    says.attributes = 1;
    start("", true);
    some(MIB(2));
    assert_true(says.exportable == 0 && says.for_network == 0);
}

static const char *oom_text(const struct sg_shortage *shortage)
{
    static char text[4096];
    sg_device_known(core, 0)->room.shortage = *shortage;
    assert_true(sg_core_oom_text(core, 0, NULL, text, sizeof text) < sizeof text);
    return text;
}

/* Of 60 MiB 20 wait for queued work. */
static void what_is_queued_is_waited_for_longer(void **state)
{
    const struct sg_shortage shortage = {.asked = MIB(10),
        .takes = MIB(10),
        .live = MIB(40),
        .used = MIB(60),
        .allocated = MIB(40),
        .pending = MIB(20),
        .reserved = MIB(60),
        .total = MIB(TOTAL),
        .limit = MIB(TOTAL),
        .short_by = MIB(6)};
    struct sg_shortage given_up = shortage;
    (void)state;
    given_up.given_up = true;
    start("free_sync:strict", false);
    some(MIB(2));
    assert_non_null(strstr(oom_text(&shortage), "--conf wait_limit:"));
    sg_core_destroy(core);
    start("free_sync:event", false);
    some(MIB(2));
    assert_non_null(strstr(oom_text(&shortage), "--conf free_sync:strict"));
    assert_non_null(strstr(oom_text(&given_up), "--conf wait_limit:"));
}

static void idle_parts_are_named_where_there_are_some(void **state)
{
    struct sg_shortage shortage = {.asked = MIB(30),
        .takes = MIB(30),
        .live = MIB(20),
        .used = MIB(20),
        .allocated = MIB(20),
        .reserved = MIB(30),
        .idle = MIB(10),
        .total = MIB(TOTAL),
        .limit = MIB(TOTAL),
        .short_by = MIB(2)};
    (void)state;
    start("expandable_segments:False", false);
    some(MIB(2));
    assert_null(strstr(oom_text(&shortage), "in partly used segments"));
    shortage.idle -= 512;
    assert_non_null(strstr(oom_text(&shortage), "512 B idle in partly used segments"));
}

/* Neither more room for others' memory nor a higher limit would do alone: what takes more is named. */
static void of_a_limit_and_others_the_larger_is_the_cause(void **state)
{
    static const struct sg_oom_process other[] = {{.pid = 1, .bytes = MIB(20)}};
    const struct sg_oom_around around = {.process = other, .processes = 1};
    struct sg_shortage shortage = {.asked = MIB(60), .total = MIB(TOTAL), .limit = MIB(40), .outside = MIB(20)};
    (void)state;
    start("", false);
    assert_int_equal(sg_oom_cause(&shortage, &around), SG_OOM_LIMIT);
    shortage.limit = MIB(50);
    assert_int_equal(sg_oom_cause(&shortage, &around), SG_OOM_OTHERS);
}

/* Whole GiB are said as such. */
static void sizes_for_tools_are_whole_units(void **state)
{
    struct sg_shortage shortage = {.asked = UINT64_C(4) << 30,
        .takes = UINT64_C(4) << 30,
        .total = UINT64_C(3) << 30,
        .limit = UINT64_C(3) << 30};
    (void)state;
    start("", false);
    some(MIB(2));
    assert_non_null(strstr(oom_text(&shortage), "--card 3GiB "));
    shortage.total += 1;
    assert_non_null(strstr(oom_text(&shortage), "--card 3073MiB "));
}

static bool some_place(uint32_t number, char *ret, size_t size)
{
    (void)number;
    (void)ret;
    (void)size;
    return false;
}

/* Which code asked for what is held is worth knowing where something is. */
static void sites_are_recommended_for_what_is_held(void **state)
{
    const struct sg_oom_around around = {.site = some_place, .command = "train"};
    char with[4096], without[4096];
    (void)state;
    start("", false);
    CUdeviceptr address = some(MIB(2));
    sg_device_known(core, 0)->room.shortage = (struct sg_shortage){.asked = MIB(20),
        .takes = MIB(20),
        .total = MIB(TOTAL),
        .limit = MIB(10),
        .used = MIB(2),
        .allocated = MIB(2),
        .live = MIB(2),
        .reserved = MIB(2)};
    size_t length = sg_core_oom_text(core, 0, &around, with, sizeof with);
    release(address);
    assert_true(sg_core_oom_text(core, 0, &around, without, sizeof without) < length);
    assert_non_null(strstr(with, "--sites"));
    assert_null(strstr(without, "--sites"));
}

static void a_context_is_noted_once(void **state)
{
    const CUcontext context = (CUcontext)16;
    (void)state;
    start("", false);
    some(MIB(2));
    for (int i = 0; i < 3; i++)
        sg_core_context_seen(core, 0, context);
    assert_int_equal(sg_context_list_count(&core->contexts), 1);
}

/* Somebody left one of the core's locks held. */
static void a_core_is_free_once_all_its_locks_are(void **state)
{
    (void)state;
    start("", false);
    some(MIB(2));
    struct sg_lock *lock[] = {&core->setup, &sg_device_known(core, 0)->lock};
    assert_true(sg_core_is_free(core));
    for (int i = 0; i < 2; i++) {
        atomic_store(&lock[i]->word, 1);
        assert_false(sg_core_is_free(core));
        atomic_store(&lock[i]->word, 0);
    }
}

static void only_pages_with_memory_are_pinned(void **state)
{
    (void)state;
    start("", false);
    some(MIB(6));
    assert_true(sg_core_pin_all(core));
    assert_int_equal(value(SG_STAT_pinned_bytes), MIB(6));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, take_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_byte_less_than_two_pages_is_one),
        TEST(idle_memory_and_what_is_left_are_enough_together),
        TEST(what_others_have_is_no_room),
        TEST(each_error_counts),
        TEST(of_a_device_that_is_not_served_nothing_is_said),
        TEST(another_total_counts_where_the_device_is_not_said),
        TEST(what_another_device_has_is_not_taken_for_its_own),
        TEST(a_device_without_a_size_is_the_drivers),
        TEST(nothing_is_left_to_the_driver_beyond_a_lowered_limit),
        TEST(mappings_that_are_out_are_made_do_with),
        TEST(a_phase_is_noted_without_a_site),
        TEST(a_device_for_the_network_that_refuses_has_plain_pages),
        TEST(pages_are_as_the_device_has_them),
        TEST(pages_that_cannot_be_exported_are_for_the_network),
        TEST(plain_pages_are_asked_for_as_such),
        TEST(sizes_for_tools_are_whole_units),
        TEST(sites_are_recommended_for_what_is_held),
        TEST(a_context_is_noted_once),
        TEST(a_core_is_free_once_all_its_locks_are),
        TEST(only_pages_with_memory_are_pinned),
        TEST(what_is_queued_is_waited_for_longer),
        TEST(idle_parts_are_named_where_there_are_some),
        TEST(of_a_limit_and_others_the_larger_is_the_cause),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
