/* A rehearsal: one run of a program on a simulated card without end. Then its life is played on the cards that were
   asked about. cards.c plays that life; replay/smallest_card.c looks for the smallest card. */
#ifndef SG_REHEARSE_H
#define SG_REHEARSE_H

#include <stdbool.h>
#include <stdint.h>

#include "analysis/far.h"
#include "analysis/roles.h"
#include "analysis/searches.h"
#include "json.h"
#include "outside.h"
#include "player.h"
#include "rehearse/budget.h"
#include "rehearse/rate.h"
#include "signals.h"
#include "site.h"

/* Out of memory: on the largest of the cards, which is the one that the program is told of. Stopped: it ended with
   another error, or was told to end. */
enum sg_rehearse_outcome { SG_REHEARSE_COMPLETED, SG_REHEARSE_OUT_OF_MEMORY, SG_REHEARSE_STOPPED };

enum sg_rehearse_verdict {
    SG_REHEARSE_FITS,
    SG_REHEARSE_TOO_CLOSE,
    SG_REHEARSE_DOES_NOT_FIT,
    SG_REHEARSE_FITS_WITH_OVERFLOW /* and not without */
};

enum { SG_REHEARSE_CARDS = 32, SG_REHEARSE_TEXT = 512, SG_REHEARSE_IN_USE = 5 };
#define SG_REHEARSE_MEASURED UINT64_MAX

/* Blocks in use that one line asked for, or that are of one size. */
struct sg_rehearse_in_use {
    uint64_t bytes, blocks; /* 0: there is no such group */
    char site[SG_SITE_TEXT];
};

/* Memory that a device had in use at one moment. All zero: not known. */
struct sg_rehearse_held {
    struct sg_rehearse_in_use group[SG_REHEARSE_IN_USE]; /* the largest, largest first */
    uint64_t bytes, blocks;                              /* of all groups */
    struct sg_roles roles;
};

/* Memory of a run that lay elsewhere, by the option overflow, and what work has touched of it. */
struct sg_rehearse_overflow {
    struct sg_far far;
    uint64_t link_bytes; /* touched over the link, as far as it is known */
    uint64_t untold;     /* kernels that did not say what they touch, while there was any */
};

struct sg_rehearse_card {
    uint64_t bytes;
    const char *name;          /* in cards.def; NULL: the user said the size */
    uint64_t margin;           /* of it that is left for the context and for libraries, bytes */
    bool estimated;            /* … which is other cards' figure, since none is known of this one */
    bool fits;                 /* every allocation does */
    bool caught;               /* a caller of what did not fit has a handler for that */
    bool ran;                  /* the program ran on a card of this size, and came to its end */
    bool adapted;              /* … because it makes do with less there */
    bool turns;   /* it was run, and came to its end, though its processes need more together: they took turns */
    bool ran_out; /* it came to none: smaller ones are too small as well */
    bool tried;   /* it was run there, and nothing of that changed what a replay had said */
    bool asked;   /* … or it was run for the question how much memory there is: what came of that holds */
    uint64_t ran_smallest;                  /* what it took there, bytes */
    char last_line[SG_REHEARSE_TEXT];       /* that it wrote there to stderr where it came to no good end; "" */
    uint64_t adapted_refused, adapted_ooms; /* calls for memory that were refused there; those of them that failed */
    bool open;                 /* whether they do is not known: the user has cut the playing short */
    struct sg_rehearse_overflow overflow; /* of the run with overflow that came to its end here; no far bytes: there is none */
    uint64_t ends_at_event;    /* of the process that ran out first; 0: none did, or it is not known */
    uint64_t of_events;        /* that the process has in all */
    uint64_t ends_with_bytes;  /* what it asked for there */
    uint64_t ends_with_live;   /* what it held then */
    uint64_t ends_with_outside; /* what was held by other calls then */
    enum segalloc_outside ends_by; /* the call that it was asked by; OTHER: one that segalloc serves */
    uint64_t ends_short_by;    /* what was missing for that allocation alone, bytes; 0: not known */
    char site[SG_SITE_TEXT], phase[SG_SITE_TEXT]; /* where that was; "": not known */
    struct sg_rehearse_held held;                 /* then */
};

