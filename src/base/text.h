/* A text under way: pieces are added to a buffer of a fixed size. It never overflows, because a piece that finds no room is
   cut or left out.

   The length goes on counting what was left out, so that the caller knows how much room the whole needs, as with snprintf.

   For example, a buffer of 8 bytes. "limit:" is added, and then "20GiB". The buffer has "limit:2" with its NUL, and the
   length is 11. So the caller tries again with 12 bytes, or takes the text as cut. */
#ifndef SG_TEXT_H
#define SG_TEXT_H

#include <stddef.h>

/* Begins as {buffer, size, 0}. `size` may be 0: then nothing is written, and the length alone counts. */
struct sg_text {
    char *at;
    size_t size, length;
};

/* Adds a piece, as printf writes it. Takes no lock and no heap, but printf asks the locale for the point of a double. */
__attribute__((format(printf, 2, 3))) void sg_text_add(struct sg_text *text, const char *format, ...);

#endif
