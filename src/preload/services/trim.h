/* Memory for others. Idle memory goes back when `segalloc trim` asks, or another process that runs out on the same
   device. It also goes back when a device is nearly full and nothing has happened for a while. A helper thread
   sleeps until then; it exists from the first allocation on, unless trim_on_request:False. */
#ifndef SG_TRIMMING_H
#define SG_TRIMMING_H

#include "core/core.h"
#include "base/neighbours.h"

/* When the core is made; and for each device that the process allocates on, once and again. */
void sg_trim_open(const struct sg_conf *conf);
void sg_trim_use(int device);

/* `bytes` could not be had on `device`, which is current. Where the device itself lacks them, asks the others that
   use it and waits for them, a fraction of a second at most. Returns whether they gave anything back. No lock may be
   held. */
bool sg_trim_ask_others(const struct sg_driver *driver, int device, size_t bytes);

/* The same where it is not known how much could not be had: for calls by which a program takes memory from the driver
   itself. Below 0: not on which device either, so that the current one's users are asked first, and then all. Such a program
   may never have allocated with us. Callable at any time. */
bool sg_trim_ask_others_of(int device);

/* Bytes of the current context's device that other processes of this user would give back if this one ran out. Waits for
   their answers, a moment. Callable at any time. */
uint64_t sg_trim_idle_of_others(void);

/* Other processes of this user that hold memory of `device` with segalloc, as they answered sg_trim_ask_others() last.
   Returns how many, `most` at most. */
size_t sg_trim_others(int device, struct sg_neighbour_holds *ret, size_t most);

/* At the end of the process, and in a forked child, which has no such thread. */
void sg_trim_close(void);
void sg_trim_forget(void);

#endif
