#include "config/conf_card.h"
#include "size.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Keeps the lines that a parse reports. */
struct lines {
    unsigned count;
    char last[768];
};

static void keep(void *user, const char *line)
{
    struct lines *lines = user;
    lines->count++;
    assert_true(strlen(line) < sizeof lines->last);
    assert_null(strchr(line, '\n'));
    strcpy(lines->last, line);
}

static unsigned apply(struct sg_conf *conf, const char *text, struct lines *ret_lines)
{
    *ret_lines = (struct lines){0};
    unsigned bad = sg_conf_apply(conf, SG_CONF_ENVIRONMENT, text, keep, ret_lines);
    assert_int_equal(bad, ret_lines->count);
    return bad;
}

static const char *value_of(const struct sg_conf *conf, enum sg_option option)
{
    static char buffer[SG_PATH_BYTES];
    return sg_conf_format(conf, option, buffer, sizeof buffer);
}

static void defaults_print_as_declared(void **state)
{
    (void)state;
    struct sg_conf conf;
    sg_conf_init(&conf);
    char text[64];
    for (unsigned i = 0; i < SG_OPTION_COUNT; i++) {
        assert_string_equal(value_of(&conf, i), sg_option_info(i)->def);
        assert_int_equal(conf.source[i], SG_CONF_DEFAULT);
        assert_true(strlen(sg_option_info(i)->text) > 0);
    }
    assert_int_equal(sg_conf_print(&conf, text, sizeof text), 0);
    assert_string_equal(text, "");
    assert_true(conf.expandable_segments && conf.alias == SG_ALIAS_AUTO && !conf.live);
    assert_true(conf.max_split_size == 0 && conf.large_segment_size == 20 * SG_MIB);
    assert_true(conf.page_size == SG_AUTO && conf.pending_limit == SG_AUTO);
    assert_true(conf.per_process_memory_fraction == 1 && conf.reserve_slack == 0);
}

/* For every option: values that it takes and how they are printed; values that it refuses. */
static const struct {
    enum sg_option option;
    const char *good, *printed, *bad[6];
} table[] = {
    {SG_OPTION_expandable_segments, "false", "False", {"0", "1", "yes", "", "Truee"}},
    {SG_OPTION_max_split_size_mb, "128", "128", {"19", "128MiB", "-1", "16777217", "1.5", "99999999999999999999999"}},
    {SG_OPTION_max_non_split_rounding_mb, "64", "64", {"0", "19", "x"}},
    {SG_OPTION_roundup_power2_divisions, "[256:1, 512:2 ,>:8]", "[256:1,512:2,>:8]",
        {"3", "[3:1]", "[256:3]", "[256]", "[256:1", "[]"}},
    {SG_OPTION_garbage_collection_threshold, "0.8", "0.8", {"1", "1.0", "0.0", "-0.5", "80%", "0.8x"}},
    {SG_OPTION_per_process_memory_fraction, ".25", "0.25", {"1.01", "-1", "x", "nan", "inf"}},
    {SG_OPTION_large_segment_size_mb, "32", "32", {"10", "0", "1 2"}},
    {SG_OPTION_backend, "cudamallocasync", "cudaMallocAsync", {"hipMallocAsync", "nativ", ""}},
    {SG_OPTION_free_sync, "event", "event", {"events", "0"}},
    {SG_OPTION_pending_limit, "1.5GiB", "1536MiB", {"-1", "lots", "1Q"}},
    {SG_OPTION_wait_limit, "0.5", "0.5", {"-1", "3601", "x"}},
    {SG_OPTION_reserve_slack, "1.02", "1.02", {"0.99", "0", "17", "1.02x"}},
    {SG_OPTION_page_size_mb, "16", "16", {"1", "1025", "16MiB"}},
    {SG_OPTION_mapping_limit, "16384", "16384", {"1023", "524289", "auto"}},
    {SG_OPTION_limit, "20GiB", "20GiB", {"20", "1.5", "-0.5", "2097151", "20 parsecs", "all"}},
    {SG_OPTION_overflow, "host=4GiB , peer=2GiB", "peer=2GiB,host=4GiB",
        {"on", "host=0", "4GiB", "peer=", "peer,peer", "peer,host"}},
    {SG_OPTION_limit_visible, "True", "True", {"on"}},
    {SG_OPTION_contiguous, "1MiB", "1MiB", {"-1", "auto", "large"}},
    {SG_OPTION_host_reserve, "0.1", "0.1", {"-0.1", "0.91", "5%"}},
    {SG_OPTION_alias, "OFF", "off", {"no", "0"}},
    {SG_OPTION_ipc, "never", "never", {"sometimes"}},
    {SG_OPTION_pytorch, "beneath", "beneath", {"under"}},
    {SG_OPTION_trace, "/tmp/a:b.%p.trace", "/tmp/a:b.%p.trace", {NULL}},
    {SG_OPTION_trace_mb, "64", "64", {"6", "64MiB", "-1", "16777217"}},
    {SG_OPTION_stats, "stats file", "stats file", {NULL}},
    {SG_OPTION_live, "True", "True", {"2"}},
    {SG_OPTION_sites, "True", "True", {"python"}},
    {SG_OPTION_oom_report, "never", "never", {"always"}},
    {SG_OPTION_check, "JSON+thorough", "fill+canary+thorough+json", {"fill+", "+", "", "fills"}},
    {SG_OPTION_guard_rate, "50", "50", {"-1", "x", "1000000001"}},
    {SG_OPTION_guard_size, "4096", "4KiB", {"-1", "auto", "many"}},
    {SG_OPTION_guard_site, "train.py:31", "train.py:31", {NULL}},
    {SG_OPTION_guard_seed, "7", "7", {"-1", "seven"}},
    {SG_OPTION_tag, "all", "all", {NULL}},
    {SG_OPTION_trim_on_request, "false", "False", {"no"}},
    {SG_OPTION_trim_idle_s, "0.5", "0.5", {"-1", "10s", "86401"}},
    {SG_OPTION_confirm_conf, "True", "True", {"t"}},
    {SG_OPTION_abort_conf, "True", "True", {"f"}},
};

