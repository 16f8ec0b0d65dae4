/* Findings are said line by line; finding_text.h has the parts that all of them share. */
#include "check/findings.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "base/size.h"
#include "check/finding_record.h"
#include "check/finding_text.h"
#include "check/guard_state.h"
#include "check/run_count.h"
#include "check/state.h"
#include "inspect/inventory.h"
#include "process/process.h"

enum { COUNTS_BYTES = 256 };

static bool as_json; /* set before there are findings */
static _Atomic uint64_t counts[SG_FINDING_KINDS];
static _Atomic uint64_t told[SG_FINDINGS_TOLD]; /* kind << 32 | site, plus 1, from its hash on; 0: free */
static _Atomic uint64_t not_told;        /* findings at places for which there was none free */

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

/* The place that stands for a finding: where the block was freed. Where that is not known, as of a wrong free, it is where the finding
   was made. So it is where a context's end has freed the block. */
static uint32_t finding_place(const struct sg_finding *finding)
{
    if (finding->block && finding->block->freed.site && finding->kind != SG_FINDING_GONE_FREE)
        return finding->block->freed.site;
    return finding->now ? finding->now->note.site : 0;
}

enum told { TOLD_ALREADY, TOLD_FIRST, TOLD_NO_ROOM };

/* Notes the kind and place of a finding. */
static enum told told_note(const struct sg_finding *finding)
{
    uint64_t key = ((uint64_t)finding->kind << 32 | finding_place(finding)) + 1,
             mixed = (uint32_t)(key ^ key >> 32) % SG_FINDINGS_TOLD;
    for (unsigned i = 0; i < SG_FINDINGS_TOLD; i++) {
        _Atomic uint64_t *slot = &told[(mixed + i) % SG_FINDINGS_TOLD];
        uint64_t none = 0;
        if (atomic_load(slot) == key)
            return TOLD_ALREADY;
        if (atomic_compare_exchange_strong(slot, &none, key))
            return TOLD_FIRST;
        if (none == key)
            return TOLD_ALREADY;
    }
    return TOLD_NO_ROOM;
}

/* The first byte that differs, by its address and by its offset, and how much differs. */
static void add_where(struct sg_finding_text *text, const struct sg_finding *finding)
{
    sg_text_print(text, "  where    0x%" PRIx64 ", byte %" PRIu64 " of the block", (uint64_t)finding->address,
        finding->offset);
    if (finding->offset >= finding->block->bytes)
        sg_text_print(text, ", %" PRIu64 " behind its end", finding->offset - finding->block->bytes);
    sg_text_print(text,
        ": 0x%08x is there, 0x%08x was written; %" PRIu64 " of %" PRIu64
        " bytes that were read differ, the last is byte %" PRIu64 "\n",
        finding->found, finding->filled, finding->differ, finding->compared, finding->last);
    if (finding->moved)
        sg_text_print(text, "           the page has moved since: the block was at 0x%" PRIx64 "\n",
            (uint64_t)finding->block->base);
}

/* The likely cause, and what to do next. */
static void add_advice(struct sg_finding_text *text, const struct sg_finding *finding)
{
    bool order = finding->kind == SG_FINDING_WRITE_AFTER_FREE || finding->kind == SG_FINDING_EARLY;
    sg_text_print(text, "  likely   %s\n",
        finding->late ? "the stream was not recorded for the block, or nobody waited for it; else the allocator has "
                        "taken it for complete"
                      : sg_finding_likely(finding->kind));
    if (order)
        sg_text_print(text, "  next     segalloc run --check --conf free_sync:strict -- CMD: found there too, it is "
                            "the program's own; else keep a trace (-o check.trace) and report it\n");
    else
        sg_text_print(text, "  next     look at the place above%s\n",
            finding->block && finding->block->allocated.site ? "" : "; segalloc run --sites names it");
}

/* The block that has the memory now, or the free that was refused; and how long after the free that was. An overrun has
   one block only. */
