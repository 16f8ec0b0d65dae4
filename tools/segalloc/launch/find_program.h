/* The file that a word of a command names. */
#ifndef SG_LAUNCH_FIND_PROGRAM_H
#define SG_LAUNCH_FIND_PROGRAM_H

#include <stdbool.h>

#include "install_paths.h"

/* The word itself if it has a slash, else from PATH. False when no file there can be executed. */
bool sg_find_program(const char *word, char ret[SG_PLACE_BYTES]);

#endif
