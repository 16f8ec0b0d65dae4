#include <stdlib.h>
#include <string.h>

#include "program.h"
#include "size.h"

static struct fuzz_op *op, *tried;
static uint32_t ops;
static struct fuzz_setup setup;
static char conf[FUZZ_CONF_BYTES];
static bool (*does_fail)(const struct fuzz_program *program);

static bool fails_with(const struct fuzz_setup *with, const struct fuzz_op *these, uint32_t count)
{
    return does_fail(&(struct fuzz_program){*with, these, count});
}

/* Leaves [at, at + piece) out if it fails without them too. */
static bool leave_out(uint32_t at, uint32_t piece)
{
    uint32_t end = at + piece < ops ? at + piece : ops;
    memcpy(tried, op, at * sizeof *op);
    memcpy(tried + at, op + end, (ops - end) * sizeof *op);
    if (!fails_with(&setup, tried, at + ops - end))
        return false;
    ops = at + ops - end;
    memcpy(op, tried, ops * sizeof *op);
    return true;
}

/* Pieces of half of all operations, then of half of that, down to single ones until none can be left out. */
static void leave_out_all(void)
{
    for (uint32_t piece = ops / 2 ? ops / 2 : 1;;) {
        bool any = false;
        for (uint32_t at = 0; at < ops;)
            if (leave_out(at, piece))
                any = true;
            else
                at += piece;
        if (piece == 1 && !any)
            return;
        piece = piece / 2 ? piece / 2 : 1;
    }
}

/* Takes a simpler operation or setup if it fails all the same. */
static bool take_op(uint32_t at, struct fuzz_op simpler)
{
    struct fuzz_op before = op[at];
    if (memcmp(&before, &simpler, sizeof before) == 0)
        return false;
    op[at] = simpler;
    if (fails_with(&setup, op, ops))
        return true;
    op[at] = before;
    return false;
}

static bool take_setup(struct fuzz_setup simpler)
{
    if (memcmp(&setup, &simpler, sizeof setup) == 0 || !fails_with(&simpler, op, ops))
        return false;
    setup = simpler;
    return true;
}

static void simplify_ops(void)
{
    for (uint32_t i = 0; i < ops; i++) {
        struct fuzz_op simpler = op[i];
        simpler.flags = 0;
        take_op(i, simpler);
        static const uint64_t steps[] = {64 * SG_MIB, 2 * SG_MIB, SG_MIB, 64 * SG_KIB, 512};
        for (size_t k = 0; k < sizeof steps / sizeof *steps && op[i].kind == FUZZ_ALLOCATE; k++) {
            simpler = op[i];
            simpler.bytes = (simpler.bytes + steps[k] - 1) / steps[k] * steps[k];
            if (take_op(i, simpler))
                break;
        }
        if (op[i].kind == FUZZ_FREE) {
            simpler = op[i];
            simpler.other = FUZZ_FREE_STREAM;
            take_op(i, simpler);
        }
        simpler = op[i];
        simpler.stream = simpler.stream < FUZZ_STREAMS ? 0 : simpler.stream;
        take_op(i, simpler);
        simpler = op[i];
        simpler.other = 0;
        take_op(i, simpler);
        simpler = op[i];
        simpler.bytes = 0;
        take_op(i, simpler);
        simpler = op[i];
        simpler.block = 0;
        take_op(i, simpler);
    }
}

/* Leaves out one part of the configuration after the other. */
static bool simplify_conf(void)
{
    unsigned depth = 0;
    for (char *part = conf; *part;) {
        char before[FUZZ_CONF_BYTES], *end = part;
        for (; *end && (*end != ',' || depth); end++)
            depth += (*end == '[') - (*end == ']');
        memcpy(before, conf, sizeof before);
        char *next = *end ? end + 1 : end;
        memmove(part, next, strlen(next) + 1);
        size_t length = strlen(conf);
        if (length && conf[length - 1] == ',')
            conf[length - 1] = '\0';
        if (fails_with(&setup, op, ops))
            return true;
        memcpy(conf, before, sizeof before);
        part = next;
    }
    return false;
}

static void simplify_setup(void)
{
    struct fuzz_setup simpler = setup;
    bool *flags[] = {&simpler.sees_possible, &simpler.missed_calls, &simpler.older, &simpler.bounded};
    while (simplify_conf()) {
    }
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        simpler = setup;
        *flags[i] = false;
        take_setup(simpler);
    }
    simpler = setup;
    simpler.contexts = 0;
    simpler.devices = 1;
    take_setup(simpler);
    simpler = setup;
    simpler.devices = 1;
    take_setup(simpler);
    for (int i = 0; i < FUZZ_STREAMS_AT_ONCE; i++) {
        simpler = setup;
        simpler.nature[i] = FUZZ_PLAIN;
        simpler.context_of[i] = 0;
        take_setup(simpler);
    }
    for (simpler = setup; simpler.streams > 0;) {
        simpler = setup;
        simpler.streams--;
        if (!take_setup(simpler))
            break;
    }
    simpler = setup;
    simpler.total = simpler.total / simpler.granularity * simpler.granularity;
    take_setup(simpler);
    simpler = setup;
    simpler.lag = 0;
    take_setup(simpler);
    simpler = setup;
    simpler.check_every = 1;
    take_setup(simpler);
}

/* Numbers the blocks from 0 as they come. */
static void renumber(void)
{
    uint32_t next = 0;
    memcpy(tried, op, ops * sizeof *op);
    for (uint32_t i = 0; i < ops; i++) {
        if (op[i].kind != FUZZ_ALLOCATE)
            continue;
        for (uint32_t k = i; k < ops; k++)
            if (op[k].block == op[i].block && (k == i || op[k].kind != FUZZ_ALLOCATE))
                tried[k].block = next;
        next++;
    }
    if (fails_with(&setup, tried, ops))
        memcpy(op, tried, ops * sizeof *op);
}

void fuzz_shrink(struct fuzz_program *program, bool (*fails)(const struct fuzz_program *program))
{
    op = malloc((program->ops + 1) * sizeof *op);
    tried = malloc((program->ops + 1) * sizeof *tried);
    if (!op || !tried)
        abort();
    memcpy(op, program->op, program->ops * sizeof *op);
    ops = program->ops;
    setup = program->setup;
    strncpy(conf, setup.conf, sizeof conf - 1);
    setup.conf = conf;
    does_fail = fails;
    leave_out_all();
    simplify_setup();
    simplify_ops();
    leave_out_all();
    simplify_ops();
    renumber();
    *program = (struct fuzz_program){setup, op, ops};
}
