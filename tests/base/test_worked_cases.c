/* The cases with numbers that the headers of base, config, driver and trace work through: each number that they name is
   here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/ascii.h"
#include "base/idmap.h"
#include "base/keytree.h"
#include "base/live_groups.h"
#include "base/max_tree.h"
#include "base/neighbours.h"
#include "base/outside.h"
#include "base/plain_text.h"
#include "base/scratch.h"
#include "base/site.h"
#include "base/size.h"
#include "base/text.h"
#include "base/usage.h"
#include "base/wrap.h"
#include "config/conf_check.h"
#include "config/conf_number.h"
#include "config/conf_read.h"
#include "config/conf_roundup.h"
#include "config/roundup.h"
#include "driver/cost.h"
#include "trace/growing_array.h"
#include "trace/trace_file.h"

#define ADDRESS UINT64_C(0x7f2000040000)

static void words_are_near(void **state)
{
    (void)state;
    const char *names[SG_OPTION_COUNT];
    for (int i = 0; i < SG_OPTION_COUNT; i++)
        names[i] = sg_option_info((enum sg_option)i)->name;
    assert_string_equal(sg_ascii_nearest("reserve_slak", names, SG_OPTION_COUNT), "reserve_slack");
    assert_string_equal(sg_ascii_nearest("max_split", names, SG_OPTION_COUNT), "max_split_size_mb");
    assert_string_equal(sg_ascii_nearest("trcae", names, SG_OPTION_COUNT), "trace");
    assert_null(sg_ascii_nearest("colour", names, SG_OPTION_COUNT));
}

static void a_dictionary_doubles(void **state)
{
    (void)state;
    struct sg_idmap map;
    assert_true(sg_idmap_init(&map));
    assert_int_equal(sg_idmap_bytes(&map), 64 << 10);
    for (uint64_t id = 1; id <= 100000; id++) {
        size_t before = map.mask;
        assert_true(sg_idmap_put(&map, id * 512, 1));
        assert_true((map.mask != before) ==
                    (id == 2048 || id == 4096 || id == 8192 || id == 16384 || id == 32768 || id == 65536));
    }
    assert_int_equal(sg_idmap_bytes(&map), 4 << 20);
    sg_idmap_fini(&map);
}

static void keys_have_an_order(void **state)
{
    (void)state;
    struct sg_keytree tree = {0};
    struct sg_keynode node[4];
    const uint64_t key[4][2] = {{2, 0x40}, {8, 0x10}, {2, 0x20}, {20, 0x80}};
    for (int i = 0; i < 4; i++)
        sg_keytree_insert(&tree, &node[i], key[i][0], key[i][1]);
    assert_ptr_equal(sg_keytree_first(&tree), &node[2]);
    assert_ptr_equal(sg_keytree_at_least(&tree, 3, 0), &node[1]);
    assert_ptr_equal(sg_keytree_next(&node[1]), &node[3]);
    assert_null(sg_keytree_at_least(&tree, 21, 0));
}

static void blocks_have_groups(void **state)
{
    (void)state;
    struct sg_live live;
    assert_true(sg_live_init(&live, 16));
    const struct sg_live_key site7 = {.site = 7, .size_class = sg_live_class(307200)};
    const struct sg_live_key site8 = {.site = 8, .size_class = sg_live_class(8388608)};
    assert_int_equal(site7.size_class, 19);
    assert_int_equal(site8.size_class, 24);
    assert_int_equal(sg_live_class_from(19), 262144);
    assert_int_equal(sg_live_add(&live, &site7, 307200), 1);
    assert_int_equal(sg_live_add(&live, &site7, 307200), 1);
    assert_int_equal(live.group[1].now.births, 3);
    assert_int_equal(sg_live_add(&live, &site8, 8388608), 2);
    sg_live_remove(&live, 1, 307200, 1);
    assert_int_equal(live.group[1].now.births, 2);
    struct sg_live_row row[2];
    assert_int_equal(sg_live_rows(&live, false, NULL, row, 2), 2);
    assert_int_equal(row[0].key.site, 8);
    assert_int_equal(row[0].age, 0);
    assert_int_equal(row[1].bytes, 307200);
    assert_int_equal(row[1].age, 1);
    sg_live_fini(&live);
}

static void maxima_find_buckets(void **state)
{
    (void)state;
    struct sg_max_tree tree;
    assert_true(sg_max_tree_init(&tree, 300, SG_MAX_TREE_EAGER));
    assert_int_equal(tree.levels, 3);
    sg_max_tree_set(&tree, 5, 8);
    sg_max_tree_set(&tree, 40, 600);
    sg_max_tree_set(&tree, 290, 600);
    assert_int_equal(tree.level[1][0], 8);
    assert_int_equal(tree.level[1][2], 600);
    assert_int_equal(tree.level[1][18], 600);
    assert_int_equal(tree.level[2][0], 600);
    assert_int_equal(tree.level[2][1], 600);
    assert_int_equal(sg_max_tree_first(&tree, 0, 600), 40);
    assert_int_equal(sg_max_tree_first(&tree, 41, 600), 290);
    assert_int_equal(sg_max_tree_last(&tree, 40, 1), 5);
    sg_max_tree_fini(&tree);
    assert_true(sg_max_tree_init(&tree, 1000000, SG_MAX_TREE_EAGER));
    assert_int_equal(tree.levels, 5);
    assert_int_equal(tree.bytes, 4266816); /* 4.1 MiB */
    sg_max_tree_fini(&tree);
}

