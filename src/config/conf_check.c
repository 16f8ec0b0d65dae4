#include "config/conf_check.h"

#include "base/ascii.h"
#include "config/conf.h"

#include <string.h>

/* The words of `check`, in the order in which they are written. */
static const struct {
    const char *word;
    unsigned bits;
} words[] = {
    {"fill", SG_CHECK_FILL},
    {"canary", SG_CHECK_CANARY},
    {"guard", SG_CHECK_GUARD},
    {"thorough", SG_CHECK_THOROUGH},
    {"fail", SG_CHECK_FAIL},
    {"json", SG_CHECK_JSON},
};
enum { WORDS = sizeof words / sizeof *words };

/* Adds the bits of one word. "True" is "on", as PyTorch writes its options. */
static bool check_word(const char *word, unsigned *ret_bits)
{
    if (sg_ascii_same(word, "on") || sg_ascii_same(word, "True")) {
        *ret_bits |= SG_CHECK_PARTS;
        return true;
    }
    for (unsigned i = 0; i < WORDS; i++) {
        if (sg_ascii_same(word, words[i].word)) {
            *ret_bits |= words[i].bits;
            return true;
        }
    }
    return false;
}

bool sg_conf_check_parse(const char *value, unsigned *ret)
{
    char word[16];
    unsigned bits = 0;
    if (sg_ascii_same(value, "off") || sg_ascii_same(value, "False")) {
        *ret = 0;
        return true;
    }
    for (const char *at = value;; at++) {
        size_t length = strcspn(at, "+");
        if (length >= sizeof word)
            return false;
        memcpy(word, at, length);
        word[length] = '\0';
        if (!check_word(word, &bits))
            return false;
        at += length;
        if (!*at)
            break;
    }
    *ret = bits & (SG_CHECK_PARTS | SG_CHECK_GUARD) ? bits : bits | SG_CHECK_PARTS;
    return true;
}

void sg_conf_check_add(struct sg_text *text, unsigned bits)
{
    if (!bits)
        sg_text_add(text, "off");
    for (unsigned i = 0; i < WORDS; i++)
        if (bits & words[i].bits)
            sg_text_add(text, "%s%s", text->length ? "+" : "", words[i].word);
}

void sg_conf_check_add_values(struct sg_text *text)
{
    sg_text_add(text, "off, on, or words joined by +: ");
    for (unsigned i = 0; i < WORDS; i++)
        sg_text_add(text, "%s%s", i ? ", " : "", words[i].word);
}