static void every_option(void **state)
{
    (void)state;
    assert_int_equal(sizeof table / sizeof *table, SG_OPTION_COUNT);
    for (unsigned i = 0; i < SG_OPTION_COUNT; i++) {
        assert_int_equal(table[i].option, i);
        struct sg_conf conf, before;
        struct lines lines;
        char text[256];
        sg_conf_init(&conf);
        snprintf(text, sizeof text, " %s : %s ", sg_option_info(i)->name, table[i].good);
        assert_int_equal(apply(&conf, text, &lines), 0);
        assert_string_equal(value_of(&conf, i), table[i].printed);
        assert_int_equal(conf.source[i], SG_CONF_ENVIRONMENT);
        before = conf;
        for (unsigned j = 0; j < sizeof table->bad / sizeof *table->bad && table[i].bad[j]; j++) {
            snprintf(text, sizeof text, "%s:%s", sg_option_info(i)->name, table[i].bad[j]);
            assert_int_equal(apply(&conf, text, &lines), 1);
            assert_memory_equal(&conf, &before, sizeof conf);
            assert_non_null(strstr(lines.last, sg_option_info(i)->name));
            assert_non_null(strstr(lines.last, table[i].printed));
        }
        /* What is printed reads back. */
        char printed[512];
        struct sg_conf again;
        assert_true(sg_conf_print(&conf, printed, sizeof printed) < sizeof printed);
        sg_conf_init(&again);
        assert_int_equal(apply(&again, printed, &lines), 0);
        assert_memory_equal(&again, &conf, offsetof(struct sg_conf, source));
    }
}

/* A path with what parts options would take the others along. */
static void a_path_that_cannot_be_read_back(void **state)
{
    static const char *const paths[] = {"a,b", "a\nb", "a#b", "[a]", " a", "a "};
    struct sg_conf conf;
    char printed[SG_PATH_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        sg_conf_init(&conf);
        conf.page_size = 4 * SG_MIB;
        snprintf(conf.trace, sizeof conf.trace, "%s", paths[i]);
        sg_conf_print(&conf, printed, sizeof printed);
        assert_string_equal(printed, "page_size_mb:4");
    }
}

