#include "report.h"

#include <inttypes.h>
#include <math.h>

static const char *const outcome_names[] = {
    [OUTCOME_COMPLETED] = "completed", [OUTCOME_OUT_OF_MEMORY] = "out_of_memory", [OUTCOME_FAILED] = "failed"};

enum { SIZE_TEXT = 32 };

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

void report_step(FILE *out, const struct options *o, const struct step_result *s)
{
    if (o->json) {
        fprintf(out, "{\"step\":%d,\"loss\":", s->step);
        if (!o->dry && isfinite(s->loss))
            fprintf(out, "%.9g", (double)s->loss);
        else
            fputs("null", out); /* JSON has no number for a loss that is none */
        fprintf(out, ",\"tokens\":%" PRId64 ",\"seconds\":%.6f,\"peak_bytes\":%zu}\n", s->tokens, s->seconds, s->peak);
    } else {
        char live[SIZE_TEXT], peak[SIZE_TEXT];
        fprintf(out, "step %d/%d", s->step, o->steps);
        if (!o->dry)
            fprintf(out, "  loss %.4f", (double)s->loss);
        fprintf(out, "  %.0f tokens/s  %.2f s  memory %s, at peak %s\n",
                (double)s->tokens / (s->seconds > 0 ? s->seconds : 1e-9), s->seconds, size_text(s->live, live),
                size_text(s->peak, peak));
    }
    fflush(out);
}

static void report_json(FILE *out, const struct options *o, const struct run_result *r)
{
    fprintf(out, "{\"schema\":\"segalloc.train/1\",\"preset\":\"%s\",\"alloc\":\"%s\",\"dry\":%s,\"seed\":%" PRIu64
                 ",\"steps\":%d,\"losses\":[", o->preset->name, o->arena ? "arena" : "eager", o->dry ? "true" : "false",
            o->seed, r->steps);
    for (int i = 0; r->losses && i < r->steps; i++)
        fprintf(out, "%s\"%a\"", i ? "," : "", (double)r->losses[i]);
    fprintf(out, "],\"outcome\":\"%s\",\"peak_bytes\":%zu,\"arena_bytes\":", outcome_names[r->outcome], r->peak);
    if (o->arena)
        fprintf(out, "%zu", r->arena);
    else
        fputs("null", out);
    fprintf(out, ",\"tokens\":%" PRId64 ",\"parameters\":%" PRId64 ",\"trainable_parameters\":%" PRId64
                 ",\"allocations\":%" PRIu64 ",\"seconds\":%.6f,\"error\":", r->tokens, r->parameters,
            r->trained_parameters, r->allocations, r->seconds);
    if (r->outcome == OUTCOME_COMPLETED)
        fputs("null", out);
    else
        print_string(out, r->error);
    fputs("}\n", out);
}

void report_run(FILE *out, const struct options *o, const struct run_result *r)
{
    if (o->json) {
        report_json(out, o, r);
    } else if (r->outcome == OUTCOME_COMPLETED) {
        char peak[SIZE_TEXT];
        fprintf(out, "completed %d steps, %" PRId64 " tokens in %.2f s; %s in tensors at peak, %" PRIu64
                     " allocations\n", r->steps, r->tokens, r->seconds, size_text(r->peak, peak), r->allocations);
    } else {
        fprintf(stderr, "segalloc-train: %s", r->error);
        if (r->outcome == OUTCOME_OUT_OF_MEMORY)
            fprintf(stderr, " (after step %d of %d); a smaller --max-len or --batch needs less", r->steps, o->steps);
        fputc('\n', stderr);
    }
    fflush(out);
}
