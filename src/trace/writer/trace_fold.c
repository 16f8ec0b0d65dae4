#include "writer/trace_fold.h"

#include <errno.h>
#include <unistd.h>

#include "base/meta.h"
#include "trace_file.h"

/* Places of records: the block's number << RECORD_BITS | the record's + FIRST_PLACE. */
enum { RECORD_BITS = 16, EMPTY = 0, FREED = 1, FIRST_PLACE = 2, THREADS = 1 << 16, FIGURES_MOST = 1 << 16 };

/* The last record about something, by a key. No entry is removed, so the table is made for all keys that there may be. */
struct place_table {
    struct place {
        uint64_t key, at;
    } * place;
    size_t room, used; /* `room` is a power of two, at least twice the keys; `used`: figures, or blocks that live */
};

/* Where a thread is, by its last SITE. `is_written`: the output says so too. */
struct thread_site {
    uint64_t site, phase;
    bool is_written;
};

struct fold {
    int from, to;
    uint64_t data_offset, blocks;
    sg_trace_go_on_fn *go_on;
    void *user;
    struct segalloc_trace_block *in, *out; /* a block of the file each */
    uint32_t used;                         /* records in `out` */
    uint64_t written;                      /* blocks */
    uint64_t sum, dropped;
    uint64_t allocations;
    struct place_table live, figures;
    struct thread_site *thread;
    uint64_t left_out, failures; /* events of the part, and of parts that were left out before */
    int error;
};

