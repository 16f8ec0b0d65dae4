/* Random programs of tags: blocks of several tags and of none, with pauses, resumes and trims. Work ends later, the card is full, and
   driver calls fail. Half of them are *wide*: two devices that may have access to each other's memory, captures, pinned pages, limits,
   and contexts that end. After each step the core's books are right, live blocks have their contents, and paused ones have no memory. Short programs are played over and over, and each of their driver's calls fails in turn,
   by itself and with all that follow it.

     test_pause                     200 programs of each kind, always the same ones, and 2 of whose calls each fails
     test_pause --seed N --count M  others
     test_pause --seed N --every M  M programs of whose calls each fails

   Contents are marks: what the program wrote to a unit of 512 bytes, kept by the handle that is mapped there. Memory that
   comes anew has other marks, so a block that lost or changed its memory without its contents is found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check.h"
#include "inspect.h"
#include "inspect/core_state.h"
#include "random.h"
#include "rooms.h"
#include "strict_books.h"
#include "strict_kept.h"

#define MIB(n) ((uint64_t)(n) << 20)
enum { PAGE = 2 << 20, UNITS = PAGE >> 9, BLOCKS = 64, TAGS = 4, STREAMS = 3, DEVICES = 2, HANDLES_MOST = 1 << 14 };

/* The memory behind each handle: a mark for each unit. NULL: nothing was written there. */
static uint32_t *memory[HANDLES_MOST];
static uint32_t next_mark;
enum { OLD = 1 << 30 /* of memory that nobody has written to; plus its handle */ };

static void forget_memory(void)
{
    for (int i = 0; i < HANDLES_MOST; i++) {
        free(memory[i]);
        memory[i] = NULL;
    }
}

/* The mark of an address. Pages are of PAGE, and of huge blocks larger: those are found by their first page's handle. */
static uint32_t *mark_at(CUdeviceptr page, uint64_t page_bytes, CUdeviceptr address)
{
    CUmemGenericAllocationHandle handle = strict_mapped(page, page_bytes);
    assert_true(handle > 0 && handle < HANDLES_MOST);
    if (!memory[handle]) {
        memory[handle] = malloc(page_bytes >> 9 << 2);
        for (uint64_t i = 0; i < page_bytes >> 9; i++)
            memory[handle][i] = OLD + (uint32_t)handle;
    }
    return &memory[handle][(address - page) >> 9];
}

/* The driver's failures in a program: at random, or one call of all, or that and each after it. */
struct failing {
    uint64_t at; /* the number of a call; 0: at random. UINT64_MAX: none, calls are counted */
    bool for_ever;
};

struct program {
    struct random random;
    struct sg_core *core;
    bool wide;
    struct failing failing;
    uint32_t tag[TAGS]; /* the first is none */
    struct card {
        int ordinal;
        struct sg_device *device;
        bool paused[TAGS];
        bool pinned;             /* some page, which stays for good */
        bool peer;               /* the other device has access to its memory */
        sg_slot stream[STREAMS]; /* the first is none */
    } card[DEVICES];
    struct block {
        CUdeviceptr address;
        uint64_t bytes;
        struct card *card;
        uint32_t tag, mark; /* index of the tag */
        bool lost;          /* its contents were discarded */
        bool pinned;
    } block[BLOCKS];
    struct saved {
        CUdeviceptr address;
        uint64_t units;
        uint32_t *marks;
    } saved[BLOCKS * TAGS];
    uint32_t saved_count;
    bool backup_fails;
    uint64_t pauses, resumes, failed, refused;
};

static bool is_paused(const struct block *block)
{
    return block->card->paused[block->tag];
}

/* The device of the next step; its context is current then. */
static struct card *any_card(struct program *program)
{
    struct card *card = &program->card[program->wide ? random_below(&program->random, DEVICES) : 0];
    strict_use(card->ordinal);
    if (program->wide) /* a limit or another device makes it known, too */
        card->device = sg_device_known(program->core, card->ordinal);
    return card;
}

