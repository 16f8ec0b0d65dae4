/* Tables of sites, lines and texts in one mapping of some tens of MiB, of which the kernel makes pages only as they are
   used.

   Readers take no lock: a site is whole before its number is stored in a bucket, and never changes after that. Writers
   hold SG_LOCK_SITES. `written` says which trace has the definition; a forked child has another trace, so it writes
   them anew.

   For example, stack 12 is met by two threads at once. Both find no bucket with its hash and take the lock one after
   the other. The second finds it in a bucket by then and takes that number. */
#include "process/glibc_symver.h"

#include "sites/sites.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "sites/backward.h"
#include "process/process.h"
#include "process/symbols.h"
#include "base/meta.h"
#include "sites/unwind.h"
#include "sites/python_stack.h"
#include "services/recorder.h"
#include "segalloc/trace_format.h"
#include "base/site.h"
#include "base/wrap.h"

enum {
    INNER_FRAMES = 16,
    OUTER_FRAMES = 6, /* of a deeper stack: where the program's own file is, under a trainer */
    FRAMES_MOST = INNER_FRAMES + 1 + OUTER_FRAMES, /* and the gap between them */
    SITES_MOST = 1 << 16,
    TEXTS_MOST = 1 << 15,
    TEXT_BYTES = 512, /* of one, with its end */
    ARENA_BYTES = 4 << 20,
    PIECE_BYTES = 16
};
_Static_assert(FRAMES_MOST <= SEGALLOC_TRACE_FRAMES && TEXT_BYTES <= SEGALLOC_TRACE_TEXT, "readers take no more");
_Static_assert((int)OUTER_FRAMES <= (int)SG_OUTER_FRAMES_MOST, "the outermost frames are put in order there");

/* The names of a frame; texts by number. */
struct line {
    uint32_t file, function, line;
};

enum kind {
    PYTHON,
    NATIVE,  /* frames are return addresses, and their lines offsets in modules */
    BACKWARD /* the only frame is a node's class, and `at` the site that it ran forward at, whose lines these are */
};

/* A stack that was met. All but `written` is as it is once a slot leads to it. */
struct site {
    struct sg_frame frame[FRAMES_MOST];
    struct line line[FRAMES_MOST];
    uint64_t hash;
    uint32_t frames, lines;
    uint32_t shown;            /* the first site that shows the same line */
    uint32_t best;             /* the frame whose line that is */
    enum kind kind;
    _Atomic uint32_t written; /* the trace that has it (`trace`); 0: none */
};

struct text {
    uint32_t at, written;
};

struct table {
    struct site site[SITES_MOST];            /* by number; [0] is none */
    _Atomic uint32_t bucket[2 * SITES_MOST]; /* by hash of the frames */
    uint32_t shown_bucket[2 * SITES_MOST];   /* by hash of the line that is shown: the first such site */
    struct text text[TEXTS_MOST];            /* [0] is "" */
    uint32_t text_bucket[2 * TEXTS_MOST];
    char arena[ARENA_BYTES];
    struct sg_unwinder unwinder;
};

/* Guarded by SG_LOCK_SITES, as is what the table holds; readers of what is atomic need none. */
static struct {
    _Atomic(struct table *) table;
    uint32_t sites, texts, arena_used;
    _Atomic uint32_t trace; /* from 1: counts the traces of this process and of those that it was forked from */
} sites = {.sites = 1, .texts = 1, .arena_used = 1, .trace = 1};

bool sg_sites_on;

/* The first of two threads maps the table; the other one's mapping is given back. */
bool sg_sites_open(const struct sg_conf *conf)
{
    struct table *none = NULL;
    if (!conf->sites || atomic_load(&sites.table))
        return conf->sites;
    struct table *table = sg_meta_map(sizeof *table);
    if (table && !atomic_compare_exchange_strong(&sites.table, &none, table))
        sg_meta_unmap(table, sizeof *table);
    return sg_sites_on = table != NULL;
}

/* A hash over words: multiplied by 2^64 over the golden ratio, then folded, so that all bits count in the lower ones.
   */
static uint64_t hash_of(const void *bytes, size_t words)
{
    const uint64_t *word = bytes;
    uint64_t sum = words;
    for (size_t i = 0; i < words; i++) {
        sum = (sum ^ word[i]) * UINT64_C(0x9e3779b97f4a7c15);
        sum ^= sum >> 32;
    }
    return sum;
}

