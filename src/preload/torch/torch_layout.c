/* The rows by release, and version.py. */
#include "process/glibc_symver.h"

#include "torch/torch_layout.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "config/conf.h"

/* Source of the statistics: struct DeviceStats in the headers of the wheels (2.5.1, 2.6.0, 2.7.1, 2.8.0, 2.9.1, 2.10.0,
   2.11.0, 2.12.0 and 2.12.1). Those of 2.13.0, 2.14.0, 2.14.1 and 2.15.0 have a ska::flat_hash_map between the counts.
   Source of the snapshot: SnapshotInfo, SegmentInfo and BlockInfo in those of 2.9.1, 2.11.0 and 2.15.0, which agree.
   Source of the place of setUseOnOOM(): the tables of the last two. Retries in pools were tried: 2.9.1, 2.11.0, 2.12.1,
   2.13.0, 2.14.1 and 2.15.0. */
static const struct sg_torch_layout layouts[] = {{.from = 5, .to = 8}, {.from = 9, .to = 10, .snapshot = true},
    {.from = 11, .to = 12, .snapshot = true, .spare_pool = 3},
    {.from = 13, .to = 15, .map_bytes = 32, .snapshot = true, .retries_in_pools = true, .spare_pool = 3}};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

/* The release, as PyTorch's version.py beside the folder of `library` has it ("2.11.0+cu130"); false: there is none. */
static bool read_version(const char *library, char *ret, size_t size)
{
    static const char before[] = "\n__version__ = '";
    char path[SG_PATH_BYTES], text[1024];
    const char *slash = strrchr(library, '/');
    int length = slash ? snprintf(path, sizeof path, "%.*s/../version.py", (int)(slash - library), library) : 0;
    int file = length > 0 && length < (int)sizeof path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t got = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (file >= 0)
        close(file);
    text[got > 0 ? got : 0] = '\0';
    const char *found = strstr(text, before), *begin = found ? found + sizeof before - 1 : NULL;
    size_t bytes = begin ? strcspn(begin, "'\n") : 0;
    if (bytes == 0 || bytes >= size)
        return false;
    memcpy(ret, begin, bytes);
    ret[bytes] = '\0';
    return true;
}

/* NULL: a release that is not among them, or a build on the way to one ("2.12.0a0+git"). */
static const struct sg_torch_layout *layout_of(const char *version)
{
    unsigned minor, patch;
    int end = 0;
    if (sscanf(version, "2.%u.%u%n", &minor, &patch, &end) != 2 || (version[end] && version[end] != '+'))
        return NULL;
    for (int i = 0; i < LAYOUTS; i++) {
        if (minor >= layouts[i].from && minor <= layouts[i].to)
            return &layouts[i];
    }
    return NULL;
}

const struct sg_torch_layout *sg_torch_layout(const void *code, char *version, size_t size)
{
    Dl_info info;
    snprintf(version, size, "of an unknown version");
    return dladdr(code, &info) && info.dli_fname && read_version(info.dli_fname, version, size) ? layout_of(version)
                                                                                                : NULL;
}

unsigned sg_torch_layout_first(void)
{
    return layouts[0].from;
}

unsigned sg_torch_layout_last(void)
{
    return layouts[LAYOUTS - 1].to;
}
