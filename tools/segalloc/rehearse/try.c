/* --try: the same command with other values in one place. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rehearse/rehearse.h"
#include "tool.h"

/* Where a value stands in a command. */
enum place_kind { PLACE_NONE, PLACE_BRACES, PLACE_NEXT /* the argument */, PLACE_AFTER_EQUALS /* within it */ };

struct place {
    enum place_kind kind;
    int argument;
    size_t offset; /* of the value in it */
};

/* True if the first characters of an option are this name; '-' and '_' are the same. */
static bool is_name(const char *text, size_t length, const char *name)
{
    if (strlen(name) != length)
        return false;
    for (size_t i = 0; i < length; i++)
        if (text[i] != name[i] && !(strchr("-_", text[i]) && strchr("-_", name[i])))
            return false;
    return true;
}

/* The last option of this name counts, as it does for most programs. `name` NULL: any with "batch" in its name. */
static struct place try_find_place(char **command, const char *name)
{
    struct place place = {.kind = PLACE_NONE};
    for (int i = 0; command[i]; i++)
        if (name && strstr(command[i], "{}"))
            return (struct place){PLACE_BRACES, i, 0};
    for (int i = 1; command[i]; i++) {
        size_t dashes = strspn(command[i], "-"), length = strcspn(command[i] + dashes, "=");
        const char *option = command[i] + dashes;
        bool equals = option[length] == '=';
        char word[64];
        snprintf(word, sizeof word, "%.*s", (int)length, option);
        if ((!dashes && !equals) || !(name ? is_name(option, length, name) : strstr(word, "batch") != NULL))
            continue;
        if (equals)
            place = (struct place){PLACE_AFTER_EQUALS, i, dashes + length + 1};
        else if (command[i + 1])
            place = (struct place){PLACE_NEXT, i + 1, 0};
    }
    return place;
}

static char *text_copy(const char *text)
{
    char *copy = strdup(text);
    if (!copy)
        abort(); /* a few bytes */
    return copy;
}

/* A whole number that is all of the text. */
static bool text_is_whole(const char *text, unsigned long *ret)
{
    enum { MOST = 1 << 20 };
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (!isdigit((unsigned char)*text) || *end || value > MOST)
        return false;
    *ret = value;
    return true;
}

/* "LOW..HIGH". */
static bool read_range(char *text, struct sg_rehearse_try *ret)
{
    char *dots = strstr(text, "..");
    if (!dots)
        return false;
    *dots = '\0';
    ret->range = text_is_whole(text, &ret->low) && text_is_whole(dots + 2, &ret->high) && ret->low <= ret->high;
    *dots = '.';
    return ret->range;
}

bool sg_rehearse_try_next(struct sg_rehearse_try *values, bool last_fits)
{
    char text[32];
    unsigned long last;
    if (values->count && text_is_whole(values->value[values->count - 1], &last)) {
        if (last_fits)
            values->low = last + 1;
        else
            values->high = last - 1;
    }
    if (values->low > values->high || values->high + 1 == 0 || values->count == SG_REHEARSE_CARDS)
        return false;
    snprintf(text, sizeof text, "%lu", values->low + (values->high - values->low) / 2);
    values->value[values->count++] = text_copy(text);
    return true;
}

bool sg_rehearse_try_between(const struct sg_rehearse_try *values, char **command, unsigned fits, char *ret, size_t size)
{
    struct place place = try_find_place(command, values->name);
    unsigned long found, larger;
    const char *above = fits > 0                        ? values->value[fits - 1]
                        : place.kind == PLACE_BRACES ? ""
                                                     : command[place.argument] + place.offset;
    if (values->range || !text_is_whole(values->value[fits], &found) || !text_is_whole(above, &larger) ||
        larger <= found + 1)
        return false;
    snprintf(ret, size, "%s=%lu..%lu", values->name, found + 1, larger - 1);
    return true;
}

void sg_rehearse_try_end(struct sg_rehearse_try *values)
{
    for (unsigned i = 0; values->range && i < values->count; i++)
        free(values->value[i]);
    free(values->text);
}