/* Traces carry the settings that they were recorded under, and old ones say what the option took then. */
static void older_words_are_taken(void **state)
{
    (void)state;
    struct sg_conf conf;
    sg_conf_init(&conf);
    assert_true(sg_conf_set(&conf, SG_OPTION_alias, "False"));
    assert_int_equal(conf.alias, SG_ALIAS_OFF);
    assert_true(sg_conf_set(&conf, SG_OPTION_alias, "true"));
    assert_int_equal(conf.alias, SG_ALIAS_ON);
}

/* With more digits than a double holds, what was read was printed as another number, or as one that fits no integer. */
static void real_numbers_read_back(void **state)
{
    (void)state;
    static const char *const texts[] = {"64644.82260793447", "8149.374304711819", "763.9616176486015", "86400",
        "86399.999999999999", "0.000000000000001", "0.1234567890123456789", "1000000000.5", "12345.6789"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct sg_conf conf, again;
        char text[64];
        sg_conf_init(&conf);
        bool taken = sg_conf_set(&conf, SG_OPTION_trim_idle_s, texts[i]);
        assert_int_equal(taken, strtod(texts[i], NULL) <= 86400);
        if (!taken)
            continue;
        double off = conf.trim_idle_s - strtod(texts[i], NULL);
        assert_true((off < 0 ? -off : off) <= 1e-14 * conf.trim_idle_s);
        sg_conf_init(&again);
        assert_true(sg_conf_set(&again, SG_OPTION_trim_idle_s,
            sg_conf_format(&conf, SG_OPTION_trim_idle_s, text, sizeof text)));
        assert_true(again.trim_idle_s == conf.trim_idle_s);
    }
}

static void zero_is_off_where_zero_is_the_default(void **state)
{
    (void)state;
    struct sg_conf conf;
    struct lines lines;
    sg_conf_init(&conf);
    const char *on = "max_split_size_mb:64,garbage_collection_threshold:.5,limit:0.5,roundup_power2_divisions:4";
    const char *off = "max_split_size_mb:0,garbage_collection_threshold:0,limit:0,roundup_power2_divisions:0";
    assert_int_equal(apply(&conf, on, &lines), 0);
    assert_true(conf.limit_fraction == 0.5 && conf.limit_bytes == 0);
    assert_int_equal(apply(&conf, off, &lines), 0);
    char text[64];
    assert_int_equal(sg_conf_print(&conf, text, sizeof text), 0);
}

/* Commas part the places of one value; a word with a colon behind them is the next option. */
static void overflow_names_places(void **state)
{
    static const struct {
        const char *text;
        uint64_t peer, host;
        bool sites;
    } cases[] = {
        {"overflow:host=4GiB", 0, 4096 * SG_MIB, false},
        {"overflow:peer", SG_AUTO, 0, false},
        {"overflow:peer,sites:True", SG_AUTO, 0, true},
        {"overflow:peer=1GiB,host=16GiB,sites:True", 1024 * SG_MIB, 16384 * SG_MIB, true},
        {"sites:True,overflow: peer , host=16GiB", SG_AUTO, 16384 * SG_MIB, true},
        {"overflow:host=1MiB\nsites:True", 0, SG_MIB, true},
        {"overflow:peer,,sites:True,", SG_AUTO, 0, true},
        {"overflow:peer,overflow:off", 0, 0, false},
    };
    static const char *const bad[] = {"overflow:host=1GiB,sites=True", "overflow:peer,peer", "overflow:host",
        "overflow:", "overflow:peer=1GiB,host=", "overflow:host=18446744073709551615B"};
    struct sg_conf conf;
    struct lines lines;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sg_conf_init(&conf);
        assert_int_equal(apply(&conf, cases[i].text, &lines), 0);
        assert_int_equal(conf.overflow.peer, cases[i].peer);
        assert_int_equal(conf.overflow.host, cases[i].host);
        assert_int_equal(conf.sites, cases[i].sites);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        sg_conf_init(&conf);
        assert_int_equal(apply(&conf, bad[i], &lines), 1);
        assert_false(sg_conf_overflows(&conf));
        assert_non_null(strstr(lines.last, "must be off, host= and a size"));
    }
}

