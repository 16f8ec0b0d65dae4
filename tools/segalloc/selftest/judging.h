/* Lines, facts and verdicts, for the checks.

   For example, the row "handles" has the line {"handle": "bare", "map": 999}. sg_judging_call() makes "cuMemMap answers 999
   (CUDA_ERROR_UNKNOWN): memory is served from fixed segments" of it, and suggests the setting of the check. A second check that fails at
   cuMemMap with 999 is left out. */
#ifndef SG_JUDGING_H
#define SG_JUDGING_H

#include "selftest/selftest.h"

enum { SG_JUDGING_CALLS = 16, SG_JUDGING_CALL = 48 };

/* Checks that are judged, and failed calls that verdicts have named: a row that fails at one of these again says nothing new. */
struct sg_judging {
    struct sg_selftest *selftest;
    struct sg_selftest_verdict *verdict; /* of the check that is judged */
    const char *comes_to, *setting;
    struct {
        char name[SG_JUDGING_CALL];
        int code;
        enum sg_selftest_level level; /* the worst that has been said of it */
    } call[SG_JUDGING_CALLS];
    int calls;
};

/* Sets the verdict, and the default that it would change. */
__attribute__((format(printf, 3, 4))) void sg_verdict_set(struct sg_judging *judging, enum sg_selftest_level level, const char *format, ...);
__attribute__((format(printf, 2, 3))) void sg_verdict_suggest(struct sg_judging *judging, const char *format, ...);

/* The name of an error of the driver, "CUDA_ERROR_UNKNOWN". */
const char *sg_judging_code_name(int code);

/* The next line of a row from *at on that has `key` (NULL: any); NULL: none is left. */
const json_t *sg_lines_next(const struct sg_selftest *selftest, const char *row, const char *key, size_t *at);
const json_t *sg_lines_first(const struct sg_selftest *selftest, const char *row, const char *key);

/* A member that is a number; 0 where there is none. */
json_int_t sg_line_number(const json_t *line, const char *key);

/* A fact that is a number; -1: it is not known. */
json_int_t sg_judging_fact(const struct sg_judging *judging, const char *name);

/* True if the device says that it has virtual memory management. */
bool sg_judging_has_pages(const struct sg_judging *judging);

/* True if another verdict has named that call with that code, and as nothing milder; else it is noted as named now. `worst` is what may
   come of it in any check. A verdict whose setting avoids the call notes it as the worst there is, so that no later one names it.

   For example, cuStreamSynchronize fails always. The check "plain" differs by it, and "transfer" is unusable. Both say so. */
bool sg_judging_note_call(struct sg_judging *judging, const char *name, int code, enum sg_selftest_level worst);

/* The function of the driver in the text of a call, "probe.cu.cuMemMap(at, …)": cuMemMap. Else the beginning of the text. */
void sg_judging_call_name(const char *text, char ret[SG_JUDGING_CALL]);

/* The verdict on a call that failed. */
void sg_judging_call(struct sg_judging *judging, enum sg_selftest_level level, const char *name, int code);

/* True if a row has failed, and that is the verdict. */
bool sg_judging_failed_row(struct sg_judging *judging, const char *row, enum sg_selftest_level worst);

#endif
