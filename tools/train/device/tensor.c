#include "device/tensor.h"

#include <assert.h>
#include <stdlib.h>

static const uint8_t dtype_sizes[DTYPE_COUNT] = {[DTYPE_F32] = 4, [DTYPE_BF16] = 2, [DTYPE_I64] = 8, [DTYPE_U8] = 1};

static const size_t MOST_BYTES = (size_t)1 << 60;

size_t dtype_size(enum dtype dtype)
{
    return dtype_sizes[dtype];
}

struct tensor *tensor_new(struct device *device, enum dtype dtype, int64_t rows, int64_t columns)
{
    struct tensor *tensor = device->spare;
    if (tensor)
        device->spare = tensor->next_spare;
    else if (!(tensor = malloc(sizeof *tensor)))
        abort();
    size_t bytes;
    if (__builtin_mul_overflow((size_t)rows, (size_t)columns, &bytes) || bytes > MOST_BYTES / dtype_size(dtype))
        bytes = MOST_BYTES; /* no device has as much */
    else
        bytes *= dtype_size(dtype);
    assert(bytes > 0);
    *tensor = (struct tensor){device_take(device, bytes), bytes, rows, columns, dtype, device->label, 1,
                              device, NULL};
    return tensor;
}

struct tensor *tensor_keep(struct tensor *tensor)
{
    assert(tensor->references > 0);
    tensor->references++;
    return tensor;
}

void tensor_drop(struct tensor **slot)
{
    struct tensor *tensor = *slot;
    *slot = NULL;
    if (!tensor)
        return;
    assert(tensor->references > 0);
    if (--tensor->references)
        return;
    device_give(tensor->device, tensor->data, tensor->bytes, tensor->label);
    tensor->next_spare = tensor->device->spare;
    tensor->device->spare = tensor;
}

void tensor_relabel(struct tensor *tensor, enum budget label)
{
    if (tensor->data) {
        tensor->device->live_by[tensor->label] -= tensor->bytes;
        tensor->device->live_by[label] += tensor->bytes;
    }
    tensor->label = label;
}

int64_t tensor_count(const struct tensor *tensor)
{
    return (int64_t)((uint64_t)tensor->rows * (uint64_t)tensor->columns); /* of one too large to take, anything */
}

void tensor_forget_spare(struct device *device)
{
    while (device->spare) {
        struct tensor *tensor = device->spare;
        device->spare = tensor->next_spare;
        free(tensor);
    }
}
