/* segalloc rehearse: does a program fit a card, and by how much, without a GPU. */
#include "rehearse.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <dirent.h>

#include "config.h"
#include "inputs.h"
#include "launch.h"
#include "place.h"
#include "size.h"
#include "tool.h"

static const struct option long_options[] = {
    {"card", required_argument, NULL, 'C'},
    {"devices", required_argument, NULL, 'd'},
    {"conf", required_argument, NULL, 'c'},
    {"json", no_argument, NULL, 'j'},
    {"help", no_argument, NULL, 'h'},
    {0},
};

static const char *const assumptions[] = {
    ("kernels end at once and compute nothing but counts and flags: what the program reads back is not real, and neither are sizes that depend "
     "on it"),
    "copies of more than 1 MiB move nothing; sets to zero give host memory back",
    "mathematics libraries are stand-ins: their own workspaces are not counted, those that PyTorch allocates for them are",
    "nothing is taken off for the CUDA context and the code of kernels, which is some 0.3 to 0.6 GiB of a card",
    "the program would ask for the same on every card; what depends on the card (free memory, its kind) is as on this one",
};
static const char assumed_beneath[] =
    "PyTorch's cache asks for the same segments on every card: on a full one it would first give back what it holds idle, so a "
    "smaller card may do than is said here";
enum { ASSUMPTIONS = sizeof assumptions / sizeof *assumptions, DEVICES_MOST = 16 };

static int help(void)
{
    puts("usage: segalloc rehearse [--card SIZE,…] [--devices N] [--conf K:V,…] [--json] -- CMD [ARGUMENT]…\n"
         "Runs CMD on a simulated card, with segalloc beneath it, and says whether it fits and by how much. PyTorch's own\n"
         "wheel runs as it is; kernels compute nothing. One run on the largest card answers for all: the others are found\n"
         "by playing its trace.\n\n"
         "      --card SIZE,…  cards to answer for (default 24GiB), such as 12GiB,16GiB,24GiB,40GiB,80GiB\n"
         "      --devices N    so many cards of each size in the machine (default 1)\n"
         "      --conf K:V,…   options of segalloc, as in segalloc run\n"
         "      --json         print one object on one line; CMD's own output goes to stderr\n"
         "  -h, --help         print this\n\n"
         "Exit status: 0 when there is a verdict for every card, 1 when CMD stopped before there was one, 2 for bad usage.");
    return SG_EXIT_OK;
}

