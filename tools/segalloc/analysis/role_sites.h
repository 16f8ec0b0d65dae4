/* Makers: the part of a PyTorch program that asks for memory at a site, by the frames of its stack (role_frames.def).

   Example: a stack of torch/nn/modules/module.py:1370 in Module.to.<locals>.convert, module.py:965 in Module._apply and train.py:3. Its
   maker is PARAMETER. With module.py:1035 in Module._apply it is BUFFER, for there _apply() goes on to buffers. */
#ifndef SG_ROLE_SITES_H
#define SG_ROLE_SITES_H

#include <stdbool.h>
#include <stdint.h>

#include "reader/site_book.h"

enum sg_maker {
    SG_MADE_UNKNOWN,       /* code that is neither PyTorch's nor a library's known here */
    SG_MADE_PASSED_OVER,   /* of no site: the frame says nothing */
    SG_MADE_WITHIN_ENGINE, /* of no site: whatever such a frame calls belongs to a backward pass */
    SG_MADE_CONVERTED,     /* of no site: PARAMETER, GRADIENT or BUFFER by its line */
    SG_MADE_PARAMETER,
    SG_MADE_BUFFER,
    SG_MADE_GRADIENT,
    SG_MADE_OPTIMIZER,
    SG_MADE_CACHE,
    SG_MADE_COMMUNICATION,
    SG_MADE_REDUCED,   /* what gradients of several ranks are added up from, or in */
    SG_MADE_LIBRARY,   /* cuBLAS and the like, by calls of their own */
    SG_MADE_OWN_INIT,  /* an __init__ of the program's own */
    SG_MADE_FORWARD,   /* a forward pass, or code around it */
    SG_MADE_ENGINE,    /* the call that starts a backward pass */
    SG_MADE_BACKWARD,  /* a backward pass */
    SG_MADE_RECOMPUTED /* a forward pass within a backward one, by checkpointing */
};

/* The maker of each site of a whole book, by number: `book->sites` of them, for the caller to free. NULL: no host memory. */
uint8_t *sg_makers_of(const struct sg_site_book *book);

/* True if cuBLAS's workspaces have this size. *ret_alone: no tensor has it by chance. */
bool sg_maker_is_workspace(uint64_t bytes, bool *ret_alone);

#endif
