/* From below: a meter of what stays of one life, the figures of a life on a card, of a program, and of both. */
#include "rehearse/colocate.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/core.h"
#include "inspect/inventory.h"
#include "install_paths.h"
#include "outside_levels.h"
#include "rehearse/played_life.h"
#include "replay/smallest_card.h"
#include "size.h"
#include "tool.h"

/* The rounds in which a card is looked for: its pages depend on it, and what is needed on it on them. */
enum { ROUNDS = 8 };

/* The use of the one device, while a life is played. */
struct meter {
    struct sg_outside_levels outside;
    uint32_t tags, discards; /* that are defined; that save nothing; a bit each */
    bool parted, slept;      /* some tag was paused; all that held memory were */
    bool refuses;            /* a pause from outside would be refused */
    bool asleep;
    uint64_t held;                      /* the most at any moment, bytes */
    uint64_t untagged;                  /* the most that had no tag at any moment, bytes */
    uint64_t while_parted, asleep_most; /* the most that was held while some tag was paused; while all were */
    uint64_t tagged;                    /* the most of tags that save contents, bytes of their pages */
    uint64_t saved, saved_most, moved, switches;
};

/* Sums over the tags at one moment, bytes. */
struct moment {
    uint64_t awake, backed, saved;
    bool any_paused;
};

static struct moment meter_look(const struct meter *meter, struct sg_core *core)
{
    struct moment now = {.any_paused = false};
    for (uint32_t left = meter->tags; left; left &= left - 1) {
        uint32_t tag = (uint32_t)__builtin_ctz(left);
        struct sg_tag_figures figures;
        if (!sg_core_tag_figures(core, 0, tag, &figures))
            continue;
        bool saves = !(meter->discards >> tag & 1);
        now.any_paused |= figures.paused && figures.requested;
        now.awake += figures.reserved;
        now.backed += saves ? figures.reserved : 0;
        now.saved += figures.saved;
    }
    return now;
}

static void meter_raise(uint64_t *most, uint64_t value)
{
    *most = value > *most ? value : *most;
}

/* Notes what is held now. `order`: a pause or a resume has just ended. */
static void meter_note(struct meter *meter, struct sg_core *core, bool order)
{
    const struct moment now = meter_look(meter, core);
    uint64_t held = sg_core_reserved(core, 0) + sg_outside_levels_bytes(&meter->outside);
    bool asleep = now.any_paused && !now.awake;
    meter_raise(&meter->untagged, held > now.awake ? held - now.awake : 0);
    meter_raise(&meter->held, held);
    meter_raise(&meter->tagged, now.backed);
    if (now.any_paused)
        meter_raise(&meter->while_parted, held);
    if (asleep)
        meter_raise(&meter->asleep_most, held);
    meter->parted |= now.any_paused;
    meter->slept |= asleep;
    if (order) {
        meter->moved += now.saved > meter->saved ? now.saved - meter->saved : meter->saved - now.saved;
        meter->switches += asleep && !meter->asleep;
        meter->asleep = asleep;
    }
    meter->saved = now.saved;
    meter_raise(&meter->saved_most, now.saved);
}

static bool meter_watch(void *watcher, const struct segalloc_trace_record *record, uint64_t event, struct sg_core *core)
{
    struct meter *meter = watcher;
    struct sg_outside_change change;
    (void)event;
    switch (record->kind) {
    case SEGALLOC_RECORD_DEFINE_TAG:
        if (record->stream < SG_TAGS) {
            meter->tags |= UINT32_C(1) << record->stream;
            meter->discards |= (uint32_t) !!(record->flags & SEGALLOC_FLAG_NATIVE) << record->stream;
        }
        return true;
    case SEGALLOC_RECORD_OUTSIDE:
        if (sg_outside_levels_read(&meter->outside, record, &change))
            meter_note(meter, core, false);
        return true;
    case SEGALLOC_RECORD_PIN: /* others remember pages (docs/pause.md, 800); which tag they are of is not looked at */
        meter->refuses = true;
        return true;
    case SEGALLOC_RECORD_ALLOCATE:
        meter_note(meter, core, false);
        return true;
    case SEGALLOC_RECORD_TURN:
        if (record->id == SEGALLOC_TURN_PAUSE_END)
            meter_note(meter, core, true);
        return true;
    default:
        return true;
    }
}

/* Memory that stays while the program is paused: by itself, if it ever is, else from outside. */
static uint64_t meter_stays(const struct meter *meter)
{
    return meter->slept     ? meter->asleep_most
           : meter->parted  ? meter->while_parted
           : meter->refuses ? meter->held
                            : meter->untagged;
}

