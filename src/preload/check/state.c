/* Counts are atomic, so whoever looks at a block counts without a lock. */
#include "check/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "process/process.h"

atomic_bool sg_check_goes_on;
const struct sg_driver *sg_check_driver;
unsigned sg_check_parts;
static _Atomic uint64_t events, left_out[SG_LEFT_OUT_COUNT];

void sg_check_left_out(enum sg_left_out why)
{
    atomic_fetch_add_explicit(&left_out[why], 1, memory_order_relaxed);
}

struct sg_check_note sg_check_note_now(const struct sg_tag *tag)
{
    return (struct sg_check_note){
        .site = sg_self.place.shown,
        .phase = sg_self.place.phase,
        .stream = tag->stream,
        .has_stream = tag->has_stream,
        .event = atomic_fetch_add_explicit(&events, 1, memory_order_relaxed) + 1,
        .ns = sg_clock_ns(),
        .thread = syscall(SYS_gettid),
    };
}

void sg_check_write_left_out(char *text, size_t size)
{
    static const char *const words[] = {
#define LEFT_OUT(name, why) why,
        SG_LEFT_OUT_REASONS(LEFT_OUT)
#undef LEFT_OUT
    };
    size_t length = 0;
    *text = '\0';
    for (int i = 0; i < SG_LEFT_OUT_COUNT && length < size; i++) {
        uint64_t count = atomic_load(&left_out[i]);
        if (count)
            length +=
                (size_t)snprintf(text + length, size - length, "%s%" PRIu64 " %s", length ? ", " : "", count, words[i]);
    }
}
