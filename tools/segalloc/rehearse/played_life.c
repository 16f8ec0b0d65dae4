#include "rehearse/played_life.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "reader/trace_reader.h"
#include "replay/free_orders.h"
#include "replay/smallest_card.h"
#include "tool.h"

/* The events of a run up to which other orders of frees are tried: each takes some eight replays. */
enum { ORDERS_EVENTS = 2000000 };

/* Leaves out what begins a pause or a resume; what ends it says nothing then. Returns how many records are left. */
static size_t drop_pauses(struct segalloc_trace_record *records, size_t n)
{
    size_t left = 0;
    for (size_t i = 0; i < n; i++)
        if (records[i].kind != SEGALLOC_RECORD_PAUSE && records[i].kind != SEGALLOC_RECORD_RESUME)
            records[left++] = records[i];
    return left;
}

static size_t life_next_records(void *source, struct segalloc_trace_record *out, size_t n)
{
    struct sg_played_life *life = source;
    size_t got = 0, left = 0;
    life->stopped |= life->rehearse->cut || sg_signals_count() > life->rehearse->run.signals;
    do {
        got = life->stopped ? 0 : sg_trace_read(life->reader, out, n);
        left = life->stays ? drop_pauses(out, got) : got;
    } while (got && !left); /* no record at all would be the end */
    if (life->order)
        sg_orders_shuffle(out, left, &life->random);
    return left;
}

/* A count that only rises, for how many replays there will be is not known. */
static void show_progress(struct sg_rehearse *rehearse)
{
    rehearse->replays++;
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\rplaying the run on other cards: %u", rehearse->replays);
}

int sg_played_open(struct sg_played_life *life, struct sg_rehearse *rehearse, const char *path)
{
    char error[SG_TRACE_ERROR];
    *life = (struct sg_played_life){.rehearse = rehearse};
    if (sg_trace_open(path, &life->reader, error) != 0)
        return sg_tool_error(rehearse->verb, "the trace of the run: %s", error);
    if (sg_recorded_read(life->reader, &life->recorded) != 0)
        return sg_tool_error(rehearse->verb, "no host memory left");
    if (rehearse->true_size) /* it has come to its end without what failed */
        sg_recorded_excuse(&life->recorded);
    sg_recorded_play(&life->recorded, &life->play);
    life->play.next = life_next_records;
    life->play.source = life;
    return 0;
}

void sg_played_close(struct sg_played_life *life)
{
    sg_recorded_free(&life->recorded);
    sg_trace_close(life->reader);
}

int sg_played_on_cards(void *user, const uint64_t card[SG_DEVICES_MAX], uint64_t stop, struct sg_play_result *ret)
{
    struct sg_played_life *life = user;
    char error[SG_PLAY_ERROR];
    sg_trace_rewind(life->reader);
    for (int i = 0; i < SG_DEVICES_MAX; i++) {
        bool part = card[i] && life->fixed > card[i];
        life->play.card[i] = part ? life->fixed : card[i];
        life->play.others[i] = part ? life->fixed - card[i] : 0;
    }
    life->play.stop_at_oom = stop;
    life->play.as_recorded = !life->order && !life->fixed && !life->stays &&
                             sg_recorded_is(&life->recorded, &life->play);
    life->random = life->order;
    show_progress(life->rehearse);
    if (sg_play_run(&life->play, ret, error) != 0)
        return sg_tool_error(life->rehearse->verb, "the run can't be played again: %s", error);
    if (life->stopped)
        return SG_PLAYED_CUT;
    const char *broken = sg_trace_error(life->reader);
    return broken ? sg_tool_error(life->rehearse->verb, "the trace of the run: %s", broken) : 0;
}

int sg_played_smallest(struct sg_played_life *life, const struct sg_play_result *known, uint64_t ret[SG_DEVICES_MAX])
{
    struct sg_smallest smallest = {.play = sg_played_on_cards, .user = life, .most = SG_SMALLEST_MOST};
    uint64_t most = life->rehearse->card[life->rehearse->card_count - 1].bytes;
    smallest.most = most > smallest.most ? most : smallest.most;
    int status = sg_smallest_find(&smallest, known);
    for (int i = 0; i < SG_DEVICES_MAX; i++)
        ret[i] = status ? 0 : smallest.card[i];
    return status;
}

uint64_t sg_played_orders(const struct sg_play_result *known)
{
    return known->events <= ORDERS_EVENTS ? SG_ORDERS : 0;
}

int sg_played_robust(struct sg_played_life *life, const struct sg_play_result *known, uint64_t exact[SG_DEVICES_MAX],
    uint64_t ret[SG_DEVICES_MAX])
{
    uint64_t least[SG_DEVICES_MAX], most[SG_DEVICES_MAX], other[SG_DEVICES_MAX];
    int status = sg_played_smallest(life, known, exact);
    uint64_t orders = sg_played_orders(known);
    memcpy(least, exact, sizeof least);
    memcpy(most, exact, sizeof most);
    for (life->order = 1; status == 0 && life->order <= orders; life->order++) {
        status = sg_played_smallest(life, known, other);
        for (int i = 0; status == 0 && i < SG_DEVICES_MAX; i++) {
            least[i] = other[i] < least[i] ? other[i] : least[i];
            most[i] = other[i] > most[i] ? other[i] : most[i];
        }
    }
    life->order = 0;
    for (int i = 0; i < SG_DEVICES_MAX; i++)
        ret[i] = most[i] + ((most[i] - least[i]) / 2 + SG_SMALLEST_STEP - 1) / SG_SMALLEST_STEP * SG_SMALLEST_STEP;
    return status;
}
