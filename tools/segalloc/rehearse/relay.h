/* A relay: all that a command writes to stderr goes through a pipe to the tool's own, so that its last line is known. A
   process that the command leaves behind may hold that pipe for days: nobody waits for its end.

   An example. `sleep 300 & train` ends with `train`, whose lines are handed on by then. A line that comes 200 s later
   still reaches the terminal, though the tool has ended. */
#ifndef SG_REHEARSE_RELAY_H
#define SG_REHEARSE_RELAY_H

#include <stdbool.h>

#include "rehearse/rehearse.h"

struct sg_relay;

/* Hands on what comes from `output`, the reading end of a pipe, on a thread of its own, and takes it over. The relay is
   there until the tool ends. NULL: no thread or no host memory, and `output` is closed. */
struct sg_relay *sg_relay_begin(int output);

/* Waits so long at most. True: nobody can write any more. */
bool sg_relay_wait(struct sg_relay *relay, int ms);

/* Once the command has ended: waits until what the pipe holds at this moment has been handed on. Where the tool's own
   stderr is not read it waits some seconds only. */
void sg_relay_drain(struct sg_relay *relay);

/* The last line so far that is not empty. */
void sg_relay_last_line(struct sg_relay *relay, char ret[SG_REHEARSE_TEXT]);

/* Before the tool ends: leaves a process behind that hands on what comes later, until nobody can write any more.
   Without it SIGPIPE would end whoever does. A part of at most 8 KiB is lost where stderr has not taken it within a
   second. */
void sg_relay_leave(void);

#endif
