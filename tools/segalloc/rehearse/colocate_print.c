/* The needs of two programs on one card, as text and as JSON. */
#include <inttypes.h>
#include <stdio.h>

#include "rehearse/colocate.h"
#include "size.h"

static const char *const words[] = {"fits", "too close to call", "does not fit"};

static void print_way(const struct sg_rehearse *rehearse, const char *name, const struct sg_colocation_way *way)
{
    char card[SG_SIZE_TEXT], host[SG_SIZE_TEXT];
    printf("  %-22s%14s%14s", name, sg_size_format(way->card, card), way->host ? sg_size_format(way->host, host) : "-");
    if (way->seconds > 0)
        printf("%11.3g s", way->seconds);
    else
        printf("%13s", "-");
    for (unsigned i = 0; i < rehearse->card_count; i++)
        printf("  %*s", 17, words[sg_colocate_verdict(rehearse, way, &rehearse->card[i])]);
    putchar('\n');
}

/* How a program gives its memory up. */
static void print_program(const char *name, const struct sg_colocation_program *program)
{
    char stays[SG_SIZE_TEXT], saved[SG_SIZE_TEXT];
    sg_size_format(program->stays, stays);
    if (!program->tags)
        printf("%s has no memory under a tag, so none of it can leave: %s stay. segalloc run --conf tag:all puts all "
               "of it under one.\n",
            name, stays);
    else if (program->pauses)
        printf("%s pauses its memory itself, %" PRIu64 " time%s: %s stay then, %s are saved.\n", name,
            program->switches, sg_plural(program->switches), stays, sg_size_format(program->saved, saved));
    else
        printf("%s does not pause its memory itself. Paused from outside (segalloc pause PID) at its worst moment, %s "
               "stay, and %s "
               "are saved.\n",
            name, stays, sg_size_format(program->saved, saved));
}

void sg_colocate_print_text(struct sg_rehearse *const program[2], const struct sg_colocation *colocation)
{
    char size[SG_SIZE_TEXT], margin[SG_SIZE_TEXT];
    const struct sg_rehearse *rehearse = program[0];
    fputs("CMD: ", stdout);
    sg_rehearse_print_line(program[0]);
    fputs("--with: ", stdout);
    sg_rehearse_print_line(program[1]);
    if (!colocation->known) {
        printf("Both on one card: not known, for %s.\n", colocation->reason);
        return;
    }
    printf("Both on one card:\n  %-22s%14s%14s%13s", "", "smallest card", "host memory", "copies");
    for (unsigned i = 0; i < rehearse->card_count; i++)
        printf("  %*s", 17, sg_size_format(rehearse->card[i].bytes, size));
    putchar('\n');
    print_way(rehearse, "keep", &colocation->keep);
    print_way(rehearse, "pause", &colocation->pause);
    print_way(rehearse, "pause without backup", &colocation->discard);
    print_program("CMD", &colocation->program[0]);
    print_program("The program of --with", &colocation->program[1]);
    puts(
        "Keep: both may have their peaks at once. Pause: one works while the other is paused, and begins while it is.");
    printf("Copies of all those pauses and resumes at %.4g GB/s (%s; --rate says another) take at least so long.\n",
        (double)program[0]->rate.bytes / 1e9, program[0]->rate.source);
    uint64_t contexts = sg_rehearse_largest(rehearse)->margin;
    printf("Contexts and libraries of both take some %s more (--margin): a paused program keeps its own.\n",
        sg_size_format(rehearse->margin == SG_REHEARSE_MEASURED ? 2 * contexts : contexts, margin));
}

static json_t *json_way(const struct sg_rehearse *rehearse, const struct sg_colocation *colocation,
    const struct sg_colocation_way *way)
{
    static const char *const verdicts[] = {"fits", "too_close", "does_not_fit"};
    json_t *result = sg_json_object(NULL), *cards = sg_json_array();
    bool known = colocation->known;
    sg_json_set_known(result, "smallest_card_bytes", way->card, known);
    sg_json_set_known(result, "host_bytes", way->host, known);
    sg_json_set(result, "seconds", known ? sg_json_real(way->seconds, 6) : json_null());
    for (unsigned i = 0; i < rehearse->card_count && known; i++) {
        json_t *card = sg_json_object(NULL);
        SG_JSON_NUMBERS(card, {"bytes", rehearse->card[i].bytes});
        sg_json_set_text(card, "verdict", verdicts[sg_colocate_verdict(rehearse, way, &rehearse->card[i])]);
        sg_json_add(cards, card);
    }
    sg_json_set(result, "cards", cards);
    return result;
}

json_t *sg_colocate_json(const struct sg_rehearse *rehearse, const struct sg_colocation *colocation)
{
    json_t *result = sg_json_object(NULL), *programs = sg_json_array();
    sg_json_set(result, "keep", json_way(rehearse, colocation, &colocation->keep));
    sg_json_set(result, "pause", json_way(rehearse, colocation, &colocation->pause));
    sg_json_set(result, "pause_discard", json_way(rehearse, colocation, &colocation->discard));
    sg_json_set_text(result, "reason", colocation->known ? NULL : colocation->reason);
    SG_JSON_NUMBERS(result, {"bytes_per_second", rehearse->rate.bytes});
    sg_json_set_text(result, "rate_source", rehearse->rate.source);
    for (int i = 0; i < 2 && colocation->known; i++) {
        const struct sg_colocation_program *program = &colocation->program[i];
        json_t *one = sg_json_object(NULL);
        SG_JSON_NUMBERS(one, {"need_bytes", program->need}, {"stays_bytes", program->stays},
            {"saved_bytes", program->saved}, {"moved_bytes", program->moved}, {"switches", program->switches});
        sg_json_set_flag(one, "pauses", program->pauses);
        sg_json_set_flag(one, "tags", program->tags);
        sg_json_add(programs, one);
    }
    sg_json_set(result, "programs", programs);
    return result;
}
