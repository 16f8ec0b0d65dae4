#include "allocator_config.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ascii.h"
#include "config/roundup.h"
#include "base/size.h"
#include "caching_constants.h"

enum { TOKEN_TEXT = 64 };
enum { MIB_SHIFT = 20, REGISTER_THREADS_MOST = 128 };

/* A text that is read, token by token. */
struct reader {
    const char *at;
    char token[TOKEN_TEXT]; /* "" at the end */
    char *error;
    struct sg_torch_conf *conf;
};

/* The next of `,` `:` `[` `]` or a word without its white space. A longer word than fits is no key and no number. */
static void reader_next(struct reader *in)
{
    size_t length = 0;
    for (; *in->at; in->at++) {
        if (isspace((unsigned char)*in->at))
            continue;
        /* A mark ends a word, and is a token by itself. */
        bool mark = strchr(",:[]", *in->at);
        if (mark && length)
            break;
        if (length + 1 < TOKEN_TEXT)
            in->token[length++] = *in->at;
        if (mark) {
            in->at++;
            break;
        }
    }
    in->token[length] = '\0';
}

/* True if the present token is this mark or word. */
static bool reader_at(const struct reader *in, const char *mark)
{
    return strcmp(in->token, mark) == 0;
}

/* Reads a number from the present token, as strtoull() does: PyTorch calls std::stoull, which takes what follows too. Like
   all readers below: 0, or -EINVAL with a line in `error`. */
static int reader_number(struct reader *in, const char *key, uint64_t *ret)
{
    char *end;
    errno = 0;
    uint64_t value = strtoull(in->token, &end, 10);
    if (end == in->token || errno == ERANGE) {
        snprintf(in->error, SG_TORCH_ERROR_TEXT, "%s:%s: expected a number%s", key, in->token,
                 end == in->token ? "" : " of 64 bits");
        return -EINVAL;
    }
    *ret = value;
    return 0;
}

/* A number of MiB, as bytes. `why` ends the bound in the message. Numbers beyond 64 bits of bytes are cut to the largest. */
static int reader_mib(struct reader *in, const char *key, uint64_t low, const char *why, uint64_t *ret)
{
    uint64_t mib;
    int error = reader_number(in, key, &mib);
    if (error)
        return error;
    if (mib < low) {
        snprintf(in->error, SG_TORCH_ERROR_TEXT, "%s:%s is too small, it must be at least %llu (MiB%s)", key, in->token,
                 (unsigned long long)low, why);
        return -EINVAL;
    }
    /* PyTorch multiplies without a check; nothing is gained by repeating what then comes out. */
    if (mib > UINT64_MAX >> MIB_SHIFT)
        mib = UINT64_MAX >> MIB_SHIFT;
    *ret = mib << MIB_SHIFT;
    return 0;
}

/* A fraction; `open`: neither 0 nor 1. */
static int reader_real(struct reader *in, const char *key, bool open, double *ret)
{
    /* PyTorch reads by std::stod(), which is this; tools set no locale, so the point is a point. */
    char *end;
    double value = strtod(in->token, &end);
    bool inside = open ? value > 0 && value < 1 : value >= 0 && value <= 1;
    if (end == in->token || !inside) {
        snprintf(in->error, SG_TORCH_ERROR_TEXT, "%s:%s is invalid, it must be a fraction %s", key, in->token,
                 open ? "above 0 and below 1" : "from 0 to 1");
        return -EINVAL;
    }
    *ret = value;
    return 0;
}

static int reader_bool(struct reader *in, const char *key, bool *ret)
{
    if (!reader_at(in, "True") && !reader_at(in, "False")) {
        snprintf(in->error, SG_TORCH_ERROR_TEXT, "%s:%s is invalid, it must be True or False", key, in->token);
        return -EINVAL;
    }
    *ret = reader_at(in, "True");
    return 0;
}

static bool is_power_of_two(uint64_t value)
{
    return value && !(value & (value - 1));
}

/* A number of steps between powers of two; `zero`: or none. */
static int reader_divisions(struct reader *in, const char *key, bool zero, uint64_t *ret)
{
    uint64_t divisions;
    int error = reader_number(in, key, &divisions);
    if (error)
        return error;
    if (!is_power_of_two(divisions) && !(zero && divisions == 0)) {
        snprintf(in->error, SG_TORCH_ERROR_TEXT, "%s: %s divisions are invalid, they must be a power of two%s", key,
                 in->token, zero ? ", or 0 for none" : "");
        return -EINVAL;
    }
    *ret = divisions;
    return 0;
}

/* Says that `wanted` was expected instead of the token. */
static int reader_unexpected(struct reader *in, const char *key, const char *wanted)
{
    if (*in->token)
        snprintf(in->error, SG_TORCH_ERROR_TEXT, "%s: expected %s but got '%s'", key, wanted, in->token);
    else
        snprintf(in->error, SG_TORCH_ERROR_TEXT, "%s: expected %s at the end", key, wanted);
    return -EINVAL;
}

