/* Reads Python's pickle format, protocols 0 to 5, as far as plain data need it: dictionaries, lists, tuples, numbers and
   texts. Nothing in a file is executed: an opcode that would call or import something is an error that names it.

   A memory snapshot is read whole, for its end says what its beginning means. So a value takes 8 bytes, and of texts
   only those are kept that the caller knows, as numbers. Opcodes: Lib/pickletools.py, python/cpython. */
#ifndef SG_UNPICKLE_H
#define SG_UNPICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reader/pickle_values.h"

enum { SG_UNPICKLE_ERROR = 256, SG_UNPICKLE_WORDS = 255 };

/* The next bytes of the file, at least one; 0: there are none. The bytes stay until the next call. */
typedef size_t sg_unpickle_more_fn(void *user, const unsigned char **ret_data);

/* `word`: the `words` keys and texts that are kept, at most SG_UNPICKLE_WORDS; they outlive the result. NULL: no host
   memory. */
struct sg_unpickle *sg_unpickle_new(const char *const *word, size_t words);
void sg_unpickle_delete(struct sg_unpickle *pickle);

/* Reads one value. 0 or a negative errno, with one line in error[SG_UNPICKLE_ERROR] that begins with the offset. Takes
   at most 48 MiB and twice the bytes read. A dictionary has each word once, with the value that was set last. */
int sg_unpickle_read(struct sg_unpickle *pickle, sg_unpickle_more_fn *more, void *user, sg_value *ret, char *error);

/* Bytes of the file that were read. */
uint64_t sg_unpickle_bytes(const struct sg_unpickle *pickle);

#endif
