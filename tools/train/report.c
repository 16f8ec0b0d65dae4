#include "report.h"
#include "ranks/comm.h"

#include <inttypes.h>
#include <math.h>

static const char *const outcome_names[] = {
    [OUTCOME_COMPLETED] = "completed", [OUTCOME_OUT_OF_MEMORY] = "out_of_memory", [OUTCOME_FAILED] = "failed",
    [OUTCOME_INTERRUPTED] = "interrupted"};

enum { SIZE_TEXT = 32 };

static const struct {
    const char *name, *text;
} budget_words[BUDGET_COUNT] = {
#define BUDGET(name, text) {#name, text},
#include "device/budget.def"
#undef BUDGET
};

static const char *size_text(size_t bytes, char buffer[SIZE_TEXT])
{
    if (bytes >= (size_t)1 << 30)
        snprintf(buffer, SIZE_TEXT, "%.2f GiB", (double)bytes / (1 << 30));
    else
        snprintf(buffer, SIZE_TEXT, "%.2f MiB", (double)bytes / (1 << 20));
    return buffer;
}

static void print_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fprintf(out, "\\%c", *text);
        else if ((unsigned char)*text < ' ')
            fprintf(out, "\\u%04x", *text);
        else
            fputc(*text, out);
    }
    fputc('"', out);
}

/* JSON has no number for a loss that is none. */
static void print_loss(FILE *out, const char *name, float loss)
{
    if (isfinite(loss))
        fprintf(out, ",\"%s\":%.9g", name, (double)loss);
    else
        fprintf(out, ",\"%s\":null", name);
}

void report_step(FILE *out, const struct options *o, const struct step_result *s)
{
    if (o->json) {
        fprintf(out, "{\"step\":%d", s->step);
        print_loss(out, "loss", o->dry ? NAN : s->loss);
        fprintf(out, ",\"tokens\":%" PRId64 ",\"seconds\":%.6f,\"peak_bytes\":%zu", s->tokens, s->seconds, s->peak);
        if (s->evaluated)
            print_loss(out, "eval_loss", s->evaluation);
        fputs("}\n", out);
    } else {
        char live[SIZE_TEXT], peak[SIZE_TEXT];
        fprintf(out, "step %d/%d", s->step, o->set.steps);
        if (!o->dry)
            fprintf(out, "  loss %.4f", (double)s->loss);
        if (s->evaluated)
            fprintf(out, " (evaluation %.4f)", (double)s->evaluation);
        if (!o->dry) /* otherwise nothing is computed, and no time is the device's */
            fprintf(out, "  %.0f tokens/s", (double)s->tokens / (s->seconds > 0 ? s->seconds : 1e-9));
        fprintf(out, "  %.2f s  memory %s, at peak %s", s->seconds, size_text(s->live, live), size_text(s->peak, peak));
        if (s->step < o->set.steps)
            fprintf(out, "  %d:%02d left", (int)(s->left / 60), (int)s->left % 60);
        fputc('\n', out);
    }
    fflush(out);
}

static void print_budget_json(FILE *out, const char *name, const size_t budget[BUDGET_COUNT])
{
    fprintf(out, ",\"%s\":{", name);
    for (int i = 0; i < BUDGET_COUNT; i++)
        fprintf(out, "%s\"%s\":%zu", i ? "," : "", budget_words[i].name, budget[i]);
    fputc('}', out);
}

static void print_card_json(FILE *out, const struct options *o, const struct run_result *r,
                            const struct run_result *planned)
{
    size_t need = planned ? planned->peak : r->peak;
    fputs(",\"card_bytes\":", out);
    if (o->card)
        fprintf(out, "%zu", o->card);
    else
        fputs("null", out);
    if (planned) {
        fprintf(out, ",\"planned_peak_bytes\":%zu", need);
        print_budget_json(out, "planned_budget", planned->budget);
    }
    if (planned && o->card)
        fprintf(out, ",\"fits\":%s,\"spare_bytes\":%" PRId64, need <= fit_usable(o->card) ? "true" : "false",
                (int64_t)fit_usable(o->card) - (int64_t)need);
    print_budget_json(out, "budget", r->budget);
}

