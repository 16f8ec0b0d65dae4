#include "fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static struct cuda_rt runtime;
static int64_t sequence;

void fixture_open(struct device *ret_device)
{
    char error[256];
    if (!runtime.library && cuda_rt_open(&runtime, 0, error, sizeof error))
        fail_msg("%s", error);
    device_open(ret_device, &runtime, alloc_eager_open(&runtime), &arithmetic_cpu, 1);
}

void fixture_close(struct device *device)
{
    device_wait(device);
    assert_int_equal(device->state, DEVICE_OK);
    assert_int_equal(device->live, 0);
    tensor_forget_spare(device);
    device_close(device);
}

void fixture_randomise(struct tensor *tensor, float mean, float spread)
{
    struct device *device = tensor->device;
    device_launch(device, &(struct kernel_args){.kernel = KERNEL_fill_normal, .f = {spread}, .p = {tensor->data},
                                                .n = {tensor_count(tensor), ++sequence, 7}});
    struct tensor *shifted = op_map(device, KERNEL_add_scalar, tensor, NULL, mean);
    device_launch(device, &(struct kernel_args){.kernel = KERNEL_copy, .n = {tensor_count(tensor)},
                                                .p = {tensor->data, shifted->data}});
    tensor_drop(&shifted);
}

struct tensor *fixture_random(struct device *device, int64_t rows, int64_t columns, float spread)
{
    struct tensor *tensor = tensor_new(device, DTYPE_F32, rows, columns);
    fixture_randomise(tensor, 0, spread);
    return tensor;
}

float *fixture_fetch(struct tensor *tensor)
{
    float *values = malloc(tensor->bytes);
    assert_non_null(values);
    device_copy_out(tensor->device, values, tensor->data, tensor->bytes);
    device_wait(tensor->device);
    return values;
}

void fixture_store(struct tensor *tensor, const float *values)
{
    device_copy_in(tensor->device, tensor->data, values, tensor->bytes);
    device_wait(tensor->device);
}

double fixture_dot(const float *a, const float *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

static double difference(double (*value)(void *), void *context, struct tensor *input, const float *direction,
                         double distance)
{
    int64_t count = tensor_count(input);
    float *original = fixture_fetch(input), *moved = malloc(input->bytes);
    assert_non_null(moved);
    double length = sqrt(fixture_dot(direction, direction, count)), values[2];
    for (int side = 0; side < 2; side++) {
        for (int64_t i = 0; i < count; i++)
            moved[i] = (float)(original[i] + (side ? distance : -distance) * direction[i] / length);
        fixture_store(input, moved);
        values[side] = value(context);
    }
    fixture_store(input, original);
    free(original);
    free(moved);
    return (values[1] - values[0]) / (2 * distance);
}

void fixture_check_gradient(const char *name, double (*value)(void *), void *context, struct tensor *input,
                            struct tensor *gradient, double distance)
{
    int64_t count = tensor_count(input);
    assert_int_equal(count, tensor_count(gradient));
    float *along = fixture_fetch(gradient);
    struct tensor *random = fixture_random(input->device, input->rows, input->columns, 1);
    float *across = fixture_fetch(random);
    double slope = sqrt(fixture_dot(along, along, count));
    assert_true(slope > 0);
    double found = difference(value, context, input, along, distance);
    double random_slope = fixture_dot(along, across, count) / sqrt(fixture_dot(across, across, count));
    double random_found = difference(value, context, input, across, distance);
    if (!(fabs(found - slope) <= 0.01 * slope) || !(fabs(random_found - random_slope) <= 0.01 * slope))
        fail_msg("%s: slope %g along the gradient, differences say %g; %g along another direction, differences say %g",
                 name, slope, found, random_slope, random_found);
    tensor_drop(&random);
    free(along);
    free(across);
}
