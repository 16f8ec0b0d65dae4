/* Characters and words in ASCII.

   Why not <ctype.h> and strcasecmp(): they follow the locale, and the library lives in programs that set one. In a Turkish
   locale an upper-case I is no upper case of i. An option has to be read alike in each of them.

   Nothing here takes memory, a lock or the heap. All functions are for any thread. */
#ifndef SG_ASCII_H
#define SG_ASCII_H

#include <stdbool.h>
#include <stddef.h>

/* The lower-case letter for A to Z; any other byte as it is, those of UTF-8 too. */
static inline char sg_ascii_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* True for 0 to 9. */
static inline bool sg_ascii_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* True for a blank, and for tab, line feed, vertical tab, form feed and carriage return, which are 9 to 13. */
static inline bool sg_ascii_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* True if two words are the same but for upper and lower case: "auto" and "AUTO". */
static inline bool sg_ascii_same(const char *a, const char *b)
{
    while (*a && sg_ascii_lower(*a) == sg_ascii_lower(*b)) {
        a++;
        b++;
    }
    return *a == *b;
}

/* The name that somebody who wrote `word` probably meant: the entry of names[0 … count) that is the fewest edits away.
   An edit inserts, drops or replaces one character; '-' is as good as '_'. NULL entries are skipped.

   NULL where no name is near enough. Words of up to 5 characters may be 2 edits away, longer ones a third of their
   length. A beginning of at least 4 characters counts as one edit. Words of more than 48 characters match nothing.

   Examples, among the options of segalloc:
     reserve_slak    reserve_slack       1 edit, up to 4 are allowed
     max_split       max_split_size_mb   a beginning of it
     trcae           trace               2 edits, 2 are allowed
     colour          NULL                the nearest is more than 2 edits away */
const char *sg_ascii_nearest(const char *word, const char *const *names, size_t count);

#endif
