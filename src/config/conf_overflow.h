/* The places of `overflow`, joined by commas: another device, the host's memory, or both.

   For example, "peer=8GiB,host=16GiB" allows 8 GiB on another device, then 16 GiB of the host's memory. "peer"
   sets no size: as much as that device has to spare. Another order of the words is the same option, and is
   written back as this one. "off" is neither. */
#ifndef SG_CONF_OVERFLOW_H
#define SG_CONF_OVERFLOW_H

#include "base/text.h"
#include "config/conf.h"

/* Reads the places with their sizes. False, changing nothing: a word is no place, a size none or 0, or a place
   stands twice. */
bool sg_conf_overflow_parse(const char *value, struct sg_conf_overflow *ret);

/* Adds the words for these sizes, which sg_conf_overflow_parse() reads back to the same ones. */
void sg_conf_overflow_add(struct sg_text *text, const struct sg_conf_overflow *overflow);

#endif
