/* Reads Python's pickle format, protocols 0 to 5, as far as plain data need it: dictionaries, lists, tuples, numbers and
   texts.

   A pickle is a program for a *stack machine*. An *opcode* is one byte, perhaps with arguments: it pushes a value, or makes
   one of those on top. The *memo* is a list of values that the program names again later. A *word* is a text that the
   caller knows, kept as its number.

   Why not Python: the tools are C, and a pickle may come from anywhere. Python's own reader executes what a pickle says.
   Here nothing is executed: an opcode that would call or import something is an error that names it.

   Example, {"size": 300} in protocol 2, with "size" as word 7. Bytes in hexadecimal:
     80 02                   PROTO 2
     7d                      EMPTY_DICT       stack: {}
     58 04 00 00 00 "size"   BINUNICODE       stack: {}, word 7
     4d 2c 01                BININT2 300      stack: {}, word 7, 300
     73                      SETITEM          stack: {word 7: 300}
     2e                      STOP             that value is the result

   A memory snapshot is read whole, because its end says what its beginning means. So a value takes 8 bytes, and other texts
   than words are not kept. Opcodes: Lib/pickletools.py, python/cpython. */
#ifndef SG_UNPICKLE_H
#define SG_UNPICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reader/pickle_values.h"

enum { SG_UNPICKLE_ERROR = 256, SG_UNPICKLE_WORDS = 255 };

/* Gets the next bytes of the file and returns their number; 0: there are none. The bytes stay until the next call. */
typedef size_t sg_unpickle_more_fn(void *user, const unsigned char **ret_data);

/* Makes a machine that keeps the texts `word[0 … words)`, at most SG_UNPICKLE_WORDS; they must outlive it. NULL: no host
   memory. */
struct sg_unpickle *sg_unpickle_new(const char *const *word, size_t words);
void sg_unpickle_delete(struct sg_unpickle *pickle);

/* Reads one value. 0 or a negative errno, with one line in error[SG_UNPICKLE_ERROR] that begins with the offset. Takes
   at most 48 MiB and twice the bytes read. A dictionary has each word once, with the value that was set last. */
int sg_unpickle_read(struct sg_unpickle *pickle, sg_unpickle_more_fn *more, void *user, sg_value *ret, char *error);

/* Bytes of the file that were read. */
uint64_t sg_unpickle_bytes(const struct sg_unpickle *pickle);

#endif
