#include "html/playback.h"

#include <errno.h>

#include "meta.h"
#include "replay/recorded.h"

static size_t next_records(void *source, struct segalloc_trace_record *out, size_t n)
{
    return sg_trace_read(source, out, n);
}

int sg_playback(struct sg_trace_reader *reader, sg_playback_fn *watch, void *user, uint64_t *ret_diverged)
{
    struct sg_recorded recorded;
    struct sg_play_result result;
    char error[SG_PLAY_ERROR];
    int status = sg_trace_rewind(reader);
    if (!status)
        status = sg_recorded_read(reader, &recorded);
    if (status)
        return status;
    struct sg_play play = {.next = next_records, .source = reader, .watch = watch, .watcher = user};
    sg_recorded_play(&recorded, &play);
    status = sg_play_run(&play, &result, error);
    if (!status && sg_meta_ran_out())
        return -ENOMEM;
    if (!status)
        *ret_diverged = play.as_recorded ? result.diverged_event : 1;
    return status == SG_PLAY_CONTRADICTS ? -ENODATA : status;
}