static void a_later_limit_replaces_an_earlier_one(void **state)
{
    (void)state;
    struct sg_conf conf;
    struct lines lines;
    sg_conf_init(&conf);
    assert_int_equal(apply(&conf, "limit:20GiB", &lines), 0);
    assert_true(conf.limit_bytes == 20 * SG_GIB && conf.limit_fraction == 0);
    assert_int_equal(apply(&conf, "limit:0.75", &lines), 0);
    assert_true(conf.limit_bytes == 0 && conf.limit_fraction == 0.75);
    assert_int_equal(apply(&conf, "limit:1536 MiB", &lines), 0);
    assert_true(conf.limit_bytes == 1536 * SG_MIB && conf.limit_fraction == 0);
}

static void roundup_follows_pytorch(void **state)
{
    (void)state;
    struct sg_conf conf;
    struct lines lines;
    sg_conf_init(&conf);
    assert_int_equal(apply(&conf, "roundup_power2_divisions:[64:8,256:4,1024:1,>:2]", &lines), 0);
    static const uint64_t expected[SG_ROUNDUP_INTERVALS] = {8, 8, 8, 8, 8, 8, 8, 0, 4, 0, 1, 2, 2, 2, 2, 2};
    assert_memory_equal(conf.roundup_divisions, expected, sizeof expected);
    assert_int_equal(apply(&conf, "roundup_power2_divisions:[1048576:2]", &lines), 0);
    assert_true(conf.roundup_divisions[0] == 2 && conf.roundup_divisions[SG_ROUNDUP_INTERVALS - 1] == 2);
    assert_int_equal(apply(&conf, "roundup_power2_divisions:[>:4]", &lines), 0);
    assert_true(conf.roundup_divisions[0] == 0); /* is above nothing, so PyTorch begins at the second interval */
    assert_true(conf.roundup_divisions[1] == 4 && conf.roundup_divisions[SG_ROUNDUP_INTERVALS - 1] == 4);
    assert_int_equal(apply(&conf, "roundup_power2_divisions:[>:4,64:8]", &lines), 0);
    assert_true(conf.roundup_divisions[0] == 8 && conf.roundup_divisions[6] == 8 && conf.roundup_divisions[7] == 4);
    assert_int_equal(apply(&conf, "roundup_power2_divisions:[1:8,\n 2:4]", &lines), 0);
    assert_true(conf.roundup_divisions[0] == 8 && conf.roundup_divisions[1] == 4 && conf.roundup_divisions[2] == 0);
}

static void segments_bound_splitting(void **state)
{
    (void)state;
    struct sg_conf conf;
    struct lines lines;
    sg_conf_init(&conf);
    assert_int_equal(apply(&conf, "max_split_size_mb:16,large_segment_size_mb:12", &lines), 0);
    assert_true(conf.max_split_size == 16 * SG_MIB && conf.max_non_split_rounding == 12 * SG_MIB);
    assert_int_equal(apply(&conf, "large_segment_size_mb:64", &lines), 1);
    assert_string_equal(lines.last, "SEGALLOC_CONF: max_split_size_mb:16 is less than large_segment_size_mb:64, which "
                                    "takes its place");
    assert_true(conf.max_split_size == 64 * SG_MIB && conf.max_non_split_rounding == 64 * SG_MIB);
    assert_int_equal(apply(&conf, "max_split_size_mb:63", &lines), 1);
    assert_string_equal(lines.last, "SEGALLOC_CONF: max_split_size_mb:63: must be 0 for off, or 64 to 16777216 (MiB); "
                                    "64 stays in force");
}