static int reader_expect_colon(struct reader *in, const char *key)
{
    reader_next(in);
    return reader_at(in, ":") ? 0 : reader_unexpected(in, key, "':'");
}

/* [MiB:divisions,…,>:divisions]: the first boundary also fills the intervals below it, '>' those above the last one,
   and those between two boundaries are left alone. */
static int read_roundup_list(struct reader *in, const char *key)
{
    uint64_t *divisions = in->conf->roundup_divisions;
    size_t last = 0;
    bool first = true;
    for (reader_next(in); !reader_at(in, "]"); reader_next(in)) {
        bool above = reader_at(in, ">");
        uint64_t mib = 0, value;
        if (!above && reader_number(in, key, &mib))
            return -EINVAL;
        if (!above && !is_power_of_two(mib)) {
            snprintf(in->error, SG_TORCH_ERROR_TEXT, "%s: the boundary %s (MiB) must be a power of two", key,
                     in->token);
            return -EINVAL;
        }
        if (reader_expect_colon(in, key))
            return -EINVAL;
        reader_next(in);
        if (reader_divisions(in, key, true, &value))
            return -EINVAL;
        if (above) {
            for (size_t i = last + 1; i < SG_TORCH_INTERVALS; i++)
                divisions[i] = value;
        } else {
            size_t index = (size_t)(63 - __builtin_clzll(mib));
            last = index < SG_TORCH_INTERVALS ? index : SG_TORCH_INTERVALS - 1;
            /* Boundaries above the last interval all mean that one. */
            for (size_t i = first ? 0 : last; i <= last; i++)
                divisions[i] = value;
            first = false;
        }
        reader_next(in);
        if (reader_at(in, "]"))
            break;
        if (!reader_at(in, ","))
            return reader_unexpected(in, key, "',' or ']'");
    }
    return 0;
}

/* One number for all intervals, or a list. 0 is allowed in a list only, as in PyTorch. */
static int read_roundup(struct reader *in, const char *key)
{
    if (reader_at(in, "["))
        return read_roundup_list(in, key);
    uint64_t value;
    int error = reader_divisions(in, key, false, &value);
    if (error)
        return error;
    for (size_t i = 0; i < SG_TORCH_INTERVALS; i++)
        in->conf->roundup_divisions[i] = value;
    return 0;
}

/* More than 10 MiB: requests below that have to fit such a segment. */
static int read_large_segment(struct reader *in, const char *key)
{
    return reader_mib(in, key, (SG_TORCH_MIN_LARGE >> MIB_SHIFT) + 1, "", &in->conf->large_segment_size);
}

static int read_max_split(struct reader *in, const char *key)
{
    return reader_mib(in, key, in->conf->large_segment_size >> MIB_SHIFT, ", as large_segment_size_mb",
                    &in->conf->max_split_size);
}

static int read_non_split_rounding(struct reader *in, const char *key)
{
    return reader_mib(in, key, in->conf->large_segment_size >> MIB_SHIFT, ", as large_segment_size_mb",
                    &in->conf->max_non_split_rounding);
}

static int read_gc(struct reader *in, const char *key)
{
    return reader_real(in, key, true, &in->conf->garbage_collection_threshold);
}

static int read_fraction(struct reader *in, const char *key)
{
    return reader_real(in, key, false, &in->conf->memory_fraction);
}

static int read_expandable(struct reader *in, const char *key)
{
    return reader_bool(in, key, &in->conf->expandable_segments);
}

/* Only the native allocator has rules to follow: cudaMallocAsync's are the driver's. */
static int read_backend(struct reader *in, const char *key)
{
    if (reader_at(in, "native"))
        return 0;
    snprintf(in->error, SG_TORCH_ERROR_TEXT, "%s:%s has no rules of its own to follow, only native has", key,
             in->token);
    return -EINVAL;
}

/* Any value, or a list in brackets. */
static int reader_skip_value(struct reader *in, const char *key)
{
    if (!reader_at(in, "["))
        return 0;
    while (!reader_at(in, "]")) {
        reader_next(in);
        if (!*in->token) {
            snprintf(in->error, SG_TORCH_ERROR_TEXT, "%s: the list has no ']'", key);
            return -EINVAL;
        }
    }
    return 0;
}

/* Values of keys without a meaning here (torch_keys.def), each checked as PyTorch checks it. */
static int check_ANY(struct reader *in, const char *key)
{
    return reader_skip_value(in, key);
}

static int check_SWITCH(struct reader *in, const char *key)
{
    bool on;
    return reader_bool(in, key, &on);
}

static int check_COUNT(struct reader *in, const char *key)
{
    uint64_t count;
    return reader_number(in, key, &count);
}

static int check_SIZE(struct reader *in, const char *key)
{
    uint64_t bytes;
    return reader_mib(in, key, 1, "", &bytes);
}

