/* An order for a running program: it pauses or resumes memory of a tag. The verbs `pause` and `resume` give it by the table of
   the user's processes, as `trim` asks (base/neighbours.h). */
#ifndef SG_VERB_ORDER_H
#define SG_VERB_ORDER_H

#include <stdbool.h>
#include <sys/types.h>

#include "neighbours.h"

/* Gives the order and waits for the answer, with a line every ten seconds. `tag`: NULL: all. Prints what became of it, as
   JSON or as text. Returns the exit status. */
int sg_order_give(const char *verb, pid_t pid, enum sg_neighbour_order what, const char *tag, bool json);

/* Parses what both verbs take, the words behind their options included. False: `*ret_status` is the exit status. */
bool sg_order_check(const char *verb, int argc, char **argv, int first, const char *tag, pid_t *ret_pid, int *ret_status);

#endif