static const char *refused(const char *place, const char *text, struct lines *ret_lines)
{
    struct sg_conf conf;
    sg_conf_init(&conf);
    *ret_lines = (struct lines){0};
    unsigned bad = sg_conf_check(&conf, place, text, keep, ret_lines);
    assert_true(bad == 1 && ret_lines->count == 1);
    return ret_lines->last;
}

static void nothing_is_said_to_stay_where_all_is_refused(void **state)
{
    (void)state;
    struct lines lines;
    assert_string_equal(refused("--conf", "max_split_size_mb:5", &lines),
        "--conf: max_split_size_mb:5: must be 0 for off, or 20 to 16777216 (MiB)");
    assert_string_equal(refused(NULL, "nonsense:1", &lines),
        "there is no option \"nonsense\"; segalloc conf lists them all");
    assert_string_equal(refused(NULL, "max_splitsize_mb:64", &lines),
        "there is no option \"max_splitsize_mb\"; did you mean max_split_size_mb?");
    struct sg_conf conf;
    sg_conf_init(&conf);
    assert_int_equal(apply(&conf, "max_split_size_mb:32", &lines), 0);
    assert_int_equal(sg_conf_check(&conf, NULL, "large_segment_size_mb:64", keep, &lines), 1);
    assert_string_equal(lines.last,
        "max_split_size_mb:32 is less than large_segment_size_mb:64: it must be that or more, or 0 for off");
}

static void unknown_keys_name_the_nearest(void **state)
{
    (void)state;
    struct sg_conf conf;
    struct lines lines;
    sg_conf_init(&conf);
    assert_int_equal(apply(&conf, "max_splitsize_mb:128,live:True", &lines), 1);
    assert_string_equal(lines.last, "SEGALLOC_CONF: there is no option \"max_splitsize_mb\"; did you mean "
                                    "max_split_size_mb? It is ignored");
    assert_true(conf.live);
    assert_int_equal(apply(&conf, "colour:green", &lines), 1);
    assert_string_equal(lines.last, "SEGALLOC_CONF: there is no option \"colour\"; it is ignored");
    assert_int_equal(apply(&conf, "pinned_num_register_threads:8", &lines), 1);
    assert_non_null(strstr(lines.last, "PyTorch's"));
    assert_int_equal(apply(&conf, "live", &lines), 1);
    assert_string_equal(lines.last, "SEGALLOC_CONF: live has no value; write live:VALUE");
    assert_int_equal(apply(&conf, "limit=20GiB", &lines), 1);
    assert_int_equal(apply(&conf, ":,::,a:b:c", &lines), 3);
    assert_int_equal(apply(&conf, "x\x01\xff:1", &lines), 1);
    assert_non_null(strstr(lines.last, "\"x??\""));
}

static void pytorch_gives_way(void **state)
{
    (void)state;
    struct sg_conf conf;
    struct lines lines = {0};
    sg_conf_init(&conf);
    assert_int_equal(apply(&conf, "max_split_size_mb:128", &lines), 0);
    const char *text = "max_split_size_mb:512,expandable_segments:False,expandable_segments:True,"
                       "pinned_use_background_threads:True,nonsense,trace:/tmp/x,garbage_collection_threshold:0.6";
    assert_int_equal(sg_conf_apply(&conf, SG_CONF_PYTORCH, text, keep, &lines), 0);
    assert_true(conf.max_split_size == 128 * SG_MIB && conf.expandable_segments);
    assert_true(conf.garbage_collection_threshold == 0.6);
    assert_string_equal(conf.trace, "");
    assert_int_equal(conf.source[SG_OPTION_max_split_size_mb], SG_CONF_ENVIRONMENT);
    assert_int_equal(conf.source[SG_OPTION_expandable_segments], SG_CONF_PYTORCH);
    assert_int_equal(sg_conf_apply(&conf, SG_CONF_PYTORCH, "garbage_collection_threshold:2", keep, &lines), 1);
    assert_true(conf.garbage_collection_threshold == 0.6);
    assert_int_equal(sg_conf_apply(&conf, SG_CONF_ENVIRONMENT, NULL, keep, &lines), 0);
}

