/* The machine: one function for an opcode or a family of them, each of which changes the stack.

   Bounds: values, stack and memo together take 48 MiB and twice the bytes read, so a file of 1 KiB cannot ask for 4 GiB. A
   number of the memo is below the bytes read. A text is passed over but for its first 64 bytes. Nothing recurses: nested
   values are numbers of cells.

   Example of protocol 0, where arguments are lines, the same {"size": 300} as in unpickle.h:
     (                 MARK       stack: mark
     d                 DICT       stack: {}          all behind the mark, which is nothing
     S'size'\n         STRING     stack: {}, word 7
     I300\n            INT        stack: {}, word 7, 300
     s                 SETITEM    stack: {word 7: 300}
     .                 STOP */
#include "reader/unpickle.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reader/pickle_state.h"

enum {
    TEXT_KEPT = 64, /* bytes of a text that are looked at: no word is longer */
    LINE_MOST = 4096
};

uint64_t sg_unpickle_bytes(const struct sg_unpickle *pickle)
{
    return pickle->read;
}

/* Pushes a value. Like all functions below: false is an error that has been noted. */
static bool stack_push(struct sg_unpickle *pickle, sg_value value)
{
    if (pickle->depth == pickle->stack_room) {
        size_t room = pickle->stack_room ? 2 * pickle->stack_room : 1024;
        if (!sg_pickle_may_grow(pickle, (room - pickle->stack_room) * sizeof(value)))
            return false;
        sg_value *stack = realloc(pickle->stack, room * sizeof(value));
        if (!stack)
            return sg_pickle_fail(pickle, -ENOMEM, "out of memory");
        pickle->stack = stack;
        pickle->stack_room = room;
    }
    pickle->stack[pickle->depth++] = value;
    return true;
}

/* Takes the value on top. */
static bool stack_pop(struct sg_unpickle *pickle, sg_value *ret)
{
    if (!pickle->depth)
        return sg_pickle_fail(pickle, -EINVAL, "an opcode wants a value, and there is none");
    *ret = pickle->stack[--pickle->depth];
    return true;
}

/* Finds the place behind the last mark, where its items begin. */
static bool stack_find_mark(struct sg_unpickle *pickle, size_t *ret)
{
    for (size_t i = pickle->depth; i > 0; i--)
        if (sg_value_kind(pickle->stack[i - 1]) == SG_VALUE_MARK) {
            *ret = i;
            return true;
        }
    return sg_pickle_fail(pickle, -EINVAL, "an opcode wants a mark, and there is none");
}

/* Gets the next bytes of the file; there must be some, since a pickle ends with STOP. */
static bool pickle_refill(struct sg_unpickle *pickle)
{
    size_t got = pickle->status ? 0 : pickle->more(pickle->user, &pickle->at);
    if (!got)
        return sg_pickle_fail(pickle, -ENODATA, "the pickle is cut off");
    pickle->end = pickle->at + got;
    pickle->read += got;
    return true;
}

/* Takes `size` bytes; the first `room` of them go to `out`. */
static bool pickle_take_bytes(struct sg_unpickle *pickle, uint64_t size, unsigned char *out, size_t room)
{
    while (size) {
        if (pickle->at == pickle->end && !pickle_refill(pickle))
            return false;
        uint64_t have = (uint64_t)(pickle->end - pickle->at);
        size_t part = (size_t)(have < size ? have : size), copy = part < room ? part : room;
        if (copy) {
            memcpy(out, pickle->at, copy);
            out += copy;
            room -= copy;
        }
        pickle->at += part;
        size -= part;
    }
    return true;
}

/* A little-endian number of up to 8 bytes. */
static bool pickle_take_number(struct sg_unpickle *pickle, unsigned size, uint64_t *ret)
{
    unsigned char bytes[8] = {0};
    if (!pickle_take_bytes(pickle, size, bytes, sizeof(bytes)))
        return false;
    *ret = 0;
    for (unsigned i = 0; i < size; i++)
        *ret |= (uint64_t)bytes[i] << (8 * i);
    return true;
}

