/* A note that this process asked how much memory the machine's devices have, for whoever has started it (the setting
   peaks=FOLDER). It is a line in the folder's file of words, in which the library and its Python module write too.

   An example. A program asks NVML for the total on a machine without end, and is told 1 TiB. "asks machine" is in
   FOLDER/needs then, and `segalloc rehearse` runs it once on each card that it is asked about. */
#ifndef SIM_QUESTION_H
#define SIM_QUESTION_H

#include "config.h"

#define SIM_QUESTION_FILE "needs"
#define SIM_QUESTION_WORD "asks machine"

/* Writes the line, once for each process; nothing where the settings name no folder. errno stays as it was. */
void sim_question_note(const struct sim_config *config);

#endif