static void write_file(const char *path, const char *text, size_t length)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(file >= 0);
    assert_int_equal(write(file, text, length), length);
    close(file);
}

static void sources_in_order(void **state)
{
    (void)state;
    char folder[] = "conf.XXXXXX", system_file[32], conf_file[32];
    assert_non_null(mkdtemp(folder));
    snprintf(system_file, sizeof system_file, "%s/system", folder);
    snprintf(conf_file, sizeof conf_file, "%s/file", folder);
    static const char system_text[] = "# for all of us\nlive:True # watch\nmax_split_size_mb:32, page_size_mb:8\n"
                                      "#x:y\n\n free_sync:event";
    static const char file_text[] = "max_split_size_mb:64\nipc:never\n";
    write_file(system_file, system_text, sizeof system_text - 1);
    write_file(conf_file, file_text, sizeof file_text - 1);
    struct sg_conf_inputs inputs = {
        .system_file = system_file, .conf_file = conf_file, .environment = "ipc:always,trace:/tmp/t",
        .trace = "/tmp/a,b", .pytorch_cuda = "roundup_power2_divisions:8", .pytorch = "backend:cudaMallocAsync"};
    struct sg_conf conf;
    struct lines lines = {0};
    assert_int_equal(sg_conf_load(&conf, &inputs, keep, &lines), 0);
    assert_true(conf.live && conf.page_size == 8 * SG_MIB && conf.free_sync == SG_FREE_SYNC_EVENT);
    assert_true(conf.max_split_size == 64 * SG_MIB && conf.ipc == SG_IPC_ALWAYS && conf.backend == SG_BACKEND_NATIVE);
    assert_true(conf.roundup_divisions[3] == 8);
    assert_string_equal(conf.trace, "/tmp/a,b");
    assert_int_equal(conf.source[SG_OPTION_live], SG_CONF_SYSTEM);
    assert_int_equal(conf.source[SG_OPTION_max_split_size_mb], SG_CONF_FILE);
    assert_int_equal(conf.source[SG_OPTION_ipc], SG_CONF_ENVIRONMENT);
    assert_int_equal(conf.source[SG_OPTION_roundup_power2_divisions], SG_CONF_PYTORCH_CUDA);

    write_file(system_file, "live:maybe", 10);
    inputs = (struct sg_conf_inputs){.system_file = system_file};
    assert_int_equal(sg_conf_load(&conf, &inputs, keep, &lines), 1);
    assert_true(strncmp(lines.last, system_file, strlen(system_file)) == 0);

    static char long_text[20000];
    memset(long_text, ' ', sizeof long_text);
    write_file(system_file, long_text, sizeof long_text);
    assert_int_equal(sg_conf_load(&conf, &inputs, keep, &lines), 1);
    write_file(system_file, "live:True\0,x", 12);
    assert_int_equal(sg_conf_load(&conf, &inputs, keep, &lines), 1);

    unlink(system_file);
    unlink(conf_file);
    assert_int_equal(sg_conf_load(&conf, &inputs, keep, &lines), 0);
    inputs.conf_file = conf_file;
    assert_int_equal(sg_conf_load(&conf, &inputs, keep, &lines), 1);
    inputs.conf_file = folder;
    assert_int_equal(sg_conf_load(&conf, &inputs, keep, &lines), 1);
    rmdir(folder);
}

static void buffers_are_kept_to(void **state)
{
    (void)state;
    struct sg_conf conf;
    struct lines lines;
    sg_conf_init(&conf);
    char path[SG_PATH_BYTES + 16], text[SG_PATH_BYTES + 32];
    memset(path, 'p', sizeof path);
    path[SG_PATH_BYTES] = '\0';
    snprintf(text, sizeof text, "trace:%s", path);
    assert_int_equal(apply(&conf, text, &lines), 1);
    assert_string_equal(conf.trace, "");
    path[SG_PATH_BYTES - 1] = '\0';
    snprintf(text, sizeof text, "trace:%s", path);
    assert_int_equal(apply(&conf, text, &lines), 0);
    assert_string_equal(conf.trace, path);
    char small[8];
    assert_string_equal(sg_conf_format(&conf, SG_OPTION_trace, small, sizeof small), "ppppppp");
    assert_int_equal(sg_conf_print(&conf, small, sizeof small), strlen(text));
    assert_string_equal(small, "trace:p");
    assert_int_equal(sg_conf_print(&conf, NULL, 0), strlen(text));
}

