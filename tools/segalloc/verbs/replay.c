/* segalloc replay: what a trace would have needed under other settings, or under PyTorch's rules. */
#include "json.h"
#include "tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "replay/core_bench.h"
#include "effective_conf.h"
#include "meta.h"
#include "player.h"
#include "replay/recorded.h"
#include "size.h"
#include "replay/smallest_card.h"
#include "reader/trace_reader.h"

#define CLI_VERB "replay"
#define CLI_ROWS "verbs/replay.def"
#include "cli/rows.h"

enum { RUN_AHEAD_MOST = 100000000 };

struct replay {
    const char *verb, *path, *conf_text; /* NULL: as recorded */
    bool json, min_limit, bench, as_recorded;
    double ns_per_op; /* of --bench */
    uint64_t limit;   /* --limit; 0: each device its own */
    struct sg_recorded recorded;
    bool measured; /* what an imported trace has alive at its peak, and which refusals were made good */
    struct sg_trace_reader *reader;
    struct sg_play play;
    struct sg_play_result result;
    double seconds;
    struct sg_smallest smallest; /* cards without an allocation that fails, where asked for */
};

static size_t next_records(void *source, struct segalloc_trace_record *out, size_t n)
{
    return sg_trace_read(source, out, n);
}

static uint64_t place(void *source)
{
    return sg_trace_info(source)->next;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Plays the trace once, on what cards `replay->play` says. 0, or an exit status after a message. */
static int play_once(struct replay *replay, struct sg_play_result *ret)
{
    char error[SG_PLAY_ERROR];
    replay->play.as_recorded = sg_recorded_is(&replay->recorded, &replay->play);
    int status = sg_play_run(&replay->play, ret, error);
    const char *broken = sg_trace_error(replay->reader);
    if (broken)
        return sg_tool_error(replay->verb, "%s: %s", replay->path, broken);
    return status == 0 ? 0 : sg_tool_error(replay->verb, "%s: %s", replay->path, error);
}

static void progress(uint64_t low, uint64_t high)
{
    char a[SG_SIZE_TEXT], b[SG_SIZE_TEXT];
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\rsmallest card: between %s and %s   ", sg_size_format(low, a), sg_size_format(high, b));
}

static int play_cards(void *user, const uint64_t card[SG_DEVICES_MAX], uint64_t stop, struct sg_play_result *ret)
{
    struct replay *replay = user;
    if (sg_trace_rewind(replay->reader) != 0)
        return sg_tool_error(replay->verb, "--min-limit reads the trace several times, and %s can be read only once",
            replay->path);
    memcpy(replay->play.card, card, sizeof replay->play.card);
    replay->play.stop_at_oom = stop;
    return play_once(replay, ret);
}

/* A limit in bytes that the run was recorded under is none of the smallest card's. */
static int find_smallest(struct replay *replay)
{
    const struct sg_play before = replay->play;
    replay->smallest = (struct sg_smallest){.play = play_cards, .user = replay,
        .progress = replay->json ? NULL : progress,
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

/* What is needed may be more than was seen: an allocation failed in the recorded process, or the trace has no end. */
static bool is_lower_bound(const struct replay *replay)
{
    return replay->result.failures > 0 || sg_trace_info(replay->reader)->end_text;
}

static double utilization(const struct sg_play_result *result)
{
    return result->peak_reserved ? (double)result->peak_allocated / (double)result->peak_reserved : 1;
}

static const char *sync_name(enum sg_free_sync sync)
{
    return sync == SG_FREE_SYNC_STRICT  ? "strict"
           : sync == SG_FREE_SYNC_EVENT ? "event"
                                        : "stream"; /* which auto is here */
}

static json_t *json_device(const struct replay *replay, int ordinal)
{
    const struct sg_play_device *device = &replay->result.device[ordinal];
    const uint64_t *peak = device->stats.peak;
    json_t *result = sg_json_object(NULL);
    SG_JSON_NUMBERS(result, {"device", (uint64_t)ordinal}, {"limit_bytes", device->card_bytes},
        {"allocs", device->allocs}, {"ooms", device->ooms}, {"new_ooms", device->new_ooms},
        {"peak_requested_bytes", peak[SG_STAT_requested_bytes]},
        {"peak_allocated_bytes", peak[SG_STAT_allocated_bytes]}, {"peak_reserved_bytes", peak[SG_STAT_reserved_bytes]});
    sg_json_set_known(result, "first_oom_event", device->first_oom_event, device->first_oom_event);
    sg_json_set_known(result, "largest_oom_bytes", device->largest_oom, device->largest_oom);
    sg_json_set_known(result, "short_by_bytes", device->first_oom_short, device->first_oom_short);
    sg_json_set_known(result, "min_limit_bytes", replay->smallest.card[ordinal], replay->smallest.card[ordinal]);
    sg_json_set_known(result, "larger_limit_failing_bytes", replay->smallest.failing[ordinal],
        replay->smallest.failing[ordinal]);
    return result;
}

static json_t *json_devices(const struct replay *replay)
{
    json_t *devices = sg_json_array();
    for (int i = 0; i < SG_DEVICES_MAX; i++)
        if (replay->result.device[i].used)
            sg_json_add(devices, json_device(replay, i));
    return devices;
}

static uint64_t largest_card(const struct replay *replay)
{
    uint64_t largest = 0;
    for (int i = 0; i < SG_DEVICES_MAX; i++)
        if (replay->result.device[i].used && replay->result.device[i].card_bytes > largest)
            largest = replay->result.device[i].card_bytes;
    return largest ? largest : replay->limit;
}

/* The settings that were played, "" for the defaults. */
static const char *conf_played(const struct replay *replay, char *text, size_t size)
{
    if (replay->conf_text)
        return replay->conf_text;
    if (replay->play.policy == SG_POLICY_SEGALLOC)
        sg_recorded_conf_text(&replay->recorded.conf, text, size);
    else
        *text = '\0';
    return text;
}

/* Sums over the devices. */
static void json_totals(json_t *object, const struct replay *replay)
{
    const struct sg_play_result *result = &replay->result;
    SG_JSON_NUMBERS(object, {"peak_requested_bytes", result->peak_requested},
        {"peak_allocated_bytes", result->peak_allocated}, {"peak_pending_bytes", result->peak_pending},
        {"peak_reserved_bytes", result->peak_reserved});
    sg_json_set_ratio(object, "utilization", utilization(result));
    /* device_waits: for readers of earlier versions, which made streams wait */
    SG_JSON_NUMBERS(object, {"end_reserved_bytes", result->end_reserved}, {"pages_moved", result->pages_moved},
        {"bytes_moved", result->bytes_moved}, {"aliased_pages", result->aliased_pages},
        {"late_unmaps", result->late_unmaps}, {"host_waits", result->host_waits}, {"device_waits", 0},
        {"ooms", result->ooms}, {"new_ooms", result->new_ooms});
}

static void json_work(json_t *object, const struct replay *replay)
{
    const struct sg_play *play = &replay->play;
    sg_json_set_known(object, "run_ahead", play->run_ahead, play->ordered);
    if (!play->ordered)
        return;
    sg_json_set_text(object, "free_sync", sync_name(play->conf.free_sync));
    sg_json_set_text(object, "sees", play->possible_users ? "possible" : "recorded");
    SG_JSON_NUMBERS(object, {"strict_frees", replay->result.strict_frees},
        {"strict_waits", replay->result.strict_waits});
}

/* Calls of the driver, and what they cost. */
static void json_calls(json_t *object, const struct sg_play_result *result)
{
    json_t *calls = sg_json_object(NULL), *handles = sg_json_object(NULL), *us = sg_json_object(NULL);
#define CALL(name) SG_JSON_NUMBERS(calls, {#name, result->calls.name});
    SG_PLAY_CALLS(CALL)
#undef CALL
#define CALL(name) SG_JSON_NUMBERS(handles, {#name, result->handles.name});
    SG_PLAY_HANDLE_CALLS(CALL)
#undef CALL
    sg_json_set(object, "driver_calls", calls);
    sg_json_set(object, "handle_calls", handles);
    SG_JSON_NUMBERS(object, {"peak_mappings", result->peak_mappings}, {"event_calls", result->event_calls});
    sg_json_set(us, "growth", sg_json_real((double)result->growth_ns / 1000, 1));
    sg_json_set(us, "moves", sg_json_real((double)result->move_ns / 1000, 1));
    sg_json_set(object, "driver_us", us);
}

static void print_json(const struct replay *replay)
{
    const struct sg_play_result *result = &replay->result;
    char conf[4096];
    json_t *object = sg_json_object("segalloc.replay/1");
    uint64_t smallest = sg_smallest_largest(&replay->smallest, result);
    sg_json_set_text(object, "trace", replay->path);
    sg_json_set_text(object, "conf", conf_played(replay, conf, sizeof conf));
    sg_json_set_text(object, "policy", replay->play.policy == SG_POLICY_PYTORCH ? "pytorch" : "segalloc");
    SG_JSON_NUMBERS(object, {"limit_bytes", largest_card(replay)}, {"events", result->events},
        {"allocs", result->allocs}, {"frees", result->frees}, {"unmatched_frees", result->unmatched_frees},
        {"recorded_failures", result->failures});
    sg_json_set_flag(object, "as_recorded", replay->as_recorded);
    sg_json_set_known(object, "diverged_event", result->diverged_event, result->diverged_event);
    json_totals(object, replay);
    json_work(object, replay);
    sg_json_set_known(object, "min_limit_bytes", smallest, smallest);
    sg_json_set_flag(object, "at_least", is_lower_bound(replay));
    sg_json_set(object, "devices", json_devices(replay));
    json_calls(object, result);
    if (replay->bench)
        sg_json_set(object, "ns_per_op", sg_json_real(replay->ns_per_op, 1));
    sg_json_set(object, "seconds", sg_json_real(replay->seconds, 6));
    sg_json_set(object, "events_per_second", sg_json_number((uint64_t)((double)result->events / replay->seconds + 0.5)));
    sg_json_print(object);
}

static void row(const char *name, uint64_t bytes, uint64_t of)
{
    char text[SG_SIZE_TEXT];
    printf("  %-16s %12s", name, sg_size_format(bytes, text));
    if (of)
        printf("   %.4f x", (double)bytes / (double)of);
    putchar('\n');
}

/* What was played: the settings, and on what. */
static void print_terms(const struct replay *replay)
{
    char conf[4096], recorded[4096] = "", size[SG_SIZE_TEXT];
    const char *played = conf_played(replay, conf, sizeof conf);
    bool ours = replay->play.policy == SG_POLICY_SEGALLOC;
    printf("Played %s%s%s", ours ? "" : "by PyTorch's rules, ", *played ? "under " : "under the defaults",
        *played ? played : "");
    if (replay->recorded.ours && ours) {
        sg_recorded_conf_text(&replay->recorded.conf, recorded, sizeof recorded);
        if (replay->as_recorded || !replay->conf_text)
            fputs(", as recorded", stdout);
        else
            printf(" (recorded under %s)", *recorded ? recorded : "the defaults");
    }
    const char *comma = ", on ";
    for (int i = 0; i < SG_DEVICES_MAX; i++) {
        if (!replay->result.device[i].used)
            continue;
        printf("%sdevice %d of %s", comma, i, sg_size_format(replay->result.device[i].card_bytes, size));
        comma = ", ";
    }
    puts(".");
}

static void print_verdict(const struct replay *replay)
{
    const struct sg_play_result *result = &replay->result;
    char bytes[SG_SIZE_TEXT], live[SG_SIZE_TEXT], lack[SG_SIZE_TEXT];
    uint64_t allocs = result->allocs + result->failures;
    if (!result->ooms) {
        const char *too = result->failures ? ", those that failed when recorded too" : "";
        if (allocs == 1)
            printf("The only allocation fits%s.\n", result->failures ? ", which failed when recorded" : "");
        else
            printf("All %" PRIu64 " allocations fit%s.\n", allocs, too);
        return;
    }
    printf("%" PRIu64 " of %" PRIu64 " allocation%s %s not fit", result->ooms, allocs, sg_plural(allocs),
        result->ooms == 1 ? "does" : "do");
    if (result->new_ooms < result->ooms)
        printf(", %" PRIu64 " of them failed when recorded too", result->ooms - result->new_ooms);
    printf(".\nThe first is event %" PRIu64 ": %s asked for with %s in use", result->first_oom_event,
        sg_size_format(result->first_oom_bytes, bytes), sg_size_format(result->first_oom_live, live));
    if (result->first_oom_short)
        printf(", short by %s", sg_size_format(result->first_oom_short, lack));
    printf("; the largest asks for %s.\n", sg_size_format(result->largest_oom, bytes));
}

static void print_smallest(const struct replay *replay)
{
    const struct sg_play_result *result = &replay->result;
    uint64_t largest = sg_smallest_largest(&replay->smallest, result);
    char size[SG_SIZE_TEXT];
    unsigned devices = 0;
    for (int i = 0; i < SG_DEVICES_MAX; i++)
        devices += result->device[i].used;
    if (!largest) {
        puts("  no card is large enough");
        return;
    }
    row(is_lower_bound(replay) ? "at least a card" : "smallest card", largest,
        devices == 1 ? result->peak_requested : 0);
    for (int i = 0; devices > 1 && i < SG_DEVICES_MAX; i++)
        if (result->device[i].used)
            printf("    device %-7d %12s\n", i, sg_size_format(replay->smallest.card[i], size));
    for (int i = 0; i < SG_DEVICES_MAX; i++)
        if (replay->smallest.failing[i])
            printf("    device %d: a larger card may fail, as one of %s does\n", i,
                sg_size_format(replay->smallest.failing[i], size));
    if (result->failures)
        puts("  An allocation failed when this was recorded: what would have come after it is not\n"
             "  in the trace. `segalloc rehearse -- CMD` plays the program to its end.");
}

/* PyTorch's rules make pages only in expandable segments. */
static void print_work(const struct replay *replay)
{
    const struct sg_play_result *result = &replay->result;
    if (replay->play.policy == SG_POLICY_PYTORCH) {
        const struct sg_play_calls *calls = &result->calls;
        printf("  %-16s %12" PRIu64 "   of the driver\n", "calls", calls->reserve + calls->create + calls->map +
            calls->set_access + calls->unmap + calls->release + calls->alloc + calls->free + calls->sync);
        return;
    }
    printf("  %-16s %12" PRIu64 "   about %.1f ms of driver calls over the whole run, estimated\n", "pages created",
        result->calls.create, (double)result->growth_ns / 1e6);
    printf("  %-16s %12" PRIu64 "   about %.1f ms, estimated\n", "pages moved", result->pages_moved,
        (double)result->move_ns / 1e6);
    if (!replay->play.ordered)
        return;
    printf("  %-16s %12" PRIu64 "   of the host, beyond the program's own\n", "waits", result->host_waits);
    if (result->strict_frees)
        printf("  %-16s %12" PRIu64 "   of %" PRIu64 " strict frees\n", "", result->strict_waits, result->strict_frees);
}

static void print_text(const struct replay *replay)
{
    const struct sg_play_result *result = &replay->result;
    uint64_t live = result->peak_requested;
    print_terms(replay);
    print_verdict(replay);
    row("live at peak", live, 0);
    row("allocated", result->peak_allocated, live);
    if (result->peak_pending)
        row("pending", result->peak_pending, live);
    row("reserved", result->peak_reserved, live);
    if (replay->min_limit)
        print_smallest(replay);
    print_work(replay);
    if (result->unmatched_frees)
        printf("  %" PRIu64 " free%s of what was allocated before the trace begins\n", result->unmatched_frees,
            sg_plural(result->unmatched_frees));
    if (result->diverged_event)
        printf("  from event %" PRIu64
               " on other decisions than the recorded ones: by another version, or part of the trace is missing\n",
            result->diverged_event);
    if (replay->bench)
        printf("  %-16s %9.1f ns an allocation or free\n", "core alone", replay->ns_per_op);
    const struct sg_trace_info *info = sg_trace_info(replay->reader);
    if (info->end_text)
        printf("  the trace is incomplete: %s\n", info->end_text);
    printf("%" PRIu64 " event%s in %.2f s, %.1f million a second\n", result->events, sg_plural(result->events),
        replay->seconds, (double)result->events / replay->seconds / 1e6);
}

static bool number(const char *text, uint64_t *ret)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || value > RUN_AHEAD_MOST)
        return false;
    *ret = value;
    return true;
}

static int read_options(struct sg_cli *cli, struct replay *replay, const char **ret_policy)
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
            if (!number(optarg, &replay->play.run_ahead))
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

static int configure(struct replay *replay, const char *policy)
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

static int measure(struct replay *replay)
{
    int error = sg_recorded_measure(replay->reader, &replay->recorded);
    replay->play.live_bytes = replay->recorded.live_most;
    replay->play.made_good = replay->recorded.made_good;
    replay->play.made_goods = replay->recorded.made_goods;
    replay->measured = true;
    return error;
}

/* Plays the trace as asked for. An imported one that has failures is read through then, and played again if some of them
   were made good. */
static int play(struct replay *replay)
{
    int status = play_once(replay, &replay->result);
    if (status || replay->measured || !replay->result.failures || !sg_trace_info(replay->reader)->header.imported ||
        sg_trace_rewind(replay->reader) != 0)
        return status;
    if (measure(replay) != 0)
        return sg_tool_error(replay->verb, "%s: no host memory left", replay->path);
    return replay->play.made_goods ? play_once(replay, &replay->result) : 0;
}

/* What is played where nothing else is said: the recorded run. */
static int set_terms(struct replay *replay)
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
    if ((sg_play_is_of_live_bytes(&replay->play) || replay->min_limit) &&
        measure(replay) != 0)
        return sg_tool_error(replay->verb, "%s: no host memory left", replay->path);
    replay->as_recorded = sg_recorded_is(&replay->recorded, &replay->play);
    if (replay->as_recorded && replay->recorded.fixed)
        replay->play.conf.expandable_segments = false;
    return 0;
}

