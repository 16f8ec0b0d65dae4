/* A command that is waited for, and that others take for this process: as near to becoming it as a parent comes.

   Why. `segalloc run` becomes its command, so that signals, terminal, job control and status are the command's own. Where
   something is to be said once the command has ended, it has to stay.

   How. The command is a child in the process group of this process, with its signals, mask and handlers as they were. All
   signals that come here are waited for, and those that only came here are sent on. When the command stops, this process
   stops, so a shell finds the job stopped. It ends with the command's status, or by the same signal.

   Limits. The command has another number, and its parent is this process. SIGSTOP to this process alone does not stop the
   command. SIGKILL to it kills the command too, but not one that changes its user by its file.

   For example, `kill -USR1 $!` reaches the command. Ctrl-C goes to both from the terminal and is sent on by nobody; the command ends by
   it, and then so does this process. */
#ifndef SG_FOLLOW_H
#define SG_FOLLOW_H

#include <sys/types.h>

#include "launch/launch.h"

/* Runs the command of a launch that is prepared, until it has ended. Its wait status, as of waitpid(); one of an exit where
   there is no such program, after a line on stderr. -1: no process can be had, after a line. Called once. */
int sg_follow_run(const struct sg_launch *launch, char **argv);

/* Ends this process as the command ended. */
_Noreturn void sg_follow_end(int status);

#endif
