/* Reading configurations: parts of a text, files, the order of sources. The meaning of a value is conf.c's.

   A text is read twice. The first pass takes large_segment_size_mb alone, since two other options may not be smaller than
   it, wherever they stand in the text. The second pass takes all others in their order. */
#include "conf_read.h"

#include "base/ascii.h"
#include "base/size.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SHOWN_BYTES = 80, SHOWN_PLACE = 256, FILE_BYTES = 16384 };

/* Options of PyTorch without a meaning here. */
static const char *const torch_only[] = {
#define TORCH_KEY(name, values) #name,
#include "torch_keys.def"
};

/* Where a text is read from, and where its problems go. */
struct reader {
    struct sg_conf *conf;
    enum sg_conf_source source;
    const char *place; /* how messages name it */
    sg_conf_warn_fn *warn;
    void *user;
    unsigned bad;
    bool refuses; /* nothing is done with the settings when a part is bad: none is ignored, and none stays */
};

/* A copy of a text from outside that is fit for a message: printable ASCII, and at most 80 bytes with "..." behind. */
struct shown {
    char text[SHOWN_BYTES + 4];
};

static struct shown shown_copy(const char *from, size_t length)
{
    struct shown shown;
    size_t i;
    for (i = 0; i < length && i < SHOWN_BYTES; i++)
        shown.text[i] = from[i] >= ' ' && from[i] < 0x7f ? from[i] : '?';
    strcpy(shown.text + i, i < length ? "..." : "");
    return shown;
}

/* Counts a bad part and gives its line to the caller's function, with the place before it. */
__attribute__((format(printf, 2, 3))) static void reader_bad_part(struct reader *reader, const char *format, ...)
{
    reader->bad++;
    if (!reader->warn)
        return;
    char line[768];
    int length = reader->place ? snprintf(line, sizeof line, "%.*s: ", SHOWN_PLACE, reader->place) : 0;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + length, sizeof line - (size_t)length, format, arguments);
    va_end(arguments);
    reader->warn(reader->user, line);
}

/* One "key:value" of a text, without the white space around either. */
struct part {
    const char *key, *value; /* not terminated; value NULL where there's no colon */
    size_t key_length, value_length;
};

/* Moves *start past white space, and returns the length up to the last byte that is none. */
static size_t part_trim(const char **start, const char *end)
{
    while (*start < end && sg_ascii_space(**start))
        ++*start;
    while (end > *start && sg_ascii_space(end[-1]))
        end--;
    return (size_t)(end - *start);
}

static enum sg_option part_find_option(const struct part *part);

/* The end of the words with commas between them that go on with a part's value: they have no colon, so they are
   no parts. For example, overflow:peer,host=4GiB,sites:True goes on with host=4GiB. `text` is at the end of the
   first word. */
static const char *part_go_on(const struct part *part, const char *text)
{
    enum sg_option option = part_find_option(part);
    while (option != SG_OPTION_COUNT && sg_option_has_commas(option) && *text == ',') {
        size_t length = strcspn(text + 1, ",:\n#");
        if (!length || text[1 + length] == ':')
            break;
        text += 1 + length;
    }
    return text;
}

/* Takes the next part that isn't empty off *at. False at the end. A value that begins with [ goes to its ], so commas in it
   part nothing. With `comments`, # begins one at the start of a part, or behind white space in a value. */
static bool part_next(const char **at, bool comments, struct part *ret)
{
    const char *text = *at;
    for (;;) {
        while (*text == ',' || sg_ascii_space(*text))
            text++;
        if (!comments || *text != '#')
            break;
        text += strcspn(text, "\n");
    }
    if (!*text)
        return false;
    *ret = (struct part){.key = text};
    while (*text && *text != ',' && *text != '\n' && *text != ':')
        text++;
    ret->key_length = part_trim(&ret->key, text);
    if (*text == ':') {
        ret->value = ++text;
        while (*text == ' ' || *text == '\t')
            text++;
        if (*text == '[')
            text += strcspn(text, "]");
        while (*text && *text != ',' && *text != '\n' && !(comments && *text == '#' && sg_ascii_space(text[-1])))
            text++;
        text = part_go_on(ret, text);
        ret->value_length = part_trim(&ret->value, text);
    }
    *at = text;
    return true;
}

/* The option that a part names; SG_OPTION_COUNT: there is none of this name. */
static enum sg_option part_find_option(const struct part *part)
{
    for (unsigned i = 0; i < SG_OPTION_COUNT; i++) {
        const char *name = sg_option_info(i)->name;
        if (strlen(name) == part->key_length && memcmp(name, part->key, part->key_length) == 0)
            return i;
    }
    return SG_OPTION_COUNT;
}

static bool source_is_pytorch(enum sg_conf_source source)
{
    return source == SG_CONF_PYTORCH || source == SG_CONF_PYTORCH_CUDA;
}

