/* The replay that a user asked for, with what it found. */
#ifndef SG_REPLAYED_H
#define SG_REPLAYED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "player.h"
#include "reader/trace_reader.h"
#include "replay/recorded.h"
#include "replay/smallest_card.h"

struct sg_replayed {
    const char *verb, *path, *conf_text; /* NULL: as recorded */
    bool json, min_limit, bench, as_recorded;
    double ns_per_op; /* of --bench */
    uint64_t limit;   /* --limit; 0: each device its own */
    struct sg_recorded recorded;
    bool measured; /* what an imported trace has alive at its peak, and which refusals were made good */
    struct sg_trace_reader *reader;
    struct sg_play play;
    struct sg_play_result result;
    double seconds;
    struct sg_smallest smallest; /* cards without an allocation that fails, where asked for */
};

/* True where more may be needed than was seen: an allocation failed in the recorded process, or the trace has no end. */
bool sg_replayed_is_lower_bound(const struct sg_replayed *replay);

/* Bytes of the largest card that a device of the trace was played on. */
uint64_t sg_replayed_largest_card(const struct sg_replayed *replay);

/* The settings that were played, "" for the defaults; in `text` where they are not the user's own. */
const char *sg_replayed_conf(const struct sg_replayed *replay, char *text, size_t size);

/* The answer, to stdout. */
void sg_replayed_print_text(const struct sg_replayed *replay);
void sg_replayed_print_json(const struct sg_replayed *replay);

#endif
