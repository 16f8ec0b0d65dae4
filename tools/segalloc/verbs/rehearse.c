/* segalloc rehearse: does a program fit a card, and by how much, without a GPU. */
#include "rehearse/rehearse.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <dirent.h>

#include "effective_conf.h"
#include "launch/launch.h"
#include "rehearse/budget.h"
#include "rehearse/colocate.h"
#include "rehearse/keep.h"
#include "rehearse/lives.h"
#include "rehearse/relay.h"
#include "rehearse/true_size.h"
#include "install_paths.h"
#include "question.h"
#include "segalloc/trace_format.h"
#include "signals.h"
#include "size.h"
#include "tool.h"

#define CLI_VERB "rehearse"
#define CLI_ROWS "verbs/rehearse.def"
#include "cli/rows.h"

enum { DEVICES_MOST = 16 };
/* The card that the program runs on has more than any card of the others, and than most programs can ask for. */
enum { ENDLESS_TIMES = 4 };
#define ENDLESS_LEAST SG_TIB

/* With a budget the cards count where the user has named some. */
static int status_of(const struct sg_rehearse *rehearse)
{
    bool all = true;
    if (rehearse->budget && !rehearse->list)
        return rehearse->outcome == SG_REHEARSE_STOPPED ? SG_EXIT_ERROR : SG_EXIT_OK;
    for (unsigned i = 0; i < rehearse->card_count; i++)
        all = all && sg_rehearse_verdict(rehearse, &rehearse->card[i]) != SG_REHEARSE_DOES_NOT_FIT;
    return rehearse->outcome == SG_REHEARSE_STOPPED ? SG_EXIT_ERROR : all ? SG_EXIT_OK : SG_EXIT_NOT_FIT;
}

static int read_devices(struct sg_rehearse *rehearse, const char *text)
{
    char *end;
    long devices = strtol(text, &end, 10);
    if (end == text || *end || devices < 1 || devices > DEVICES_MOST)
        return sg_tool_usage(rehearse->verb, "--devices takes a number from 1 to %d, not \"%s\"", DEVICES_MOST, text);
    rehearse->devices = (int)devices;
    return 0;
}

static int read_steps(struct sg_rehearse *rehearse, const char *text)
{
    enum { STEPS_MOST = 1000000 };
    char *end;
    unsigned long steps = strtoul(text, &end, 10);
    rehearse->steady = strcmp(text, "steady") == 0;
    if (rehearse->steady)
        return 0;
    if (*text < '0' || *text > '9' || *end || steps < 1 || steps > STEPS_MOST)
        return sg_tool_usage(rehearse->verb, "--steps takes a number from 1 to %d, or steady, not \"%s\"", STEPS_MOST,
            text);
    rehearse->steps = steps;
    return 0;
}

/* Options of which more than the rehearsal of one command is asked, as they were written; NULL: not given. */
struct more_options {
    char *values, *with, *rate;
    struct sg_budget budget;
};

static int rehearse_read_options(struct sg_cli *cli, struct sg_rehearse *rehearse, struct sg_launch *launch,
    struct more_options *ret)
{
    int status = 0;
    for (int option; status == 0 && (option = sg_cli_next(cli)) >= 0;) {
        switch ((enum option_of_verb)option) {
        case OPTION_card:
            rehearse->list = optarg;
            status = sg_rehearse_read_cards(rehearse, optarg);
            break;
        case OPTION_devices:
            status = read_devices(rehearse, optarg);
            break;
        case OPTION_conf:
            launch->conf = sg_tool_conf_join(launch->conf, optarg);
            break;
        case OPTION_margin:
            status = sg_rehearse_read_margin(rehearse, optarg);
            break;
        case OPTION_try:
            ret->values = optarg;
            break;
        case OPTION_with:
            ret->with = optarg;
            break;
        case OPTION_overflow:
            status = sg_rehearse_read_overflow(rehearse, optarg);
            break;
        case OPTION_rate:
            ret->rate = optarg;
            break;
        case OPTION_budget:
            ret->budget.held_against = optarg;
            break;
        case OPTION_write_budget:
            ret->budget.written_to = optarg;
            break;
        case OPTION_no_torch:
            launch->torch = false;
            break;
        case OPTION_steps:
            status = read_steps(rehearse, optarg);
            break;
        case OPTION_overwrite:
            rehearse->overwrite = true;
            break;
        case OPTION_trackers:
            rehearse->trackers = true;
            break;
        case OPTION_output:
            rehearse->output = optarg;
            break;
        case OPTION_force:
            rehearse->force = true;
            break;
        case OPTION_json:
            rehearse->json = true;
            break;
        }
    }
    if (cli->status)
        return cli->status;
    if (status == 0 && optind == cli->argc)
        status = sg_tool_usage(cli->argv[0], "which program?");
    return status;
}

