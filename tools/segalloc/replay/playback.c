#include "replay/playback.h"

#include <errno.h>

#include "meta.h"
#include "progress.h"
#include "replay/recorded.h"

struct source {
    struct sg_trace_reader *reader;
    struct sg_progress progress;
};

static size_t playback_next_records(void *user, struct segalloc_trace_record *out, size_t n)
{
    struct source *source = user;
    sg_progress_show(&source->progress, "replaying", sg_trace_progress(source->reader));
    return sg_trace_read(source->reader, out, n);
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
    struct source source = {.reader = reader};
    struct sg_play play = {.next = playback_next_records, .source = &source, .watch = watch, .watcher = user};
    sg_recorded_play(&recorded, &play);
    status = sg_play_run(&play, &result, error);
    sg_progress_end(&source.progress);
    sg_recorded_free(&recorded);
    if (!status && sg_meta_ran_out())
        return -ENOMEM;
    if (!status)
        *ret_diverged = play.as_recorded ? result.diverged_event : 1;
    return status == SG_PLAY_CONTRADICTS ? -ENODATA : status;
}
