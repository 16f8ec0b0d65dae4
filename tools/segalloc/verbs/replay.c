/* segalloc replay: what a trace would have needed under other settings, or under PyTorch's rules. */
#include "tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "replay/core_bench.h"
#include "replay/replayed.h"
#include "effective_conf.h"
#include "meta.h"
#include "size.h"

#define CLI_VERB "replay"
#define CLI_ROWS "verbs/replay.def"
#include "cli/rows.h"

enum { RUN_AHEAD_MOST = 100000000 };

static size_t replay_next_records(void *source, struct segalloc_trace_record *out, size_t n)
{
    return sg_trace_read(source, out, n);
}

static uint64_t replay_place(void *source)
{
    return sg_trace_info(source)->next;
}

static double replay_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Plays the trace once, on what cards `replay->play` says. 0, or an exit status after a message. */
static int play_once(struct sg_replayed *replay, struct sg_play_result *ret)
{
    char error[SG_PLAY_ERROR];
    replay->play.as_recorded = sg_recorded_is(&replay->recorded, &replay->play);
    int status = sg_play_run(&replay->play, ret, error);
    const char *broken = sg_trace_error(replay->reader);
    if (broken)
        return sg_tool_error(replay->verb, "%s: %s", replay->path, broken);
    return status == 0 ? 0 : sg_tool_error(replay->verb, "%s: %s", replay->path, error);
}

static void replay_show_progress(uint64_t low, uint64_t high)
{
    char a[SG_SIZE_TEXT], b[SG_SIZE_TEXT];
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\rsmallest card: between %s and %s   ", sg_size_format(low, a), sg_size_format(high, b));
}

static int replay_play_cards(void *user, const uint64_t card[SG_DEVICES_MAX], uint64_t stop, struct sg_play_result *ret)
{
    struct sg_replayed *replay = user;
    if (sg_trace_rewind(replay->reader) != 0)
        return sg_tool_error(replay->verb, "--min-limit reads the trace several times, and %s can be read only once",
            replay->path);
    memcpy(replay->play.card, card, sizeof replay->play.card);
    replay->play.stop_at_oom = stop;
    return play_once(replay, ret);
}

/* A limit in bytes that the run was recorded under is none of the smallest card's. */
static int replay_find_smallest(struct sg_replayed *replay)
{
    const struct sg_play before = replay->play;
    replay->smallest = (struct sg_smallest){.play = replay_play_cards,
        .user = replay,
        .progress = replay->json ? NULL : replay_show_progress,
        .most = replay->limit > SG_SMALLEST_MOST ? replay->limit : SG_SMALLEST_MOST};
    if (!replay->conf_text)
        replay->play.conf.limit_bytes = 0;
    int status = sg_smallest_find(&replay->smallest, &replay->result);
    if (status == 0)
        status = sg_smallest_look_above(&replay->smallest);
    replay->play = before;
    if (!replay->json && isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
    return status;
}

static bool replay_parse_number(const char *text, uint64_t *ret)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || value > RUN_AHEAD_MOST)
        return false;
    *ret = value;
    return true;
}

static int replay_read_options(struct sg_cli *cli, struct sg_replayed *replay, const char **ret_policy)
{
    for (int option; (option = sg_cli_next(cli)) >= 0;) {
        switch ((enum option_of_verb)option) {
        case OPTION_conf:
            replay->conf_text = sg_tool_conf_join(replay->conf_text ? replay->conf_text : "", optarg);
            break;
        case OPTION_limit:
            if (!sg_tool_card(optarg, &replay->limit))
                return sg_tool_usage(cli->argv[0],
                    "--limit takes a size with its unit, of 64 TiB or less, such as 24GiB, not \"%s\"", optarg);
            break;
        case OPTION_min_limit:
            replay->min_limit = true;
            break;
        case OPTION_policy:
            *ret_policy = optarg;
            break;
        case OPTION_run_ahead:
            if (!replay_parse_number(optarg, &replay->play.run_ahead))
                return sg_tool_usage(cli->argv[0], "--run-ahead takes a number of allocations up to %d, not \"%s\"",
                    RUN_AHEAD_MOST, optarg);
            replay->play.ordered = true;
            break;
        case OPTION_sees:
            if (strcmp(optarg, "recorded") != 0 && strcmp(optarg, "possible") != 0)
                return sg_tool_usage(cli->argv[0], "--sees is recorded or possible, not \"%s\"", optarg);
            replay->play.possible_users = *optarg != 'r';
            break;
        case OPTION_device_waits: /* of older scripts: no stream is made to wait for another any more */
            break;
        case OPTION_bench:
            replay->bench = true;
            break;
        case OPTION_json:
            replay->json = true;
            break;
        }
    }
    if (cli->status)
        return cli->status;
    if (optind == cli->argc)
        return sg_tool_usage(cli->argv[0], "which trace?");
    if (cli->argc - optind > 1)
        return sg_tool_usage(cli->argv[0], "one trace at a time, \"%s\" is left over", cli->argv[optind + 1]);
    replay->path = cli->argv[optind];
    return 0;
}

static int replay_configure(struct sg_replayed *replay, const char *policy)
{
    char error[SG_TORCH_ERROR_TEXT];
    if (strcmp(policy, "pytorch") == 0) {
        replay->play.policy = SG_POLICY_PYTORCH;
        if (replay->play.ordered)
            return sg_tool_usage(replay->verb,
                "--run-ahead is not for --policy pytorch, whose events are complete when it asks");
        if (sg_torch_conf_parse(replay->conf_text ? replay->conf_text : "", &replay->play.torch, error) != 0)
            return sg_tool_usage(replay->verb, "--conf: %s", error);
        return 0;
    }
    if (strcmp(policy, "segalloc") != 0)
        return sg_tool_usage(replay->verb, "--policy is segalloc or pytorch, not \"%s\"", policy);
    /* The environment configures programs, not replays: what a replay shows must not depend on where it runs. */
    sg_conf_init(&replay->play.conf);
    return replay->conf_text && sg_tool_conf_check(replay->verb, replay->conf_text, &replay->play.conf) ? SG_EXIT_USAGE
                                                                                                        : 0;
}

