#include "layers/blocks.h"
#include "device/ops.h"

/* Work of transformers on positions before the first layer. It finds packed sequences (positions that do not go up by
   one). It makes a mask of them and of causality, and the tables of the rotary embedding. */

static struct tensor *position_integers(struct pass *pass, int64_t count, int64_t first)
{
    struct tensor *result = tensor_new(pass->device, DTYPE_I64, 1, count);
    device_launch(pass->device,
                  &(struct kernel_args){.kernel = KERNEL_count_up, .n = {count, first}, .p = {result->data}});
    return result;
}

static struct tensor *to_dtype(struct pass *pass, enum kernel kernel, struct tensor *x, enum dtype dtype)
{
    struct tensor *result = tensor_new(pass->device, dtype, 1, tensor_count(x));
    device_launch(pass->device,
                  &(struct kernel_args){.kernel = kernel, .n = {tensor_count(x)}, .p = {result->data, x->data}});
    return result;
}

/* 0, 1, ... plus an offset that is zero without a key-value cache. */
static struct tensor *position_indices(struct pass *pass)
{
    struct tensor *counted = position_integers(pass, pass->length, 0);
    struct tensor *result = tensor_new(pass->device, DTYPE_I64, 1, pass->length);
    device_launch(pass->device, &(struct kernel_args){.kernel = KERNEL_add_integer, .n = {pass->length, 0},
                                                      .p = {result->data, counted->data}});
    tensor_drop(&counted);
    return result;
}

/* For each position the number of its packed sequence. */
static struct tensor *position_segments(struct pass *pass)
{
    enum { SCAN_SCRATCH = 1279 };
    struct tensor *before = position_integers(pass, 1, -1);
    struct tensor *joined = position_integers(pass, pass->length + 1, -1);
    if (pass->packed && pass->starts)
        device_copy_in(pass->device, joined->data, pass->starts, joined->bytes);
    struct tensor *steps = tensor_new(pass->device, DTYPE_I64, 1, pass->length);
    device_launch(pass->device, &(struct kernel_args){.kernel = KERNEL_difference, .n = {pass->length},
                                                      .p = {steps->data, joined->data}});
    tensor_drop(&joined);
    struct tensor *starts = to_dtype(pass, KERNEL_not_one, steps, DTYPE_U8);
    struct tensor *result = tensor_new(pass->device, DTYPE_I64, 1, pass->length);
    struct tensor *wide = to_dtype(pass, KERNEL_widen_bytes, starts, DTYPE_I64);
    struct tensor *scratch = tensor_new(pass->device, DTYPE_U8, 1, SCAN_SCRATCH);
    device_launch(pass->device, &(struct kernel_args){.kernel = KERNEL_running_sum, .n = {pass->length},
                                                      .p = {result->data, wide->data}});
    tensor_drop(&scratch);
    tensor_drop(&wide);
    tensor_drop(&starts);
    struct tensor *none = tensor_new(pass->device, DTYPE_U8, 1, 1), *all = tensor_new(pass->device, DTYPE_U8, 1, 1);
    tensor_drop(&none);
    tensor_drop(&all);
    tensor_drop(&before);
    tensor_drop(&steps);
    return result;
}

static struct tensor *mask_both(struct pass *pass, struct tensor *a, struct tensor *b)
{
    struct tensor *result = tensor_new(pass->device, DTYPE_U8, a->rows, a->columns);
    device_launch(pass->device, &(struct kernel_args){.kernel = KERNEL_both, .n = {tensor_count(a), b->columns > 1},
                                                      .p = {result->data, a->data, b->data}});
    return result;
}

static struct tensor *mask_compare(struct pass *pass, enum kernel kernel, struct tensor *segment)
{
    struct tensor *column = position_indices(pass), *row = position_indices(pass);
    struct tensor *result = tensor_new(pass->device, DTYPE_U8, pass->batch * pass->length, pass->length);
    device_launch(pass->device,
                  &(struct kernel_args){.kernel = kernel, .n = {pass->batch, pass->length},
                                        .p = {result->data, column->data, row->data, segment ? segment->data : NULL}});
    tensor_drop(&column);
    tensor_drop(&row);
    return result;
}

static void make_mask(struct pass *pass)
{
    struct tensor *segment = position_segments(pass);
    struct tensor *batch = position_integers(pass, pass->batch, 0), *head = position_integers(pass, 1, 0);
    struct tensor *columns = position_indices(pass), *rows = position_indices(pass);
    struct tensor *yes = tensor_new(pass->device, DTYPE_U8, 1, 1);
    device_launch(pass->device, &(struct kernel_args){.kernel = KERNEL_set_byte, .n = {1}, .p = {yes->data}});
    struct tensor *causal = mask_compare(pass, KERNEL_not_after, NULL);
    struct tensor *allowed = mask_both(pass, causal, yes);
    tensor_drop(&causal);
    tensor_drop(&yes);
    struct tensor *together = mask_compare(pass, KERNEL_same_segment, segment);
    pass->mask = mask_both(pass, allowed, together);
    tensor_drop(&together);
    tensor_drop(&allowed);
    tensor_drop(&batch);
    tensor_drop(&head);
    tensor_drop(&columns);
    tensor_drop(&rows);
    tensor_drop(&segment);
}

static struct tensor *rotary_table(struct pass *pass, enum kernel kernel, struct tensor *angles)
{
    struct tensor *plain = op_map(pass->device, kernel, angles, NULL, 0);
    struct tensor *result = op_map(pass->device, KERNEL_scale, plain, NULL, 1);
    tensor_drop(&plain);
    return result;
}

static void make_tables(struct pass *pass)
{
    const int64_t half = pass->model->shape.head_dim / 2;
    const enum dtype dtype = pass->model->shape.dtype;
    struct tensor *positions = to_dtype(pass, KERNEL_float_positions, pass->positions, DTYPE_F32);
    struct tensor *angles = tensor_new(pass->device, DTYPE_F32, pass->length, half);
    device_launch(pass->device, &(struct kernel_args){
        .kernel = KERNEL_position_angles, .n = {pass->length, half},
        .p = {angles->data, positions->data, pass->model->inverse_frequencies->data}});
    tensor_drop(&positions);
    struct tensor *joined = tensor_new(pass->device, DTYPE_F32, pass->length, 2 * half);
    device_launch(pass->device, &(struct kernel_args){.kernel = KERNEL_join_twice, .n = {pass->length, half},
                                                      .p = {joined->data, angles->data}});
    struct tensor *cosines = rotary_table(pass, KERNEL_cosine, joined), *sines = rotary_table(pass, KERNEL_sine, joined);
    pass->cosines = op_cast(pass->device, cosines, dtype);
    pass->sines = op_cast(pass->device, sines, dtype);
    tensor_drop(&angles);
    tensor_drop(&joined);
    tensor_drop(&cosines);
    tensor_drop(&sines);
}

void positions_make(struct pass *pass)
{
    if (pass->packed) {
        pass->positions = tensor_new(pass->device, DTYPE_I64, 1, pass->length);
        if (pass->starts)
            device_copy_in(pass->device, pass->positions->data, pass->starts + 1, pass->positions->bytes);
    } else {
        pass->positions = position_indices(pass);
    }
    make_mask(pass);
    make_tables(pass);
}
