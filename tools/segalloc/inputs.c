#include "inputs.h"

#include "tool.h"

#include <stdlib.h>

static void warn(void *user, const char *line)
{
    sg_tool_message(user, "%s", line);
}

unsigned sg_tool_conf(const char *verb, const char *text, struct sg_conf *ret)
{
    const struct sg_conf_inputs inputs = {
        .system_file = SG_CONF_SYSTEM_FILE,
        .conf_file = getenv("SEGALLOC_CONF_FILE"),
        .environment = getenv("SEGALLOC_CONF"),
        .trace = getenv("SEGALLOC_TRACE"),
        .stats = getenv("SEGALLOC_STATS"),
        .pytorch_cuda = getenv("PYTORCH_CUDA_ALLOC_CONF"),
        .pytorch = getenv("PYTORCH_ALLOC_CONF"),
    };
    unsigned bad = sg_conf_load(ret, &inputs, warn, (void *)(uintptr_t)verb);
    return bad + sg_tool_conf_apply(verb, text, ret);
}

unsigned sg_tool_conf_apply(const char *verb, const char *text, struct sg_conf *conf)
{
    return sg_conf_apply(conf, SG_CONF_ARGUMENT, text, warn, (void *)(uintptr_t)verb);
}