/* A line without its newline; what is longer than LINE_MOST is an error. */
static bool pickle_take_line(struct sg_unpickle *pickle, char line[LINE_MOST])
{
    for (size_t length = 0; length < LINE_MOST; length++) {
        unsigned char byte;
        if (!pickle_take_bytes(pickle, 1, &byte, 1))
            return false;
        line[length] = byte == '\n' ? '\0' : (char)byte;
        if (byte == '\n')
            return true;
    }
    return sg_pickle_fail(pickle, -EINVAL, "a line has more than 4096 bytes");
}

/* The word that a text is; SG_VALUE_OTHER: it is none. */
static sg_value pickle_word(const struct sg_unpickle *pickle, const char *text, uint64_t length)
{
    for (size_t i = 0; i < pickle->words; i++)
        if (!strncmp(pickle->word[i], text, length) && strlen(pickle->word[i]) == length)
            return sg_pickle_value(SG_VALUE_WORD, i);
    return SG_VALUE_OTHER;
}

/* A text that follows its length of `size` bytes. */
static bool stack_push_text(struct sg_unpickle *pickle, unsigned size)
{
    unsigned char text[TEXT_KEPT];
    uint64_t length;
    if (!pickle_take_number(pickle, size, &length) || !pickle_take_bytes(pickle, length, text, sizeof(text)))
        return false;
    return stack_push(pickle, length < TEXT_KEPT ? pickle_word(pickle, (const char *)text, length) : SG_VALUE_OTHER);
}

/* Passes over bytes after their length, and pushes a value that stands for any. */
static bool stack_push_skipped(struct sg_unpickle *pickle, unsigned size)
{
    uint64_t length;
    return pickle_take_number(pickle, size, &length) && pickle_take_bytes(pickle, length, NULL, 0) && stack_push(pickle, SG_VALUE_OTHER);
}

/* Two's complement, little-endian, after its length of `size` bytes. */
static bool stack_push_long(struct sg_unpickle *pickle, unsigned size)
{
    unsigned char byte[8] = {0};
    uint64_t length, number = 0;
    if (!pickle_take_number(pickle, size, &length) || !pickle_take_bytes(pickle, length, byte, sizeof(byte)))
        return false;
    for (unsigned i = 0; i < sizeof(byte); i++)
        number |= (uint64_t)byte[i] << (8 * i);
    /* Python writes as many bytes as the number needs, the sign in the uppermost bit. Eight bytes hold all that is of use. */
    bool negative = length && length <= sizeof(byte) && byte[length - 1] & 0x80;
    return stack_push(pickle, negative || length > sizeof(byte) ? SG_VALUE_OTHER : sg_pickle_number_value(number));
}

/* A number of `size` bytes in two's complement; a negative one is of no use here. */
static bool stack_push_signed(struct sg_unpickle *pickle, unsigned size)
{
    uint64_t number;
    if (!pickle_take_number(pickle, size, &number))
        return false;
    return stack_push(pickle, number >> (8 * size - 1) ? SG_VALUE_OTHER : sg_pickle_value(SG_VALUE_NUMBER, number));
}

static bool stack_push_unsigned(struct sg_unpickle *pickle, unsigned size)
{
    uint64_t number;
    return pickle_take_number(pickle, size, &number) && stack_push(pickle, sg_pickle_number_value(number));
}

/* An empty list or dictionary. */
static bool stack_push_object(struct sg_unpickle *pickle, enum sg_value_kind kind)
{
    uint64_t index;
    return sg_pickle_take_cells(pickle, 2, &index) && stack_push(pickle, sg_pickle_value(kind, index));
}

/* Appends the values from place `first` of the stack on to a list. */
static bool object_append(struct sg_unpickle *pickle, sg_value object, size_t first)
{
    if (sg_value_kind(object) != SG_VALUE_LIST)
        return sg_pickle_fail(pickle, -EINVAL, "items are appended to what is no list");
    return sg_pickle_append(pickle, object, pickle->stack + first, pickle->depth - first);
}

/* Pairs of key and value; those whose key is a word are kept, in the key's place on the stack. Each key stands in a
   dictionary once, so that no lookup takes longer than there are words. */
