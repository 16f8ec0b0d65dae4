#include "export/pages.h"

#include <errno.h>
#include <stdlib.h>

bool sg_shown_init(struct sg_shown_pages *pages, uint64_t most)
{
    *pages = (struct sg_shown_pages){.most = most};
    return sg_idmap_init(&pages->page);
}

void sg_shown_fini(struct sg_shown_pages *pages)
{
    sg_idmap_fini(&pages->page);
    free(pages->range);
}

static int by_begin(const void *a, const void *b)
{
    const struct sg_shown_range *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* The pages that `empty` asks for, or all, as ranges. */
static int pages_gather_ranges(struct sg_shown_pages *pages, bool empty)
{
    if (pages->room < pages->page.count) {
        struct sg_shown_range *larger = realloc(pages->range, 2 * pages->page.count * sizeof *larger);
        if (!larger)
            return -ENOMEM;
        pages->range = larger;
        pages->room = 2 * pages->page.count;
    }
    size_t count = 0;
    pages->ranges = 0;
    for (size_t i = 0; pages->page.count && i <= pages->page.mask; i++) {
        const struct sg_idmap_entry *entry = &pages->page.entry[i];
        if (entry->value && (!empty || entry->value == 1))
            pages->range[count++] = (struct sg_shown_range){entry->id * SG_SHOWN_PAGE, (entry->id + 1) * SG_SHOWN_PAGE};
    }
    if (count)
        qsort(pages->range, count, sizeof *pages->range, by_begin);
    for (size_t i = 0; i < count; i++) {
        struct sg_shown_range *last = pages->ranges ? &pages->range[pages->ranges - 1] : NULL;
        if (last && last->end == pages->range[i].begin)
            last->end = pages->range[i].end;
        else
            pages->range[pages->ranges++] = pages->range[i];
    }
    return 0;
}

int sg_shown_ranges(struct sg_shown_pages *pages)
{
    return pages_gather_ranges(pages, false);
}

static int drop_empty(struct sg_shown_pages *pages, sg_shown_fn *report, void *user)
{
    int error = pages_gather_ranges(pages, true);
    for (size_t i = 0; !error && i < pages->ranges; i++) {
        const struct sg_shown_range *range = &pages->range[i];
        report(user, false, range->begin, range->end - range->begin);
        for (uint64_t at = range->begin; at < range->end; at += SG_SHOWN_PAGE)
            sg_idmap_take(&pages->page, at / SG_SHOWN_PAGE);
    }
    return error;
}

int sg_shown_add(struct sg_shown_pages *pages, uint64_t begin, uint64_t end, sg_shown_fn *report, void *user)
{
    uint64_t first = begin / SG_SHOWN_PAGE, last = (end - 1) / SG_SHOWN_PAGE, missing = 0;
    int error = 0;
    /* Those that it will lie in are not empty any more. */
    for (uint64_t page = first; page <= last; page++) {
        uint64_t blocks = sg_idmap_get(&pages->page, page);
        missing += blocks == 0;
        if (blocks && !sg_idmap_put(&pages->page, page, blocks + 1))
            return -ENOMEM;
    }
    if (missing && pages->most && (pages->page.count + missing) * SG_SHOWN_PAGE > pages->most)
        error = drop_empty(pages, report, user);
    uint64_t run = 0;
    for (uint64_t page = first; missing && !error && page <= last + 1; page++) {
        bool here = page > last || sg_idmap_get(&pages->page, page) != 0;
        if (here && run)
            report(user, true, (page - run) * SG_SHOWN_PAGE, run * SG_SHOWN_PAGE);
        run = here ? 0 : run + 1;
        if (!here && !sg_idmap_put(&pages->page, page, 2))
            error = -ENOMEM;
    }
    return error;
}

void sg_shown_remove(struct sg_shown_pages *pages, uint64_t begin, uint64_t end)
{
    for (uint64_t page = begin / SG_SHOWN_PAGE; page <= (end - 1) / SG_SHOWN_PAGE; page++) {
        uint64_t blocks = sg_idmap_get(&pages->page, page);
        if (blocks > 1)
            sg_idmap_put(&pages->page, page, blocks - 1);
    }
}