static int read_with(struct sg_rehearse *rehearse, const struct more_options *more, struct sg_colocation *ret)
{
    ret->with = more->with;
    if (more->values)
        return sg_tool_usage(rehearse->verb, "--with is of one command, and --try makes several of it");
    if (rehearse->devices > 1)
        return sg_tool_usage(rehearse->verb, "--with is of one card, and --devices says %d", rehearse->devices);
    if (rehearse->overflow)
        return sg_tool_usage(rehearse->verb,
            "--with counts what stays on the card, and --overflow what leaves it: not both");
    return 0;
}

/* Another device is one that the command sees too. */
static int check_overflow(const struct sg_rehearse *rehearse)
{
    if (rehearse->overflow_peer && rehearse->devices < 2)
        return sg_tool_usage(rehearse->verb, "--overflow peer needs another device: --devices 2");
    return 0;
}

/* A budget is of one program. */
static int begin_budget(struct sg_rehearse *rehearse, struct more_options *more)
{
    if (!more->budget.held_against && !more->budget.written_to)
        return 0;
    if (more->values || more->with)
        return sg_tool_usage(rehearse->verb, "a budget is of one command, and %s makes several of it",
            more->values ? "--try" : "--with");
    more->budget.replaces = rehearse->force;
    rehearse->budget = &more->budget;
    return sg_budget_begin(rehearse->verb, &more->budget);
}

static const char *temporary_folder(void)
{
    const char *temporary = getenv("TMPDIR");
    return temporary && *temporary == '/' && strlen(temporary) <= 30 && !strchr(temporary, ',') ? temporary : "/tmp";
}

/* Where the traces of the run go. */
static bool make_folder(const struct sg_rehearse *rehearse, char folder[64])
{
    const char *temporary = temporary_folder();
    snprintf(folder, 64, "%s/segalloc-rehearse-XXXXXX", temporary);
    if (mkdtemp(folder))
        return true;
    sg_tool_message(rehearse->verb, "no folder for the trace can be made in %s: %s", temporary, strerror(errno));
    return false;
}

/* PyTorch's functions that need its own allocator note so in this file, where --torch has replaced it. So does the
   library where the program needs other settings ("conf ipc:always"). The library and the simulator note in it that the
   program asks how much memory there is ("asks card", "asks machine"). Each tensor that is sent to another process is there by its
   bytes ("sent 1048576"). */
static void needs_path(const char *folder, char path[SG_PLACE_BYTES])
{
    snprintf(path, SG_PLACE_BYTES, "%s/" SIM_QUESTION_FILE, folder);
}

static void read_needs(struct sg_rehearse *rehearse, const char *folder)
{
    char path[SG_PLACE_BYTES];
    needs_path(folder, path);
    FILE *file = fopen(path, "r");
    if (!file)
        return;
    char line[80];
    while (fgets(line, sizeof line, file)) {
        static const char conf[] = "conf ";
        bool settings = strncmp(line, conf, sizeof conf - 1) == 0, sent = strncmp(line, "sent ", 5) == 0;
        line[strcspn(line, "\n")] = '\0';
        bool machine = strcmp(line, SIM_QUESTION_WORD) == 0, question = machine || strcmp(line, "asks card") == 0;
        rehearse->asks |= question;
        rehearse->asks_machine |= machine;
        rehearse->sent_bytes += sent ? strtoull(line + 5, NULL, 10) : 0;
        if (settings &&
            strlen(line) > sizeof conf - 1 + strlen(rehearse->needs_conf)) /* the longer has all that the other has */
            snprintf(rehearse->needs_conf, sizeof rehearse->needs_conf, "%s", line + sizeof conf - 1);
        else if (!settings && !question && !sent && !*rehearse->needs_own)
            snprintf(rehearse->needs_own, sizeof rehearse->needs_own, "%.63s", line);
    }
    fclose(file);
}

