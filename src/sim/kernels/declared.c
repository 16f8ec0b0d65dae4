#include "kernels/declared.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARGUMENTS_MAX = 32, NAME_BYTES = 32, LENGTH_BYTES = 96, ANNOUNCED_MAX = 16 };

struct argument {
    char name[NAME_BYTES], length[LENGTH_BYTES];
    bool reads, writes, is_signed, is_float;
    size_t bytes;
};

struct sim_kernel {
    struct sim_kernel *next;
    void (*run)(void **arguments);
    unsigned count;
    struct argument argument[ARGUMENTS_MAX];
    char name[];
};

struct name {
    struct name *next;
    char text[];
};

/* A kept launch: which kernel, then 8 bytes an argument. */
struct kept {
    const struct sim_kernel *kernel;
    uint64_t value[];
};

static struct sim_kernel *kernels;
static struct name *names;

static _Thread_local struct {
    struct sim_touch at[ANNOUNCED_MAX];
    unsigned count;
} announced;

static const struct {
    const char *word;
    struct argument is;
} kinds[] = {
    {"r", {.reads = true, .bytes = 8}},
    {"w", {.writes = true, .bytes = 8}},
    {"rw", {.reads = true, .writes = true, .bytes = 8}},
    {"p", {.bytes = 8}},
    {"i32", {.bytes = 4, .is_signed = true}},
    {"u32", {.bytes = 4}},
    {"i64", {.bytes = 8, .is_signed = true}},
    {"u64", {.bytes = 8}},
    {"f32", {.bytes = 4, .is_float = true}},
    {"f64", {.bytes = 8, .is_float = true}},
};

const struct sim_kernel *sim_kernel_find(const char *name)
{
    struct sim_kernel *kernel = kernels;
    while (kernel && strcmp(kernel->name, name) != 0)
        kernel = kernel->next;
    return kernel;
}

size_t sim_kernel_bytes(const struct sim_kernel *kernel)
{
    return kernel ? sizeof(struct kept) + kernel->count * sizeof(uint64_t) : 0;
}

const char *sim_kernel_name(const char *name)
{
    if (!sim.config.hazard)
        return NULL;
    struct name *known = names;
    while (known && strcmp(known->text, name) != 0)
        known = known->next;
    if (!known && (known = malloc(sizeof *known + strlen(name) + 1)) != NULL) {
        strcpy(known->text, name);
        known->next = names;
        names = known;
    }
    return known ? known->text : NULL;
}

/* A sum of products. Values of arguments come from `value`; with NULL only the form is looked at. */
struct expression {
    const char *at;
    const struct sim_kernel *kernel;
    const uint64_t *value;
    bool bad;
};

static uint64_t expression_argument(struct expression *e, const char *name, size_t length)
{
    for (unsigned i = 0; i < e->kernel->count; i++) {
        const struct argument *a = &e->kernel->argument[i];
        bool integer = !a->reads && !a->writes && !a->is_float;
        if (!integer || strlen(a->name) != length || strncmp(a->name, name, length) != 0)
            continue;
        if (!e->value)
            return 1;
        int64_t value = a->bytes == 4 && a->is_signed ? (int32_t)e->value[i] : (int64_t)e->value[i];
        return a->is_signed && value < 0 ? 0 : (uint64_t)value;
    }
    e->bad = true;
    return 0;
}

static void expression_skip_space(struct expression *e)
{
    while (*e->at == ' ')
        e->at++;
}

static uint64_t expression_factor(struct expression *e)
{
    expression_skip_space(e);
    const char *begin = e->at;
    uint64_t value = 0;
    if (isdigit((unsigned char)*begin)) {
        char *end;
        value = strtoull(begin, &end, 0);
        e->at = end;
    } else {
        while (isalnum((unsigned char)*e->at) || *e->at == '_')
            e->at++;
        value = expression_argument(e, begin, (size_t)(e->at - begin));
    }
    expression_skip_space(e);
    return value;
}

static uint64_t expression_product(struct expression *e)
{
    uint64_t value = expression_factor(e);
    while (*e->at == '*') {
        e->at++;
        value *= expression_factor(e);
    }
    return value;
}

