#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "config/conf_read.h"
#include "size.h"
#include "allocator_config.h"

static struct sg_torch_conf parsed(const char *text)
{
    struct sg_torch_conf conf;
    char error[SG_TORCH_ERROR_TEXT] = "";
    if (sg_torch_conf_parse(text, &conf, error) != 0)
        fail_msg("%s: %s", text, error);
    return conf;
}

static void refused(const char *text, const char *says)
{
    struct sg_torch_conf conf, before;
    char error[SG_TORCH_ERROR_TEXT] = "";
    memset(&conf, 0x5a, sizeof conf);
    before = conf;
    assert_int_equal(sg_torch_conf_parse(text, &conf, error), -EINVAL);
    assert_memory_equal(&conf, &before, sizeof conf);
    if (!strstr(error, says))
        fail_msg("%s gives '%s', not '%s'", text, error, says);
    assert_null(strchr(error, '\n'));
}

static void nothing_set_is_the_defaults(void **state)
{
    (void)state;
    static const char *const texts[] = {NULL, "", "  ", "backend:native", "expandable_segments:False",
                                        "pinned_num_register_threads:8,expandable_segments_reserve_by_class:[a:1,b:2]"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct sg_torch_conf conf = parsed(texts[i]);
        assert_false(conf.expandable_segments);
        assert_true(conf.max_split_size == SG_TORCH_UNLIMITED);
        assert_int_equal(conf.max_non_split_rounding, 20 * SG_MIB);
        assert_int_equal(conf.large_segment_size, 20 * SG_MIB);
        assert_true(conf.memory_fraction == 1 && conf.garbage_collection_threshold == 0);
        for (size_t interval = 0; interval < SG_TORCH_INTERVALS; interval++)
            assert_int_equal(conf.roundup_divisions[interval], 0);
    }
}

static void each_setting_takes_its_value(void **state)
{
    (void)state;
    struct sg_torch_conf conf = parsed(" max_split_size_mb : 128 , expandable_segments:True,"
                                       "garbage_collection_threshold:0.8,per_process_memory_fraction:0.5,"
                                       "max_non_split_rounding_mb:64,");
    assert_true(conf.expandable_segments);
    assert_int_equal(conf.max_split_size, 128 * SG_MIB);
    assert_int_equal(conf.max_non_split_rounding, 64 * SG_MIB);
    assert_true(conf.garbage_collection_threshold == 0.8 && conf.memory_fraction == 0.5);

    /* The size of large segments is read first wherever it stands, and is the default of the rounding. */
    conf = parsed("max_split_size_mb:12,large_segment_size_mb:11");
    assert_int_equal(conf.max_split_size, 12 * SG_MIB);
    assert_int_equal(conf.max_non_split_rounding, 11 * SG_MIB);

    assert_int_equal(parsed("max_split_size_mb:256MiB").max_split_size, 256 * SG_MIB);
    assert_true(parsed("max_split_size_mb:99999999999999999").max_split_size < SG_TORCH_UNLIMITED);
}

static void bad_values(void **state)
{
    (void)state;
    refused("max_split_size_mb:19", "max_split_size_mb:19 is too small, it must be at least 20");
    refused("max_split_size_mb:20,large_segment_size_mb:21", "at least 21");
    refused("max_non_split_rounding_mb:1", "at least 20");
    refused("large_segment_size_mb:10", "large_segment_size_mb:10 is too small, it must be at least 11");
    refused("garbage_collection_threshold:1", "above 0 and below 1");
    refused("garbage_collection_threshold:0", "above 0 and below 1");
    refused("per_process_memory_fraction:1.1", "from 0 to 1");
    refused("per_process_memory_fraction:nan", "from 0 to 1");
    refused("per_process_memory_fraction:x", "from 0 to 1");
    refused("expandable_segments:true", "expandable_segments:true is invalid, it must be True or False");
    refused("expandable_segments", "expandable_segments: expected ':' at the end");
    refused("expandable_segments=True", "'expandable_segments=True' is not a key");
    refused("max_split_size_mb:", "expected a value");
    struct sg_torch_conf conf;
    char error[SG_TORCH_ERROR_TEXT];
    assert_int_equal(sg_torch_conf_parse("max_split_size_mb:x", &conf, error), -EINVAL);
    assert_string_equal(error, "max_split_size_mb:x: expected a number");
    refused("max_split_size_mb:128;expandable_segments:True", "expected ','");
    refused("backend:cudaMallocAsync", "only native");
    refused("max_spilt_size_mb:128",
        "'max_spilt_size_mb' is not a key of PyTorch's CUDA allocator; did you mean max_split_size_mb?");
    refused("max_split_size_mb:99999999999999999999",
        "max_split_size_mb:99999999999999999999: expected a number of 64 bits");
    refused("roundup_power2_divisions:[1:99999999999999999999]", "expected a number of 64 bits");
    refused(",", "',' is not a key");
    refused("max_split_size_mb:,", "expected a value");
    refused("max_split_size_mb::", "expected a value");
    refused("max_split_size_mb:]", "expected a value");
    refused("garbage_collection_threshold:much", "above 0 and below 1");
    refused("roundup_power2_divisions:[a:4]", "expected a number");
    refused("a_word_that_is_longer_than_any_key_of_pytorch_s_allocator_could_ever_be:1", "is not a key");
    refused("roundup_power2_divisions:3", "3 divisions are invalid, they must be a power of two");
    refused("roundup_power2_divisions:0", "power of two");
    refused("roundup_power2_divisions:[3:4]", "the boundary 3 (MiB) must be a power of two");
    refused("roundup_power2_divisions:[4:3]", "or 0 for none");
    refused("roundup_power2_divisions:[4:4", "roundup_power2_divisions: the list has no ']'");
    refused("roundup_power2_divisions:[4:4:8]", "expected ',' or ']' but got ':'");
    refused("roundup_power2_divisions:[4]", "expected ':'");
    refused("expandable_segments_reserve_by_class:[a:1", "no ']'");
}

