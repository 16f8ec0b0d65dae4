#include "conf.h"

#include "base/ascii.h"
#include "base/size.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Options: types, values as text, and what they become. Reading of whole texts is conf_read.c's.

   A type has a case in each of four functions. option_set() reads a value, and sg_conf_format() writes it so that it reads
   back to the same one. sg_option_values() says which values there are. option_words() has the words of an enumeration. */
enum type {
    TYPE_BOOL,
    TYPE_MIB,
    TYPE_SHARE,
    TYPE_REAL,
    TYPE_ROUNDUP,
    TYPE_PATH,
    TYPE_LIMIT,
    TYPE_CHECK,
    TYPE_AUTO_SIZE,
    TYPE_AUTO_MIB,
    TYPE_AUTO_REAL,
    TYPE_ENUM_BACKEND,
    TYPE_ENUM_FREE_SYNC,
    TYPE_ENUM_ALIAS,
    TYPE_ENUM_IPC,
    TYPE_ENUM_PYTORCH,
    TYPE_ENUM_OOM
};

/* The project that an option comes from. */
enum { ORIGIN_OURS, ORIGIN_TORCH };
/* Digits of a number that are kept: a double holds as many, and gives them back. */
enum { REAL_DIGITS = 15 };
#define REAL_MOST UINT64_C(1000000000000000)

/* A row of options.def. `field` is the offset in struct sg_conf; bounds are in the unit that the user writes. */
struct option {
    struct sg_option_info info;
    enum type type;
    size_t field;
    double low, high;
};

