/* Preloaded: a tag of many small blocks leaves and comes back, over and over, while blocks come and go. Contents are right each time. The
   argument says what becomes of copies. `batches`: a batch has 128 of them. `singly`: the driver has no batches, or refuses
   them. */
#include <stdbool.h>
#include <stdlib.h>

#include "extra.h"
#include "runtime.h"
#include "served.h"

enum { BLOCKS = 700, BYTES_MOST = 70000, ROUNDS = 3, BATCH = 128 };

static struct block {
    unsigned char *address;
    size_t bytes;
    unsigned char value;
} block[BLOCKS];

static int (*push)(const char *tag, unsigned flags), (*pop)(void), (*pause_tag)(const char *tag),
    (*resume_tag)(const char *tag), (*retain)(int retain);
static segalloc_sim_calls_fn sim_calls;

static uint64_t calls_of(const char *name)
{
    static struct segalloc_sim_call rows[2048];
    size_t count = sim_calls(rows, sizeof rows / sizeof *rows);
    uint64_t calls = 0;
    for (size_t i = 0; i < count && i < sizeof rows / sizeof *rows; i++)
        calls += strcmp(rows[i].symbol, name) == 0 ? rows[i].calls : 0;
    return calls;
}

static void make(struct block *new, unsigned value)
{
    new->bytes = 1 + value * 7919u % BYTES_MOST;
    new->value = (unsigned char)(value % 251);
    EXPECT(cudaMalloc((void **)&new->address, new->bytes) == cudaSuccess);
    EXPECT(cudaMemset(new->address, new->value, new->bytes) == cudaSuccess);
}

static bool is_right(const struct block *one)
{
    static unsigned char host[BYTES_MOST];
    bool right = cudaMemcpy(host, one->address, one->bytes, cudaMemcpyDeviceToHost) == cudaSuccess;
    for (size_t i = 0; i < one->bytes; i++)
        right = right && host[i] == one->value;
    return right;
}

/* One pause and resume. Returns by how many calls of a name contents were moved. */
static uint64_t round_trip(const char *name)
{
    uint64_t before = calls_of(name), moved;
    EXPECT(cudaDeviceSynchronize() == cudaSuccess && pause_tag("weights") == 0);
    for (int i = 0; i < BLOCKS; i += 9) {
        EXPECT(cudaFree(block[i].address) == cudaSuccess);
        block[i].address = NULL;
    }
    EXPECT(resume_tag("weights") == 0);
    moved = calls_of(name) - before;
    for (int i = 0; i < BLOCKS; i++)
        EXPECT(!block[i].address || is_right(&block[i]));
    return moved;
}

int main(int argc, char **argv)
{
    bool batches = argc > 1 && strcmp(argv[1], "batches") == 0;
    find("segalloc_tag_push", &push);
    find("segalloc_tag_pop", &pop);
    find("segalloc_pause", &pause_tag);
    find("segalloc_resume", &resume_tag);
    find("segalloc_backup_retain", &retain);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *calls = driver ? dlsym(driver, "segalloc_sim_calls") : NULL;
    EXPECT(calls);
    memcpy(&sim_calls, &calls, sizeof calls);
    if (failures)
        return 1;
    EXPECT(push("weights", argc > 2 ? SEGALLOC_TAG_FILE : 0) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < BLOCKS; i++)
            if (!block[i].address)
                make(&block[i], (unsigned)(round * BLOCKS + i));
        EXPECT(retain(round > 0) == 0);
        uint64_t moved = round_trip(batches ? "cuMemcpyBatchAsync" : "cuMemcpyDtoHAsync_v2");
        /* Files and chunks cut a batch short, here and there. */
        EXPECT(batches ? moved >= 2 * (BLOCKS / BATCH) && moved <= 2 * (BLOCKS / BATCH) + 30 : moved >= BLOCKS);
    }
    for (int i = 0; i < BLOCKS; i++)
        EXPECT(!block[i].address || cudaFree(block[i].address) == cudaSuccess);
    EXPECT(pop() == 0);
    return failures != 0;
}
