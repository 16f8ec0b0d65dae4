/* The words of `check`: parts of the check, and how it speaks, joined by "+".

   Words that only say how stand for the usual parts too, because a check without parts would find nothing. For example,
   "fail" is SG_CHECK_FILL, SG_CHECK_CANARY and SG_CHECK_FAIL, and is written back as "fill+canary+fail". "on" is the parts
   alone, "off" is 0, and "canary+json" stays without the filling. */
#ifndef SG_CONF_CHECK_H
#define SG_CONF_CHECK_H

#include "base/text.h"

#include <stdbool.h>

/* Reads the words into bits of enum sg_check_part. False, changing nothing: one of them is no word of `check`. */
bool sg_conf_check_parse(const char *value, unsigned *ret);

/* Adds the words for these bits, which sg_conf_check_parse() reads back to the same ones. */
void sg_conf_check_add(struct sg_text *text, unsigned bits);

/* Adds a phrase with all words, for messages and help. */
void sg_conf_check_add_values(struct sg_text *text);

#endif
