/* In place of hf_config.c in builds without jansson: everything but --config works there. */
#include "checkpoint/hf_config.h"

#include <stdio.h>

int hf_config_read(const char *path, struct shape *shape, char name[HF_CONFIG_NAME], char *error, size_t error_size)
{
    (void)shape, (void)name;
    snprintf(error, error_size, "%s: this segalloc-train was built without jansson, which reads such files; install "
             "libjansson-dev and build it again, or give the shape by --layers, --hidden and the like", path);
    return -1;
}
