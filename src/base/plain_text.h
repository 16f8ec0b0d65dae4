/* Text from outside as one line that a terminal, a page and JSON take as it is. */
#ifndef SG_PLAIN_TEXT_H
#define SG_PLAIN_TEXT_H

#include <stddef.h>

/* Length of the UTF-8 sequence at `at` (RFC 3629), 0 when it is none. */
size_t sg_utf8_length(const char *at);

/* Puts a question mark in place of each byte that is no UTF-8, and of each control (C0, C1). So it does for separators of
   lines and paragraphs, and for marks that turn the direction of writing. Returns `text`, which may be shorter then. */
char *sg_plain_text(char *text);

#endif