static void sums_of_memory(void **state)
{
    (void)state;
    const struct sg_outside outside = {.bytes = {[SEGALLOC_OUTSIDE_OTHER] = SG_GIB / 2,
                                           [SEGALLOC_OUTSIDE_POOLS] = 2 * SG_GIB,
                                           [SEGALLOC_OUTSIDE_POOLS_IDLE] = SG_GIB,
                                           [SEGALLOC_OUTSIDE_MANAGED] = 3 * SG_GIB,
                                           [SEGALLOC_OUTSIDE_POOLS_LEAVING] = SG_GIB / 4}};
    assert_int_equal(sg_outside_sum(&outside), 6 * SG_GIB + 3 * SG_GIB / 4);
    assert_int_equal(sg_outside_stays(&outside), 3 * SG_GIB + SG_GIB / 2);
    struct sg_usage usage = {0};
    sg_usage_allocate(&usage, 1000, 1024, true);
    sg_usage_free(&usage, 1000, 1024, true);
    assert_int_equal(usage.requested.peak, 1000);
    assert_int_equal(usage.allocated.now, 0);
    assert_int_equal(usage.active.now, 1024);
    assert_int_equal((sizeof(struct sg_neighbours) + 512) >> 10, 126);
}

static void texts_are_plain(void **state)
{
    (void)state;
    char text[] = "caf\xe9\n\x1b[31mred\xe2\x80\xae", buffer[SG_SIZE_TEXT], site[SG_SITE_TEXT];
    assert_string_equal(sg_plain_text(text), "caf???[31mred?");
    assert_string_equal(sg_size_format(1023, buffer), "1023 B");
    assert_string_equal(sg_size_format(1536, buffer), "1.50 KiB");
    assert_string_equal(sg_size_format(22012952576, buffer), "20.50 GiB");
    uint64_t bytes = 0;
    assert_true(sg_size_parse("20 gb", &bytes));
    assert_int_equal(bytes, 21474836480);
    assert_false(sg_size_parse("8e9", &bytes) || sg_size_parse("-1", &bytes) || sg_size_parse("2 MX", &bytes));
    assert_string_equal(sg_site_format("/home/me/train.py", 57, "forward", site, sizeof site),
        "train.py:57 in forward");
    assert_string_equal(sg_site_format("/usr/lib/python3/dist-packages/torch/nn/modules/linear.py", 125, "forward",
                            site, sizeof site),
        "nn/modules/linear.py:125 in forward");
    assert_string_equal(sg_site_format_native("/opt/libx.so", 0x1234, "step", site, sizeof site),
        "libx.so in step (+0x1234)");
}

