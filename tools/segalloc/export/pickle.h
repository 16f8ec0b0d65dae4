/* Writes Python's pickle format, protocol 2, of which memory_viz reads a few opcodes only. */
#ifndef SG_PICKLE_H
#define SG_PICKLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { SG_PICKLE_WORDS = 128 };

struct sg_pickle {
    FILE *out;
    const char *word[SG_PICKLE_WORDS]; /* written once, referred to from then on; literals */
    unsigned words;
};

void sg_pickle_begin(struct sg_pickle *pickle, FILE *out);
void sg_pickle_end(struct sg_pickle *pickle);

/* Dictionaries: open, then key and value in turn, close. Lists: open, items, close. */
void sg_pickle_open_dict(struct sg_pickle *pickle);
void sg_pickle_close_dict(struct sg_pickle *pickle);
void sg_pickle_open_list(struct sg_pickle *pickle);
void sg_pickle_close_list(struct sg_pickle *pickle);

/* `literal` lives as long as the pickle is written. */
void sg_pickle_word(struct sg_pickle *pickle, const char *literal);
void sg_pickle_text(struct sg_pickle *pickle, const char *text);
void sg_pickle_number(struct sg_pickle *pickle, uint64_t value);
void sg_pickle_bool(struct sg_pickle *pickle, bool value);
void sg_pickle_pair(struct sg_pickle *pickle, uint64_t first, uint64_t second);

#endif
