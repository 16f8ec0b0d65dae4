/* segalloc rehearse: does a program fit a card, and by how much, without a GPU. */
#include "rehearse.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <dirent.h>

#include "config.h"
#include "inputs.h"
#include "launch.h"
#include "place.h"
#include "signals.h"
#include "size.h"
#include "tool.h"

static const struct option long_options[] = {
    {"card", required_argument, NULL, 'C'},
    {"devices", required_argument, NULL, 'd'},
    {"conf", required_argument, NULL, 'c'},
    {"margin", required_argument, NULL, 'm'},
    {"no-torch", no_argument, NULL, 'T'},
    {"output", required_argument, NULL, 'o'},
    {"force", no_argument, NULL, 'f'},
    {"json", no_argument, NULL, 'j'},
    {"help", no_argument, NULL, 'h'},
    {0},
};

enum { DEVICES_MOST = 16 };
/* What the program runs on: more than any card of the others has, and than most programs can ask for. */
enum { ENDLESS_TIMES = 4 };
#define ENDLESS_LEAST SG_TIB
/* A context with the code of kernels takes some 0.3 to 0.6 GiB of a card (docs/pytorch.md). */
#define MARGIN (600 * SG_MIB)

static const struct {
    const char *name;
    uint64_t mib;
} known_cards[] = {
#define CARD(name, mib) {name, mib},
#include "cards.def"
};
enum { KNOWN_CARDS = sizeof known_cards / sizeof *known_cards };

static int help(void)
{
    puts("usage: segalloc rehearse [--card SIZE|NAME,…] [--devices N] [--conf K:V,…]\n"
         "                         [--margin SIZE] [-o TRACE] [--json] -- CMD [ARGUMENT]…\n"
         "Runs CMD on a simulated card without end, with segalloc serving its memory, and\n"
         "says for each card whether it fits, by how much, and which card is the smallest.\n"
         "PyTorch's own wheel runs as it is; kernels compute nothing. CMD is told that the\n"
         "card is the largest of those named.\n\n"
         "      --card LIST    cards to answer for (default 24GiB): sizes such as\n"
         "                     12GiB,16GiB,24GiB, or names:");
    for (int i = 0; i < KNOWN_CARDS; i++)
        printf("%s%s", i == 0 ? "                     " : i % 6 == 0 ? ",\n                     " : ", ",
            known_cards[i].name);
    puts("\n"
         "      --devices N    so many cards of each size in the machine (default 1)\n"
         "      --conf K:V,…   options of segalloc, as in segalloc run\n"
         "      --margin SIZE  of a card that is left for the context and for libraries:\n"
         "                     what leaves less is too close to call (default 600MiB)\n"
         "      --no-torch     leave PyTorch's statistics and memory functions to PyTorch,\n"
         "                     as segalloc run does without --torch\n"
         "  -o, --output TRACE keep the trace of the run; of several processes that of the\n"
         "                     first by this name, each further one as TRACE.PID\n"
         "  -f, --force        replace TRACE if it is there\n"
         "      --json         print one object on one line; CMD's own output goes to\n"
         "                     stderr\n"
         "  -h, --help         print this\n\n"
         "Exit status: 0 when every card fits (too close to call counts as fitting), 3\n"
         "when one does not, 1 when CMD stopped before there was a verdict, 2 for bad\n"
         "usage.");
    return SG_EXIT_OK;
}

