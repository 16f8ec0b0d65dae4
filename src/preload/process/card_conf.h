/* The user's options for the card and the driver of this process, which `segalloc selftest --apply` has written
   (config/conf_card.h).

   Why apart from the other sources: the name of the card is known once the driver is. So these options are read at the first
   allocation, and the others at the first CUDA call.

   For example, the first device is "NVIDIA A10" under a driver for CUDA 12.8. The file NVIDIA-A10-12.8.conf has "alias:off", and
   SEGALLOC_CONF says nothing of aliases: there are none. */
#ifndef SG_CARD_CONF_H
#define SG_CARD_CONF_H

#include "config/conf_read.h"

/* Applies them to the configuration of the process. `warn` gets a line for each bad part; their number is returned. Takes
   SG_LOCK_PROCESS. The caller is starting the core. */
unsigned sg_card_conf_read(sg_conf_warn_fn *warn);

#endif
