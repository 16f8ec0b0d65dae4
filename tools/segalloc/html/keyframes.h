/* The state of a trace at chosen moments: what was alive, by group, and how the pages were used. */
#ifndef SG_HTML_KEYFRAMES_H
#define SG_HTML_KEYFRAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "json.h"
#include "reader/site_book.h"
#include "html/page_lists.h"
#include "reader/trace_reader.h"

struct sg_keyframe {
    uint64_t request;
    uint64_t time_ns;
    bool marked; /* it is a peak, a failure or the end */
    char *live; /* JSON */
    char *map;  /* JSON; NULL: not known */
};

struct sg_keyframes {
    struct sg_keyframe *frame; /* ascending */
    size_t count;
    size_t map_bytes;          /* of all maps together at most; half of it for frames that are marked */
    uint32_t rows, pieces;     /* of each at most: groups that are told apart; pieces of a map */
    const struct sg_site_book *book;
    struct sg_html_list *texts, *groups;
};

/* Fills in `live` of the frames. 0 or a negative errno. */
int sg_keyframes_read_live(struct sg_keyframes *frames, struct sg_trace_reader *reader);
/* Fills in `map` of the frames by a replay. 0 or a negative errno. */
int sg_keyframes_read_maps(struct sg_keyframes *frames, struct sg_trace_reader *reader, uint32_t devices);
void sg_keyframes_free(struct sg_keyframes *frames);

/* Number of the group of blocks that were asked for so, in frames->groups; 0: there are too many. */
struct sg_html_group {
    uint32_t device, size_class, site, phase, stream;
    bool torch;
};
uint32_t sg_html_group(struct sg_keyframes *frames, const struct sg_html_group *group);

/* An array of the numbers in `texts` of a site's frames, the outermost first. */
json_t *sg_html_stack(struct sg_html_list *texts, const struct sg_site_book *book, uint32_t site);

#endif
