#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <sys/stat.h>

#include "files.h"
#include "reader/stats_read.h"
#include "writer/stats_file.h"

static void comes_back(void **state)
{
    (void)state;
    char folder[] = "/tmp/segalloc-test-XXXXXX", path[128], pattern[128];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/a/stats.%ld", folder, (long)getpid());
    snprintf(pattern, sizeof(pattern), "%s/a/stats.%%p", folder);
    struct sg_stats_device device[2] = {{.device = 0, .granularity = 2 << 20, .total_bytes = UINT64_C(80) << 30},
                                        {.device = 3, .limit_bytes = 77}};
    for (int i = 0; i < SG_STAT_COUNT; i++) {
        device[1].stats.value[i] = (uint64_t)i * UINT64_C(1000000007);
        if (sg_stat_info((enum sg_stat)i)->kind == SG_STAT_LEVEL)
            device[1].stats.peak[i] = INT64_MAX - (uint64_t)i;
    }
    struct sg_stats_file file = {.pid = 5,
                                 .start_realtime_ns = 6,
                                 .end_realtime_ns = 7,
                                 .conf = "alias:off",
                                 .command = "python \"a\\b\"\n\x01 \xc3\xa4 \xff \xed\xa0\x80",
                                 .untracked_by = "cuStreamOfTomorrow",
                                 .pytorch = "direct, then beneath",
                                 .devices = device,
                                 .count = 2};
    for (int round = 0; round < 2; round++) /* the second replaces the first */
        assert_int_equal(sg_stats_file_write(pattern, NULL, &file), 0);
    assert_true(sg_stats_file_detect(path));
    struct sg_stats_file back;
    char error[SG_STATS_ERROR] = "";
    assert_int_equal(sg_stats_file_read(path, &back, error), 0);
    assert_int_equal(back.pid, 5);
    assert_int_equal(back.start_realtime_ns, 6);
    assert_int_equal(back.end_realtime_ns, 7);
    assert_string_equal(back.conf, "alias:off");
    assert_string_equal(back.command,
                        "python \"a\\b\"\n\x01 \xc3\xa4 \xef\xbf\xbd \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    assert_string_equal(back.untracked_by, "cuStreamOfTomorrow");
    assert_string_equal(back.pytorch, "direct, then beneath");
    assert_int_equal(back.count, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(back.devices[i].device, device[i].device);
        assert_int_equal(back.devices[i].granularity, device[i].granularity);
        assert_int_equal(back.devices[i].total_bytes, device[i].total_bytes);
        assert_int_equal(back.devices[i].limit_bytes, device[i].limit_bytes);
        assert_memory_equal(&back.devices[i].stats, &device[i].stats, sizeof(device[i].stats));
    }
    sg_stats_file_free(&back);
    unlink(path);
    snprintf(path, sizeof(path), "%s/a", folder);
    assert_int_equal(rmdir(path), 0); /* nothing else was left there */
    rmdir(folder);
}

static void bad_files(void **state)
{
    (void)state;
    static const char *texts[] = {"",
                                  "{",
                                  "[]",
                                  "{}",
                                  "{\"schema\":\"segalloc.stats/1\"}",
                                  "{\"schema\":7,\"devices\":[]}",
                                  "{\"schema\":\"segalloc.stats/2\",\"devices\":[]}"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct sg_stats_file file;
        char error[SG_STATS_ERROR] = "", *path = test_file(texts[i], strlen(texts[i]));
        assert_int_equal(sg_stats_file_read(path, &file, error), -EINVAL);
        assert_string_not_equal(error, "");
        assert_null(strchr(error, '\n'));
        unlink(path);
        free(path);
    }
    static const char odd[] = "{\"schema\":\"segalloc.stats/"
                              "1\",\"pid\":\"x\",\"devices\":[3,{\"device\":4294967296,\"statistics\":{\"allocs\":-1,"
                              "\"new\":{}}}]}";
    struct sg_stats_file file;
    char error[SG_STATS_ERROR] = "", *path = test_file(odd, sizeof(odd) - 1);
    assert_int_equal(sg_stats_file_read(path, &file, error), 0);
    assert_int_equal(file.devices[1].stats.value[SG_STAT_allocs], 0);
    assert_int_equal(file.devices[1].device, UINT32_MAX); /* not the first */
    sg_stats_file_free(&file);
    assert_int_equal(sg_stats_file_write("/proc/nowhere/x", NULL, &file), -ENOENT);
    unlink(path);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(comes_back), cmocka_unit_test(bad_files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
