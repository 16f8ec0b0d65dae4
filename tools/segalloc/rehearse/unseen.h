/* Processes of a run that took memory of a device without the library: no trace tells of them, and they count all the same.

   An example. A program that holds 300 MiB starts `env -i` with a child that takes 700 MiB: together they need 1000 MiB. */
#ifndef SG_REHEARSE_UNSEEN_H
#define SG_REHEARSE_UNSEEN_H

#include <stdbool.h>

#include "rehearse/lives.h"
#include "rehearse/rehearse.h"

/* After the traces in `folder` were read. Enters each such process in `lives`, with what it held at most, and marks cards
   that it does not fit alone. Notes of all processes how they ended. False: no host memory left. */
bool sg_rehearse_find_unseen(struct sg_rehearse *rehearse, const char *folder, struct sg_lives *lives);

#endif