static int check_THREADS(struct reader *in, const char *key)
{
    uint64_t threads;
    int error = reader_number(in, key, &threads);
    if (!error && is_power_of_two(threads) && threads <= REGISTER_THREADS_MOST)
        return 0;
    if (!error)
        snprintf(in->error, SG_TORCH_ERROR_TEXT, "%s:%s is invalid, it must be a power of two up to %d", key, in->token,
                 REGISTER_THREADS_MOST);
    return -EINVAL;
}

/* The keys, each with the function that reads its value. Those of torch_keys.def are only checked. */
static const struct key {
    const char *name;
    int (*read)(struct reader *in, const char *key);
} keys[] = {
    {"large_segment_size_mb", read_large_segment}, /* the first, which bounds others: see below */
    {"max_split_size_mb", read_max_split},
    {"max_non_split_rounding_mb", read_non_split_rounding},
    {"roundup_power2_divisions", read_roundup},
    {"garbage_collection_threshold", read_gc},
    {"per_process_memory_fraction", read_fraction},
    {"expandable_segments", read_expandable},
    {"backend", read_backend},
#define TORCH_KEY(name, values) {#name, check_##values}, /* accepted, and checked as PyTorch does */
#include "config/torch_keys.def"
};
enum { KEYS = sizeof keys / sizeof *keys };

static const struct key *find_key(const char *name)
{
    for (size_t i = 0; i < KEYS; i++) {
        if (strcmp(keys[i].name, name) == 0)
            return &keys[i];
    }
    return NULL;
}

/* The error of a key that PyTorch does not know either. */
static int config_unknown_key(struct reader *in)
{
    const char *names[KEYS];
    for (size_t i = 0; i < KEYS; i++)
        names[i] = keys[i].name;
    const char *nearest = sg_ascii_nearest(in->token, names, KEYS);
    snprintf(in->error, SG_TORCH_ERROR_TEXT, "'%s' is not a key of PyTorch's CUDA allocator%s%s%s", in->token,
             nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
    return -EINVAL;
}

/* One pass over all pairs. The size of large segments is read in a pass of its own, before the others, as it is their
   bound. */
static int reader_pairs(struct reader *in, bool bounds)
{
    for (reader_next(in); *in->token; reader_next(in)) {
        const struct key *key = find_key(in->token);
        if (!key)
            return config_unknown_key(in);
        if (reader_expect_colon(in, key->name))
            return -EINVAL;
        reader_next(in);
        if (!*in->token || reader_at(in, ",") || reader_at(in, ":") || reader_at(in, "]")) {
            snprintf(in->error, SG_TORCH_ERROR_TEXT, "%s: expected a value", key->name);
            return -EINVAL;
        }
        /* In the first pass only the first key is read, in the second all others; the rest is passed over. */
        bool now = (key == keys) == bounds;
        int error = now ? key->read(in, key->name) : reader_skip_value(in, key->name);
        if (error)
            return error;
        reader_next(in);
        if (*in->token && !reader_at(in, ","))
            return reader_unexpected(in, key->name, "','");
        if (!*in->token)
            break;
    }
    return 0;
}

void sg_torch_conf_init(struct sg_torch_conf *ret)
{
    *ret = (struct sg_torch_conf){
        .large_segment_size = 20 * SG_MIB,
        .max_split_size = SG_TORCH_UNLIMITED,
        .max_non_split_rounding = 20 * SG_MIB,
        .memory_fraction = 1,
    };
}

int sg_torch_conf_parse(const char *text, struct sg_torch_conf *ret, char *error)
{
    struct sg_torch_conf conf;
    sg_torch_conf_init(&conf);
    struct reader in = {.at = text ? text : "", .error = error, .conf = &conf};
    int result = reader_pairs(&in, true);
    if (result)
        return result;
    /* Between the passes: its default is the size that the first pass may have set. */
    conf.max_non_split_rounding = conf.large_segment_size;
    in.at = text ? text : "";
    result = reader_pairs(&in, false);
    if (result == 0)
        *ret = conf;
    return result;
}

void sg_torch_conf_from(const struct sg_conf *conf, struct sg_torch_conf *ret)
{
    uint64_t low = conf->large_segment_size, split = conf->max_split_size ? conf->max_split_size : SG_TORCH_UNLIMITED;
    *ret = (struct sg_torch_conf){
        .large_segment_size = low,
        .max_split_size = split < low ? low : split,
        .max_non_split_rounding = conf->max_non_split_rounding < low ? low : conf->max_non_split_rounding,
        .garbage_collection_threshold = conf->garbage_collection_threshold,
        .memory_fraction = conf->per_process_memory_fraction,
    };
    memcpy(ret->roundup_divisions, conf->roundup_divisions, sizeof ret->roundup_divisions);
}

uint64_t sg_torch_round(const struct sg_torch_conf *conf, uint64_t bytes)
{
    return sg_roundup(conf->roundup_divisions, bytes);
}
