/* Findings of a run that checked itself, with the words and members that it wrote to standard error (docs/check.md). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "report/report.h"
#include "size.h"

enum { LINE = 1280 };

uint64_t sg_findings_checked(const struct sg_findings *findings, enum sg_finding_kind kind)
{
    uint64_t counted = 0, listed = 0;
    for (uint32_t i = 0; i < findings->devices; i++)
        counted += findings->device[i].stats.value[sg_finding_stat(kind)];
    for (uint32_t i = 0; i < sg_checked_kept(&findings->checked); i++)
        listed += findings->checked.finding[i].kind == (uint64_t)kind;
    return counted > listed ? counted : listed;
}

/* A counter over all devices. */
static uint64_t checked_total(const struct sg_findings *findings, enum sg_stat stat)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < findings->devices; i++)
        sum += findings->device[i].stats.value[stat];
    return sum;
}

uint64_t sg_findings_checked_all(const struct sg_findings *findings, bool *ret_ran)
{
    uint64_t sum = 0;
    for (int kind = 0; kind < SG_FINDING_KINDS; kind++)
        sum += sg_findings_checked(findings, (enum sg_finding_kind)kind);
    for (uint32_t i = 0; i < sg_checked_kept(&findings->checked); i++) /* of a later version */
        sum += findings->checked.finding[i].kind >= SG_FINDING_KINDS;
    *ret_ran = sum || checked_total(findings, SG_STAT_checked_frees);
    return sum;
}

const char *sg_report_checked_words(const struct sg_checked_finding *finding)
{
    return finding->kind < SG_FINDING_KINDS ? sg_finding_words((enum sg_finding_kind)finding->kind)
                                            : "a finding of a kind that this version does not know";
}

char *sg_report_checked_sum(const struct sg_findings *findings, char *text, size_t size)
{
    char filled[SG_SIZE_TEXT], read[SG_SIZE_TEXT];
    bool ran;
    uint64_t sum = sg_findings_checked_all(findings, &ran), frees = checked_total(findings, SG_STAT_checked_frees);
    *text = '\0';
    if (!ran)
        return text;
    int length = snprintf(text, size, "%" PRIu64 " free%s checked, %s filled, %s read back: ", frees, sg_plural(frees),
        sg_size_format(checked_total(findings, SG_STAT_check_filled_bytes), filled),
        sg_size_format(checked_total(findings, SG_STAT_check_read_bytes), read));
    if (!sum) {
        snprintf(text + length, size - (size_t)length, "nothing wrong");
        return text;
    }
    length += snprintf(text + length, size - (size_t)length, "%" PRIu64 " finding%s", sum, sg_plural(sum));
    for (int kind = 0, any = 0; kind < SG_FINDING_KINDS && (size_t)length < size; kind++) {
        uint64_t count = sg_findings_checked(findings, (enum sg_finding_kind)kind);
        if (count)
            length += snprintf(text + length, size - (size_t)length, "%s%s: %" PRIu64, any++ ? ", " : " (",
                sg_finding_words((enum sg_finding_kind)kind), count);
        if (any && kind + 1 == SG_FINDING_KINDS && (size_t)length < size)
            snprintf(text + length, size - (size_t)length, ")");
    }
    return text;
}

/* "allocated at train.py:12 in forward, in step, on stream 0x55d0, thread 4711, event 1". A site of 0 has no place. */
static void checked_note_text(const struct sg_findings *findings, const char *what, const struct sg_checked_note *note,
    const char *after, char text[LINE])
{
    char site[SG_SITE_TEXT], phase[SG_SITE_TEXT], stream[32] = "";
    sg_site_book_line(&findings->book, note->site, site);
    sg_site_book_phase(&findings->book, note->phase, phase);
    if (note->has_stream)
        snprintf(stream, sizeof stream, " on stream 0x%" PRIx64, note->stream);
    snprintf(text, LINE, "%s%s%s%s%s%s, thread %" PRIu32 ", event %" PRIu64 "%s%s", what, *site ? " at " : "", site,
        *phase ? ", in " : "", phase, stream, note->thread, note->event, *after ? ", " : "", after);
}

