/* Texts are made in one buffer on the stack and written by one call, as the lines of log.h. */
#include "check/findings.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/rest.h"
#include "base/size.h"
#include "check/finding_record.h"
#include "inspect/inventory.h"
#include "process/log.h"
#include "process/process.h"
#include "services/recorder.h"
#include "sites/sites.h"

enum { TEXT_BYTES = 4096, TOLD_MOST = 16, SITE_BYTES = 400 };

static bool as_json; /* set before there are findings */
static _Atomic uint64_t counts[SG_FINDING_KINDS];
static _Atomic uint64_t told[TOLD_MOST]; /* kind << 32 | site, plus 1; 0: free */

void sg_findings_open(bool json)
{
    as_json = json;
}

uint64_t sg_findings_count(void)
{
    uint64_t sum = 0;
    for (int i = 0; i < SG_FINDING_KINDS; i++)
        sum += atomic_load_explicit(&counts[i], memory_order_relaxed);
    return sum;
}

/* True for the first of its kind and place. */
static bool is_new(const struct sg_finding *finding)
{
    uint64_t key = ((uint64_t)finding->kind << 32 | (finding->block ? finding->block->freed.site : 0)) + 1;
    for (int i = 0; i < TOLD_MOST; i++) {
        uint64_t none = 0;
        if (atomic_load(&told[i]) == key)
            return false;
        if (atomic_compare_exchange_strong(&told[i], &none, key))
            return true;
        if (none == key)
            return false;
    }
    return false;
}

struct text {
    char at[TEXT_BYTES];
    size_t length;
};

__attribute__((format(printf, 2, 3))) static void findings_print(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int wrote = vsnprintf(text->at + text->length, TEXT_BYTES - text->length, format, arguments);
    va_end(arguments);
    if (wrote > 0)
        text->length += (size_t)wrote < TEXT_BYTES - text->length ? (size_t)wrote : TEXT_BYTES - text->length - 1;
}

/* Writes the text to standard error by one call. One that was cut ends with its line. */
static void text_write(struct text *text)
{
    int cancel = sg_cancel_off();
    if (text->length && text->at[text->length - 1] != '\n')
        text->at[text->length - 1] = '\n';
    ssize_t written = write(STDERR_FILENO, text->at, text->length);
    (void)written;
    sg_cancel_restore(cancel);
}

/* "at train.py:12 in step, on stream 0x55d0, by thread 4711 (event 1,204)". A site of 0 has no place. */
static void add_note(struct text *text, const char *what, const struct sg_check_note *note)
{
    char site[SITE_BYTES];
    findings_print(text, "%s", what);
    if (sg_sites_describe(note->site, site, sizeof site))
        findings_print(text, " at %s", site);
    if (note->has_stream)
        findings_print(text, " on stream 0x%" PRIxPTR, (uintptr_t)note->stream);
    findings_print(text, ", thread %ld, event %" PRIu64, note->thread, note->event);
}

/* "5000 bytes (4.88 KiB)". */
static void add_size(struct text *text, uint64_t bytes)
{
    char size[SG_SIZE_TEXT];
    findings_print(text, "%" PRIu64 " bytes", bytes);
    if (bytes >= SG_KIB)
        findings_print(text, " (%s)", sg_size_format(bytes, size));
}

/* The block before: where it was, who allocated it, and who freed it in which order. A live one has no free. */
static void add_block(struct text *text, const struct sg_freed *block)
{
    findings_print(text, "  block    ");
    add_size(text, block->bytes);
    findings_print(text, " at 0x%" PRIx64 " on device %d\n", (uint64_t)block->base, block->device);
    add_note(text, "           allocated", &block->allocated);
    findings_print(text, "\n");
    if (!block->freed.event)
        return;
    add_note(text, "           freed", &block->freed);
    findings_print(text, "%s%s\n", block->order ? ", " : "", block->order ? block->order : "");
}