/* Says before the start what becomes of files. *ret_watches: the program can be watched. False after a line on
   stderr. */
static bool set_files(const struct sg_rehearse *rehearse, const char *folder, struct sg_keep *keep, bool *ret_watches)
{
    *ret_watches = sg_keep_possible();
    *keep = (struct sg_keep){.verb = rehearse->verb, .keeps = *ret_watches && !rehearse->overwrite};
    snprintf(keep->run, sizeof keep->run, "%s", folder);
    if (keep->keeps && !sg_kept_begin(keep, folder))
        return false;
    static bool said; /* once for all values of --try */
    const char *loggers = rehearse->trackers ? "on" : "off";
    if (said)
        return true;
    said = true;
    if (keep->keeps)
        sg_tool_message(rehearse->verb,
            "what CMD writes is not real: files that are there will be as they were, new ones stay; loggers are %s", loggers);
    else
        sg_tool_message(rehearse->verb,
            "what CMD writes is not real, and %s files that are there: give it a folder of its own; loggers are %s",
            rehearse->overwrite ? "--overwrite lets it write over" : "this system can't keep it from writing over", loggers);
    return true;
}

/* Processes that the command has left behind. A signal ends them, and is none that cuts the playing short. */
static void wait_for_left(struct sg_rehearse *rehearse, struct sg_lives *lives)
{
    struct sg_rehearse_run *run = &rehearse->run;
    bool before = sg_signals_first();
    rehearse->left = sg_lives_wait(lives);
    run->signals = sg_signals_count();
    rehearse->wait_cut = !before && run->signals > 0;
    sg_relay_last_line(run->relay, run->last_line);
}

static int rehearse_in(struct sg_rehearse *rehearse, struct sg_launch *launch, const char *folder)
{
    struct sg_keep keep;
    bool watches;
    char trace[SG_PLACE_BYTES], python[SG_PLACE_BYTES], needs[SG_PLACE_BYTES];
    snprintf(trace, sizeof trace, "%s/%%p-%%r.trace", folder);
    launch->trace = trace;
    launch->command = rehearse->command;
    launch->torch = launch->torch && sg_place_python(python) && !strchr(python, ':');
    needs_path(folder, needs);
    setenv("SEGALLOC_REHEARSAL_NEEDS", needs, 1);
    sg_rehearse_set_environment(rehearse, folder);
    const char *machine = launch->sim;
    char sim[512];
    snprintf(sim, sizeof sim, "%s,peaks=%s", machine, folder);
    launch->sim = sim;
    bool prepared = set_files(rehearse, folder, &keep, &watches) && sg_launch_prepare(launch);
    launch->sim = machine;
    if (!prepared)
        return SG_EXIT_ERROR;
    struct sg_lives lives;
    sg_lives_begin(&lives, folder);
    bool ran = sg_rehearse_command(rehearse, watches ? &keep : NULL, &rehearse->run);
    if (ran)
        wait_for_left(rehearse, &lives);
    sg_lives_end(&lives);
    int status = ran ? sg_rehearse_traces(rehearse, folder, &lives) : SG_EXIT_ERROR;
    sg_lives_free(&lives);
    if (status == 0) {
        sg_rehearse_judge(rehearse);
        read_needs(rehearse, folder);
        if (rehearse->sent_bytes) /* PyTorch alone has no copies */
            rehearse->alone.pytorch = rehearse->alone.pytorch_expandable = 0;
    }
    return status;
}

/* True if the run came upon what --torch replaces, and another without it may do better. */
static bool needs_no_torch(const struct sg_rehearse *rehearse, const struct sg_launch *launch)
{
    return *rehearse->needs_own && launch->torch && !rehearse->interrupted;
}

/* True if it gave memory to another process by a legacy handle that could not be had. One that was run with the
   settings for that needs no other. */
static bool needs_settings(const struct sg_rehearse *rehearse)
{
    return *rehearse->needs_conf && !rehearse->given_conf && !rehearse->interrupted;
}

static bool needs_another(const struct sg_rehearse *rehearse, const struct sg_launch *launch)
{
    return needs_no_torch(rehearse, launch) || needs_settings(rehearse);
}

/* Runs the command once. `keeps`: its trace is the one to be kept. 0, or an exit status after a line on stderr; without
   a verdict then. */
