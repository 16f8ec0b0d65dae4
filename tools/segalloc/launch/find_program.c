#include "launch/find_program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool sg_find_program(const char *word, char ret[SG_PLACE_BYTES])
{
    if (strchr(word, '/')) {
        snprintf(ret, SG_PLACE_BYTES, "%s", word);
        return access(ret, X_OK) == 0;
    }
    const char *path = getenv("PATH");
    for (const char *at = path ? path : "/usr/bin:/bin"; *at;) {
        size_t n = strcspn(at, ":");
        snprintf(ret, SG_PLACE_BYTES, "%.*s/%s", (int)n, at, word);
        if (n && access(ret, X_OK) == 0)
            return true;
        at += n + (at[n] != '\0');
    }
    return false;
}
