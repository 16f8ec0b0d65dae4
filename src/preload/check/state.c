/* Counts are atomic, so whoever looks at a block counts without a lock. */
#include "check/state.h"

#include <inttypes.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
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

void sg_check_write_counts(char *text, size_t size, const _Atomic uint64_t *counts, const char *const *words, int count)
{
    struct sg_text list = {text, size, 0};
    *text = '\0';
    for (int i = 0; i < count; i++) {
        uint64_t number = atomic_load(&counts[i]);
        if (number)
            sg_text_add(&list, "%s%" PRIu64 " %s", list.length ? ", " : "", number, words[i]);
    }
}

void sg_check_write_left_out(char *text, size_t size)
{
    static const char *const words[] = {
#define LEFT_OUT(name, why) why,
        SG_LEFT_OUT_REASONS(LEFT_OUT)
#undef LEFT_OUT
    };
    sg_check_write_counts(text, size, left_out, words, SG_LEFT_OUT_COUNT);
}