static void add_now(struct sg_finding_text *text, const struct sg_finding *finding)
{
    const struct sg_check_block *now = finding->now;
    if (!now)
        return;
    if (finding->kind == SG_FINDING_OVERRUN)
        return;
    sg_text_print(text, "  now      ");
    if (now->bytes) {
        sg_text_size(text, now->bytes);
        sg_text_print(text, " at 0x%" PRIx64 "\n", (uint64_t)now->address);
        sg_text_note(text, "           allocated", &now->note);
    } else {
        sg_text_print(text, "0x%" PRIx64, (uint64_t)now->address);
        if (finding->block)
            sg_text_print(text, ", byte %" PRIu64 " of the block,", finding->offset);
        if (finding->call)
            sg_text_print(text, " was named by %s", finding->call);
        sg_text_note(text, finding->call ? "" : " was freed", &now->note);
    }
    sg_text_print(text, "\n");
    if (finding->block && finding->block->freed.event && now->note.event > finding->block->freed.event) {
        uint64_t events = now->note.event - finding->block->freed.event - 1;
        sg_text_print(text, "  between  %" PRIu64 " %s, %.3f ms\n", events,
            events == 1 ? "allocation or free" : "allocations and frees",
            (double)(now->note.ns - finding->block->freed.ns) / 1e6);
    }
}

/* A finding as a block of text. Each line but the first begins with two spaces and what it is about. */
static void say_text(const struct sg_finding *finding)
{
    struct sg_finding_text text = {.length = 0};
    sg_text_print(&text, "segalloc: check: %s", sg_finding_words(finding->kind));
    if (finding->missing)
        sg_text_print(&text, " (%d of its streams had not come to the free)", __builtin_popcountll(finding->missing));
    sg_text_print(&text, "\n");
    if (finding->late)
        sg_text_print(&text,
            "  where    work of stream 0x%" PRIxPTR " that used the block was not over when its next owner began\n",
            (uintptr_t)finding->late_stream);
    if (finding->block && finding->differ)
        add_where(&text, finding);
    if (finding->block)
        sg_text_block(&text, finding->block);
    add_now(&text, finding);
    add_advice(&text, finding);
    sg_text_write(&text);
}

/* A finding as an object on one line, with the same things as the text. Addresses are numbers, as in traces. */
static void say_json(const struct sg_finding *finding)
{
    struct sg_finding_text text = {.length = 0};
    sg_text_print(&text, "segalloc: check: {\"finding\":\"%s\",\"pid\":%ld", sg_finding_words(finding->kind),
        (long)getpid());
    if (finding->block) {
        const struct sg_freed *block = finding->block;
        sg_text_print(&text, ",\"block\":{\"address\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"device\":%d",
            (uint64_t)block->base, block->bytes, block->device);
        sg_text_json_note(&text, "allocated", &block->allocated);
        if (block->freed.event)
            sg_text_json_note(&text, "freed", &block->freed);
        sg_text_print(&text, "}");
    }
    if (finding->compared)
        sg_text_print(&text,
            ",\"address\":%" PRIu64 ",\"offset\":%" PRIu64 ",\"last\":%" PRIu64 ",\"differ\":%" PRIu64
            ",\"compared\":%" PRIu64 ",\"written\":%u,\"found\":%u,\"missing\":%" PRIu64 ",\"moved\":%s",
            (uint64_t)finding->address, finding->offset, finding->last, finding->differ, finding->compared,
            finding->filled, finding->found, finding->missing, finding->moved ? "true" : "false");
    if (finding->call)
        sg_text_json(&text, "call", finding->call);
    if (finding->now) {
        sg_text_print(&text, ",\"now\":{\"address\":%" PRIu64 ",\"bytes\":%" PRIu64, (uint64_t)finding->now->address,
            finding->now->bytes);
        sg_text_json_note(&text, "by", &finding->now->note);
        sg_text_print(&text, "}");
    }
    sg_text_print(&text, "}\n");
    sg_text_write(&text);
}

/* Each finding is counted, in the process and in the statistics of its device. The first of its kind and place goes to the trace
   and to standard error.

   The counts, the trace and the text. `say`: what says it; NULL: the usual text. */
