/* What `segalloc rehearse` finds out: one run of a program on the largest simulated card, and the same life on
   others. */
#ifndef SG_REHEARSE_H
#define SG_REHEARSE_H

#include <stdbool.h>
#include <stdint.h>

enum sg_rehearse_outcome { SG_REHEARSE_COMPLETED, SG_REHEARSE_OUT_OF_MEMORY, SG_REHEARSE_STOPPED };

enum { SG_REHEARSE_CARDS = 32, SG_REHEARSE_TEXT = 512 };

struct sg_rehearse_card {
    uint64_t bytes;
    bool fits;
    uint64_t ends_at_event;    /* of the process that ran out first; 0: none did, or it is not known */
    uint64_t ends_with_bytes;  /* what it asked for there */
    uint64_t ends_with_live;   /* what it held then */
};

/* How the command itself ended. */
struct sg_rehearse_run {
    int status;                       /* as a shell would say it */
    char last_line[SG_REHEARSE_TEXT]; /* the last that it wrote to stderr, "" */
    double seconds;
};

struct sg_rehearse {
    const char *verb;
    bool json;
    struct sg_rehearse_card card[SG_REHEARSE_CARDS]; /* ascending */
    unsigned card_count;
    struct sg_rehearse_run run;
    unsigned processes;       /* that asked for memory */
    uint64_t events, allocs, ooms, largest_request;
    uint64_t peak_requested, peak_reserved; /* of the process that needs most, bytes */
    double served_share;      /* negative: nothing was asked for */
    uint64_t smallest_card;   /* of the process that needs most; 0: not known */
    bool beneath;             /* what was served are segments of PyTorch's own cache */
    enum sg_rehearse_outcome outcome;
    char reason[2 * SG_REHEARSE_TEXT]; /* "" when it completed */
};

/* Runs the prepared command, hands its output on (standard output to stderr with `to_stderr`) and waits for it. SIGINT
   and SIGTERM are the command's. False after a line on stderr when it could not be run. */
bool sg_rehearse_command(const char *verb, char **argv, bool to_stderr, struct sg_rehearse_run *ret);

/* Reads the traces of a run in `folder`, and plays them on the cards. 0, or an exit status after a line on stderr. */
int sg_rehearse_traces(struct sg_rehearse *rehearse, const char *folder);

#endif
