/* Reading of CPython's frames by offsets of python_stack.def.

   A layout is confirmed once on a real stack, by reads that may fail (process_vm_readv). Each code object must have the
   type of code objects, each name that of texts. From then on plain reads do. */
#include "process/glibc_symver.h"

#include "sites/python_stack.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "process/symbols.h"

#define ASKED (UINT64_C(1) << 63) /* in sg_frame.at: the rest is a line */

enum { NONE = 0xffff, OWNED_BY_C = 3, CONFIRM_DEEP = 64, DEEPEST = 512, OB_TYPE = 8, TEXT_LENGTH = 16, TEXT_STATE = 32 };

struct layout {
    const char *version;
    uint16_t thread_frame, cframe_frame, back, code, at;
    bool is_pointer;
    uint16_t unit, owner, filename, name, firstlineno, start, text, wide;
};

static const struct layout layouts[] = {
#define PYTHON(...) {__VA_ARGS__},
#include "sites/python_stack.def"
};

/* One thread looks for the interpreter's functions, which takes some 10 µs. Allocations of other threads have no lines of Python
   meanwhile. A wait for that thread could be for good, where a signal's handler has interrupted it.

   For example, threads 1 and 2 allocate first at the same time. Thread 1 finds UNSEEN and looks. Thread 2 finds LOOKING, and its
   block has the lines of its code alone. */
enum state { UNSEEN, LOOKING, ABSENT, UNCONFIRMED, READ, ASK };

static struct {
    _Atomic(enum state) state;
    const struct layout *layout;
    const void *code_type, *text_type;
    int (*is_initialized)(void);
    void *(*own_thread)(void);
    const char *(*version)(void);
    int (*line_of)(const void *code, int at);
    /* For those whose layout is not known. */
    void *(*holder)(void);
    void *(*frame)(void);
    void *(*back)(void *frame);
    void *(*code)(void *frame);
    int (*line)(void *frame);
    void (*drop)(void *object);
    void (*keep)(void *object);
    void *(*attribute)(void *object, const char *name);
    const char *(*utf8)(void *text);
    int (*collect_off)(void), (*collect_on)(void);
} python;

static bool python_find(const char *name, void *pointer)
{
    void *found = sg_dlsym()(RTLD_DEFAULT, name);
    memcpy(pointer, &found, sizeof found);
    return found != NULL;
}

static bool can_ask(void)
{
    return python.holder && python.frame && python.back && python.code && python.line && python.drop && python.keep &&
        python.attribute && python.utf8;
}

/* Looks for CPython's functions and for the layout of its version. A build without the interpreter's lock has no layout
   here: its frames may move. */
static enum state python_look(void)
{
    if (!python_find("Py_IsInitialized", &python.is_initialized) ||
        !python_find("PyGILState_GetThisThreadState", &python.own_thread) ||
        !python_find("Py_GetVersion", &python.version))
        return ABSENT;
    if (!python_find("PyThreadState_GetUnchecked", &python.holder))
        python_find("_PyThreadState_UncheckedGet", &python.holder);
    python_find("PyEval_GetFrame", &python.frame);
    python_find("PyFrame_GetBack", &python.back);
    python_find("PyFrame_GetCode", &python.code);
    python_find("PyFrame_GetLineNumber", &python.line);
    python_find("Py_DecRef", &python.drop);
    python_find("Py_IncRef", &python.keep);
    python_find("PyObject_GetAttrString", &python.attribute);
    python_find("PyUnicode_AsUTF8", &python.utf8);
    const char *version = python.version();
    /* there a new frame object may collect garbage at once */
    if (strncmp(version, "3.11.", 5) == 0 && python_find("PyGC_Enable", &python.collect_on))
        python_find("PyGC_Disable", &python.collect_off);
    bool readable = python_find("PyCode_Type", &python.code_type) && python_find("PyUnicode_Type", &python.text_type) &&
        python_find("PyCode_Addr2Line", &python.line_of) && !strstr(version, "free-threading");
    for (size_t i = 0; readable && i < sizeof layouts / sizeof *layouts; i++)
        if (strncmp(version, layouts[i].version, strlen(layouts[i].version)) == 0)
            python.layout = &layouts[i];
    return python.layout ? UNCONFIRMED : can_ask() ? ASK : ABSENT;
}