static void report_json(FILE *out, const struct options *o, const struct run_result *r,
                        const struct run_result *planned)
{
    fprintf(out, "{\"schema\":\"segalloc.train/1\",\"preset\":\"%s\",\"variant\":\"%s\",\"scenario\":%s%s%s,"
                 "\"alloc\":\"%s\",\"dry\":%s,"
                 "\"seed\":%" PRIu64
                 ",\"steps\":%d,\"first_step\":%d,\"losses\":[", o->preset->name, variant_names[o->variant],
            o->scenario ? "\"" : "", o->scenario ? o->scenario->name : "null", o->scenario ? "\"" : "",
            o->arena ? "arena" : "eager", o->dry ? "true" : "false",
            o->seed, r->steps, r->first);
    for (int i = 0; r->losses && i < r->steps; i++)
        fprintf(out, "%s\"%a\"", i ? "," : "", (double)r->losses[i]);
    fprintf(out, "],\"outcome\":\"%s\",\"peak_bytes\":%zu,\"arena_bytes\":", outcome_names[r->outcome], r->peak);
    if (o->arena)
        fprintf(out, "%zu", r->arena);
    else
        fputs("null", out);
    if (o->colocate != COLOCATE_FREE)
        fprintf(out, ",\"colocate\":\"%s\",\"phase_bytes\":{\"training\":%zu,\"rollout\":%zu}",
            colocate_names[o->colocate], r->phase_peak[PHASE_TRAINING], r->phase_peak[PHASE_ROLLOUT]);
    print_card_json(out, o, r, planned);
    fprintf(out, ",\"tokens\":%" PRId64 ",\"parameters\":%" PRId64 ",\"trainable_parameters\":%" PRId64
                 ",\"allocations\":%" PRIu64 ",\"seconds\":%.6f", r->tokens, r->parameters, r->trained_parameters,
            r->allocations, r->seconds);
    if (o->comm)
        fprintf(out, ",\"rank\":%d", o->comm->rank);
    fprintf(out, ",\"ranks\":%d", o->comm ? o->comm->ranks : 1);
    for (int i = 0; r->peaks && i < o->comm->ranks; i++)
        fprintf(out, "%s%zu%s", i ? "," : ",\"peak_bytes_by_rank\":[", r->peaks[i], i + 1 < o->comm->ranks ? "" : "]");
    fputs(",\"error\":", out);
    if (!*r->error)
        fputs("null", out);
    else
        print_string(out, r->error);
    fputs("}\n", out);
}

/* The plan's figures, beside those that were measured (if any were). */
static void print_budget(FILE *out, const struct options *o, const struct run_result *r,
                         const struct run_result *planned)
{
    const bool measured = r != planned && r->peak;
    char a[SIZE_TEXT], b[SIZE_TEXT];
    fprintf(out, "%-14s%14s%14s\n", "at the peak", "planned", measured ? "measured" : "");
    for (int i = 0; i < BUDGET_COUNT; i++)
        fprintf(out, "  %-12s%14s%14s  %s\n", budget_words[i].name, size_text(planned->budget[i], a),
                measured ? size_text(r->budget[i], b) : "", budget_words[i].text);
    if (measured && r->device_bytes)
        fprintf(out, "  %-12s%14s%14s  %s\n", "fragmentation", "", size_text(r->outside, b),
                "given out by the device beyond the tensors; not idle memory that can be had again");
    fprintf(out, "  %-12s%14s%14s\n", "all", size_text(planned->peak, a), measured ? size_text(r->peak, b) : "");
    const size_t card = r->outcome == OUTCOME_OUT_OF_MEMORY && r->device_bytes && !o->card_named ? r->device_bytes
                                                                                                : o->card;
    if (!card)
        return;
    const size_t usable = fit_usable(card);
    const char *lost = "(2 % of it left for what the allocator loses)";
    if (r->outcome == OUTCOME_OUT_OF_MEMORY && measured && planned->peak <= card)
        fprintf(out,
            "ran out on a card of %s although tensors take %s of it: the rest is in pieces, or in use by others\n",
            size_text(card, a), size_text(planned->peak, b));
    else if (planned->peak <= usable)
        fprintf(out, "fits a card of %s with %s to spare %s\n", size_text(card, a),
            size_text(usable - planned->peak, b), lost);
    else
        fprintf(out, "does not fit a card of %s %s: %s more are needed\n", size_text(card, a), lost,
                size_text(planned->peak - usable, b));
}

