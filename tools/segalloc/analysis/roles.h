/* Roles of a PyTorch program's memory: parameter, buffer, gradient, activation, optimizer state and so on (roles.def).

   Nouns. A *maker* is the part of the program that asked (role_sites.h). A *moment* is the peak of a device, or a failure there. A
   block is *cut short* where a failure, or the end of the trace, came before its life had shown what it was for.

   How. Maker and life decide. A block of a forward pass that lives into a backward pass is an activation, and temporary otherwise.
   A block of a backward pass is a gradient where the program's own thread finds it alive after the pass, and temporary otherwise.
   A block of an optimizer is its state where it outlives the step. One that is cut short in a forward pass has the role of most
   bytes of its line, or is an activation. In a backward pass it is a gradient where a parameter has its size.

   Example: linear.py:134 in Linear.forward makes 8 MiB in step 1. The thread of step 1's backward pass asks for memory, and then frees the
   8 MiB: an activation. That thread asks for 2.5 MiB and 4 MiB, and frees the 4. The main thread enters the optimizer, which zeroes
   gradients and frees the 2.5: a gradient. The 4 MiB were temporary.

   Limits. Without a PyTorch that asks for each tensor (pytorch:beneath) there are no roles. Memory that outlives several backward passes
   and was made by no known frame is unknown. Memory grows with the blocks alive at once. */
#ifndef SG_ROLES_H
#define SG_ROLES_H

#include <stdint.h>

#include "reader/trace_reader.h"

enum sg_role {
#define ROLE(name, key, text) SG_ROLE_##name,
#include "analysis/roles.def"
    SG_ROLE_COUNT
};

/* "kv_cache", as JSON has it, and "key-value cache". */
const char *sg_role_key(enum sg_role role);
const char *sg_role_text(enum sg_role role);

struct sg_roles {
    uint64_t bytes[SG_ROLE_COUNT]; /* requested; all zeros: not known */
};

/* Writes the roles that have bytes, those with most first, and returns their number. */
uint32_t sg_roles_order(const struct sg_roles *roles, enum sg_role ret[SG_ROLE_COUNT]);

struct sg_roles_moment {
    uint32_t device;
    uint64_t request; /* of the program, from 1: what was alive after it counts */
    struct sg_roles roles;
};

/* Reads the trace twice, from its beginning, and adds up the roles of each moment. They stay as they are where PyTorch did not ask for
   each tensor, or where the trace has no sites. 0, or a negative errno: -ESPIPE where the trace can be read once only. */
int sg_roles_read(struct sg_trace_reader *reader, struct sg_roles_moment *moment, uint32_t moments);

#endif