static int rehearse_once(struct sg_rehearse *rehearse, struct sg_launch *launch, bool keeps)
{
    char folder[64];
    if (!make_folder(rehearse, folder))
        return SG_EXIT_ERROR;
    int status = rehearse_in(rehearse, launch, folder);
    if (status == 0 && keeps && !needs_another(rehearse, launch) && rehearse->output &&
        !sg_rehearse_keep_traces(rehearse, folder))
        status = SG_EXIT_ERROR;
    if (!rehearse->overwrite && !sg_kept_end(rehearse->verb, folder))
        return status;
    if (status == 0 && keeps && rehearse->traces_to && !needs_another(rehearse, launch))
        memcpy(rehearse->traces_to, folder, sizeof folder); /* the caller's to drop */
    else
        sg_kept_drop(folder);
    return status;
}

static int rehearse_with_settings(struct sg_rehearse *rehearse, struct sg_launch *launch,
    const struct sg_rehearse *before)
{
    char needs[sizeof rehearse->needs_conf];
    memcpy(needs, rehearse->needs_conf, sizeof needs);
    sg_tool_message(rehearse->verb,
        "memory is given to another process by a legacy handle: running it once more with %s", needs);
    *rehearse = *before;
    memcpy(rehearse->needs_conf, needs, sizeof needs);
    launch->conf = sg_tool_conf_join(launch->conf, needs);
    rehearse->given_conf = true;
    return rehearse_once(rehearse, launch, true);
}

/* The run on a card without end, and those that it makes necessary. A PyTorch before 2.9 has no pools beside --torch,
   so a program that makes one runs once more without it. */
static int rehearse_all(struct sg_rehearse *rehearse, struct sg_launch *launch)
{
    struct sg_rehearse before = *rehearse;
    int status = rehearse_once(rehearse, launch, true);
    if (status == 0 && needs_no_torch(rehearse, launch)) {
        sg_tool_message(rehearse->verb, "%s needs PyTorch's own allocator: running it once more with that, as by --no-torch",
            rehearse->needs_own);
        sg_launch_leave_torch(launch);
        *rehearse = before;
        status = rehearse_once(rehearse, launch, true);
    }
    const char *conf = launch->conf;
    if (status == 0 && needs_settings(rehearse))
        status = rehearse_with_settings(rehearse, launch, &before);
    if (status == 0)
        status = sg_rehearse_true_sizes(rehearse, launch, rehearse_once, sg_rehearse_judge);
    launch->conf = conf;
    return status;
}

/* Holds the run against its budget, and writes one. Returns the exit status, which was `status` without. */
static int rehearse_budget(const struct sg_rehearse *rehearse, int status)
{
    json_t *compared = sg_budget_compare(rehearse);
    if (!rehearse->json && !json_is_null(compared))
        sg_budget_print(compared);
    if (status == SG_EXIT_OK && sg_budget_is_over(compared))
        status = SG_EXIT_NOT_FIT;
    if (status == SG_EXIT_OK && !json_is_null(compared) && !sg_budget_is_known(rehearse))
        status = SG_EXIT_ERROR;
    json_decref(compared);
    int written = sg_budget_write(rehearse);
    return written ? written : status;
}

static int rehearse_command(struct sg_rehearse *rehearse, struct sg_launch *launch)
{
    int status = rehearse_all(rehearse, launch);
    if (status)
        return status;
    if (rehearse->json)
        sg_json_print(sg_rehearse_json(rehearse));
    else
        sg_rehearse_print_text(rehearse);
    status = status_of(rehearse);
    return rehearse->budget ? rehearse_budget(rehearse, status) : status;
}

static bool fits_all(const struct sg_rehearse *rehearse)
{
    bool all = true;
    for (unsigned i = 0; i < rehearse->card_count; i++) {
        enum sg_rehearse_verdict verdict = sg_rehearse_verdict(rehearse, &rehearse->card[i]);
        all = all && (verdict == SG_REHEARSE_FITS || verdict == SG_REHEARSE_FITS_WITH_OVERFLOW);
    }
    return all && rehearse->outcome != SG_REHEARSE_STOPPED;
}

static void print_untried(const struct sg_rehearse_try *values, unsigned tried)
{
    if (tried < values->count)
        printf("Not tried after the first that fits: %s ", values->name);
    for (unsigned i = tried; i < values->count; i++)
        printf("%s%s", values->value[i], i + 1 < values->count ? ", " : ".\n");
}

