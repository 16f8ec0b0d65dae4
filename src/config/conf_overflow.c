#include "config/conf_overflow.h"

#include <string.h>

#include "base/ascii.h"
#include "base/size.h"
#include "config/conf_number.h"

/* The bytes of one word, "host=4GiB" or, where `bare` allows it, "peer" alone. False: it is another word, or no size. */
static bool word_parse(const char *word, size_t length, const char *place, bool bare, uint64_t *ret)
{
    char size[32];
    size_t name = strlen(place);
    if (length < name || strncmp(word, place, name) != 0)
        return false;
    if (length == name && bare) {
        *ret = SG_AUTO;
        return true;
    }
    uint64_t bytes;
    if (length <= name + 1 || word[name] != '=' || length - name - 1 >= sizeof size)
        return false;
    memcpy(size, word + name + 1, length - name - 1);
    size[length - name - 1] = '\0';
    if (!sg_size_parse(size, &bytes) || !bytes || bytes == SG_AUTO)
        return false;
    *ret = bytes;
    return true;
}

bool sg_conf_overflow_parse(const char *value, struct sg_conf_overflow *ret)
{
    struct sg_conf_overflow found = {0};
    bool more = !sg_ascii_same(value, "off");
    while (more) {
        while (sg_ascii_space(*value))
            value++;
        size_t length = strcspn(value, ","), word = length;
        while (word && sg_ascii_space(value[word - 1]))
            word--;
        if (!(!found.peer && word_parse(value, word, "peer", true, &found.peer)) &&
            !(!found.host && word_parse(value, word, "host", false, &found.host)))
            return false;
        more = value[length] == ',';
        value += length + more;
    }
    *ret = found;
    return true;
}

void sg_conf_overflow_add(struct sg_text *text, const struct sg_conf_overflow *overflow)
{
    if (!overflow->peer && !overflow->host)
        sg_text_add(text, "off");
    if (overflow->peer)
        sg_text_add(text, overflow->peer == SG_AUTO ? "peer" : "peer=");
    if (overflow->peer && overflow->peer != SG_AUTO)
        sg_conf_number_add_size(text, overflow->peer);
    if (overflow->host)
        sg_text_add(text, overflow->peer ? ",host=" : "host=");
    if (overflow->host)
        sg_conf_number_add_size(text, overflow->host);
}
