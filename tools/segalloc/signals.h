/* Signals that ask a tool to end while it runs a command: the command gets them, and the tool tidies up. */
#ifndef SG_SIGNALS_H
#define SG_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

struct sg_signals {
    struct sigaction before[4];
};

/* From here on SIGINT, SIGQUIT, SIGTERM and SIGHUP don't end this process, and processes that a command leaves behind
   become our children. */
void sg_signals_hold(struct sg_signals *signals);

/* They go to `command` (0: to nobody), but for those that the terminal has sent to it as well. Signals that came before
   this call go too. */
void sg_signals_forward(pid_t command);

/* Puts the handlers from before back. A child calls it too, between fork and exec. */
void sg_signals_restore(const struct sg_signals *signals);

/* Which of them came first; 0: none. And how many have come. */
int sg_signals_first(void);
int sg_signals_count(void);

/* True if there is a child, which is what a command has left behind once that has ended. Takes leave of those that have
   ended. */
bool sg_signals_any_child(void);

/* Ends what a command has left behind. */
void sg_signals_end_children(void);

#endif