static inline uint64_t python_word(uint64_t base, unsigned offset)
{
    uint64_t value;
    memcpy(&value, (const void *)(uintptr_t)(base + offset), sizeof value);
    return value;
}

/* The same where nothing may be there. */
static bool python_word_if(uint64_t base, unsigned offset, uint64_t *ret)
{
    struct iovec here = {ret, sizeof *ret}, there = {(void *)(uintptr_t)(base + offset), sizeof *ret};
    return syscall(SYS_process_vm_readv, getpid(), &here, 1UL, &there, 1UL, 0UL) == (long)sizeof *ret;
}

static inline bool is_foreign(const struct layout *layout, uint64_t frame)
{
    return layout->owner != NONE && *(const char *)(uintptr_t)(frame + layout->owner) == OWNED_BY_C;
}

/* True if the frames of this thread are what the layout says. */
static bool python_confirm(const struct layout *layout, uint64_t thread)
{
    uint64_t frame, code, type, name;
    bool any = false;
    if (!python_word_if(thread, layout->thread_frame, &frame) ||
        (layout->cframe_frame != NONE && !python_word_if(frame, layout->cframe_frame, &frame)))
        return false;
    for (int i = 0; frame && i < CONFIRM_DEEP; i++) {
        uint64_t last;
        if (!python_word_if(frame, layout->code, &code) || !python_word_if(frame, layout->at, &last) ||
            (layout->owner != NONE && !python_word_if(frame, layout->owner & ~7u, &last)))
            return false;
        if (!is_foreign(layout, frame)) {
            if (!python_word_if(code, OB_TYPE, &type) || type != (uint64_t)(uintptr_t)python.code_type ||
                !python_word_if(code, layout->start, &last) || !python_word_if(code, layout->filename, &name) ||
                !python_word_if(name, OB_TYPE, &type) || type != (uint64_t)(uintptr_t)python.text_type ||
                !python_word_if(code, layout->name, &name) || !python_word_if(name, OB_TYPE, &type) ||
                type != (uint64_t)(uintptr_t)python.text_type)
                return false;
            any = true;
        }
        if (!python_word_if(frame, layout->back, &frame))
            return false;
    }
    return any;
}

/* The mark beside the offset tells two code objects apart that had the same address one after the other. */
static struct sg_frame read_frame(const struct layout *layout, uint64_t frame)
{
    uint64_t code = python_word(frame, layout->code), at = python_word(frame, layout->at);
        at = layout->is_pointer ? at - (code + layout->start) : (uint64_t)(uint32_t)at * layout->unit;
        uint64_t mark = python_word(code, layout->filename) >> 4 ^ python_word(code, layout->name) << 3 ^
            python_word(code, layout->firstlineno) * UINT64_C(0x9e3779b1);
    return (struct sg_frame){code, ((uint32_t)at | mark << 32) & ~ASKED};
}

/* Frames by the layout, from the thread's state outwards. Frames that the interpreter owns for C calls are skipped. */
static unsigned read_frames(const struct layout *layout, uint64_t thread, struct sg_picked *picked)
{
    struct sg_frame *place;
    uint64_t frame = python_word(thread, layout->thread_frame);
    if (layout->cframe_frame != NONE)
        frame = python_word(frame, layout->cframe_frame);
    for (; frame && picked->met < DEEPEST; frame = python_word(frame, layout->back)) {
        if (is_foreign(layout, frame))
            continue;
        if (!(place = sg_picked_next(picked)))
            break;
        *place = read_frame(layout, frame);
    }
    return sg_picked_finish(picked);
}

/* Frames by the interpreter's own functions, for a thread that holds its lock. A frame object that these make could
   start a garbage collection in 3.11, so that is off meanwhile. */
static unsigned ask_frames(void *thread, struct sg_picked *picked)
{
    struct sg_frame *place;
    if (python.holder() != thread)
        return 0;
    int collects = python.collect_off ? python.collect_off() : 0;
    void *frame = python.frame(), *held = NULL;
    while (frame && picked->met < DEEPEST && (place = sg_picked_next(picked))) {
        void *code = python.code(frame);
        *place = (struct sg_frame){(uint64_t)(uintptr_t)code, (uint32_t)python.line(frame) | ASKED};
        python.drop(code);
        void *back = python.back(frame);
        if (held)
            python.drop(held);
        frame = held = back;
    }
    if (held)
        python.drop(held);
    if (collects)
        python.collect_on();
    return sg_picked_finish(picked);
}