/* One process of a program, and its figures on the card that was looked at last. */
struct member {
    struct sg_played_life life;
    uint64_t need, need_keep, stays;
    struct meter meter; /* of the recorded order */
};

struct side {
    struct sg_rehearse *rehearse;
    struct member *member;
    unsigned count;
};

/* The part of a card that the life needs. */
static int member_need(struct member *member, uint64_t card, bool stays, uint64_t *ret)
{
    struct sg_play_result known;
    uint64_t exact[SG_DEVICES_MAX], robust[SG_DEVICES_MAX];
    member->life.fixed = card;
    member->life.stays = stays;
    int status = sg_played_on_cards(&member->life, (uint64_t[SG_DEVICES_MAX]){card}, 0, &known);
    if (status == 0)
        status = sg_played_robust(&member->life, &known, exact, robust);
    *ret = status == 0 ? robust[0] : 0;
    return status;
}

/* Plays it with the meter, on the part that it needs: beside others it holds no more than that. */
static int member_measure(struct member *member, uint64_t card)
{
    struct sg_play_result known;
    struct meter meter;
    uint64_t orders = 0;
    int status = 0;
    member->life.fixed = card;
    member->life.stays = false;
    member->stays = 0;
    member->life.play.watch = meter_watch;
    member->life.play.watcher = &meter;
    for (member->life.order = 0; status == 0 && member->life.order <= orders; member->life.order++) {
        meter = (struct meter){.refuses = member->life.play.conf.check != 0};
        status = sg_played_on_cards(&member->life, (uint64_t[SG_DEVICES_MAX]){member->need}, 0, &known);
        meter_raise(&member->stays, meter_stays(&meter));
        if (member->life.order == 0)
            member->meter = meter;
        orders = sg_played_orders(&known);
    }
    member->life.order = 0;
    member->life.play.watch = NULL;
    return status;
}

/* Sums up the figures of a program on a card. `pauses`: those of a program that pauses too. */
static int side_on_card(struct side *side, uint64_t card, bool pauses, struct sg_colocation_program *ret)
{
    uint64_t unseen = (side->rehearse->unseen_bytes + SG_SMALLEST_STEP - 1) / SG_SMALLEST_STEP * SG_SMALLEST_STEP;
    *ret = (struct sg_colocation_program){.need = unseen, .need_keep = unseen, .stays = unseen};
    int status = 0;
    for (unsigned i = 0; i < side->count && status == 0; i++) {
        struct member *member = &side->member[i];
        const struct meter *meter = &member->meter;
        status = member_need(member, card, /* stays */ true, &member->need_keep);
        ret->need_keep += member->need_keep;
        if (status || !pauses)
            continue;
        status = member_need(member, card, /* stays */ false, &member->need);
        if (status == 0)
            status = member_measure(member, card);
        bool own = meter->slept || meter->parted;
        ret->need += member->need;
        ret->stays += member->stays < member->need_keep ? member->stays : member->need_keep;
        ret->pauses |= own;
        ret->tags |= own || (meter->tags && !meter->refuses);
        ret->saved += own ? meter->saved_most : meter->refuses ? 0 : meter->tagged;
        ret->moved += own ? meter->moved : meter->refuses ? 0 : 2 * meter->tagged;
        ret->switches = meter->switches > ret->switches ? meter->switches : ret->switches;
    }
    if (ret->switches == 0 && ret->tags)
        ret->switches = 1;
    return status;
}

static uint64_t whole_steps(uint64_t bytes)
{
    return (bytes + SG_SMALLEST_STEP - 1) / SG_SMALLEST_STEP * SG_SMALLEST_STEP;
}

/* The card that both need with these figures. */
static uint64_t card_of(const struct sg_colocation_program program[2], bool pauses)
{
    uint64_t one = whole_steps(program[0].need + program[1].stays),
             other = whole_steps(program[1].need + program[0].stays);
    return !pauses ? whole_steps(program[0].need_keep + program[1].need_keep) : one > other ? one : other;
}

/* The smallest card on which what both need, as it is on that card, has room. 0: there is none, or none was found. */
static int colocate_find_card(struct side side[2], bool pauses, uint64_t first, struct sg_colocation_program program[2],
    uint64_t *ret)
{
    uint64_t card = first;
    *ret = 0;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 2; i++) {
            int status = side_on_card(&side[i], card, pauses, &program[i]);
            if (status)
                return status;
        }
        uint64_t needed = card_of(program, pauses);
        if (needed <= card) {
            *ret = card;
            return 0;
        }
        card = needed;
    }
    return 0;
}

