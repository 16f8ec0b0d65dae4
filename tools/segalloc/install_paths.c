#include "install_paths.h"

#include "tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The folder of this program, then the path from there; "" is true of no file. */
static bool find_beside(const char *relative, int access_mode, char ret[SG_PLACE_BYTES])
{
    char folder[SG_PLACE_BYTES], path[SG_PLACE_BYTES * 2], real[SG_PLACE_BYTES];
    if (!sg_tool_folder(folder, sizeof folder))
        return false;
    snprintf(path, sizeof path, "%s/%s", folder, relative);
    if (access(path, access_mode) != 0 || !realpath(path, real))
        return false;
    memcpy(ret, real, sizeof real);
    return true;
}

bool sg_place_library(char ret[SG_PLACE_BYTES])
{
    static const char *const relative[] = {
        "../../src/preload/libsegalloc.so",
        SEGALLOC_LIBDIR_FROM_BIN "/libsegalloc.so.0",
    };
    const char *named = getenv("SEGALLOC_LIB");
    if (named && *named) {
        char real[SG_PLACE_BYTES];
        if (access(named, R_OK) != 0 || !realpath(named, real))
            return false;
        memcpy(ret, real, sizeof real);
        return true;
    }
    for (size_t i = 0; i < sizeof relative / sizeof *relative; i++) {
        if (find_beside(relative[i], R_OK, ret))
            return true;
    }
    snprintf(ret, SG_PLACE_BYTES, "%s/libsegalloc.so.0", SEGALLOC_LIBDIR);
    return access(ret, R_OK) == 0;
}

bool sg_place_memory_saver(char ret[SG_PLACE_BYTES])
{
    if (find_beside("../../src/memory_saver/libsegalloc_torch_memory_saver.so", R_OK, ret) ||
        find_beside(SEGALLOC_LIBDIR_FROM_BIN "/libsegalloc_torch_memory_saver.so", R_OK, ret))
        return true;
    snprintf(ret, SG_PLACE_BYTES, "%s/libsegalloc_torch_memory_saver.so", SEGALLOC_LIBDIR);
    return access(ret, R_OK) == 0;
}

bool sg_place_simulator(char ret[SG_PLACE_BYTES])
{
    char driver[SG_PLACE_BYTES], folder[SG_PLACE_BYTES];
    if (find_beside("../../src/sim/libcuda.so.1", R_OK, driver) && find_beside("../../src/sim", X_OK, driver)) {
        static const char *const further[] = {"../../src/sim/cudart", "../../src/sim/standin", "../../src/sim/nvml"};
        size_t length = (size_t)snprintf(ret, SG_PLACE_BYTES, "%s", driver);
        for (size_t i = 0; i < sizeof further / sizeof *further; i++) {
            if (find_beside(further[i], X_OK, folder))
                length += (size_t)snprintf(ret + length, SG_PLACE_BYTES - length, ":%s", folder);
            if (length >= SG_PLACE_BYTES)
                return false;
        }
        return true;
    }
    if (find_beside(SEGALLOC_LIBDIR_FROM_BIN "/segalloc/sim/libcuda.so.1", R_OK, driver))
        return find_beside(SEGALLOC_LIBDIR_FROM_BIN "/segalloc/sim", X_OK, ret);
    snprintf(ret, SG_PLACE_BYTES, "%s/segalloc/sim", SEGALLOC_LIBDIR);
    return access(SEGALLOC_LIBDIR "/segalloc/sim/libcuda.so.1", R_OK) == 0;
}

bool sg_place_python(char ret[SG_PLACE_BYTES])
{
    if (find_beside("../python/sitecustomize.py", R_OK, ret))
        return find_beside("../python", X_OK, ret);
    if (find_beside(SEGALLOC_LIBDIR_FROM_BIN "/segalloc/python/sitecustomize.py", R_OK, ret))
        return find_beside(SEGALLOC_LIBDIR_FROM_BIN "/segalloc/python", X_OK, ret);
    snprintf(ret, SG_PLACE_BYTES, "%s/segalloc/python", SEGALLOC_LIBDIR);
    return access(SEGALLOC_LIBDIR "/segalloc/python/sitecustomize.py", R_OK) == 0;
}

bool sg_place_program(const char *name, char ret[SG_PLACE_BYTES])
{
    char relative[300];
    if (strchr(name, '/') || strlen(name) > 200)
        return false;
    snprintf(relative, sizeof relative, "../train/%s", name);
    if (find_beside(relative, X_OK, ret))
        return true;
    return find_beside(name, X_OK, ret);
}
