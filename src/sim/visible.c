#include "visible.h"

#include <stdlib.h>
#include <string.h>

static const char uuid_begin[] = "GPU-";

/* The number that an item begins with, as strtol() reads it: "1gpu" is 1. Negative: there is no such device. */
static int by_index(const struct sim_config *config, const char *item)
{
    char *end;
    long index = strtol(item, &end, 10);
    return end != item && index >= 0 && index < config->devices ? (int)index : -1;
}

int sim_visible_uuid(const struct sim_config *config, const char *text, size_t length)
{
    size_t most = config->card[0] ? SIM_UUID_TEXT - 1 : SIM_UUID_HALF;
    int found = -1;
    if (length >= SIM_UUID_TEXT || strncmp(text, uuid_begin, sizeof uuid_begin - 1) != 0)
        return -1;
    for (int i = 0; i < config->devices; i++) {
        char uuid[SIM_UUID_TEXT];
        sim_config_uuid_text(config, i, uuid);
        if (strncmp(text, uuid, length < most ? length : most) != 0)
            continue;
        if (found >= 0)
            return -1; /* it names several */
        found = i;
    }
    return found;
}

int sim_visible(const struct sim_config *config, const char *list, int ret[SIM_DEVICES_MAX])
{
    int count = 0;
    for (int i = 0; !list && i < config->devices; i++)
        ret[count++] = i;
    bool uuids = list && strncmp(list, uuid_begin, sizeof uuid_begin - 1) == 0;
    while (list) {
        int index = uuids ? sim_visible_uuid(config, list, strcspn(list, ",")) : by_index(config, list);
        if (index < 0)
            break;
        for (int i = 0; i < count; i++)
            if (ret[i] == index)
                return 0;
        ret[count++] = index;
        list = strchr(list, ',');
        list += list != NULL;
    }
    return count;
}
