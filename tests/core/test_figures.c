/* What the allocator decides, as figures: small programs under several configurations, against figures.txt.

       test_figures FIGURES            compares
       test_figures --write FIGURES    writes them anew, after a rule was changed on purpose: the change is read there

   A row stands for so many steps. It has the memory that is held, its cost, and sums over what was done since the last row.
   One sum is over the addresses handed out: it changes when another place was chosen. Another is over the events of the
   observer. Below the rows stands the text about the last request that failed. A program ends with a table of its
   statistics that are not 0 throughout, with a column for each configuration. A cell is a value, its peak, and the peak of
   the second half where that is another; "=" is the cell to the left. For example, 0/36/28 allocations: none is left, the
   most were 36, and 28 in the second half. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/conf_read.h"
#include "core/core.h"
#include "inspect/core_state.h"
#include "inspect.h"
#include "random.h"
#include "size.h"
#include "strict_driver.h"

enum {
    BLOCKS = 128,
    STREAMS = 3,
    STEPS = 3000,
    STEPS_A_ROW = 500,
    PIECES = 512,
    CONFS_MOST = 7,
    DEVICES_MOST = 2,
    FIGURES_MOST = 1 << 20
};

static const char *wanted_path;
static bool writes;

static struct {
    struct sg_core *core;
    struct random random;
    struct block {
        CUdeviceptr address;
        sg_slot slot;
    } block[BLOCKS];
    sg_slot slot[STREAMS];
    struct sg_vector_clock clock[STREAMS];
    int devices;
    uint64_t seq;     /* goes on whenever somebody looks */
    uint32_t places;  /* a sum over the addresses handed out */
    uint32_t records; /* and over what the observer was told */
} the;

static struct {
    char text[FIGURES_MOST];
    size_t length;
} made;

static void say(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    made.length += (size_t)vsnprintf(made.text + made.length, FIGURES_MOST - made.length, format, list);
    va_end(list);
    assert_true(made.length < FIGURES_MOST);
}

static bool chance(uint64_t one_in)
{
    return random_below(&the.random, one_in) == 0;
}

static uint64_t now_ns(void)
{
    return the.seq += 1000;
}

static void emit(void *sink, const struct segalloc_trace_record *record)
{
    const uint64_t parts[] = {record->kind, record->flags, record->stream, record->id, record->size};
    (void)sink;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        the.records = the.records * 31 + (uint32_t)(parts[i] ^ parts[i] >> 32);
}

static void release(struct block *block, enum sg_free_sync sync, sg_slot slot)
{
    const struct sg_tag tag = {
        .sync = sync, .slot = slot, .in_order = slot != 0, .user_rule = SG_USERS_RECORDED};
    if (!block->address)
        return;
    assert_int_equal(sg_core_free(the.core, block->address, &tag), CUDA_SUCCESS);
    block->address = 0;
}

static bool allocate(struct block *block, int device, uint64_t bytes, sg_slot slot)
{
    CUstream stream = (CUstream)(uintptr_t)(slot ? slot : bytes % 4); /* of a stream that is not followed, too */
    const struct sg_tag tag = {
        .sync = SG_FREE_SYNC_STREAM, .slot = slot, .has_stream = stream != NULL, .stream = stream, .torch = bytes & 1};
    strict_use(device);
    CUresult result = sg_core_malloc(the.core, device, bytes, &tag, &block->address);
    block->slot = slot;
    the.places = the.places * 31 + (result == CUDA_SUCCESS ? (uint32_t)(block->address >> 9) : 1);
    if (result != CUDA_SUCCESS)
        block->address = 0;
    return result == CUDA_SUCCESS;
}

/* From a byte to 2^`bits`, as many of each power of two. */
static uint64_t any_size(unsigned bits)
{
    uint64_t most = UINT64_C(1) << random_between(&the.random, 9, bits);
    return random_between(&the.random, most / 2 + 1, most);
}

/* A training: layers whose sizes come again each step, some of them alive until the way back, and weights that stay. */
static void layers(int step)
{
    static const uint64_t sizes[] = {3 << 20, 512, 11 << 20, 700 << 10, 25 << 20, 6 << 20, 40 << 10, 9 << 20};
    int at = step % 40;
    if (step < 16)
        allocate(&the.block[64 + step], 0, sizes[step % 8] / 2, 0);
    if (at < 20)
        allocate(&the.block[at], 0, sizes[at % 8] * (unsigned)(1 + step / 1000), 0);
    else
        release(&the.block[39 - at], SG_FREE_SYNC_COMPLETE, 0);
    if (at == 39)
        for (int i = 0; i < 20; i++)
            release(&the.block[i], SG_FREE_SYNC_COMPLETE, 0);
}