static int side_open(struct side *side, const char *folder)
{
    struct dirent **entry;
    int count = scandir(folder, &entry, NULL, alphasort), status = count < 0 ? SG_EXIT_ERROR : 0;
    side->member = calloc(count > 0 ? (size_t)count : 1, sizeof *side->member);
    if (!side->member)
        status = sg_tool_error(side->rehearse->verb, "no host memory left");
    for (int i = 0; i < count; i++) {
        char path[SG_PLACE_BYTES * 2];
        snprintf(path, sizeof path, "%s/%s", folder, entry[i]->d_name);
        if (status == 0 && strstr(entry[i]->d_name, ".trace"))
            status = sg_played_open(&side->member[side->count++].life, side->rehearse, path);
        free(entry[i]);
    }
    if (count >= 0)
        free(entry);
    return status;
}

static void side_close(struct side *side)
{
    for (unsigned i = 0; i < side->count; i++)
        sg_played_close(&side->member[i].life);
    free(side->member);
}

/* True if a program has come to its end, and would on another card too. */
static bool side_is_known(const struct side *side, int number, struct sg_colocation *ret)
{
    const struct sg_rehearse *rehearse = side->rehearse;
    const char *name = number ? "the program of --with" : "CMD";
    if (rehearse->outcome == SG_REHEARSE_STOPPED)
        snprintf(ret->reason, sizeof ret->reason, "%s stopped: %.400s", name, rehearse->reason);
    else if (rehearse->adapts || rehearse->differs)
        snprintf(ret->reason, sizeof ret->reason, "%s makes do with less on a smaller card", name);
    else if (rehearse->asks)
        snprintf(ret->reason, sizeof ret->reason,
            "%s asks how much memory there is, and may take another part of that card", name);
    else if (!rehearse->alone.segalloc)
        snprintf(ret->reason, sizeof ret->reason, "no card has room for %s", name);
    else
        return true;
    return false;
}

static int find_ways(struct side side[2], struct sg_colocation *ret)
{
    uint64_t one = side[0].rehearse->alone.segalloc, other = side[1].rehearse->alone.segalloc;
    struct sg_colocation_program keep[2];
    int status = colocate_find_card(side, /* pauses */ false, whole_steps(one + other), keep, &ret->keep.card);
    if (status == 0)
        status = colocate_find_card(side, /* pauses */ true, whole_steps(one > other ? one : other), ret->program,
            &ret->pause.card);
    if (status)
        return status;
    ret->known = ret->keep.card && ret->pause.card;
    if (!ret->known)
        snprintf(ret->reason, sizeof ret->reason, "no card was found on which both fit");
    if (ret->pause.card > ret->keep.card) /* to pause is never worse */
        ret->pause.card = ret->keep.card;
    ret->discard.card = ret->pause.card;
    ret->pause.host = ret->program[0].saved + ret->program[1].saved;
    ret->pause.seconds = (double)(ret->program[0].moved + ret->program[1].moved) / (double)side[0].rehearse->rate.bytes;
    return 0;
}

int sg_colocate_find(struct sg_rehearse *const program[2], struct sg_colocation *ret)
{
    struct side side[2] = {{.rehearse = program[0]}, {.rehearse = program[1]}};
    int status = 0;
    ret->known = side_is_known(&side[0], 0, ret) && side_is_known(&side[1], 1, ret);
    for (int i = 0; i < 2 && ret->known && status == 0; i++)
        status = side_open(&side[i], ret->folder[i]);
    if (status == 0 && ret->known)
        status = find_ways(side, ret);
    if (status == SG_PLAYED_CUT) {
        ret->known = false;
        snprintf(ret->reason, sizeof ret->reason, "it was stopped");
        status = 0;
    }
    side_close(&side[0]);
    side_close(&side[1]);
    return status;
}

enum sg_rehearse_verdict sg_colocate_verdict(const struct sg_rehearse *rehearse, const struct sg_colocation_way *way,
    const struct sg_rehearse_card *card)
{
    /* Both have a context each. A margin that the user says is of the card. */
    uint64_t margin = rehearse->margin == SG_REHEARSE_MEASURED ? 2 * card->margin : card->margin;
    if (way->card > card->bytes)
        return SG_REHEARSE_DOES_NOT_FIT;
    return card->bytes - way->card < margin ? SG_REHEARSE_TOO_CLOSE : SG_REHEARSE_FITS;
}
