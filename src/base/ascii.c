#include "ascii.h"

#include <string.h>

enum { WORD_MAX = 48 };

/* Levenshtein's distance: the fewest edits between two words, with '-' and '_' and the cases held equal.

   row[j] is the distance between the part of `a` that has been read and the first j characters of `b`. `corner` is the
   entry to the upper left of the one at hand. One row is enough, because an entry needs only its three neighbours. */
static unsigned ascii_distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    unsigned row[WORD_MAX + 1];
    for (size_t j = 0; j <= b_length; j++)
        row[j] = (unsigned)j;
    for (size_t i = 0; i < a_length; i++) {
        unsigned corner = row[0];
        row[0] = (unsigned)i + 1;
        for (size_t j = 0; j < b_length; j++) {
            char x = a[i] == '-' ? '_' : sg_ascii_lower(a[i]), y = b[j] == '-' ? '_' : sg_ascii_lower(b[j]);
            unsigned best = corner + (x != y);
            corner = row[j + 1];
            if (best > corner + 1)
                best = corner + 1;
            if (best > row[j] + 1)
                best = row[j] + 1;
            row[j + 1] = best;
        }
    }
    return row[b_length];
}

const char *sg_ascii_nearest(const char *word, const char *const *names, size_t count)
{
    size_t length = strnlen(word, WORD_MAX + 1);
    if (length == 0 || length > WORD_MAX)
        return NULL;
    const char *best = NULL;
    unsigned best_score = ~0u;
    for (size_t i = 0; i < count; i++) {
        if (!names[i] || strlen(names[i]) > WORD_MAX)
            continue;
        size_t name_length = strlen(names[i]);
        unsigned score = ascii_distance(word, length, names[i], name_length);
        /* "max_split" is what its writer knew of max_split_size_mb: a beginning counts as near. */
        if (length >= 4 && length < name_length && ascii_distance(word, length, names[i], length) == 0)
            score = 1;
        if (score < best_score) {
            best_score = score;
            best = names[i];
        }
    }
    /* Not all of a short word may be changed: "of" would then mean any name of two characters. */
    unsigned allowed = length < 6 ? 2 : (unsigned)length / 3;
    return best_score <= allowed && best_score < length ? best : NULL;
}
