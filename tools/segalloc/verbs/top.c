/* segalloc top: what running processes hold, again and again. */
#include "monitor/top.h"

#include <errno.h>
#include <getopt.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tool.h"

#ifdef SG_HAVE_CURSES
#include <curses.h>

#define CLI_VERB "top"
#define CLI_ROWS "verbs/top.def"
#include "cli/rows.h"
#endif

enum { WIDTH_LEAST = 40, WIDTH = 80 };

struct arguments {
    const char *verb;
    bool once, batch, json;
    uint64_t looks; /* 0: until it is told to end */
    double delay_s;
    uint64_t *pids;
    size_t count;
};

static volatile sig_atomic_t ended;

static void top_end(int number)
{
    (void)number;
    ended = 1;
}

static int top_read_arguments(struct sg_cli *cli, struct arguments *ret)
{
    for (int option; (option = sg_cli_next(cli)) >= 0;) {
        char *tail;
        switch ((enum option_of_verb)option) {
        case OPTION_once:
            ret->once = true;
            break;
        case OPTION_batch:
            ret->batch = true;
            break;
        case OPTION_json:
            ret->json = true;
            break;
        case OPTION_count:
            ret->looks = strtoull(optarg, &tail, 10);
            if (tail == optarg || *tail || *optarg == '-' || !ret->looks)
                return sg_tool_usage(ret->verb, "--count takes a number from 1 on, not \"%s\"", optarg);
            break;
        case OPTION_delay:
            ret->delay_s = strtod(optarg, &tail);
            if (tail == optarg || *tail || !(ret->delay_s >= 0.05 && ret->delay_s <= 3600))
                return sg_tool_usage(ret->verb, "--delay takes seconds from 0.05 to 3600, not \"%s\"", optarg);
            break;
        }
    }
    if (cli->status)
        return cli->status;
    if (ret->once && ret->batch)
        return sg_tool_usage(ret->verb, "either --once or --batch");
    ret->count = (size_t)(cli->argc - optind);
    ret->pids = calloc(ret->count + 1, sizeof *ret->pids);
    for (size_t i = 0; ret->pids && i < ret->count; i++)
        if (!sg_live_pid(cli->argv[(size_t)optind + i], &ret->pids[i]))
            return sg_tool_usage(ret->verb, "\"%s\" is no process id", cli->argv[(size_t)optind + i]);
    return ret->pids ? 0 : sg_tool_error(ret->verb, "out of memory");
}

/* One look. 0 or -ENOMEM; the caller frees `live` in either case. */
static int top_look(const struct arguments *arguments, struct sg_top *top, struct sg_live *live)
{
    int error = sg_live_read(arguments->pids, arguments->count, live);
    return error ? error : sg_top_add(top, live);
}

static int width_of(int fd)
{
    struct winsize size;
    const char *columns = getenv("COLUMNS");
    int width = ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : columns ? atoi(columns) : 0;
    return width <= 0 ? WIDTH : width < WIDTH_LEAST ? WIDTH_LEAST : width;
}

