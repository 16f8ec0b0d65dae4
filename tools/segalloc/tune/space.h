/* Which settings a tuner may try: the parameters, their values, and how a choice of them reads as a configuration. */
#ifndef SG_TUNE_SPACE_H
#define SG_TUNE_SPACE_H

#include "player.h"

enum { SG_TUNE_PARAMETERS = 5, SG_TUNE_VALUES = 64, SG_TUNE_RANGE_VALUES = 12, SG_TUNE_SPACE_ERROR = 640 };

struct sg_tune_parameter {
    const char *key;
    const char *value[SG_TUNE_VALUES]; /* to be tried; not being set is always tried too */
    unsigned count;
    bool searched; /* otherwise the current value, if any, is part of the base */
    bool named;    /* by the user */
};

struct sg_tune_space {
    enum sg_policy policy;
    struct sg_tune_parameter parameter[SG_TUNE_PARAMETERS];
    unsigned parameters;
    const char *now[SG_TUNE_PARAMETERS]; /* value of each in the current setting; NULL: not set */
    const char *base;                    /* "key:value,…" of the current setting that every setting keeps; "" */
    bool has_current;                    /* a current setting is known, be it the defaults */
    struct sg_tune_text *texts;          /* owns all strings made */
};

/* A choice of values, and what a replay needs of it. */
struct sg_tune_setting {
    const char *value[SG_TUNE_PARAMETERS]; /* NULL: not set; the space's */
    const char *conf;                      /* "key:value,…"; the space's */
    unsigned keys;                         /* how many are set */
    struct sg_conf own;
    struct sg_torch_conf torch;
};

void sg_tune_space_init(struct sg_tune_space *space, enum sg_policy policy);
void sg_tune_space_free(struct sg_tune_space *space);

/* "NAME=LOW..HIGH" or "NAME=A,B,…": tries these values of NAME, and of the parameters together that were named so far.
   0, or -EINVAL with a line in error[SG_TUNE_SPACE_ERROR]. Before sg_tune_space_current(). */
int sg_tune_space_narrow(struct sg_tune_space *space, const char *text, char *error);

/* Takes "key:value,…" as the setting in use. With `of_ours` it is a configuration of segalloc's that nobody wrote down
   for this purpose: what it says of output, and for PyTorch what PyTorch does not have, is left out. 0, or -EINVAL with
   a line in `error` and nothing taken. */
int sg_tune_space_current(struct sg_tune_space *space, const char *text, bool of_ours, char *error);

/* Leaves out what cannot matter given the base. Last, before settings are made. */
void sg_tune_space_decide(struct sg_tune_space *space);

/* Makes the setting with `value` (SG_TUNE_PARAMETERS of them). 0, -EINVAL with a line in `error` for values that are
 * refused, -ENOMEM. */
int sg_tune_space_make(struct sg_tune_space *space, const char *const *value, struct sg_tune_setting *ret, char *error);

/* True if two settings decide alike. */
bool sg_tune_space_same(const struct sg_tune_space *space, const struct sg_tune_setting *a,
                        const struct sg_tune_setting *b);

#endif
