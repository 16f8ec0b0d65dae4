/* How the processes of a run came to their ends, and whether the run came to a good end by that.

   The rule. A refused call for memory stays refused where nothing made it good: the caller neither got that memory by asking
   again nor took the host's. A process is *lost* by a call that stays refused
     - if its own end is an error, whatever it was served afterwards: a message is often printed from a few more blocks, and a
       signal that no other process has sent is an error too;
     - if another process ended it by a signal, and none was so ended on the card without end;
     - if it was served nothing afterwards, except where it looks for how much there is (analysis/searches.h).
   It goes on, and is not lost, if it was served something afterwards and its own end is good. The process says its own end:
   a shell, a pipe, `|| true` or a parent that does not look have no part in it.
   A run comes to a good end if the command ends with 0, and
     - no process is lost, and no more of them end with an error than on the card without end; or
     - another process that began after the last of those did what it could not do, and as many ended well as on the card
       without end; or
     - the processes one after the other are such a search, here and on the card without end, and after it as many end well.

   An example. A program tries a batch of 16 in a child, which is refused and ends with 1. It tries 8 in the next child, which
   ends well, and ends with 0. On a card without end one child ended well, and here one did: the card fits. A shell that runs
   `train; evaluate` has two that end well there. Here `train` is lost, and one ends well: the card does not fit. */
#ifndef SG_REHEARSE_ENDS_H
#define SG_REHEARSE_ENDS_H

#include <stdbool.h>
#include <sys/types.h>

#include "rehearse/lives.h"
#include "rehearse/rehearse.h"

/* Called while a thread of the program is about to end its process with this status. That is noted in the file that the
   simulator has in `folder` for the process, if there is one. Any thread may call it. */
void sg_ends_note(const char *folder, pid_t thread, int status);

/* The process that an open file of the thread's stands for (pidfd_open()). 0: there is none. */
pid_t sg_ends_process_behind(pid_t thread, int file);

/* Called before a thread sends this signal to a process, or to a group of them as kill() has it. Noted for each of them but its
   own process. */
void sg_ends_note_signal(const char *folder, pid_t thread, pid_t target, int signal);

/* The sums over all processes of a run. `watched`: each end of a process has been noted, so that one without a note was ended
   by a fault of its own. Those that are still there have no end. */
struct sg_rehearse_ends sg_ends_sum(const struct sg_lives *lives, bool watched);

/* True if `trial`, a run on a card of its true size, came to a good end by the rule above. `endless` is the run on a card
   without end. */
bool sg_ends_are_good(const struct sg_rehearse *endless, const struct sg_rehearse *trial);

/* True if all that took memory and were ended by no other ended with an error, and the command ended with 0 all the same. More of
   them than they took is not known. */
bool sg_ends_are_hidden(const struct sg_rehearse *rehearse);

/* True if both runs are one search by several processes: each asks for more than the one before, until one is refused. */
bool sg_ends_search(const struct sg_rehearse *endless, const struct sg_rehearse *trial);

#endif
