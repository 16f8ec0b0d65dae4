/* cuDNN's backend descriptors: all may be made and set; what is asked of them is answered so that there is one engine
   with one configuration, which needs no workspace. */
#include "answers.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

/* Values of cudnnBackendDescriptorType_t and cudnnBackendAttributeName_t, from the reference. */
enum {
    TYPE_HANDLE = 0,
    TYPE_DESCRIPTOR = 15,
    NAME_HEURISTIC_RESULTS = 201,
    NAME_TENSOR_BYTES = 900
};

struct descriptor {
    int type;
};

SG_STANDIN(int, backend_create)(int type, struct descriptor **ret)
{
    *ret = calloc(1, sizeof **ret);
    if (!*ret)
        return 1;
    (*ret)->type = type;
    return 0;
}

SG_STANDIN(int, backend_destroy)(struct descriptor *descriptor)
{
    free(descriptor);
    return 0;
}

SG_STANDIN(int, backend_set)(void)
{
    return 0;
}

/* Bytes of one element of a cudnnBackendAttributeType_t. */
static size_t attribute_element_bytes(int type)
{
    switch (type) {
    case 2: /* boolean */
    case 26: /* char */
        return 1;
    case 0: case 3: case 5: case 6: case 15: case 22: /* handle, int64, double, pointer, descriptor, void pointer */
        return 8;
    default:
        return 4;
    }
}

SG_STANDIN(int, backend_get)(struct descriptor *descriptor, int name, int type, int64_t wanted, int64_t *ret_count,
                             void *ret)
{
    (void)descriptor, (void)name;
    int64_t count = wanted > 0 ? 1 : 0;
    if (type == TYPE_DESCRIPTOR) {
        /* The caller made the descriptors that are to be filled. */
        if (ret_count)
            *ret_count = name == NAME_HEURISTIC_RESULTS || wanted == 0 ? 1 : count;
        return 0;
    }
    if (ret && count)
        memset(ret, 0, attribute_element_bytes(type));
    if (ret_count)
        *ret_count = type == TYPE_HANDLE ? count : wanted > 0;
    return 0;
}
