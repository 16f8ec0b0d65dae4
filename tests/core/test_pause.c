/* Random programs of tags: blocks of several tags and of none, freed in every way, with pauses, resumes, trims, work that
   ends later, a full card and driver calls that fail. After each step the core's books are right, live blocks have their
   contents, and paused ones have no memory.

     test_pause                     200 programs, always the same ones
     test_pause --seed N --count M  others

   Contents are marks: what the program wrote to a unit of 512 bytes, kept by the handle that is mapped there. Memory that
   comes anew has other marks, so a block that lost or changed its memory without its contents is found. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
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
#include "strict_kept.h"

#define MIB(n) ((uint64_t)(n) << 20)
enum { PAGE = 2 << 20, UNITS = PAGE >> 9, BLOCKS = 64, TAGS = 4, STREAMS = 3, HANDLES_MOST = 1 << 14 };

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

struct program {
    struct random random;
    struct sg_core *core;
    struct sg_device *device;
    uint32_t tag[TAGS]; /* the first is none */
    bool paused[TAGS];
    sg_slot stream[STREAMS]; /* the first is none */
    struct block {
        CUdeviceptr address;
        uint64_t bytes;
        uint32_t tag, mark; /* index of the tag */
        bool lost;          /* its contents were discarded */
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

/* Drops what was saved of a tag: of addresses in its regions. */
static void drop_saved(struct program *program, uint32_t tag)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < program->saved_count; i++) {
        const struct sg_range *range = sg_core_range_at(program->core, program->saved[i].address);
        if (sg_purpose_tag(program->device->regions.purpose[range->region->index]) == tag)
            free(program->saved[i].marks);
        else
            program->saved[kept++] = program->saved[i];
    }
    program->saved_count = kept;
}

static void look(struct program *program)
{
    const char *broken = sg_core_broken(program->core, SG_CHECK_EXTENTS);
    if (broken)
        fail_msg("%s", broken);
    strict_expect_kept();
    if (!program->device)
        return;
    uint64_t reserved = program->device->accounts.usage.reserved.now;
    if (program->device->mode == SG_MODE_EXPANDABLE)
        assert_true(strict_used(0) >= reserved && strict_used(0) <= reserved + strict_stuck(0));
    for (int i = 0; i < BLOCKS; i++) {
        struct block *block = &program->block[i];
        uint64_t backing;
        if (!block->address)
            continue;
        if (!program->paused[block->tag]) {
            assert_true(strict_backing(block->address, block->bytes, 0, &backing));
            if (!block->lost)
                each_unit(program, block->address, block->bytes, expect_mark, &block->mark);
        }
        struct sg_block_info info;
        assert_int_equal(sg_core_block(program->core, block->address, &info), CUDA_SUCCESS);
        assert_int_equal(info.base, block->address);
        assert_int_equal(info.bytes, block->bytes);
    }
}

static void allocate(struct program *program, struct block *block)
{
    uint32_t tag = (uint32_t)random_below(&program->random, TAGS);
    static const uint64_t most[] = {4096, 65536, 1 << 20, 6 << 20, 40 << 20};
    uint64_t bytes = 1 + random_below(&program->random, most[random_below(&program->random, 5)]);
    const struct sg_tag request = {.memory_tag = program->tag[tag],
        .slot = program->stream[random_below(&program->random, STREAMS)]};
    CUdeviceptr address = 0;
    CUresult result = sg_core_malloc(program->core, 0, bytes, &request, &address);
    program->device = sg_device_known(program->core, 0);
    if (program->paused[tag]) {
        assert_true(result == CUDA_ERROR_NOT_PERMITTED || bytes > sg_device_capacity(program->device));
        program->refused++;
    }
    if (result != CUDA_SUCCESS)
        return;
    if (!sg_core_range_at(program->core, address)) { /* of fixed segments, after many errors: that is not paused */
        assert_int_equal(program->device->mode, SG_MODE_SEGMENTS);
        while (sg_core_free(program->core, address, &(struct sg_tag){.sync = SG_FREE_SYNC_COMPLETE}) != CUDA_SUCCESS) {
        }
        return;
    }
    *block = (struct block){address, bytes, tag, ++next_mark, false};
    const struct sg_range *range = sg_core_range_at(program->core, address);
    assert_int_equal(sg_purpose_tag(program->device->regions.purpose[range->region->index]), program->tag[tag]);
    each_unit(program, address, bytes, set_mark, &block->mark);
    if (request.slot)
        sg_core_slot_submitted(program->core, 0, request.slot);
}

