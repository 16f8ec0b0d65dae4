#include "reader/site_book.h"

#include "growing_array.h"
#include "base/plain_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for the entry of a number that a file names. 0, -ENOMEM, or -ERANGE where the format has no such number. */
static int book_reserve(void **array, uint32_t *count, uint32_t *room, uint32_t index, size_t size)
{
    return index < SEGALLOC_TRACE_NAMES ? sg_growing_array(array, count, room, index, size) : -ERANGE;
}

/* Appends 16 bytes to a text. One that would be too long stays as it is. */
static int book_add_text(struct sg_site_book *book, const struct segalloc_trace_record *record)
{
    int error = book_reserve((void **)&book->text, &book->texts, &book->text_room, record->stream, sizeof *book->text);
    if (error)
        return error;
    char **text = &book->text[record->stream], piece[sizeof record->id + sizeof record->size + 1] = {0};
    memcpy(piece, &record->id, sizeof record->id);
    memcpy(piece + sizeof record->id, &record->size, sizeof record->size);
    /* FIRST begins a text anew: a definition that was broken off is written again from its beginning. */
    size_t used = *text && !(record->flags & SEGALLOC_FLAG_FIRST) ? strlen(*text) : 0, more = strlen(piece);
    if (used + more >= SEGALLOC_TRACE_TEXT)
        return 0;
    char *grown = realloc(*text, used + more + 1);
    if (!grown)
        return -ENOMEM;
    memcpy(grown + used, piece, more + 1);
    *text = grown;
    return 0;
}

/* A number that no other line has. Bit 62 says backward, and bits 61 to 42 are the file. Below them are function and line or,
   for code, a bit that says so and the offset. */
static uint64_t frame_line_key(const struct sg_site_frame *frame)
{
    uint64_t line = frame->line & ((UINT64_C(1) << (frame->native ? 41 : 21)) - 1);
    uint64_t key = frame->native ? UINT64_C(1) << 41 | line : (uint64_t)frame->function << 21 | line;
    return (uint64_t)frame->backward << 62 | (uint64_t)frame->file << 42 | key;
}

static bool (*passed_over)(const char *module, uint64_t offset);

void sg_site_book_pass_over(bool (*is_vendors)(const char *module, uint64_t offset))
{
    passed_over = is_vendors;
}

/* Ends the definition of a site: finds the frame that names it, and the site that stands for its line. Frames beyond a gap
   are left out, because the outside of a deep stack is the same for most of its sites. 0 or -ENOMEM. */
static int site_finish(struct sg_site_book *book, uint32_t number)
{
    struct sg_site_info *site = &book->site[number];
    enum sg_site_rank best = SG_SITE_SYSTEM;
    if (!book->has_shown && !(book->has_shown = sg_idmap_init(&book->shown)))
        return -ENOMEM;
    site->best = 0;
    for (uint32_t i = 0; i < site->frames; i++) {
        const char *file = sg_site_book_text(book, site->frame[i].file);
        if (strcmp(file, SG_SITE_GAP) == 0) {
            site->frame[i].native = false; /* a text, which no module has a name for */
            break;
        }
        enum sg_site_rank rank = sg_site_rank(file);
        if (rank < best && site->frame[i].native && passed_over && passed_over(file, site->frame[i].line))
            rank = SG_SITE_SYSTEM;
        if (rank < best) {
            best = rank;
            site->best = i;
        }
    }
    uint64_t key = frame_line_key(&site->frame[site->best]), first = sg_idmap_get(&book->shown, key);
    site->shown = first ? (uint32_t)first : number;
    return first || sg_idmap_put(&book->shown, key, number) ? 0 : -ENOMEM;
}

/* Appends a frame to a site. FIRST begins it anew; frames beyond 32 are left out. */
static int site_add_frame(struct sg_site_book *book, const struct segalloc_trace_record *record)
{
    int error = book_reserve((void **)&book->site, &book->sites, &book->site_room, record->stream, sizeof *book->site);
    if (error)
        return error;
    struct sg_site_info *site = &book->site[record->stream];
    if (record->flags & SEGALLOC_FLAG_FIRST) {
        site->frames = 0;
        site->shown = 0;
    }
    if (site->frames == SEGALLOC_TRACE_FRAMES)
        return 0;
    struct sg_site_frame *grown = realloc(site->frame, (site->frames + 1) * sizeof *grown);
    if (!grown)
        return -ENOMEM;
    grown[site->frames++] = (struct sg_site_frame){
        .file = (uint32_t)(record->id >> 32), .function = (uint32_t)record->id, .line = record->size,
        .native = record->flags & SEGALLOC_FLAG_NATIVE, .backward = record->flags & SEGALLOC_FLAG_BACKWARD,
    };
    site->frame = grown;
    if (record->flags & SEGALLOC_FLAG_LAST)
        return site_finish(book, record->stream);
    return 0;
}

