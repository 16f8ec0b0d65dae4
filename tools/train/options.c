#include "checkpoint/hf_config.h"
#include "lengths.h"
#include "options.h"
#include "backend/arithmetic.h"
#include "ranks/comm.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const char *const backend_names[BACKEND_COUNT] = {"auto", "cpu", "gpu"};
const char *const fit_names[FIT_COUNT] = {"", "batch", "seq", "rank"};

/* So that no product of two of them is too large to count with. */
enum { MOST_SIZE = 1 << 24, MOST_LAYERS = 1 << 14, MOST_RANKS = 1 << 16, MOST_THREADS = 1024 };

enum option {
#define OPTION(name, value, help) OPTION_##name,
#include "options.def"
#undef OPTION
    OPTION_COUNT
};

static const struct {
    const char *name, *value, *help;
} table[OPTION_COUNT] = {
#define OPTION(name, value, help) {#name, value, help},
#include "options.def"
#undef OPTION
};

/* Names are written with '-' where the table, whose names are also C's, has '_'. */
static bool same_name(const char *typed, size_t length, const char *name)
{
    if (strlen(name) != length)
        return false;
    for (size_t i = 0; i < length; i++)
        if (typed[i] != name[i] && !(typed[i] == '-' && name[i] == '_'))
            return false;
    return true;
}

static bool parse_int(const char *text, int least, int most, int *ret)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < least || value > most)
        return false;
    *ret = (int)value;
    return true;
}

static bool parse_seed(const char *text, uint64_t *ret)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || !isdigit((unsigned char)*text) || *end)
        return false;
    *ret = value;
    return true;
}

static bool parse_number(const char *text, double *ret)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= 0) || value > 1e30)
        return false;
    *ret = value;
    return true;
}

/* One of two words; *ret is whether it is the second. */
static bool parse_choice(const char *text, const char *first, const char *second, bool *ret)
{
    if (strcmp(text, first) != 0 && strcmp(text, second) != 0)
        return false;
    *ret = !strcmp(text, second);
    return true;
}

/* Bytes, or a number with K, M, G or T: powers of 1024, with or without iB. */
static bool parse_size(const char *text, size_t *ret)
{
    static const char units[] = "KMGT";
    char *end;
    double value = strtod(text, &end);
    const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    if (unit) {
        value *= (double)((size_t)1 << 10 * (unit - units + 1));
        end++;
        if (*end && strcasecmp(end, "iB") != 0 && strcasecmp(end, "B") != 0)
            return false;
    } else if (*end) {
        return false;
    }
    if (!unit && value < 1 << 20)
        return false; /* "24" is hardly 24 bytes */
    if (end == text || !(value >= 1) || value > 1e18)
        return false;
    *ret = (size_t)value;
    return true;
}

static bool parse_sharding(const char *text, struct sharding *ret)
{
    static const char *const names[] = {"none", "zero2", "zero3", "fsdp"};
    for (int i = 0; i < 4; i++)
        if (!strcmp(text, names[i])) {
            ret->kind = (enum sharding_kind)i;
            ret->ranks = ret->ranks ? ret->ranks : 1;
            ret->bucket = ret->bucket ? ret->bucket : 500000000;
            ret->prefetch = ret->prefetch ? ret->prefetch : 50000000;
            return true;
        }
    return false;
}

static bool parse_offload(const char *text, struct sharding *ret)
{
    const bool all = !strcmp(text, "all");
    if (!all && strcmp(text, "optimizer") != 0 && strcmp(text, "none") != 0)
        return false;
    ret->offload_parameters = all;
    ret->offload_optimizer = all || !strcmp(text, "optimizer");
    return true;
}

static bool parse_backend(const char *text, enum backend *ret)
{
    for (int i = 0; i < BACKEND_COUNT; i++)
        if (!strcmp(text, backend_names[i])) {
            *ret = (enum backend)i;
            return true;
        }
    return false;
}

static bool parse_fit(const char *text, enum fit *ret)
{
    for (int i = 1; i < FIT_COUNT; i++)
        if (!strcmp(text, fit_names[i])) {
            *ret = (enum fit)i;
            return true;
        }
    return false;
}