/* Any size at any time, on a card that is often full. */
static void any(int step)
{
    struct block *block = &the.block[random_below(&the.random, 64)];
    bool filling = step / 100 % 3 != 2;
    if (block->address && (!filling || chance(3)))
        release(block, SG_FREE_SYNC_COMPLETE, 0);
    else if (!block->address)
        allocate(block, 0, any_size(chance(4) ? 25 : 22), 0);
}

/* Buffers that grow by a little, the old one alive until the new one is there. */
static void creeping(int step)
{
    int i = step % 6;
    struct block old = the.block[i];
    allocate(&the.block[i], 0, (1 + (uint64_t)i) * SG_MIB + (uint64_t)step * (64 << 10), 0);
    release(&old, SG_FREE_SYNC_COMPLETE, 0);
    if (step % 150 == 149)
        release(&the.block[i], SG_FREE_SYNC_COMPLETE, 0);
}

/* A card that is filled, given back and limited, by pages of two sizes. */
static void full(int step)
{
    struct block *block = &the.block[random_below(&the.random, 32)];
    if (block->address && !chance(3))
        release(block, SG_FREE_SYNC_COMPLETE, 0);
    else if (!block->address)
        allocate(block, 0, chance(3) ? any_size(28) : any_size(24), 0);
    if (step % 97 == 96)
        sg_core_trim(the.core, 0, (size_t)(step % 3) * 16 * SG_MIB);
    if (step % 131 == 130)
        sg_core_set_limit(the.core, 0, (uint64_t)(96 + 48 * (step % 4)) * SG_MIB);
    if (block->address && chance(100))
        sg_core_pin(the.core, block->address, 4096);
}

static void clocks(void)
{
    int i = (int)random_below(&the.random, STREAMS), k = (int)random_below(&the.random, STREAMS);
    switch (random_below(&the.random, 8)) {
    case 0:
        sg_core_ordered_after(the.core, 0, the.slot[k], &the.clock[i]);
        break;
    case 1:
        sg_core_completed(the.core, 0, &the.clock[i]);
        break;
    case 2:
        strict_complete(random_below(&the.random, 4));
        break;
    case 3:
        sg_core_poll(the.core, 0);
        break;
    case 4:
        sg_core_clock(the.core, 0, the.slot[i], &the.clock[i]);
        break;
    default:
        sg_core_slot_submitted(the.core, 0, the.slot[i]);
    }
}

/* Blocks of several streams that wait for one another now and then. */
static void streams(int step)
{
    struct block *block = &the.block[random_below(&the.random, 64)];
    sg_slot slot = the.slot[random_below(&the.random, STREAMS)];
    bool filling = step / 100 % 3 != 2;
    if (block->address && chance(5))
        sg_core_record_stream(the.core, block->address, slot);
    else if (block->address && (!filling || chance(2)))
        release(block, SG_FREE_SYNC_STREAM, block->slot);
    else if (!block->address)
        allocate(block, 0, any_size(chance(3) ? 25 : 23), slot);
    sg_core_slot_submitted(the.core, 0, slot);
    clocks();
}

/* Frees that take effect when all work so far is complete, on two devices. */
static void pending(int step)
{
    struct block *block = &the.block[random_below(&the.random, 40)];
    int device = (int)(block - the.block) & 1;
    if (block->address)
        release(block, chance(6) ? SG_FREE_SYNC_STRICT : SG_FREE_SYNC_EVENT, 0);
    else
        allocate(block, device, any_size(chance(2) ? 26 : 21), 0);
    if (chance(5))
        strict_complete(random_below(&the.random, 5));
    if (chance(9))
        sg_core_poll(the.core, device);
    if (step == 100)
        sg_core_peer_access(the.core, 0, 1, true);
}

