#include "config/conf_card.h"
#include "config/conf_read.h"
#include "effective_conf.h"

#include "tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void conf_warn(void *user, const char *line)
{
    sg_tool_message(user, "%s", line);
}

static unsigned conf_load(struct sg_conf *conf, sg_conf_warn_fn *report, const char *verb)
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
    return sg_conf_load(conf, &inputs, report, (void *)(uintptr_t)verb);
}

unsigned sg_tool_conf(const char *verb, const char *text, struct sg_conf *ret)
{
    unsigned bad = conf_load(ret, conf_warn, verb);
    return bad + sg_tool_conf_apply(verb, text, ret);
}

void sg_tool_conf_quietly(struct sg_conf *ret)
{
    conf_load(ret, NULL, NULL);
}

unsigned sg_tool_conf_card(const char *verb, const char *card, int driver, struct sg_conf *conf)
{
    char path[SG_PATH_BYTES];
    if (!sg_conf_card_path(getenv("XDG_CONFIG_HOME"), getenv("HOME"), card, driver, path))
        return 0;
    return sg_conf_apply_card(conf, path, verb ? conf_warn : NULL, (void *)(uintptr_t)verb);
}

const char *sg_tool_conf_join(const char *text, const char *more)
{
    static struct joined {
        struct joined *before; /* so that a leak checker finds them all at the end */
        char text[];
    } *last;
    size_t size = strlen(text ? text : "") + strlen(more) + 2;
    struct joined *both = text && *text ? malloc(sizeof *both + size) : NULL;
    if (!both)
        return more;
    snprintf(both->text, size, "%s,%s", text, more);
    both->before = last;
    last = both;
    return both->text;
}

unsigned sg_tool_conf_apply(const char *verb, const char *text, struct sg_conf *conf)
{
    return sg_conf_apply(conf, SG_CONF_ARGUMENT, text, conf_warn, (void *)(uintptr_t)verb);
}

unsigned sg_tool_conf_check(const char *verb, const char *text, struct sg_conf *conf)
{
    return sg_conf_check(conf, "--conf", text, conf_warn, (void *)(uintptr_t)verb);
}