/* Runs one value after the other, until one fits. A value nearer than the margin counts where no other does. */
static int rehearse_values(const struct sg_rehearse *base, struct sg_launch *launch, struct sg_rehearse_try *values)
{
    struct sg_rehearse rehearse = *base;
    int status = 0, end = SG_EXIT_NOT_FIT, best = -1;
    unsigned tried = 0;
    bool done = false;
    json_t *tried_json = sg_json_array();
    bool fits = false;
    for (unsigned i = 0; !done && (values->range ? sg_rehearse_try_next(values, fits) : i < values->count); i++) {
        rehearse = *base;
        rehearse.command = sg_rehearse_try_command(values, base->command, values->value[i]);
        rehearse.force = base->force || i > 0;
        status = rehearse_all(&rehearse, launch);
        if (status) {
            sg_rehearse_try_free(rehearse.command);
            json_decref(tried_json);
            return status;
        }
        int verdict = status_of(&rehearse);
        if (verdict == SG_EXIT_OK && best < 0)
            best = (int)i;
        fits = fits_all(&rehearse);
        if (fits)
            best = (int)i;
        if (verdict == SG_EXIT_ERROR)
            end = SG_EXIT_ERROR;
        done = (values->range ? verdict == SG_EXIT_ERROR : fits) || rehearse.interrupted;
        tried = i + 1;
        char written[256];
        sg_rehearse_try_format(values, base->command, values->value[i], written, sizeof written);
        if (base->json) {
            json_t *value = sg_json_object(NULL);
            sg_json_set_text(value, "value", values->value[i]);
            sg_json_set(value, "result", sg_rehearse_json(&rehearse));
            sg_json_add(tried_json, value);
        } else {
            printf("%s: ", written);
            sg_rehearse_print_line(&rehearse);
            fflush(stdout);
        }
        sg_rehearse_try_free(rehearse.command);
    }
    if (base->json) {
        json_t *result = sg_json_object("segalloc.rehearse.try/1");
        sg_json_set_text(result, "name", values->name);
        sg_json_set(result, "tried", json_incref(tried_json));
        sg_json_set_text(result, "fits", best < 0 ? NULL : values->value[best]);
        sg_json_print(result);
    } else if (best >= 0) {
        rehearse.command = sg_rehearse_try_command(values, base->command, values->value[best]);
        char between[128];
        print_untried(values, tried);
        if (values->range && !done)
            printf("%s %s is the largest that fits.\n", values->name, values->value[best]);
        else if (sg_rehearse_try_between(values, base->command, (unsigned)best, between, sizeof between))
            printf("Larger ones were not tried: --try %s finds the largest that fits.\n", between);
        sg_rehearse_print_divisor(sg_rehearse_try_divisor(values, base->command, values->value[best]));
        sg_rehearse_print_next(&rehearse, true);
        sg_rehearse_try_free(rehearse.command);
    } else if (!rehearse.interrupted) {
        puts("None of them fits.");
    }
    json_decref(tried_json);
    return best >= 0 ? SG_EXIT_OK : end;
}

static int colocation_status(struct sg_rehearse *const program[2], const struct sg_colocation *colocation)
{
    bool all = true;
    for (unsigned i = 0; i < program[0]->card_count; i++)
        all &= sg_colocate_verdict(program[0], &colocation->pause, &program[0]->card[i]) != SG_REHEARSE_DOES_NOT_FIT;
    return !colocation->known ? SG_EXIT_ERROR : all ? SG_EXIT_OK : SG_EXIT_NOT_FIT;
}