static bool parse_colocate(const char *text, enum colocate *ret)
{
    for (int i = COLOCATE_KEEP; i < COLOCATE_COUNT; i++)
        if (!strcmp(text, colocate_names[i])) {
            *ret = (enum colocate)i;
            return true;
        }
    return false;
}

static bool option_apply(struct options *o, enum option option, const char *value)
{
    bool chosen;
    switch (option) {
    case OPTION_preset: return true; /* found before, for the others change it */
    case OPTION_config: return true; /* likewise */
    case OPTION_text: o->text = value; return true;
    case OPTION_steps: return parse_int(value, 0, INT_MAX, &o->set.steps);
    case OPTION_seed: return parse_seed(value, &o->seed);
    case OPTION_alloc: return parse_choice(value, "eager", "arena", &o->arena);
    case OPTION_dry: return o->dry = true;
    case OPTION_backend: return parse_backend(value, &o->backend);
    case OPTION_compare: return o->compare = true;
    case OPTION_json: return o->json = true;
    case OPTION_list: return o->list = true;
    case OPTION_layers: return parse_int(value, 1, MOST_LAYERS, &o->set.shape.layers);
    case OPTION_hidden: return parse_int(value, 1, MOST_SIZE, &o->set.shape.hidden);
    case OPTION_heads: return parse_int(value, 1, MOST_SIZE, &o->set.shape.heads);
    case OPTION_kv_heads: return parse_int(value, 1, MOST_SIZE, &o->set.shape.kv_heads);
    case OPTION_head_dim: return parse_int(value, 1, MOST_SIZE, &o->set.shape.head_dim);
    case OPTION_ffn: return parse_int(value, 1, MOST_SIZE, &o->set.shape.ffn);
    case OPTION_vocabulary: return parse_int(value, 1, MOST_SIZE, &o->set.shape.vocabulary);
    case OPTION_tied: return parse_choice(value, "no", "yes", &o->set.shape.tied);
    case OPTION_dtype:
        if (!parse_choice(value, "fp32", "bf16", &chosen))
            return false;
        o->set.shape.dtype = chosen ? DTYPE_BF16 : DTYPE_F32;
        return true;
    case OPTION_rank: return parse_int(value, 0, MOST_SIZE, &o->set.shape.rank);
    case OPTION_train: return parse_choice(value, "lora", "all", &o->set.shape.train_all);
    case OPTION_batch: return parse_int(value, 1, MOST_SIZE, &o->set.batch);
    case OPTION_accum: return parse_int(value, 1, MOST_SIZE, &o->set.accumulation);
    case OPTION_max_len: return parse_int(value, LENGTH_LEAST, MOST_SIZE, &o->set.longest);
    case OPTION_lengths: o->set.lengths = value; return true;
    case OPTION_lr: return parse_number(value, &o->set.rate);
    case OPTION_weight_decay: return parse_number(value, &o->set.weight_decay);
    case OPTION_clip: return parse_number(value, &o->set.clip);
    case OPTION_no_checkpoint: return o->set.no_checkpoint = true;
    case OPTION_variant: return true; /* likewise */
    case OPTION_scenario: return true;
    case OPTION_card: return o->card_named = parse_size(value, &o->card);
    case OPTION_colocate:
        return parse_colocate(value, &o->colocate);
    case OPTION_budget: return o->budget = true;
    case OPTION_fit: return parse_fit(value, &o->fit);
    case OPTION_pack: return o->pack = true;
    case OPTION_evaluate: return parse_int(value, 1, MOST_SIZE, &o->evaluate);
    case OPTION_evaluate_batch: return parse_int(value, 1, MOST_SIZE, &o->evaluate_batch);
    case OPTION_save: o->save = value; return true;
    case OPTION_resume: o->resume = value; return true;
    case OPTION_threads: return parse_int(value, 1, MOST_THREADS, &o->threads);
    case OPTION_sharding: return parse_sharding(value, &o->set.shape.sharding);
    case OPTION_ranks: return parse_int(value, 1, MOST_RANKS, &o->ranks);
    case OPTION_offload: return parse_offload(value, &o->set.shape.sharding);
    case OPTION_dropout: return parse_number(value, &o->set.shape.dropout) && o->set.shape.dropout < 1;
    case OPTION_help: return o->help = true;
    case OPTION_COUNT: break;
    }
    return false;
}