/* The first byte that differs, by its address and by its offset, and how much differs. */
static void add_where(struct text *text, const struct sg_finding *finding)
{
    findings_print(text, "  where    0x%" PRIx64 ", byte %" PRIu64 " of the block", (uint64_t)finding->address, finding->offset);
    if (finding->offset >= finding->block->bytes)
        findings_print(text, ", %" PRIu64 " behind its end", finding->offset - finding->block->bytes);
    findings_print(text, ": 0x%08x is there, 0x%08x was written; %" PRIu64 " of %" PRIu64 " bytes that were read differ, the last is byte %" PRIu64 "\n",
        finding->found, finding->filled, finding->differ, finding->compared, finding->last);
    if (finding->moved)
        findings_print(text, "           the page has moved since: the block was at 0x%" PRIx64 "\n", (uint64_t)finding->block->base);
}

/* The likely cause, and what to do next. */
static void add_advice(struct text *text, const struct sg_finding *finding)
{
    bool order = finding->kind == SG_FINDING_WRITE_AFTER_FREE || finding->kind == SG_FINDING_EARLY;
    findings_print(text, "  likely   %s\n", sg_finding_likely(finding->kind));
    if (order)
        findings_print(text, "  next     segalloc run --check --conf free_sync:strict -- CMD: found there too, it is the program's own; else keep a trace (-o check.trace) and report it\n");
    else
        findings_print(text, "  next     look at the place above%s\n",
            finding->block && finding->block->allocated.site ? "" : "; segalloc run --sites names it");
}

/* The block that has the memory now, or the free that was refused; and how long after the free that was. An overrun has
   one block only. */
static void add_now(struct text *text, const struct sg_finding *finding)
{
    const struct sg_check_block *now = finding->now;
    if (!now)
        return;
    if (finding->kind == SG_FINDING_OVERRUN)
        return;
    findings_print(text, "  now      ");
    if (now->bytes) {
        add_size(text, now->bytes);
        findings_print(text, " at 0x%" PRIx64 "\n", (uint64_t)now->address);
        add_note(text, "           allocated", &now->note);
    } else {
        findings_print(text, "0x%" PRIx64, (uint64_t)now->address);
        if (finding->block)
            findings_print(text, ", byte %" PRIu64 " of the block,", finding->offset);
        add_note(text, " was freed", &now->note);
    }
    findings_print(text, "\n");
    if (finding->block && finding->block->freed.event && now->note.event > finding->block->freed.event)
        findings_print(text, "  between  %" PRIu64 " allocations and frees, %.3f ms\n", now->note.event - finding->block->freed.event - 1,
            (double)(now->note.ns - finding->block->freed.ns) / 1e6);
}

/* A finding as a block of text. Each line but the first begins with two spaces and what it is about. */
static void say_text(const struct sg_finding *finding)
{
    struct text text = {.length = 0};
    findings_print(&text, "segalloc: check: %s", sg_finding_words(finding->kind));
    if (finding->missing)
        findings_print(&text, " (%d of its streams had not come to the free)", __builtin_popcountll(finding->missing));
    findings_print(&text, "\n");
    if (finding->block && finding->compared)
        add_where(&text, finding);
    if (finding->block)
        add_block(&text, finding->block);
    add_now(&text, finding);
    add_advice(&text, finding);
    text_write(&text);
}

/* A string of JSON without what would end it or the line. */
static void add_json_text(struct text *text, const char *key, const char *value)
{
    findings_print(text, ",\"%s\":\"", key);
    for (; *value; value++) {
        if (*value == '"' || *value == '\\')
            findings_print(text, "\\%c", *value);
        else if ((unsigned char)*value >= ' ')
            findings_print(text, "%c", *value);
    }
    findings_print(text, "\"");
}

/* A note as an object: "freed":{"event":2,"thread":4711,"ns":1205,"stream":94,"site":"train.py:20"}. */
static void add_json_note(struct text *text, const char *what, const struct sg_check_note *note)
{
    char site[SITE_BYTES];
    findings_print(text, ",\"%s\":{\"event\":%" PRIu64 ",\"thread\":%ld,\"ns\":%" PRIu64, what, note->event, note->thread, note->ns);
    if (note->has_stream)
        findings_print(text, ",\"stream\":%" PRIuPTR, (uintptr_t)note->stream);
    if (sg_sites_describe(note->site, site, sizeof site))
        add_json_text(text, "site", site);
    findings_print(text, "}");
}

