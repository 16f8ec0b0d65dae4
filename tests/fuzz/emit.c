#include <inttypes.h>
#include <stdio.h>

#include "books.h"
#include "program.h"

static void emit_setup(const struct fuzz_setup *setup)
{
    static const char *const natures[] = {"PLAIN", "OPAQUE", "UNHEARD", "OWN", "BLOCKING", "LEGACY"};
    printf("        .conf = \"%s\", .total = UINT64_C(%" PRIu64 "), .granularity = %" PRIu64 ",\n", setup->conf,
        setup->total, setup->granularity);
    printf("        .devices = %u, .contexts = %u, .streams = %u, .lag = %u, .check_every = %u,\n",
        setup->devices, setup->contexts, setup->streams, setup->lag, setup->check_every);
    printf("        .nature = {");
    for (int i = 0; i < setup->streams; i++)
        printf("%sFUZZ_%s", i ? ", " : "", natures[setup->nature[i]]);
    printf("%s}, .context_of = {", setup->streams ? "" : "0");
    for (int i = 0; i < setup->streams; i++)
        printf("%s%u", i ? ", " : "", setup->context_of[i]);
    printf("%s},\n", setup->streams ? "" : "0");
    printf("        .sees_possible = %d, .missed_calls = %d, .older = %d, .bounded = %d,\n", setup->sees_possible,
        setup->missed_calls, setup->older, setup->bounded);
}

static void emit_op(const struct fuzz_op *op)
{
    static const char *const frees[] = {"STREAM", "EVENT", "STRICT", "AUTO", "STEP"};
    printf("        {FUZZ_%s", fuzz_kind_name(op->kind));
    if (op->stream == FUZZ_STREAMS)
        printf(", .stream = FUZZ_STREAMS");
    else if (op->stream)
        printf(", .stream = %u", op->stream);
    if (op->kind == FUZZ_FREE)
        printf(", .other = FUZZ_FREE_%s", frees[op->other % FUZZ_FREES]);
    else if (op->kind == FUZZ_FAULT && op->other < BOOKS_CALL_COUNT)
        printf(", .other = BOOKS_%s", books_call_name(op->other));
    else if (op->other)
        printf(", .other = %u", op->other);
    if (op->flags)
        printf(", .flags = %u", op->flags);
    printf(", .block = %u", op->block);
    if (op->bytes == UINT64_MAX)
        printf(", .bytes = UINT64_MAX");
    else if (op->bytes)
        printf(", .bytes = UINT64_C(%" PRIu64 ")", op->bytes);
    printf("},\n");
}

void fuzz_emit(const struct fuzz_program *program, const char *name, const struct fuzz_outcome *outcome)
{
    printf("/* %s */\nstatic void %s(void **state)\n{\n", outcome->broken, name);
    printf("    static const struct fuzz_op ops[] = {\n");
    for (uint32_t i = 0; i < program->ops; i++)
        emit_op(&program->op[i]);
    printf("    };\n    static const struct fuzz_setup setup = {\n");
    emit_setup(&program->setup);
    printf("    };\n    (void)state;\n    play_all(&setup, ops, sizeof ops / sizeof *ops);\n}\n");
}