struct argument {
    enum option option;
    const char *value;
};

/* Reads argv[*at], and its value, moving *at past both. */
static int read_argument(int argc, char *const argv[], int *at, struct argument *ret, char *error, size_t error_size)
{
    const char *word = argv[(*at)++];
    size_t length = strcspn(word, "=");
    enum option option = OPTION_COUNT;
    if (!strcmp(word, "-h"))
        option = OPTION_help;
    for (int i = 0; i < OPTION_COUNT && length > 2 && !strncmp(word, "--", 2); i++)
        if (same_name(word + 2, length - 2, table[i].name))
            option = (enum option)i;
    if (option == OPTION_COUNT) {
        snprintf(error, error_size, "unknown argument '%s'; --help lists all", word);
        return -1;
    }
    *ret = (struct argument){option, word[length] == '=' ? word + length + 1 : NULL};
    if (!table[option].value && ret->value) {
        snprintf(error, error_size, "%.*s takes no value", (int)length, word);
        return -1;
    }
    if (table[option].value && !ret->value) {
        if (*at == argc) {
            snprintf(error, error_size, "%s needs a value: %s", word, table[option].value);
            return -1;
        }
        ret->value = argv[(*at)++];
    }
    return 0;
}

/* The option's name as it is written, without its first two dashes. */
static const char *option_written(enum option option, char *buffer, size_t size)
{
    snprintf(buffer, size, "%s", table[option].name);
    for (char *c = buffer; *c; c++)
        if (*c == '_')
            *c = '-';
    return buffer;
}

static void start_from(struct options *o, const struct preset *preset, enum variant variant)
{
    *o = (struct options){.preset = preset, .variant = variant, .set = preset->settings[variant],
                          .card = preset->settings[variant].card, .threads = 1};
}

bool options_plans(const struct options *o)
{
    return o->fit != FIT_NOTHING || ((o->card_named || o->budget) && !o->dry && !o->text);
}

/* The preset with the shape that a file names; it is the process's. */
static int start_from_config(struct options *o, const char *path, char *error, size_t error_size)
{
    static struct preset configured;
    static char name[HF_CONFIG_NAME];
    if (hf_config_read(path, &o->set.shape, name, error, error_size))
        return -1;
    configured = *o->preset;
    configured.name = name;
    o->preset = &configured;
    o->config = path;
    return 0;
}

static void start_scenario(struct options *o, const struct scenario *scenario)
{
    o->scenario = scenario;
    o->dry = true;
    o->arena = !strcmp(scenario->name, "arena");
    o->set.steps = scenario->steps;
    if (scenario->adjust)
        scenario->adjust(&o->set);
}

static int options_check(const struct options *o, char *error, size_t error_size)
{
    struct lengths lengths;
    const char *fault = shape_fault(&o->set.shape);
    if (fault) {
        snprintf(error, error_size, "%s", fault);
    } else if (o->fit != FIT_NOTHING && o->scenario) {
        snprintf(error, error_size, "--fit goes with a preset, not with --scenario");
        fault = error;
    } else if (o->fit == FIT_RANK && (!o->set.shape.rank || o->set.shape.train_all)) {
        snprintf(error, error_size, "--fit rank goes with LoRA, and --preset %s trains without; add --rank N",
                 o->preset->name);
        fault = error;
    } else if (strncmp(o->set.lengths, "file:", 5) != 0 &&
               lengths_open(&lengths, o->set.lengths, o->set.longest, 0, error, error_size)) {
        fault = error;
    } else if (o->colocate != COLOCATE_FREE && (!(o->set.engine.share > 0) || o->arena)) {
        snprintf(error, error_size,
            "--colocate goes with a preset that has a rollout engine, such as spiral-qwen3-4b, and --alloc eager");
        fault = error;
    } else if (options_plans(o)) {
        fault = NULL;
    } else if (!o->dry && !o->text) {
        snprintf(error, error_size, "--text FILE is needed to train on, or --dry for the allocations alone");
        fault = error;
    } else if ((o->save || o->resume) && (o->dry || o->arena)) {
        snprintf(error, error_size, "--save and --resume go with --alloc eager, without --dry");
        fault = error;
    } else if (o->compare && (o->dry || o->save || o->resume || o->arena)) {
        snprintf(error, error_size, "--compare goes with --text, without --dry, --save, --resume and --alloc arena");
        fault = error;
    } else if (o->set.shape.sharding.offload_optimizer && o->set.shape.sharding.kind == SHARDING_NONE) {
        snprintf(error, error_size, "--offload goes with --sharding zero2, zero3 or fsdp");
        fault = error;
    } else if (!o->dry && (o->set.policy || o->set.shape.selected || o->set.shape.mixed || o->set.engine.share > 0)) {
        snprintf(error, error_size, "--preset %s has no arithmetic of its own: add --dry for the allocations alone",
                 o->preset->name);
        fault = error;
    } else if (!o->dry && o->backend == BACKEND_CPU && !(arithmetic_cpu.dtypes & 1U << o->set.shape.dtype)) {
        snprintf(error, error_size, "the CPU computes in fp32 only: add --dtype fp32, or --dry for allocations alone");
        fault = error;
    }
    return fault ? -1 : 0;
}

