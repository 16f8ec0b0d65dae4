/* Random programs of sets and copies on four streams. Steps that meet in a block are ordered in one way only: the one that is asked about.
   At the end each block has the bytes that its last step in that order left. Else the driver orders less than the allocator counts on.

   For example, a program of the way "chain". Stream 1 sets block 3 to 17, and stream 2 is to copy it to block 5. So stream 0 waits for an
   event of stream 1, and stream 2 for one of stream 0. Block 5 is 17 at the end. */
#include <stdlib.h>

#include "probe.h"

enum { STREAMS = 4, BLOCKS = 12, STEPS = 48, WORDS = 4096, NOBODY = -1 };

/* Ways in which the step of one stream comes after those of another. */
enum way { BY_EVENT, BY_CHAIN, BY_LEGACY, BY_HOST, BY_QUERY, BY_CONTEXT, WAYS };
static const char *const way_names[WAYS] = {"event", "chain", "legacy stream", "host", "query", "context event"};

struct block {
    CUdeviceptr at;
    uint32_t value;
    int writer;             /* the stream of the last step that wrote it */
    bool reader[STREAMS];   /* streams that have read it since */
};

struct program {
    enum way way;
    uint64_t random;
    CUstream stream[STREAMS];
    CUevent event;
    CUdeviceptr memory;
    struct block block[BLOCKS];
    struct probe_work work;
    uint32_t *host;
    int joins, wrong;
};

static unsigned program_draw(struct program *program, unsigned below)
{
    program->random = program->random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(program->random >> 33) % below;
}

/* Asks until the event has passed: bounded by the row's deadline. */
static CUresult event_poll(CUevent event)
{
    CUresult result;
    do
        result = probe.cu.cuEventQuery(event);
    while (result == CUDA_ERROR_NOT_READY);
    return probe_answered("cuEventQuery", result);
}

/* Orders what comes next on stream `to` after all that is on stream `from`, in the way of the program. */
static CUresult program_join(struct program *program, int from, int to)
{
    CUstream source = program->stream[from], target = program->stream[to];
    CUstream between = program->stream[(to + 1) % STREAMS == from ? (to + 2) % STREAMS : (to + 1) % STREAMS];
    CUresult result = CUDA_SUCCESS;
    program->joins++;
    switch (program->way) {
    case BY_CHAIN:
        result = probe_join(source, between, program->event);
        return result == CUDA_SUCCESS ? probe_join(between, target, program->event) : result;
    case BY_LEGACY:
        /* Its streams are blocking ones: they come after what is on the legacy stream, and that comes after them. */
        return ASK(cuMemsetD32Async, program->memory, 0, 16, CU_STREAM_LEGACY);
    case BY_HOST:
        return ASK(cuStreamSynchronize, source);
    case BY_QUERY:
        result = ASK(cuEventRecord, program->event, source);
        return result == CUDA_SUCCESS ? event_poll(program->event) : result;
    case BY_CONTEXT:
        result = ASK(cuCtxRecordEvent, probe.context, program->event);
        return result == CUDA_SUCCESS ? ASK(cuEventSynchronize, program->event) : result;
    default:
        return probe_join(source, target, program->event);
    }
}

/* Orders stream `to` after those that have written the block, and where it is to be written, after those that read it. */
static CUresult program_join_block(struct program *program, struct block *block, int to, bool writes)
{
    CUresult result = CUDA_SUCCESS;
    if (block->writer != NOBODY && block->writer != to)
        result = program_join(program, block->writer, to);
    for (int i = 0; i < STREAMS && writes && result == CUDA_SUCCESS; i++)
        if (block->reader[i] && i != to && i != block->writer)
            result = program_join(program, i, to);
    return result;
}

