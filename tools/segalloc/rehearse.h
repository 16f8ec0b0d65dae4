/* What `segalloc rehearse` finds out: one run of a program on a simulated card without end, and the same life on the cards
   that it is asked about. */
#ifndef SG_REHEARSE_H
#define SG_REHEARSE_H

#include <stdbool.h>
#include <stdint.h>

#include "play.h"
#include "signals.h"

/* Out of memory: on the largest of the cards, which is the one that the program is told of. Stopped: it ended with
   another error, or was told to end. */
enum sg_rehearse_outcome { SG_REHEARSE_COMPLETED, SG_REHEARSE_OUT_OF_MEMORY, SG_REHEARSE_STOPPED };

enum sg_rehearse_verdict { SG_REHEARSE_FITS, SG_REHEARSE_TOO_CLOSE, SG_REHEARSE_DOES_NOT_FIT };

enum { SG_REHEARSE_CARDS = 32, SG_REHEARSE_TEXT = 512 };

struct sg_rehearse_card {
    uint64_t bytes;
    bool fits;                 /* every allocation does */
    uint64_t ends_at_event;    /* of the process that ran out first; 0: none did, or it is not known */
    uint64_t of_events;        /* that the process has in all */
    uint64_t ends_with_bytes;  /* what it asked for there */
    uint64_t ends_with_live;   /* what it held then */
};

/* How the command itself ended. */
struct sg_rehearse_run {
    int status;                       /* as a shell would say it */
    char last_line[SG_REHEARSE_TEXT]; /* the last that it wrote to stderr, "" */
    double seconds;
};

/* Smallest cards by three sets of rules, bytes; 0: not known. */
struct sg_rehearse_alone {
    uint64_t pytorch, pytorch_expandable, segalloc;
};

struct sg_rehearse {
    const char *verb, *output; /* -o, NULL */
    bool json, force;
    uint64_t margin;           /* of a card that is left for the context and for libraries, bytes */
    struct sg_signals signals;
    struct sg_rehearse_card card[SG_REHEARSE_CARDS]; /* ascending */
    unsigned card_count;
    struct sg_rehearse_run run;
    bool interrupted;         /* by the user: what there is up to then is told */
    unsigned processes;       /* that asked for memory */
    uint64_t events, allocs, served, largest_request;
    uint64_t ooms;            /* on the card without end: by a limit of its own settings */
    uint64_t peak_requested, peak_reserved; /* of the device of the process that needs most, bytes */
    double served_share;      /* negative: nothing was asked for */
    struct sg_rehearse_alone alone; /* of the process that needs most; segalloc's is the smallest card */
    bool beneath;             /* what was served are segments of PyTorch's own cache */
    enum sg_rehearse_outcome outcome;
    char reason[2 * SG_REHEARSE_TEXT]; /* "" when it completed */
};

/* What is said of a card, and by how much it is too small, bytes; 0: it fits, or it is not known. */
enum sg_rehearse_verdict sg_rehearse_verdict(const struct sg_rehearse *rehearse, const struct sg_rehearse_card *card);
uint64_t sg_rehearse_short_by(const struct sg_rehearse *rehearse, const struct sg_rehearse_card *card);

/* Runs the prepared command, hands its output on (standard output to stderr with `json`) and waits for it. False after a
   line on stderr when it could not be run. */
bool sg_rehearse_command(const struct sg_rehearse *rehearse, char **argv, struct sg_rehearse_run *ret);

/* Reads the traces of a run in `folder`, and plays them on the cards. 0, or an exit status after a line on stderr. */
int sg_rehearse_traces(struct sg_rehearse *rehearse, const char *folder);

/* rehearse_text.c: the findings, to stdout. */
void sg_rehearse_print_text(const struct sg_rehearse *rehearse);
void sg_rehearse_print_json(const struct sg_rehearse *rehearse);

#endif