int options_join(struct options *o, struct comm *comm, char *error, size_t error_size)
{
    struct sharding *s = &o->set.shape.sharding;
    o->comm = comm;
    if (comm && s->kind == SHARDING_NONE) {
        snprintf(error, error_size, "%d ranks were started: add --sharding zero2, zero3 or fsdp, or start one",
                 comm->ranks);
        return -1;
    }
    if (comm && o->ranks && o->ranks != comm->ranks) {
        snprintf(error, error_size, "--ranks %d, and %d were started; leave it out", o->ranks, comm->ranks);
        return -1;
    }
    if (comm) {
        s->ranks = comm->ranks;
        s->rank = comm->rank;
    } else if (!o->dry && !options_plans(o)) {
        if (o->ranks > 1) {
            snprintf(error, error_size, "--ranks %d needs as many processes: mpirun -n %d segalloc-train ..., or --dry",
                     o->ranks, o->ranks);
            return -1;
        }
        s->ranks = 1;
    } else if (o->ranks) {
        s->ranks = o->ranks;
    }
    return 0;
}

int options_parse(struct options *ret_options, int argc, char *const argv[], char *error, size_t error_size)
{
    struct options options;
    struct argument argument;
    const struct preset *preset = &presets[0];
    const struct scenario *scenario = NULL;
    const char *config = NULL;
    bool second = true, named = false;
    for (int at = 1; at < argc;) {
        if (read_argument(argc, argv, &at, &argument, error, error_size))
            return -1;
        if (argument.option == OPTION_preset && !(preset = preset_find(argument.value))) {
            snprintf(error, error_size, "unknown preset '%s'; --list names them", argument.value);
            return -1;
        }
        named |= argument.option == OPTION_preset;
        if (argument.option == OPTION_config)
            config = argument.value;
        if (argument.option == OPTION_scenario && !(scenario = scenario_find(argument.value))) {
            snprintf(error, error_size, "unknown scenario '%s'; --list names them", argument.value);
            return -1;
        }
        if (argument.option == OPTION_variant &&
            !parse_choice(argument.value, variant_names[VARIANT_BEFORE], variant_names[VARIANT_AFTER], &second)) {
            snprintf(error, error_size, "bad value '%s': --variant takes before|after", argument.value);
            return -1;
        }
    }
    if (scenario && named) {
        snprintf(error, error_size, "--scenario %s has a model of its own: leave out --preset %s", scenario->name,
                 preset->name);
        return -1;
    }
    if (scenario && config) {
        snprintf(error, error_size, "--scenario %s has a model of its own: leave out --config", scenario->name);
        return -1;
    }
    if (scenario && scenario->preset)
        preset = preset_find(scenario->preset);
    if (config && !named)
        preset = preset_find("qwen25-7b-lora");
    start_from(&options, preset, second ? VARIANT_AFTER : VARIANT_BEFORE);
    if (config && start_from_config(&options, config, error, error_size))
        return -1;
    if (scenario)
        start_scenario(&options, scenario);
    for (int at = 1; at < argc;) {
        read_argument(argc, argv, &at, &argument, error, error_size);
        if (!option_apply(&options, argument.option, argument.value)) {
            char name[32];
            const char *takes = table[argument.option].value;
            snprintf(error, error_size, "bad value '%s': --%s takes %s", argument.value,
                option_written(argument.option, name, sizeof name),
                strcmp(takes, "N") == 0      ? argument.option == OPTION_steps || argument.option == OPTION_rank
                                                   ? "a whole number, 0 or more"
                                                   : "a whole number from 1 to 16777216"
                : strcmp(takes, "SIZE") == 0 ? "a size with its unit, such as 24GiB"
                                             : takes);
            return -1;
        }
    }
    if (!options.help && !options.list && options_check(&options, error, error_size))
        return -1;
    *ret_options = options;
    return 0;
}

