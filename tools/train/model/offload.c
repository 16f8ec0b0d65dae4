#include "model/offload.h"
#include "ranks/comm.h"

#include <math.h>
#include <stdlib.h>

enum { TRAINED_ARRAYS = 4, PLACES = 16 };

struct offload *offload_new(struct device *device, enum dtype dtype, int64_t count, bool trained, struct tensor *from,
    int64_t from_at, int64_t present)
{
    struct offload *offload = calloc(1, sizeof *offload);
    if (!offload)
        abort();
    offload->count = count;
    offload->dtype = dtype;
    offload->incoming_dtype = from->dtype;
    if (device->rt && device->arithmetic && device->state == DEVICE_OK) {
        /* The value has room for floats whatever its dtype, and the arrays lie one behind the other. */
        size_t floats = (size_t)(count + PLACES - 1) / PLACES * PLACES;
        float *memory = device_pin(device, (2 + (trained ? TRAINED_ARRAYS : 0)) * floats * sizeof *memory);
        if (!memory)
            return offload;
        memset(memory, 0, (2 + (trained ? TRAINED_ARRAYS : 0)) * floats * sizeof *memory);
        offload->value = memory;
        offload->incoming = memory + floats;
        if (trained) {
            offload->master = memory + 2 * floats;
            offload->gradient = offload->master + floats;
            offload->mean = offload->gradient + floats;
            offload->variance = offload->mean + floats;
        }
    }
    if (present > 0)
        device_send(device, offload->incoming,
            from->data ? (char *)from->data + (size_t)from_at * dtype_size(from->dtype) : NULL,
            (size_t)present * dtype_size(from->dtype));
    return offload;
}

void offload_free(struct device *device, struct offload *offload)
{
    if (!offload)
        return;
    device_unpin(device, offload->value);
    free(offload);
}

static float offload_incoming(const struct offload *offload, int64_t i)
{
    return offload->incoming_dtype == DTYPE_F32 ? ((const float *)offload->incoming)[i]
                                                : bf16_to_float(((const uint16_t *)offload->incoming)[i]);
}

static void write_value(struct offload *offload, int64_t i, float value)
{
    if (offload->dtype == DTYPE_F32)
        ((float *)offload->value)[i] = value;
    else
        ((uint16_t *)offload->value)[i] = bf16_from_float(value);
}

void offload_complete(struct offload *offload)
{
    for (int64_t i = 0; offload->value && i < offload->count; i++) {
        float value = offload_incoming(offload, i);
        write_value(offload, i, value);
        if (offload->master)
            offload->master[i] = value;
    }
}

static void add_incoming(void *argument)
{
    struct offload *offload = argument;
    for (int64_t i = 0; i < offload->count; i++)
        offload->gradient[i] = offload->has_gradient ? offload->gradient[i] + offload_incoming(offload, i)
                                                     : offload_incoming(offload, i);
    offload->has_gradient = true;
}

void offload_add_gradient(struct device *device, struct offload *offload, struct tensor *flat, int64_t at)
{
    size_t size = dtype_size(flat->dtype);
    offload->incoming_dtype = flat->dtype;
    device_send(device, offload->incoming, flat->data ? (char *)flat->data + (size_t)at * size : NULL,
        (size_t)offload->count * size);
    if (offload->gradient)
        device_send_call(device, add_incoming, offload);
}

static float offload_norm_of(const float *values, int64_t count)
{
    float norm;
    arithmetic_cpu.run(&(struct kernel_args){.kernel = KERNEL_norm, .n = {count},
                                             .p = {&norm, (void *)(uintptr_t)values}});
    return norm;
}

float offload_norm(struct device *device, struct parameter *const *parameters, int count)
{
    int ranks = device->comm ? device->comm->ranks : 1;
    float *norms = calloc((size_t)count + (size_t)ranks, sizeof *norms);
    if (!norms)
        abort();
    for (int i = 0; i < count; i++)
        norms[i] = offload_norm_of(parameters[i]->offload->gradient, parameters[i]->offload->count);
    float total = offload_norm_of(norms, count);
    if (device->comm) {
        comm_exchange(device->comm, &total, norms + count, sizeof total);
        total = offload_norm_of(norms + count, ranks);
    }
    free(norms);
    return total;
}

void offload_step(struct offload *offload, const struct adam *adam, float factor)
{
    const int64_t n = offload->count;
    if (!offload->has_gradient)
        return;
    for (int64_t i = 0; i < n; i++)
        offload->gradient[i] *= factor;
    arithmetic_cpu.run(&(struct kernel_args){.kernel = KERNEL_adam_moments,
        .n = {n},
        .f = {adam->beta1, adam->beta2},
        .p = {offload->mean, offload->variance, offload->gradient}});
    arithmetic_cpu.run(&(struct kernel_args){.kernel = KERNEL_adam_denominator,
        .n = {n},
        .f = {adam->correction, adam->epsilon},
        .p = {offload->incoming, offload->variance}});
    arithmetic_cpu.run(&(struct kernel_args){.kernel = KERNEL_adam_update,
        .n = {n},
        .f = {adam->rate, adam->keep},
        .p = {offload->master, offload->mean, offload->incoming}});
    for (int64_t i = 0; i < n; i++)
        write_value(offload, i, offload->master[i]);
    offload->has_gradient = false;
    offload->has_moments = true;
}

void offload_store(struct offload *offload, enum stored what, const float *values, int64_t present)
{
    float *to = what == STORED_VALUE ? offload->master : what == STORED_MEAN ? offload->mean : offload->variance;
    for (int64_t i = 0; i < present && offload->value; i++) {
        if (to)
            to[i] = values[i];
        if (what == STORED_VALUE)
            write_value(offload, i, values[i]);
    }
    offload->has_moments = offload->has_moments || what == STORED_MEAN;
}
