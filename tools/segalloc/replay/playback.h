/* A trace of the library's, played as it was recorded, for who looks at the device after each record. */
#ifndef SG_PLAYBACK_H
#define SG_PLAYBACK_H

#include "player.h"
#include "reader/trace_reader.h"

/* A watch on each record, like `watch` of struct sg_play. */
typedef bool sg_playback_fn(void *user, const struct segalloc_trace_record *record, uint64_t request,
    struct sg_core *core);

/* Plays from the beginning until `watch` ends it. 0, -ENOMEM, -ESPIPE where the trace can be read once only, or
   -ENODATA where it contradicts itself. `ret_diverged`: request from which on it is not the recorded run; 0: none. */
int sg_playback(struct sg_trace_reader *reader, sg_playback_fn *watch, void *user, uint64_t *ret_diverged);

#endif