int sg_site_book_add(struct sg_site_book *book, const struct segalloc_trace_record *record)
{
    int error = 0;
    if (record->kind == SEGALLOC_RECORD_DEFINE_TEXT) {
        error = book_add_text(book, record);
    } else if (record->kind == SEGALLOC_RECORD_DEFINE_SITE) {
        error = site_add_frame(book, record);
    } else if (record->kind == SEGALLOC_RECORD_DEFINE_PHASE) {
        error = book_reserve((void **)&book->phase, &book->phases, &book->phase_room, record->stream, sizeof *book->phase);
        if (!error)
            book->phase[record->stream] = (struct sg_phase_info){(uint32_t)record->id, (uint32_t)record->size};
    }
    return error;
}

void sg_site_book_free(struct sg_site_book *book)
{
    for (uint32_t i = 0; i < book->texts; i++)
        free(book->text[i]);
    for (uint32_t i = 0; i < book->sites; i++)
        free(book->site[i].frame);
    if (book->has_shown)
        sg_idmap_fini(&book->shown);
    free(book->text);
    free(book->site);
    free(book->phase);
    memset(book, 0, sizeof *book);
}

const char *sg_site_book_text(const struct sg_site_book *book, uint32_t text)
{
    return text < book->texts && book->text[text] ? book->text[text] : "";
}

uint32_t sg_site_book_shown(const struct sg_site_book *book, uint32_t site)
{
    return site < book->sites ? book->site[site].shown : 0;
}

/* A frame without a name. */
static char *frame_redacted(const struct sg_site_frame *frame, char text[SG_SITE_TEXT])
{
    const char *backward = frame->backward ? "backward of " : "";
    if (frame->native)
        snprintf(text, SG_SITE_TEXT, "module %" PRIu32 "+0x%" PRIx64, frame->file, frame->line);
    else if (frame->backward && !frame->line)
        snprintf(text, SG_SITE_TEXT, "backward, kind %" PRIu32, frame->function);
    else
        snprintf(text, SG_SITE_TEXT, "%sfile %" PRIu32 ":%" PRIu64 " in function %" PRIu32, backward, frame->file,
            frame->line, frame->function);
    return text;
}

/* Writes a frame with its names; for code, with the line where that can be found. */
static char *frame_name(const struct sg_site_book *book, const struct sg_site_frame *frame, char text[SG_SITE_TEXT])
{
    const char *file = sg_site_book_text(book, frame->file), *function = sg_site_book_text(book, frame->function);
    int length = frame->backward ? snprintf(text, SG_SITE_TEXT, frame->line ? "backward of " : "backward, ") : 0;
    if (frame->backward && !frame->line)
        snprintf(text + length, SG_SITE_TEXT - (size_t)length, "%s", *function ? function : "of an unknown kind");
    else if (!frame->native)
        sg_site_format(file, (uint32_t)frame->line, function, text + length, SG_SITE_TEXT - (size_t)length);
    if (!frame->native)
        return text;
    if (book->resolve && book->resolve(file, frame->line, text))
        return text;
    return sg_site_format_native(file, frame->line, function, text, SG_SITE_TEXT);
}

char *sg_site_book_frame(const struct sg_site_book *book, const struct sg_site_frame *frame, char text[SG_SITE_TEXT])
{
    return book->redacted ? frame_redacted(frame, text) : sg_plain_text(frame_name(book, frame, text));
}

char *sg_site_book_line(const struct sg_site_book *book, uint32_t site, char text[SG_SITE_TEXT])
{
    *text = '\0';
    if (!sg_site_book_shown(book, site))
        return text;
    return sg_site_book_frame(book, &book->site[site].frame[book->site[site].best], text);
}

char *sg_site_book_caller(const struct sg_site_book *book, uint32_t site, char text[SG_SITE_TEXT])
{
    *text = '\0';
    if (!sg_site_book_shown(book, site))
        return text;
    const struct sg_site_info *info = &book->site[site];
    uint32_t caller = info->best + 1;
    return caller < info->frames && !info->frame[caller].native ? sg_site_book_frame(book, &info->frame[caller], text)
                                                                : text;
}

char *sg_site_book_phase(const struct sg_site_book *book, uint32_t phase, char text[SG_SITE_TEXT])
{
    enum { DEEP = 16 };
    uint32_t chain[DEEP], deep = 0;
    size_t used = 0;
    /* From the inside out, bounded: a damaged file may name a phase that lies within itself. */
    for (; phase && phase < book->phases && deep < DEEP; phase = book->phase[phase].around)
        chain[deep++] = phase;
    *text = '\0';
    while (deep-- > 0) {
        const struct sg_phase_info *info = &book->phase[chain[deep]];
        int length = book->redacted
            ? snprintf(text + used, SG_SITE_TEXT - used, "%sphase %" PRIu32, used ? ", " : "", info->name)
            : snprintf(text + used, SG_SITE_TEXT - used, "%s%s", used ? ", " : "", sg_site_book_text(book, info->name));
        used += length > 0 ? (size_t)length : 0;
        if (used >= SG_SITE_TEXT - 1)
            break;
    }
    return sg_plain_text(text);
}