static void release(struct program *program, struct block *block)
{
    static const enum sg_free_sync sync[] = {SG_FREE_SYNC_COMPLETE, SG_FREE_SYNC_EVENT, SG_FREE_SYNC_STREAM,
        SG_FREE_SYNC_STRICT};
    const struct sg_tag tag = {.sync = sync[random_below(&program->random, 4)], .user_rule = SG_USERS_POSSIBLE};
    sg_slot other = program->stream[random_below(&program->random, STREAMS)];
    if (!program->paused[block->tag] && other && random_below(&program->random, 4) == 0)
        (void)sg_core_record_stream(program->core, block->address, other);
    if (sg_core_free(program->core, block->address, &tag) == CUDA_SUCCESS)
        block->address = 0;
}

static void pause(struct program *program)
{
    uint32_t tag = 1 + (uint32_t)random_below(&program->random, TAGS - 1);
    struct sg_pause_result result;
    enum sg_tag_keep keep = SG_TAG_SAVED;
    bool was = program->paused[tag];
    const struct sg_backup backup = {save, restore, program};
    (void)sg_core_tag_name(program->core, program->tag[tag], &keep);
    bool discard = keep == SG_TAG_DISCARDED;
    program->backup_fails = random_below(&program->random, 16) == 0;
    CUresult answer = sg_core_pause(program->core, 0, program->tag[tag], random_below(&program->random, 4) == 0,
        discard ? NULL : &backup, &result);
    program->backup_fails = false;
    if (!program->device)
        return;
    assert_true(answer == CUDA_SUCCESS || result.why != SG_PAUSE_FINE);
    assert_true(!was || (answer == CUDA_SUCCESS && !result.changed));
    program->paused[tag] = was || result.changed;
    assert_int_equal(program->device->tags.paused >> program->tag[tag] & 1, program->paused[tag]);
    if (answer == CUDA_SUCCESS && !was)
        assert_int_equal(program->device->tags.of[program->tag[tag]].reserved.now, 0);
    if (!program->paused[tag])
        drop_saved(program, program->tag[tag]);
    if (program->paused[tag] && discard)
        for (int i = 0; i < BLOCKS; i++)
            program->block[i].lost |= program->block[i].tag == tag;
    program->pauses += answer == CUDA_SUCCESS && !was;
    program->failed += answer != CUDA_SUCCESS;
}

static void resume(struct program *program, uint32_t tag, bool must)
{
    struct sg_pause_result result;
    enum sg_tag_keep keep = SG_TAG_SAVED;
    bool was = program->paused[tag];
    const struct sg_backup backup = {save, restore, program};
    (void)sg_core_tag_name(program->core, program->tag[tag], &keep);
    bool discard = keep == SG_TAG_DISCARDED;
    program->backup_fails = !must && random_below(&program->random, 16) == 0;
    CUresult answer = sg_core_resume(program->core, 0, program->tag[tag], discard ? NULL : &backup, &result);
    program->backup_fails = false;
    if (!program->device)
        return;
    assert_true(!must || answer == CUDA_SUCCESS);
    assert_int_equal(result.changed, was && answer == CUDA_SUCCESS);
    program->paused[tag] = was && !result.changed;
    assert_int_equal(program->device->tags.paused >> program->tag[tag] & 1, program->paused[tag]);
    if (result.changed)
        drop_saved(program, program->tag[tag]);
    program->resumes += result.changed;
    program->failed += answer != CUDA_SUCCESS;
}

