#include "analysis/roles.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/role_sites.h"
#include "analysis/walk.h"
#include "base/idmap.h"
#include "trace/growing_array.h"

/* KEPT: backward passes that no activation lives through. Losses, batches and what a generator made live through two or three. */
enum { KEPT = 4, THREADS = 1 << 16, BATCH = 4096 };

/* The state of the program, which moves on as its threads ask for memory and free it. */
struct progress {
    uint32_t forwards, backwards, steps,
        failures; /* allocations in forward passes; passes, steps of optimizers, failures begun so far */
    bool in_backward, in_step;
};

struct role_block {
    uint64_t size, request; /* request: its number; 0: not alive */
    struct progress born;
    uint32_t site, device;
    uint8_t maker;
};

/* A block's life as it ends. */
struct life {
    uint32_t passes;    /* backward passes that began within it */
    bool failed;        /* an allocation did meanwhile */
    bool freed;         /* else the trace ends before it does */
    bool freed_in_pass; /* by a thread that runs backward passes */
};

/* Bytes of a forward line whose blocks lived into a backward pass, and of those that did not. */
struct line_past {
    uint64_t kept, dropped;
};

struct role_reader {
    struct sg_roles_moment *moment;
    uint32_t moments;
    const struct sg_site_book *book;
    uint8_t *maker;                        /* by site */
    struct line_past *past;                /* by site */
    struct sg_idmap cut;                   /* moment << 32 | site -> bytes that were cut short in a forward pass */
    struct sg_idmap gradients, parameters; /* sizes that there were */
    struct role_block *block;              /* by number of the block */
    uint32_t blocks, room;
    struct progress now;
    uint32_t driver;           /* the thread that starts backward passes, plus 1; 0: not known */
    uint16_t pass_thread;      /* that has asked last within one */
    bool is_backward[THREADS]; /* threads that run backward passes for others */
};

const char *sg_role_key(enum sg_role role)
{
    static const char *const keys[] = {
#define ROLE(name, key, text) key,
#include "analysis/roles.def"
    };
    return keys[role];
}

const char *sg_role_text(enum sg_role role)
{
    static const char *const texts[] = {
#define ROLE(name, key, text) text,
#include "analysis/roles.def"
    };
    return texts[role];
}

uint32_t sg_roles_order(const struct sg_roles *roles, enum sg_role ret[SG_ROLE_COUNT])
{
    uint32_t count = 0;
    for (int role = 0; role < SG_ROLE_COUNT; role++) {
        uint32_t at = count;
        if (!roles->bytes[role])
            continue;
        for (; at > 0 && roles->bytes[ret[at - 1]] < roles->bytes[role]; at--)
            ret[at] = ret[at - 1];
        ret[at] = (enum sg_role)role;
        count++;
    }
    return count;
}

/* The maker of a new block. Code of the vendor's alone is told apart where the caller is not PyTorch. */
static enum sg_maker role_maker_of(const struct role_reader *reader, const struct sg_walk_event *event)
{
    enum sg_maker maker = event->site < reader->book->sites ? reader->maker[event->site] : SG_MADE_UNKNOWN;
    bool torch = event->record->flags & SEGALLOC_FLAG_TORCH;
    if (maker >= SG_MADE_OWN_INIT && !torch)
        return SG_MADE_UNKNOWN;
    if (maker == SG_MADE_UNKNOWN && torch && reader->is_backward[event->record->thread])
        return SG_MADE_BACKWARD;
    return maker;
}

/* A thread of the program's own does something: a backward pass of another thread's is over, for its starter waits for it. */
static void progress_back_in_program(struct role_reader *reader, uint16_t thread)
{
    if (!reader->is_backward[thread] && (!reader->driver || reader->driver == thread + 1u))
        reader->now.in_backward = false;
}