static uint32_t *unit(struct program *program, CUdeviceptr address)
{
    const struct sg_range *range = sg_core_range_at(program->core, address);
    uint64_t page_bytes = sg_region_page_bytes(range->region), offset = address - range->begin;
    return mark_at(address - offset % page_bytes, page_bytes, address);
}

/* Marks a block: each unit of its ends, and one unit of each 64 between. */
static void each_unit(struct program *program, CUdeviceptr address, uint64_t bytes,
    void (*visit)(uint32_t *mark, void *user), void *user)
{
    uint64_t units = (bytes + 511) >> 9;
    for (uint64_t i = 0; i < units; i += i < 64 || i + 128 > units ? 1 : 64)
        visit(unit(program, address + (i << 9)), user);
}

static void set_mark(uint32_t *mark, void *user)
{
    *mark = *(uint32_t *)user;
}

static void expect_mark(uint32_t *mark, void *user)
{
    if (*mark != *(uint32_t *)user)
        fail_msg("a block has the mark %u, not %u", *mark, *(uint32_t *)user);
}

/* A block is known by a mark for each unit of 512 bytes that it touches. */
static uint64_t units_of(uint64_t bytes)
{
    return (bytes + 511) >> 9;
}

static CUresult save(void *user, const struct sg_memory_piece *pieces, size_t count)
{
    struct program *program = user;
    for (size_t i = 0; i < count; i++) {
        assert_true(program->saved_count < BLOCKS * TAGS);
        if (program->backup_fails && i == count / 2)
            return CUDA_ERROR_OUT_OF_MEMORY;
        struct saved *saved = &program->saved[program->saved_count++];
        *saved = (struct saved){pieces[i].address, units_of(pieces[i].bytes), malloc(units_of(pieces[i].bytes) << 2)};
        for (uint64_t k = 0; k < saved->units; k++)
            saved->marks[k] = *unit(program, saved->address + (k << 9));
    }
    return CUDA_SUCCESS;
}

/* Each piece is part of one that was saved. */
static CUresult restore(void *user, const struct sg_memory_piece *pieces, size_t count)
{
    struct program *program = user;
    for (size_t i = 0; i < count; i++) {
        const struct saved *saved = program->saved;
        if (program->backup_fails && i == count / 2)
            return CUDA_ERROR_UNKNOWN;
        while (saved < program->saved + program->saved_count &&
               (pieces[i].address < saved->address || pieces[i].address >= saved->address + (saved->units << 9)))
            saved++;
        assert_true(saved < program->saved + program->saved_count);
        assert_true(pieces[i].address + pieces[i].bytes <= saved->address + (saved->units << 9));
        for (uint64_t k = 0; k < units_of(pieces[i].bytes); k++)
            *unit(program, pieces[i].address + (k << 9)) =
                saved->marks[((pieces[i].address - saved->address) >> 9) + k];
    }
    return CUDA_SUCCESS;
}

/* Drops what was saved of a tag on a device: of addresses in its regions. */
static void drop_saved(struct program *program, const struct card *card, uint32_t tag)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < program->saved_count; i++) {
        const struct sg_range *range = sg_core_range_at(program->core, program->saved[i].address);
        if (range->device == card->device && sg_purpose_tag(card->device->regions.purpose[range->region->index]) == tag)
            free(program->saved[i].marks);
        else
            program->saved[kept++] = program->saved[i];
    }
    program->saved_count = kept;
}

static void look_at_block(struct program *program, struct block *block)
{
    const struct card *card = block->card;
    uint64_t backing;
    if (!is_paused(block)) {
        assert_true(strict_backing(block->address, block->bytes, card->ordinal, &backing));
        if (card->peer && !strict_backing(block->address, block->bytes, !card->ordinal, &backing))
            fail_msg("the other device has no access to a block");
        if (!block->lost)
            each_unit(program, block->address, block->bytes, expect_mark, &block->mark);
    }
    struct sg_block_info info;
    assert_int_equal(sg_core_block(program->core, block->address, &info), CUDA_SUCCESS);
    assert_int_equal(info.base, block->address);
    assert_int_equal(info.bytes, block->bytes);
}

