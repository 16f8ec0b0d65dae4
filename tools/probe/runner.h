/* Runs rows in a process of their own. One that crashes, or takes longer than its row may, is replaced, and the next row goes on.

   For example, a driver crashes in the row "handles". The line {"row": "handles", "error": "its process was ended by signal 11"} is
   printed, and "pointers" begins in a new process. */
#ifndef PROBE_RUNNER_H
#define PROBE_RUNNER_H

#include <stdbool.h>

enum { PROBE_CHOSEN_MOST = 64 };

/* Rows by their names, or by those of their groups; without any all rows. */
struct probe_choice {
    const char *name[PROBE_CHOSEN_MOST];
    int count;
};

/* Adds a row or a group. False: there is none of that name. */
bool probe_choose(struct probe_choice *choice, const char *name);

/* Runs them in the order of rows.def, and prints their lines as they come. 0; 1 where a row failed; 2 without a driver or a device, which
   a line of the row "start" says. */
int probe_run_rows(const struct probe_choice *choice);

/* Prints the rows, a line of JSON each. */
void probe_list(void);

/* The part of a process that a row has started, by its word, such as "--grow": its exit status. -1: there is no such part. */
int probe_play_role(const char *role, const char *argument);

#endif
