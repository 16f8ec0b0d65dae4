/* An interpreter that runs nothing, laid out as CPython 3.12 is where it is looked at: stacks are what a test says. */
#ifndef STUB_PYTHON_H
#define STUB_PYTHON_H

#include <stdbool.h>
#include <stdint.h>

enum { STUB_FRAMES = 64 };

struct stub_text {
    int64_t references;
    const void *type;
    int64_t length, hash;
    uint64_t state;
    char bytes[472]; /* of an ASCII string; of another one from bytes[16] on */
};

struct stub_code {
    int64_t references;
    const void *type;
    unsigned char before[52];
    int32_t firstlineno; /* at 68 */
    unsigned char more[40];
    const struct stub_text *filename; /* at 112 */
    const struct stub_text *name;     /* at 120, without what is around it */
    const struct stub_text *qualname; /* at 128 */
    unsigned char rest[56];
    uint16_t instructions[1024]; /* at 192 */
};

struct stub_frame {
    const struct stub_code *code;
    struct stub_frame *previous; /* at 8 */
    unsigned char before[40];
    const uint16_t *instruction; /* at 56 */
    unsigned char more[6];
    char owner; /* at 70; 3: the interpreter's own */
};

struct stub_cframe {
    struct stub_frame *current;
};

struct stub_thread {
    unsigned char before[56];
    struct stub_cframe *cframe; /* at 56 */
};

extern struct stub_python {
    const char *version;
    int initialized;
    struct stub_thread *thread; /* the calling one's, NULL: none */
    struct stub_thread *holder; /* of the interpreter's lock */
    int asked, dropped, kept;   /* calls of its functions about frames, and of references */
} stub_python;

/* Fills in what a string, or code at a line, is; ASCII alone. */
void stub_text(struct stub_text *text, const char *bytes);
void stub_code(struct stub_code *code, const struct stub_text *file, const struct stub_text *name, int line);
/* A frame at an instruction; its line is that of its code and the number of the instruction. */
void stub_frame(struct stub_frame *frame, const struct stub_code *code, int instruction, struct stub_frame *previous);

/* What the interpreter exports, by name; NULL: no such thing. */
void *stub_python_symbol(const char *name);

#endif