static bool object_set(struct sg_unpickle *pickle, sg_value object, size_t first)
{
    uint64_t *item = pickle->stack + first;
    size_t count = pickle->depth - first, kept = 0;
    if (sg_value_kind(object) != SG_VALUE_DICT)
        return sg_pickle_fail(pickle, -EINVAL, "keys are set in what is no dictionary");
    if (count % 2)
        return sg_pickle_fail(pickle, -EINVAL, "a key has no value");
    for (size_t i = 0; i < count; i += 2) {
        sg_value key = item[i], value = item[i + 1];
        if (sg_value_kind(key) != SG_VALUE_WORD)
            continue;
        /* Key and value in one cell: 8 bits for the word, 56 for the value. Other keys are of no use to anybody. */
        uint64_t set = sg_value_number(key) << SG_PICKLE_VALUE_BITS | value;
        if (!sg_pickle_set_again(pickle, object, item, kept, set) && sg_value_kind(value) != SG_VALUE_OTHER)
            item[kept++] = set;
    }
    return sg_pickle_append(pickle, object, item, kept);
}

/* APPENDS and SETITEMS: what is behind the mark goes into the object before it. */
static bool stack_fill_marked(struct sg_unpickle *pickle, bool (*fill)(struct sg_unpickle *, sg_value, size_t))
{
    size_t first;
    if (!stack_find_mark(pickle, &first))
        return false;
    if (first < 2)
        return sg_pickle_fail(pickle, -EINVAL, "there is nothing that items could go into");
    if (!fill(pickle, pickle->stack[first - 2], first))
        return false;
    pickle->depth = first - 1;
    return true;
}

/* APPEND and SETITEM: the last `count` values go into the object before them. */
static bool stack_fill_last(struct sg_unpickle *pickle, size_t count,
                           bool (*fill)(struct sg_unpickle *, sg_value, size_t))
{
    if (pickle->depth <= count)
        return sg_pickle_fail(pickle, -EINVAL, "there is nothing that items could go into");
    size_t first = pickle->depth - count;
    if (!fill(pickle, pickle->stack[first - 1], first))
        return false;
    pickle->depth = first;
    return true;
}

/* LIST, TUPLE and DICT: an object of what is behind the mark, which goes. */
static bool stack_make_marked(struct sg_unpickle *pickle, enum sg_value_kind kind,
                           bool (*fill)(struct sg_unpickle *, sg_value, size_t))
{
    size_t first;
    uint64_t index;
    if (!stack_find_mark(pickle, &first) || !sg_pickle_take_cells(pickle, 2, &index) ||
        !fill(pickle, sg_pickle_value(kind, index), first))
        return false;
    pickle->depth = first - 1;
    return stack_push(pickle, sg_pickle_value(kind, index));
}

/* TUPLE1 to TUPLE3: a list of the last `count` values. */
static bool stack_make_tuple(struct sg_unpickle *pickle, size_t count)
{
    uint64_t index;
    if (pickle->depth < count)
        return sg_pickle_fail(pickle, -EINVAL, "a tuple has fewer values than it says");
    size_t first = pickle->depth - count;
    if (!sg_pickle_take_cells(pickle, 2, &index) || !object_append(pickle, sg_pickle_value(SG_VALUE_LIST, index), first))
        return false;
    pickle->depth = first;
    return stack_push(pickle, sg_pickle_value(SG_VALUE_LIST, index));
}

/* Keeps the value on top under a number. Python numbers them from 0 without a gap, so a number beyond the bytes read is none
   of its. */
static bool memo_put(struct sg_unpickle *pickle, uint64_t index)
{
    if (!pickle->depth)
        return sg_pickle_fail(pickle, -EINVAL, "an opcode wants a value, and there is none");
    if (index > sg_pickle_offset(pickle))
        return sg_pickle_fail(pickle, -EINVAL, "a value is kept under a number that cannot be");
    if (index >= pickle->memo_room) {
        size_t room = pickle->memo_room ? pickle->memo_room : 1024;
        while (room <= index)
            room *= 2;
        if (!sg_pickle_may_grow(pickle, (room - pickle->memo_room) * sizeof(*pickle->memo)))
            return false;
        sg_value *memo = realloc(pickle->memo, room * sizeof(*memo));
        if (!memo)
            return sg_pickle_fail(pickle, -ENOMEM, "out of memory");
        memset(memo + pickle->memo_room, 0, (room - pickle->memo_room) * sizeof(*memo));
        pickle->memo = memo;
        pickle->memo_room = room;
    }
    pickle->memo[index] = pickle->stack[pickle->depth - 1];
    if (index >= pickle->memos)
        pickle->memos = index + 1;
    return true;
}