static void step(struct program *program)
{
    struct block *block = &program->block[random_below(&program->random, BLOCKS)];
    bool faulty = random_below(&program->random, 8) == 0;
    if (faulty)
        strict_fail_at(1 + random_below(&program->random, 24), random_below(&program->random, 2), CUDA_SUCCESS);
    switch (random_below(&program->random, 16)) {
    case 0:
    case 1:
        pause(program);
        break;
    case 2:
    case 3:
        resume(program, 1 + (uint32_t)random_below(&program->random, TAGS - 1), false);
        break;
    case 4:
        sg_core_trim(program->core, 0, random_below(&program->random, MIB(8)));
        break;
    case 5:
        strict_complete(random_below(&program->random, 4));
        break;
    case 6:
        if (program->device && program->stream[1])
            sg_core_slot_submitted(program->core, 0, program->stream[1 + random_below(&program->random, STREAMS - 1)]);
        break;
    default:
        if (block->address)
            release(program, block);
        else
            allocate(program, block);
    }
    if (faulty)
        strict_fail_at(0, false, CUDA_SUCCESS);
}

static void run(struct program *program, uint64_t seed)
{
    *program = (struct program){.random = {seed}};
    next_mark = 0;
    program->core = inspect_start(random_below(&program->random, 2) ? "" : "reserve_slack:1.0",
        MIB(random_between(&program->random, 24, 96)));
    program->tag[1] = sg_core_tag(program->core, "weights", SG_TAG_SAVED);
    program->tag[2] = sg_core_tag(program->core, "kv", SG_TAG_DISCARDED);
    program->tag[3] = sg_core_tag(program->core, "kv", SG_TAG_SAVED);
    for (uintptr_t i = 1; i < STREAMS && random_below(&program->random, 3); i++) {
        const struct sg_stream_id id = {.key = i, .handle = (CUstream)i};
        program->stream[i] = sg_core_slot(program->core, 0, &id);
    }
    program->device = sg_device_known(program->core, 0);
    for (uint64_t steps = random_between(&program->random, 20, 160); steps > 0; steps--) {
        step(program);
        look(program);
    }
    /* All comes back once there is room for it. */
    for (int i = 0; i < BLOCKS; i++)
        if (program->block[i].address && !program->paused[program->block[i].tag])
            while (program->block[i].address)
                release(program, &program->block[i]);
    strict_complete(UINT64_MAX / 2);
    for (uint32_t tag = 1; program->device && tag < TAGS; tag++) {
        for (int i = 0; i < BLOCKS; i++) /* what came back before it makes room */
            while (program->block[i].address && !program->paused[program->block[i].tag])
                release(program, &program->block[i]);
        sg_core_trim(program->core, 0, 0);
        if (program->device->mode == SG_MODE_EXPANDABLE)
            resume(program, tag, strict_stuck(0) == 0);
        look(program);
    }
    for (uint32_t i = 0; i < program->saved_count; i++)
        free(program->saved[i].marks);
    sg_core_destroy(program->core);
    strict_expect_kept();
    forget_memory();
}

static uint64_t first_seed = 1, count = 200;

static void paused_memory_comes_back_as_it_was(void **state)
{
    static struct program program;
    uint64_t pauses = 0, resumes = 0, failed = 0, refused = 0;
    (void)state;
    for (uint64_t seed = first_seed; seed < first_seed + count; seed++) {
        if (getenv("TEST_PAUSE_PRINT"))
            fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
        run(&program, seed);
        pauses += program.pauses;
        resumes += program.resumes;
        failed += program.failed;
        refused += program.refused;
    }
    /* A pause that was left half done and is asked for again; and one that the core's end finds. */
    run(&program, 142955);
    run(&program, 126905);
    printf("%llu programs: %llu pauses, %llu resumes, %llu failed, %llu allocations refused\n",
        (unsigned long long)count, (unsigned long long)pauses, (unsigned long long)resumes, (unsigned long long)failed,
        (unsigned long long)refused);
    assert_true(count < 100 || (pauses > count && resumes > count / 4 && failed > 0 && refused > 0));
}

/* Threads that allocate and free under tags and without, while others pause, resume and trim. Each has blocks of its own, so
   nothing is looked at before all have ended. The workers go on until something was paused, however late the others begin. */
enum { WORKERS = 3, ROUNDS = 1500, HELD = 12 };

static atomic_bool any_paused;

struct worker {
    pthread_t thread;
    struct sg_core *core;
    uint32_t *tag;
    uint64_t seed, served, refused, orders;
};