static void look(struct program *program)
{
    const char *broken = sg_core_broken(program->core, SG_CHECK_EXTENTS);
    if (broken)
        fail_msg("%s", broken);
    strict_expect_kept();
    for (int i = 0; i < DEVICES; i++) {
        const struct sg_device *device = program->card[i].device;
        uint64_t reserved = device ? device->accounts.usage.reserved.now : 0;
        if (device && device->mode == SG_MODE_EXPANDABLE)
            assert_true(strict_used(i) >= reserved && strict_used(i) <= reserved + strict_stuck(i));
    }
    for (int i = 0; i < BLOCKS; i++)
        if (program->block[i].address)
            look_at_block(program, &program->block[i]);
}

static void allocate(struct program *program, struct block *block)
{
    uint32_t tag = (uint32_t)random_below(&program->random, TAGS);
    static const uint64_t most[] = {4096, 65536, 1 << 20, 6 << 20, 40 << 20};
    uint64_t bytes = 1 + random_below(&program->random, most[random_below(&program->random, 5)]);
    uint64_t stream = random_below(&program->random, STREAMS);
    struct card *card = any_card(program);
    const struct sg_tag request = {.memory_tag = program->tag[tag], .slot = card->stream[stream]};
    CUdeviceptr address = 0;
    CUresult result = sg_core_malloc(program->core, card->ordinal, bytes, &request, &address);
    card->device = sg_device_known(program->core, card->ordinal);
    if (card->paused[tag]) {
        assert_true(result == CUDA_ERROR_NOT_PERMITTED || bytes > sg_device_capacity(card->device));
        program->refused++;
    }
    if (result != CUDA_SUCCESS)
        return;
    if (!sg_core_range_at(program->core, address)) { /* of fixed segments, after many errors: that is not paused */
        assert_int_equal(card->device->mode, SG_MODE_SEGMENTS);
        for (int tries = 0; tries < 100; tries++)
            if (sg_core_free(program->core, address, &(struct sg_tag){.sync = SG_FREE_SYNC_COMPLETE}) == CUDA_SUCCESS)
                return;
        assert_true(program->failing.for_ever);
        return;
    }
    *block = (struct block){.address = address, .bytes = bytes, .card = card, .tag = tag, .mark = ++next_mark};
    const struct sg_range *range = sg_core_range_at(program->core, address);
    assert_int_equal(sg_purpose_tag(card->device->regions.purpose[range->region->index]), program->tag[tag]);
    each_unit(program, address, bytes, set_mark, &block->mark);
    if (request.slot)
        sg_core_slot_submitted(program->core, card->ordinal, request.slot);
}

static void release(struct program *program, struct block *block)
{
    static const enum sg_free_sync sync[] = {SG_FREE_SYNC_COMPLETE, SG_FREE_SYNC_EVENT, SG_FREE_SYNC_STREAM,
        SG_FREE_SYNC_STRICT};
    const struct sg_tag tag = {.sync = sync[random_below(&program->random, 4)], .user_rule = SG_USERS_POSSIBLE};
    sg_slot other = block->card->stream[random_below(&program->random, STREAMS)];
    strict_use(block->card->ordinal);
    if (!is_paused(block) && other && random_below(&program->random, 4) == 0)
        (void)sg_core_record_stream(program->core, block->address, other);
    if (sg_core_free(program->core, block->address, &tag) == CUDA_SUCCESS)
        block->address = 0;
}

/* True if a tag has a live block whose pages others remember. */
static bool has_pinned(const struct program *program, const struct card *card, uint32_t tag)
{
    bool has = false;
    for (int i = 0; i < BLOCKS; i++) {
        const struct block *block = &program->block[i];
        has = has || (block->address && block->pinned && block->card == card && block->tag == tag);
    }
    return has;
}

