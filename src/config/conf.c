#include "conf.h"

#include "base/ascii.h"
#include "base/size.h"
#include "base/text.h"
#include "config/conf_check.h"
#include "config/conf_number.h"
#include "config/conf_overflow.h"
#include "config/conf_roundup.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

/* Options: types, values as text, and what they become. Reading of whole texts is conf_read.c's. Types whose
   values have a grammar have files of their own: numbers, the list of roundup_power2_divisions, the words of
   `check`, places of `overflow`.

   A type has a case in each of four functions. option_set() reads a value, and sg_conf_format() writes it so
   that it reads back to the same one. sg_option_values() says which values there are. option_words() has the
   words of an enumeration. */
enum type {
    TYPE_BOOL,
    TYPE_MIB,
    TYPE_SHARE,
    TYPE_REAL,
    TYPE_ROUNDUP,
    TYPE_PATH,
    TYPE_TEXT,
    TYPE_SIZE,
    TYPE_LIMIT,
    TYPE_OVERFLOW,
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

/* Bounds in force: PyTorch ties the sizes of its splitting to the size of a segment. For example, with
   large_segment_size_mb:64 the least max_split_size_mb is 64, and 20 without. `conf` NULL: the defaults. */
static double option_low_bound(const struct sg_conf *conf, const struct option *option)
{
    size_t index = (size_t)(option - options);
    if (index == SG_OPTION_max_split_size_mb || index == SG_OPTION_max_non_split_rounding_mb)
        return conf ? (double)(conf->large_segment_size / SG_MIB) : 20;
    return option->low;
}

/* A number up to 1 is a fraction, anything else a size: "1" is the whole device, "1B" is one byte and too small. */
static bool option_set_limit(struct sg_conf *conf, const struct option *option, const char *value)
{
    double fraction;
    uint64_t bytes;
    /* The two fields exclude each other, so the one that is not given goes back to 0. */
    if (sg_conf_number_real(value, &fraction) && fraction <= 1) {
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
        if (!sg_conf_number_whole(value, &whole))
            return false;
        if (!off && ((double)whole < option_low_bound(conf, option) || (double)whole > option->high))
            return false;
        *(uint64_t *)field = whole * SG_MIB;
        return true;
    case TYPE_SIZE:
    case TYPE_AUTO_SIZE:
        if (is_auto && option->type == TYPE_AUTO_SIZE)
            whole = SG_AUTO;
        else if (!sg_size_parse(value, &whole))
            return false;
        *(uint64_t *)field = whole;
        return true;
    case TYPE_SHARE:
        if (!sg_conf_number_real(value, &real) || (real <= 0 && !off) || real >= 1)
            return false;
        *(double *)field = real;
        return true;
    case TYPE_AUTO_REAL:
    case TYPE_REAL:
        if (option->type == TYPE_AUTO_REAL && is_auto)
            real = 0;
        else if (!sg_conf_number_real(value, &real) || real < option->low || real > option->high)
            return false;
        *(double *)field = real;
        return true;
    case TYPE_ROUNDUP:
        return sg_conf_roundup_parse(value, field);
    case TYPE_PATH:
    case TYPE_TEXT:
        memcpy(field, value, strlen(value) + 1);
        return true;
    case TYPE_LIMIT:
        return option_set_limit(conf, option, value);
    case TYPE_OVERFLOW:
        return sg_conf_overflow_parse(value, field);
    case TYPE_CHECK:
        return sg_conf_check_parse(value, field);
    case TYPE_ENUM_ALIAS: { /* older traces and settings say True or False, from when it had two values */
        bool on;
        return option_set_word(field, option_words(option->type), option_set_bool(&on, value) ? on ? "on" : "off" : value);
    }
    default:
        return option_set_word(field, option_words(option->type), value);
    }
}

/* The text reads back to the same value by option_set(): a trace keeps it, and a replay sets it. */
char *sg_conf_format(const struct sg_conf *conf, enum sg_option index, char *buffer, size_t size)
{
    const struct option *option = &options[index];
    const void *field = (const char *)conf + option->field;
    struct sg_text text = {buffer, size, 0};
    unsigned word;
    if (size)
        *buffer = '\0';
    switch (option->type) {
    case TYPE_BOOL:
        sg_text_add(&text, "%s", *(const bool *)field ? "True" : "False");
        break;
    case TYPE_AUTO_MIB:
    case TYPE_MIB:
        if (*(const uint64_t *)field == SG_AUTO)
            sg_text_add(&text, "auto");
        else
            sg_text_add(&text, "%" PRIu64, *(const uint64_t *)field / SG_MIB);
        break;
    case TYPE_SIZE:
    case TYPE_AUTO_SIZE:
        if (*(const uint64_t *)field == SG_AUTO)
            sg_text_add(&text, "auto");
        else
            sg_conf_number_add_size(&text, *(const uint64_t *)field);
        break;
    case TYPE_AUTO_REAL:
    case TYPE_REAL:
    case TYPE_SHARE:
        if (option->type == TYPE_AUTO_REAL && *(const double *)field <= 0)
            sg_text_add(&text, "auto");
        else
            sg_conf_number_add(&text, *(const double *)field);
        break;
    case TYPE_ROUNDUP:
        sg_conf_roundup_add(&text, field);
        break;
    case TYPE_PATH:
    case TYPE_TEXT:
        sg_text_add(&text, "%s", (const char *)field);
        break;
    case TYPE_LIMIT:
        if (conf->limit_fraction > 0)
            sg_conf_number_add(&text, conf->limit_fraction);
        else
            sg_conf_number_add_size(&text, conf->limit_bytes);
        break;
    case TYPE_OVERFLOW:
        sg_conf_overflow_add(&text, field);
        break;
    case TYPE_CHECK:
        sg_conf_check_add(&text, *(const unsigned *)field);
        break;
    default:
        memcpy(&word, field, sizeof word);
        sg_text_add(&text, "%s", option_words(option->type)[word]);
    }
    return buffer;
}

/* True if a value can be read back from a list of parts: a path may contain a comma or a bracket. */
static bool value_is_one_part(const char *value, enum type type)
{
    size_t length = strlen(value);
    return (type != TYPE_PATH && type != TYPE_TEXT) ||
           (!strpbrk(value, ",#[]\n\r\t") && (length == 0 || (*value != ' ' && value[length - 1] != ' ')));
}

/* Only differences from the defaults are written, since the text stands in the header of a trace. A path that could not be
   read back from a list is left out. */
size_t sg_conf_print(const struct sg_conf *conf, char *buffer, size_t size)
{
    struct sg_text text = {buffer, size, 0};
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
            sg_text_add(&text, "%s%s:%s", text.length ? "," : "", options[i].info.name, value);
    }
    return text.length;
}

