/* segalloc replay: what a trace would have needed under other settings, or under PyTorch's rules. */
#include "tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"
#include "inputs.h"
#include "meta.h"
#include "play.h"
#include "size.h"
#include "trace_reader.h"

static const struct option long_options[] = {
    {"conf", required_argument, NULL, 'c'},
    {"limit", required_argument, NULL, 'l'},
    {"min-limit", no_argument, NULL, 'm'},
    {"run-ahead", required_argument, NULL, 'r'},
    {"sees", required_argument, NULL, 's'},
    {"device-waits", no_argument, NULL, 'w'},
    {"policy", required_argument, NULL, 'p'},
    {"bench", no_argument, NULL, 'b'},
    {"json", no_argument, NULL, 'j'},
    {"help", no_argument, NULL, 'h'},
    {0},
};

/* A card when nothing says how large: what PyTorch's allocator was measured on for the recorded traces. */
#define DEFAULT_CARD SG_TIB
#define LARGEST_CARD (4 * SG_TIB) /* up to which --min-limit looks where none is named: what is alive beyond is no GPU's */
#define DEFAULT_GRANULARITY (2 * SG_MIB) /* of every part that has been reported */
enum { RUN_AHEAD_MOST = 100000000 };

struct replay {
    const char *verb, *path, *conf_text;
    bool json, min_limit, bench, as_recorded;
    double ns_per_op; /* of --bench */
    uint64_t limit;
    struct sg_trace_reader *reader;
    struct sg_play play;
    struct sg_play_result result;
    double seconds;
    uint64_t smallest; /* card without an allocation that fails; 0: not asked for, or none */
};

static int help(void)
{
    puts("usage: segalloc replay TRACE [--conf K:V,…] [--limit SIZE] [--min-limit] [--policy NAME] [--json]\n"
         "Plays a trace (ours, or RMM's replay CSV, also as .zst; - is standard input) through the allocator, on a card that\n"
         "only keeps the books: the same decisions as in a program, without a GPU. Allocations that do not fit are counted,\n"
         "and the replay goes on without them.\n\n"
         "  -c, --conf K:V,…   options of the allocator (segalloc conf lists them); with --policy pytorch in the\n"
         "                     syntax of PYTORCH_CUDA_ALLOC_CONF\n"
         "  -l, --limit SIZE   size of the card, such as 24GiB (default: the recorded device's, or 1 TiB)\n"
         "  -m, --min-limit    also find the smallest card, to 2 MiB, on which every allocation fits\n"
         "  -r, --run-ahead K  also play the work: it is complete once K more allocations have been made, or sooner where\n"
         "                     the host waits for it, and memory is used again in its order, as --conf free_sync says\n"
         "                     (strict, event or stream; auto is stream). Rows about work are kept to; in a trace\n"
         "                     without any, work on its stream follows each allocation. Without this option what is\n"
         "                     freed is complete at once\n"
         "      --sees RULE    with free_sync:stream, whom a free waits for besides its own stream: recorded (default),\n"
         "                     the streams of its record_stream rows, as PyTorch does; or possible, all that could have\n"
         "                     seen the block, as where record_stream is not heard of\n"
         "      --device-waits let one stream wait for another, when memory has run out, rather than the host\n"
         "  -p, --policy NAME  segalloc (default), or pytorch: decide as PyTorch's own allocator does\n"
         "      --bench        also time the core alone on the decoded trace (ns_per_op)\n"
         "      --json         print one object on one line\n"
         "  -h, --help         print this\n\n"
         "Exit status: 0 when the whole trace was played, 1 when it could not be, 2 for bad usage.");
    return SG_EXIT_OK;
}

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

/* Plays the trace once on a card of `bytes`. 0, or an exit status after a message. */
static int play_once(struct replay *replay, uint64_t bytes, bool stop_at_oom, struct sg_play_result *ret)
{
    char error[SG_PLAY_ERROR];
    replay->play.card_bytes = bytes;
    replay->play.stop_at_oom = stop_at_oom;
    replay->play.as_recorded = replay->as_recorded && bytes == replay->limit;
    int status = sg_play_run(&replay->play, ret, error);
    const char *broken = sg_trace_error(replay->reader);
    if (broken)
        return sg_tool_error(replay->verb, "%s: %s", replay->path, broken);
    return status == 0 ? 0 : sg_tool_error(replay->verb, "%s: %s", replay->path, error);
}

static void progress(const struct replay *replay, uint64_t low, uint64_t high)
{
    char a[SG_SIZE_TEXT], b[SG_SIZE_TEXT];
    if (!replay->json && isatty(STDERR_FILENO))
        fprintf(stderr, "\rsmallest card: between %s and %s   ", sg_size_format(low, a), sg_size_format(high, b));
}