static void texts_are_cut(void **state)
{
    (void)state;
    char buffer[8] = "";
    struct sg_text text = {buffer, sizeof buffer, 0};
    sg_text_add(&text, "limit:");
    sg_text_add(&text, "%dGiB", 20);
    assert_string_equal(buffer, "limit:2");
    assert_int_equal(text.length, 11);
    struct sg_text none = {NULL, 0, 0};
    sg_text_add(&none, "limit:");
    assert_int_equal(none.length, 6);
}

static void numbers_wrap(void **state)
{
    (void)state;
    assert_int_equal(sg_hash(1), UINT64_C(0x9e3779b97f4a7c15));
    assert_int_equal(sg_ahead32(1, UINT32_MAX), 2);
    assert_int_equal(sg_steps_round(7, 1, 8), 2);
}

static void memory_grows(void **state)
{
    (void)state;
    struct sg_scratch scratch = {0};
    const struct {
        size_t count, bytes;
    } step[] = {{100, 64 << 10}, {5000, 128 << 10}, {5400, 128 << 10}};
    for (size_t i = 0; i < sizeof step / sizeof *step; i++) {
        assert_true(sg_scratch_reserve(&scratch, step[i].count, 24));
        assert_int_equal(scratch.bytes, step[i].bytes);
    }
    sg_scratch_fini(&scratch);
    void *array = NULL;
    uint32_t count = 0, room = 0;
    assert_int_equal(sg_growing_array(&array, &count, &room, 20, 8), 0);
    assert_int_equal(count, 21);
    assert_int_equal(room, 32);
    assert_int_equal(sg_growing_array(&array, &count, &room, 5, 8), 0);
    assert_int_equal(count, 21);
    free(array);
}

static void keep_line(void *user, const char *line)
{
    strcpy(user, line);
}

static void options_become_fields(void **state)
{
    (void)state;
    struct sg_conf conf;
    char said[768] = "";
    sg_conf_init(&conf);
    assert_int_equal(sg_conf_apply(&conf, SG_CONF_ENVIRONMENT, " max_split_size_mb:128, reserve_slak:1.02, limit:0.8",
                         keep_line, said),
        1);
    assert_int_equal(conf.max_split_size, 134217728);
    assert_int_equal(conf.source[SG_OPTION_max_split_size_mb], SG_CONF_ENVIRONMENT);
    assert_string_equal(said,
        "SEGALLOC_CONF: there is no option \"reserve_slak\"; did you mean reserve_slack? It is ignored");
    assert_int_equal(conf.limit_bytes, 0);
    assert_int_equal(sg_conf_limit(&conf, 24 * SG_GIB), (uint64_t)(0.8 * 24 * 1024 * 1024 * 1024));
    assert_true(sg_conf_set(&conf, SG_OPTION_max_split_size_mb, "0"));
    assert_false(sg_conf_set(&conf, SG_OPTION_max_split_size_mb, "15"));
    assert_true(sg_conf_set(&conf, SG_OPTION_roundup_power2_divisions, "[256:1,512:2,1024:4,>:8]"));
    const uint64_t divisions[SG_ROUNDUP_INTERVALS] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8};
    assert_memory_equal(conf.roundup_divisions, divisions, sizeof divisions);
    assert_int_equal(sg_conf_apply(&conf, SG_CONF_ENVIRONMENT, "pinned_use_background_threads:True", keep_line, said),
        1);
    assert_non_null(strstr(said, "is an option of PyTorch's that has no effect here"));
}