/* A name and its explanation, which begins at column `at` and is broken before column 80. */
static void help_print_row(FILE *out, const char *left, int at, const char *text)
{
    enum { COLUMNS = 80 };
    int column = fprintf(out, "  %s", left);
    if (column >= at) {
        fputc('\n', out);
        column = 0;
    }
    fprintf(out, "%*s", at - column, "");
    column = at;
    while (*text) {
        int length = (int)strcspn(text, " ");
        if (column > at && column + 1 + length > COLUMNS) {
            fprintf(out, "\n%*s", at, "");
            column = at;
        }
        column += fprintf(out, "%s%.*s", column > at ? " " : "", length, text);
        text += length + (text[length] == ' ');
    }
    fputc('\n', out);
}

void options_print_help(FILE *out)
{
    enum { OPTION_AT = 27 };
    fputs("usage: segalloc-train [--preset NAME] --text FILE [OPTION]...\n"
          "       segalloc-train [--preset NAME] --dry [OPTION]...\n\n"
          "Trains a Qwen2-like decoder with LoRA adapters, and allocates its tensors one by\n"
          "one as PyTorch would. Without a GPU:\n\n"
          "       segalloc run --sim 24GiB -- segalloc-train ...\n\n",
        out);
    for (int i = 0; i < OPTION_COUNT; i++) {
        char name[32], left[64];
        snprintf(left, sizeof left, "--%s%s%s", option_written((enum option)i, name, sizeof name),
            table[i].value ? " " : "", table[i].value ? table[i].value : "");
        help_print_row(out, left, OPTION_AT, table[i].help);
    }
    fputs("\nOther options change the preset, whether they come before it or after it.\n\n"
          "Exit status: 0 completed, 1 out of memory or another error of the run, 2 for bad\n"
          "usage.\n\nPresets:\n",
        out);
    options_print_list(out, false);
}

void options_print_list(FILE *out, bool json)
{
    enum { NAME_AT = 21 };
    if (json)
        fputs("{\"schema\":\"segalloc.train.presets/1\",\"presets\":[", out);
    for (int i = 0; i < preset_count; i++) {
        const struct preset *p = &presets[i];
        if (json)
            fprintf(out, "%s{\"name\":\"%s\",\"text\":\"%s\",\"variants\":[\"before\",\"after\"],\"card_bytes\":%zu,"
                         "\"allocator\":\"%s\"}", i ? "," : "", p->name, p->text, p->settings[VARIANT_AFTER].card,
                    p->settings[VARIANT_AFTER].allocator ? p->settings[VARIANT_AFTER].allocator : "");
        else
            help_print_row(out, p->name, NAME_AT, p->text);
    }
    if (json)
        fputs("],\"variants\":[{\"name\":\"before\",\"text\":\"as it ran out of memory\"},"
              "{\"name\":\"after\",\"text\":\"with settings that fit\"}],\"scenarios\":[",
            out);
    else
        fputs("Scenarios:\n", out);
    for (int i = 0; i < scenario_count; i++) {
        const struct scenario *s = &scenarios[i];
        if (json)
            fprintf(out, "%s{\"name\":\"%s\",\"text\":\"%s\",\"setting\":\"%s\"}", i ? "," : "", s->name, s->text,
                    s->setting);
        else
            help_print_row(out, s->name, NAME_AT, s->text);
    }
    if (json)
        fputs("]}\n", out);
}
