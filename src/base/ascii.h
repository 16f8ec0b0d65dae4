/* Characters and words in ASCII, whatever locale the program we live in has set. */
#ifndef SG_ASCII_H
#define SG_ASCII_H

#include <stdbool.h>
#include <stddef.h>

static inline char sg_ascii_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static inline bool sg_ascii_digit(char c)
{
    return c >= '0' && c <= '9';
}

static inline bool sg_ascii_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Whether two words are the same but for upper and lower case. */
static inline bool sg_ascii_same(const char *a, const char *b)
{
    while (*a && sg_ascii_lower(*a) == sg_ascii_lower(*b)) {
        a++;
        b++;
    }
    return *a == *b;
}

/* The entry of names[0 … count) nearest to `word` by edits of one character, or NULL when none is near enough to be
   what somebody meant. NULL entries are skipped. */
const char *sg_ascii_nearest(const char *word, const char *const *names, size_t count);

#endif