/* The number of a stack; 0: it was not met before. No lock. */
static uint32_t site_find(struct table *table, const struct sg_frame *frame, uint32_t frames, uint64_t hash)
{
    for (uint64_t i = hash;; i++) {
        uint32_t number = atomic_load_explicit(&table->bucket[i % (2 * SITES_MOST)], memory_order_acquire);
        const struct site *site = &table->site[number];
        if (!number || (site->hash == hash && site->frames == frames &&
                           memcmp(site->frame, frame, frames * sizeof *frame) == 0))
            return number;
    }
}

/* The number of a text, which is kept; 0: it is empty, or there is no room for it. */
static uint32_t intern_locked(struct table *table, const char *bytes)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_SITES);
    size_t length = strlen(bytes) + 1;
    uint64_t hash = SG_FNV_BASIS;
    if (!*bytes)
        return 0;
    for (size_t i = 0; i < length; i++)
        hash = sg_fnv(hash, (unsigned char)bytes[i]);
    uint32_t *bucket;
    for (uint64_t i = hash;; i++) {
        bucket = &table->text_bucket[i % (2 * TEXTS_MOST)];
        if (!*bucket || strcmp(table->arena + table->text[*bucket].at, bytes) == 0)
            break;
    }
    if (*bucket)
        return *bucket;
    if (sites.texts == TEXTS_MOST || length > ARENA_BYTES - sites.arena_used)
        return 0;
    table->text[sites.texts] = (struct text){.at = sites.arena_used};
    memcpy(table->arena + sites.arena_used, bytes, length);
    sites.arena_used += (uint32_t)length;
    return *bucket = sites.texts++;
}

/* The first site that shows the same line as this one, which may be itself. */
static uint32_t shown_by_locked(struct table *table, uint32_t number)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_SITES);
    const struct line *line = &table->site[number].line[table->site[number].best];
    enum kind kind = table->site[number].kind;
    uint64_t words[2] = {(uint64_t)line->file << 32 | line->function, (uint64_t)kind << 32 | line->line};
    for (uint64_t i = hash_of(words, 2);; i++) {
        uint32_t *bucket = &table->shown_bucket[i % (2 * SITES_MOST)];
        const struct site *other = &table->site[*bucket];
        if (!*bucket)
            *bucket = number;
        if (*bucket == number || (other->kind == kind && memcmp(&other->line[other->best], line, sizeof *line) == 0))
            return *bucket;
    }
}

struct described {
    char file[TEXT_BYTES], function[TEXT_BYTES];
    uint32_t line;
};

/* Names each line of a stack. Python is asked while the thread still stands there. The loader describes return
   addresses. A backward node has its class and its forward site. */
static void site_describe(const struct sg_frame *frame, enum kind kind, struct described *ret)
{
    if (kind != BACKWARD && sg_frame_is_gap(frame)) {
        *ret = (struct described){.file = SG_SITE_GAP};
        return;
    }
    bool fine = kind == PYTHON   ? sg_python_describe(frame, ret->file, ret->function, TEXT_BYTES, &ret->line)
                : kind == NATIVE ? sg_unwind_describe(frame->code, ret->file, ret->function, TEXT_BYTES, &ret->line)
                                 : false;
    if (fine)
        return;
    *ret = (struct described){.file = "code made at run time"};
    if (kind != BACKWARD)
        return;
    strcpy(ret->file, "backward");
    (void)sg_backward_name(frame->code, ret->function, TEXT_BYTES);
}

/* Gives a site its lines. */
static void put_lines_locked(struct table *table, struct site *site, const struct described *said)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_SITES);
    const struct site *forward = &table->site[site->kind == BACKWARD ? site->frame[0].at : 0];
    enum sg_site_rank best = SG_SITE_SYSTEM;
    if (forward->lines) {
        memcpy(site->line, forward->line, sizeof site->line);
        site->lines = forward->lines;
        site->best = forward->best;
        return;
    }
    site->lines = site->frames;
    for (uint32_t i = 0; i < site->frames; i++) {
        site->line[i] =
            (struct line){intern_locked(table, said[i].file), intern_locked(table, said[i].function), said[i].line};
        enum sg_site_rank rank = i < INNER_FRAMES ? sg_site_rank(said[i].file) : SG_SITE_SYSTEM;
        if (rank < best) {
            best = rank;
            site->best = i;
        }
    }
}

