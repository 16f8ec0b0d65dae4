/* Stand-ins for the vendor's mathematics libraries, written for the PyTorch that is installed, from what its libraries
   leave undefined. They compute nothing. */
#ifndef SG_LAUNCH_STUB_LIBRARIES_H
#define SG_LAUNCH_STUB_LIBRARIES_H

#include "install_paths.h"

struct sg_standin {
    char folder[SG_PLACE_BYTES];      /* where they lie; "" when the command runs no PyTorch */
    char site[SG_PLACE_BYTES];        /* site-packages of the PyTorch that they are for; "": none was found */
    char preload[4 * SG_PLACE_BYTES]; /* those of them, and of the simulated runtimes, that have to be preloaded because
                                         the vendor's own are installed beside PyTorch, which looks there first: paths
                                         with colons between them, or "" */
};

/* Writes them into the user's cache folder, unless they are there. `simulator` is sg_place_simulator()'s folders.
   False after a line on stderr. */
bool sg_standin_prepare(const char *verb, char *const *command, const char *simulator, struct sg_standin *ret);

#endif
