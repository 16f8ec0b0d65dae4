#include "findings.h"

static const struct {
    const char *words, *likely;
    enum sg_stat stat;
} kinds[] = {
#define FINDING(NAME, stat, words, likely) [SG_FINDING_##NAME] = {words, likely, SG_STAT_##stat},
#include "findings.def"
};
_Static_assert(sizeof kinds / sizeof *kinds == SG_FINDING_KINDS, "numbers of kinds begin at 0 and have no gaps");

const char *sg_finding_words(enum sg_finding_kind kind)
{
    return kinds[kind].words;
}

const char *sg_finding_likely(enum sg_finding_kind kind)
{
    return kinds[kind].likely;
}

enum sg_stat sg_finding_stat(enum sg_finding_kind kind)
{
    return kinds[kind].stat;
}
