#include "config/conf_read.h"
#include "tune/space.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ascii.h"

struct sg_tune_text {
    struct sg_tune_text *next;
    char text[];
};

enum kind { CHOICE, WHOLE, POWER, REAL }; /* how a range is filled: not at all, by ratio, powers of two, evenly */

struct known {
    const char *key, *values;
    enum kind kind;
};

/* Steps of two to four, over the sizes at which a training step's tensors differ. The bounds are the options' own. */
static const struct known own[SG_TUNE_PARAMETERS] = {
    {"max_split_size_mb", "32 128 512 2048", WHOLE},
    {"page_size_mb", "2 4 8 16 32 64", WHOLE},
    {"reserve_slack", "1 1.02 1.05 1.1 1.2", REAL},
    {"roundup_power2_divisions", "4 16", POWER},
};
static const struct known torch[SG_TUNE_PARAMETERS] = {
    {"expandable_segments", "True", CHOICE},
    {"max_split_size_mb", "20 32 64 128 256 512 1024", WHOLE},
    {"roundup_power2_divisions", "2 4 8 16", POWER},
    {"max_non_split_rounding_mb", "64 256 1024", WHOLE},
    {"garbage_collection_threshold", "0.6 0.8 0.9", REAL},
};

/* Keys of ours that say what is written where, and nothing about memory. */
static const char *const of_output[] = {"trace", "trace_mb", "stats", "live", "sites", "oom_report", "confirm_conf",
    "abort_conf"};

/* An empty string with room for `length` characters, which the space owns; NULL when out of host memory. */
static char *reserve_text(struct sg_tune_space *space, size_t length)
{
    struct sg_tune_text *text = calloc(1, sizeof *text + length + 1);
    if (!text)
        return NULL;
    text->next = space->texts;
    space->texts = text;
    return text->text;
}

static char *space_keep_text(struct sg_tune_space *space, const char *text, size_t length)
{
    char *copy = reserve_text(space, length);
    return copy ? memcpy(copy, text, length) : NULL;
}

static const struct known *known_of(const struct sg_tune_space *space)
{
    return space->policy == SG_POLICY_PYTORCH ? torch : own;
}

static void add_value(struct sg_tune_space *space, struct sg_tune_parameter *parameter, const char *text, size_t length)
{
    for (unsigned i = 0; i < parameter->count; i++) {
        if (strlen(parameter->value[i]) == length && strncmp(parameter->value[i], text, length) == 0)
            return;
    }
    char *value = parameter->count < SG_TUNE_VALUES ? space_keep_text(space, text, length) : NULL;
    if (value)
        parameter->value[parameter->count++] = value;
}

void sg_tune_space_init(struct sg_tune_space *space, enum sg_policy policy)
{
    *space = (struct sg_tune_space){.policy = policy, .base = ""};
    for (const struct known *known = known_of(space); space->parameters < SG_TUNE_PARAMETERS && known->key; known++) {
        struct sg_tune_parameter *parameter = &space->parameter[space->parameters++];
        *parameter = (struct sg_tune_parameter){.key = known->key, .searched = true};
        for (const char *at = known->values; *at; at += strcspn(at, " "), at += *at == ' ')
            add_value(space, parameter, at, strcspn(at, " "));
    }
}

void sg_tune_space_free(struct sg_tune_space *space)
{
    for (struct sg_tune_text *text = space->texts, *next; text; text = next) {
        next = text->next;
        free(text);
    }
    space->texts = NULL;
}

static bool same_word(const char *word, const char *text, size_t length)
{
    return strlen(word) == length && strncmp(word, text, length) == 0;
}

static struct sg_tune_parameter *space_find_parameter(struct sg_tune_space *space, const char *key, size_t length)
{
    for (unsigned i = 0; i < space->parameters; i++) {
        if (same_word(space->parameter[i].key, key, length))
            return &space->parameter[i];
    }
    return NULL;
}

static int bad_parameter(const struct sg_tune_space *space, const char *text, size_t length, char *error)
{
    const char *names[SG_TUNE_PARAMETERS];
    char word[64];
    snprintf(word, sizeof word, "%.*s", (int)(length < 60 ? length : 60), text);
    int at = snprintf(error, SG_TUNE_SPACE_ERROR, "there is nothing to tune in \"%s\"", word);
    for (unsigned i = 0; i < space->parameters; i++)
        names[i] = space->parameter[i].key;
    const char *nearest = sg_ascii_nearest(word, names, space->parameters);
    if (nearest)
        at += snprintf(error + at, SG_TUNE_SPACE_ERROR - (size_t)at, "; did you mean %s?", nearest);
    else
        at += snprintf(error + at, SG_TUNE_SPACE_ERROR - (size_t)at, "; there is");
    for (unsigned i = 0; !nearest && i < space->parameters; i++)
        at += snprintf(error + at, SG_TUNE_SPACE_ERROR - (size_t)at, "%s %s", i ? "," : "", names[i]);
    return -EINVAL;
}