static void findings_add(const struct sg_finding *finding, sg_finding_say_fn *say, const void *user)
{
    struct sg_core *core = sg_process_core();
    int device = finding->device;
    atomic_fetch_add(&counts[finding->kind], 1);
    sg_run_count_add();
    if (core)
        sg_core_count(core, device, sg_finding_stat(finding->kind), 1);
    switch (told_note(finding)) {
    case TOLD_ALREADY:
        return;
    case TOLD_NO_ROOM:
        atomic_fetch_add(&not_told, 1);
        if (core)
            sg_core_count(core, device, SG_STAT_check_not_told, 1);
        return;
    case TOLD_FIRST:
        break;
    }
    sg_finding_record(finding);
    if (say)
        say(finding, as_json, user);
    else if (as_json)
        say_json(finding);
    else
        say_text(finding);
}

void sg_findings_add(const struct sg_finding *finding)
{
    findings_add(finding, NULL, NULL);
}

void sg_findings_add_by(const struct sg_finding *finding, sg_finding_say_fn *say, const void *user)
{
    findings_add(finding, say, user);
}

uint64_t sg_findings_of(enum sg_finding_kind kind)
{
    return atomic_load_explicit(&counts[kind], memory_order_relaxed);
}

/* Mistakes that guards have shown by the access itself, and not by bytes that changed. */
static uint64_t guard_faults(void)
{
    return sg_findings_of(SG_FINDING_GPU_FAULT) + sg_findings_of(SG_FINDING_USE_AFTER_FREE);
}

void sg_findings_end(uint64_t frees, uint64_t filled, uint64_t read, const char *left_out)
{
    char number[32], guards[COUNTS_BYTES], filled_text[SG_SIZE_TEXT], read_text[SG_SIZE_TEXT];
    struct sg_finding_text text = {.length = 0};
    uint64_t found = sg_findings_count();
    if (as_json) {
        sg_text_print(&text,
            "segalloc: check: {\"end\":true,\"pid\":%ld,\"frees\":%" PRIu64 ",\"filled\":%" PRIu64 ",\"read\":%" PRIu64
            ",\"findings\":%" PRIu64 ",\"not_told\":%" PRIu64,
            (long)getpid(), frees, filled, read, found, atomic_load(&not_told));
        sg_text_json(&text, "not_looked_at", left_out);
        if (sg_check_parts & SG_CHECK_GUARD) {
            sg_text_print(&text, ",\"guarded\":%" PRIu64 ",\"quarantine\":%u,\"faults\":%" PRIu64, sg_guard_count(),
                sg_guard_freed_count(), guard_faults());
            sg_guard_write_counts(guards, sizeof guards);
            sg_text_json(&text, "not_guarded", guards);
        }
        sg_text_print(&text, "}\n");
        sg_text_write(&text);
        return;
    }
    sg_text_print(&text, "segalloc: check: checked %s free%s, %s filled, %s read back", sg_text_number(frees, number),
        sg_plural(frees), sg_size_format(filled, filled_text), sg_size_format(read, read_text));
    sg_guard_write_counts(guards, sizeof guards);
    if (sg_check_parts & SG_CHECK_GUARD)
        sg_text_print(&text, ", guarded %s block%s%s%s%s, %u in quarantine, %" PRIu64 " fault%s",
            sg_text_number(sg_guard_count(), number), sg_plural(sg_guard_count()), *guards ? " (not guarded: " : "",
            guards, *guards ? ")" : "", sg_guard_freed_count(), guard_faults(), sg_plural(guard_faults()));
    sg_text_print(&text, ": ");
    if (!found)
        sg_text_print(&text, "nothing wrong");
    else
        sg_text_print(&text, "%s finding%s (", sg_text_number(found, number), sg_plural(found));
    for (int i = 0, any = 0; i < SG_FINDING_KINDS; i++) {
        uint64_t count = atomic_load(&counts[i]);
        if (count)
            sg_text_print(&text, "%s%s: %s", any++ ? ", " : "", sg_finding_words((enum sg_finding_kind)i),
                sg_text_number(count, number));
    }
    if (atomic_load(&not_told))
        sg_text_print(&text, "; %s of them not told, since %d places were told before",
            sg_text_number(atomic_load(&not_told), number), SG_FINDINGS_TOLD);
    sg_text_print(&text, "%s%s%s\n", found ? ")" : "", *left_out ? ". Not looked at: " : "", left_out);
    sg_text_write(&text);
}