/* Processes by how they ended (ends.h has the rule). */
struct sg_rehearse_ends {
    unsigned good;           /* asked for memory, and ended well */
    unsigned errors;         /* ended with an error, though no call of theirs stays refused */
    unsigned stopped;        /* of those: had asked for memory */
    unsigned killed;         /* another process ended them */
    unsigned lost;           /* by a call that stays refused */
    unsigned cut_off;        /* of those that another ended: a call of theirs stays refused */
    unsigned good_after;     /* of the good ones: began after the last that did not end well */
    bool overlap;            /* some were there at once */
    bool own_is_good;        /* there was one only, and it ended well */
    struct sg_search search; /* of all, where they were there one after the other; else nothing */
};

struct sg_relay;
/* How the command itself ended. */
struct sg_rehearse_run {
    int status;                       /* as a shell would say it */
    char last_line[SG_REHEARSE_TEXT]; /* the last that it, or what it left behind, wrote to stderr, "" */
    struct sg_relay *relay; /* which has that line, and is there until the tool ends */
    double seconds;
    long process;  /* the command's own number: what ends that is `status` */
    bool too_long; /* it was ended after `most_seconds` */
    bool watched;  /* each process's end has been noted */
    int signals; /* that had come to the tool before the playing: another ends that */
};

/* Smallest cards by three sets of rules, bytes; 0: not known. */
struct sg_rehearse_alone {
    uint64_t pytorch, pytorch_expandable, segalloc;
};

struct sg_rehearse {
    const char *verb, *output; /* -o, NULL */
    bool json, force;
    double most_seconds;       /* after which the command is ended; 0: it is not */
    unsigned long steps;       /* of an optimizer, after which the program is ended; 0: it ends by itself */
    bool steady;               /* or once some steps have raised no peak */
    bool overwrite;            /* files that are there may be written over */
    bool trackers;             /* loggers of experiments stay on */
    char *traces_to;           /* 64 bytes: gets the folder in which the traces of the run stay, with --with; NULL */
    uint64_t margin;           /* that --margin says, bytes; SG_REHEARSE_MEASURED: as the table of cards has it */
    const char *list;          /* as the user wrote --card; NULL */
    int devices;               /* of each card in the machine */
    char *overflow;            /* setting with which cards are tried that are too small; NULL: none are */
    bool overflow_peer;        /* it names another device */
    const char *overflow_where; /* "of the host's memory", or what it names */
    struct sg_rehearse_rate rate;
    struct sg_budget *budget;        /* NULL: nobody asks for one */
    struct sg_rehearse_overflow far; /* of the process whose work touched most of it; read where `overflow` is set */
    char **command;            /* what is rehearsed, with its arguments */
    struct sg_signals signals;
    struct sg_rehearse_card card[SG_REHEARSE_CARDS]; /* ascending */
    unsigned card_count;
    struct sg_rehearse_run run;
    bool interrupted;         /* by the user: what there is up to then is told */
    bool cut;                 /* … while the finished run was played on cards */
    bool wait_cut;            /* … while processes that the command had left behind were waited for */
    unsigned processes;       /* that asked for memory */
    unsigned left;            /* of all processes that use the driver: go on after the command has ended */
    unsigned unseen;          /* of them: without the library, known to the simulator alone */
    uint64_t unseen_bytes;    /* that those held at most, a sum */
    uint64_t managed_bytes;   /* managed memory of the process that had most */
    uint64_t sent_bytes;      /* of PyTorch's tensors that were sent to other processes, for which they were copied */
    unsigned replays;         /* of their lives, so far */
    uint64_t events, allocs, served, largest_request;
    uint64_t passed_on_bytes; /* of allocations that the driver served */
    uint64_t asked_bytes;     /* of all of them, `allocs` */
    uint64_t ooms, refused;   /* on the card without end: by a limit, or by a program that asks until it runs out */
    uint64_t retried; /* of `refused`: the program had the error, and asked again or elsewhere. Others were served in the end */
    uint64_t questions;       /* of the program, how much memory is free */
    bool asks;                /* it asks how much memory is free, or there is in all, in any way and process */
    bool asks_machine;        /* … in a way that is told the size of the card without end, not that of the largest */
    bool differs;             /* such a program asked for something else on another card */
    bool limited;             /* a limit was set, by settings or by the program */
    bool torch;               /* PyTorch's tensors are served one by one */
    bool children;            /* some that asked for memory are not the command's own process: that may start others */
    struct sg_rehearse_ends ends;
    struct sg_search search;  /* of the only process, where its own end is good; else nothing */
    bool true_size;           /* the run itself is on a card of the size of the only one named */
    bool adapts;              /* it fits a card because it makes do with less there */
    uint64_t first_smallest;  /* the smallest card by its first run, bytes: it asked for so much there */
    bool beyond;              /* it stopped where no card named has an end, and what it does at that end was tried */
    uint64_t endless_bytes;   /* of the card without end */
    bool lags;                /* what is held at a moment depends on how far the GPU has come */
    uint64_t peak_requested,
        peak_reserved; /* of the device that needs most: sums of processes that were there at once, bytes */
    struct sg_rehearse_held at_peak;        /* when that device had most in use */
    uint64_t peak_taken;                    /* of that device, in use and held by other calls, bytes */
    uint64_t peak_late;                     /* as that, with a GPU that lags; 0: the same, or it was not tried */
    uint64_t peak_own;                      /* as peak_taken, without what others than the processes of the run hold */
    struct sg_outside outside;              /* by such calls, of the process that has most, at its peak */
    double served_share;      /* negative: nothing was asked for */
    struct sg_rehearse_alone alone; /* of the process that needs most; segalloc's is the smallest card */
    /* Each device of the machine: the most processes that used it at once, and the sum of their peaks, bytes, by
       allocations that segalloc served and by all calls. */
    struct sg_rehearse_device {
        unsigned processes;
        uint64_t requested, taken;
    } device[SG_DEVICES_MAX];
    unsigned together;        /* processes that need most of one device at once */
    bool beneath;             /* what was served are segments of PyTorch's own cache */
    char needs_own[64];       /* a function of PyTorch's that does without --torch alone; "": none was asked for */
    char needs_conf[80];      /* settings that the program needs, by the library's word; "": none */
    bool given_conf;          /* … and it was run once more with them */
    enum sg_rehearse_outcome outcome;
    char reason[2 * SG_REHEARSE_TEXT]; /* "" when it completed */
};

