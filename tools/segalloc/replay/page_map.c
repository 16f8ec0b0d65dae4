#include "inspect/core_state.h"
#include "replay/page_map.h"

#include <stdlib.h>
#include <string.h>

struct page {
    uint64_t bytes, used, pending;
    uint32_t keeper; /* group of the blocks in it; MIXED: of several */
};

enum { MIXED = UINT32_MAX, GROUPS = 4096 };

struct survey {
    struct sg_placed *piece;
    size_t pieces;
    struct page *page; /* in the order of the pieces */
    size_t pages;
    struct sg_live groups;
    struct sg_pin *pin; /* by group */
    const struct sg_site_book *book;
    const struct sg_placed *counted; /* the block that was counted last */
};

/* The pages that a piece lies in, from its region's first. */
static uint64_t first_page(const struct sg_placed *piece)
{
    return (piece->piece.address - piece->region) / piece->page_bytes;
}

static uint64_t last_page(const struct sg_placed *piece)
{
    return (piece->piece.address + piece->piece.bytes - 1 - piece->region) / piece->page_bytes;
}

static uint64_t bytes_in(const struct sg_placed *piece, uint64_t page)
{
    uint64_t from = piece->region + page * piece->page_bytes, to = from + piece->page_bytes,
             end = piece->piece.address + piece->piece.bytes;
    return (end < to ? end : to) - (piece->piece.address > from ? piece->piece.address : from);
}

static bool shares_page(const struct sg_placed *before, const struct sg_placed *piece)
{
    return before && before->region == piece->region && last_page(before) == first_page(piece);
}

/* Called with each part of a piece that lies in a page of its own. */
typedef void visit_fn(struct survey *survey, const struct sg_placed *piece, struct page *page, uint64_t bytes);

static void survey_walk(struct survey *survey, visit_fn *visit)
{
    struct page *page = survey->page;
    for (size_t i = 0; i < survey->pieces; i++) {
        const struct sg_placed *piece = &survey->piece[i];
        page -= shares_page(i ? piece - 1 : NULL, piece);
        for (uint64_t at = first_page(piece); at <= last_page(piece); at++)
            visit(survey, piece, page++, bytes_in(piece, at));
    }
}

static void add_use(struct survey *survey, const struct sg_placed *piece, struct page *page, uint64_t bytes)
{
    (void)survey;
    page->bytes = piece->page_bytes;
    page->used += piece->piece.state == SG_PIECE_ALLOCATED ? bytes : 0;
    page->pending += piece->piece.state == SG_PIECE_PENDING ? bytes : 0;
}

static bool is_partly_used(const struct page *page)
{
    uint64_t used = page->used + page->pending;
    return used && used < page->bytes;
}

static struct sg_live_key survey_key_of(const struct survey *survey, const struct sg_placed *piece)
{
    return (struct sg_live_key){
        .size_class = sg_live_class(piece->piece.requested), .site = sg_site_book_shown(survey->book, piece->site),
    };
}

static void add_pin(struct survey *survey, const struct sg_placed *piece, struct page *page, uint64_t bytes)
{
    if (!is_partly_used(page) || piece->piece.state == SG_PIECE_FREE)
        return;
    const struct sg_live_key key = survey_key_of(survey, piece);
    uint32_t group = sg_live_add(&survey->groups, &key, bytes);
    page->keeper = page->keeper == 0 || page->keeper == group + 1 ? group + 1 : MIXED;
    survey->pin[group].key = survey->groups.group[group].key;
    survey->pin[group].blocks += survey->counted != piece;
    survey->counted = piece;
    survey->pin[group].bytes += bytes;
}

static size_t count_pages(const struct survey *survey)
{
    size_t pages = 0;
    for (size_t i = 0; i < survey->pieces; i++) {
        const struct sg_placed *piece = &survey->piece[i];
        pages += last_page(piece) - first_page(piece) + 1 - shares_page(i ? piece - 1 : NULL, piece);
    }
    return pages;
}

static char cell_of(const struct page *page, size_t pages)
{
    uint64_t bytes = 0, used = 0, pending = 0;
    for (size_t i = 0; i < pages; i++) {
        bytes += page[i].bytes;
        used += page[i].used;
        pending += page[i].pending;
    }
    if (used + pending == 0)
        return '.';
    if (used == 0)
        return '~';
    uint64_t tenths = (used + pending) * 10 / bytes;
    return used + pending >= bytes ? '#' : (char)('0' + (tenths ? tenths : 1));
}

static void page_map_draw(struct sg_page_map *moment, const struct survey *survey)
{
    size_t of_cell = (survey->pages + SG_MAP_CELLS - 1) / SG_MAP_CELLS;
    for (size_t at = 0; at < survey->pages; at += of_cell) {
        size_t pages = survey->pages - at < of_cell ? survey->pages - at : of_cell;
        moment->map[moment->cells++] = cell_of(survey->page + at, pages);
    }
    moment->cell_bytes = survey->pages ? of_cell * survey->page[0].bytes : 0;
}

static int by_back(const void *a, const void *b)
{
    const struct sg_pin *one = a, *other = b;
    if (one->back != other->back)
        return one->back < other->back ? 1 : -1;
    return (one->bytes < other->bytes) - (one->bytes > other->bytes);
}

static void find_pins(struct sg_page_map *moment, struct survey *survey)
{
    survey_walk(survey, add_pin);
    for (size_t i = 0; i < survey->pages; i++) {
        const struct page *page = &survey->page[i];
        if (!is_partly_used(page))
            continue;
        moment->partly++;
        moment->partly_idle += page->bytes - page->used - page->pending;
        if (page->keeper == MIXED)
            continue;
        survey->pin[page->keeper - 1].pages++;
        survey->pin[page->keeper - 1].back += page->bytes;
    }
    qsort(survey->pin, survey->groups.groups, sizeof *survey->pin, by_back);
    while (moment->pins < SG_PINS_LISTED && moment->pins < survey->groups.groups && survey->pin[moment->pins].blocks) {
        moment->pin[moment->pins] = survey->pin[moment->pins];
        moment->pins++;
    }
}

bool sg_page_map_take(struct sg_page_map *moment, struct sg_core *core, int device, uint64_t event,
    const struct sg_site_book *book)
{
    struct survey survey = {.pieces = sg_core_placed(core, device, NULL, 0), .book = book};
    *moment = (struct sg_page_map){.event = event, .reserved = sg_core_reserved(core, device)};
    if (!survey.pieces)
        return true;
    survey.piece = malloc(survey.pieces * sizeof *survey.piece);
    survey.pin = calloc(GROUPS, sizeof *survey.pin);
    bool fine = survey.piece && survey.pin && sg_live_init(&survey.groups, GROUPS);
    if (fine) {
        (void)sg_core_placed(core, device, survey.piece, survey.pieces);
        survey.pages = count_pages(&survey);
        survey.page = calloc(survey.pages, sizeof *survey.page);
        fine = survey.page != NULL;
    }
    if (fine) {
        survey_walk(&survey, add_use);
        moment->pages = survey.pages;
        page_map_draw(moment, &survey);
        find_pins(moment, &survey);
    }
    sg_live_fini(&survey.groups);
    free(survey.piece);
    free(survey.pin);
    free(survey.page);
    return fine;
}
