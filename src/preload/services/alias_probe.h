/* Whether a page may be used at two addresses: each device is tried when the process first allocates on it.

   The programming guide ("Virtual Aliasing Support") promises it for kernels that do not overlap. What is tried is done
   by sets and copies, since there is no kernel at hand: tests/gpu has rows for kernels. */
#ifndef SG_ALIAS_PROBE_H
#define SG_ALIAS_PROBE_H

#include <stdbool.h>

#include "conf.h"
#include "core.h"
#include "driver.h"

/* The value of `alias` in effect. SG_ALIAS_AUTO becomes SG_ALIAS_OFF where the current context's device fails the
   test, with a line, or where the test cannot be made. Takes a page for a moment, and a second at most. No lock may
   be held; one thread, once, before there is a core. */
enum sg_alias sg_alias_probe_decide(const struct sg_conf *conf, const struct sg_driver *driver);

/* The process is about to allocate on `device`, whose context is current. The first time, with SG_ALIAS_AUTO, another
   device than the first is tried likewise; one that passes may have aliases from here on. No lock may be held. */
void sg_alias_probe_use(struct sg_core *core, int device);

/* For statistics: "on", or "off" with the reason, and the device if that is not the first. NULL: nothing was settled,
   or fixed segments have no such pages. Valid until the next call; one thread at a time. */
const char *sg_alias_probe_text(void);

#endif
