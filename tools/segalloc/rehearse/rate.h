/* The link between a card and its host: how many bytes a second it carries in one direction. */
#ifndef SG_REHEARSE_RATE_H
#define SG_REHEARSE_RATE_H

#include <stdint.h>

struct sg_rehearse_rate {
    uint64_t bytes; /* a second */
    const char *source;
};

/* Reads --rate, NULL: its default. 0, or an exit status after a line on stderr. */
int sg_rehearse_read_rate(const char *verb, const char *text, struct sg_rehearse_rate *ret);

#endif