static CUresult program_step(struct program *program, uint32_t value)
{
    int stream = (int)program_draw(program, STREAMS);
    struct block *to = &program->block[program_draw(program, BLOCKS)], *from = &program->block[program_draw(program, BLOCKS)];
    bool copies = to != from && program_draw(program, 3);
    CUresult result = program_join_block(program, to, stream, true);
    if (copies && result == CUDA_SUCCESS)
        result = program_join_block(program, from, stream, false);
    if (result == CUDA_SUCCESS)
        result = copies ? ASK(cuMemcpyDtoDAsync_v2, to->at, from->at, WORDS * 4, program->stream[stream])
                        : ASK(cuMemsetD32Async, to->at, value, WORDS, program->stream[stream]);
    from->reader[stream] |= copies;
    to->value = copies ? from->value : value;
    to->writer = stream;
    for (int i = 0; i < STREAMS; i++)
        to->reader[i] = false;
    return result;
}

/* One stream is behind from the start, so that a step that does not wait comes too early. */
static bool program_play(struct program *program)
{
    for (int i = 0; i < BLOCKS; i++)
        program->block[i] =
            (struct block){.at = program->memory + (size_t)(i + 1) * WORDS * 4, .writer = NOBODY, .value = 1};
    NEED(probe.cu.cuMemsetD32Async(program->memory, 1, (BLOCKS + 1) * WORDS, probe.load));
    NEED(probe.cu.cuStreamSynchronize(probe.load));
    NEED(probe_work_queue(&program->work, program->stream[program_draw(program, STREAMS)]));
    for (int i = 0; i < STEPS; i++)
        NEED(program_step(program, (uint32_t)program->random | 1u));
    NEED(probe.cu.cuCtxSynchronize());
    NEED(probe.cu.cuMemcpyDtoH_v2(program->host, program->memory, (size_t)(BLOCKS + 1) * WORDS * 4));
    for (int i = 0; i < BLOCKS; i++)
        for (int k = 0; k < WORDS; k++)
            if (program->host[(i + 1) * WORDS + k] != program->block[i].value) {
                program->wrong++;
                break;
            }
    return true;
}

static bool order_in_way(struct program *program, enum way way)
{
    int programs = probe.quick ? 6 : 40;
    if (way == BY_CONTEXT && !probe.cu.cuCtxRecordEvent)
        return probe_skip("this driver has no %s", "cuCtxRecordEvent");
    program->way = way;
    program->joins = program->wrong = 0;
    for (int i = 0; i < STREAMS; i++)
        NEED(probe.cu.cuStreamCreate(&program->stream[i], way == BY_LEGACY ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < programs; i++) {
        program->random = (uint64_t)way << 32 | (unsigned)i;
        if (!program_play(program))
            return false;
    }
    probe_say("'way': '%s', 'programs': %d, 'steps': %d, 'joins': %d, 'wrong': %d", way_names[way], programs,
        programs * STEPS, program->joins, program->wrong);
    for (int i = 0; i < STREAMS; i++)
        NEED(probe.cu.cuStreamDestroy_v2(program->stream[i]));
    return true;
}

bool selftest_order(void)
{
    struct program program = {.joins = 0};
    HAVE(cuMemsetD32Async);
    program.host = malloc((size_t)(BLOCKS + 1) * WORDS * 4);
    if (!program.host)
        return probe_refused("memory of the host", CUDA_ERROR_OUT_OF_MEMORY);
    NEED(probe_work_make(5, &program.work));
    NEED(probe.cu.cuEventCreate(&program.event, CU_EVENT_DISABLE_TIMING));
    NEED(probe.cu.cuMemAlloc_v2(&program.memory, (size_t)(BLOCKS + 1) * WORDS * 4));
    for (int way = 0; way < WAYS; way++)
        if (!order_in_way(&program, (enum way)way))
            return false;
    NEED(probe.cu.cuMemFree_v2(program.memory));
    NEED(probe.cu.cuEventDestroy_v2(program.event));
    probe_work_end(&program.work);
    free(program.host);
    return true;
}