/* The verdict on a card. */
enum sg_rehearse_verdict sg_rehearse_verdict(const struct sg_rehearse *rehearse, const struct sg_rehearse_card *card);
/* The need of the program on this card, bytes: the smallest card, or what a run there took. This only tells the figure:
   sg_smallest_find() of replay/smallest_card.c looks for it, called from rehearse/cards.c. */
uint64_t sg_rehearse_smallest(const struct sg_rehearse *rehearse, const struct sg_rehearse_card *card);
/* Bytes by which the card is too small; 0: it fits, or that is not known. */
uint64_t sg_rehearse_short_by(const struct sg_rehearse *rehearse, const struct sg_rehearse_card *card);

struct sg_trace_reader;
/* rehearse/overflow.c. Reads --overflow: places with sizes, as the option overflow takes them. 0, or an exit status after a line
   on stderr. */
int sg_rehearse_read_overflow(struct sg_rehearse *rehearse, const char *places);
/* Notes what a process had elsewhere, and what of `link` its work has touched. 0, or a negative errno. */
int sg_rehearse_note_far(struct sg_rehearse *rehearse, struct sg_trace_reader *reader,
    const struct sg_rehearse_overflow *link);
/* The bill of a card that fits only with overflow: seconds of the link for each step that had memory elsewhere. Where no steps are
   known they are for the run. *ret_estimated: nobody has counted what all of the work touches. It is each far byte twice a step
   then, written and read, or what was counted where that is more. */
double sg_rehearse_bill(const struct sg_rehearse *rehearse, const struct sg_rehearse_card *card, bool *ret_estimated);
void sg_rehearse_print_bill(const struct sg_rehearse *rehearse, const struct sg_rehearse_card *card);
json_t *sg_rehearse_json_bill(const struct sg_rehearse *rehearse, const struct sg_rehearse_card *card);

/* rehearse/in_use.c: finds what was in use on the device when the card was full. Where there is no host memory for that
   nothing is found. */
void sg_rehearse_hold(struct sg_trace_reader *reader, uint32_t device, struct sg_rehearse_card *card);
/* Finds what was in use on the device when that was most. Leaves `reader` at its beginning or at its end. */
void sg_rehearse_hold_peak(struct sg_trace_reader *reader, uint32_t device, struct sg_rehearse_held *ret);

/* rehearse/card_list.c: reads --card, and --margin with `text` (NULL: as measured). 0, or an exit status after a line
   on stderr. */
int sg_rehearse_read_cards(struct sg_rehearse *rehearse, const char *list);
int sg_rehearse_read_margin(struct sg_rehearse *rehearse, const char *text);
/* Once both are read: the margin of each card. */
void sg_rehearse_set_margins(struct sg_rehearse *rehearse);

/* Runs the prepared command under watch (keep.h; `keep` NULL: it is not), hands its output on (standard output to
   stderr with `json`) and waits for it, but not for what it leaves behind. False after a line on stderr when it could
   not be run. */