static void progress_take_alloc(struct role_reader *reader, enum sg_maker maker, uint16_t thread)
{
    struct progress *now = &reader->now;
    if (maker == SG_MADE_ENGINE)
        reader->driver = thread + 1u;
    switch (maker) {
    case SG_MADE_BACKWARD:
    case SG_MADE_RECOMPUTED:
        now->backwards += !now->in_backward;
        now->in_backward = true;
        now->in_step = false;
        reader->pass_thread = thread;
        break;
    case SG_MADE_OPTIMIZER:
        now->steps += !now->in_step;
        now->in_step = true;
        progress_back_in_program(reader, thread);
        break;
    case SG_MADE_FORWARD:
    case SG_MADE_OWN_INIT:
    case SG_MADE_ENGINE:
        now->forwards += maker != SG_MADE_OWN_INIT;
        now->in_step = now->in_step && reader->driver && reader->driver != thread + 1u;
        progress_back_in_program(reader, thread);
        break;
    default:
        break;
    }
}

static bool has_size(const struct sg_idmap *sizes, uint64_t size)
{
    return sg_idmap_get(sizes, size) != 0;
}

/* True if it is cuBLAS's: of its size, and kept for good. */
static bool block_is_workspace(const struct role_block *block, const struct life *life)
{
    bool alone;
    if (!sg_maker_is_workspace(block->size, &alone))
        return false;
    return life->passes >= KEPT || (!life->freed && (alone || (!life->failed && block->maker != SG_MADE_BACKWARD)));
}

static enum sg_role role_of_forward(const struct life *life)
{
    return life->passes >= KEPT ? SG_ROLE_UNKNOWN : life->passes ? SG_ROLE_ACTIVATION : SG_ROLE_TEMPORARY;
}

static enum sg_role role_of_backward(const struct role_reader *reader, const struct role_block *block,
    const struct life *life)
{
    if (life->failed && !life->passes)
        return has_size(&reader->parameters, block->size) ? SG_ROLE_GRADIENT : SG_ROLE_TEMPORARY;
    return reader->now.in_backward && !life->passes ? SG_ROLE_TEMPORARY : SG_ROLE_GRADIENT;
}

/* Tensors of the program's own __init__: what has a gradient is a parameter. Where there are no gradients all are. */
static enum sg_role role_of_own_init(const struct role_reader *reader, const struct role_block *block,
    const struct life *life)
{
    if (life->freed && reader->now.forwards == block->born.forwards)
        return SG_ROLE_TEMPORARY;
    return !reader->gradients.count || has_size(&reader->gradients, block->size) ? SG_ROLE_PARAMETER : SG_ROLE_BUFFER;
}

/* The role of a block by its maker and its life. */
static enum sg_role role_of_block(const struct role_reader *reader, const struct role_block *block,
    const struct life *life)
{
    static const enum sg_role always[] = {[SG_MADE_UNKNOWN] = SG_ROLE_UNKNOWN,
        [SG_MADE_PARAMETER] = SG_ROLE_PARAMETER,
        [SG_MADE_BUFFER] = SG_ROLE_BUFFER,
        [SG_MADE_GRADIENT] = SG_ROLE_GRADIENT,
        [SG_MADE_COMMUNICATION] = SG_ROLE_COMMUNICATION,
        [SG_MADE_LIBRARY] = SG_ROLE_WORKSPACE,
        [SG_MADE_RECOMPUTED] = SG_ROLE_ACTIVATION,
        [SG_MADE_ENGINE] = SG_ROLE_TEMPORARY};
    const struct progress *now = &reader->now;
    bool computes = block->maker == SG_MADE_FORWARD || block->maker == SG_MADE_RECOMPUTED ||
                    block->maker == SG_MADE_BACKWARD;
    if (computes && block_is_workspace(block, life))
        return SG_ROLE_WORKSPACE;
    switch (block->maker) {
    case SG_MADE_OPTIMIZER:
        return life->freed && now->in_step && now->steps == block->born.steps ? SG_ROLE_TEMPORARY : SG_ROLE_OPTIMIZER;
    case SG_MADE_CACHE: /* a backward pass frees what it needs itself, as in training */
        return life->passes && life->freed_in_pass ? SG_ROLE_ACTIVATION : SG_ROLE_KV_CACHE;
    case SG_MADE_REDUCED: /* the sum stays, as a gradient */
        return reader->now.in_backward && !life->passes ? SG_ROLE_COMMUNICATION : SG_ROLE_GRADIENT;
    case SG_MADE_OWN_INIT:
        return role_of_own_init(reader, block, life);
    case SG_MADE_BACKWARD:
        return role_of_backward(reader, block, life);
    case SG_MADE_FORWARD:
        return role_of_forward(life);
    default:
        return always[block->maker];
    }
}

