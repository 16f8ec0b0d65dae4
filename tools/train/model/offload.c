#include "model/offload.h"
#include "ranks/comm.h"

#include <math.h>
#include <stdlib.h>

enum { TRAINED_ARRAYS = 4, PLACES = 16 };

struct held *held_new(struct device *device, enum dtype dtype, int64_t count, bool trained, struct tensor *from,
                      int64_t from_at, int64_t present)
{
    struct held *held = calloc(1, sizeof *held);
    if (!held)
        abort();
    held->count = count;
    held->dtype = dtype;
    held->incoming_dtype = from->dtype;
    if (device->rt && device->arithmetic && device->state == DEVICE_OK) {
        /* The value has room for floats whatever its dtype, and the arrays lie one behind the other. */
        size_t floats = (size_t)(count + PLACES - 1) / PLACES * PLACES;
        float *memory = device_pin(device, (2 + (trained ? TRAINED_ARRAYS : 0)) * floats * sizeof *memory);
        if (!memory)
            return held;
        memset(memory, 0, (2 + (trained ? TRAINED_ARRAYS : 0)) * floats * sizeof *memory);
        held->value = memory;
        held->incoming = memory + floats;
        if (trained) {
            held->master = memory + 2 * floats;
            held->gradient = held->master + floats;
            held->mean = held->gradient + floats;
            held->variance = held->mean + floats;
        }
    }
    if (present > 0)
        device_send(device, held->incoming, from->data ? (char *)from->data + (size_t)from_at * dtype_size(from->dtype)
                                                       : NULL, (size_t)present * dtype_size(from->dtype));
    return held;
}

void held_free(struct device *device, struct held *held)
{
    if (!held)
        return;
    device_unpin(device, held->value);
    free(held);
}

static float incoming(const struct held *held, int64_t i)
{
    return held->incoming_dtype == DTYPE_F32 ? ((const float *)held->incoming)[i]
                                             : bf16_to_float(((const uint16_t *)held->incoming)[i]);
}

static void write_value(struct held *held, int64_t i, float value)
{
    if (held->dtype == DTYPE_F32)
        ((float *)held->value)[i] = value;
    else
        ((uint16_t *)held->value)[i] = bf16_from_float(value);
}

void held_settle(struct held *held)
{
    for (int64_t i = 0; held->value && i < held->count; i++) {
        float value = incoming(held, i);
        write_value(held, i, value);
        if (held->master)
            held->master[i] = value;
    }
}

static void add_incoming(void *argument)
{
    struct held *held = argument;
    for (int64_t i = 0; i < held->count; i++)
        held->gradient[i] = held->has_gradient ? held->gradient[i] + incoming(held, i) : incoming(held, i);
    held->has_gradient = true;
}

void held_add_gradient(struct device *device, struct held *held, struct tensor *flat, int64_t at)
{
    size_t size = dtype_size(flat->dtype);
    held->incoming_dtype = flat->dtype;
    device_send(device, held->incoming, flat->data ? (char *)flat->data + (size_t)at * size : NULL,
                (size_t)held->count * size);
    if (held->gradient)
        device_send_call(device, add_incoming, held);
}

static float norm_of(const float *values, int64_t count)
{
    float norm;
    arithmetic_cpu.run(&(struct kernel_args){.kernel = KERNEL_norm, .n = {count},
                                             .p = {&norm, (void *)(uintptr_t)values}});
    return norm;
}

float held_norm(struct device *device, struct parameter *const *parameters, int count)
{
    int ranks = device->comm ? device->comm->ranks : 1;
    float *norms = calloc((size_t)count + (size_t)ranks, sizeof *norms);
    if (!norms)
        abort();
    for (int i = 0; i < count; i++)
        norms[i] = norm_of(parameters[i]->held->gradient, parameters[i]->held->count);
    float total = norm_of(norms, count);
    if (device->comm) {
        comm_exchange(device->comm, &total, norms + count, sizeof total);
        total = norm_of(norms + count, ranks);
    }
    free(norms);
    return total;
}

void held_step(struct held *held, const struct adam *adam, float factor)
{
    const int64_t n = held->count;
    if (!held->has_gradient)
        return;
    for (int64_t i = 0; i < n; i++)
        held->gradient[i] *= factor;
    arithmetic_cpu.run(&(struct kernel_args){.kernel = KERNEL_adam_moments, .n = {n}, .f = {adam->beta1, adam->beta2},
                                             .p = {held->mean, held->variance, held->gradient}});
    arithmetic_cpu.run(&(struct kernel_args){.kernel = KERNEL_adam_denominator, .n = {n},
                                             .f = {adam->correction, adam->epsilon},
                                             .p = {held->incoming, held->variance}});
    arithmetic_cpu.run(&(struct kernel_args){.kernel = KERNEL_adam_update, .n = {n}, .f = {adam->rate, adam->keep},
                                             .p = {held->master, held->mean, held->incoming}});
    for (int64_t i = 0; i < n; i++)
        write_value(held, i, held->master[i]);
    held->has_gradient = false;
    held->has_moments = true;
}

void held_store(struct held *held, enum stored what, const float *values, int64_t present)
{
    float *to = what == STORED_VALUE ? held->master : what == STORED_MEAN ? held->mean : held->variance;
    for (int64_t i = 0; i < present && held->value; i++) {
        if (to)
            to[i] = values[i];
        if (what == STORED_VALUE)
            write_value(held, i, values[i]);
    }
    held->has_moments = held->has_moments || what == STORED_MEAN;
}