static uint64_t expression_sum(struct expression *e)
{
    uint64_t value = expression_product(e);
    while (*e->at == '+') {
        e->at++;
        value += expression_product(e);
    }
    e->bad |= *e->at != '\0';
    return value;
}

bool sim_kernel_arguments(const struct sim_kernel *kernel, void **params, void **extra, void *to,
    struct sim_work *work)
{
    struct kept *kept = to;
    const unsigned char *packed = NULL;
    for (unsigned i = 0; !params && extra && extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            packed = extra[i + 1];
    }
    if (kernel->count && !params && !packed)
        return false;
    kept->kernel = kernel;
    for (size_t i = 0, offset = 0; i < kernel->count; i++) {
        size_t bytes = kernel->argument[i].bytes;
        offset = (offset + bytes - 1) / bytes * bytes;
        kept->value[i] = 0;
        memcpy(&kept->value[i], params ? params[i] : packed + offset, bytes);
        offset += bytes;
    }
    for (unsigned i = 0; i < kernel->count; i++) {
        const struct argument *a = &kernel->argument[i];
        struct expression e = {a->length, kernel, kept->value, false};
        if ((a->reads || a->writes) && kept->value[i])
            sim_work_touch_kept(work, kept->value[i], expression_sum(&e), a->writes);
    }
    return true;
}

void sim_kernel_run(void *from)
{
    struct kept *kept = from;
    void *arguments[ARGUMENTS_MAX];
    for (unsigned i = 0; i < kept->kernel->count; i++)
        arguments[i] = &kept->value[i];
    if (kept->kernel->run)
        kept->kernel->run(arguments);
}

bool sim_touches_take(struct sim_work *work)
{
    for (unsigned i = 0; i < announced.count; i++)
        sim_work_touch_kept(work, announced.at[i].address, announced.at[i].bytes, announced.at[i].write);
    bool any = announced.count > 0;
    announced.count = 0;
    return any;
}

void sim_touches_announce(uint64_t address, uint64_t bytes, int write)
{
    if (announced.count < ANNOUNCED_MAX)
        announced.at[announced.count++] = (struct sim_touch){.address = address, .bytes = bytes, .write = write != 0};
}

/* One argument, up to the comma; NULL where it is not understood. */
static const char *kernel_parse_argument(const char *text, struct argument *ret)
{
    char kind[8], name[NAME_BYTES], length[LENGTH_BYTES] = "";
    int used = 0;
    if (sscanf(text, " %7[a-z0-9] %31[A-Za-z0-9_] %n", kind, name, &used) != 2 || !used)
        return NULL;
    text += used;
    if (*text == '[') {
        const char *end = strchr(text, ']');
        if (!end || (size_t)(end - text) > sizeof length)
            return NULL;
        memcpy(length, text + 1, (size_t)(end - text - 1));
        length[end - text - 1] = '\0';
        text = end + 1;
    }
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].word, kind) != 0)
            continue;
        *ret = kinds[i].is;
        strcpy(ret->name, name);
        strcpy(ret->length, length);
        return (ret->reads || ret->writes) == (*length != '\0') ? text : NULL;
    }
    return NULL;
}

static bool kernel_parse(const char *text, struct sim_kernel *kernel)
{
    while (text && *text) {
        if (kernel->count == ARGUMENTS_MAX)
            return false;
        text = kernel_parse_argument(text, &kernel->argument[kernel->count]);
        if (!text)
            return false;
        kernel->count++;
        text += strspn(text, " ");
        if (*text && *text++ != ',')
            return false;
    }
    for (unsigned i = 0; i < kernel->count; i++) {
        struct expression e = {kernel->argument[i].length, kernel, NULL, false};
        if (*e.at && (expression_sum(&e), e.bad))
            return false;
    }
    return true;
}

/* A kernel declared anew: launches under way keep the earlier declaration, so none is ever freed. */
int sim_kernel_declare(const char *name, const char *arguments, void (*run)(void **arguments))
{
    struct sim_kernel *kernel = calloc(1, sizeof *kernel + strlen(name) + 1);
    if (!kernel || !kernel_parse(arguments, kernel)) {
        free(kernel);
        return -1;
    }
    strcpy(kernel->name, name);
    kernel->run = run;
    sim_lock();
    kernel->next = kernels;
    kernels = kernel;
    sim_unlock();
    return 0;
}