static int by_bytes(const void *a, const void *b)
{
    const struct sg_rehearse_card *x = a, *y = b;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static int read_cards(struct sg_rehearse *rehearse, const char *list)
{
    char text[1024];
    snprintf(text, sizeof text, "%s", list);
    char *rest = text;
    for (char *item; (item = strsep(&rest, ",")) != NULL;) {
        uint64_t bytes;
        if (!sg_size_parse(item, &bytes) || bytes < 4 * SG_MIB || bytes > 64 * SG_TIB)
            return sg_tool_usage(rehearse->verb,
                "--card takes sizes from 4MiB to 64TiB such as 24GiB,40GiB, not \"%s\"", item);
        if (rehearse->card_count == SG_REHEARSE_CARDS)
            return sg_tool_usage(rehearse->verb, "--card takes at most %d sizes", SG_REHEARSE_CARDS);
        bytes &= ~(2 * SG_MIB - 1);
        bool again = false;
        for (unsigned i = 0; i < rehearse->card_count; i++)
            again |= rehearse->card[i].bytes == bytes;
        if (!again)
            rehearse->card[rehearse->card_count++].bytes = bytes;
    }
    qsort(rehearse->card, rehearse->card_count, sizeof *rehearse->card, by_bytes);
    return 0;
}

static void remove_folder(const char *folder)
{
    DIR *open = opendir(folder);
    for (struct dirent *entry; open && (entry = readdir(open));)
        unlinkat(dirfd(open), entry->d_name, 0);
    if (open)
        closedir(open);
    rmdir(folder);
}

/* How the command ended, as words: "it ended with status 1", "signal 11 ended it (Segmentation fault)". A shell says
   128 and the signal's number for what it ran. */
static const char *end_of(const struct sg_rehearse_run *run, char ret[96])
{
    const char *name = run->status > 128 && run->status < 128 + 32 ? strsignal(run->status - 128) : NULL;
    if (name)
        snprintf(ret, 96, "signal %d ended it (%s)", run->status - 128, name);
    else
        snprintf(ret, 96, "it ended with status %d", run->status);
    return ret;
}

/* What to tell where the command's own end gives no verdict. */
static void judge(struct sg_rehearse *rehearse)
{
    const struct sg_rehearse_run *run = &rehearse->run;
    char end[96];
    if (rehearse->processes == 0) {
        rehearse->outcome = SG_REHEARSE_STOPPED;
        if (run->status)
            snprintf(rehearse->reason, sizeof rehearse->reason, "%s before it asked for device memory%s%s",
                end_of(run, end), *run->last_line ? ": " : "", run->last_line);
        else
            snprintf(rehearse->reason, sizeof rehearse->reason,
                     "it asked for no device memory; segalloc doctor --sim 24GiB -- CMD says why");
    } else if (run->status == 0) {
        rehearse->outcome = SG_REHEARSE_COMPLETED;
    } else if (rehearse->ooms) {
        char size[SG_SIZE_TEXT];
        rehearse->outcome = SG_REHEARSE_OUT_OF_MEMORY;
        snprintf(rehearse->reason, sizeof rehearse->reason, "a card of %s was full%s%s",
                 sg_size_format(rehearse->card[rehearse->card_count - 1].bytes, size), *run->last_line ? ": " : "",
                 run->last_line);
    } else {
        bool interrupted = run->status == 128 + SIGINT || run->status == 128 + SIGTERM; /* by the user */
        rehearse->outcome = SG_REHEARSE_STOPPED;
        snprintf(rehearse->reason, sizeof rehearse->reason, "%s after %" PRIu64 " events of memory%s%s%s",
            end_of(run, end), rehearse->events, *run->last_line ? ": " : "", run->last_line,
            interrupted
                ? ""
                : ". Where that came of a result: kernels compute nothing here, and a program that decides by what "
                  "they compute (samples from probabilities, checks for NaN, loops until something converges) "
                  "cannot be rehearsed as it is");
    }
}

static void print_json(const struct sg_rehearse *rehearse)
{
    static const char *const names[] = {"completed", "out_of_memory", "stopped"};
    printf("{\"schema\":\"segalloc.rehearse/1\",\"outcome\":\"%s\",\"reason\":", names[rehearse->outcome]);
    if (*rehearse->reason)
        sg_tool_json_string(rehearse->reason);
    else
        fputs("null", stdout);
    printf(",\"status\":%d,\"seconds\":%.1f,\"processes\":%u,\"events\":%" PRIu64 ",\"allocations\":%" PRIu64,
           rehearse->run.status, rehearse->run.seconds, rehearse->processes, rehearse->events, rehearse->allocs);
    printf(",\"peak_requested_bytes\":%" PRIu64 ",\"peak_reserved_bytes\":%" PRIu64, rehearse->peak_requested,
           rehearse->peak_reserved);
    if (rehearse->smallest_card)
        printf(",\"smallest_card_bytes\":%" PRIu64, rehearse->smallest_card);
    else
        fputs(",\"smallest_card_bytes\":null", stdout);
    fputs(",\"cards\":[", stdout);
    for (unsigned i = 0; rehearse->outcome != SG_REHEARSE_STOPPED && i < rehearse->card_count; i++) {
        const struct sg_rehearse_card *card = &rehearse->card[i];
        printf("%s{\"bytes\":%" PRIu64 ",\"fits\":%s,\"headroom_bytes\":", i ? "," : "", card->bytes,
               card->fits ? "true" : "false");
        if (rehearse->smallest_card)
            printf("%" PRId64, (int64_t)card->bytes - (int64_t)rehearse->smallest_card);
        else
            fputs("null", stdout);
        if (card->ends_at_event)
            printf(",\"ends_at_event\":%" PRIu64 "}", card->ends_at_event);
        else
            fputs(",\"ends_at_event\":null}", stdout);
    }
    fputs("],\"served_share\":", stdout);
    if (rehearse->served_share < 0)
        fputs("null", stdout);
    else
        printf("%.6f", rehearse->served_share);
    fputs(",\"assumptions\":[", stdout);
    for (int i = 0; i < ASSUMPTIONS; i++) {
        fputs(i ? "," : "", stdout);
        sg_tool_json_string(assumptions[i]);
    }
    if (rehearse->beneath) {
        putchar(',');
        sg_tool_json_string(assumed_beneath);
    }
    puts("]}");
}

static void print_card(const struct sg_rehearse *rehearse, const struct sg_rehearse_card *card)
{
    char size[SG_SIZE_TEXT], room[SG_SIZE_TEXT], asked[SG_SIZE_TEXT], live[SG_SIZE_TEXT];
    printf("  %12s  %s", sg_size_format(card->bytes, size), card->fits ? "fits" : "does not fit");
    if (card->fits && rehearse->smallest_card)
        printf(", %s to spare", sg_size_format(card->bytes - rehearse->smallest_card, room));
    if (!card->fits && rehearse->smallest_card)
        printf(", %s short", sg_size_format(rehearse->smallest_card - card->bytes, room));
    if (card->ends_at_event)
        printf("; ends at event %" PRIu64, card->ends_at_event);
    if (card->ends_with_live)
        printf(" of %" PRIu64 ", with %s in use, asking for %s", rehearse->events,
               sg_size_format(card->ends_with_live, live), sg_size_format(card->ends_with_bytes, asked));
    putchar('\n');
}

static void print_text(const struct sg_rehearse *rehearse)
{
    char a[SG_SIZE_TEXT], b[SG_SIZE_TEXT];
    static const char *const verdicts[] = {"It completed", "It ran out of memory", "It stopped"};
    printf("%s%s%s (%.0f s).\n", verdicts[rehearse->outcome], *rehearse->reason ? ": " : "", rehearse->reason,
           rehearse->run.seconds);
    if (rehearse->processes) {
        printf("At the peak %s were in use and %s reserved%s; ", sg_size_format(rehearse->peak_requested, a),
               sg_size_format(rehearse->peak_reserved, b),
               rehearse->processes > 1 ? ", in the process with most" : "");
        printf("%" PRIu64 " allocations, %.2f %% of them served by segalloc.\n", rehearse->allocs,
               100 * rehearse->served_share);
    }
    if (rehearse->smallest_card && rehearse->outcome != SG_REHEARSE_STOPPED)
        printf("The smallest card is %s.\n", sg_size_format(rehearse->smallest_card, a));
    for (unsigned i = 0; rehearse->outcome != SG_REHEARSE_STOPPED && i < rehearse->card_count; i++)
        print_card(rehearse, &rehearse->card[i]);
    if (rehearse->outcome == SG_REHEARSE_COMPLETED && rehearse->ooms)
        printf("%" PRIu64 " allocations failed and the program went on: on another card it may do something else.\n",
               rehearse->ooms);
    if (rehearse->outcome == SG_REHEARSE_STOPPED)
        return;
    puts("Assumed:");
    for (int i = 0; i < ASSUMPTIONS; i++)
        printf("  %s\n", assumptions[i]);
    if (rehearse->beneath)
        printf("  %s\n", assumed_beneath);
}

static int read_devices(const struct sg_rehearse *rehearse, const char *text, int *ret)
{
    char *end;
    long devices = strtol(text, &end, 10);
    if (end == text || *end || devices < 1 || devices > DEVICES_MOST)
        return sg_tool_usage(rehearse->verb, "--devices takes a number from 1 to %d, not \"%s\"", DEVICES_MOST, text);
    *ret = (int)devices;
    return 0;
}

static int read_options(struct sg_rehearse *rehearse, struct sg_launch *launch, int *ret_devices, int argc,
                        char **argv)
{
    int status = 0;
    for (int option; status == 0 && (option = getopt_long(argc, argv, "+:h", long_options, NULL)) != -1;) {
        switch (option) {
        case 'C':
            status = read_cards(rehearse, optarg);
            break;
        case 'd':
            status = read_devices(rehearse, optarg, ret_devices);
            break;
        case 'c':
            launch->conf = sg_tool_conf_join(launch->conf, optarg);
            break;
        case 'j':
            rehearse->json = true;
            break;
        default:
            return sg_tool_bad_option(argv, option, long_options);
        }
    }
    if (status == 0 && optind == argc)
        status = sg_tool_usage(argv[0], "which program?");
    return status;
}

/* Where the traces of the run go. */
static bool make_folder(const struct sg_rehearse *rehearse, char folder[64])
{
    const char *temporary = getenv("TMPDIR");
    if (!temporary || strlen(temporary) > 30)
        temporary = "/tmp";
    snprintf(folder, 64, "%s/segalloc-rehearse-XXXXXX", temporary);
    if (mkdtemp(folder))
        return true;
    sg_tool_message(rehearse->verb, "no folder for the trace can be made in %s: %s", temporary, strerror(errno));
    return false;
}

static int rehearse_in(struct sg_rehearse *rehearse, struct sg_launch *launch, const char *folder, char **argv)
{
    char trace[SG_PLACE_BYTES];
    snprintf(trace, sizeof trace, "%s/%%p.trace", folder);
    launch->trace = trace;
    if (!sg_launch_prepare(launch) || !sg_rehearse_command(rehearse->verb, argv, rehearse->json, &rehearse->run))
        return SG_EXIT_ERROR;
    int status = sg_rehearse_traces(rehearse, folder);
    if (status)
        return status;
    judge(rehearse);
    (rehearse->json ? print_json : print_text)(rehearse);
    return rehearse->outcome == SG_REHEARSE_STOPPED ? SG_EXIT_ERROR : SG_EXIT_OK;
}

int sg_verb_rehearse(int argc, char **argv)
{
    struct sg_rehearse rehearse = {.verb = argv[0]};
    struct sg_launch launch = {.verb = argv[0], .preload = true};
    int devices = 1;
    char folder[64], sim[128];
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return help();
    int status = read_options(&rehearse, &launch, &devices, argc, argv);
    if (status == 0 && rehearse.card_count == 0)
        status = read_cards(&rehearse, "24GiB");
    if (status)
        return status;
    snprintf(sim, sizeof sim, "%" PRIu64 ",count=%d,at-once,drop_mb=1", rehearse.card[rehearse.card_count - 1].bytes,
        devices);
    launch.sim = sim;
    launch.command = argv + optind;
    if (!make_folder(&rehearse, folder))
        return SG_EXIT_ERROR;
    status = rehearse_in(&rehearse, &launch, folder, argv + optind);
    remove_folder(folder);
    return status;
}