/* Fills from LOW..HIGH; false for what is no range. */
static bool fill_range(struct sg_tune_space *space, struct sg_tune_parameter *parameter, enum kind kind,
                       const char *text)
{
    char *end, *last, value[32], from[32]; /* of its own: strtod() would take the first dot too */
    const char *dots = strstr(text, "..");
    snprintf(from, sizeof from, "%.*s", (int)(dots - text < 31 ? dots - text : 31), text);
    double low = strtod(from, &end), high = strtod(dots + 2, &last);
    if (end == from || *end || last == dots + 2 || *last || !(low <= high) || !isfinite(low) || !isfinite(high) ||
        (kind != REAL && low < 1))
        return false;
    for (double power = 1; kind == POWER && power <= high; power *= 2) {
        if (power >= low)
            add_value(space, parameter, value, (size_t)snprintf(value, sizeof value, "%.0f", power));
    }
    for (int i = 0; kind != POWER && i < SG_TUNE_RANGE_VALUES; i++) {
        double share = (double)i / (SG_TUNE_RANGE_VALUES - 1);
        double number = kind == WHOLE ? round(low * pow(high / low, share)) : low + (high - low) * share;
        add_value(space, parameter, value,
                  (size_t)snprintf(value, sizeof value, kind == WHOLE ? "%.0f" : "%.4g", number));
    }
    return parameter->count > 0;
}

/* Every value must be one that its option takes, besides the defaults. */
static int check_values(struct sg_tune_space *space, const struct sg_tune_parameter *parameter, char *error)
{
    char reason[SG_TUNE_SPACE_ERROR];
    for (unsigned i = 0; i < parameter->count; i++) {
        const char *value[SG_TUNE_PARAMETERS] = {0};
        struct sg_tune_setting setting;
        value[parameter - space->parameter] = parameter->value[i];
        if (sg_tune_space_make(space, value, &setting, reason) != 0) {
            snprintf(error, SG_TUNE_SPACE_ERROR, "--param: %.*s", SG_TUNE_SPACE_ERROR - 16, reason);
            return -EINVAL;
        }
    }
    return 0;
}

int sg_tune_space_narrow(struct sg_tune_space *space, const char *text, char *error)
{
    size_t length = strcspn(text, "=:");
    struct sg_tune_parameter *parameter = space_find_parameter(space, text, length);
    if (!parameter)
        return bad_parameter(space, text, length, error);
    const char *values = text[length] ? text + length + 1 : "";
    bool first = true;
    for (unsigned i = 0; i < space->parameters; i++)
        first = first && !space->parameter[i].named;
    for (unsigned i = 0; first && i < space->parameters; i++)
        space->parameter[i].searched = false;
    parameter->searched = parameter->named = true;
    parameter->count = 0;
    enum kind kind = known_of(space)[parameter - space->parameter].kind;
    if (strstr(values, "..")) {
        if (kind == CHOICE || !fill_range(space, parameter, kind, values)) {
            snprintf(error, SG_TUNE_SPACE_ERROR,
                     "--param %.200s: a range is LOW..HIGH, such as max_split_size_mb=20..2048", text);
            return -EINVAL;
        }
    } else {
        for (const char *at = values; *at; at += strcspn(at, ","), at += *at == ',')
            add_value(space, parameter, at, strcspn(at, ","));
    }
    if (!parameter->count) {
        snprintf(error, SG_TUNE_SPACE_ERROR, "--param %.200s: which values? NAME=LOW..HIGH or NAME=A,B,…", text);
        return -EINVAL;
    }
    return check_values(space, parameter, error);
}

/* The next "key:value" of a configuration, without white space around it; false at the end. Commas in brackets do not
   separate. */
static bool next_pair(const char **at, const char **ret_pair, size_t *ret_length)
{
    const char *from = *at;
    while (*from == ',' || *from == '\n' || sg_ascii_space(*from))
        from++;
    if (!*from)
        return false;
    int depth = 0;
    const char *end = from;
    for (; *end && (depth > 0 || (*end != ',' && *end != '\n')); end++)
        depth += (*end == '[') - (*end == ']');
    *at = end;
    while (sg_ascii_space(end[-1]))
        end--;
    *ret_pair = from;
    *ret_length = (size_t)(end - from);
    return true;
}

/* True if a key of segalloc's belongs into a setting to compare with. */
static bool space_key_belongs(const struct sg_tune_space *space, const char *key, size_t length)
{
    for (unsigned i = 0; space->policy == SG_POLICY_PYTORCH && i < SG_OPTION_COUNT; i++) {
        if (same_word(sg_option_info(i)->name, key, length))
            return sg_option_info(i)->torch;
    }
    for (size_t i = 0; i < sizeof of_output / sizeof *of_output; i++) {
        if (same_word(of_output[i], key, length))
            return false;
    }
    return space->policy == SG_POLICY_SEGALLOC;
}

