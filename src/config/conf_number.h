/* Numbers as options write them: whole ones, decimal fractions and sizes, read and written without the locale.

   Why not strtod() and printf(): both ask the locale of the process what a point looks like. A program that has set a German
   one would read "1.02" as 1, and print it as "1,02".

   A number that was read is written so that it reads back to the same one. For example, "1.020" is the double nearest to
   1.02, which is 1.0200000000000000178. Two decimals read back to that double, so it is written "1.02". 1610612736 bytes
   are written "1536MiB", since the largest unit that divides them is a MiB. */
#ifndef SG_CONF_NUMBER_H
#define SG_CONF_NUMBER_H

#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

/* Reads digits and nothing else. False: no digit, something else, or more than fits. */
bool sg_conf_number_whole(const char *text, uint64_t *ret);

/* Reads digits with one point at most, and no sign or exponent. Digits beyond the 15th after the point are dropped. False:
   anything else, or a whole part above ten digits. */
bool sg_conf_number_real(const char *text, double *ret);

/* Adds the shortest decimal fraction that sg_conf_number_real() reads back as `value`. */
void sg_conf_number_add(struct sg_text *text, double value);

/* Adds a size in the largest unit that divides it, which sg_size_parse() reads back to the same bytes. */
void sg_conf_number_add_size(struct sg_text *text, uint64_t bytes);

#endif