/* The state decides: read in place, confirm first, or ask the interpreter. An interpreter that is ending has no frames.
   */
unsigned sg_python_frames(struct sg_frame *ret, unsigned most, unsigned outer)
{
    struct sg_picked picked = {ret, most, outer, 0};
    enum state state = atomic_load_explicit(&python.state, memory_order_acquire);
    if (state == UNSEEN && atomic_compare_exchange_strong(&python.state, &state, LOOKING)) {
        state = python_look();
        atomic_store_explicit(&python.state, state, memory_order_release);
    }
    if (state == LOOKING || state == ABSENT ||
        !python.is_initialized()) /* it is none any more as soon as it begins to end */
        return 0;
    void *thread = python.own_thread();
    if (!thread)
        return 0;
    uint64_t address = (uint64_t)(uintptr_t)thread;
    if (state == READ)
        return read_frames(python.layout, address, &picked);
    if (state == UNCONFIRMED && python_confirm(python.layout, address)) {
        atomic_store_explicit(&python.state, READ, memory_order_release);
        return read_frames(python.layout, address, &picked);
    }
    return can_ask() ? ask_frames(thread, &picked) : 0;
}

/* Writes a character as UTF-8 to `to`, or nothing where there is no room for it. */
static size_t python_put(char *to, size_t room, uint32_t character)
{
    char bytes[4];
    size_t count = character < 0x80 ? 1 : character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
    static const unsigned char first[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = count; i-- > 1; character >>= 6)
        bytes[i] = (char)(0x80 | (character & 0x3f));
    bytes[0] = (char)(first[count] | character);
    if (count > room)
        return 0;
    memcpy(to, bytes, count);
    return count;
}

/* A string of Python's, as far as there is room. */
static void python_read_text(const struct layout *layout, uint64_t text, char *ret, size_t room)
{
    uint64_t state = python_word(text, TEXT_STATE), length = python_word(text, TEXT_LENGTH), from = text;
    unsigned kind = state >> 2 & 7;
    bool compact = state >> 5 & 1, ascii = state >> 6 & 1;
    size_t used = 0;
    from += ascii ? layout->text : layout->wide;
    for (uint64_t i = 0; compact && i < length && used + 4 < room; i++) {
        uint32_t character = 0;
        memcpy(&character, (const void *)(uintptr_t)(from + i * kind), kind == 1 || kind == 2 ? kind : 4);
        used += python_put(ret + used, room - 1 - used, character);
    }
    ret[used] = '\0';
}

/* An attribute of a code object as UTF-8, cut to `room` bytes. The reference is given back at once. */
static bool ask_text(void *code, const char *name, char *ret, size_t room)
{
    void *text = python.attribute(code, name);
    const char *bytes = text ? python.utf8(text) : NULL;
    size_t length = bytes ? strlen(bytes) : 0;
    length = length < room ? length : room - 1;
    if (bytes)
        memcpy(ret, bytes, length);
    ret[length] = '\0';
    if (text)
        python.drop(text);
    return bytes;
}

/* The code object is alive as long as its frame stands, so its names can be read; asking takes a reference for the
   moment. */
bool sg_python_describe(const struct sg_frame *frame, char *file, char *function, size_t room, uint32_t *ret_line)
{
    void *code = (void *)(uintptr_t)frame->code;
    if (frame->at & ASKED) {
        python.keep(code); /* so that its address stays its own */
        *ret_line = (uint32_t)frame->at;
        return ask_text(code, "co_filename", file, room) && ask_text(code, "co_name", function, room);
    }
    const struct layout *layout = python.layout;
    python_read_text(layout, python_word(frame->code, layout->filename), file, room);
    python_read_text(layout, python_word(frame->code, layout->name), function, room);
    int line = python.line_of(code, (int)(uint32_t)frame->at);
    *ret_line = line > 0 ? (uint32_t)line : (uint32_t)python_word(frame->code, layout->firstlineno);
    return true;
}
