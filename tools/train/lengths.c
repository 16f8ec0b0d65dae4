#include "lengths.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct length_model {
    const char *name;
    double a, b; /* what the numbers after the name are without saying */
    double (*next)(struct lengths *lengths);
};

uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static double lengths_uniform(struct lengths *l)
{
    return (double)(random_next(&l->state) >> 11) * 0x1p-53;
}

static double next_lognormal(struct lengths *l)
{
    double u = 1 - lengths_uniform(l), v = lengths_uniform(l);
    return l->a * exp(l->b * sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

static double next_uniform(struct lengths *l)
{
    return 1 + lengths_uniform(l) * l->longest;
}

static double next_fixed(struct lengths *l)
{
    return l->a;
}

/* Short conversations, and now and then a long document. */
static double next_bimodal(struct lengths *l)
{
    double middle = lengths_uniform(l) < l->b ? l->longest * 0.9 : l->a;
    double u = 1 - lengths_uniform(l), v = lengths_uniform(l);
    return middle * exp(0.15 * sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

/* Answers get longer as a policy learns to use what it is allowed. */
static double next_growing(struct lengths *l)
{
    double middle = l->longest - (l->longest - l->a) * exp(-(double)l->next++ / 200);
    double u = 1 - lengths_uniform(l), v = lengths_uniform(l);
    return middle * exp(0.25 * sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

static double next_listed(struct lengths *l)
{
    return l->list[l->next++ % l->count];
}

static const struct length_model models[] = {
    {"lognormal", 0, 0.7, next_lognormal},
    {"bimodal", 0, 0.2, next_bimodal},
    {"growing", 0, 0, next_growing},
    {"uniform", 0, 0, next_uniform},
    {"fixed", 0, 0, next_fixed},
    {"file", 0, 0, next_listed},
};

static int read_list(struct lengths *l, const char *path, char *error, size_t error_size)
{
    FILE *file = fopen(path, "r");
    if (!file) {
        snprintf(error, error_size, "cannot read lengths from %s: %s", path, strerror(errno));
        return -1;
    }
    int value;
    size_t room = 0;
    while (fscanf(file, "%d", &value) == 1) {
        if (l->count == room) {
            room = room ? 2 * room : 64;
            l->list = realloc(l->list, room * sizeof *l->list);
            if (!l->list)
                abort();
        }
        l->list[l->count++] = value;
    }
    int whole = feof(file);
    fclose(file);
    if (whole && l->count)
        return 0;
    snprintf(error, error_size, "%s: whole numbers wanted, %zu found before something else", path, l->count);
    free(l->list);
    return -1;
}

int lengths_open(struct lengths *ret_lengths, const char *text, int longest, uint64_t seed, char *error,
                 size_t error_size)
{
    struct lengths l = {.state = seed * UINT64_C(0xd1342543de82ef95) + 1, .longest = longest};
    size_t name_length = strcspn(text, ":");
    const char *rest = text[name_length] ? text + name_length + 1 : NULL;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (strlen(models[i].name) == name_length && !strncmp(models[i].name, text, name_length))
            l.model = &models[i];
    if (!l.model) {
        snprintf(error, error_size, "unknown lengths '%s': lognormal[:MEDIAN[:SIGMA]], "
                 "bimodal[:SHORT[:SHARE]], growing[:FROM], uniform, fixed[:N] or file:PATH", text);
        return -1;
    }
    if (l.model->next == next_listed) {
        if (read_list(&l, rest ? rest : "", error, error_size))
            return -1;
        *ret_lengths = l;
        return 0;
    }
    l.a = l.model->next == next_fixed ? longest : longest * (l.model->next == next_bimodal ? 0.15 : 0.48);
    l.b = l.model->b;
    if (rest) {
        char *end;
        l.a = strtod(rest, &end);
        if (*end == ':')
            l.b = strtod(end + 1, &end);
        if (*end || !(l.a >= 1) || !(l.b >= 0)) {
            snprintf(error, error_size, "bad numbers in lengths '%s'", text);
            return -1;
        }
    }
    *ret_lengths = l;
    return 0;
}

void lengths_close(struct lengths *lengths)
{
    free(lengths->list);
}

bool lengths_drawn(const struct lengths *lengths)
{
    return lengths->model->next != next_fixed && lengths->model->next != next_listed;
}

void lengths_bring(struct lengths *lengths, size_t among, size_t at)
{
    if (lengths->model->next != next_listed)
        return;
    int *list = malloc((at + 1) * sizeof *list);
    if (!list)
        abort();
    for (size_t i = 0; i <= at; i++)
        list[i] = lengths->list[i % lengths->count];
    for (size_t i = 0; i < lengths->count && i < among; i++)
        if (lengths->list[i] > list[at])
            list[at] = lengths->list[i];
    free(lengths->list);
    lengths->list = list;
    lengths->count = at + 1;
}

int lengths_next(struct lengths *lengths)
{
    double length = lengths->model->next(lengths);
    if (length > lengths->longest)
        length = lengths->longest;
    int rounded = ((int)length + LENGTH_STEP - 1) / LENGTH_STEP * LENGTH_STEP;
    if (rounded > lengths->longest)
        rounded = lengths->longest / LENGTH_STEP * LENGTH_STEP;
    return rounded < LENGTH_LEAST ? LENGTH_LEAST : rounded;
}