/* What changes nothing here is accepted, and refused where PyTorch refuses it. */
static void without_effect(void **state)
{
    (void)state;
    struct sg_torch_conf conf = parsed(
        "pinned_use_cuda_host_register:True,pinned_num_register_threads:128,"
        "pinned_use_background_threads:False,pinned_reserve_segment_size_mb:64,"
        "pinned_max_cached_size_mb:0,pinned_max_round_threshold_mb:16,"
        "expandable_segments_reserve:half,release_lock_on_hipmalloc:True,max_split_size_mb:64");
    assert_int_equal(conf.max_split_size, 64 * SG_MIB);
    refused("pinned_use_background_threads:maybe",
        "pinned_use_background_threads:maybe is invalid, it must be True or False");
    refused("release_lock_on_cudamalloc:1", "True or False");
    refused("pinned_num_register_threads:3",
        "pinned_num_register_threads:3 is invalid, it must be a power of two up to 128");
    refused("pinned_num_register_threads:256", "up to 128");
    refused("pinned_reserve_segment_size_mb:0", "at least 1");
    refused("pinned_max_cached_size_mb:all", "expected a number");
    refused("pinned_num_register_threads:many", "expected a number");
}

static void divisions_are_of_intervals_of_sizes(void **state)
{
    (void)state;
    struct sg_torch_conf conf = parsed("roundup_power2_divisions:[2:8,16:4,64:0,>:2]");
    static const uint64_t expected[SG_TORCH_INTERVALS] = {8, 8, 0, 0, 4, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2, 2};
    for (size_t i = 0; i < SG_TORCH_INTERVALS; i++)
        assert_int_equal(conf.roundup_divisions[i], expected[i]);

    static const struct { uint64_t bytes, rounded; } cases[] = {
        {1, 512}, {512, 512}, {513, 1024}, {4096, 4096}, {4097, 4608}, /* 512 * 8 is not above 512 * divisions */
        {5 * SG_MIB + 1, 5 * SG_MIB + 512},                    /* an interval without divisions */
        {17 * SG_MIB, 20 * SG_MIB}, {20 * SG_MIB, 20 * SG_MIB}, {31 * SG_MIB, 32 * SG_MIB},
        {65 * SG_MIB, 65 * SG_MIB}, {130 * SG_MIB, 192 * SG_MIB}, {100 * SG_GIB, 128 * SG_GIB},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(sg_torch_round(&conf, cases[i].bytes), cases[i].rounded);

    conf = parsed("roundup_power2_divisions:4");
    assert_int_equal(sg_torch_round(&conf, 1200), 1536);       /* below 512 * 4 the step is 512 */
    assert_int_equal(sg_torch_round(&conf, 1200 * 1024), 1280 * 1024);
    /* So many divisions that their sizes, or 512 times their number, are beyond 64 bits: the next power of two. */
    static const char *const many[] = {"roundup_power2_divisions:36028797018963968",
        "roundup_power2_divisions:9223372036854775808"};
    for (size_t i = 0; i < sizeof many / sizeof *many; i++) {
        conf = parsed(many[i]);
        assert_int_equal(sg_torch_round(&conf, 1), 512);
        assert_int_equal(sg_torch_round(&conf, 837), 1024);
        assert_int_equal(sg_torch_round(&conf, SG_MIB), SG_MIB);
        assert_int_equal(sg_torch_round(&conf, 5 * SG_MIB), 8 * SG_MIB);
    }
    conf = parsed("roundup_power2_divisions:[]");
    assert_int_equal(conf.roundup_divisions[0], 0);
    conf = parsed("roundup_power2_divisions:[1:4,]");
    assert_int_equal(conf.roundup_divisions[0], 4);
    conf = parsed("roundup_power2_divisions:1");
    assert_int_equal(sg_torch_round(&conf, 3 * SG_MIB + 1), 3 * SG_MIB + 512);
}

static void from_options(void **state)
{
    (void)state;
    struct sg_conf options;
    struct sg_torch_conf conf;
    sg_conf_init(&options);
    sg_torch_conf_from(&options, &conf);
    struct sg_torch_conf builtin = parsed("");
    assert_memory_equal(&conf, &builtin, sizeof conf);

    const char *text = "max_split_size_mb:64,large_segment_size_mb:32,roundup_power2_divisions:4,"
                       "max_non_split_rounding_mb:40";
    assert_int_equal(sg_conf_apply(&options, SG_CONF_ARGUMENT, text, NULL, NULL), 0);
    sg_torch_conf_from(&options, &conf);
    builtin = parsed(text);
    assert_memory_equal(&conf, &builtin, sizeof conf);

    options.max_split_size = 2 * SG_MIB;
    sg_torch_conf_from(&options, &conf);
    assert_int_equal(conf.max_split_size, 32 * SG_MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_set_is_the_defaults),
        cmocka_unit_test(each_setting_takes_its_value),
        cmocka_unit_test(bad_values),
        cmocka_unit_test(without_effect),
        cmocka_unit_test(divisions_are_of_intervals_of_sizes),
        cmocka_unit_test(from_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