static const struct program {
    const char *name;
    void (*step)(int step);
    uint64_t total;
    const char *confs[CONFS_MOST];
} programs[] = {
    {"layers", layers, 1024 * SG_MIB, {"", "reserve_slack:1.0", "reserve_slack:1.05", "expandable_segments:False",
        "expandable_segments:False,max_split_size_mb:20", "page_size_mb:20"}},
    {"any", any, 72 * SG_MIB, {"", "reserve_slack:1.0", "reserve_slack:1.1", "limit:50MiB", "page_size_mb:4",
        "expandable_segments:False,garbage_collection_threshold:0.6",
        "expandable_segments:False,roundup_power2_divisions:4"}},
    {"creeping", creeping, 640 * SG_MIB, {"", "reserve_slack:1.0", "reserve_slack:1.2", "expandable_segments:False"}},
    {"full", full, 192 * SG_MIB, {"", "reserve_slack:1.0", "reserve_slack:1.2", "page_size_mb:8", "limit:0.8",
        "expandable_segments:False"}},
    {"streams", streams, 80 * SG_MIB, {"", "reserve_slack:1.0", "alias:off", "reserve_slack:1.1,pending_limit:32MiB",
        "page_size_mb:4", "expandable_segments:False"}},
    {"pending", pending, 80 * SG_MIB, {"", "reserve_slack:1.0", "pending_limit:24MiB", "expandable_segments:False"}},
};

static void start(const struct program *program, const char *text)
{
    struct sg_conf conf;
    memset(&the, 0, sizeof the);
    strict_reset(2, program->total, 2 * SG_MIB);
    sg_conf_init(&conf);
    assert_int_equal(sg_conf_apply(&conf, SG_CONF_ARGUMENT, text, NULL, NULL), 0);
    the.core = sg_core_create(&(struct sg_core_params){.conf = &conf,
        .driver = &strict_driver,
        .callbacks.now_ns = now_ns,
        .observer = {.emit = emit}});
    assert_non_null(the.core);
    the.random.state = 1;
    the.devices = program->step == pending ? 2 : 1;
    for (unsigned i = 0; i < STREAMS && program->step == streams; i++) {
        const struct sg_stream_id id = {.key = i + 1, .handle = (CUstream)(uintptr_t)(i + 1)};
        the.slot[i] = sg_core_slot(the.core, 0, &id);
    }
}

/* How many there are, and a sum over all that is said of them. */
static void say_pieces(void)
{
    struct sg_piece piece[PIECES];
    uint32_t sum = 0;
    size_t count = sg_core_pieces(the.core, 0, piece, PIECES);
    assert_true(count <= PIECES);
    for (size_t i = 0; i < count; i++) {
        const uint64_t parts[] = {piece[i].address, piece[i].bytes, piece[i].requested, (uintptr_t)piece[i].stream,
            piece[i].state, piece[i].small};
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
            sum = sum * 31 + (uint32_t)(parts[k] ^ parts[k] >> 32);
    }
    say(" %4zu %08x\n", count, (unsigned)sum);
}

static void say_row(int step)
{
    static const enum sg_stat columns[] = {SG_STAT_reserved_bytes, SG_STAT_allocated_bytes, SG_STAT_pending_bytes,
        SG_STAT_aliased_bytes, SG_STAT_largest_free_bytes, SG_STAT_pages_created, SG_STAT_pages_moved, SG_STAT_refused};
    struct sg_stats stats;
    assert_true(sg_core_stats(the.core, 0, &stats));
    say("%4d", step);
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        say(" %10llu", (unsigned long long)stats.value[columns[i]]);
    say(" %08x %08x", (unsigned)the.places, (unsigned)the.records);
    size_t free_bytes = 32 * SG_MIB, total_bytes = 64 * SG_MIB;
    sg_core_mem_info(the.core, 0, &free_bytes, &total_bytes);
    say(" %9zu %9zu %9llu", free_bytes, total_bytes, (unsigned long long)sg_core_limit(the.core, 0));
    say_pieces();
    the.places = the.records = 0;
}

/* The statistics of a program: each as a cell, under each configuration. */
static char cells[CONFS_MOST][DEVICES_MOST][SG_STAT_COUNT][64];

static void note_statistics(int conf, int device)
{
    struct sg_stats stats, recent;
    if (!sg_core_stats(the.core, device, &stats) || !sg_core_stats_recent(the.core, device, &recent))
        memset(&stats, 0, sizeof stats);
    for (int i = 0; i < SG_STAT_COUNT; i++) {
        char *cell = cells[conf][device][i];
        int length = snprintf(cell, sizeof cells[0][0][0], "%llu", (unsigned long long)stats.value[i]);
        if (stats.peak[i])
            length += snprintf(cell + length, sizeof cells[0][0][0] - (size_t)length, "/%llu",
                (unsigned long long)stats.peak[i]);
        if (stats.peak[i] && recent.peak[i] != stats.peak[i])
            snprintf(cell + length, sizeof cells[0][0][0] - (size_t)length, "/%llu", (unsigned long long)recent.peak[i]);
    }
}

