/* The kinds of findings of a run that checks itself, by findings.def. The library writes them, and reports read them.

   Why it stands here: a kind has the same words on standard error, in JSON and in a report of the trace. A kind that only a later
   version knows is at least SG_FINDING_KINDS in a trace, and has no words here.

   For example, SG_FINDING_OVERRUN is 2 in a trace. sg_finding_words() says "write behind the end of a block", and the
   statistic check_overrun counts it. */
#ifndef SG_BASE_FINDINGS_H
#define SG_BASE_FINDINGS_H

#include <stdint.h>

#include "stats.h"
#include "segalloc/trace_format.h"

enum sg_finding_kind {
#define FINDING(NAME, stat, words, likely) SG_FINDING_##NAME = SEGALLOC_FINDING_##NAME,
#include "findings.def"
    SG_FINDING_KINDS /* of this version */
};

/* Places at which one process tells a finding, and as many reports list. */
enum { SG_FINDINGS_TOLD = 256 };

/* The kind in words, its likely cause, and the statistic that counts it. For a kind below SG_FINDING_KINDS; constant texts. */
const char *sg_finding_words(enum sg_finding_kind kind);
const char *sg_finding_likely(enum sg_finding_kind kind);
enum sg_stat sg_finding_stat(enum sg_finding_kind kind);

#endif