/* True if the key is an option and a value with an equals sign between them, which a message says then. */
static bool reader_has_equals(struct reader *reader, const char *key)
{
    const char *equals = strchr(key, '=');
    for (unsigned i = 0; equals && i < SG_OPTION_COUNT; i++) {
        const char *name = sg_option_info(i)->name;
        if (strlen(name) != (size_t)(equals - key) || strncmp(name, key, strlen(name)) != 0)
            continue;
        reader_bad_part(reader, "\"%s\": between an option and its value goes a colon, %s:%s", key, name, equals + 1);
        return true;
    }
    return false;
}

/* Says what is wrong with a key that no option has. It may have an equals sign, or be an option of PyTorch's without
   effect here. Else it is taken for a typing error, and the message gives the nearest name. Unknown keys in PyTorch's variables are PyTorch's to judge. */
static void reader_say_unknown_key(struct reader *reader, const struct part *part)
{
    struct shown key = shown_copy(part->key, part->key_length);
    if (reader_has_equals(reader, key.text) || source_is_pytorch(reader->source))
        return;
    for (unsigned i = 0; i < sizeof torch_only / sizeof *torch_only; i++) {
        if (strcmp(torch_only[i], key.text) == 0) {
            reader_bad_part(reader, "%s is an option of PyTorch's that has no effect here", key.text);
            return;
        }
    }
    const char *names[SG_OPTION_COUNT];
    for (unsigned i = 0; i < SG_OPTION_COUNT; i++)
        names[i] = sg_option_info(i)->name;
    const char *nearest = sg_ascii_nearest(key.text, names, SG_OPTION_COUNT);
    if (nearest)
        reader_bad_part(reader, "there is no option \"%s\"; did you mean %s?%s", key.text, nearest,
            reader->refuses ? "" : " It is ignored");
    else
        reader_bad_part(reader, "there is no option \"%s\"; %s", key.text,
            reader->refuses ? "segalloc conf lists them all" : "it is ignored");
}

/* Sets an option, unless it comes from PyTorch's variable and a better source has set it. A bad value leaves the option as
   it was, and the message names the values that it takes and the one in force. */
static void reader_apply_value(struct reader *reader, enum sg_option option, const char *value, size_t length)
{
    struct sg_conf *conf = reader->conf;
    const struct sg_option_info *info = sg_option_info(option);
    unsigned char *source = &conf->source[option];
    /* PyTorch's variable is read last, and may set only what no better source has set. */
    bool taken = *source != SG_CONF_DEFAULT && !source_is_pytorch(*source);
    if (source_is_pytorch(reader->source) && (!info->torch || taken))
        return;
    /* A value of a text has no NUL behind it. One that is too long for a path is too long for anything. */
    char copy[SG_PATH_BYTES];
    bool fits = length < sizeof copy;
    if (fits) {
        memcpy(copy, value, length);
        copy[length] = '\0';
    }
    if (fits && sg_conf_set(conf, option, copy)) {
        *source = (unsigned char)reader->source;
        return;
    }
    char accepted[160], stays[SHOWN_BYTES];
    sg_option_values(conf, option, accepted, sizeof accepted);
    if (reader->refuses)
        reader_bad_part(reader, "%s:%s: must be %s", info->name, shown_copy(value, length).text, accepted);
    else
        reader_bad_part(reader, "%s:%s: must be %s; %s stays in force", info->name, shown_copy(value, length).text, accepted,
                 sg_conf_format(conf, option, stays, sizeof stays));
}

/* Keeps PyTorch's two sizes at or above the segment's, which may just have grown. */
static void reader_settle_sizes(struct reader *reader)
{
    struct sg_conf *conf = reader->conf;
    uint64_t segment = conf->large_segment_size;
    if (conf->source[SG_OPTION_max_non_split_rounding_mb] == SG_CONF_DEFAULT || conf->max_non_split_rounding < segment)
        conf->max_non_split_rounding = segment;
    if (conf->max_split_size && conf->max_split_size < segment) {
        reader_bad_part(reader, "max_split_size_mb:%" PRIu64 " is less than large_segment_size_mb:%" PRIu64 "%s",
            conf->max_split_size / SG_MIB, segment / SG_MIB,
            reader->refuses ? ": it must be that or more, or 0 for off" : ", which takes its place");
        conf->max_split_size = segment;
    }
}

