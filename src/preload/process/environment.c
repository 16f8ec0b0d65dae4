/* The names that are kept, and a walk through environ. No function of libc is called that a program may replace. */
#include "process/environment.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "base/finding_count.h"

static const char *const kept_names[] = {"SEGALLOC_CONF", "SEGALLOC_CONF_FILE", "SEGALLOC_TRACE", "SEGALLOC_STATS",
    "SEGALLOC_RUN", "SEGALLOC_SUMMARY", SG_FINDING_COUNT_FILE, "XDG_CONFIG_HOME", "HOME"};
enum { KEPT = sizeof kept_names / sizeof *kept_names, KEPT_BYTES = 8192 };

static char kept_text[KEPT_BYTES]; /* untouched, and so without cost, where nothing is meant for us */
static char *kept_values[KEPT];

static char *environment_value(char *entry, const char *name)
{
    size_t length = strlen(name);
    return strncmp(entry, name, length) == 0 && entry[length] == '=' ? entry + length + 1 : NULL;
}

/* The value of a name in a list of "NAME=value" texts. getenv() is not called: programs replace it. */
static char *environment_find(const char *name)
{
    for (char **entry = environ; entry && *entry; entry++) {
        char *value = environment_value(*entry, name);
        if (value)
            return value;
    }
    return NULL;
}

/* Copies the values into one block. Without memory for that, the environment as it will be then has to do. */
void sg_environment_keep(void)
{
    size_t used = 0;
    for (int i = 0; i < KEPT; i++) {
        const char *value = environment_find(kept_names[i]);
        size_t length = value ? strlen(value) + 1 : 0;
        if (!value || length > KEPT_BYTES - used)
            continue;
        kept_values[i] = memcpy(kept_text + used, value, length);
        used += length;
    }
}

/* The present value first: a program may set one before it allocates. */
char *sg_environment(const char *name)
{
    char *value = environment_find(name);
    for (int i = 0; !value && i < KEPT; i++) {
        if (strcmp(kept_names[i], name) == 0)
            value = kept_values[i];
    }
    return value;
}