char *sg_option_values(const struct sg_conf *conf, enum sg_option index, char *buffer, size_t size)
{
    const struct option *option = &options[index];
    struct sg_text text = {buffer, size, 0};
    double low = option_low_bound(conf, option);
    if (size)
        *buffer = '\0';
    if (option_takes_off(option))
        sg_text_add(&text, "0 for off, ");
    switch (option->type) {
    case TYPE_BOOL:
        sg_text_add(&text, "True or False");
        break;
    case TYPE_AUTO_MIB:
    case TYPE_MIB:
        sg_text_add(&text, "%s%.0f to %.0f (MiB)",
            option->type == TYPE_AUTO_MIB ? "auto or "
            : option_takes_off(option)    ? "or "
                                          : "",
            low, option->high);
        break;
    case TYPE_SHARE:
        sg_text_add(&text, "or a number between 0 and 1");
        break;
    case TYPE_AUTO_REAL:
    case TYPE_REAL:
        sg_text_add(&text, "%sa number from %.0f to %.0f", option->type == TYPE_AUTO_REAL ? "auto or " : "", low,
            option->high);
        break;
    case TYPE_ROUNDUP:
        sg_text_add(&text,
            "1 (which rounds nothing either, as in PyTorch), a power of 2, or a list [MiB:N,…,>:N] of them");
        break;
    case TYPE_PATH:
        sg_text_add(&text, "a path of at most %d bytes", SG_PATH_BYTES - 1);
        break;
    case TYPE_TEXT:
        sg_text_add(&text, "a text of at most %d bytes", SG_PATH_BYTES - 1);
        break;
    case TYPE_SIZE:
        sg_text_add(&text, "or a size such as 512MiB");
        break;
    case TYPE_LIMIT:
        sg_text_add(&text, "a fraction such as 0.5, or a size of 2 MiB and more such as 20GiB");
        break;
    case TYPE_OVERFLOW:
        sg_text_add(&text,
            "off, host= and a size such as host=4GiB, peer, peer= and a size, or peer and host with a comma");
        break;
    case TYPE_AUTO_SIZE:
        sg_text_add(&text, "auto or a size such as 512MiB");
        break;
    case TYPE_CHECK:
        sg_conf_check_add_values(&text);
        break;
    default:
        for (const char *const *word = option_words(option->type); *word; word++)
            sg_text_add(&text, "%s%s", text.length == 0 ? "" : word[1] ? ", " : " or ", *word);
    }
    return buffer;
}

bool sg_option_has_commas(enum sg_option option)
{
    return options[option].type == TYPE_OVERFLOW;
}

/* The caller notes the source, since not every value that is set comes from one. */
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