/* Pushes a value that was kept. */
static bool memo_get(struct sg_unpickle *pickle, uint64_t index)
{
    if (index >= pickle->memos)
        return sg_pickle_fail(pickle, -EINVAL, "a value is asked for that was never kept");
    return stack_push(pickle, pickle->memo[index]);
}

/* The memo by numbers of 1 or 4 bytes (BINPUT, LONG_BINPUT, BINGET, LONG_BINGET). */
static bool memo_put_sized(struct sg_unpickle *pickle, unsigned size)
{
    uint64_t index;
    return pickle_take_number(pickle, size, &index) && memo_put(pickle, index);
}

static bool memo_get_sized(struct sg_unpickle *pickle, unsigned size)
{
    uint64_t index;
    return pickle_take_number(pickle, size, &index) && memo_get(pickle, index);
}

/* The opcodes of protocol 0, whose arguments are lines. */
static bool pickle_run_line(struct sg_unpickle *pickle, unsigned char opcode)
{
    char line[LINE_MOST], *text = line;
    if (!pickle_take_line(pickle, line))
        return false;
    char *end = line + strlen(line);
    switch (opcode) {
    case 'g':
        return memo_get(pickle, strtoull(line, NULL, 10));
    case 'p':
        return memo_put(pickle, strtoull(line, NULL, 10));
    case 'F':
        return stack_push(pickle, SG_VALUE_OTHER);
    case 'I':
    case 'L': /* of a truth value 00 or 01 */
        return stack_push(pickle, *line == '-' ? SG_VALUE_OTHER : sg_pickle_number_value(strtoull(line, NULL, 10)));
    case 'S': /* in quotes */
        if (end - line >= 2) {
            text++;
            end--;
        }
        break;
    default: /* 'V' */
        break;
    }
    return stack_push(pickle, pickle_word(pickle, text, (uint64_t)(end - text)));
}

/* GLOBAL, INST, OBJ, REDUCE, BUILD, NEWOBJ, STACK_GLOBAL, NEWOBJ_EX, PERSID, BINPERSID, EXT1, EXT2 and EXT4. */
static bool pickle_refuse(struct sg_unpickle *pickle, unsigned char opcode)
{
    static const char calls[] = "cioRb\x81\x93\x92PQ\x82\x83\x84";
    char text[96];
    if (opcode && strchr(calls, opcode))
        snprintf(text, sizeof(text), "opcode 0x%02x imports or calls something, which is never done here", opcode);
    else
        snprintf(text, sizeof(text), "0x%02x is no opcode of a pickle of plain data", opcode);
    return sg_pickle_fail(pickle, -EINVAL, text);
}

/* Opcodes that make a value of nothing but the bytes that follow. */
static bool pickle_run_scalar(struct sg_unpickle *pickle, unsigned char opcode)
{
    switch (opcode) {
    case 'N': /* None and False: neither is a number that anybody asks for */
    case 0x89: /* NEWFALSE */
        return stack_push(pickle, SG_VALUE_OTHER);
    case 0x88: /* NEWTRUE */
        return stack_push(pickle, sg_pickle_value(SG_VALUE_NUMBER, 1));
    case 'J':
        return stack_push_signed(pickle, 4);
    case 'K':
        return stack_push_unsigned(pickle, 1);
    case 'M':
        return stack_push_unsigned(pickle, 2);
    case 0x8a: /* LONG1 */
        return stack_push_long(pickle, 1);
    case 0x8b: /* LONG4 */
        return stack_push_long(pickle, 4);
    case 'G':
        return pickle_take_bytes(pickle, 8, NULL, 0) && stack_push(pickle, SG_VALUE_OTHER);
    case 'U':
    case 0x8c: /* SHORT_BINUNICODE */
        return stack_push_text(pickle, 1);
    case 'T':
    case 'X':
        return stack_push_text(pickle, 4);
    case 0x8d: /* BINUNICODE8 */
        return stack_push_text(pickle, 8);
    case 'C':
        return stack_push_skipped(pickle, 1);
    case 'B':
        return stack_push_skipped(pickle, 4);
    case 0x8e: /* BINBYTES8 */
    case 0x96: /* BYTEARRAY8 */
        return stack_push_skipped(pickle, 8);
    case 'F':
    case 'I':
    case 'L':
    case 'S':
    case 'V':
    case 'g':
    case 'p':
        return pickle_run_line(pickle, opcode);
    default:
        return pickle_refuse(pickle, opcode);
    }
}

