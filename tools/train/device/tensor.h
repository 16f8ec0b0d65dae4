/* Tensors: a header on the host, counted references, bytes on the device that go back with the last reference. */
#ifndef TRAIN_TENSOR_H
#define TRAIN_TENSOR_H

#include "device/device.h"

struct tensor {
    void *data; /* NULL after a failure of the device */
    size_t bytes;
    int64_t rows, columns;
    enum dtype dtype;
    enum budget label;
    int references;
    struct device *device;
    struct tensor *next_spare;
};

size_t dtype_size(enum dtype dtype);

/* A new tensor with one reference and undefined contents. Never NULL. */
struct tensor *tensor_new(struct device *device, enum dtype dtype, int64_t rows, int64_t columns);
struct tensor *tensor_keep(struct tensor *tensor);
/* Drops the reference in *slot, if any, and clears the slot. Work already queued may go on using the bytes. */
void tensor_drop(struct tensor **slot);
int64_t tensor_count(const struct tensor *tensor);
/* Says that the tensor is for something else now. */
void tensor_relabel(struct tensor *tensor, enum budget label);

/* Frees the headers that are kept for later tensors, before the device is closed. */
void tensor_forget_spare(struct device *device);

#endif