static int idmap_add(struct sg_idmap *map, uint64_t id, uint64_t bytes)
{
    return !bytes || sg_idmap_put(map, id, sg_idmap_get(map, id) + bytes) ? 0 : -ENOMEM;
}

/* Keeps what the life of a block says of others. 0 or -ENOMEM. */
static int role_note_life(struct role_reader *reader, const struct role_block *block, enum sg_role role)
{
    if (role == SG_ROLE_GRADIENT && block->maker == SG_MADE_BACKWARD)
        return sg_idmap_put(&reader->gradients, block->size, 1) ? 0 : -ENOMEM;
    if (block->maker == SG_MADE_FORWARD && role == SG_ROLE_ACTIVATION)
        reader->past[block->site].kept += block->size;
    if (block->maker == SG_MADE_FORWARD && role == SG_ROLE_TEMPORARY)
        reader->past[block->site].dropped += block->size;
    return 0;
}

/* Counts a block in the moments within its life, which ends before request `until`. 0 or -ENOMEM. */
static int role_count(struct role_reader *reader, const struct role_block *block, const struct life *life,
    uint64_t until)
{
    enum sg_role role = role_of_block(reader, block, life);
    bool cut = block->maker == SG_MADE_FORWARD && role == SG_ROLE_TEMPORARY && (life->failed || !life->freed);
    int error = cut ? 0 : role_note_life(reader, block, role);
    for (uint32_t i = 0; i < reader->moments && !error; i++) {
        struct sg_roles_moment *moment = &reader->moment[i];
        if (moment->device != block->device || moment->request < block->request || moment->request >= until)
            continue;
        if (cut)
            error = idmap_add(&reader->cut, (uint64_t)i << 32 | block->site, block->size);
        else
            moment->roles.bytes[role] += block->size;
    }
    return error;
}

/* The life of a block up to now. */
static struct life life_of(const struct role_reader *reader, const struct role_block *block)
{
    return (struct life){.passes = reader->now.backwards - block->born.backwards,
        .failed = reader->now.failures != block->born.failures};
}

static int role_take_alloc(struct role_reader *reader, const struct sg_walk_event *event)
{
    const uint16_t thread = event->record->thread;
    enum sg_maker maker = role_maker_of(reader, event);
    if (sg_growing_array((void **)&reader->block, &reader->blocks, &reader->room, event->block, sizeof *reader->block))
        return -ENOMEM;
    if (maker == SG_MADE_BACKWARD || maker == SG_MADE_RECOMPUTED)
        reader->is_backward[thread] |= reader->driver != thread + 1u;
    progress_take_alloc(reader, maker, thread);
    reader->block[event->block] = (struct role_block){.size = event->size,
        .request = event->request,
        .born = reader->now,
        .site = event->site < reader->book->sites ? event->site : 0,
        .device = event->device,
        .maker = (uint8_t)maker};
    return maker != SG_MADE_PARAMETER || sg_idmap_put(&reader->parameters, event->size, 1) ? 0 : -ENOMEM;
}