/* Takes in a stack that was not met before. Its number; 0: there is no room. */
static uint32_t site_make(struct table *table, const struct sg_frame *frame, uint32_t frames, uint64_t hash,
    enum kind kind)
{
    struct described said[FRAMES_MOST];
    for (uint32_t i = 0; i < frames; i++)
        site_describe(&frame[i], kind, &said[i]);
    sg_backward_look();
    sg_process_lock(SG_LOCK_SITES);
    uint32_t number = site_find(table, frame, frames, hash);
    if (!number && sites.sites < SITES_MOST) {
        struct site *site = &table->site[number = sites.sites++];
        memcpy(site->frame, frame, frames * sizeof *frame);
        site->hash = hash;
        site->frames = frames;
        site->kind = kind;
        put_lines_locked(table, site, said);
        site->shown = shown_by_locked(table, number);
        uint64_t i = hash;
        while (atomic_load_explicit(&table->bucket[i % (2 * SITES_MOST)], memory_order_relaxed))
            i++;
        atomic_store_explicit(&table->bucket[i % (2 * SITES_MOST)], number, memory_order_release);
    }
    sg_process_unlock(SG_LOCK_SITES);
    return number;
}

/* False: the trace has not taken it. */
static bool write_text_locked(struct table *table, uint32_t number, uint32_t trace)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_SITES);
    struct segalloc_trace_record piece[TEXT_BYTES / PIECE_BYTES];
    struct text *text = &table->text[number];
    const char *from = table->arena + text->at;
    size_t length = strlen(from);
    uint32_t pieces = 0;
    if (!number || text->written == trace)
        return true;
    do {
        char bytes[PIECE_BYTES] = {0};
        size_t part = length < PIECE_BYTES ? length : PIECE_BYTES;
        memcpy(bytes, from, part);
        piece[pieces] = (struct segalloc_trace_record){.kind = SEGALLOC_RECORD_DEFINE_TEXT, .stream = number,
            .flags = (pieces ? 0 : SEGALLOC_FLAG_FIRST) | (part == length ? SEGALLOC_FLAG_LAST : 0)};
        memcpy(&piece[pieces].id, bytes, sizeof piece->id);
        memcpy(&piece[pieces].size, bytes + sizeof piece->id, sizeof piece->size);
        from += part;
        length -= part;
        pieces++;
    } while (length);
    if (!sg_recorder_define(piece, pieces))
        return false;
    text->written = trace;
    return true;
}

/* A text that is there costs the lock and a look. 0 where the arena is full. */
uint32_t sg_sites_intern(const char *text)
{
    char cut[TEXT_BYTES];
    struct table *table = atomic_load_explicit(&sites.table, memory_order_acquire);
    size_t length = strlen(text);
    length = length < sizeof cut ? length : sizeof cut - 1;
    memcpy(cut, text, length);
    cut[length] = '\0';
    sg_process_lock(SG_LOCK_SITES);
    uint32_t number = intern_locked(table, cut);
    sg_process_unlock(SG_LOCK_SITES);
    return number;
}

const char *sg_sites_text(uint32_t text)
{
    const struct table *table = atomic_load_explicit(&sites.table, memory_order_acquire);
    return table->arena + table->text[text].at;
}

uint32_t sg_sites_trace(void)
{
    return atomic_load_explicit(&sites.trace, memory_order_relaxed);
}

bool sg_sites_write_text(uint32_t text)
{
    sg_process_lock(SG_LOCK_SITES);
    bool whole = write_text_locked(atomic_load(&sites.table), text, sg_sites_trace());
    sg_process_unlock(SG_LOCK_SITES);
    return whole;
}