/* Rehearses the command and the one of --with, each by itself, and says what both need on one card. */
static int rehearse_both(struct sg_rehearse *rehearse, struct sg_launch *launch, struct sg_colocation *colocation)
{
    char shell[] = "/bin/sh", line[] = "-c";
    char *other_command[] = {shell, line, colocation->with, NULL};
    struct sg_rehearse *other = malloc(sizeof *other);
    struct sg_rehearse *const program[2] = {rehearse, other};
    if (!other)
        return sg_tool_error(rehearse->verb, "no host memory left");
    *other = *rehearse;
    other->command = other_command;
    other->output = NULL;
    int status = 0;
    for (int i = 0; i < 2 && status == 0; i++) {
        struct sg_launch own = *launch; /* the other may need other settings */
        program[i]->traces_to = colocation->folder[i];
        status = rehearse_all(program[i], &own);
    }
    if (status == 0)
        status = sg_colocate_find(program, colocation);
    for (int i = 0; i < 2; i++)
        if (*colocation->folder[i])
            sg_kept_drop(colocation->folder[i]);
    if (status == 0 && rehearse->json) {
        json_t *result = sg_rehearse_json(rehearse);
        sg_json_set(result, "colocation", sg_colocate_json(rehearse, colocation));
        sg_json_print(result);
    } else if (status == 0) {
        sg_colocate_print_text(program, colocation);
    }
    if (status == 0)
        status = colocation_status(program, colocation);
    free(other);
    return status;
}

/* Everything but the reading of the command line; `values`: of --try, or NULL. */
static int rehearse_with(struct sg_rehearse *rehearse, struct sg_launch *launch, struct sg_rehearse_try *values,
    struct sg_colocation *colocation)
{
    struct sg_conf conf;
    char sim[256];
    sg_conf_init(&conf);
    if (sg_tool_conf_check(launch->verb, launch->conf, &conf))
        return SG_EXIT_USAGE;
    if (rehearse->output && !rehearse->force && access(rehearse->output, F_OK) == 0)
        return sg_tool_error(rehearse->verb, "%s is there already; -f replaces it", rehearse->output);
    const struct sg_rehearse_card *largest = &rehearse->card[rehearse->card_count - 1];
    uint64_t endless = ENDLESS_TIMES * largest->bytes;
    rehearse->endless_bytes = endless > ENDLESS_LEAST ? endless : ENDLESS_LEAST;
    sg_rehearse_sim_text(sim, sizeof sim, rehearse->endless_bytes, rehearse->devices, largest->name,
        SG_REHEARSE_ENDLESS, NULL);
    launch->sim = sim;
    sg_kept_recover(rehearse->verb, temporary_folder());
    sg_signals_hold(&rehearse->signals);
    int status = values             ? rehearse_values(rehearse, launch, values)
                 : colocation->with ? rehearse_both(rehearse, launch, colocation)
                                    : rehearse_command(rehearse, launch);
    if (sg_signals_any_child())
        sg_keep_leave();
    sg_signals_restore(&rehearse->signals);
    sg_relay_leave();
    return status;
}

int sg_verb_rehearse(int argc, char **argv)
{
    struct sg_cli cli;
    struct sg_rehearse rehearse = {.verb = argv[0], .margin = SG_REHEARSE_MEASURED, .devices = 1};
    struct sg_launch launch = {.verb = argv[0], .preload = true, .torch = true};
    struct sg_rehearse_try values = {.count = 0};
    struct sg_colocation colocation = {.known = false};
    struct more_options more = {.values = NULL};
    if (!sg_cli_begin(&cli, &cli_verb, argc, argv))
        return SG_EXIT_OK;
    int status = rehearse_read_options(&cli, &rehearse, &launch, &more);
    if (status == 0 && rehearse.card_count == 0)
        status = sg_rehearse_read_cards(&rehearse, "24GiB");
    if (status == 0 && more.with)
        status = read_with(&rehearse, &more, &colocation);
    else if (status == 0 && more.rate && !rehearse.overflow)
        status = sg_tool_usage(rehearse.verb, "--rate is of --with and of --overflow");
    if (status == 0)
        status = sg_rehearse_read_rate(rehearse.verb, more.rate, &rehearse.rate);
    if (status == 0)
        status = check_overflow(&rehearse);
    if (status == 0)
        status = begin_budget(&rehearse, &more);
    if (status == 0 && more.values)
        status = sg_rehearse_try_read(rehearse.verb, more.values, argv + optind, &values);
    if (status) {
        sg_rehearse_try_end(&values);
        sg_budget_free(&more.budget);
        return status;
    }
    sg_rehearse_set_margins(&rehearse);
    launch.conf = launch.conf ? sg_tool_conf_join("sites:True", launch.conf) : "sites:True";
    rehearse.command = argv + optind;
    status = rehearse_with(&rehearse, &launch, more.values ? &values : NULL, &colocation);
    sg_rehearse_try_end(&values);
    sg_budget_free(&more.budget);
    return status;
}
