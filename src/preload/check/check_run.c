/* The beginning and the end.

   One block from begin to end. A program asks for 1,000 bytes on stream 7, and then frees them.

      1. sg_check_room() says 1,536, and the core gives 1,536 bytes at A.
      2. sg_check_given() takes what the shadow knows of these bytes: a block of 1,536 bytes that was freed as event 40.
         Stream 7 has a kernel that nobody waits for, so it is fresh. Its first work on the block is a copy of 1,408
         bytes into batch 3; the 128 bytes of the block's own stamps are spared. A set of 280 bytes follows, which is the
         canary, and an event.
      3. The program has the address. It never sees the last 536 bytes: cuMemGetAddressRange answers 1,000.
      4. The program gives stream 7 a kernel, and frees the block. sg_check_freeing() takes it out of the table of live
         blocks. The core says that the free would go by stream 7, without others. The canary is read into batch 4, all
         1,536 bytes are filled with the word of event 52, and the shadow has them.
      5. The core frees the block: whoever is ordered after this free is ordered after the fill.
      6. The event of batch 3 has passed. 1,408 bytes are compared with the word of event 40. Nothing differs, so the last
         reference to that freed block is given back.

   Errors. A call of the driver that fails leaves the bytes unknown, and is counted. After an error that stays, nothing
   more is asked of the driver: the program gets that error from its own next call. */
#include "check/check_run.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "check/compare.h"
#include "check/faults.h"
#include "check/findings.h"
#include "check/frees.h"
#include "check/guard.h"
#include "check/guard_table.h"
#include "check/held.h"
#include "check/live.h"
#include "check/run_count.h"
#include "check/samples.h"
#include "check/watch_driver.h"
#include "process/log.h"
#include "process/process.h"
#include "track/streams.h"

enum {
    FAILED_STATUS = 4, /* `check:fail` */
    END_NS = 2000000000
};

static atomic_bool ended;

/* The process ends: what is out is waited for while the driver still answers. False: that was done already. A handler of
   exit() may call exit() with another status in glibc, and those that were registered earlier run after it. */
static bool check_ends(void)
{
    char text[512];
    if (!sg_process_core() || atomic_exchange(&ended, true))
        return false;
    struct sg_core *core = sg_enter();
    if (core) {
        uint64_t until = sg_clock_ns() + END_NS;
        (void)sg_guard_settle_all(END_NS);
        uint64_t now = sg_clock_ns();
        unsigned left = sg_samples_finish(sg_check_driver, NULL, until > now ? until - now : 0, sg_check_compare);
        for (left += sg_guards_unread(); left; left--)
            sg_check_left_out(SG_LEFT_OUT_END);
        sg_leave();
    }
    atomic_store(&sg_check_goes_on, false);
    sg_check_write_left_out(text, sizeof text);
    sg_findings_end(sg_check_frees(), sg_check_filled(), sg_check_compared(), text);
    return true;
}

static void check_finish(void)
{
    if (check_ends() && sg_check_parts & SG_CHECK_FAIL && sg_findings_count())
        exit(FAILED_STATUS);
}

/* A process that ends by quick_exit() keeps its own status: what it has registered before is still to run, and runs once. */
static void check_finish_quickly(void)
{
    (void)check_ends();
}

void sg_check_open(const struct sg_conf *conf, struct sg_driver *core_driver)
{
    sg_check_parts = conf->check;
    sg_check_driver = core_driver;
    if (!sg_check_parts)
        return;
    if (!sg_shadow_begin(&sg_check_shadow) || !sg_live_begin()) {
        sg_log_line("check: no host memory, so nothing is looked at");
        return;
    }
    sg_watch_driver(core_driver);
    sg_streams_watch_shown();
    sg_findings_open(sg_check_parts & SG_CHECK_JSON);
    sg_run_count_open();
    sg_guard_open(conf);
    sg_faults_open();
    atomic_store(&sg_check_goes_on, true);
    (void)atexit(check_finish);
    (void)at_quick_exit(check_finish_quickly);
}

/* A program that waits and then ends by _exit() or a signal has its findings told before. */
void sg_check_poll(bool all)
{
    struct sg_core *core = sg_enter();
    if (!core)
        return;
    sg_samples_poll(sg_check_driver, all, sg_check_compare);
    sg_leave();
}

void sg_check_context_ends(CUcontext context)
{
    struct sg_core *core = sg_process_core();
    if (!core || !context)
        return;
    sg_lane_closes(context);
    (void)sg_samples_finish(sg_check_driver, context, END_NS, sg_check_compare);
}

void sg_check_context_gone(CUcontext context)
{
    sg_held_context_gone(context);
    for (unsigned lost = sg_lane_gone(context); lost; lost--)
        sg_check_left_out(SG_LEFT_OUT_LOST);
}

void sg_check_forget(void)
{
    sg_guard_close();
    sg_faults_close();
    atomic_store(&sg_check_goes_on, false);
    atomic_store(&ended, true);
}