/* Bisects the smallest card to STEP. What completes is not quite monotone in the size, so this is a card that
   completes while one STEP smaller does not. */
static int find_smallest(struct replay *replay)
{
    const uint64_t STEP = 2 * SG_MIB;
    struct sg_play_result result;
    uint64_t low = replay->result.peak_requested / STEP * STEP;
    uint64_t high = (replay->result.peak_reserved + STEP - 1) / STEP * STEP;
    if (replay->result.ooms)
        high = replay->limit;
    for (bool fits = false; !fits;) {
        if (sg_trace_rewind(replay->reader) != 0)
            return sg_tool_error(replay->verb,
                "--min-limit reads the trace several times, and %s can be read only once", replay->path);
        int status = play_once(replay, high, true, &result);
        if (status)
            return status;
        fits = result.ooms == 0;
        if (!fits) {
            low = high;
            high += high / 16 / STEP * STEP + STEP;
            if (high > LARGEST_CARD && high > replay->limit)
                return 0;
        }
    }
    while (high - low > STEP) {
        uint64_t middle = low + (high - low) / 2 / STEP * STEP;
        progress(replay, low, high);
        sg_trace_rewind(replay->reader);
        int status = play_once(replay, middle, true, &result);
        if (status)
            return status;
        *(result.ooms ? &low : &high) = middle;
    }
    if (!replay->json && isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
    replay->smallest = high;
    return 0;
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

static void print_json(const struct replay *replay)
{
    const struct sg_play_result *result = &replay->result;
    fputs("{\"schema\":\"segalloc.replay/1\",\"trace\":", stdout);
    sg_tool_json_string(replay->path);
    fputs(",\"conf\":", stdout);
    sg_tool_json_string(replay->conf_text);
    printf(",\"policy\":\"%s\",\"limit_bytes\":%" PRIu64,
        replay->play.policy == SG_POLICY_PYTORCH ? "pytorch" : "segalloc", replay->limit);
    printf(",\"events\":%" PRIu64 ",\"allocs\":%" PRIu64 ",\"frees\":%" PRIu64 ",\"unmatched_frees\":%" PRIu64
           ",\"recorded_failures\":%" PRIu64, result->events, result->allocs, result->frees, result->unmatched_frees, result->failures);
    printf(",\"as_recorded\":%s,\"diverged_event\":", replay->play.as_recorded ? "true" : "false");
    if (result->diverged_event)
        printf("%" PRIu64, result->diverged_event);
    else
        fputs("null", stdout);
    printf(",\"peak_requested_bytes\":%" PRIu64 ",\"peak_allocated_bytes\":%" PRIu64 ",\"peak_pending_bytes\":%" PRIu64
           ",\"peak_reserved_bytes\":%" PRIu64 ",\"utilization\":%.6f,\"end_reserved_bytes\":%" PRIu64,
        result->peak_requested, result->peak_allocated, result->peak_pending, result->peak_reserved,
        utilization(result), result->end_reserved);
    printf(",\"pages_moved\":%" PRIu64 ",\"bytes_moved\":%" PRIu64 ",\"aliased_pages\":%" PRIu64
           ",\"sewn_pages\":%" PRIu64 ",\"late_unmaps\":%" PRIu64,
        result->pages_moved, result->bytes_moved, result->aliased_pages, result->sewn_pages, result->late_unmaps);
    printf(",\"host_waits\":%" PRIu64 ",\"device_waits\":%" PRIu64 ",\"ooms\":%" PRIu64,
           result->host_waits, result->device_waits, result->ooms);
    if (replay->play.ordered)
        printf(",\"run_ahead\":%" PRIu64 ",\"free_sync\":\"%s\",\"sees\":\"%s\",\"strict_frees\":%" PRIu64
               ",\"strict_waits\":%" PRIu64,
            replay->play.run_ahead, sync_name(replay->play.conf.free_sync),
            replay->play.sees == SG_SEES_RECORDED ? "recorded" : "possible", result->strict_frees,
            result->strict_waits);
    else
        fputs(",\"run_ahead\":null", stdout);
    fputs(",\"min_limit_bytes\":", stdout);
    if (replay->smallest)
        printf("%" PRIu64, replay->smallest);
    else
        fputs("null", stdout);
    const char *comma = "";
    fputs(",\"driver_calls\":{", stdout);
#define CALL(name) printf("%s\"" #name "\":%" PRIu64, comma, result->calls.name), comma = ",";
    SG_PLAY_CALLS(CALL)
#undef CALL
    printf("},\"event_calls\":%" PRIu64 ",\"driver_us\":{\"growth\":%.1f,\"moves\":%.1f}", result->event_calls,
        (double)result->growth_ns / 1000, (double)result->move_ns / 1000);
    if (replay->bench)
        printf(",\"ns_per_op\":%.1f", replay->ns_per_op);
    printf(",\"seconds\":%.6f,\"events_per_second\":%.0f}\n", replay->seconds,
        (double)result->events / replay->seconds);
}

static void row(const char *name, uint64_t bytes, uint64_t of)
{
    char text[SG_SIZE_TEXT];
    printf("  %-16s %12s", name, sg_size_format(bytes, text));
    if (of)
        printf("   %.4f x", (double)bytes / (double)of);
    putchar('\n');
}

static void print_text(const struct replay *replay)
{
    const struct sg_play_result *result = &replay->result;
    char card[SG_SIZE_TEXT], largest[SG_SIZE_TEXT];
    uint64_t live = result->peak_requested;
    if (result->ooms)
        printf("%" PRIu64 " of %" PRIu64 " allocations do not fit a card of %s (the first is event %" PRIu64
               "; the largest asks for %s)\n",
            result->ooms, result->allocs + result->failures, sg_size_format(replay->limit, card),
            result->first_oom_event, sg_size_format(result->largest_request, largest));
    else
        printf("all %" PRIu64 " allocations fit a card of %s\n", result->allocs + result->failures,
            sg_size_format(replay->limit, card));
    row("live at peak", live, 0);
    row("allocated", result->peak_allocated, live);
    if (result->peak_pending)
        row("pending", result->peak_pending, live);
    row("reserved", result->peak_reserved, live);
    if (replay->smallest)
        row("smallest card", replay->smallest, live);
    printf("  %-16s %12" PRIu64 "   %.1f ms by the cost table, once\n", "pages created", result->calls.create,
        (double)result->growth_ns / 1e6);
    printf("  %-16s %12" PRIu64 "   %.1f ms by the cost table\n", "pages moved", result->pages_moved,
        (double)result->move_ns / 1e6);
    if (replay->play.ordered) {
        printf("  %-16s %12" PRIu64 "   of the host, beyond the program's own\n", "waits", result->host_waits);
        printf("  %-16s %12" PRIu64 "   of streams, beyond the program's own\n", "", result->device_waits);
        if (result->strict_frees)
            printf("  %-16s %12" PRIu64 "   of %" PRIu64 " strict frees\n", "", result->strict_waits,
                result->strict_frees);
    }
    if (result->unmatched_frees)
        printf("  %" PRIu64 " frees of what was allocated before the trace begins\n", result->unmatched_frees);
    if (result->diverged_event)
        printf("  from event %" PRIu64
               " on other decisions than the recorded ones: by another version, or part of the trace is missing\n",
            result->diverged_event);
    if (replay->bench)
        printf("  %-16s %9.1f ns an allocation or free\n", "core alone", replay->ns_per_op);
    const struct sg_trace_info *info = sg_trace_info(replay->reader);
    if (info->end_text)
        printf("  the trace is incomplete: %s\n", info->end_text);
    printf("%" PRIu64 " events in %.2f s, %.1f million a second\n", result->events, replay->seconds,
        (double)result->events / replay->seconds / 1e6);
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

static int read_options(struct replay *replay, int argc, char **argv, const char **ret_policy)
{
    for (int option; (option = getopt_long(argc, argv, ":hc:l:mp:r:", long_options, NULL)) != -1;) {
        switch (option) {
        case 'c':
            replay->conf_text = sg_tool_conf_join(replay->conf_text, optarg);
            break;
        case 'l':
            if (!sg_size_parse(optarg, &replay->limit) || replay->limit == 0 ||
                replay->limit > SEGALLOC_TRACE_DEVICE_MOST)
                return sg_tool_usage(argv[0], "--limit takes a size of 64 TiB or less such as 24GiB, not \"%s\"", optarg);
            break;
        case 'm':
            replay->min_limit = true;
            break;
        case 'p':
            *ret_policy = optarg;
            break;
        case 'r':
            if (!number(optarg, &replay->play.run_ahead))
                return sg_tool_usage(argv[0], "--run-ahead takes a number of allocations up to %d, not \"%s\"",
                    RUN_AHEAD_MOST, optarg);
            replay->play.ordered = true;
            break;
        case 's':
            if (strcmp(optarg, "recorded") != 0 && strcmp(optarg, "possible") != 0)
                return sg_tool_usage(argv[0], "--sees is recorded or possible, not \"%s\"", optarg);
            replay->play.sees = *optarg == 'r' ? SG_SEES_RECORDED : SG_SEES_POSSIBLE;
            break;
        case 'w':
            replay->play.device_waits = true;
            break;
        case 'b':
            replay->bench = true;
            break;
        case 'j':
            replay->json = true;
            break;
        default:
            return sg_tool_bad_option(argv, option, long_options);
        }
    }
    if (optind == argc)
        return sg_tool_usage(argv[0], "which trace?");
    if (argc - optind > 1)
        return sg_tool_usage(argv[0], "one trace at a time, \"%s\" is left over", argv[optind + 1]);
    replay->path = argv[optind];
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
        if (sg_torch_conf_parse(replay->conf_text, &replay->play.torch, error) != 0)
            return sg_tool_usage(replay->verb, "--conf: %s", error);
        return 0;
    }
    if (strcmp(policy, "segalloc") != 0)
        return sg_tool_usage(replay->verb, "--policy is segalloc or pytorch, not \"%s\"", policy);
    /* The environment configures programs, not replays: what a replay shows must not depend on where it runs. */
    sg_conf_init(&replay->play.conf);
    return sg_tool_conf_check(replay->verb, replay->conf_text, &replay->play.conf) ? SG_EXIT_USAGE : 0;
}

/* What does not decide anything in a replay: what was asked of the driver about work, and what came of it, is in the
   trace; and so is whether segments were fixed, which ipc:auto leaves to the process. */
static void blank(struct sg_conf *conf)
{
    conf->trace[0] = conf->stats[0] = '\0';
    conf->free_sync = SG_FREE_SYNC_AUTO;
    conf->pending_limit = SG_AUTO;
    conf->wait_limit = conf->trim_idle_s = 0;
    conf->ipc = SG_IPC_AUTO;
    conf->pytorch = 0;
    conf->oom_report = SG_OOM_NEVER;
    conf->limit_visible = conf->live = conf->trim_on_request = conf->confirm_conf = conf->abort_conf = false;
}

/* Whether the devices of a trace of ours had fixed segments: they need no granularity. */
static bool is_fixed(const struct replay *replay)
{
    return sg_trace_info(replay->reader)->header.granularity == 0;
}

/* Whether a trace of ours is to be played with the settings with which it was recorded, as far as they decide anything
   here. */
static bool is_as_recorded(const struct replay *replay)
{
    const struct sg_trace_info *info = sg_trace_info(replay->reader);
    struct sg_conf conf[2] = {replay->play.conf};
    char text[2][4096];
    if (replay->play.policy != SG_POLICY_SEGALLOC || replay->play.ordered || info->header.imported ||
        info->header.device_bytes != replay->limit)
        return false;
    sg_conf_init(&conf[1]);
    if (sg_conf_apply(&conf[1], SG_CONF_ARGUMENT, info->conf, NULL, NULL) != 0)
        return false;
    if (conf[0].ipc == SG_IPC_ALWAYS && !is_fixed(replay))
        return false;
    for (int i = 0; i < 2; i++) {
        blank(&conf[i]);
        sg_conf_print(&conf[i], text[i], sizeof text[i]);
    }
    return strcmp(text[0], text[1]) == 0;
}

static int time_core(struct replay *replay)
{
    char error[SG_PLAY_ERROR];
    if (replay->play.policy != SG_POLICY_SEGALLOC)
        return sg_tool_usage(replay->verb, "--bench times segalloc's own rules, not --policy pytorch");
    if (sg_trace_rewind(replay->reader) != 0)
        return sg_tool_error(replay->verb, "--bench reads the trace a second time, and %s can be read only once",
            replay->path);
    replay->play.card_bytes = replay->limit;
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
    struct replay replay = {.verb = argv[0], .conf_text = ""};
    const char *policy = "segalloc";
    char error[SG_TRACE_ERROR];
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return help();
    int status = read_options(&replay, argc, argv, &policy);
    if (status == 0)
        status = configure(&replay, policy);
    if (status)
        return status;
    if (!replay.bench)
        sg_tool_small_pages();
    double began = now();
    if (sg_trace_open(replay.path, &replay.reader, error) != 0)
        return sg_tool_error(replay.verb, "%s: %s", replay.path, error);
    const struct segalloc_trace_header *header = &sg_trace_info(replay.reader)->header;
    if (!replay.limit)
        replay.limit = header->device_bytes ? header->device_bytes : DEFAULT_CARD;
    replay.play.granularity = header->granularity ? header->granularity : DEFAULT_GRANULARITY;
    replay.as_recorded = is_as_recorded(&replay);
    if (replay.as_recorded && is_fixed(&replay))
        replay.play.conf.expandable_segments = false;
    replay.play.next = next_records;
    replay.play.source = replay.reader;
    replay.play.place = place;
    status = play_once(&replay, replay.limit, false, &replay.result);
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
        status = sg_tool_error(replay.verb, "%s: no host memory left, so what would be decided is not known", replay.path);
    if (status == 0)
        (replay.json ? print_json : print_text)(&replay);
    sg_trace_close(replay.reader);
    return status;
}