/* A finding as an object on one line, with the same things as the text. Addresses are numbers, as in traces. */
static void say_json(const struct sg_finding *finding)
{
    struct text text = {.length = 0};
    findings_print(&text, "segalloc: check: {\"finding\":\"%s\",\"pid\":%ld", sg_finding_words(finding->kind),
        (long)getpid());
    if (finding->block) {
        const struct sg_freed *block = finding->block;
        findings_print(&text, ",\"block\":{\"address\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"device\":%d", (uint64_t)block->base,
            block->bytes, block->device);
        add_json_note(&text, "allocated", &block->allocated);
        if (block->freed.event)
            add_json_note(&text, "freed", &block->freed);
        findings_print(&text, "}");
    }
    if (finding->compared)
        findings_print(&text, ",\"address\":%" PRIu64 ",\"offset\":%" PRIu64 ",\"last\":%" PRIu64 ",\"differ\":%" PRIu64
                        ",\"compared\":%" PRIu64 ",\"written\":%u,\"found\":%u,\"missing\":%" PRIu64 ",\"moved\":%s",
            (uint64_t)finding->address, finding->offset, finding->last, finding->differ, finding->compared,
            finding->filled, finding->found, finding->missing, finding->moved ? "true" : "false");
    if (finding->now) {
        findings_print(&text, ",\"now\":{\"address\":%" PRIu64 ",\"bytes\":%" PRIu64, (uint64_t)finding->now->address,
            finding->now->bytes);
        add_json_note(&text, "by", &finding->now->note);
        findings_print(&text, "}");
    }
    findings_print(&text, "}\n");
    text_write(&text);
}

void sg_findings_add(const struct sg_finding *finding)
{
    struct sg_core *core = sg_process_core();
    int device = finding->device;
    atomic_fetch_add(&counts[finding->kind], 1);
    if (core)
        sg_core_count(core, device, sg_finding_stat(finding->kind), 1);
    if (!is_new(finding))
        return;
    sg_finding_record(finding);
    if (as_json)
        say_json(finding);
    else
        say_text(finding);
}

/* "213,440". */
static const char *with_commas(uint64_t number, char ret[32])
{
    char plain[24];
    int digits = snprintf(plain, sizeof plain, "%" PRIu64, number), at = 0;
    for (int i = 0; i < digits; i++) {
        if (i && (digits - i) % 3 == 0)
            ret[at++] = ',';
        ret[at++] = plain[i];
    }
    ret[at] = '\0';
    return ret;
}

void sg_findings_end(uint64_t frees, uint64_t filled, uint64_t read, const char *left_out)
{
    char number[32], filled_text[SG_SIZE_TEXT], read_text[SG_SIZE_TEXT];
    struct text text = {.length = 0};
    uint64_t found = sg_findings_count();
    if (as_json) {
        findings_print(&text, "segalloc: check: {\"end\":true,\"pid\":%ld,\"frees\":%" PRIu64 ",\"filled\":%" PRIu64 ",\"read\":%" PRIu64
                        ",\"findings\":%" PRIu64,
            (long)getpid(), frees, filled, read, found);
        add_json_text(&text, "not_looked_at", left_out);
        findings_print(&text, "}\n");
        text_write(&text);
        return;
    }
    findings_print(&text, "segalloc: check: checked %s frees, %s filled, %s read back: ", with_commas(frees, number),
        sg_size_format(filled, filled_text), sg_size_format(read, read_text));
    if (!found)
        findings_print(&text, "nothing wrong");
    else
        findings_print(&text, "%s finding%s (", with_commas(found, number), sg_plural(found));
    for (int i = 0, any = 0; i < SG_FINDING_KINDS; i++) {
        uint64_t count = atomic_load(&counts[i]);
        if (count)
            findings_print(&text, "%s%s: %s", any++ ? ", " : "", sg_finding_words((enum sg_finding_kind)i),
                with_commas(count, number));
    }
    findings_print(&text, "%s%s%s\n", found ? ")" : "", *left_out ? ". Not looked at: " : "", left_out);
    text_write(&text);
}
