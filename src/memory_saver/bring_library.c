#include "memory_saver/bring_library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The mark of a second start. Set where the program was started once more, so that it is so once at most. */
#define TRIED "SEGALLOC_MEMORY_SAVER_TRIED"

enum { PATH_BYTES = 4096 };

/* The library's file: beside this one, or in the folder that it has in a build. This file's own place is asked of the loader by the
   address of one of its constants. */
static int find_library(char ret[PATH_BYTES])
{
    static const char *const places[] = {"libsegalloc.so.0", "../preload/libsegalloc.so.0"};
    Dl_info info;
    const char *slash = dladdr(TRIED, &info) && info.dli_fname ? strrchr(info.dli_fname, '/') : NULL;
    for (size_t i = 0; slash && i < sizeof places / sizeof *places; i++) {
        int length = snprintf(ret, PATH_BYTES, "%.*s/%s", (int)(slash - info.dli_fname), info.dli_fname, places[i]);
        if (length < PATH_BYTES && access(ret, R_OK) == 0)
            return 1;
    }
    return 0;
}

void sg_bring_library(char **argv)
{
    char library[PATH_BYTES], list[2 * PATH_BYTES];
    const char *preload = getenv("LD_PRELOAD");
    if (dlsym(RTLD_DEFAULT, "segalloc_tag_push") || !preload || !strstr(preload, "torch_memory_saver"))
        return;
    if (!getenv(TRIED) && find_library(library) &&
        snprintf(list, sizeof list, "%s:%s", preload, library) < (int)sizeof list) {
        setenv("LD_PRELOAD", list, 1);
        setenv(TRIED, "1", 1);
        execv("/proc/self/exe", argv);
    }
    fputs("segalloc: libsegalloc_torch_memory_saver.so needs libsegalloc.so.0 behind it in LD_PRELOAD: memory stays "
          "where it is\n",
        stderr);
}