static int by_bytes(const void *a, const void *b)
{
    const struct sg_rehearse_card *x = a, *y = b;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static bool card_named(const char *name, uint64_t *ret)
{
    for (int i = 0; i < KNOWN_CARDS; i++) {
        if (strcasecmp(name, known_cards[i].name) == 0) {
            *ret = known_cards[i].mib * SG_MIB;
            return true;
        }
    }
    return sg_tool_card(name, ret);
}

static int read_cards(struct sg_rehearse *rehearse, const char *list)
{
    char text[1024];
    snprintf(text, sizeof text, "%s", list);
    char *rest = text;
    for (char *item; (item = strsep(&rest, ",")) != NULL;) {
        uint64_t bytes;
        if (!card_named(item, &bytes) || bytes < 4 * SG_MIB || bytes > 16 * SG_TIB)
            return sg_tool_usage(rehearse->verb,
                "--card takes sizes from 4MiB to 16TiB such as 24GiB,40GiB, or names such as 4090, not \"%s\"", item);
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

/* That it ended with an error gives no verdict. */
static void judge_stop(struct sg_rehearse *rehearse)
{
    const struct sg_rehearse_run *run = &rehearse->run;
    char end[96];
    rehearse->outcome = SG_REHEARSE_STOPPED;
    snprintf(rehearse->reason, sizeof rehearse->reason, "%s after %" PRIu64 " events of memory%s%s%s",
        end_of(run, end), rehearse->events, *run->last_line ? ": " : "", run->last_line,
        rehearse->interrupted
            ? ""
            : ". Where that came of a result: kernels compute nothing here, and a program that decides by what "
              "they compute (samples from probabilities, checks for NaN, loops until something converges) "
              "cannot be rehearsed as it is");
}

static void judge(struct sg_rehearse *rehearse)
{
    const struct sg_rehearse_run *run = &rehearse->run;
    const struct sg_rehearse_card *largest = &rehearse->card[rehearse->card_count - 1];
    char end[96], size[SG_SIZE_TEXT], lack[SG_SIZE_TEXT];
    rehearse->interrupted =
        sg_signals_first() || run->status == 128 + SIGINT || run->status == 128 + SIGTERM || run->status == 128 + SIGHUP;
    if (rehearse->processes == 0) {
        rehearse->outcome = SG_REHEARSE_STOPPED;
        if (run->status)
            snprintf(rehearse->reason, sizeof rehearse->reason, "%s before it asked for device memory%s%s",
                end_of(run, end), *run->last_line ? ": " : "", run->last_line);
        else
            snprintf(rehearse->reason, sizeof rehearse->reason,
                     "it asked for no device memory; segalloc doctor --sim 24GiB -- CMD says why");
    } else if (run->status) {
        judge_stop(rehearse);
    } else if (!largest->fits) {
        uint64_t short_by = sg_rehearse_short_by(rehearse, largest);
        rehearse->outcome = SG_REHEARSE_OUT_OF_MEMORY;
        snprintf(rehearse->reason, sizeof rehearse->reason, "a card of %s is full%s%s",
            sg_size_format(largest->bytes, size), short_by ? ", and short by " : "",
            short_by ? sg_size_format(short_by, lack) : "");
    } else {
        rehearse->outcome = SG_REHEARSE_COMPLETED;
    }
}

static int status_of(const struct sg_rehearse *rehearse)
{
    bool all = true;
    for (unsigned i = 0; i < rehearse->card_count; i++)
        all = all && rehearse->card[i].fits;
    return rehearse->outcome == SG_REHEARSE_STOPPED ? SG_EXIT_ERROR : all ? SG_EXIT_OK : SG_EXIT_NOT_FIT;
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
    for (int option; status == 0 && (option = getopt_long(argc, argv, "+:hfo:", long_options, NULL)) != -1;) {
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
        case 'm':
            if (!sg_size_parse(optarg, &rehearse->margin) || (rehearse->margin && !sg_tool_card(optarg, &rehearse->margin)))
                return sg_tool_usage(argv[0], "--margin takes a size such as 600MiB, not \"%s\"", optarg);
            break;
        case 'T':
            launch->torch = false;
            break;
        case 'o':
            rehearse->output = optarg;
            break;
        case 'f':
            rehearse->force = true;
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

/* Puts a trace of the run where it is to stay. False after a message. */
static bool keep(const struct sg_rehearse *rehearse, const char *path, const char *name)
{
    char bytes[65536];
    int in = open(path, O_RDONLY | O_CLOEXEC), out = sg_tool_create(rehearse->verb, name, name, rehearse->force);
    ssize_t got = 0, put = 0;
    while (in >= 0 && out >= 0 && put == got && (got = read(in, bytes, sizeof bytes)) > 0)
        put = write(out, bytes, (size_t)got);
    bool good = in >= 0 && out >= 0 && got == 0;
    if (!good && out >= 0)
        sg_tool_message(rehearse->verb, "%s: %s", name, strerror(errno));
    if (in >= 0)
        close(in);
    if (out >= 0 && close(out) != 0)
        good = false;
    return good;
}

/* The process that began first has the lowest number, but for a turn of numbers. */
static bool keep_traces(const struct sg_rehearse *rehearse, const char *folder)
{
    struct dirent **entry;
    int count = scandir(folder, &entry, NULL, versionsort);
    bool good = count >= 0, named = false;
    for (int i = 0; i < count; i++) {
        char path[SG_PLACE_BYTES], name[SG_PLACE_BYTES];
        snprintf(path, sizeof path, "%s/%s", folder, entry[i]->d_name);
        snprintf(name, sizeof name, named ? "%s.%d" : "%s", rehearse->output, atoi(entry[i]->d_name));
        if (*entry[i]->d_name != '.')
            good = good && (named = keep(rehearse, path, name));
        free(entry[i]);
    }
    if (count >= 0)
        free(entry);
    return good;
}

static int rehearse_in(struct sg_rehearse *rehearse, struct sg_launch *launch, const char *folder, char **argv)
{
    char trace[SG_PLACE_BYTES], told[32], python[SG_PLACE_BYTES];
    snprintf(trace, sizeof trace, "%s/%%p.trace", folder);
    snprintf(told, sizeof told, "%" PRIu64, rehearse->card[rehearse->card_count - 1].bytes);
    launch->trace = trace;
    launch->torch = launch->torch && sg_place_python(python) && !strchr(python, ':');
    setenv("SEGALLOC_TOLD_BYTES", told, 1);
    if (!sg_launch_prepare(launch))
        return SG_EXIT_ERROR;
    if (!sg_rehearse_command(rehearse, argv, &rehearse->run))
        return SG_EXIT_ERROR;
    int status = sg_rehearse_traces(rehearse, folder);
    if (status)
        return status;
    judge(rehearse);
    (rehearse->json ? sg_rehearse_print_json : sg_rehearse_print_text)(rehearse);
    status = status_of(rehearse);
    return rehearse->output && !keep_traces(rehearse, folder) ? SG_EXIT_ERROR : status;
}

int sg_verb_rehearse(int argc, char **argv)
{
    struct sg_rehearse rehearse = {.verb = argv[0], .margin = MARGIN};
    struct sg_launch launch = {.verb = argv[0], .preload = true, .torch = true};
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
    struct sg_conf conf;
    sg_conf_init(&conf);
    if (launch.conf && sg_tool_conf_check(launch.verb, launch.conf, &conf))
        return SG_EXIT_USAGE;
    if (rehearse.output && !rehearse.force && access(rehearse.output, F_OK) == 0)
        return sg_tool_error(rehearse.verb, "%s is there already; -f replaces it", rehearse.output);
    uint64_t largest = rehearse.card[rehearse.card_count - 1].bytes, endless = ENDLESS_TIMES * largest;
    snprintf(sim, sizeof sim, "%" PRIu64 ",count=%d,at-once,drop_mb=1", endless > ENDLESS_LEAST ? endless : ENDLESS_LEAST,
        devices);
    launch.sim = sim;
    launch.command = argv + optind;
    sg_signals_hold(&rehearse.signals);
    status = SG_EXIT_ERROR;
    if (make_folder(&rehearse, folder)) {
        status = rehearse_in(&rehearse, &launch, folder, argv + optind);
        remove_folder(folder);
    }
    sg_signals_restore(&rehearse.signals);
    return status;
}