/* 20 is the default of both, but the rounding's follows the segment. */
static void rounding_is_printed_beside_a_smaller_segment(void **state)
{
    (void)state;
    struct lines lines = {0};
    struct sg_conf conf, again;
    char printed[256];
    static const char *const texts[] = {
        "max_non_split_rounding_mb:20,large_segment_size_mb:11", "large_segment_size_mb:11", "large_segment_size_mb:32",
        "max_non_split_rounding_mb:40,large_segment_size_mb:32"};
    for (unsigned i = 0; i < sizeof texts / sizeof *texts; i++) {
        sg_conf_init(&conf);
        sg_conf_init(&again);
        assert_int_equal(apply(&conf, texts[i], &lines), 0);
        sg_conf_print(&conf, printed, sizeof printed);
        assert_string_equal(printed, texts[i]);
        assert_int_equal(apply(&again, printed, &lines), 0);
        assert_true(again.max_non_split_rounding == conf.max_non_split_rounding);
    }
}

/* Texts made of the pieces of a configuration and of random bytes: never a crash, never a value out of bounds. */
static void random_texts(void **state)
{
    (void)state;
    static const char *const pieces[] = {":", ",", "[", "]", ">", "#", "\n", " ", "0",
                                         "1", "20", "0.5", "auto", "True", "GiB", "-", "."};
    uint32_t seed = 12345;
    for (unsigned round = 0; round < 20000; round++) {
        char text[256];
        size_t length = 0;
        while (length < 160) {
            seed = seed * 1664525 + 1013904223;
            uint32_t dice = seed >> 8;
            if (dice % 4 == 0)
                length += (size_t)sprintf(text + length, "%s", sg_option_info(dice / 4 % SG_OPTION_COUNT)->name);
            else if (dice % 4 < 3)
                length += (size_t)sprintf(text + length, "%s", pieces[dice / 4 % (sizeof pieces / sizeof *pieces)]);
            else
                text[length++] = (char)(1 + dice / 4 % 255);
            if (dice % 97 == 0)
                break;
        }
        text[length] = '\0';
        struct sg_conf conf, again;
        struct lines lines = {0};
        sg_conf_init(&conf);
        enum sg_conf_source source = SG_CONF_SYSTEM + round % (SG_CONF_ARGUMENT - SG_CONF_SYSTEM + 1);
        sg_conf_apply(&conf, source, text, keep, &lines);
        assert_true(conf.max_split_size == 0 || conf.max_split_size >= conf.large_segment_size);
        assert_true(conf.max_non_split_rounding >= conf.large_segment_size && conf.large_segment_size >= 11 * SG_MIB);
        assert_true(conf.garbage_collection_threshold >= 0 && conf.garbage_collection_threshold < 1);
        assert_true(conf.per_process_memory_fraction >= 0 && conf.per_process_memory_fraction <= 1);
        assert_true(conf.limit_fraction >= 0 && conf.limit_fraction <= 1);
        assert_true(conf.limit_bytes == 0 || conf.limit_fraction <= 0);
        conf.trace[0] = conf.stats[0] = '\0';
        char printed[1024];
        assert_true(sg_conf_print(&conf, printed, sizeof printed) < sizeof printed);
        sg_conf_init(&again);
        assert_int_equal(sg_conf_apply(&again, SG_CONF_ARGUMENT, printed, keep, &lines), 0);
        char printed_again[1024];
        sg_conf_print(&again, printed_again, sizeof printed_again);
        assert_string_equal(printed, printed_again);
    }
}

