#include "replay/core_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "ledger_driver.h"
#include "core/core.h"
#include "idmap.h"

enum { LIVES = 5, BATCH = 1024 };

struct operation {
    uint64_t size; /* 0: a free */
    uint32_t slot; /* of the block in a dense array */
    uint32_t stream;
};

struct script {
    struct operation *operation;
    size_t count, room;
    uint32_t slots;
};

/* Appends; false when out of host memory. */
static bool script_append(struct script *script, struct operation operation)
{
    if (script->count == script->room) {
        size_t room = script->room ? 2 * script->room : 1 << 16;
        struct operation *larger = realloc(script->operation, room * sizeof *larger);
        if (!larger)
            return false;
        script->operation = larger;
        script->room = room;
    }
    script->operation[script->count++] = operation;
    return true;
}

/* Turns records into operations on numbered blocks; the number freed last is used first. */
static bool script_decode(const struct sg_play *play, struct script *script)
{
    struct segalloc_trace_record batch[BATCH];
    struct sg_idmap live;
    uint32_t *spare = NULL, spares = 0, room = 0;
    bool fine = sg_idmap_init(&live);
    for (size_t n; fine && (n = play->next(play->source, batch, BATCH)) > 0;) {
        for (size_t i = 0; i < n && fine; i++) {
            const struct segalloc_trace_record *record = &batch[i];
            if (record->kind == SEGALLOC_RECORD_ALLOCATE && record->size) {
                uint32_t slot = spares ? spare[--spares] : script->slots++;
                fine = sg_idmap_put(&live, record->id, slot + 1) &&
                       script_append(script, (struct operation){record->size, slot, record->stream});
            } else if (record->kind == SEGALLOC_RECORD_FREE) {
                uint64_t slot = sg_idmap_take(&live, record->id);
                if (!slot)
                    continue;
                if (spares == room) {
                    room = room ? 2 * room : 4096;
                    uint32_t *larger = realloc(spare, room * sizeof *spare);
                    fine = larger != NULL;
                    spare = larger ? larger : spare;
                }
                if (fine) {
                    spare[spares++] = (uint32_t)slot - 1;
                    fine = script_append(script, (struct operation){0, (uint32_t)slot - 1, record->stream});
                }
            }
        }
    }
    free(spare);
    sg_idmap_fini(&live);
    return fine;
}

static double live_once(const struct sg_play *play, const struct script *script, CUdeviceptr *block)
{
    struct timespec began, ended;
    struct sg_ledger card;
    sg_ledger_init(&card, play->card_bytes, play->granularity);
    sg_ledger_use(&card);
    struct sg_core *core = sg_core_create(&(struct sg_core_params){.conf = &play->conf, .driver = &sg_ledger_driver});
    clock_gettime(CLOCK_MONOTONIC, &began);
    for (size_t i = 0; core && i < script->count; i++) {
        const struct operation *operation = &script->operation[i];
        const struct sg_tag tag = {.stream = (CUstream)(uintptr_t)operation->stream, .has_stream = true,
            .sync = SG_FREE_SYNC_COMPLETE};
        CUdeviceptr *at = &block[operation->slot];
        if (!operation->size)
            (void)sg_core_free(core, *at, &tag);
        else if (sg_core_malloc(core, 0, operation->size, &tag, at) != CUDA_SUCCESS)
            *at = 0;
    }
    clock_gettime(CLOCK_MONOTONIC, &ended);
    sg_core_destroy(core);
    sg_ledger_fini(&card);
    return (double)(ended.tv_sec - began.tv_sec) * 1e9 + (double)(ended.tv_nsec - began.tv_nsec);
}

int sg_bench_run(const struct sg_play *play, double *ret_ns_per_op, char error[SG_PLAY_ERROR])
{
    struct script script = {0};
    CUdeviceptr *block = NULL;
    int status = -1;
    if (script_decode(play, &script) && (block = calloc(script.slots + 1, sizeof *block))) {
        double best = 0;
        for (int life = 0; life < LIVES && script.count; life++) {
            double ns = live_once(play, &script, block);
            best = life == 0 || ns < best ? ns : best;
        }
        *ret_ns_per_op = script.count ? best / (double)script.count : 0;
        status = 0;
    } else {
        snprintf(error, SG_PLAY_ERROR, "no host memory left for the decoded trace");
    }
    free(block);
    free(script.operation);
    return status;
}
