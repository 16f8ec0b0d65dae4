/* The answer of a rehearsal, as JSON. */
#include "rehearse/rehearse.h"

#include "analysis/role_rows.h"
#include "json.h"

static json_t *json_held(const struct sg_rehearse_held *held)
{
    json_t *groups = sg_json_array();
    for (int i = 0; i < SG_REHEARSE_IN_USE && held->group[i].bytes; i++) {
        const struct sg_rehearse_in_use *in_use = &held->group[i];
        json_t *group = sg_json_object(NULL);
        sg_json_set_text(group, "site", *in_use->site ? in_use->site : NULL);
        SG_JSON_NUMBERS(group, {"blocks", in_use->blocks}, {"bytes", in_use->bytes});
        sg_json_add(groups, group);
    }
    return groups;
}

static json_t *json_card(const struct sg_rehearse *rehearse, const struct sg_rehearse_card *card)
{
    static const char *const verdicts[] = {"fits", "too_close", "does_not_fit", "fits_with_overflow"};
    uint64_t smallest = sg_rehearse_smallest(rehearse, card);
    json_t *result = sg_json_object(NULL);
    SG_JSON_NUMBERS(result, {"bytes", card->bytes});
    sg_json_set_text(result, "name", card->name);
    sg_json_set_flag(result, "fits", sg_rehearse_verdict(rehearse, card) != SG_REHEARSE_DOES_NOT_FIT);
    sg_json_set_text(result, "verdict", verdicts[sg_rehearse_verdict(rehearse, card)]);
    SG_JSON_NUMBERS(result, {"margin_bytes", card->margin});
    sg_json_set_flag(result, "margin_estimated", card->estimated);
    if (smallest)
        sg_json_set_signed(result, "headroom_bytes", (int64_t)card->bytes - (int64_t)smallest);
    else
        sg_json_set(result, "headroom_bytes", json_null());
    sg_json_set_flag(result, "adapted", card->adapted);
    sg_json_set_flag(result, "took_turns", card->turns);
    sg_json_set_flag(result, "ran", card->ran || card->turns || card->ran_out || card->tried);
    sg_json_set_known(result, "refused", card->adapted_refused, card->adapted);
    sg_json_set_known(result, "failures", card->adapted_ooms, card->adapted);
    sg_json_set_known(result, "ends_at_event", card->ends_at_event, card->ends_at_event);
    sg_json_set_known(result, "of_events", card->of_events, card->ends_at_event);
    sg_json_set_known(result, "asked_bytes", card->ends_with_bytes, card->ends_at_event);
    sg_json_set_known(result, "asked_short_by_bytes", card->ends_short_by, card->ends_short_by);
    sg_json_set_known(result, "live_bytes", card->ends_with_live, card->ends_at_event);
    sg_json_set_known(result, "live_by_other_calls_bytes", card->ends_with_outside, card->ends_at_event);
    sg_json_set_text(result, "site", *card->site ? card->site : NULL);
    sg_json_set_text(result, "phase", *card->phase ? card->phase : NULL);
    sg_json_set(result, "live_then", json_held(&card->held));
    sg_json_set(result, "roles_then", sg_role_rows(&card->held.roles));
    sg_json_set(result, "overflow", sg_rehearse_json_bill(rehearse, card));
    return result;
}

static json_t *rehearse_json_cards(const struct sg_rehearse *rehearse)
{
    json_t *cards = sg_json_array();
    for (unsigned i = 0; sg_rehearse_has_cards(rehearse) && i < rehearse->card_count; i++)
        if (!rehearse->card[i].open)
            sg_json_add(cards, json_card(rehearse, &rehearse->card[i]));
    return cards;
}

/* Devices that several processes used at once. */
static json_t *json_shared(const struct sg_rehearse *rehearse)
{
    json_t *devices = sg_json_array();
    for (int i = 0; i < SG_DEVICES_MAX; i++) {
        const struct sg_rehearse_device *device = &rehearse->device[i];
        if (device->processes < 2)
            continue;
        json_t *shared = sg_json_object(NULL);
        SG_JSON_NUMBERS(shared, {"device", (uint64_t)i}, {"processes", device->processes},
            {"peak_requested_bytes", device->requested});
        sg_json_add(devices, shared);
    }
    return devices;
}

