/* The cards that a rehearsal answers for: --card and --margin. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "rehearse/rehearse.h"
#include "size.h"
#include "tool.h"

static const struct {
    const char *name;
    uint64_t mib, rest_mib;
} known_cards[] = {
#define CARD(name, mib, rest_mib) {name, mib, rest_mib},
#include "cards.def"
};
enum { KNOWN_CARDS = sizeof known_cards / sizeof *known_cards };

/* In the table; negative: not there. */
static int find_card(const char *name)
{
    for (int i = 0; i < KNOWN_CARDS; i++)
        if (strcasecmp(name, known_cards[i].name) == 0)
            return i;
    return -1;
}

static int cards_by_bytes(const void *a, const void *b)
{
    const struct sg_rehearse_card *x = a, *y = b;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

int sg_rehearse_read_cards(struct sg_rehearse *rehearse, const char *list)
{
    char text[1024];
    snprintf(text, sizeof text, "%s", list);
    char *rest = text;
    for (char *item; (item = strsep(&rest, ",")) != NULL;) {
        int known = find_card(item);
        struct sg_rehearse_card card = {.name = known < 0 ? NULL : known_cards[known].name};
        if (known >= 0)
            card.bytes = known_cards[known].mib * SG_MIB;
        else if (!sg_tool_card(item, &card.bytes) || card.bytes < 4 * SG_MIB || card.bytes > 16 * SG_TIB)
            return sg_tool_usage(rehearse->verb,
                "--card takes sizes from 4MiB to 16TiB such as 24GiB,40GiB, or names such as 4090, not \"%s\"", item);
        if (rehearse->card_count == SG_REHEARSE_CARDS)
            return sg_tool_usage(rehearse->verb, "--card takes at most %d sizes", SG_REHEARSE_CARDS);
        card.bytes &= ~(2 * SG_MIB - 1);
        bool again = false;
        for (unsigned i = 0; i < rehearse->card_count; i++)
            again |= rehearse->card[i].bytes == card.bytes;
        if (!again)
            rehearse->card[rehearse->card_count++] = card;
    }
    qsort(rehearse->card, rehearse->card_count, sizeof *rehearse->card, cards_by_bytes);
    return 0;
}

int sg_rehearse_read_margin(struct sg_rehearse *rehearse, const char *text)
{
    if (sg_tool_size(text, &rehearse->margin))
        return 0;
    return sg_tool_usage(rehearse->verb, "--margin takes a size with its unit, such as 600MiB, or 0, not \"%s\"", text);
}

void sg_rehearse_set_margins(struct sg_rehearse *rehearse)
{
    uint64_t most = 0; /* of those measured: for a card of which nothing is known */
    for (int i = 0; i < KNOWN_CARDS; i++)
        most = known_cards[i].rest_mib > most ? known_cards[i].rest_mib : most;
    for (unsigned i = 0; i < rehearse->card_count; i++) {
        struct sg_rehearse_card *card = &rehearse->card[i];
        int known = card->name ? find_card(card->name) : -1;
        uint64_t rest = known < 0 ? 0 : known_cards[known].rest_mib;
        card->estimated = !rest && rehearse->margin == SG_REHEARSE_MEASURED;
        card->margin = rehearse->margin != SG_REHEARSE_MEASURED ? rehearse->margin : (rest ? rest : most) * SG_MIB;
    }
}