struct sg_keep;
bool sg_rehearse_command(const struct sg_rehearse *rehearse, const struct sg_keep *keep, struct sg_rehearse_run *ret);

/* Reads the traces of a run in `folder`, and plays them on the cards. 0, or an exit status after a line on stderr. */
struct sg_lives;
int sg_rehearse_traces(struct sg_rehearse *rehearse, const char *folder, struct sg_lives *lives);

/* rehearse/try.c: values of --try, "NAME=V1,V2,…" or "NAME=LOW..HIGH". */
struct sg_rehearse_try {
    char name[64];
    char *text; /* of the values; the caller's to free, also where reading fails */
    char *value[SG_REHEARSE_CARDS];
    unsigned count;
    bool range;              /* the largest between these is looked for, by halves: `value` are those tried so far */
    unsigned long low, high; /* the rest of it: the largest that fits is not above `high`, and `low` - 1 fits */
};
/* 0, or an exit status after a line on stderr: it can't be read, or `command` has no place for a value. */
int sg_rehearse_try_read(const char *verb, const char *text, char **command, struct sg_rehearse_try *ret);
/* Makes the next value of a range, once the last one (if there was one) is known to fit or not. False: there is none,
   the largest that fits is found. */
bool sg_rehearse_try_next(struct sg_rehearse_try *values, bool last_fits);
/* True if there are others between this value, which fits, and the next larger one that does not: "NAME=21..39". */
bool sg_rehearse_try_between(const struct sg_rehearse_try *values, char **command, unsigned fits, char *ret, size_t size);
/* Frees the memory that sg_rehearse_try_read() and sg_rehearse_try_next() took. */
void sg_rehearse_try_end(struct sg_rehearse_try *values);
/* A copy of the command with this value in its place: of `{}`, or of the value of the option of that name. To be
   given to sg_rehearse_try_free(). */
char **sg_rehearse_try_command(const struct sg_rehearse_try *values, char **command, const char *value);
void sg_rehearse_try_free(char **command);
/* Text for --try with the range of smaller sizes of what the command calls a batch; false: it has no such option. */
bool sg_rehearse_try_suggest(char **command, char *ret, size_t size);
/* How many times smaller a batch is than in the command as it was given; 0: it is no batch, or not known. */
unsigned long sg_rehearse_try_divisor(const struct sg_rehearse_try *values, char **command, const char *value);
/* How the value is written in the command: "--batch 4", or "4" in place of `{}`. */
void sg_rehearse_try_format(const struct sg_rehearse_try *values, char **command, const char *value, char *ret,
                            size_t size);

/* rehearse/judge.c: the outcome and the reason, of how the command ended and of what the largest card has room for. */
void sg_rehearse_judge(struct sg_rehearse *rehearse);

/* rehearse/keep_traces.c: copies the traces in `folder` to --output: that of the process that began first has the name
   as it is. False after a message. */
bool sg_rehearse_keep_traces(const struct sg_rehearse *rehearse, const char *folder);

/* rehearse/environment.c: the cards that are asked about, loggers, steps; `folder` is the run's. */
void sg_rehearse_set_environment(const struct sg_rehearse *rehearse, const char *folder);

/* rehearse/text.c: the findings, to stdout. One line says what became of a value. */
void sg_rehearse_print_line(const struct sg_rehearse *rehearse);
/* The effects besides memory of a batch that is so many times smaller. */
void sg_rehearse_print_divisor(unsigned long divisor);
/* The command to run next; `fits`: the program fits as it is. */
void sg_rehearse_print_next(const struct sg_rehearse *rehearse, bool fits);
void sg_rehearse_print_text(const struct sg_rehearse *rehearse);

/* Facts that both the text and the JSON say. has_cards: there is a verdict on cards. at_least: more may be needed than
   was seen. assumed: sentences on what the verdict takes for granted; the result is their number. */
enum { SG_REHEARSE_ASSUMED = 12 };
bool sg_rehearse_has_cards(const struct sg_rehearse *rehearse);
const struct sg_rehearse_card *sg_rehearse_largest(const struct sg_rehearse *rehearse);
bool sg_rehearse_at_least(const struct sg_rehearse *rehearse);
unsigned sg_rehearse_assumed(const struct sg_rehearse *rehearse, const char *ret[SG_REHEARSE_ASSUMED]);

/* rehearse/json.c: the findings as one object. */
json_t *sg_rehearse_json(const struct sg_rehearse *rehearse);

#endif