int sg_tune_space_current(struct sg_tune_space *space, const char *text, bool of_ours, char *error)
{
    struct sg_tune_space changed = *space;
    char *base = reserve_text(&changed, strlen(text) + 1), *end = base;
    const char *pair;
    space->texts = changed.texts;
    if (!base)
        return -ENOMEM;
    for (size_t length; next_pair(&text, &pair, &length);) {
        size_t key = 0, value;
        while (key < length && pair[key] != ':' && !sg_ascii_space(pair[key]))
            key++;
        for (value = key; value < length && (pair[value] == ':' || sg_ascii_space(pair[value])); value++)
            ;
        struct sg_tune_parameter *parameter = space_find_parameter(&changed, pair, key);
        if (parameter && parameter->searched && value < length) {
            char *copy = space_keep_text(&changed, pair + value, length - value);
            space->texts = changed.texts;
            if (!copy)
                return -ENOMEM;
            changed.now[parameter - changed.parameter] = copy;
        } else if (!of_ours || space_key_belongs(space, pair, key)) {
            end += sprintf(end, "%s%.*s", end > base ? "," : "", (int)length, pair);
        }
    }
    changed.base = base;
    changed.has_current = true;
    struct sg_tune_setting setting;
    int status = sg_tune_space_make(&changed, changed.now, &setting, error);
    if (status == 0)
        *space = changed;
    space->texts = changed.texts;
    return status;
}

void sg_tune_space_decide(struct sg_tune_space *space)
{
    const char *none[SG_TUNE_PARAMETERS] = {0};
    char error[SG_TUNE_SPACE_ERROR];
    struct sg_tune_setting setting;
    if (sg_tune_space_make(space, none, &setting, error) != 0)
        return;
    for (unsigned i = 0; i < space->parameters; i++) {
        struct sg_tune_parameter *parameter = &space->parameter[i];
        bool matters = parameter->searched;
        if (space->policy == SG_POLICY_PYTORCH && strcmp(parameter->key, "garbage_collection_threshold") == 0)
            matters = matters && setting.torch.memory_fraction < 1;
        if (space->policy == SG_POLICY_SEGALLOC && !setting.own.expandable_segments)
            matters =
                matters && strcmp(parameter->key, "page_size_mb") != 0 && strcmp(parameter->key, "reserve_slack") != 0;
        if (!matters && !parameter->named)
            parameter->count = 0;
    }
}

static void first_warning(void *user, const char *line)
{
    char *error = user;
    if (!*error)
        snprintf(error, SG_TUNE_SPACE_ERROR, "%s", line);
}

int sg_tune_space_make(struct sg_tune_space *space, const char *const *value, struct sg_tune_setting *ret, char *error)
{
    struct sg_tune_setting setting = {0};
    size_t length = strlen(space->base), room = length + 1;
    for (unsigned i = 0; i < space->parameters; i++)
        room += value[i] ? strlen(space->parameter[i].key) + strlen(value[i]) + 2 : 0;
    char *conf = reserve_text(space, room), *end = conf;
    if (!conf)
        return -ENOMEM;
    end += sprintf(end, "%s", space->base);
    for (unsigned i = 0; i < space->parameters; i++) {
        setting.value[i] = value[i];
        if (!value[i])
            continue;
        setting.keys++;
        end += sprintf(end, "%s%s:%s", end > conf ? "," : "", space->parameter[i].key, value[i]);
    }
    setting.conf = conf;
    *error = '\0';
    if (space->policy == SG_POLICY_PYTORCH) {
        if (sg_torch_conf_parse(conf, &setting.torch, error) != 0)
            return -EINVAL;
    } else {
        sg_conf_init(&setting.own);
        if (sg_conf_check(&setting.own, NULL, conf, first_warning, error))
            return -EINVAL;
    }
    *ret = setting;
    return 0;
}

/* PyTorch's settings, those that have no effect given the others cleared. */
static struct sg_torch_conf torch_conf_effective(const struct sg_torch_conf *conf)
{
    struct sg_torch_conf result = *conf;
    if (result.max_split_size == SG_TORCH_UNLIMITED)
        result.max_non_split_rounding = 0;
    if (result.memory_fraction >= 1)
        result.garbage_collection_threshold = 0;
    for (int i = 0; i < SG_TORCH_INTERVALS; i++)
        result.roundup_divisions[i] += !result.roundup_divisions[i];
    return result;
}

bool sg_tune_space_same(const struct sg_tune_space *space, const struct sg_tune_setting *a,
                        const struct sg_tune_setting *b)
{
    if (space->policy == SG_POLICY_SEGALLOC) {
        char left[2048], right[2048];
        sg_conf_print(&a->own, left, sizeof left);
        sg_conf_print(&b->own, right, sizeof right);
        return strcmp(left, right) == 0;
    }
    struct sg_torch_conf left = torch_conf_effective(&a->torch), right = torch_conf_effective(&b->torch);
    return left.expandable_segments == right.expandable_segments &&
           left.large_segment_size == right.large_segment_size && left.max_split_size == right.max_split_size &&
           left.max_non_split_rounding == right.max_non_split_rounding &&
           left.garbage_collection_threshold == right.garbage_collection_threshold &&
           left.memory_fraction == right.memory_fraction &&
           memcmp(left.roundup_divisions, right.roundup_divisions, sizeof left.roundup_divisions) == 0;
}
