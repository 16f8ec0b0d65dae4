/* Text from outside, made into one line that a terminal, a page and JSON take as it is.

   Why: names of programs, files and functions come from traces that somebody else may have written. An escape sequence
   among them would move the reader's cursor, and a line feed would forge a line of the report. A mark of direction would
   show a path backwards.

   Example, bytes in hexadecimal where they are no letters:
       caf<e9><0a><1b>[31mred     becomes     caf???[31mred
   e9 begins a sequence of UTF-8 that does not go on, 0a is a line feed, 1b an escape. The letters behind it stay: without
   the escape they do nothing. A whole sequence such as <e2><80><ae>, which turns the direction, becomes one mark. */
#ifndef SG_PLAIN_TEXT_H
#define SG_PLAIN_TEXT_H

#include <stddef.h>

/* Length of the UTF-8 sequence at `at` (RFC 3629), 0 when it is none. */
size_t sg_utf8_length(const char *at);

/* Puts a question mark in place of each byte that is no UTF-8, and of each control (C0, C1). So it does for separators of
   lines and paragraphs, and for marks that turn the direction of writing. Returns `text`, which may be shorter then. */
char *sg_plain_text(char *text);

#endif
