#include "config/conf_card.h"

#include <stdio.h>
#include <string.h>

#include "base/ascii.h"

char *sg_conf_card_name(const char *card, int version, char *buffer, size_t size)
{
    char name[96];
    size_t length = 0;
    for (; *card && length < sizeof name - 1; card++) {
        bool kept = (*card >= '0' && *card <= '9') || (*card >= 'a' && *card <= 'z') || (*card >= 'A' && *card <= 'Z') || *card == '.';
        if (kept || (length && name[length - 1] != '-'))
            name[length++] = kept ? *card : '-';
    }
    name[length] = '\0';
    snprintf(buffer, size, "%s-%d.%d", name, version / 1000, version % 1000 / 10);
    return buffer;
}

bool sg_conf_card_path(const char *config_home, const char *home, const char *card, int version, char ret[SG_PATH_BYTES])
{
    char name[128];
    bool own = config_home && *config_home == '/';
    if (!own && (!home || *home != '/'))
        return false;
    int length = snprintf(ret, SG_PATH_BYTES, "%s%s/segalloc/%s.conf", own ? config_home : home, own ? "" : "/.config",
        sg_conf_card_name(card, version, name, sizeof name));
    return length < SG_PATH_BYTES;
}

static bool card_may_set(enum sg_conf_source source)
{
    return source == SG_CONF_DEFAULT || source == SG_CONF_SYSTEM || source == SG_CONF_PYTORCH || source == SG_CONF_PYTORCH_CUDA;
}

unsigned sg_conf_apply_card(struct sg_conf *conf, const char *path, sg_conf_warn_fn *warn, void *user)
{
    struct sg_conf found;
    sg_conf_init(&found);
    unsigned bad = sg_conf_apply_file(&found, SG_CONF_CARD, path, warn, user);
    for (unsigned i = 0; i < SG_OPTION_COUNT; i++) {
        char value[SG_PATH_BYTES];
        if (found.source[i] != SG_CONF_CARD || !card_may_set(conf->source[i]))
            continue;
        if (sg_conf_set(conf, (enum sg_option)i, sg_conf_format(&found, (enum sg_option)i, value, sizeof value)))
            conf->source[i] = SG_CONF_CARD;
    }
    return bad;
}
