/* Budgets: how much memory a program may need, as a file that is kept beside it and is held against each rehearsal.

   Nouns. A budget has *rows*, each a name with bytes: the smallest card, the peak, each function and each phase of the program
   (analysis/part_peaks.h). A row is *over* where the rehearsal needs more.

   Why: a change that needs more memory is noticed when it is made, and by the name of what grew. A rehearsal gives the same
   bytes from run to run, and needs no GPU.

   How: --write-budget writes the file, which may be edited. Every row may be over by `slack_percent` of it, 0 as
   written. A row that the file does not have has a budget of 0 bytes. Each row has the process with most.

   For example, {"schema": "segalloc.budget/1", "slack_percent": 1, "smallest_card_bytes": 2097152000} lets the card have 2,020 MiB.
   A rehearsal that finds 2,022 MiB ends with status 3. */
#ifndef SG_REHEARSE_BUDGET_H
#define SG_REHEARSE_BUDGET_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct sg_rehearse;
struct sg_trace_reader;

/* A budget of a rehearsal, all its own. */
struct sg_budget {
    const char *held_against, *written_to; /* files, NULL */
    json_t *allowed;                       /* what the first has in it */
    json_t *functions, *phases;            /* of the run: names and bytes */
    bool replaces;                         /* the file that is written may be there */
};

/* Reads the file of --budget, and sees that the one of --write-budget can be written. 0, or an exit status after a line on stderr. */
int sg_budget_begin(const char *verb, struct sg_budget *budget);
void sg_budget_free(struct sg_budget *budget);

/* A run begins: nothing is known of it. Then each process of it. 0, or a negative errno. */
void sg_budget_clear(struct sg_budget *budget);
int sg_budget_read(struct sg_budget *budget, struct sg_trace_reader *reader);

/* True if the run came to where its need is known. A program that needs more or less by the card has none. */
bool sg_budget_is_known(const struct sg_rehearse *rehearse);

/* Writes the budget, if it is asked for. 0, or an exit status after a line on stderr. */
int sg_budget_write(const struct sg_rehearse *rehearse);

/* Rows that are over, the most first: {"file", "known", "over": [{"row", "name", "bytes", "budget_bytes"}], "rows"}. To be
   given up by the caller. */
json_t *sg_budget_compare(const struct sg_rehearse *rehearse);
/* Prints that, a table where something is over. */
void sg_budget_print(const json_t *compared);
bool sg_budget_is_over(const json_t *compared);

#endif