/* Opcodes that put values together or keep them; the others go on to pickle_run_scalar(). */
static bool pickle_run(struct sg_unpickle *pickle, unsigned char opcode)
{
    sg_value value;
    size_t first;
    switch (opcode) {
    case 0x80: /* PROTO */
        return pickle_take_bytes(pickle, 1, NULL, 0);
    case 0x95: /* FRAME: how far to read ahead */
        return pickle_take_bytes(pickle, 8, NULL, 0);
    case '(':
        return stack_push(pickle, SG_VALUE_MARK);
    case '0':
        return stack_pop(pickle, &value);
    case '1':
        if (!stack_find_mark(pickle, &first))
            return false;
        pickle->depth = first - 1;
        return true;
    case '2':
        return stack_pop(pickle, &value) && stack_push(pickle, value) && stack_push(pickle, value);
    case ']':
    case ')':
        return stack_push_object(pickle, SG_VALUE_LIST);
    case '}':
        return stack_push_object(pickle, SG_VALUE_DICT);
    case 'l':
    case 't':
        return stack_make_marked(pickle, SG_VALUE_LIST, object_append);
    case 'd':
        return stack_make_marked(pickle, SG_VALUE_DICT, object_set);
    case 0x85: /* TUPLE1 to TUPLE3 */
    case 0x86:
    case 0x87:
        return stack_make_tuple(pickle, opcode - 0x84u);
    case 'a':
        return stack_fill_last(pickle, 1, object_append);
    case 'e':
        return stack_fill_marked(pickle, object_append);
    case 's':
        return stack_fill_last(pickle, 2, object_set);
    case 'u':
        return stack_fill_marked(pickle, object_set);
    case 'q':
        return memo_put_sized(pickle, 1);
    case 'r':
        return memo_put_sized(pickle, 4);
    case 0x94: /* MEMOIZE */
        return memo_put(pickle, pickle->memos);
    case 'h':
        return memo_get_sized(pickle, 1);
    case 'j':
        return memo_get_sized(pickle, 4);
    default:
        return pickle_run_scalar(pickle, opcode);
    }
}

struct sg_unpickle *sg_unpickle_new(const char *const *word, size_t words)
{
    assert(words <= SG_UNPICKLE_WORDS);
    struct sg_unpickle *pickle = calloc(1, sizeof(*pickle));
    if (pickle)
        *pickle = (struct sg_unpickle){.word = word, .words = words};
    return pickle;
}

void sg_unpickle_delete(struct sg_unpickle *pickle)
{
    if (!pickle)
        return;
    for (uint64_t i = 0; i < pickle->chunks; i++)
        free(pickle->chunk[i]);
    free(pickle->chunk);
    free(pickle->stack);
    free(pickle->memo);
    free(pickle);
}

int sg_unpickle_read(struct sg_unpickle *pickle, sg_unpickle_more_fn *more, void *user, sg_value *ret, char *error)
{
    unsigned char opcode;
    bool well = true;
    pickle->more = more;
    pickle->user = user;
    pickle->error = error;
    while (well) {
        well = pickle_take_bytes(pickle, 1, &opcode, 1);
        if (well && opcode == '.') { /* STOP: bytes behind it are not looked at */
            well = stack_pop(pickle, ret);
            break;
        }
        well = well && pickle_run(pickle, opcode);
    }
    /* The cells are all that the result needs. The memo and the stack go: nothing is looked up any more. */
    free(pickle->memo);
    free(pickle->stack);
    pickle->memo = pickle->stack = NULL;
    pickle->memos = pickle->memo_room = pickle->depth = pickle->stack_room = 0;
    return well ? 0 : pickle->status;
}