static void *work(void *user)
{
    struct worker *worker = user;
    struct random random = {worker->seed};
    CUdeviceptr held[HELD] = {0};
    strict_use(0);
    for (int i = 0; i < ROUNDS || !atomic_load(&any_paused); i++) {
        CUdeviceptr *one = &held[random_below(&random, HELD)];
        struct sg_tag tag = {.sync = random_below(&random, 2) ? SG_FREE_SYNC_COMPLETE : SG_FREE_SYNC_EVENT,
            .memory_tag = worker->tag[random_below(&random, TAGS)]};
        if (*one) {
            assert_int_equal(sg_core_free(worker->core, *one, &tag), CUDA_SUCCESS);
            *one = 0;
        } else {
            CUresult result = sg_core_malloc(worker->core, 0, 1 + random_below(&random, MIB(3)), &tag, one);
            worker->served += result == CUDA_SUCCESS;
            worker->refused += result == CUDA_ERROR_NOT_PERMITTED;
        }
    }
    for (int i = 0; i < HELD; i++)
        if (held[i])
            assert_int_equal(sg_core_free(worker->core, held[i], &(struct sg_tag){.sync = SG_FREE_SYNC_COMPLETE}),
                CUDA_SUCCESS);
    return NULL;
}

static void *give_orders(void *user)
{
    struct worker *worker = user;
    struct random random = {worker->seed};
    struct sg_pause_result result;
    strict_use(0);
    for (int i = 0; i < ROUNDS / 4 || !atomic_load(&any_paused); i++) {
        uint32_t tag = worker->tag[1 + random_below(&random, TAGS - 1)];
        uint64_t what = random_below(&random, 5);
        strict_complete(UINT64_MAX / 2);
        if (what == 4)
            sg_core_trim(worker->core, 0, 0);
        else if (what < 2)
            (void)sg_core_pause(worker->core, 0, tag, false, NULL, &result);
        else
            (void)sg_core_resume(worker->core, 0, tag, NULL, &result);
        if (what < 2 && result.changed && result.bytes) {
            worker->orders++;
            atomic_store(&any_paused, true);
        }
    }
    return NULL;
}

static void threads_go_on_beside_pauses(void **state)
{
    struct worker worker[WORKERS + 2];
    uint32_t tag[TAGS] = {0};
    uint64_t served = 0, orders = 0;
    struct sg_pause_result result;
    (void)state;
    struct sg_core *core = inspect_start("", MIB(64));
    atomic_store(&any_paused, false);
    for (uint32_t i = 1; i < TAGS; i++)
        tag[i] = sg_core_tag(core, (const char *[]){"", "a", "b", "c"}[i], i == 1 ? SG_TAG_DISCARDED : SG_TAG_SAVED);
    for (int i = 0; i < WORKERS + 2; i++) {
        worker[i] = (struct worker){.core = core, .tag = tag, .seed = (uint64_t)i + first_seed};
        assert_int_equal(pthread_create(&worker[i].thread, NULL, i < WORKERS ? work : give_orders, &worker[i]), 0);
    }
    for (int i = 0; i < WORKERS + 2; i++) {
        assert_int_equal(pthread_join(worker[i].thread, NULL), 0);
        served += worker[i].served;
        orders += worker[i].orders;
    }
    strict_complete(UINT64_MAX / 2);
    for (uint32_t i = 1; i < TAGS; i++)
        assert_int_equal(sg_core_resume(core, 0, tag[i], NULL, &result), CUDA_SUCCESS);
    inspect(core, 1);
    const char *broken = sg_core_broken(core, SG_CHECK_BUCKETS);
    if (broken)
        fail_msg("%s", broken);
    sg_core_trim(core, 0, 0);
    inspect_empty(core, 1);
    assert_true(served > 0 && orders > 0);
    sg_core_destroy(core);
    strict_expect_kept();
}

int main(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--seed") == 0)
            first_seed = strtoull(argv[i + 1], NULL, 0);
        else if (strcmp(argv[i], "--count") == 0)
            count = strtoull(argv[i + 1], NULL, 0);
        else
            return 2;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(paused_memory_comes_back_as_it_was),
        cmocka_unit_test(threads_go_on_beside_pauses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