static bool speaks_unicode(void)
{
    setlocale(LC_CTYPE, "");
    return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

/* Looks as lines. */
static int print_looks(const struct arguments *arguments, bool unicode)
{
    struct sg_top top = {0};
    int status = SG_EXIT_OK;
    for (uint64_t i = 0; !ended && !status; i++) {
        struct sg_live live;
        if (i)
            (void)poll(NULL, 0, (int)(arguments->delay_s * 1000));
        if (ended)
            break;
        if (top_look(arguments, &top, &live) < 0)
            status = sg_tool_error(arguments->verb, "out of memory");
        else if (arguments->json)
            sg_top_json(&live);
        else
            sg_top_text(stdout, &top, &live, width_of(STDOUT_FILENO), unicode);
        if (!arguments->batch && arguments->count && live.count < arguments->count && !status)
            status = sg_tool_error(arguments->verb,
                "%zu of the processes %s no live statistics: start them with live:True", arguments->count - live.count,
                arguments->count - live.count == 1 ? "keeps" : "keep");
        sg_live_free(&live);
        if (arguments->batch && !arguments->json)
            putchar('\n');
        if (fflush(stdout) != 0)
            break;
        if (arguments->looks ? i + 1 == arguments->looks : !arguments->batch)
            break;
    }
    sg_top_free(&top);
    return status;
}

#ifdef SG_HAVE_CURSES

/* Draws lines of text from line `first` on. Returns how many lines there are. */
static int top_draw(char *text, int first)
{
    int line = 0, row = 0;
    erase();
    for (char *at = text, *next; at && *at; at = next, line++) {
        next = strchr(at, '\n');
        if (next)
            *next++ = '\0';
        /* The headings stay. */
        if (line >= 2 && line < 2 + first)
            continue;
        if (row >= LINES)
            continue;
        if (line == 1)
            attron(A_BOLD);
        mvaddnstr(row++, 0, at, -1);
        attroff(A_BOLD);
    }
    refresh();
    return line;
}

/* Waits for the next look. False: it shall end. */
static bool wait_keys(const struct arguments *arguments, int *first, int lines)
{
    int most = lines > LINES ? lines - LINES : 0;
    timeout((int)(arguments->delay_s * 1000));
    switch (getch()) {
    case 'q':
    case 'Q':
        return false;
    case KEY_DOWN:
        *first += *first < most;
        break;
    case KEY_UP:
        *first -= *first > 0;
        break;
    case KEY_NPAGE:
        *first = *first + LINES / 2 < most ? *first + LINES / 2 : most;
        break;
    case KEY_PPAGE:
        *first = *first > LINES / 2 ? *first - LINES / 2 : 0;
        break;
    default:
        break;
    }
    return !ended;
}

static int top_show(const struct arguments *arguments, bool unicode)
{
    struct sg_top top = {0};
    SCREEN *screen = newterm(NULL, stdout, stdin);
    if (!screen)
        return sg_tool_error(arguments->verb, "this terminal is of no known kind (TERM); --batch needs none");
    cbreak();
    noecho();
    keypad(stdscr, true);
    (void)curs_set(0);
    int first = 0, error = 0;
    uint64_t looks = 0;
    for (bool on = true; on && !ended && !error;) {
        struct sg_live live;
        char *text = NULL;
        size_t size;
        error = top_look(arguments, &top, &live);
        FILE *out = error ? NULL : open_memstream(&text, &size);
        if (out) {
            sg_top_text(out, &top, &live, COLS < WIDTH_LEAST ? WIDTH_LEAST : COLS, unicode);
            error = fclose(out) == 0 ? 0 : -ENOMEM;
        }
        sg_live_free(&live);
        int lines = text && !error ? top_draw(text, first) : 0;
        free(text);
        on = ++looks != arguments->looks && wait_keys(arguments, &first, lines);
    }
    endwin();
    delscreen(screen);
    sg_top_free(&top);
    return error ? sg_tool_error(arguments->verb, "out of memory") : SG_EXIT_OK;
}

#else

static int top_show(const struct arguments *arguments, bool unicode)
{
    struct arguments batch = *arguments;
    batch.batch = true; /* built without ncurses */
    return print_looks(&batch, unicode);
}

#endif

int sg_verb_top(int argc, char **argv)
{
    struct sg_cli cli;
    struct arguments arguments = {.verb = argv[0], .delay_s = 1};
    if (!sg_cli_begin(&cli, &cli_verb, argc, argv))
        return SG_EXIT_OK;
    int status = top_read_arguments(&cli, &arguments);
    if (!status) {
        const struct sigaction action = {.sa_handler = top_end};
        sigaction(SIGINT, &action, NULL);
        sigaction(SIGTERM, &action, NULL);
        sigaction(SIGHUP, &action, NULL);
        bool unicode = speaks_unicode(), lines = arguments.once || arguments.batch || arguments.json;
        status = lines || !isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO) ? print_looks(&arguments, unicode)
                                                                          : top_show(&arguments, unicode);
    }
    free(arguments.pids);
    return status;
}
