#include "analysis/searches.h"

/* Runs that no program makes by chance on its way to a card without end. A step of more than four times is another piece
   of work. */
enum { GROWING_LEAST = 4, EQUAL_LEAST = 16, STEP_MOST = 4 };

static bool is_step(uint64_t last, uint64_t bytes)
{
    return last && bytes > last && bytes / STEP_MOST <= last;
}

/* A search by halves goes on between what it got and what it did not. */
static void search_ask(struct sg_search *search, uint64_t bytes)
{
    search->requests++;
    search->goes_on |= search->refused_at && (bytes < search->last || bytes > search->refused);
}

void sg_search_served(struct sg_search *search, uint64_t bytes)
{
    search_ask(search, bytes);
    if (search->refused_at)
        return;
    if (!is_step(search->last, bytes))
        search->grows_from = search->requests;
    if (bytes != search->last)
        search->same_from = search->requests;
    search->last = bytes;
}

void sg_search_refused(struct sg_search *search, uint64_t bytes)
{
    search_ask(search, bytes);
    if (search->refused_at)
        return;
    search->refused_at = search->requests;
    search->refused = bytes;
    if (is_step(search->last, bytes) && search->requests - search->grows_from >= GROWING_LEAST)
        search->begins = search->grows_from;
    else if (bytes == search->last && search->requests - search->same_from >= EQUAL_LEAST)
        search->begins = search->same_from;
}

bool sg_search_is_same(const struct sg_search *endless, const struct sg_search *other)
{
    return endless->begins && !endless->goes_on && other->refused_at >= endless->begins && !other->goes_on;
}
