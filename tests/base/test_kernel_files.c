/* The kernel's files below a folder of the test: what they leave, in both versions of control groups, and what damaged ones say. */
#include "host_memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define GIB(n) ((uint64_t)(n) << 30)
#define NO_LIMIT UINT64_MAX

static char root[64];
static char made[64][256];
static int made_count;

/* Writes a file below the root, with the folders that it is in. */
static void put(const char *name, const char *text)
{
    char path[256];
    for (const char *slash = strchr(name + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(path, sizeof path, "%s%.*s", root, (int)(slash - name), name);
        if (mkdir(path, 0700) == 0)
            strcpy(made[made_count++], path);
    }
    snprintf(path, sizeof path, "%s%s", root, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    if (access(path, F_OK) == 0 && fputs(text, file) >= 0)
        strcpy(made[made_count++], path);
    fclose(file);
}

static int begin(void **state)
{
    (void)state;
    strcpy(root, "/tmp/sg-host-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    while (made_count > 0)
        (void)remove(made[--made_count]);
    return rmdir(root);
}

static void meminfo(uint64_t total_gib, uint64_t available_gib)
{
    char text[200];
    snprintf(text, sizeof text, "MemTotal:  %llu kB\nMemFree: 1 kB\nMemAvailable: %llu kB\nBuffers: 3 kB\n",
        (unsigned long long)total_gib << 20, (unsigned long long)available_gib << 20);
    put("/proc/meminfo", text);
}

static struct sg_host_memory host(void)
{
    struct sg_host_memory memory;
    assert_true(sg_host_memory_read(root, 0.05, &memory));
    return memory;
}

static void machine_alone(void **state)
{
    (void)state;
    meminfo(120, 30);
    struct sg_host_memory memory = host();
    assert_true(memory.total == GIB(120) && memory.available == GIB(30) && memory.group_limit == NO_LIMIT);
    assert_true(sg_host_memory_room(&memory, 0.05) == GIB(24));
    assert_true(sg_host_memory_kept(&memory, 0.05) == GIB(6));
    assert_true(sg_host_memory_room(&memory, 0) == GIB(30));
    meminfo(120, 5);
    memory = host();
    assert_int_equal(sg_host_memory_room(&memory, 0.05), 0);
}

static void group_of_version_2(void **state)
{
    (void)state;
    meminfo(120, 30);
    put("/proc/self/cgroup", "0::/slice/job\n");
    put("/sys/fs/cgroup/slice/job/memory.max", "max\n");
    put("/sys/fs/cgroup/slice/job/memory.current", "1\n");
    assert_true(host().group_limit == NO_LIMIT);
    put("/sys/fs/cgroup/slice/memory.max", "42949672960\n"); /* 40 GiB, of the group above */
    put("/sys/fs/cgroup/slice/memory.current", "34359738368\n");
    put("/sys/fs/cgroup/slice/memory.stat", "anon 1\nfile 9\nactive_file 4\ninactive_file 2147483648\n");
    struct sg_host_memory memory = host();
    assert_true(memory.group_limit == GIB(40) && memory.group_used == GIB(30));
    assert_true(sg_host_memory_room(&memory, 0.05) == GIB(8));
    put("/sys/fs/cgroup/slice/job/memory.max", "4294967296\n"); /* 4 GiB: less is left of it */
    memory = host();
    assert_true(memory.group_limit == GIB(4) && memory.group_used == 1);
    put("/sys/fs/cgroup/slice/job/memory.current", "9999999999999\n"); /* a limit that was lowered */
    memory = host();
    assert_int_equal(sg_host_memory_room(&memory, 0), 0);
}

/* Less is left of the group below, but the one above has nothing left beyond its reserve. */
static void the_reserve_of_a_group_above_counts(void **state)
{
    (void)state;
    meminfo(120, 60);
    put("/proc/self/cgroup", "0::/slice/job\n");
    put("/sys/fs/cgroup/slice/memory.max", "107374182400\n"); /* 100 GiB, of which 5 are left */
    put("/sys/fs/cgroup/slice/memory.current", "102005473280\n");
    put("/sys/fs/cgroup/slice/job/memory.max", "4294967296\n"); /* 4 GiB, and all of them are left */
    put("/sys/fs/cgroup/slice/job/memory.current", "0\n");
    struct sg_host_memory memory = host();
    assert_true(memory.group_limit == GIB(100) && memory.group_used == GIB(95));
    assert_int_equal(sg_host_memory_room(&memory, 0.05), 0);
}

/* In a container the group's path may be the host's, while its files stand at the root. */
static void group_of_version_1(void **state)
{
    (void)state;
    meminfo(120, 30);
    put("/proc/self/cgroup", "11:cpu,cpuacct:/a\n10:memoryx:/b\n4:hugetlb,memory:/docker/0123\n0::/\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "5\n");
    assert_true(host().group_limit == NO_LIMIT);
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "10737418240\n");
    put("/sys/fs/cgroup/memory/memory.stat", "cache 7\ninactive_file 1\ntotal_inactive_file 4\n");
    struct sg_host_memory memory = host();
    assert_true(memory.group_limit == GIB(10) && memory.group_used == 1);
}

static void a_namespace_hides_groups_above(void **state)
{
    (void)state;
    meminfo(120, 30);
    put("/sys/fs/cgroup/memory.max", "1073741824\n");
    put("/sys/fs/cgroup/memory.current", "0\n");
    for (int i = 0; i < 3; i++) {
        put("/proc/self/cgroup", (const char *[]){"0::/\n", "0::/../other\n", "0::/gone/below"}[i]);
        assert_true(host().group_limit == GIB(1));
    }
}

static void damaged_files_leave_no_limit(void **state)
{
    (void)state;
    struct sg_host_memory memory = {.total = 7};
    assert_false(sg_host_memory_read(root, 0.05, &memory));
    put("/proc/meminfo", "MemTotal: 5 kB\n");
    assert_false(sg_host_memory_read(root, 0.05, &memory));
    put("/proc/meminfo", "MemTotal: many kB\nMemAvailable: 5 kB\n");
    assert_false(sg_host_memory_read(root, 0.05, &memory));
    put("/proc/meminfo", "MemTotal: 99999999999999999999 kB\nMemAvailable: 5 kB\n");
    assert_false(sg_host_memory_read(root, 0.05, &memory));
    assert_int_equal(memory.total, 7);
    meminfo(120, 30);
    char line[1200] = "0::/";
    memset(line + 4, 'x', sizeof line - 5);
    for (int i = 0; i < 4; i++) {
        put("/proc/self/cgroup", (const char *[]){"", "nothing", "1:memory", line}[i]);
        assert_true(host().group_limit == NO_LIMIT);
    }
    put("/proc/self/cgroup", "0::/job\n");
    put("/sys/fs/cgroup/job/memory.max", "many\n");
    put("/sys/fs/cgroup/job/memory.current", "1\n");
    assert_true(host().group_limit == NO_LIMIT);
}

static void a_quota_is_of_one_device(void **state)
{
    (void)state;
    static const char *const names =
        "drm/0000:03:00.0/vram0 1\nnvidia/0000:65:00.0/vidmem %s\nnvidia/0000:66:00.0/vidmem 9\n";
    struct sg_device_quota quota = {.hard = 5};
    char text[256];
    assert_false(sg_device_quotas_exist(root));
    put("/sys/fs/cgroup/dmem.capacity", "nvidia/0000:65:00.0/vidmem 85899345920\n");
    assert_true(sg_device_quotas_exist(root));
    put("/proc/self/cgroup", "0::/slice/job\n");
    assert_false(sg_device_quota_read(root, "0000:65:00.0", &quota));
    snprintf(text, sizeof text, names, "3000");
    put("/sys/fs/cgroup/slice/job/dmem.current", text);
    snprintf(text, sizeof text, names, "max");
    put("/sys/fs/cgroup/slice/job/dmem.max", text);
    snprintf(text, sizeof text, names, "0");
    put("/sys/fs/cgroup/slice/job/dmem.min", text);
    assert_false(sg_device_quota_read(root, "0000:65:00.0", &quota)); /* no limit at all */
    assert_int_equal(quota.hard, 5);
    snprintf(text, sizeof text, names, "1000");
    put("/sys/fs/cgroup/slice/job/dmem.min", text);
    assert_true(sg_device_quota_read(root, "0000:65:00.0", &quota));
    assert_true(quota.hard == NO_LIMIT && quota.soft_excess == 2000);
    snprintf(text, sizeof text, names, "8000");
    put("/sys/fs/cgroup/slice/job/dmem.max", text);
    put("/sys/fs/cgroup/slice/dmem.max", "nvidia/0000:65:00.0/vidmem 10000\n");
    put("/sys/fs/cgroup/slice/dmem.current", "nvidia/0000:65:00.0/vidmem 9500\n");
    assert_true(sg_device_quota_read(root, "0000:65:00.0", &quota)); /* the group above leaves less */
    assert_true(quota.hard == 10000 && quota.used == 9500 && quota.soft_excess == 2000);
    assert_false(sg_device_quota_read(root, "0000:67:00.0", &quota));
    assert_false(sg_device_quota_read(root, "", &quota));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(machine_alone, begin, end),
        cmocka_unit_test_setup_teardown(group_of_version_2, begin, end),
        cmocka_unit_test_setup_teardown(the_reserve_of_a_group_above_counts, begin, end),
        cmocka_unit_test_setup_teardown(group_of_version_1, begin, end),
        cmocka_unit_test_setup_teardown(a_namespace_hides_groups_above, begin, end),
        cmocka_unit_test_setup_teardown(damaged_files_leave_no_limit, begin, end),
        cmocka_unit_test_setup_teardown(a_quota_is_of_one_device, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