/* Which single change would make the run fit the memory there is. */
static void report_advice(FILE *out, const struct options *o, const struct run_result *r)
{
    size_t card = r->device_bytes ? r->device_bytes : o->card ? o->card : r->peak;
    bool more;
    int batch = o->set.batch > 1 ? fit_largest(o, FIT_BATCH, card, &more) : 0;
    int seq = fit_largest(o, FIT_SEQ, card, &more);
    if (batch && batch < o->set.batch)
        fprintf(out, "; --batch %d would fit", batch);
    if (seq >= LENGTH_LEAST && seq < o->set.longest)
        fprintf(out, "%s--max-len %d would fit", batch && batch < o->set.batch ? ", or " : "; ", seq);
    else if (!batch || batch >= o->set.batch)
        fputs("; a smaller --max-len or --batch needs less", out);
}

void report_fit(FILE *out, const struct options *o, int value, bool more)
{
    static const char *const written[] = {[FIT_BATCH] = "batch", [FIT_SEQ] = "max-len", [FIT_RANK] = "rank"};
    char card[SIZE_TEXT];
    if (o->json)
        fprintf(out, "{\"schema\":\"segalloc.train.fit/1\",\"preset\":\"%s\",\"variant\":\"%s\",\"fit\":\"%s\","
                     "\"card_bytes\":%zu,\"largest\":%d,\"more\":%s}\n", o->preset->name, variant_names[o->variant],
                fit_names[o->fit], o->card, value, more ? "true" : "false");
    else if (value)
        fprintf(out,
            more ? "--%s %d fits a card of %s, and more was not tried (2 %% left for what the allocator loses)\n"
                 : "--%s %d is the largest that fits a card of %s (2 %% left for what the allocator loses)\n",
            written[o->fit], value, size_text(o->card, card));
    else
        fprintf(out, "no --%s fits a card of %s\n", written[o->fit], size_text(o->card, card));
}

void report_run(FILE *out, const struct options *o, const struct run_result *r, const struct run_result *planned)
{
    if (planned && !o->json)
        print_budget(out, o, r, planned);
    if (o->json) {
        report_json(out, o, r, planned);
    } else if (r == planned) {
        ; /* all is said */
    } else if (r->outcome == OUTCOME_COMPLETED || r->outcome == OUTCOME_INTERRUPTED) {
        char peak[SIZE_TEXT];
        fprintf(out, "%s %d step%s, %" PRId64 " tokens in %.2f s; %s in tensors at peak, %" PRIu64 " allocation%s\n",
            r->outcome == OUTCOME_COMPLETED ? "completed" : "interrupted after", r->steps, r->steps == 1 ? "" : "s",
            r->tokens, r->seconds, size_text(r->peak, peak), r->allocations, r->allocations == 1 ? "" : "s");
    } else {
        fputs("segalloc-train: ", stderr);
        if (o->comm)
            fprintf(stderr, "rank %d: ", o->comm->rank);
        fputs(r->error, stderr);
        if (r->outcome == OUTCOME_OUT_OF_MEMORY) {
            fprintf(stderr, " (after step %d of %d)", r->steps, o->set.steps);
            report_advice(stderr, o, r);
        }
        fputc('\n', stderr);
    }
    fflush(out);
}