int sg_trace_block_read(int fd, uint64_t data_offset, uint64_t number, void *block)
{
    for (size_t done = 0; done < SEGALLOC_TRACE_BLOCK;) {
        ssize_t got = pread(fd, (char *)block + done, SEGALLOC_TRACE_BLOCK - done,
            (off_t)(data_offset + number * SEGALLOC_TRACE_BLOCK + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -EIO;
        done += (size_t)got;
    }
    return 0;
}

int sg_trace_block_write(int fd, uint64_t data_offset, uint64_t number, const void *block)
{
    for (size_t done = 0; done < SEGALLOC_TRACE_BLOCK;) {
        ssize_t put = pwrite(fd, (const char *)block + done, SEGALLOC_TRACE_BLOCK - done,
            (off_t)(data_offset + number * SEGALLOC_TRACE_BLOCK + done));
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return put < 0 ? -errno : -EIO;
        done += (size_t)put;
    }
    return 0;
}

static bool place_table_make(struct place_table *table, size_t keys)
{
    table->room = 1024;
    while (table->room < 2 * keys)
        table->room *= 2;
    table->place = sg_meta_map(table->room * sizeof *table->place);
    return table->place != NULL;
}

static void place_table_free(struct place_table *table)
{
    sg_meta_unmap(table->place, table->room * sizeof *table->place);
}

/* The entry of a key, or the empty one where it would stand. */
static struct place *fold_place_of(const struct place_table *table, uint64_t key)
{
    size_t i = (size_t)(sg_hash(key) >> 16) & (table->room - 1);
    while (table->place[i].at != EMPTY && table->place[i].key != key)
        i = (i + 1) & (table->room - 1);
    return &table->place[i];
}

/* Figures are states, of each of which the last value holds. 0: the record is none. */
static uint64_t figure_key(const struct segalloc_trace_record *record)
{
    uint64_t what = 0;
    switch (record->kind) {
    case SEGALLOC_RECORD_STATISTIC:
        what = record->id ^ (record->flags & SEGALLOC_FLAG_PEAK);
        break;
    case SEGALLOC_RECORD_OUTSIDE:
        what = record->id;
        break;
    case SEGALLOC_RECORD_LIMIT:
    case SEGALLOC_RECORD_PRESSURE:
    case SEGALLOC_RECORD_TICK:
        break;
    default:
        return 0;
    }
    uint64_t key = sg_fnv(sg_fnv(SG_FNV_BASIS, (uint64_t)record->kind << 32 | record->stream), what);
    return key ? key : 1;
}

/* Names, and what devices and streams are: all of it stays. */
static bool is_definition(const struct segalloc_trace_record *record)
{
    switch (record->kind) {
    case SEGALLOC_RECORD_SLOT:
    case SEGALLOC_RECORD_SLOT_GONE:
    case SEGALLOC_RECORD_FIXED:
    case SEGALLOC_RECORD_COST:
    case SEGALLOC_RECORD_PEERS:
    case SEGALLOC_RECORD_CONTEXT_GONE:
        return true;
    case SEGALLOC_RECORD_SITE:
    case SEGALLOC_RECORD_LEFT_OUT:
        return false;
    default:
        return record->kind >= SEGALLOC_RECORD_DEFINE_STREAM;
    }
}

static bool is_event(const struct segalloc_trace_record *record)
{
    return record->kind == SEGALLOC_RECORD_ALLOCATE || record->kind == SEGALLOC_RECORD_FREE ||
           record->kind == SEGALLOC_RECORD_ALLOCATE_FAILURE;
}

typedef void fold_visit_fn(struct fold *fold, const struct segalloc_trace_record *record, uint64_t at);

static void fold_read(struct fold *fold, fold_visit_fn *visit)
{
    const struct segalloc_trace_record *record = (const void *)(fold->in + 1);
    for (uint64_t number = 0; number < fold->blocks && !fold->error; number++) {
        fold->error = fold->go_on(fold->user) ? sg_trace_block_read(fold->from, fold->data_offset, number, fold->in)
                                              : -ECANCELED;
        if (!fold->error && (fold->in->magic != SEGALLOC_BLOCK_MAGIC || fold->in->count > SG_BLOCK_RECORDS))
            fold->error = -EIO; /* somebody else has written there */
        for (uint32_t i = 0; !fold->error && i < fold->in->count; i++)
            visit(fold, &record[i], (number << RECORD_BITS) + i + FIRST_PLACE);
        fold->dropped = fold->in->dropped;
    }
}

static void count_allocation(struct fold *fold, const struct segalloc_trace_record *record, uint64_t at)
{
    (void)at;
    fold->allocations += record->kind == SEGALLOC_RECORD_ALLOCATE;
}

static void note_last(struct fold *fold, const struct segalloc_trace_record *record, uint64_t at)
{
    uint64_t figure = figure_key(record);
    bool before = record->kind == SEGALLOC_RECORD_LEFT_OUT;
    fold->left_out += before ? record->id : is_event(record);
    fold->failures += before ? record->size : record->kind == SEGALLOC_RECORD_ALLOCATE_FAILURE;
    if (record->kind == SEGALLOC_RECORD_ALLOCATE) {
        struct place *place = fold_place_of(&fold->live, record->id);
        fold->live.used += place->at <= FREED;
        *place = (struct place){record->id, at};
    } else if (record->kind == SEGALLOC_RECORD_FREE) {
        struct place *place = fold_place_of(&fold->live, record->id);
        fold->live.used -= place->at > FREED;
        place->at = place->at == EMPTY ? EMPTY : FREED;
    } else if (figure) {
        struct place *place = fold_place_of(&fold->figures, figure);
        fold->figures.used += place->at == EMPTY;
        fold->error = fold->figures.used <= FIGURES_MOST ? 0 : -E2BIG;
        *place = (struct place){figure, at};
    }
}

static void fold_close_block(struct fold *fold)
{
    *fold->out = (struct segalloc_trace_block){.magic = SEGALLOC_BLOCK_MAGIC,
        .count = fold->used,
        .sequence = fold->written,
        .checksum = sg_checksum_end(fold->sum),
        .dropped = fold->dropped};
    if (!fold->error)
        fold->error = sg_trace_block_write(fold->to, fold->data_offset, fold->written, fold->out);
    fold->written++;
    fold->used = 0;
    fold->sum = SG_FNV_BASIS;
}

static void fold_put(struct fold *fold, struct segalloc_trace_record record)
{
    struct segalloc_trace_record *out = (void *)(fold->out + 1);
    if (fold->used == SG_BLOCK_RECORDS)
        fold_close_block(fold);
    out[fold->used++] = record;
    fold->sum = sg_checksum_add(fold->sum, &record);
}

/* Says where a thread is, unless the output says so. Threads that are not told apart say it of the next record alone. */
static void put_site(struct fold *fold, uint16_t thread, uint64_t time_ns)
{
    struct thread_site *site = &fold->thread[thread];
    if (site->is_written || (thread == 0 && !site->site && !site->phase))
        return;
    site->is_written = true;
    fold_put(fold, (struct segalloc_trace_record){.kind = SEGALLOC_RECORD_SITE,
                       .thread = thread,
                       .id = site->site,
                       .size = site->phase,
                       .time_ns = time_ns});
}

static void write_what_stays(struct fold *fold, const struct segalloc_trace_record *record, uint64_t at)
{
    uint64_t figure = figure_key(record);
    struct segalloc_trace_record kept = *record;
    if (record->kind == SEGALLOC_RECORD_SITE) {
        struct thread_site *site = &fold->thread[record->thread];
        if (site->site != record->id || site->phase != record->size)
            *site = (struct thread_site){.site = record->id, .phase = record->size};
        return;
    }
    if (record->kind == SEGALLOC_RECORD_ALLOCATE && fold_place_of(&fold->live, record->id)->at == at) {
        put_site(fold, record->thread, record->time_ns);
        fold_put(fold, kept);
    } else if (is_definition(record)) {
        fold_put(fold, kept);
    } else if (figure && fold_place_of(&fold->figures, figure)->at == at) {
        if (record->kind == SEGALLOC_RECORD_STATISTIC || record->kind == SEGALLOC_RECORD_OUTSIDE)
            kept.flags |= SEGALLOC_FLAG_LAST; /* a run of its own */
        fold_put(fold, kept);
    }
    if (record->thread == 0)
        fold->thread[0] = (struct thread_site){.is_written = true};
}

static int fold_run(struct fold *fold)
{
    fold_read(fold, count_allocation);
    if (!fold->error &&
        (!place_table_make(&fold->live, fold->allocations + 1) || !place_table_make(&fold->figures, FIGURES_MOST)))
        fold->error = -ENOMEM;
    if (!fold->error)
        fold_read(fold, note_last);
    fold_put(fold, (struct segalloc_trace_record){.kind = SEGALLOC_RECORD_LEFT_OUT,
                       .id = fold->left_out - fold->live.used,
                       .size = fold->failures});
    for (uint32_t i = 0; i < THREADS; i++)
        fold->thread[i].is_written = true; /* nothing is known of it, and nothing said */
    fold_read(fold, write_what_stays);
    for (uint32_t i = 1; i < THREADS && !fold->error; i++)
        put_site(fold, (uint16_t)i, 0);
    fold_close_block(fold);
    return fold->error;
}

int sg_trace_fold(int from, int to, uint64_t data_offset, uint64_t blocks, sg_trace_go_on_fn *go_on, void *user,
    uint64_t *ret_blocks)
{
    struct fold fold = {.from = from,
        .to = to,
        .data_offset = data_offset,
        .blocks = blocks,
        .go_on = go_on,
        .user = user,
        .in = sg_meta_map(SEGALLOC_TRACE_BLOCK),
        .out = sg_meta_map(SEGALLOC_TRACE_BLOCK),
        .thread = sg_meta_map(THREADS * sizeof(struct thread_site)),
        .sum = SG_FNV_BASIS};
    int error = fold.in && fold.out && fold.thread ? fold_run(&fold) : -ENOMEM;
    place_table_free(&fold.live);
    place_table_free(&fold.figures);
    sg_meta_unmap(fold.in, SEGALLOC_TRACE_BLOCK);
    sg_meta_unmap(fold.out, SEGALLOC_TRACE_BLOCK);
    sg_meta_unmap(fold.thread, THREADS * sizeof(struct thread_site));
    if (!error)
        *ret_blocks = fold.written;
    return error;
}
