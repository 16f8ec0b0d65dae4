/* The sites and phases of a trace, gathered as their definitions go by.

   A *text* is a file, a function or the name of a phase, which others refer to by number. A *site* is a stack of frames
   (base/site.h). A *phase* is a part of the program that lies within another one or in none.

   Why `shown`: a line of the program has many stacks, as many as callers. A reader wants one row for it. So each site also
   says which site stands for all that show the same line: the first of them.

   Example, texts 1 "/home/me/train.py", 2 "forward" and 3 "/usr/lib/python3/dist-packages/torch/nn/modules/linear.py":
     DEFINE_SITE   site 5, FIRST          file 3, function 2, line 125    a frame of the framework
     DEFINE_SITE   site 5, LAST           file 1, function 2, line 57     the user's own: best = 1, shown = 5
     DEFINE_SITE   site 6, FIRST, LAST    file 1, function 2, line 57     the same line: shown = 5
   sg_site_book_line() of either site is "train.py:57 in forward".

   Memory grows with what is defined, which is bounded: numbers are below SEGALLOC_TRACE_NAMES, a site has 32 frames. */
#ifndef SG_SITE_BOOK_H
#define SG_SITE_BOOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/idmap.h"
#include "segalloc/trace_format.h"
#include "base/site.h"

/* One entry of a stack. */
struct sg_site_frame {
    uint32_t file, function; /* texts; native: the module, and the exported function or 0 */
    uint64_t line;           /* native: offset in the module */
    bool native, backward; /* of a backward pass: what ran forward, or without a line the name of a node's class */
};

struct sg_site_info {
    struct sg_site_frame *frame; /* the innermost first */
    uint32_t frames;
    uint32_t best;  /* the frame that says most to the author of the program */
    uint32_t shown; /* the first site with the same line of that frame: for the reader they are one. 0: not whole */
};

struct sg_phase_info {
    uint32_t around, name; /* the phase around it; text */
};

struct sg_site_book {
    char **text;
    struct sg_site_info *site;
    struct sg_phase_info *phase;
    uint32_t texts, sites, phases; /* one more than the largest seen */
    uint32_t text_room, site_room, phase_room;
    /* Writes the line of code at a return address in a module. False: it is not known. May be NULL. */
    bool (*resolve)(const char *module, uint64_t offset, char text[SG_SITE_TEXT]);
    bool redacted;         /* lines and phases have numbers in place of the program's names */
    struct sg_idmap shown; /* a line -> the first site that shows it */
    bool has_shown;
};

/* Sets the function that says which frames of code are the vendor's: a return address in a header that wraps the call, say.
   Such a frame is not shown where another will do. For all books from then on; NULL: there are none. */
void sg_site_book_pass_over(bool (*is_vendors)(const char *module, uint64_t offset));

/* Takes note of a definition; other kinds do nothing. 0, -ENOMEM, or -ERANGE for a number past the bounds. A book of zeros
   is empty. */
int sg_site_book_add(struct sg_site_book *book, const struct segalloc_trace_record *record);
void sg_site_book_free(struct sg_site_book *book);

/* The text of a number; "" where there is none. */
const char *sg_site_book_text(const struct sg_site_book *book, uint32_t text);

/* The site that stands for all that show the same line; 0: unknown. */
uint32_t sg_site_book_shown(const struct sg_site_book *book, uint32_t site);

/* Writes one line for a site, or for one frame, as sg_site_format() and sg_site_format_native() do; "" where it is unknown.
   A redacted book has numbers in place of names. Returns `text`. */
char *sg_site_book_line(const struct sg_site_book *book, uint32_t site, char text[SG_SITE_TEXT]);
char *sg_site_book_frame(const struct sg_site_book *book, const struct sg_site_frame *frame, char text[SG_SITE_TEXT]);

/* Writes the line of the caller of what sg_site_book_line() shows; "" where nothing of the program called it. Returns `text`. */
char *sg_site_book_caller(const struct sg_site_book *book, uint32_t site, char text[SG_SITE_TEXT]);

/* Writes a phase with those around it, the outermost first: "step 3, forward"; "" where it is unknown. At most 16 deep.
   Returns `text`. */
char *sg_site_book_phase(const struct sg_site_book *book, uint32_t phase, char text[SG_SITE_TEXT]);

#endif