static bool discards(const struct program *program, uint32_t tag)
{
    enum sg_tag_keep keep = SG_TAG_SAVED;
    (void)sg_core_tag_name(program->core, program->tag[tag], &keep);
    return keep == SG_TAG_DISCARDED;
}

static void pause(struct program *program)
{
    uint32_t tag = 1 + (uint32_t)random_below(&program->random, TAGS - 1);
    struct sg_pause_result result;
    const struct sg_backup backup = {save, restore, program};
    bool discard = discards(program, tag);
    program->backup_fails = random_below(&program->random, 16) == 0;
    bool everything = random_below(&program->random, 4) == 0;
    struct card *card = any_card(program);
    bool was = card->paused[tag], pinned = has_pinned(program, card, tag);
    CUresult answer =
        sg_core_pause(program->core, card->ordinal, program->tag[tag], everything, discard ? NULL : &backup, &result);
    program->backup_fails = false;
    if (!card->device)
        return;
    assert_true(answer == CUDA_SUCCESS || result.why != SG_PAUSE_FINE);
    assert_true(!was || (answer == CUDA_SUCCESS && !result.changed));
    assert_true(was || !pinned || (answer != CUDA_SUCCESS && !result.changed));
    card->paused[tag] = was || result.changed;
    assert_int_equal(card->device->tags.paused >> program->tag[tag] & 1, card->paused[tag]);
    if (answer == CUDA_SUCCESS && !was)
        assert_int_equal(card->device->tags.of[program->tag[tag]].reserved.now, 0);
    if (!card->paused[tag])
        drop_saved(program, card, program->tag[tag]);
    if (card->paused[tag] && discard)
        for (int i = 0; i < BLOCKS; i++)
            program->block[i].lost |= program->block[i].tag == tag && program->block[i].card == card;
    program->pauses += answer == CUDA_SUCCESS && !was;
    program->failed += answer != CUDA_SUCCESS;
}

static void resume(struct program *program, struct card *card, uint32_t tag, bool must)
{
    struct sg_pause_result result;
    bool was = card->paused[tag];
    const struct sg_backup backup = {save, restore, program};
    bool discard = discards(program, tag);
    program->backup_fails = !must && random_below(&program->random, 16) == 0;
    CUresult answer = sg_core_resume(program->core, card->ordinal, program->tag[tag], discard ? NULL : &backup, &result);
    program->backup_fails = false;
    if (!card->device)
        return;
    if (must && answer != CUDA_SUCCESS)
        fail_msg("tag %u of device %d does not come back: error %d, reason %d", tag, card->ordinal, (int)answer,
            (int)result.why);
    assert_int_equal(result.changed, was && answer == CUDA_SUCCESS);
    card->paused[tag] = was && !result.changed;
    assert_int_equal(card->device->tags.paused >> program->tag[tag] & 1, card->paused[tag]);
    if (result.changed)
        drop_saved(program, card, program->tag[tag]);
    program->resumes += result.changed;
    program->failed += answer != CUDA_SUCCESS;
}

/* Pages of a block are remembered by others, who may do so while it is there. */
static void pin(struct program *program, struct block *block)
{
    if (!block->address || is_paused(block))
        return;
    sg_core_pin(program->core, block->address, block->bytes);
    block->pinned = block->card->pinned = true;
}

/* The other device gets access, or loses it. A call that fails has given it in part. */
static void change_peer(struct program *program, struct card *card)
{
    bool enable = random_below(&program->random, 4) > 0;
    CUresult result = sg_core_peer_access(program->core, card->ordinal, !card->ordinal, enable);
    card->peer = enable && result == CUDA_SUCCESS;
}

/* All contexts of a device end: no block of it is left, in paused tags either. */
static void end_contexts(struct program *program, struct card *card)
{
    sg_core_context_gone(program->core, card->ordinal, NULL);
    for (int i = 0; i < BLOCKS; i++)
        if (program->block[i].address && program->block[i].card == card)
            program->block[i].address = 0;
}

