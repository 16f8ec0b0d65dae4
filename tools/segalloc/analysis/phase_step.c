#include "analysis/phase_step.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 16 }; /* phases around each other that are looked at */

/* The number at the end of a name, or -1. */
static int64_t step_read_number(const char *name)
{
    size_t end = strlen(name), from = end;
    while (from > 0 && isdigit((unsigned char)name[from - 1]))
        from--;
    return from < end && end - from < 18 ? strtoll(name + from, NULL, 10) : -1;
}

int64_t sg_phase_step(const struct sg_site_book *book, uint32_t phase)
{
    int64_t number = -1;
    for (int depth = 0; phase && phase < book->phases && depth < DEPTH; depth++) {
        int64_t own = step_read_number(sg_site_book_text(book, book->phase[phase].name));
        number = own < 0 ? number : own;
        phase = book->phase[phase].around;
    }
    return number;
}
