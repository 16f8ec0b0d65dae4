#include "site.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parts of paths with their ranks. The first row that matches decides, so an exception stands before its rule. Torch stands
   before "-packages/", and that before "/lib/python3", which holds Debian's dist-packages. */
static const struct {
    const char *part;
    bool begins; /* the path begins with it; else it is somewhere in it */
    enum sg_site_rank rank;
} parts[] = {
    {"/libsegalloc.so", false, SG_SITE_SYSTEM},
    {"/libcuda.so", false, SG_SITE_SYSTEM},
    {"/libcudart.so", false, SG_SITE_SYSTEM},
    {"/libc.so.", false, SG_SITE_SYSTEM},
    {"/libpthread.so.", false, SG_SITE_SYSTEM},
    {"/libstdc++.so.", false, SG_SITE_SYSTEM},
    {"/libffi.so.", false, SG_SITE_SYSTEM},
    {SG_SITE_GAP, true, SG_SITE_SYSTEM},
    {"<frozen ", true, SG_SITE_SYSTEM},
    {"<string>", true, SG_SITE_OWN},
    {"<stdin>", true, SG_SITE_OWN},
    {"<ipython", true, SG_SITE_OWN},
    {"<", true, SG_SITE_FRAMEWORK}, /* code made by PyTorch's compilers, or by dataclasses */
    {"/torchinductor_", false, SG_SITE_FRAMEWORK},
    {"-packages/torch", false, SG_SITE_FRAMEWORK}, /* torchvision and the like too */
    {"-packages/triton/", false, SG_SITE_FRAMEWORK},
    {"-packages/", false, SG_SITE_LIBRARY},
    {"/python/segalloc/", false, SG_SITE_FRAMEWORK},
    {"/lib/python3", false, SG_SITE_SYSTEM},
};

enum sg_site_rank sg_site_rank(const char *file)
{
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *found = strstr(file, parts[i].part);
        if (found && (found == file || !parts[i].begins))
            return parts[i].rank;
    }
    return SG_SITE_OWN;
}

/* The last `count` parts of a path: of "/a/b/c.py", 2 are "b/c.py". */
static const char *path_last_parts(const char *file, int count)
{
    const char *at = file + strlen(file);
    while (at > file && (at[-1] != '/' || --count > 0))
        at--;
    return at;
}

char *sg_site_format(const char *file, uint32_t line, const char *function, char *text, size_t size)
{
    const char *shown = path_last_parts(file, sg_site_rank(file) == SG_SITE_OWN ? 1 : 3);
    bool whole = !*function || strcmp(function, "<module>") == 0;
    if (strcmp(file, SG_SITE_GAP) == 0) {
        snprintf(text, size, "%s", file);
        return text;
    }
    snprintf(text, size, "%s:%" PRIu32 "%s%s", shown, line, whole ? "" : " in ", whole ? "" : function);
    return text;
}

char *sg_site_format_native(const char *module, uint64_t offset, const char *function, char *text, size_t size)
{
    const char *shown = path_last_parts(module, 1);
    if (*function)
        snprintf(text, size, "%s in %s (+0x%" PRIx64 ")", shown, function, offset);
    else
        snprintf(text, size, "%s+0x%" PRIx64, shown, offset);
    return text;
}

/* Cuts the arguments, which are the last pair of brackets. */
static void name_cut_arguments(char *name)
{
    char *at = strrchr(name, ')');
    int deep = 0;
    for (; at && at > name; at--) {
        deep += *at == ')' ? 1 : *at == '(' ? -1 : 0;
        if (deep == 0)
            break;
    }
    if (at && at > name)
        *at = '\0';
}

/* Cuts the return type, with which the demangled name of a template begins: "int f<int>" becomes "f<int>". Blanks inside
   brackets belong to arguments, and those of "operator new" to the name. */
static void name_cut_type(char *name)
{
    char *begin = name;
    int nested = 0;
    for (char *c = name; *c && !strstr(name, "operator"); c++) {
        nested += strchr("<({", *c) ? 1 : strchr(">)}", *c) ? -1 : 0;
        if (*c == ' ' && nested == 0)
            begin = c + 1;
    }
    memmove(name, begin, strlen(begin) + 1);
}

void sg_site_plain_name(sg_site_demangle_fn *demangle, const char *name, char *ret, size_t size)
{
    int status = -1;
    char *plain = demangle && strncmp(name, "_Z", 2) == 0 ? demangle(name, NULL, NULL, &status) : NULL;
    bool is_plain = plain && status == 0;
    snprintf(ret, size, "%s", is_plain ? plain : name);
    free(plain);
    if (!is_plain)
        return;
    name_cut_arguments(ret);
    name_cut_type(ret);
}