static void wide_step(struct program *program, struct block *block)
{
    struct card *card = any_card(program);
    switch (random_below(&program->random, 12)) {
    case 0:
        pin(program, block);
        break;
    case 1:
        end_contexts(program, card);
        break;
    case 2:
    case 3:
        sg_core_set_limit(program->core, card->ordinal, MIB(random_between(&program->random, 8, 120)));
        break;
    case 4:
        sg_core_poll(program->core, card->ordinal);
        break;
    default:
        change_peer(program, card);
    }
}

static void ordinary_step(struct program *program, struct block *block)
{
    struct card *card;
    uint32_t tag;
    switch (random_below(&program->random, 16)) {
    case 0:
    case 1:
        pause(program);
        break;
    case 2:
    case 3:
        tag = 1 + (uint32_t)random_below(&program->random, TAGS - 1);
        resume(program, any_card(program), tag, false);
        break;
    case 4:
        card = any_card(program);
        sg_core_trim(program->core, card->ordinal, random_below(&program->random, MIB(8)));
        break;
    case 5:
        strict_complete(random_below(&program->random, 4));
        break;
    case 6:
        card = any_card(program);
        if (card->device && card->stream[1])
            sg_core_slot_submitted(program->core, card->ordinal,
                card->stream[1 + random_below(&program->random, STREAMS - 1)]);
        break;
    default:
        if (block->address)
            release(program, block);
        else
            allocate(program, block);
    }
}

static void step(struct program *program)
{
    struct block *block = &program->block[random_below(&program->random, BLOCKS)];
    bool faulty = random_below(&program->random, 8) == 0;
    inspect_capturing = program->wide && random_below(&program->random, 16) == 0;
    if (faulty) {
        uint64_t at = 1 + random_below(&program->random, 24);
        bool for_ever = random_below(&program->random, 2);
        faulty = !program->failing.at;
        if (faulty)
            strict_fail_at(at, for_ever, CUDA_SUCCESS);
    }
    if (program->wide && random_below(&program->random, 12) == 0)
        wide_step(program, block);
    else
        ordinary_step(program, block);
    inspect_capturing = false;
    if (faulty)
        strict_fail_at(0, false, CUDA_SUCCESS);
}

static void make_card(struct program *program, int ordinal)
{
    struct card *card = &program->card[ordinal];
    card->ordinal = ordinal;
    for (uintptr_t i = 1; i < STREAMS && random_below(&program->random, 3); i++) {
        const struct sg_stream_id id = {.key = i + 16 * (uintptr_t)ordinal, .handle = (CUstream)i};
        card->stream[i] = sg_core_slot(program->core, ordinal, &id);
    }
    card->device = sg_device_known(program->core, ordinal);
}

/* Frees the blocks that are not paused. */
static void release_awake(struct program *program)
{
    for (int i = 0; i < BLOCKS; i++)
        while (program->block[i].address && !is_paused(&program->block[i]))
            release(program, &program->block[i]);
}

/* All comes back once there is room for it. */
static void end(struct program *program)
{
    strict_fail_at(0, false, CUDA_SUCCESS);
    for (int i = 0; i < DEVICES && program->wide; i++)
        sg_core_set_limit(program->core, i, UINT64_MAX);
    release_awake(program);
    strict_complete(UINT64_MAX / 2);
    for (int i = 0; i < DEVICES; i++) {
        struct card *card = &program->card[i];
        for (uint32_t tag = 1; card->device && tag < TAGS; tag++) {
            release_awake(program); /* what came back before it makes room */
            strict_use(i);
            sg_core_trim(program->core, i, 0);
            if (card->device->mode == SG_MODE_EXPANDABLE)
                resume(program, card, tag, strict_stuck(i) == 0 && !card->pinned);
            look(program);
        }
    }
}

