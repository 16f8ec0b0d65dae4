#include "launch/find_program.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* True if FOLDER/WORD is a program; no folder: the word itself. A name that is too long is none: cut, it could be another
   file's. */
static bool is_program(const char *folder, size_t length, const char *word, char ret[SG_PLACE_BYTES])
{
    size_t bytes = strlen(word) + 1, before = length ? length + 1 : 0;
    if (before + bytes > SG_PLACE_BYTES)
        return false;
    memcpy(ret, folder, length);
    if (length)
        ret[length] = '/';
    memcpy(ret + before, word, bytes);
    return access(ret, X_OK) == 0;
}

bool sg_find_program(const char *word, char ret[SG_PLACE_BYTES])
{
    if (strchr(word, '/'))
        return is_program("", 0, word, ret);
    const char *path = getenv("PATH");
    for (const char *at = path ? path : "/usr/bin:/bin"; *at;) {
        size_t n = strcspn(at, ":");
        if (n && is_program(at, n, word, ret))
            return true;
        at += n + (at[n] != '\0');
    }
    return false;
}