/* The user's file for a card: its place, and what it may set. */
static void options_of_a_card(void **state)
{
    (void)state;
    char path[SG_PATH_BYTES], name[64], folder[] = "card.XXXXXX", file[64];
    struct sg_conf conf;
    struct lines lines = {0};
    assert_string_equal(sg_conf_card_name("NVIDIA H100 80GB HBM3", 13000, name, sizeof name),
        "NVIDIA-H100-80GB-HBM3-13.0");
    assert_string_equal(sg_conf_card_name("../ (a/b)  c.d", 12080, name, sizeof name), "..-a-b-c.d-12.8");
    assert_string_equal(sg_conf_card_name("long name", 12080, name, 5), "long");
    assert_true(sg_conf_card_path(NULL, "/home/ada", "A10", 12040, path));
    assert_string_equal(path, "/home/ada/.config/segalloc/A10-12.4.conf");
    assert_true(sg_conf_card_path("/etc/xdg", "/home/ada", "A10", 12040, path));
    assert_string_equal(path, "/etc/xdg/segalloc/A10-12.4.conf");
    assert_true(sg_conf_card_path("relative", "/h", "A10", 12040, path));
    assert_string_equal(path, "/h/.config/segalloc/A10-12.4.conf");
    assert_false(
        sg_conf_card_path("relative", "h", "A10", 12040, path) || sg_conf_card_path("", NULL, "A10", 12040, path));
    static char far[SG_PATH_BYTES];
    memset(far, '/', sizeof far - 1);
    assert_false(sg_conf_card_path(far, NULL, "A10", 12040, path));

    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/a.conf", folder);
    static const char text[] = "# found\nalias:off\nfree_sync:strict\nlimit:1GiB\nlive:maybe\nsites:True\n";
    write_file(file, text, sizeof text - 1);
    struct sg_conf_inputs inputs = {.environment = "free_sync:event", .pytorch_cuda = "roundup_power2_divisions:8"};
    assert_int_equal(sg_conf_load(&conf, &inputs, keep, &lines), 0);
    assert_int_equal(sg_conf_apply(&conf, SG_CONF_FILE, "limit:2GiB", keep, &lines), 0);
    assert_int_equal(sg_conf_apply(&conf, SG_CONF_SYSTEM, "sites:False", keep, &lines), 0);
    assert_int_equal(sg_conf_apply_card(&conf, file, keep, &lines), 1);
    assert_true(strstr(lines.last, "live:maybe") && strncmp(lines.last, file, strlen(file)) == 0);
    assert_true(conf.alias == SG_ALIAS_OFF && conf.source[SG_OPTION_alias] == SG_CONF_CARD);
    assert_true(conf.free_sync == SG_FREE_SYNC_EVENT && conf.source[SG_OPTION_free_sync] == SG_CONF_ENVIRONMENT);
    assert_true(conf.limit_bytes == 2 * SG_GIB && conf.sites && conf.source[SG_OPTION_sites] == SG_CONF_CARD);
    unlink(file);
    assert_int_equal(sg_conf_apply_card(&conf, file, keep, &lines), 0);
    assert_int_equal(sg_conf_apply_card(&conf, folder, keep, &lines), 1);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_print_as_declared),
        cmocka_unit_test(every_option),
        cmocka_unit_test(a_path_that_cannot_be_read_back),
        cmocka_unit_test(older_words_are_taken),
        cmocka_unit_test(real_numbers_read_back),
        cmocka_unit_test(zero_is_off_where_zero_is_the_default),
        cmocka_unit_test(overflow_names_places),
        cmocka_unit_test(a_later_limit_replaces_an_earlier_one),
        cmocka_unit_test(roundup_follows_pytorch),
        cmocka_unit_test(segments_bound_splitting),
        cmocka_unit_test(nothing_is_said_to_stay_where_all_is_refused),
        cmocka_unit_test(unknown_keys_name_the_nearest),
        cmocka_unit_test(pytorch_gives_way),
        cmocka_unit_test(sources_in_order),
        cmocka_unit_test(buffers_are_kept_to),
        cmocka_unit_test(rounding_is_printed_beside_a_smaller_segment),
        cmocka_unit_test(random_texts),
        cmocka_unit_test(options_of_a_card),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