static int role_take_event(void *user, const struct sg_walk_event *event)
{
    struct role_reader *reader = user;
    if (event->kind == SG_WALK_FAILURE)
        reader->now.failures++;
    if (event->kind == SG_WALK_ALLOC)
        return role_take_alloc(reader, event);
    if (event->kind != SG_WALK_FREE)
        return 0;
    if (event->record->thread != reader->pass_thread)
        progress_back_in_program(reader, event->record->thread);
    struct role_block *block = &reader->block[event->block];
    struct life life = life_of(reader, block);
    life.freed = true;
    life.freed_in_pass = reader->is_backward[event->record->thread];
    int error = role_count(reader, block, &life, event->request);
    block->request = 0;
    return error;
}

/* Blocks that were never freed, and then those that were cut short: by what their lines did otherwise. */
static int role_take_end(struct role_reader *reader)
{
    int error = 0;
    reader->now.in_backward = false;
    for (int gradients = 1; gradients >= 0; gradients--) /* their sizes say what the others are */
        for (uint32_t i = 0; i < reader->blocks && !error; i++)
            if (reader->block[i].request && (reader->block[i].maker == SG_MADE_BACKWARD) == gradients) {
                const struct life life = life_of(reader, &reader->block[i]);
                error = role_count(reader, &reader->block[i], &life, UINT64_MAX);
            }
    for (size_t i = 0; i <= reader->cut.mask && !error; i++) {
        const struct sg_idmap_entry *entry = &reader->cut.entry[i];
        const struct line_past *past = &reader->past[entry->id & UINT32_MAX];
        if (entry->value)
            reader->moment[entry->id >> 32]
                .roles.bytes[past->dropped > past->kept ? SG_ROLE_TEMPORARY : SG_ROLE_ACTIVATION] += entry->value;
    }
    return error;
}

static void role_reader_free(struct role_reader *reader)
{
    sg_idmap_fini(&reader->cut);
    sg_idmap_fini(&reader->gradients);
    sg_idmap_fini(&reader->parameters);
    free(reader->maker);
    free(reader->past);
    free(reader->block);
    free(reader);
}

/* Gathers the sites of the whole trace. *ret_torch: PyTorch asked for memory. 0 or a negative errno. */
static int role_read_book(struct sg_trace_reader *trace, struct sg_site_book *book, bool *ret_torch)
{
    struct segalloc_trace_record *record = malloc(BATCH * sizeof *record);
    int error = record ? sg_trace_rewind(trace) : -ENOMEM;
    *ret_torch = false;
    for (size_t n; !error && (n = sg_trace_read(trace, record, BATCH)) > 0;)
        for (size_t i = 0; i < n && !error; i++) {
            error = sg_site_book_add(book, &record[i]);
            *ret_torch |= record[i].kind == SEGALLOC_RECORD_ALLOCATE && record[i].flags & SEGALLOC_FLAG_TORCH;
        }
    free(record);
    return error;
}

static int role_read_lives(struct sg_trace_reader *trace, struct role_reader *reader)
{
    bool whole = sg_idmap_init(&reader->cut) && sg_idmap_init(&reader->gradients) && sg_idmap_init(&reader->parameters);
    reader->maker = sg_makers_of(reader->book);
    reader->past = calloc(reader->book->sites + 1, sizeof *reader->past);
    int error = whole && reader->maker && reader->past ? sg_trace_rewind(trace) : -ENOMEM;
    if (!error)
        error = sg_walk(trace, role_take_event, reader);
    return error ? error : role_take_end(reader);
}

int sg_roles_read(struct sg_trace_reader *trace, struct sg_roles_moment *moment, uint32_t moments)
{
    struct sg_site_book book = {0};
    bool torch;
    int error = role_read_book(trace, &book, &torch);
    bool cached = strstr(sg_trace_info(trace)->conf, "pytorch:beneath") != NULL;
    if (error || !torch || cached || book.sites < 2) {
        sg_site_book_free(&book);
        return error;
    }
    struct role_reader *reader = calloc(1, sizeof *reader);
    if (reader) {
        reader->moment = moment;
        reader->moments = moments;
        reader->book = &book;
        error = role_read_lives(trace, reader);
        role_reader_free(reader);
    }
    sg_site_book_free(&book);
    return reader ? error : -ENOMEM;
}