static int time_core(struct replay *replay)
{
    char error[SG_PLAY_ERROR];
    if (replay->play.policy != SG_POLICY_SEGALLOC)
        return sg_tool_usage(replay->verb, "--bench times segalloc's own rules, not --policy pytorch");
    if (sg_trace_rewind(replay->reader) != 0)
        return sg_tool_error(replay->verb, "--bench reads the trace a second time, and %s can be read only once",
            replay->path);
    replay->play.card_bytes = largest_card(replay);
    return sg_bench_run(&replay->play, &replay->ns_per_op, error) == 0 ? 0 : sg_tool_error(replay->verb, "%s", error);
}

static int no_events(const struct replay *replay)
{
    const char *end = sg_trace_info(replay->reader)->end_text;
    return sg_tool_error(replay->verb, "%s: the trace has no events%s%s", replay->path, end ? ": " : "",
        end ? end : "");
}

int sg_verb_replay(int argc, char **argv)
{
    struct sg_cli cli;
    struct replay replay = {.verb = argv[0]};
    const char *policy = "segalloc";
    char error[SG_TRACE_ERROR];
    if (!sg_cli_begin(&cli, &cli_verb, argc, argv))
        return SG_EXIT_OK;
    int status = read_options(&cli, &replay, &policy);
    if (status == 0)
        status = configure(&replay, policy);
    if (status)
        return status;
    if (!replay.bench)
        sg_tool_small_pages();
    double began = now();
    if (sg_trace_open(replay.path, &replay.reader, error) != 0)
        return sg_tool_error(replay.verb, "%s: %s", replay.path, error);
    replay.play.next = next_records;
    replay.play.source = replay.reader;
    replay.play.place = place;
    status = set_terms(&replay);
    if (status == 0)
        status = play(&replay);
    replay.seconds = now() - began;
    if (status == 0 && replay.result.events == 0)
        status = no_events(&replay);
    if (status == 0 && sg_trace_info(replay.reader)->end == SG_TRACE_DAMAGED)
        status = sg_tool_error(replay.verb, "%s: %s", replay.path, sg_trace_info(replay.reader)->end_text);
    if (status == 0 && replay.min_limit)
        status = find_smallest(&replay);
    if (status == 0 && replay.bench)
        status = time_core(&replay);
    if (status == 0 && sg_meta_ran_out())
        status =
            sg_tool_error(replay.verb, "%s: no host memory left, so what would be decided is not known", replay.path);
    if (status == 0)
        (replay.json ? print_json : print_text)(&replay);
    sg_recorded_free(&replay.recorded);
    sg_trace_close(replay.reader);
    return status ? status : replay.result.new_ooms ? SG_EXIT_NOT_FIT : SG_EXIT_OK;
}
