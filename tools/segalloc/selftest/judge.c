/* The verdict of each check of checks.def. */
#include <stdio.h>
#include <string.h>

#include "driver/cuda_abi.h"
#include "selftest/judge_memory.h"
#include "selftest/judge_work.h"

static const struct {
    const char *name, *rows;
    enum sg_selftest_level worst;
    const char *setting, *comes_to;
    void (*judge)(struct sg_judging *judging);
} checks[SG_SELFTEST_CHECKS] = {
#define CHECK(name, rows, worst, setting, comes_to) {#name, rows, SG_SELFTEST_##worst, setting, comes_to, sg_judge_##name},
#include "selftest/checks.def"
};

/* Plain memory is what is left where pages can't be had. */
static enum sg_selftest_level judge_worst(const struct sg_judging *judging, int check)
{
    bool last = check == SG_SELFTEST_CHECK_plain && judging->selftest->verdict[SG_SELFTEST_CHECK_pages].level == SG_SELFTEST_DIFFERS;
    return last ? SG_SELFTEST_UNUSABLE : checks[check].worst;
}

/* The check's rows one by one: the first that failed is the verdict. */
static bool judge_rows(struct sg_judging *judging, int check)
{
    char row[64];
    for (const char *at = checks[check].rows; *at;) {
        size_t length = strcspn(at, "|");
        snprintf(row, sizeof row, "%.*s", (int)length, at);
        if (sg_judging_failed_row(judging, row, judge_worst(judging, check)))
            return true;
        at += length + (at[length] == '|');
    }
    return false;
}

/* True if a check looks at bytes that were copied, and copies do not arrive. */
static bool judge_is_blind(const struct sg_judging *judging, int check)
{
    bool looks = check == SG_SELFTEST_CHECK_order || check == SG_SELFTEST_CHECK_aliases ||
                 check == SG_SELFTEST_CHECK_kernels || check == SG_SELFTEST_CHECK_managed ||
                 check == SG_SELFTEST_CHECK_peers;
    const json_t *copied = sg_lines_first(judging->selftest, "transfer", "copied");
    return looks && sg_line_number(copied, "wrong");
}

/* True if the time was over before a row of the check had begun. */
static bool judge_is_late(const struct sg_judging *judging, int check)
{
    char row[64];
    for (const char *at = checks[check].rows; *at && judging->selftest->given_up;) {
        size_t length = strcspn(at, "|");
        snprintf(row, sizeof row, "%.*s", (int)length, at);
        if (!sg_lines_first(judging->selftest, row, NULL))
            return true;
        at += length + (at[length] == '|');
    }
    return false;
}

/* Without pages, rows that map fail by design. */
static bool judge_is_mapless(const struct sg_judging *judging, int check)
{
    return !sg_judging_has_pages(judging) && checks[check].setting && strcmp(checks[check].setting, "free_sync:strict") != 0;
}

void sg_selftest_judge(struct sg_selftest *selftest)
{
    struct sg_judging judging = {.selftest = selftest};
    if (sg_judging_fact(&judging, "vmm") != 1) { /* calls of pages are known to fail */
        (void)sg_judging_note_call(&judging, "cuMemCreate", CUDA_ERROR_NOT_SUPPORTED, SG_SELFTEST_UNUSABLE);
        (void)sg_judging_note_call(&judging, "cuMemAddressReserve", CUDA_ERROR_NOT_SUPPORTED, SG_SELFTEST_UNUSABLE);
    }
    for (int i = 0; i < SG_SELFTEST_CHECKS; i++) {
        struct sg_selftest_verdict *verdict = &selftest->verdict[i];
        *verdict = (struct sg_selftest_verdict){.check = checks[i].name};
        judging.verdict = verdict;
        judging.comes_to = checks[i].comes_to;
        judging.setting = checks[i].setting;
        if (judge_is_late(&judging, i))
            sg_verdict_set(&judging, SG_SELFTEST_LEFT_OUT, "not asked: %.0f s were over", selftest->until_s);
        else if (judge_is_blind(&judging, i))
            sg_verdict_set(&judging, SG_SELFTEST_LEFT_OUT, "not known, since copies do not arrive");
        else if (judge_is_mapless(&judging, i) && i != SG_SELFTEST_CHECK_pages)
            sg_verdict_set(&judging, SG_SELFTEST_LEFT_OUT, "there are no pages");
        else if (i == SG_SELFTEST_CHECK_pages && !sg_judging_has_pages(&judging))
            checks[i].judge(&judging);
        else if (!judge_rows(&judging, i))
            checks[i].judge(&judging);
        if (verdict->level >= SG_SELFTEST_DIFFERS && verdict->level > selftest->level)
            selftest->level = verdict->level;
    }
}

char *sg_selftest_settings(const struct sg_selftest *selftest, char *buffer, size_t size)
{
    size_t used = 0;
    *buffer = '\0';
    for (int i = 0; i < SG_SELFTEST_CHECKS && used < size; i++) {
        const char *setting = selftest->verdict[i].setting;
        if (*setting && !strstr(buffer, setting))
            used += (size_t)snprintf(buffer + used, size - used, "%s%s", used ? "," : "", setting);
    }
    return buffer;
}
