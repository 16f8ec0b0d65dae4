#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

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

static bool parse_int(const char *text, int least, int *ret)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < least || value > INT_MAX)
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
    if (strcmp(text, first) && strcmp(text, second))
        return false;
    *ret = !strcmp(text, second);
    return true;
}

static bool apply(struct options *o, enum option option, const char *value)
{
    bool chosen;
    switch (option) {
    case OPTION_preset: return true; /* found before, for the others change it */
    case OPTION_text: o->text = value; return true;
    case OPTION_steps: return parse_int(value, 0, &o->steps);
    case OPTION_seed: return parse_seed(value, &o->seed);
    case OPTION_alloc: return parse_choice(value, "eager", "arena", &o->arena);
    case OPTION_dry: return o->dry = true;
    case OPTION_json: return o->json = true;
    case OPTION_list: return o->list = true;
    case OPTION_layers: return parse_int(value, 1, &o->shape.layers);
    case OPTION_hidden: return parse_int(value, 1, &o->shape.hidden);
    case OPTION_heads: return parse_int(value, 1, &o->shape.heads);
    case OPTION_kv_heads: return parse_int(value, 1, &o->shape.kv_heads);
    case OPTION_head_dim: return parse_int(value, 1, &o->shape.head_dim);
    case OPTION_ffn: return parse_int(value, 1, &o->shape.ffn);
    case OPTION_vocabulary: return parse_int(value, 1, &o->shape.vocabulary);
    case OPTION_tied: return parse_choice(value, "no", "yes", &o->shape.tied);
    case OPTION_dtype:
        if (!parse_choice(value, "fp32", "bf16", &chosen))
            return false;
        o->shape.dtype = chosen ? DTYPE_BF16 : DTYPE_F32;
        return true;
    case OPTION_rank: return parse_int(value, 0, &o->shape.rank);
    case OPTION_train: return parse_choice(value, "lora", "all", &o->shape.train_all);
    case OPTION_batch: return parse_int(value, 1, &o->batch);
    case OPTION_accum: return parse_int(value, 1, &o->accumulation);
    case OPTION_max_len: return parse_int(value, LENGTH_LEAST, &o->longest);
    case OPTION_lengths: o->lengths = value; return true;
    case OPTION_lr: return parse_number(value, &o->rate);
    case OPTION_weight_decay: return parse_number(value, &o->weight_decay);
    case OPTION_clip: return parse_number(value, &o->clip);
    case OPTION_no_checkpoint: o->checkpoint = false; return true;
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

static void start_from(struct options *o, const struct preset *preset)
{
    *o = (struct options){.preset = preset, .shape = preset->shape, .lengths = preset->lengths, .steps = preset->steps,
                          .batch = preset->batch, .accumulation = preset->accumulation, .longest = preset->longest,
                          .rate = preset->rate, .weight_decay = preset->weight_decay, .clip = preset->clip,
                          .checkpoint = true};
}

static int check(const struct options *o, char *error, size_t error_size)
{
    const char *fault = shape_fault(&o->shape);
    if (fault) {
        snprintf(error, error_size, "%s", fault);
    } else if (!o->dry && !o->text) {
        snprintf(error, error_size, "--text FILE is needed to train on, or --dry for the allocations alone");
        fault = error;
    } else if (!o->dry && !(arithmetic_cpu.dtypes & 1U << o->shape.dtype)) {
        snprintf(error, error_size, "the CPU computes in fp32 only: add --dtype fp32, or --dry for allocations alone");
        fault = error;
    }
    return fault ? -1 : 0;
}

int options_parse(struct options *ret_options, int argc, char *const argv[], char *error, size_t error_size)
{
    struct options options;
    struct argument argument;
    start_from(&options, &presets[0]);
    for (int at = 1; at < argc;) {
        if (read_argument(argc, argv, &at, &argument, error, error_size))
            return -1;
        if (argument.option != OPTION_preset)
            continue;
        const struct preset *preset = preset_find(argument.value);
        if (!preset) {
            snprintf(error, error_size, "unknown preset '%s'; --list names them", argument.value);
            return -1;
        }
        start_from(&options, preset);
    }
    for (int at = 1; at < argc;) {
        read_argument(argc, argv, &at, &argument, error, error_size);
        if (!apply(&options, argument.option, argument.value)) {
            snprintf(error, error_size, "bad value '%s': %s takes %s", argument.value, table[argument.option].name,
                     table[argument.option].value);
            return -1;
        }
    }
    if (!options.help && !options.list && check(&options, error, error_size))
        return -1;
    *ret_options = options;
    return 0;
}

void options_print_help(FILE *out)
{
    fputs("usage: segalloc-train [--preset NAME] --text FILE [OPTION]...\n"
          "       segalloc-train [--preset NAME] --dry [OPTION]...\n\n"
          "Trains a Qwen2-like decoder with LoRA adapters as PyTorch would: an ordinary asynchronous CUDA program\n"
          "that takes and frees its tensors one by one. Without a GPU:\n\n"
          "       segalloc run --sim 24GiB -- segalloc-train ...\n\n", out);
    for (int i = 0; i < OPTION_COUNT; i++) {
        char left[64];
        snprintf(left, sizeof left, "--%s%s%s", table[i].name, table[i].value ? " " : "",
                 table[i].value ? table[i].value : "");
        for (char *c = left; *c && *c != ' '; c++)
            if (*c == '_')
                *c = '-';
        fprintf(out, "  %-22s %s\n", left, table[i].help);
    }
    fputs("\nThe other options change the preset, wherever they stand. Exit status: 0 completed, 1 out of memory or\n"
          "another error of the run, 2 usage.\n\nPresets:\n", out);
    options_print_list(out, false);
}

void options_print_list(FILE *out, bool json)
{
    if (json)
        fputs("{\"schema\":\"segalloc.train.presets/1\",\"presets\":[", out);
    for (int i = 0; i < preset_count; i++) {
        const struct preset *p = &presets[i];
        if (json)
            fprintf(out, "%s{\"name\":\"%s\",\"text\":\"%s\"}", i ? "," : "", p->name, p->text);
        else
            fprintf(out, "  %-18s %s\n", p->name, p->text);
    }
    if (json)
        fputs("]}\n", out);
}
