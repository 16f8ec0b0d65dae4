/* The pattern of a path, and the rank that stands in variables: on lines of their own. */
#include "writer/path_pattern.h"

#include <errno.h>

#include "target.h"

enum { PATH = 256 };

static char *rank;

static char *environment(const char *name)
{
    return strcmp(name, "RANK") == 0 ? rank : NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[PATH], *text = fuzz_text(data, size);
    rank = strchr(text, '\n');
    if (rank)
        *rank++ = '\0';
    int status = sg_path_expand(text, environment, path, sizeof path);
    FUZZ_EXPECT(status == 0 || status == -EINVAL || status == -ENAMETOOLONG);
    if (status == 0) {
        size_t slashes = 0, given = 0;
        for (const char *c = path; *c; c++)
            slashes += *c == '/';
        for (const char *c = text; *c; c++)
            given += *c == '/';
        FUZZ_EXPECT(strlen(path) < sizeof path && slashes == given);
    }
    free(text);
    return 0;
}
