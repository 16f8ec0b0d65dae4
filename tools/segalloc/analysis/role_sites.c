#include "analysis/role_sites.h"

#include <stdlib.h>
#include <string.h>

enum {
    MIDDLE = 60
}; /* lines of _apply() from its parameters to its gradients, and fewer than to its buffers: 44 and 70 in 2.15 */

static const struct {
    enum sg_maker maker;
    const char *file, *function;
} frame_rows[] = {
#define MADE_BY(maker, file, function) {SG_MADE_##maker, file, function},
#include "analysis/role_frames.def"
};

static const struct {
    enum sg_maker maker;
    const char *module;
} module_rows[] = {
#define MADE_IN(maker, module) {SG_MADE_##maker, module},
#include "analysis/role_frames.def"
};

bool sg_maker_is_workspace(uint64_t bytes, bool *ret_alone)
{
    static const struct {
        uint64_t bytes;
        bool alone;
    } sizes[] = {
#define WORKSPACE(bytes, alone) {bytes, alone},
#include "analysis/role_frames.def"
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (bytes == sizes[i].bytes) {
            *ret_alone = sizes[i].alone;
            return true;
        }
    return false;
}

/* The maker that a frame's row names; PASSED_OVER: it has none. */
static enum sg_maker maker_of_frame(const struct sg_site_book *book, const struct sg_site_frame *frame)
{
    const char *file = sg_site_book_text(book, frame->file), *function = sg_site_book_text(book, frame->function);
    for (size_t i = 0; i < sizeof frame_rows / sizeof *frame_rows; i++)
        if (strstr(file, frame_rows[i].file) && strstr(function, frame_rows[i].function))
            return frame_rows[i].maker;
    return SG_MADE_PASSED_OVER;
}

static enum sg_maker maker_of_code(const struct sg_site_book *book, const struct sg_site_info *site)
{
    for (uint32_t i = 0; i < site->frames; i++)
        for (size_t row = 0; row < sizeof module_rows / sizeof *module_rows; row++)
            if (strstr(sg_site_book_text(book, site->frame[i].file), module_rows[row].module))
                return module_rows[row].maker;
    return SG_MADE_UNKNOWN;
}

/* False: a thread of code called Python, as the engine of backward passes does for hooks, custom functions and modes. */
static bool stack_begins_in_python(const struct sg_site_book *book, const struct sg_site_info *site)
{
    const struct sg_site_frame *outermost = &site->frame[site->frames - 1];
    const char *file = sg_site_book_text(book, outermost->file),
               *function = sg_site_book_text(book, outermost->function);
    return strstr(function, "<module>") || strstr(function, "_bootstrap") || strstr(file, "runpy");
}

/* An own __init__: the frame that names the site is of one. */
static bool stack_is_own_init(const struct sg_site_book *book, const struct sg_site_info *site)
{
    const struct sg_site_frame *best = &site->frame[site->best];
    return strstr(sg_site_book_text(book, best->function), "__init__") &&
           sg_site_rank(sg_site_book_text(book, best->file)) == SG_SITE_OWN;
}

static enum sg_maker maker_of_stack(const struct sg_site_book *book, const struct sg_site_info *site)
{
    enum sg_maker found = SG_MADE_PASSED_OVER;
    bool backward = !stack_begins_in_python(book, site), checkpoint = false;
    for (uint32_t i = 0; i < site->frames; i++) {
        enum sg_maker maker = maker_of_frame(book, &site->frame[i]);
        backward = backward || (maker == SG_MADE_WITHIN_ENGINE && found != SG_MADE_ENGINE);
        checkpoint = checkpoint || strstr(sg_site_book_text(book, site->frame[i].file), "torch/utils/checkpoint.py");
        if (found == SG_MADE_PASSED_OVER && maker != SG_MADE_WITHIN_ENGINE)
            found = maker;
    }
    if (found == SG_MADE_PASSED_OVER)
        found = stack_is_own_init(book, site) ? SG_MADE_OWN_INIT : SG_MADE_FORWARD;
    if (backward && (found == SG_MADE_FORWARD || found == SG_MADE_OWN_INIT))
        return checkpoint && found == SG_MADE_FORWARD ? SG_MADE_RECOMPUTED : SG_MADE_BACKWARD;
    return found;
}

/* The line of the innermost frame of _apply(); 0: there is none. */
static uint64_t line_of_conversion(const struct sg_site_book *book, const struct sg_site_info *site)
{
    for (uint32_t i = 0; i < site->frames; i++)
        if (maker_of_frame(book, &site->frame[i]) == SG_MADE_CONVERTED)
            return site->frame[i].line;
    return 0;
}

/* _apply() has its parameters first, then their gradients, then buffers: the lines of a trace say which is which. */
static void makers_tell_conversions(const struct sg_site_book *book, uint8_t *maker)
{
    uint64_t first = UINT64_MAX;
    for (uint32_t i = 0; i < book->sites; i++) {
        uint64_t line = maker[i] == SG_MADE_CONVERTED ? line_of_conversion(book, &book->site[i]) : first;
        first = line < first ? line : first;
    }
    for (uint32_t i = 0; i < book->sites; i++) {
        if (maker[i] != SG_MADE_CONVERTED)
            continue;
        uint64_t line = line_of_conversion(book, &book->site[i]);
        maker[i] = line == first ? SG_MADE_PARAMETER : line < first + MIDDLE ? SG_MADE_GRADIENT : SG_MADE_BUFFER;
    }
}

uint8_t *sg_makers_of(const struct sg_site_book *book)
{
    uint8_t *maker = calloc(book->sites + 1, sizeof *maker);
    for (uint32_t i = 0; maker && i < book->sites; i++) {
        const struct sg_site_info *site = &book->site[i];
        if (!site->frames)
            continue;
        maker[i] = site->frame[0].backward ? SG_MADE_BACKWARD
                   : site->frame[0].native ? (uint8_t)maker_of_code(book, site)
                                           : (uint8_t)maker_of_stack(book, site);
    }
    if (maker)
        makers_tell_conversions(book, maker);
    return maker;
}