static void values_read_back(void **state)
{
    (void)state;
    char buffer[64] = "";
    struct sg_text text = {buffer, sizeof buffer, 0};
    double real;
    assert_true(sg_conf_number_real("1.020", &real));
    sg_conf_number_add(&text, real);
    sg_text_add(&text, " ");
    sg_conf_number_add_size(&text, 1610612736);
    assert_string_equal(buffer, "1.02 1536MiB");

    uint64_t intervals[SG_ROUNDUP_INTERVALS];
    assert_true(sg_conf_roundup_parse("[256:1,512:2,1024:4,>:8]", intervals));
    for (int i = 0; i < SG_ROUNDUP_INTERVALS; i++)
        assert_int_equal(intervals[i], i <= 8 ? 1 : i == 9 ? 2 : i == 10 ? 4 : 8);
    text.length = 0;
    sg_conf_roundup_add(&text, intervals);
    assert_string_equal(buffer, "[256:1,512:2,1024:4,>:8]");

    static const char *const word[][2] = {{"fail", "fill+canary+fail"}, {"on", "fill+canary"}, {"off", "off"},
        {"canary+json", "canary+json"}};
    for (size_t i = 0; i < sizeof word / sizeof *word; i++) {
        unsigned bits;
        assert_true(sg_conf_check_parse(word[i][0], &bits));
        text.length = 0;
        sg_conf_check_add(&text, bits);
        assert_string_equal(buffer, word[i][1]);
    }
}

static void requests_are_rounded(void **state)
{
    (void)state;
    uint64_t divisions[SG_ROUNDUP_INTERVALS] = {0};
    assert_int_equal(sg_roundup(divisions, 307200), 307200);
    assert_int_equal(sg_roundup(divisions, 1000), 1024);
    for (uint64_t count = 4; count <= 8; count += 4) {
        for (int i = 0; i < SG_ROUNDUP_INTERVALS; i++)
            divisions[i] = count;
        assert_int_equal(sg_roundup(divisions, 307200), 327680);
        assert_int_equal(sg_roundup(divisions, 1000), 1024);
    }
    for (int i = 0; i < SG_ROUNDUP_INTERVALS; i++)
        divisions[i] = 4;
    assert_int_equal(sg_roundup(divisions, 1200 * SG_MIB), 1280 * SG_MIB);
}

static void calls_have_costs(void **state)
{
    (void)state;
    struct sg_cost cost[SG_COST_CALLS];
    sg_cost_assume(cost);
    assert_int_equal(sg_cost_ns(cost, SG_COST_set_access, 1, 10), 365000);
    assert_int_equal(sg_cost_ns(cost, SG_COST_set_access, 10, 10), 410000);
    assert_int_equal(sg_cost_ns(cost, SG_COST_create, 100, 100), 19800000);
    assert_int_equal(sg_cost_ns(cost, SG_COST_map, 100, 100), 650000);
    assert_int_equal(sg_cost_ns(cost, SG_COST_set_access, 1, 100), 3605000);
}

static void a_record_has_bytes(void **state)
{
    (void)state;
    const struct segalloc_trace_record record = {.kind = SEGALLOC_RECORD_ALLOCATE,
        .flags = SEGALLOC_FLAG_TORCH,
        .thread = 1,
        .stream = 1,
        .id = ADDRESS,
        .size = 307200,
        .time_ns = 1500000000};
    const unsigned char bytes[] = {0x01, 0x08, 0x01, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00, 0x20, 0x7f,
        0x00, 0x00, 0x00, 0xb0, 0x04, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x2f, 0x68, 0x59, 0x00, 0x00, 0x00, 0x00};
    assert_int_equal(sizeof record, sizeof bytes);
    assert_memory_equal(&record, bytes, sizeof bytes);
    assert_int_equal(SG_BLOCK_RECORDS, 32767);
    assert_int_equal(sg_checksum_add(SG_FNV_BASIS, &record), UINT64_C(0xeeffb59e51f07664));
    assert_int_equal(sg_name_hash("grows"), UINT64_C(0xdc5eef2946fd11eb));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_near),
        cmocka_unit_test(a_dictionary_doubles),
        cmocka_unit_test(keys_have_an_order),
        cmocka_unit_test(blocks_have_groups),
        cmocka_unit_test(maxima_find_buckets),
        cmocka_unit_test(sums_of_memory),
        cmocka_unit_test(texts_are_plain),
        cmocka_unit_test(texts_are_cut),
        cmocka_unit_test(numbers_wrap),
        cmocka_unit_test(memory_grows),
        cmocka_unit_test(options_become_fields),
        cmocka_unit_test(values_read_back),
        cmocka_unit_test(requests_are_rounded),
        cmocka_unit_test(calls_have_costs),
        cmocka_unit_test(a_record_has_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
