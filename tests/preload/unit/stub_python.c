#include "stub_python.h"

#include <stddef.h>
#include <string.h>

_Static_assert(offsetof(struct stub_code, firstlineno) == 68 && offsetof(struct stub_code, filename) == 112 &&
    offsetof(struct stub_code, qualname) == 128 && offsetof(struct stub_code, instructions) == 192, "as 3.12 has it");
_Static_assert(offsetof(struct stub_frame, instruction) == 56 && offsetof(struct stub_frame, owner) == 70,
    "as 3.12 has it");
_Static_assert(offsetof(struct stub_text, state) == 32 && offsetof(struct stub_text, bytes) == 40, "as 3.12 has it");

struct stub_python stub_python = {.version = "3.12.1 (stub)", .initialized = 1};

/* Exported under the interpreter's names, for programs in which it is looked for by them. */
#define EXPORT __attribute__((visibility("default")))
extern EXPORT const char PyCode_Type[1], PyUnicode_Type[1];
EXPORT int Py_IsInitialized(void);
EXPORT void *PyGILState_GetThisThreadState(void);
EXPORT const char *Py_GetVersion(void);
EXPORT int PyCode_Addr2Line(const void *code, int at);
const char PyCode_Type[1] = {0}, PyUnicode_Type[1] = {0};

void stub_text(struct stub_text *text, const char *bytes)
{
    enum { ASCII_COMPACT_OF_ONE_BYTE = 1 << 6 | 1 << 5 | 1 << 2 };
    *text =
        (struct stub_text){.type = PyUnicode_Type, .length = (int64_t)strlen(bytes), .state = ASCII_COMPACT_OF_ONE_BYTE};
    memcpy(text->bytes, bytes, strlen(bytes));
}

void stub_code(struct stub_code *code, const struct stub_text *file, const struct stub_text *name, int line)
{
    *code =
        (struct stub_code){.type = PyCode_Type, .firstlineno = line, .filename = file, .name = name, .qualname = name};
}

void stub_frame(struct stub_frame *frame, const struct stub_code *code, int instruction, struct stub_frame *previous)
{
    *frame = (struct stub_frame){.code = code, .previous = previous, .instruction = &code->instructions[instruction]};
}

int Py_IsInitialized(void)
{
    return stub_python.initialized;
}

void *PyGILState_GetThisThreadState(void)
{
    return stub_python.thread;
}

const char *Py_GetVersion(void)
{
    return stub_python.version;
}

int PyCode_Addr2Line(const void *code, int at)
{
    return ((const struct stub_code *)code)->firstlineno + at / 2;
}

static void *holder(void)
{
    return stub_python.holder;
}

static void *first_frame(void)
{
    stub_python.asked++;
    return stub_python.holder->cframe->current;
}

static void *back(void *frame)
{
    stub_python.asked++;
    return ((struct stub_frame *)frame)->previous;
}

static void *code_of(void *frame)
{
    return (void *)(uintptr_t)((struct stub_frame *)frame)->code;
}

static int line(void *frame)
{
    const struct stub_frame *at = frame;
    return at->code->firstlineno + (int)(at->instruction - at->code->instructions);
}

static void drop(void *object)
{
    (void)object;
    stub_python.dropped++;
}

static void keep(void *object)
{
    (void)object;
    stub_python.kept++;
}

static void *attribute(void *object, const char *name)
{
    const struct stub_code *code = object;
    return (void *)(uintptr_t)(strcmp(name, "co_filename") == 0 ? code->filename : code->name);
}

static const char *utf8(void *text)
{
    return ((struct stub_text *)text)->bytes;
}

void *stub_python_symbol(const char *name)
{
    static const struct {
        const char *name;
        void (*function)(void);
    } functions[] = {
#define FUNCTION(symbol, here) {symbol, (void (*)(void))(uintptr_t)here}
        FUNCTION("Py_IsInitialized", Py_IsInitialized),
        FUNCTION("PyGILState_GetThisThreadState", PyGILState_GetThisThreadState),
        FUNCTION("Py_GetVersion", Py_GetVersion),
        FUNCTION("PyCode_Addr2Line", PyCode_Addr2Line),
        FUNCTION("_PyThreadState_UncheckedGet", holder),
        FUNCTION("PyEval_GetFrame", first_frame),
        FUNCTION("PyFrame_GetBack", back),
        FUNCTION("PyFrame_GetCode", code_of),
        FUNCTION("PyFrame_GetLineNumber", line),
        FUNCTION("Py_DecRef", drop),
        FUNCTION("Py_IncRef", keep),
        FUNCTION("PyObject_GetAttrString", attribute),
        FUNCTION("PyUnicode_AsUTF8", utf8),
#undef FUNCTION
    };
    if (strcmp(name, "PyCode_Type") == 0)
        return (void *)(uintptr_t)PyCode_Type;
    if (strcmp(name, "PyUnicode_Type") == 0)
        return (void *)(uintptr_t)PyUnicode_Type;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strcmp(functions[i].name, name) == 0)
            return (void *)(uintptr_t)functions[i].function;
    return NULL;
}
