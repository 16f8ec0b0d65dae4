/* Memory for others. Idle memory goes back when `segalloc trim` asks, or another process that runs out on the same
   device. It also goes back when a device is nearly full and nothing has happened for a while.

   How. Processes of a user have a table in shared memory (base/neighbours.h). A helper thread of each sleeps until it
   is asked, gives idle pages back, and answers. It exists from the first allocation on, unless trim_on_request:False.

   Limits. An answer is waited for 2 s at most. From a process that has not answered before it is 0.3 s, since that one
   may be stopped. While a capture is active, what was freed in it stays.

   For example, process A holds 10 GiB, 6 GiB of them idle. Process B asks for 4 GiB on the same card, which has 1 GiB
   free. B writes its question, A's thread gives 6 GiB back, and B's core is asked again: 7 GiB are free now. */
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