static int replay_measure(struct sg_replayed *replay)
{
    int error = sg_recorded_measure(replay->reader, &replay->recorded);
    replay->play.live_bytes = replay->recorded.live_most;
    replay->play.made_good = replay->recorded.made_good;
    replay->play.made_goods = replay->recorded.made_goods;
    replay->measured = true;
    return error;
}

/* Plays the trace as asked for. An imported one that has failures is read through then, and played again if some of
   them were made good. */
static int replay_play(struct sg_replayed *replay)
{
    int status = play_once(replay, &replay->result);
    if (status || replay->measured || !replay->result.failures || !sg_trace_info(replay->reader)->header.imported ||
        sg_trace_rewind(replay->reader) != 0)
        return status;
    if (replay_measure(replay) != 0)
        return sg_tool_error(replay->verb, "%s: no host memory left", replay->path);
    return replay->play.made_goods ? play_once(replay, &replay->result) : 0;
}

/* Sets the terms of the recorded run, which is played where the command asks for no other. */
static int set_terms(struct sg_replayed *replay)
{
    const struct sg_conf asked = replay->play.conf;
    if (sg_recorded_read(replay->reader, &replay->recorded) != 0)
        return sg_tool_error(replay->verb, "%s: no host memory left", replay->path);
    sg_recorded_play(&replay->recorded, &replay->play);
    if (replay->conf_text) {
        enum sg_alias settled = replay->play.conf.alias;
        replay->play.conf = asked;
        if (asked.alias == SG_ALIAS_AUTO) /* which the recorded device settled */
            replay->play.conf.alias = settled;
    }
    if (replay->limit) {
        memset(replay->play.card, 0, sizeof replay->play.card);
        replay->play.card_bytes = replay->limit;
    }
    /* A search for the smallest card plays the trace many times: that it is kept is worth a reading. */
    if ((sg_play_is_of_live_bytes(&replay->play) || replay->min_limit) && replay_measure(replay) != 0)
        return sg_tool_error(replay->verb, "%s: no host memory left", replay->path);
    replay->as_recorded = sg_recorded_is(&replay->recorded, &replay->play);
    if (replay->as_recorded && replay->recorded.fixed)
        replay->play.conf.expandable_segments = false;
    return 0;
}

static int time_core(struct sg_replayed *replay)
{
    char error[SG_PLAY_ERROR];
    if (replay->play.policy != SG_POLICY_SEGALLOC)
        return sg_tool_usage(replay->verb, "--bench times segalloc's own rules, not --policy pytorch");
    if (sg_trace_rewind(replay->reader) != 0)
        return sg_tool_error(replay->verb, "--bench reads the trace a second time, and %s can be read only once",
            replay->path);
    replay->play.card_bytes = sg_replayed_largest_card(replay);
    return sg_bench_run(&replay->play, &replay->ns_per_op, error) == 0 ? 0 : sg_tool_error(replay->verb, "%s", error);
}

static int no_events(const struct sg_replayed *replay)
{
    const char *end = sg_trace_info(replay->reader)->end_text;
    return sg_tool_error(replay->verb, "%s: the trace has no events%s%s", replay->path, end ? ": " : "",
        end ? end : "");
}

int sg_verb_replay(int argc, char **argv)
{
    struct sg_cli cli;
    struct sg_replayed replay = {.verb = argv[0]};
    const char *policy = "segalloc";
    char error[SG_TRACE_ERROR];
    if (!sg_cli_begin(&cli, &cli_verb, argc, argv))
        return SG_EXIT_OK;
    int status = replay_read_options(&cli, &replay, &policy);
    if (status == 0)
        status = replay_configure(&replay, policy);
    if (status)
        return status;
    if (!replay.bench)
        sg_tool_small_pages();
    double began = replay_now();
    if (sg_trace_open(replay.path, &replay.reader, error) != 0)
        return sg_tool_error(replay.verb, "%s: %s", replay.path, error);
    replay.play.next = replay_next_records;
    replay.play.source = replay.reader;
    replay.play.place = replay_place;
    status = set_terms(&replay);
    if (status == 0)
        status = replay_play(&replay);
    replay.seconds = replay_now() - began;
    if (status == 0 && replay.result.events == 0)
        status = no_events(&replay);
    if (status == 0 && sg_trace_info(replay.reader)->end == SG_TRACE_DAMAGED)
        status = sg_tool_error(replay.verb, "%s: %s", replay.path, sg_trace_info(replay.reader)->end_text);
    if (status == 0 && replay.min_limit)
        status = replay_find_smallest(&replay);
    if (status == 0 && replay.bench)
        status = time_core(&replay);
    if (status == 0 && sg_meta_ran_out())
        status =
            sg_tool_error(replay.verb, "%s: no host memory left, so what would be decided is not known", replay.path);
    if (status == 0)
        (replay.json ? sg_replayed_print_json : sg_replayed_print_text)(&replay);
    sg_recorded_free(&replay.recorded);
    sg_trace_close(replay.reader);
    return status ? status : replay.result.new_ooms ? SG_EXIT_NOT_FIT : SG_EXIT_OK;
}
