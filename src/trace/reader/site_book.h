/* Where a trace says that memory was asked for: its texts, sites and phases, gathered as their definitions go by.
   Memory grows with what is defined, which is bounded. */
#ifndef SG_SITE_BOOK_H
#define SG_SITE_BOOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/idmap.h"
#include "segalloc/trace_format.h"
#include "base/site.h"

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

/* Says of which frames of code none is shown where another will do: a return address in a module is in a header of the
   vendor's, which wraps the call. For all books from then on; NULL: of none. */
void sg_site_book_pass_over(bool (*is_vendors)(const char *module, uint64_t offset));

/* Takes note of a definition; other kinds are let pass. 0, -ENOMEM, or -ERANGE for a number past the bounds. */
int sg_site_book_add(struct sg_site_book *book, const struct segalloc_trace_record *record);
void sg_site_book_free(struct sg_site_book *book);

/* "" where there is none. */
const char *sg_site_book_text(const struct sg_site_book *book, uint32_t text);

/* The site that stands for all that show the same line; 0: unknown. */
uint32_t sg_site_book_shown(const struct sg_site_book *book, uint32_t site);

/* One line for a site, as sg_site_format(), or sg_site_format_native(); "" where it is unknown. Returns `text`. */
char *sg_site_book_line(const struct sg_site_book *book, uint32_t site, char text[SG_SITE_TEXT]);
char *sg_site_book_frame(const struct sg_site_book *book, const struct sg_site_frame *frame, char text[SG_SITE_TEXT]);

/* A phase with those around it, "step 3, forward"; "" where it is unknown. Returns `text`. */
char *sg_site_book_phase(const struct sg_site_book *book, uint32_t phase, char text[SG_SITE_TEXT]);

#endif
