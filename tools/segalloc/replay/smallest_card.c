#include "replay/smallest_card.h"

/* Nearly always the smallest card is within this part of the peak: the first that is tried. */
enum { FIRST_PART = 50, GROWTH_PART = 16 };

/* The larger cards that are tried: so many thousandths above the one found. */
static const uint64_t ABOVE[] = {2, 5, 10, 20, 30, 50, 75, 100};

struct search {
    struct sg_smallest *smallest;
    uint64_t open; /* bits of devices whose card is still looked for */
    uint64_t low[SG_DEVICES_MAX], high[SG_DEVICES_MAX], tried[SG_DEVICES_MAX];
};

static uint64_t card_whole_steps(uint64_t bytes)
{
    return bytes / SG_SMALLEST_STEP * SG_SMALLEST_STEP;
}

static bool is_open(const struct search *search, int device)
{
    return search->open >> device & 1;
}

/* Plays once. A device on which all fits is named by its bit. */
static int try_cards(const struct search *search, uint64_t *ret_fits)
{
    struct sg_play_result result;
    int status = search->smallest->play(search->smallest->user, search->tried, search->open, &result);
    *ret_fits = 0;
    for (int i = 0; status == 0 && i < SG_DEVICES_MAX; i++)
        *ret_fits |= (uint64_t)(result.device[i].ooms == 0) << i;
    return status;
}

static void search_begin(struct search *search, const struct sg_play_result *known)
{
    for (int i = 0; i < SG_DEVICES_MAX; i++) {
        if (!known->device[i].used)
            continue;
        uint64_t requested = known->device[i].stats.peak[SG_STAT_requested_bytes];
        uint64_t peak = known->device[i].peak_taken > requested ? known->device[i].peak_taken : requested;
        search->open |= UINT64_C(1) << i;
        search->low[i] = peak ? card_whole_steps(peak - 1) : 0;
        search->high[i] = card_whole_steps(peak + peak / FIRST_PART) + SG_SMALLEST_STEP;
    }
}

/* Finds for each device a card on which all fits. Devices for which there is none are given up. */
static int find_upper(struct search *search)
{
    uint64_t wanted = search->open, fits = 0;
    int status = 0;
    while (status == 0 && search->open) {
        for (int i = 0; i < SG_DEVICES_MAX; i++)
            search->tried[i] = search->high[i];
        status = try_cards(search, &fits);
        for (int i = 0; status == 0 && i < SG_DEVICES_MAX; i++) {
            if (!is_open(search, i))
                continue;
            if (fits >> i & 1) {
                search->open &= ~(UINT64_C(1) << i);
                continue;
            }
            search->low[i] = search->high[i];
            if (search->high[i] >= search->smallest->most) {
                search->open &= ~(UINT64_C(1) << i);
                wanted &= ~(UINT64_C(1) << i);
                continue;
            }
            uint64_t next = search->high[i] + card_whole_steps(search->high[i] / GROWTH_PART) + SG_SMALLEST_STEP;
            search->high[i] = next < search->smallest->most ? next : search->smallest->most;
        }
    }
    search->open = wanted;
    return status;
}

/* Halves what lies between; a device whose bounds touch is done. */
static int search_narrow(struct search *search)
{
    for (;;) {
        uint64_t fits, open = search->open, low = 0, high = 0;
        for (int i = 0; i < SG_DEVICES_MAX; i++) {
            uint64_t width = search->high[i] - search->low[i];
            search->tried[i] = search->high[i];
            if (!(open >> i & 1))
                continue;
            if (width <= SG_SMALLEST_STEP)
                search->open &= ~(UINT64_C(1) << i);
            else
                search->tried[i] = search->low[i] + card_whole_steps(width / 2);
            if (width >= high - low) {
                low = search->low[i];
                high = search->high[i];
            }
        }
        if (!search->open)
            return 0;
        if (search->smallest->progress)
            search->smallest->progress(low, high);
        int status = try_cards(search, &fits);
        if (status)
            return status;
        for (int i = 0; i < SG_DEVICES_MAX; i++)
            if (is_open(search, i))
                *(fits >> i & 1 ? &search->high[i] : &search->low[i]) = search->tried[i];
    }
}

int sg_smallest_find(struct sg_smallest *smallest, const struct sg_play_result *known)
{
    struct search search = {.smallest = smallest};
    search_begin(&search, known);
    int status = find_upper(&search);
    uint64_t found = search.open;
    if (status == 0)
        status = search_narrow(&search);
    for (int i = 0; i < SG_DEVICES_MAX; i++)
        smallest->card[i] = status == 0 && found >> i & 1 ? search.high[i] : 0;
    return status;
}

int sg_smallest_look_above(struct sg_smallest *smallest)
{
    struct search search = {.smallest = smallest};
    for (int i = 0; i < SG_DEVICES_MAX; i++)
        search.open |= (uint64_t)(smallest->card[i] > 0) << i;
    int status = 0;
    for (size_t part = 0; part < sizeof ABOVE / sizeof *ABOVE && status == 0 && search.open; part++) {
        uint64_t fits = 0;
        for (int i = 0; i < SG_DEVICES_MAX; i++) {
            uint64_t above = card_whole_steps(smallest->card[i] / 1000 * ABOVE[part]);
            uint64_t card = smallest->card[i] + (above ? above : SG_SMALLEST_STEP);
            search.tried[i] = card < smallest->most ? card : smallest->most;
        }
        status = try_cards(&search, &fits);
        for (int i = 0; i < SG_DEVICES_MAX && status == 0; i++)
            if (is_open(&search, i) && !(fits >> i & 1))
                smallest->failing[i] = search.tried[i];
    }
    return status;
}

uint64_t sg_smallest_largest(const struct sg_smallest *smallest, const struct sg_play_result *known)
{
    uint64_t largest = 0;
    for (int i = 0; i < SG_DEVICES_MAX; i++) {
        if (known->device[i].used && !smallest->card[i])
            return 0;
        if (smallest->card[i] > largest)
            largest = smallest->card[i];
    }
    return largest;
}
