/* The reader of pickles. A text reads alike in one piece and in pieces of a byte. Whatever was read can be gone through, in
   time that depends on the input's size. The reader's memory stays within its bound. */
#include "reader/unpickle.h"

#include "target.h"

enum { VISITS = 4096, MEMORY_LEAST = 64 << 20 };

static const char *const words[] = {"segments", "device_traces", "action", "a", "size"};
enum { WORDS = sizeof words / sizeof *words };

struct input {
    const uint8_t *data;
    size_t size, piece;
};

static size_t more(void *user, const unsigned char **ret_data)
{
    struct input *input = user;
    size_t part = input->size < input->piece ? input->size : input->piece;
    *ret_data = input->data;
    input->data += part;
    input->size -= part;
    return part;
}

/* A sum of what can be reached; of a value that names itself, of a part of it. */
static uint64_t visit(const struct sg_unpickle *pickle, sg_value value, unsigned depth, unsigned *visits)
{
    uint64_t sum = (uint64_t)sg_value_kind(value) + 1, number;
    if (*visits == 0 || depth == 0)
        return sum;
    --*visits;
    if (sg_value_kind(value) == SG_VALUE_WORD)
        FUZZ_EXPECT(sg_value_number(value) < WORDS);
    if (sg_value_kind(value) == SG_VALUE_NUMBER || sg_value_kind(value) == SG_VALUE_WORD)
        sum = sum * 31 + sg_value_number(value);
    for (unsigned key = 0; key < WORDS && sg_value_kind(value) == SG_VALUE_DICT; key++) {
        sg_value item = sg_unpickle_get(pickle, value, key);
        FUZZ_EXPECT(sg_unpickle_number(pickle, value, key, &number) == (sg_value_kind(item) == SG_VALUE_NUMBER));
        sum = sum * 31 + visit(pickle, item, depth - 1, visits);
    }
    struct sg_unpickle_cursor cursor = {.list = value};
    for (sg_value item; *visits && sg_unpickle_next(pickle, &cursor, &item);)
        sum = sum * 31 + visit(pickle, item, depth - 1, visits);
    return sum;
}

/* The status, or a sum of what was read. */
static uint64_t sum_of(const uint8_t *data, size_t size, size_t piece, char *error)
{
    struct sg_unpickle *pickle = sg_unpickle_new(words, WORDS);
    struct input input = {data, size, piece};
    sg_value root;
    unsigned visits = VISITS;
    if (!pickle)
        abort();
    *error = '\0';
    int status = sg_unpickle_read(pickle, more, &input, &root, error);
    uint64_t result = (uint64_t)-status;
    FUZZ_EXPECT(sg_unpickle_bytes(pickle) + input.size == size && sg_unpickle_spare(pickle) <= MEMORY_LEAST + 2 * size);
    if (status == 0)
        result = visit(pickle, root, 32, &visits);
    else
        FUZZ_EXPECT(strncmp(error, "byte ", 5) == 0 && !strchr(error, '\n'));
    sg_unpickle_delete(pickle);
    return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char whole[SG_UNPICKLE_ERROR], parts[SG_UNPICKLE_ERROR];
    uint64_t first = sum_of(data, size, size ? size : 1, whole);
    FUZZ_EXPECT(sum_of(data, size, 1, parts) == first && strcmp(whole, parts) == 0);
    return 0;
}