/* Applies all parts of a text. Returns the number of bad parts that the reader has met so far. */
static unsigned reader_apply_text(struct reader *reader, const char *text)
{
    static const enum sg_option segment = SG_OPTION_large_segment_size_mb;
    bool comments = reader->source == SG_CONF_SYSTEM || reader->source == SG_CONF_CARD || reader->source == SG_CONF_FILE;
    struct part part;
    for (const char *at = text; part_next(&at, comments, &part);) {
        if (part.value && part_find_option(&part) == segment)
            reader_apply_value(reader, segment, part.value, part.value_length);
    }
    for (const char *at = text; part_next(&at, comments, &part);) {
        enum sg_option option = part_find_option(&part);
        if (option == SG_OPTION_COUNT)
            reader_say_unknown_key(reader, &part);
        else if (part.value && option != segment)
            reader_apply_value(reader, option, part.value, part.value_length);
        else if (!part.value && !source_is_pytorch(reader->source))
            reader_bad_part(reader, "%s has no value; write %s:VALUE", sg_option_info(option)->name,
                     sg_option_info(option)->name);
    }
    reader_settle_sizes(reader);
    return reader->bad;
}

unsigned sg_conf_apply(struct sg_conf *conf, enum sg_conf_source source, const char *text, sg_conf_warn_fn *warn,
                       void *user)
{
    struct reader reader = {.conf = conf, .source = source, .place = sg_conf_source_name(source), .warn = warn,
        .user = user};
    return text ? reader_apply_text(&reader, text) : 0;
}

unsigned sg_conf_check(struct sg_conf *conf, const char *place, const char *text, sg_conf_warn_fn *warn, void *user)
{
    struct reader reader =
        {.conf = conf, .source = SG_CONF_ARGUMENT, .place = place, .warn = warn, .user = user, .refuses = true};
    return text ? reader_apply_text(&reader, text) : 0;
}

/* Applies the file at `path`. Only one that SEGALLOC_CONF_FILE names may not be missing. A file is read whole, and one of
   16 KiB and more, or with a NUL in it, is refused as a whole. */
static unsigned reader_apply_file(struct reader *reader, const char *path)
{
    char text[FILE_BYTES];
    size_t length = 0;
    reader->place = path;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        if (reader->source == SG_CONF_FILE)
            reader_bad_part(reader, "the file that SEGALLOC_CONF_FILE names can't be opened; it is ignored");
        return reader->bad;
    }
    /* The buffer is on the stack: 16 KiB, and no heap. One byte must be left, or the file is too long. */
    ssize_t got;
    do {
        got = read(file, text + length, sizeof text - length);
        length += got > 0 ? (size_t)got : 0;
    } while (got > 0 && length < sizeof text);
    close(file);
    if (got < 0 || length == sizeof text || memchr(text, '\0', length)) {
        reader_bad_part(reader, "can't be read as text of less than %d bytes; it is ignored", FILE_BYTES);
        return reader->bad;
    }
    text[length] = '\0';
    return reader_apply_text(reader, text);
}

unsigned sg_conf_apply_file(struct sg_conf *conf, enum sg_conf_source source, const char *path, sg_conf_warn_fn *warn,
    void *user)
{
    struct reader reader = {.conf = conf, .source = source, .warn = warn, .user = user};
    return reader_apply_file(&reader, path);
}

/* Sets a path from a variable of its own: a whole value, in which commas mean nothing. */
static unsigned reader_apply_path(struct reader *reader, enum sg_option option, const char *path)
{
    if (path && *path)
        reader_apply_value(reader, option, path, strlen(path));
    return reader->bad;
}

unsigned sg_conf_load(struct sg_conf *conf, const struct sg_conf_inputs *inputs, sg_conf_warn_fn *warn, void *user)
{
    sg_conf_init(conf);
    struct reader reader = {.conf = conf, .source = SG_CONF_SYSTEM, .warn = warn, .user = user};
    if (inputs->system_file)
        reader_apply_file(&reader, inputs->system_file);
    reader.source = SG_CONF_FILE;
    if (inputs->conf_file && *inputs->conf_file)
        reader_apply_file(&reader, inputs->conf_file);
    /* The two paths have variables of their own, which count as the environment: a later one wins. */
    unsigned bad = reader.bad + sg_conf_apply(conf, SG_CONF_ENVIRONMENT, inputs->environment, warn, user);
    reader = (struct reader){.conf = conf, .source = SG_CONF_ENVIRONMENT, .place = "SEGALLOC_TRACE", .warn = warn,
        .user = user};
    bad += reader_apply_path(&reader, SG_OPTION_trace, inputs->trace);
    reader = (struct reader){.conf = conf, .source = SG_CONF_ENVIRONMENT, .place = "SEGALLOC_STATS", .warn = warn,
        .user = user};
    bad += reader_apply_path(&reader, SG_OPTION_stats, inputs->stats);
    /* PyTorch reads the first of the two that is set, though it be empty, and never both. */
    const char *pytorch = inputs->pytorch_cuda ? inputs->pytorch_cuda : inputs->pytorch;
    enum sg_conf_source source = inputs->pytorch_cuda ? SG_CONF_PYTORCH_CUDA : SG_CONF_PYTORCH;
    reader = (struct reader){.conf = conf, .source = source, .warn = warn, .user = user, .place = sg_conf_source_name(source)};
    return bad + (pytorch ? reader_apply_text(&reader, pytorch) : 0);
}