/* Plays a program. Returns how many calls it made of the driver. */
static uint64_t run(struct program *program, uint64_t seed, bool wide, struct failing failing)
{
    *program = (struct program){.random = {seed}, .wide = wide, .failing = failing};
    next_mark = 0;
    program->core = inspect_start(random_below(&program->random, 2) ? "" : "reserve_slack:1.0",
        MIB(random_between(&program->random, 24, 96)));
    program->tag[1] = sg_core_tag(program->core, "weights", SG_TAG_SAVED);
    program->tag[2] = sg_core_tag(program->core, "kv", SG_TAG_DISCARDED);
    program->tag[3] = sg_core_tag(program->core, "kv", SG_TAG_SAVED);
    strict_fail_at(failing.at == UINT64_MAX ? 0 : failing.at, failing.for_ever, CUDA_SUCCESS);
    for (int i = 0; i < (wide ? DEVICES : 1); i++)
        make_card(program, i);
    for (uint64_t steps = random_between(&program->random, 20, failing.at ? 40 : 160); steps > 0; steps--) {
        step(program);
        look(program);
    }
    uint64_t calls = strict.calls;
    end(program);
    for (uint32_t i = 0; i < program->saved_count; i++)
        free(program->saved[i].marks);
    sg_core_destroy(program->core);
    strict_expect_kept();
    forget_memory();
    return calls;
}

static uint64_t first_seed = 1, count = 200, every = 2;
static struct program program;

struct sums {
    uint64_t programs, pauses, resumes, failed, refused;
};

static uint64_t run_and_count(uint64_t seed, bool wide, struct failing failing, struct sums *sums)
{
    if (getenv("TEST_PAUSE_PRINT"))
        fprintf(stderr, "seed %llu%s, call %llu%s\n", (unsigned long long)seed, wide ? ", wide" : "",
            (unsigned long long)failing.at, failing.for_ever ? " and all that follow" : "");
    uint64_t calls = run(&program, seed, wide, failing);
    sums->programs++;
    sums->pauses += program.pauses;
    sums->resumes += program.resumes;
    sums->failed += program.failed;
    sums->refused += program.refused;
    return calls;
}

static void say(const struct sums *sums)
{
    printf("%llu programs: %llu pauses, %llu resumes, %llu failed, %llu allocations refused\n",
        (unsigned long long)sums->programs, (unsigned long long)sums->pauses, (unsigned long long)sums->resumes,
        (unsigned long long)sums->failed, (unsigned long long)sums->refused);
}

static void paused_memory_comes_back_as_it_was(void **state)
{
    (void)state;
    for (int wide = 0; wide <= 1; wide++) {
        struct sums sums = {0};
        for (uint64_t seed = first_seed; seed < first_seed + count; seed++)
            (void)run_and_count(seed, wide, (struct failing){0}, &sums);
        say(&sums);
        assert_true(
            count < 100 || (sums.pauses > count && sums.resumes > count / 4 && sums.failed > 0 && sums.refused > 0));
    }
    /* A pause that was left half done and is asked for again; and one that the core's end finds. */
    run(&program, 142955, false, (struct failing){0});
    run(&program, 126905, false, (struct failing){0});
}

static void each_call_of_the_driver_may_fail(void **state)
{
    struct sums sums = {0};
    (void)state;
    for (uint64_t seed = first_seed; seed < first_seed + every; seed++) {
        uint64_t calls = run_and_count(seed, seed % 2, (struct failing){.at = UINT64_MAX}, &sums);
        for (uint64_t at = 1; at <= calls; at++)
            for (int for_ever = 0; for_ever <= 1; for_ever++)
                (void)run_and_count(seed, seed % 2, (struct failing){at, for_ever}, &sums);
    }
    say(&sums);
}

int main(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--seed") == 0)
            first_seed = strtoull(argv[i + 1], NULL, 0);
        else if (strcmp(argv[i], "--count") == 0)
            count = strtoull(argv[i + 1], NULL, 0);
        else if (strcmp(argv[i], "--every") == 0)
            every = strtoull(argv[i + 1], NULL, 0), count = 0;
        else
            return 2;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(paused_memory_comes_back_as_it_was),
        cmocka_unit_test(each_call_of_the_driver_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