/* "5000 bytes (4.88 KiB)". */
static const char *checked_size_text(uint64_t bytes, char ret[64])
{
    char size[SG_SIZE_TEXT];
    if (bytes < SG_KIB)
        snprintf(ret, 64, "%" PRIu64 " bytes", bytes);
    else
        snprintf(ret, 64, "%" PRIu64 " bytes (%s)", bytes, sg_size_format(bytes, size));
    return ret;
}

static void checked_where(const struct sg_checked_finding *finding, sg_report_line_fn *say, void *user)
{
    char line[LINE], behind[64] = "";
    if (finding->offset >= finding->block_bytes)
        snprintf(behind, sizeof behind, ", %" PRIu64 " behind its end", finding->offset - finding->block_bytes);
    snprintf(line, LINE,
        "0x%" PRIx64 ", byte %" PRIu64 " of the block%s: 0x%08" PRIx32 " is there, 0x%08" PRIx32
        " was written; %" PRIu64 " of %" PRIu64 " bytes that were read differ, the last is byte %" PRIu64,
        finding->where, finding->offset, behind, finding->found, finding->written, finding->differ, finding->compared,
        finding->last);
    say(user, "where", line);
    if (!finding->moved)
        return;
    snprintf(line, LINE, "the page has moved since: the block was at 0x%" PRIx64, finding->block);
    say(user, "", line);
}

static void checked_block(const struct sg_findings *findings, const struct sg_checked_finding *finding,
    sg_report_line_fn *say, void *user)
{
    char line[LINE], size[64];
    snprintf(line, LINE, "%s at 0x%" PRIx64 " on device %" PRIu32, checked_size_text(finding->block_bytes, size),
        finding->block, finding->device);
    say(user, "block", line);
    checked_note_text(findings, "allocated", &finding->allocated, "", line);
    say(user, "", line);
    if (!finding->freed.event)
        return;
    checked_note_text(findings, "freed", &finding->freed, finding->order, line);
    say(user, "", line);
}

static void checked_now(const struct sg_findings *findings, const struct sg_checked_finding *finding,
    sg_report_line_fn *say, void *user)
{
    char line[LINE], size[64], what[96];
    if (finding->now_bytes) {
        snprintf(line, LINE, "%s at 0x%" PRIx64, checked_size_text(finding->now_bytes, size), finding->now);
        say(user, "now", line);
        checked_note_text(findings, "allocated", &finding->by, "", line);
        say(user, "", line);
    } else {
        const char *did = finding->kind == SG_FINDING_USE_AFTER_FREE ? "used" : "freed";
        if (finding->kind == SG_FINDING_GPU_FAULT) /* its address is not always known */
            snprintf(what, sizeof what, "the error was returned");
        else if (!finding->has_block)
            snprintf(what, sizeof what, "0x%" PRIx64 " was %s", finding->now, did);
        else
            snprintf(what, sizeof what, "0x%" PRIx64 ", byte %" PRIu64 " of the block, was %s", finding->now,
                finding->offset, did);
        checked_note_text(findings, what, &finding->by, "", line);
        say(user, "now", line);
    }
    if (!finding->freed.event || finding->by.event <= finding->freed.event)
        return;
    uint64_t events = finding->by.event - finding->freed.event - 1;
    snprintf(line, LINE, "%" PRIu64 " %s, %.3f ms", events,
        events == 1 ? "allocation or free" : "allocations and frees", (double)finding->between_ns / 1e6);
    say(user, "between", line);
}

void sg_report_checked_lines(const struct sg_findings *findings, const struct sg_checked_finding *finding,
    sg_report_line_fn *say, void *user)
{
    if (finding->has_block && finding->compared)
        checked_where(finding, say, user);
    if (finding->has_block)
        checked_block(findings, finding, say, user);
    if (finding->has_now)
        checked_now(findings, finding, say, user);
    if (finding->kind < SG_FINDING_KINDS)
        say(user, "likely", sg_finding_likely((enum sg_finding_kind)finding->kind));
}