static __attribute__((noinline)) void write_site(struct table *table, uint32_t number)
{
    struct segalloc_trace_record piece[FRAMES_MOST];
    struct site *site = &table->site[number];
    static const uint8_t flags[] = {[NATIVE] = SEGALLOC_FLAG_NATIVE, [BACKWARD] = SEGALLOC_FLAG_BACKWARD};
    bool whole = true;
    sg_process_lock(SG_LOCK_SITES);
    uint32_t trace = atomic_load(&sites.trace);
    for (uint32_t i = 0; i < site->lines && whole; i++) {
        const struct line *line = &site->line[i];
        whole = write_text_locked(table, line->file, trace) && write_text_locked(table, line->function, trace);
        piece[i] = (struct segalloc_trace_record){.kind = SEGALLOC_RECORD_DEFINE_SITE, .stream = number,
            .flags = (i ? 0 : SEGALLOC_FLAG_FIRST) | (i + 1 == site->lines ? SEGALLOC_FLAG_LAST : 0) |
                flags[site->kind],
            .id = (uint64_t)line->file << 32 | line->function, .size = line->line};
    }
    if (whole && sg_recorder_define(piece, site->lines))
        atomic_store_explicit(&site->written, trace, memory_order_relaxed);
    sg_process_unlock(SG_LOCK_SITES);
}

/* Where a thread is that runs no Python. */
static __attribute__((noinline)) uint32_t other_frames(struct table *table, struct sg_thread *self,
    struct sg_frame ret[FRAMES_MOST], enum kind *ret_kind)
{
    struct sg_backward backward;
    if (sg_backward_now(&backward)) {
        *ret_kind = BACKWARD;
        ret[0] = (struct sg_frame){backward.forward ? 0 : backward.type, backward.forward};
        return 1;
    }
    *ret_kind = NATIVE;
    return sg_unwind_frames(&table->unwinder, &self->place.stack, ret, FRAMES_MOST, OUTER_FRAMES);
}

/* Frames of Python, else of a backward node, else return addresses. The hash finds the number without a lock; only a
   new stack is described, and only the first use in a trace is written. */
void sg_sites_note_stack(struct sg_thread *self)
{
    struct table *table = atomic_load_explicit(&sites.table, memory_order_acquire);
    struct sg_frame frame[FRAMES_MOST];
    uint32_t frames = sg_python_frames(frame, FRAMES_MOST, OUTER_FRAMES), number = 0;
    enum kind kind = PYTHON;
    if (!frames)
        frames = other_frames(table, self, frame, &kind);
    if (frames) {
        uint64_t hash = hash_of(frame, frames * sizeof *frame / sizeof(uint64_t));
        number = site_find(table, frame, frames, hash);
        if (__builtin_expect(!number, 0))
            number = site_make(table, frame, frames, hash, kind);
    }
    if (number && atomic_load_explicit(&table->site[number].written, memory_order_relaxed) !=
                      atomic_load_explicit(&sites.trace, memory_order_relaxed))
        write_site(table, number);
    if (kind == PYTHON && number)
        sg_backward_forward(self, number);
    self->place.site = number;
    self->place.shown = table->site[number].shown;
}

/* The C++ runtime of the program writes its names. */
static void site_plain_name(const char *name, char *ret, size_t size)
{
    sg_site_demangle_fn *demangle;
    void *library = sg_library_find("libstdc++.so");
    void *symbol = library ? sg_dlsym()(library, "__cxa_demangle") : NULL;
    memcpy(&demangle, &symbol, sizeof symbol);
    sg_site_plain_name(demangle, name, ret, size);
    if (library)
        sg_library_close(library);
}

/* One line: the best frame of a stack, as the report shows it. */
bool sg_sites_describe(uint32_t site, char *text, size_t size)
{
    const struct table *table = atomic_load_explicit(&sites.table, memory_order_acquire);
    if (!table || !site || site >= SITES_MOST || !table->site[site].frames)
        return false;
    const struct line *line = &table->site[site].line[table->site[site].best];
    const char *file = table->arena + table->text[line->file].at;
    const char *function = table->arena + table->text[line->function].at;
    enum kind kind = table->site[site].kind;
    int length = kind == BACKWARD ? snprintf(text, size, "backward of ") : 0;
    if (kind == BACKWARD && !line->line)
        snprintf(text, size, "backward, %s", *function ? function : "of an unknown kind");
    else if (kind == NATIVE) {
        char name[SG_SITE_TEXT];
        site_plain_name(function, name, sizeof name);
        sg_site_format_native(file, line->line, name, text, size);
    } else if ((size_t)length < size)
        sg_site_format(file, line->line, function, text + length, size - (size_t)length);
    return true;
}

void sg_sites_forget(void)
{
    atomic_fetch_add(&sites.trace, 1);
}
