/* Reads Python's pickle format, protocols 0 to 5, as far as plain data need it: dictionaries, lists, tuples, numbers and
   texts. Nothing in a file is executed: an opcode that would call or import something is an error that names it.

   A memory snapshot is read whole, for its end says what its beginning means. So a value takes 8 bytes, and of texts
   only those are kept that the caller knows, as numbers. Opcodes: Lib/pickletools.py, python/cpython. */
#ifndef SG_UNPICKLE_H
#define SG_UNPICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SG_UNPICKLE_ERROR = 256, SG_UNPICKLE_WORDS = 255 };

enum sg_value_kind {
    SG_VALUE_OTHER, /* None, a negative or large number, a fraction, an unknown text */
    SG_VALUE_NUMBER,
    SG_VALUE_WORD,
    SG_VALUE_LIST,
    SG_VALUE_DICT,
    SG_VALUE_MARK /* of the machine's own; no caller sees it */
};

/* The kind and, above it, the number, the word's index or where the items are. */
typedef uint64_t sg_value;

struct sg_unpickle;

/* The next bytes of the file, at least one; 0: there are none. The bytes stay until the next call. */
typedef size_t sg_unpickle_more_fn(void *user, const unsigned char **ret_data);

/* `word`: the `words` keys and texts that are kept, at most SG_UNPICKLE_WORDS; they outlive the result. NULL: no host
   memory. */
struct sg_unpickle *sg_unpickle_new(const char *const *word, size_t words);
void sg_unpickle_delete(struct sg_unpickle *pickle);

/* Reads one value. 0 or a negative errno, with one line in error[SG_UNPICKLE_ERROR] that begins with the offset. Takes
   at most 48 MiB and twice the bytes read. A dictionary has each word once, with the value that was set last. */
int sg_unpickle_read(struct sg_unpickle *pickle, sg_unpickle_more_fn *more, void *user, sg_value *ret, char *error);

static inline enum sg_value_kind sg_value_kind(sg_value value)
{
    return (enum sg_value_kind)(value & 7);
}

/* The number, or the index of the word; 0 for other kinds. */
static inline uint64_t sg_value_number(sg_value value)
{
    return value >> 3;
}

/* Bytes of the file that were read. */
uint64_t sg_unpickle_bytes(const struct sg_unpickle *pickle);

/* How much memory the caller may take beside what is held, so that both stay within the bound of sg_unpickle_read(). */
uint64_t sg_unpickle_spare(const struct sg_unpickle *pickle);

/* A number under `key` (an index of `word`) in a dictionary. False: there is none. */
bool sg_unpickle_number(const struct sg_unpickle *pickle, sg_value dict, unsigned key, uint64_t *ret);

/* What stands under `key`; SG_VALUE_OTHER where nothing does or `dict` is none. */
sg_value sg_unpickle_get(const struct sg_unpickle *pickle, sg_value dict, unsigned key);

/* Goes through a list: zeros but for `list` at first. False: it has no more items, or is no list. */
struct sg_unpickle_cursor {
    sg_value list;
    uint64_t run;
    unsigned at;
    bool begun;
};
bool sg_unpickle_next(const struct sg_unpickle *pickle, struct sg_unpickle_cursor *cursor, sg_value *ret);

#endif