int sg_rehearse_try_read(const char *verb, const char *text, char **command, struct sg_rehearse_try *ret)
{
    size_t length = strcspn(text, "="), dashes = strspn(text, "-");
    *ret = (struct sg_rehearse_try){.count = 0};
    if (text[length] != '=' || length == dashes || length - dashes >= sizeof ret->name || !text[length + 1])
        return sg_tool_usage(verb, "--try takes NAME=VALUE,… such as batch=8,4,2, or a range such as batch=1..8, not \"%s\"", text);
    snprintf(ret->name, sizeof ret->name, "%.*s", (int)(length - dashes), text + dashes);
    char *rest = ret->text = text_copy(text + length + 1);
    if (read_range(ret->text, ret))
        rest = NULL;
    else if (strstr(ret->text, "..") && strspn(ret->text, "0123456789.") == strlen(ret->text))
        return sg_tool_usage(verb, "--try takes a range of whole numbers up to 1048576, such as batch=1..8, not \"%s\"", text);
    for (char *value; (value = strsep(&rest, ",")) != NULL;) {
        if (ret->count == SG_REHEARSE_CARDS)
            return sg_tool_usage(verb, "--try takes at most %d values", SG_REHEARSE_CARDS);
        ret->value[ret->count++] = value;
    }
    if (try_find_place(command, ret->name).kind == PLACE_NONE)
        return sg_tool_usage(verb, "--try %s: CMD has neither {} nor an option --%s with a value; write --%s {}",
            ret->name, ret->name, ret->name);
    return 0;
}

/* The text with each `{}` replaced. */
static char *text_fill_in(const char *text, const char *value)
{
    size_t size = strlen(text) + 1;
    for (const char *at = text; (at = strstr(at, "{}")) != NULL; at += 2)
        size += strlen(value);
    char *made = malloc(size), *to = made;
    if (!made)
        abort(); /* a few bytes */
    for (const char *next; (next = strstr(text, "{}")) != NULL; text = next + 2)
        to += sprintf(to, "%.*s%s", (int)(next - text), text, value);
    strcpy(to, text);
    return made;
}

char **sg_rehearse_try_command(const struct sg_rehearse_try *values, char **command, const char *value)
{
    struct place place = try_find_place(command, values->name);
    int count = 0;
    while (command[count])
        count++;
    char **made = calloc((size_t)count + 1, sizeof *made);
    if (!made)
        abort(); /* a few bytes */
    for (int i = 0; i < count; i++) {
        made[i] = place.kind == PLACE_BRACES ? text_fill_in(command[i], value) : text_copy(command[i]);
        if (place.kind != PLACE_BRACES && i == place.argument) {
            size_t size = place.offset + strlen(value) + 1;
            made[i] = realloc(made[i], size + strlen(command[i]));
            if (!made[i])
                abort();
            strcpy(made[i] + place.offset, value);
        }
    }
    return made;
}

void sg_rehearse_try_free(char **command)
{
    for (char **argument = command; *argument; argument++)
        free(*argument);
    free(command);
}

unsigned long sg_rehearse_try_divisor(const struct sg_rehearse_try *values, char **command, const char *value)
{
    struct place place = try_find_place(command, values->name);
    if (!strstr(values->name, "batch") || (place.kind != PLACE_NEXT && place.kind != PLACE_AFTER_EQUALS))
        return 0;
    char *end, *own_end;
    unsigned long own = strtoul(command[place.argument] + place.offset, &own_end, 10), now = strtoul(value, &end, 10);
    return *end || *own_end || !now || own % now ? 0 : own / now;
}

void sg_rehearse_try_format(const struct sg_rehearse_try *values, char **command, const char *value, char *ret,
                            size_t size)
{
    struct place place = try_find_place(command, values->name);
    if (place.kind == PLACE_NEXT)
        snprintf(ret, size, "%s %s", command[place.argument - 1], value);
    else if (place.kind == PLACE_AFTER_EQUALS)
        snprintf(ret, size, "%.*s%s", (int)place.offset, command[place.argument], value);
    else
        snprintf(ret, size, "%s %s", values->name, value);
}

bool sg_rehearse_try_suggest(char **command, char *ret, size_t size)
{
    struct place place = try_find_place(command, NULL);
    if (place.kind == PLACE_NONE)
        return false;
    const char *at = command[place.argument] + place.offset;
    char *end;
    unsigned long value = strtoul(at, &end, 10);
    if (!isdigit((unsigned char)*at) || *end || value < 2 || value > 1 << 20)
        return false;
    const char *option = command[place.kind == PLACE_NEXT ? place.argument - 1 : place.argument];
    option += strspn(option, "-");
    int length = snprintf(ret, size, "%.*s=1..%lu", (int)strcspn(option, "="), option, value - 1);
    return length > 0 && (size_t)length < size;
}