static json_t *json_outside(const struct sg_outside *outside)
{
    json_t *calls = sg_json_object(NULL);
    for (int i = 0; i < SEGALLOC_OUTSIDE_COUNT; i++)
        if (outside->bytes[i])
            sg_json_set(calls, sg_outside_key((enum segalloc_outside)i), sg_json_number(outside->bytes[i]));
    return calls;
}

static json_t *json_alone(const struct sg_rehearse_alone *alone, uint64_t smallest)
{
    json_t *result = sg_json_object(NULL);
    sg_json_set_known(result, "pytorch", alone->pytorch, alone->pytorch);
    sg_json_set_known(result, "pytorch_expandable", alone->pytorch_expandable, alone->pytorch_expandable);
    sg_json_set_known(result, "segalloc", smallest, smallest);
    return result;
}

static json_t *json_assumptions(const struct sg_rehearse *rehearse)
{
    const char *assumed[SG_REHEARSE_ASSUMED];
    unsigned count = sg_rehearse_assumed(rehearse, assumed);
    json_t *texts = sg_json_array();
    for (unsigned i = 0; i < count; i++)
        sg_json_add(texts, sg_json_text(assumed[i]));
    return texts;
}

json_t *sg_rehearse_json(const struct sg_rehearse *rehearse)
{
    static const char *const outcomes[] = {"completed", "out_of_memory", "stopped"};
    const struct sg_rehearse_card *largest = sg_rehearse_largest(rehearse);
    bool adapts = rehearse->adapts || rehearse->differs;
    uint64_t smallest = adapts ? 0 : rehearse->alone.segalloc;
    json_t *result = sg_json_object("segalloc.rehearse/1");
    sg_json_set_text(result, "outcome", outcomes[rehearse->outcome]);
    sg_json_set_text(result, "reason", *rehearse->reason ? rehearse->reason : NULL);
    sg_json_set_signed(result, "status", rehearse->run.status);
    sg_json_set_text(result, "gpu", "simulated");
    sg_json_set(result, "seconds", sg_json_real(rehearse->run.seconds, 1));
    SG_JSON_NUMBERS(result, {"processes", rehearse->processes}, {"events", rehearse->events},
        {"allocations", rehearse->allocs}, {"failures", rehearse->ooms},
        {"peak_requested_bytes", rehearse->peak_requested}, {"peak_reserved_bytes", rehearse->peak_reserved},
        {"peak_taken_bytes", rehearse->peak_taken}, {"unseen_processes", rehearse->unseen},
        {"unseen_bytes", rehearse->unseen_bytes}, {"managed_bytes", rehearse->managed_bytes},
        {"sent_bytes", rehearse->sent_bytes});
    sg_json_set(result, "outside_at_peak", json_outside(&rehearse->outside));
    sg_json_set_known(result, "smallest_card_bytes", smallest, smallest);
    sg_json_set_known(result, "short_by_bytes", sg_rehearse_short_by(rehearse, largest), smallest);
    sg_json_set_flag(result, "adapts", adapts);
    sg_json_set_flag(result, "asks", rehearse->asks);
    sg_json_set_text(result, "conf", rehearse->given_conf ? rehearse->needs_conf : NULL);
    sg_json_set_flag(result, "at_least", sg_rehearse_at_least(rehearse));
    SG_JSON_NUMBERS(result, {"margin_bytes", largest->margin});
    sg_json_set(result, "alone", json_alone(&rehearse->alone, smallest));
    sg_json_set(result, "live_at_peak", json_held(&rehearse->at_peak));
    sg_json_set(result, "roles", sg_role_rows(&rehearse->at_peak.roles));
    sg_json_set(result, "shared", json_shared(rehearse));
    sg_json_set(result, "cards", rehearse_json_cards(rehearse));
    sg_json_set_ratio(result, "served_share", rehearse->served_share);
    sg_json_set(result, "budget", rehearse->budget ? sg_budget_compare(rehearse) : json_null());
    sg_json_set(result, "assumptions", json_assumptions(rehearse));
    return result;
}