static json_t *checked_json_note(const struct sg_findings *findings, const struct sg_checked_note *note)
{
    char text[SG_SITE_TEXT];
    json_t *result = sg_json_object(NULL);
    SG_JSON_NUMBERS(result, {"event", note->event}, {"thread", note->thread});
    sg_json_set_known(result, "stream", note->stream, note->has_stream);
    sg_site_book_line(&findings->book, note->site, text);
    sg_json_set_text(result, "site", *text ? text : NULL);
    sg_site_book_phase(&findings->book, note->phase, text);
    sg_json_set_text(result, "phase", *text ? text : NULL);
    return result;
}

static json_t *checked_json_finding(const struct sg_findings *findings, const struct sg_checked_finding *finding)
{
    json_t *result = sg_json_object(NULL), *block = json_null(), *now = json_null();
    sg_json_set_text(result, "finding", sg_report_checked_words(finding));
    SG_JSON_NUMBERS(result, {"device", finding->device});
    if (finding->has_block) {
        block = sg_json_object(NULL);
        SG_JSON_NUMBERS(block, {"address", finding->block}, {"bytes", finding->block_bytes});
        sg_json_set(block, "allocated", checked_json_note(findings, &finding->allocated));
        sg_json_set(block, "freed", finding->freed.event ? checked_json_note(findings, &finding->freed) : json_null());
        sg_json_set_text(block, "order", *finding->order ? finding->order : NULL);
    }
    if (finding->has_now) {
        now = sg_json_object(NULL);
        SG_JSON_NUMBERS(now, {"address", finding->now}, {"bytes", finding->now_bytes});
        sg_json_set(now, "by", checked_json_note(findings, &finding->by));
    }
    sg_json_set(result, "block", block);
    sg_json_set(result, "now", now);
    bool read = finding->compared;
    sg_json_set_known(result, "address", finding->where, finding->has_block);
    sg_json_set_known(result, "offset", finding->offset, finding->has_block);
    sg_json_set_known(result, "last", finding->last, read);
    sg_json_set_known(result, "differ", finding->differ, read);
    sg_json_set_known(result, "compared", finding->compared, read);
    sg_json_set_known(result, "written", finding->written, read);
    sg_json_set_known(result, "found", finding->found, read);
    sg_json_set_known(result, "missing", finding->missing, read);
    sg_json_set_flag(result, "moved", finding->moved);
    sg_json_set_known(result, "between_ns", finding->between_ns, finding->between_ns);
    return result;
}

json_t *sg_report_checked_json(const struct sg_findings *findings)
{
    bool ran;
    uint64_t sum = sg_findings_checked_all(findings, &ran);
    if (!ran)
        return json_null();
    json_t *result = sg_json_object(NULL), *kinds = sg_json_object(NULL), *found = sg_json_array();
    SG_JSON_NUMBERS(result, {"frees", checked_total(findings, SG_STAT_checked_frees)},
        {"filled_bytes", checked_total(findings, SG_STAT_check_filled_bytes)},
        {"read_bytes", checked_total(findings, SG_STAT_check_read_bytes)}, {"findings", sum});
    for (int kind = 0; kind < SG_FINDING_KINDS; kind++) {
        uint64_t count = sg_findings_checked(findings, (enum sg_finding_kind)kind);
        if (count)
            sg_json_set(kinds, sg_finding_words((enum sg_finding_kind)kind), sg_json_number(count));
    }
    sg_json_set(result, "kinds", kinds);
    for (uint32_t i = 0; i < sg_checked_kept(&findings->checked); i++)
        sg_json_add(found, checked_json_finding(findings, &findings->checked.finding[i]));
    sg_json_set(result, "found", found);
    return result;
}