/* The table. A row knows its field by its offset, so that one function per type can read and write any option. */
static const struct option options[] = {
#define OPTION(name, field, origin, type, def, low, high, text) \
    {{#name, def, text, #type, ORIGIN_##origin == ORIGIN_TORCH}, \
     TYPE_##type, offsetof(struct sg_conf, field), low, high},
#include "options.def"
};

/* The words of an enumeration, in the order of its values; NULL for other types. Ends with NULL. */
static const char *const *option_words(enum type type)
{
    static const char *const backend[] = {"native", "cudaMallocAsync", NULL};
    static const char *const free_sync[] = {"auto", "strict", "event", "stream", NULL};
    static const char *const alias[] = {"auto", "on", "off", NULL};
    static const char *const ipc[] = {"auto", "always", "never", NULL};
    static const char *const pytorch[] = {"auto", "direct", "beneath", NULL};
    static const char *const oom[] = {"first", "every", "never", NULL};
    switch (type) {
    case TYPE_ENUM_BACKEND:
        return backend;
    case TYPE_ENUM_FREE_SYNC:
        return free_sync;
    case TYPE_ENUM_ALIAS:
        return alias;
    case TYPE_ENUM_IPC:
        return ipc;
    case TYPE_ENUM_PYTORCH:
        return pytorch;
    case TYPE_ENUM_OOM:
        return oom;
    default:
        return NULL;
    }
}

/* True if 0 means "off" for the option, and may be given though it is below the lower bound. */
static bool option_takes_off(const struct option *option)
{
    return strcmp(option->info.def, "0") == 0;
}

/* Bounds in force: PyTorch ties the sizes of its splitting to the size of a segment. */
static double option_low_bound(const struct sg_conf *conf, const struct option *option)
{
    size_t index = (size_t)(option - options);
    if (index == SG_OPTION_max_split_size_mb || index == SG_OPTION_max_non_split_rounding_mb)
        return conf ? (double)(conf->large_segment_size / SG_MIB) : 20;
    return option->low;
}

/* Text of a fixed size that never overflows: the part that does not fit is left out. `length` goes on counting, so that
   the caller knows what was needed, as with snprintf. */
struct text {
    char *at;
    size_t size, length;
};

__attribute__((format(printf, 2, 3))) static void text_add(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t left = text->length < text->size ? text->size - text->length : 0;
    int wrote = vsnprintf(left ? text->at + text->length : NULL, left, format, arguments);
    va_end(arguments);
    if (wrote > 0)
        text->length += (size_t)wrote;
}

/* Adds the shortest decimal fraction that parse_real() reads back as `value`: 1.02 and not 1.0200000000000000178. printf
   would ask the locale for the point. */
static void text_add_real(struct text *text, double value)
{
    /* More digits are tried until the number reads back as the same double: 1.02 needs two, 0.1 one. */
    double scale = 1;
    int digits = 0;
    uint64_t scaled = (uint64_t)(value + 0.5);
    while ((double)scaled / scale != value && digits < REAL_DIGITS && scaled < REAL_MOST) {
        scale *= 10;
        digits++;
        scaled = (uint64_t)(value * scale + 0.5);
    }
    uint64_t unit = (uint64_t)scale;
    if (digits)
        text_add(text, "%" PRIu64 ".%0*" PRIu64, scaled / unit, digits, scaled % unit);
    else
        text_add(text, "%" PRIu64, scaled);
}

/* Adds a size in the largest unit that divides it: 1610612736 is "1536MiB", which reads back as the same bytes. */
static void text_add_size(struct text *text, uint64_t bytes)
{
    static const char *const units[] = {"", "KiB", "MiB", "GiB", "TiB"};
    unsigned unit = 0;
    while (bytes && bytes % 1024 == 0 && unit + 1 < sizeof units / sizeof *units) {
        bytes /= 1024;
        unit++;
    }
    text_add(text, "%" PRIu64 "%s", bytes, units[unit]);
}

/* Reads digits and nothing else. False: no digit, something else, or more than fits. */
static bool parse_whole(const char *text, uint64_t *ret)
{
    uint64_t whole = 0;
    if (!*text)
        return false;
    for (; *text; text++) {
        if (!sg_ascii_digit(*text) || whole > UINT64_MAX / 10 - 1)
            return false;
        whole = whole * 10 + (uint64_t)(*text - '0');
    }
    *ret = whole;
    return true;
}

/* Reads digits with one point at most, and no sign or exponent. Digits beyond the 15th after the point are dropped. False:
   anything else, or a whole part above ten digits. strtod() would ask the locale what a point looks like. */
static bool parse_real(const char *text, double *ret)
{
    uint64_t mantissa = 0;
    double scale = 1;
    unsigned digits = 0, decimals = 0;
    bool point = false;
    for (; *text; text++) {
        if (*text == '.' && !point) {
            point = true;
            continue;
        }
        if (!sg_ascii_digit(*text) || (!point && mantissa > 1000000000))
            return false;
        digits++;
        if (point && ++decimals > REAL_DIGITS)
            continue;
        /* Digits that a double cannot hold are passed over: they would not change it. */
        if (mantissa >= REAL_MOST / 10)
            continue;
        mantissa = mantissa * 10 + (uint64_t)(*text - '0');
        if (point)
            scale *= 10;
    }
    if (!digits)
        return false;
    *ret = (double)mantissa / scale;
    return true;
}

static bool is_power_of_2(uint64_t value)
{
    return value && (value & (value - 1)) == 0;
}

/* One "key:value" of a list, spaces dropped. Returns what follows it, NULL when it's malformed. */
static const char *next_entry(const char *at, char *ret_key, char *ret_value, size_t size)
{
    size_t length = 0;
    char *into = ret_key;
    for (; *at && *at != ',' && *at != ']'; at++) {
        if (sg_ascii_space(*at))
            continue;
        if (*at == ':' && into == ret_key) {
            into[length] = '\0';
            into = ret_value;
            length = 0;
        } else if (length + 1 < size) {
            into[length++] = *at;
        } else {
            return NULL;
        }
    }
    into[length] = '\0';
    if (into == ret_key || (*at != ',' && *at != ']'))
        return NULL;
    return *at == ',' ? at + 1 : at;
}

/* The rules are PyTorch's (c10/core/AllocatorConfig.cpp). A boundary names the interval [2^i MiB, 2^(i+1) MiB). The
   first one fills all intervals below it too; those between two boundaries stay off. ">" fills what is above the last
   boundary, or above the lowest interval where there is none.

   Example, the list [256:1,512:2,1024:4,>:8]:
     0 to 8      up to 512 MiB    1    256 MiB is interval 8, and the first boundary fills what is below it
     9           to 1 GiB         2
     10          to 2 GiB         4
     11 to 15    above            8 */
static bool parse_roundup(const char *value, uint64_t ret[SG_ROUNDUP_INTERVALS])
{
    uint64_t intervals[SG_ROUNDUP_INTERVALS] = {0}, divisions;
    if (*value != '[') {
        if (!parse_whole(value, &divisions) || (divisions && !is_power_of_2(divisions)))
            return false;
        for (unsigned i = 0; i < SG_ROUNDUP_INTERVALS; i++)
            ret[i] = divisions;
        return true;
    }
    unsigned last = 0;
    bool first = true, empty = true;
    const char *at = value + 1;
    while (*at && *at != ']') {
        char key[24], count[24];
        at = next_entry(at, key, count, sizeof key);
        if (!at || !parse_whole(count, &divisions) || (divisions && !is_power_of_2(divisions)))
            return false;
        /* ">" fills everything above the last boundary; a boundary fills its interval, and the first one those below it too. */
        unsigned from = last + 1, to = SG_ROUNDUP_INTERVALS;
        if (strcmp(key, ">") != 0) {
            uint64_t boundary;
            if (!parse_whole(key, &boundary) || !is_power_of_2(boundary))
                return false;
            unsigned index = 63 - (unsigned)__builtin_clzll(boundary);
            last = index < SG_ROUNDUP_INTERVALS ? index : SG_ROUNDUP_INTERVALS - 1;
            from = first ? 0 : last;
            to = last + 1;
            first = false;
        }
        for (unsigned i = from; i < to; i++)
            intervals[i] = divisions;
        empty = false;
    }
    if (empty || at[0] != ']' || at[1] != '\0')
        return false;
    /* Only now, so that a bad list changes nothing. */
    memcpy(ret, intervals, sizeof intervals);
    return true;
}

/* A number up to 1 is a fraction, anything else a size: "1" is the whole device, "1B" is one byte and too small. */
static bool option_set_limit(struct sg_conf *conf, const struct option *option, const char *value)
{
    double fraction;
    uint64_t bytes;
    /* The two fields exclude each other, so the one that is not given goes back to 0. */
    if (parse_real(value, &fraction) && fraction <= 1) {
        conf->limit_bytes = 0;
        conf->limit_fraction = fraction;
        return true;
    }
    if (!sg_size_parse(value, &bytes) || (double)bytes < option->low)
        return false;
    conf->limit_bytes = bytes;
    conf->limit_fraction = 0;
    return true;
}

/* "True" or "False", in any case, as PyTorch writes them. */
static bool option_set_bool(bool *field, const char *value)
{
    if (!sg_ascii_same(value, "True") && !sg_ascii_same(value, "False"))
        return false;
    *field = sg_ascii_lower(*value) == 't';
    return true;
}

/* The words of `check`, in the order in which they are written. */
static const struct {
    const char *word;
    unsigned bits;
} check_words[] = {
    {"fill", SG_CHECK_FILL},
    {"canary", SG_CHECK_CANARY},
    {"thorough", SG_CHECK_THOROUGH},
    {"fail", SG_CHECK_FAIL},
    {"json", SG_CHECK_JSON},
};
enum { CHECK_WORDS = sizeof check_words / sizeof *check_words };

static bool check_word(const char *word, unsigned *ret_bits)
{
    bool on;
    if (sg_ascii_same(word, "on") || (option_set_bool(&on, word) && on)) {
        *ret_bits |= SG_CHECK_PARTS;
        return true;
    }
    for (unsigned i = 0; i < CHECK_WORDS; i++) {
        if (sg_ascii_same(word, check_words[i].word)) {
            *ret_bits |= check_words[i].bits;
            return true;
        }
    }
    return false;
}

/* Words joined by "+", or "off". Words that only say how stand for the usual parts too: "fail" is fill+canary+fail. */
static bool parse_check(const char *value, unsigned *ret)
{
    char word[16];
    unsigned bits = 0;
    bool on;
    if (sg_ascii_same(value, "off") || (option_set_bool(&on, value) && !on)) {
        *ret = 0;
        return true;
    }
    for (const char *at = value;; at++) {
        size_t length = strcspn(at, "+");
        if (length >= sizeof word)
            return false;
        memcpy(word, at, length);
        word[length] = '\0';
        if (!check_word(word, &bits))
            return false;
        at += length;
        if (!*at)
            break;
    }
    *ret = bits & SG_CHECK_PARTS ? bits : bits | SG_CHECK_PARTS;
    return true;
}

/* Stores the number of a word of an enumeration, in any case. False: it is none of them. */
static bool option_set_word(void *field, const char *const *words, const char *value)
{
    for (unsigned i = 0; words[i]; i++) {
        if (sg_ascii_same(words[i], value)) {
            _Static_assert(sizeof(enum sg_ipc) == sizeof i, "enumerations are stored as unsigned");
            memcpy(field, &i, sizeof i);
            return true;
        }
    }
    return false;
}

/* Sets the field of an option from a text. False, changing nothing: the text is no value of its type, or out of bounds. */
static bool option_set(struct sg_conf *conf, const struct option *option, const char *value)
{
    void *field = (char *)conf + option->field;
    bool is_auto = sg_ascii_same(value, "auto"), off = option_takes_off(option) && strcmp(value, "0") == 0;
    uint64_t whole;
    double real;
    switch (option->type) {
    case TYPE_BOOL:
        return option_set_bool(field, value);
    case TYPE_AUTO_MIB:
    case TYPE_MIB: /* the user writes MiB, the field has bytes; 0 may be below the bound where it means "off" */
        if (option->type == TYPE_AUTO_MIB && is_auto) {
            *(uint64_t *)field = SG_AUTO;
            return true;
        }
        if (!parse_whole(value, &whole))
            return false;
        if (!off && ((double)whole < option_low_bound(conf, option) || (double)whole > option->high))
            return false;
        *(uint64_t *)field = whole * SG_MIB;
        return true;
    case TYPE_AUTO_SIZE:
        if (is_auto)
            whole = SG_AUTO;
        else if (!sg_size_parse(value, &whole))
            return false;
        *(uint64_t *)field = whole;
        return true;
    case TYPE_SHARE:
        if (!parse_real(value, &real) || (real <= 0 && !off) || real >= 1)
            return false;
        *(double *)field = real;
        return true;
    case TYPE_AUTO_REAL:
    case TYPE_REAL:
        if (option->type == TYPE_AUTO_REAL && is_auto)
            real = 0;
        else if (!parse_real(value, &real) || real < option->low || real > option->high)
            return false;
        *(double *)field = real;
        return true;
    case TYPE_ROUNDUP:
        return parse_roundup(value, field);
    case TYPE_PATH:
        memcpy(field, value, strlen(value) + 1);
        return true;
    case TYPE_LIMIT:
        return option_set_limit(conf, option, value);
    case TYPE_CHECK:
        return parse_check(value, field);
    case TYPE_ENUM_ALIAS: { /* older traces and settings say True or False, from when it had two values */
        bool on;
        return option_set_word(field, option_words(option->type), option_set_bool(&on, value) ? on ? "on" : "off" : value);
    }
    default:
        return option_set_word(field, option_words(option->type), value);
    }
}

/* The shortest text that parse_roundup() reads back to these intervals: one number, or a list from the first to the last
   that differs. */
static void text_add_roundup(struct text *text, const uint64_t intervals[SG_ROUNDUP_INTERVALS])
{
    bool same = true;
    for (unsigned i = 1; i < SG_ROUNDUP_INTERVALS; i++)
        same &= intervals[i] == intervals[0];
    if (same) {
        text_add(text, "%" PRIu64, intervals[0]);
        return;
    }
    /* The first boundary fills those below it, and ">" those above the last one named. */
    unsigned first = 0, last = SG_ROUNDUP_INTERVALS - 1;
    while (intervals[first + 1] == intervals[first])
        first++;
    while (intervals[last - 1] == intervals[last])
        last--;
    text_add(text, "[");
    for (unsigned i = first; i < last; i++)
        text_add(text, "%u:%" PRIu64 ",", 1u << i, intervals[i]);
    text_add(text, ">:%" PRIu64 "]", intervals[last]);
}

static void text_add_check(struct text *text, unsigned bits)
{
    if (!bits)
        text_add(text, "off");
    for (unsigned i = 0; i < CHECK_WORDS; i++)
        if (bits & check_words[i].bits)
            text_add(text, "%s%s", text->length ? "+" : "", check_words[i].word);
}

char *sg_conf_format(const struct sg_conf *conf, enum sg_option index, char *buffer, size_t size)
{
    const struct option *option = &options[index];
    const void *field = (const char *)conf + option->field;
    struct text text = {buffer, size, 0};
    unsigned word;
    if (size)
        *buffer = '\0';
    switch (option->type) {
    case TYPE_BOOL:
        text_add(&text, "%s", *(const bool *)field ? "True" : "False");
        break;
    case TYPE_AUTO_MIB:
    case TYPE_MIB:
        if (*(const uint64_t *)field == SG_AUTO)
            text_add(&text, "auto");
        else
            text_add(&text, "%" PRIu64, *(const uint64_t *)field / SG_MIB);
        break;
    case TYPE_AUTO_SIZE:
        if (*(const uint64_t *)field == SG_AUTO)
            text_add(&text, "auto");
        else
            text_add_size(&text, *(const uint64_t *)field);
        break;
    case TYPE_AUTO_REAL:
    case TYPE_REAL:
    case TYPE_SHARE:
        if (option->type == TYPE_AUTO_REAL && *(const double *)field <= 0)
            text_add(&text, "auto");
        else
            text_add_real(&text, *(const double *)field);
        break;
    case TYPE_ROUNDUP:
        text_add_roundup(&text, field);
        break;
    case TYPE_PATH:
        text_add(&text, "%s", (const char *)field);
        break;
    case TYPE_LIMIT:
        if (conf->limit_fraction > 0)
            text_add_real(&text, conf->limit_fraction);
        else
            text_add_size(&text, conf->limit_bytes);
        break;
    case TYPE_CHECK:
        text_add_check(&text, *(const unsigned *)field);
        break;
    default:
        memcpy(&word, field, sizeof word);
        text_add(&text, "%s", option_words(option->type)[word]);
    }
    return buffer;
}

/* True if a value can be read back from a list of parts: a path may contain a comma or a bracket. */
static bool value_is_one_part(const char *value, enum type type)
{
    size_t length = strlen(value);
    return type != TYPE_PATH ||
           (!strpbrk(value, ",#[]\n\r\t") && (length == 0 || (*value != ' ' && value[length - 1] != ' ')));
}

size_t sg_conf_print(const struct sg_conf *conf, char *buffer, size_t size)
{
    struct text text = {buffer, size, 0};
    struct sg_conf defaults;
    sg_conf_init(&defaults);
    /* This one follows large_segment_size where it is not named, so it differs only if it was set. */
    defaults.max_non_split_rounding = conf->large_segment_size;
    if (size)
        *buffer = '\0';
    for (unsigned i = 0; i < SG_OPTION_COUNT; i++) {
        char value[SG_PATH_BYTES], def[SG_PATH_BYTES];
        sg_conf_format(conf, i, value, sizeof value);
        if (strcmp(value, sg_conf_format(&defaults, i, def, sizeof def)) != 0 && value_is_one_part(value, options[i].type))
            text_add(&text, "%s%s:%s", text.length ? "," : "", options[i].info.name, value);
    }
    return text.length;
}

char *sg_option_values(const struct sg_conf *conf, enum sg_option index, char *buffer, size_t size)
{
    const struct option *option = &options[index];
    struct text text = {buffer, size, 0};
    double low = option_low_bound(conf, option);
    if (size)
        *buffer = '\0';
    if (option_takes_off(option))
        text_add(&text, "0 for off, ");
    switch (option->type) {
    case TYPE_BOOL:
        text_add(&text, "True or False");
        break;
    case TYPE_AUTO_MIB:
    case TYPE_MIB:
        text_add(&text, "%s%.0f to %.0f (MiB)",
            option->type == TYPE_AUTO_MIB ? "auto or " : option_takes_off(option) ? "or " : "", low, option->high);
        break;
    case TYPE_SHARE:
        text_add(&text, "or a number between 0 and 1");
        break;
    case TYPE_AUTO_REAL:
    case TYPE_REAL:
        text_add(&text, "%sa number from %.0f to %.0f", option->type == TYPE_AUTO_REAL ? "auto or " : "", low, option->high);
        break;
    case TYPE_ROUNDUP:
        text_add(&text, "1 (which rounds nothing either, as in PyTorch), a power of 2, or a list [MiB:N,…,>:N] of them");
        break;
    case TYPE_PATH:
        text_add(&text, "a path of at most %d bytes", SG_PATH_BYTES - 1);
        break;
    case TYPE_LIMIT:
        text_add(&text, "a fraction such as 0.5, or a size of 2 MiB and more such as 20GiB");
        break;
    case TYPE_AUTO_SIZE:
        text_add(&text, "auto or a size such as 512MiB");
        break;
    case TYPE_CHECK:
        text_add(&text, "off, on, or words joined by +: fill, canary, thorough, fail, json");
        break;
    default:
        for (const char *const *word = option_words(option->type); *word; word++)
            text_add(&text, "%s%s", text.length == 0 ? "" : word[1] ? ", " : " or ", *word);
    }
    return buffer;
}

bool sg_conf_set(struct sg_conf *conf, enum sg_option option, const char *value)
{
    return option_set(conf, &options[option], value);
}

void sg_conf_init(struct sg_conf *conf)
{
    memset(conf, 0, sizeof *conf);
    /* The bounds of two other options follow from it, so it is there before their defaults are set. */
    conf->large_segment_size = 20 * SG_MIB;
    for (unsigned i = 0; i < SG_OPTION_COUNT; i++) {
        /* Defaults pass the same checks as a user's values: a bad one in the table fails here. */
        bool done = option_set(conf, &options[i], options[i].info.def);
        assert(done);
        (void)done;
    }
}

const struct sg_option_info *sg_option_info(enum sg_option option)
{
    return &options[option].info;
}

const char *sg_conf_source_name(enum sg_conf_source source)
{
    static const char *const names[] = {
        [SG_CONF_DEFAULT] = "default",
        [SG_CONF_SYSTEM] = SG_CONF_SYSTEM_FILE,
        [SG_CONF_CARD] = "the file for this card",
        [SG_CONF_FILE] = "SEGALLOC_CONF_FILE",
        [SG_CONF_ENVIRONMENT] = "SEGALLOC_CONF",
        [SG_CONF_PYTORCH] = "PYTORCH_ALLOC_CONF",
        [SG_CONF_PYTORCH_CUDA] = "PYTORCH_CUDA_ALLOC_CONF",
        [SG_CONF_ARGUMENT] = "--conf",
    };
    return names[source];
}

uint64_t sg_conf_limit(const struct sg_conf *conf, uint64_t total)
{
    /* The smallest of all that is set counts; an option at its default, 0 or 1, limits nothing. */
    uint64_t limit = total;
    if (conf->limit_bytes && conf->limit_bytes < limit)
        limit = conf->limit_bytes;
    if (conf->limit_fraction > 0 && conf->limit_fraction < 1)
        limit = (uint64_t)((double)total * conf->limit_fraction);
    if (conf->per_process_memory_fraction < 1 && (double)total * conf->per_process_memory_fraction < (double)limit)
        limit = (uint64_t)((double)total * conf->per_process_memory_fraction);
    return limit;
}