static void say_statistics(const struct program *program, int confs)
{
    for (int device = 0; device < the.devices; device++) {
        say("%s, statistics of device %d\n", program->name, device);
        for (int i = 0; i < SG_STAT_COUNT; i++) {
            bool any = false;
            for (int k = 0; k < confs; k++)
                any |= strcmp(cells[k][device][i], "0") != 0;
            if (!any)
                continue;
            say("  %-22s", sg_stat_info((enum sg_stat)i)->name);
            for (int k = 0; k < confs; k++) {
                bool same = k && strcmp(cells[k][device][i], cells[k - 1][device][i]) == 0;
                say(" %19s", same ? "=" : cells[k][device][i]);
            }
            say("\n");
        }
    }
}

static void say_why_it_failed(void)
{
    static char text[16384];
    struct sg_stats stats;
    if (sg_core_stats(the.core, 0, &stats) && stats.value[SG_STAT_refused] &&
        sg_core_oom_text(the.core, 0, NULL, text, sizeof text))
        say("%s", text);
}

static void play(const struct program *program, int number)
{
    const char *conf = program->confs[number];
    start(program, conf);
    say("%s%s%s\nstep   reserved  allocated    pending    aliased    largest    created      moved       "
        "ooms   places  records      free     total     limit pieces   of them\n",
        program->name, *conf ? ", " : "", conf);
    for (int step = 0; step < STEPS; step++) {
        program->step(step);
        if (step % STEPS_A_ROW == STEPS_A_ROW - 1) {
            if (program->step != full) /* where more may be held than a limit that has become smaller */
                inspect(the.core, the.devices);
            say_row(step + 1);
        }
        if (step == STEPS / 2)
            sg_core_reset_peaks(the.core, 0);
    }
    say_why_it_failed();
    for (int i = 0; i < BLOCKS; i++)
        release(&the.block[i], SG_FREE_SYNC_COMPLETE, 0);
    strict_complete(UINT32_MAX);
    for (int device = 0; device < the.devices; device++)
        sg_core_poll(the.core, device);
    for (int device = 0; device < the.devices; device++)
        note_statistics(number, device);
    sg_core_destroy(the.core);
    if (strict_leaks())
        fail_msg("%s, %s: %u leaks", program->name, conf, strict_leaks());
}

static void expect_equal_lines(const char *wanted)
{
    const char *now = made.text;
    char title[200] = "";
    for (int line = 1; *wanted || *now; line++) {
        size_t one = strcspn(wanted, "\n"), other = strcspn(now, "\n");
        if (one != other || memcmp(wanted, now, one) != 0)
            fail_msg("line %d, of %s:\n%.*s\nis now\n%.*s\nAfter a change that is meant: test_figures --write %s",
                line, title, (int)one, wanted, (int)other, now, wanted_path);
        if (*wanted != ' ' && strncmp(wanted, "step", 4) != 0)
            snprintf(title, sizeof title, "%.*s", (int)one, wanted);
        wanted += one + (wanted[one] == '\n');
        now += other + (now[other] == '\n');
    }
}

static void decisions_are_those_of_the_file(void **state)
{
    static char wanted[FIGURES_MOST];
    (void)state;
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        int confs = 0;
        for (; confs < CONFS_MOST && programs[i].confs[confs]; confs++)
            play(&programs[i], confs);
        say_statistics(&programs[i], confs);
    }
    FILE *file = fopen(wanted_path, writes ? "w" : "r");
    assert_non_null(file);
    if (writes)
        assert_int_equal(fwrite(made.text, 1, made.length, file), made.length);
    else
        wanted[fread(wanted, 1, sizeof wanted - 1, file)] = '\0';
    assert_int_equal(fclose(file), 0);
    if (!writes)
        expect_equal_lines(wanted);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(decisions_are_those_of_the_file)};
    writes = argc == 3 && strcmp(argv[1], "--write") == 0;
    wanted_path = argv[argc - 1];
    return argc - writes == 2 ? cmocka_run_group_tests(tests, NULL, NULL) : 2;
}
