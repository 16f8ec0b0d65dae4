/* cuDNN's recurrent layers: where the weights of a layer lie in the one buffer that they share, which callers check.
   First the matrices of all layers (for each the gates' input weights, then the recurrent ones), then the biases. */
#include "answers.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum {
    BAD_PARAM = 2000,
    DIMENSIONS = 8,
    LSTM = 2,
    GRU = 3,
    NO_BIAS = 0,
    SINGLE_INPUT = 1,
    DOUBLE = 2,
    SINGLE_RECURRENT = 3
};

struct tensor {
    int type, count;
    int size[DIMENSIONS], stride[DIMENSIONS];
};

struct layers {
    int mode, bias, directions, type, input, hidden, projection, count;
};

struct sequences {
    int type, longest, batch, width;
};

SG_STANDIN(int, tensor_create)(struct tensor **ret)
{
    *ret = calloc(1, sizeof **ret);
    return *ret ? 0 : BAD_PARAM;
}

SG_STANDIN(int, rnn_create)(struct layers **ret)
{
    *ret = calloc(1, sizeof **ret);
    return *ret ? 0 : BAD_PARAM;
}

SG_STANDIN(int, sequences_create)(struct sequences **ret)
{
    *ret = calloc(1, sizeof **ret);
    return *ret ? 0 : BAD_PARAM;
}

SG_STANDIN(int, memory_free)(void *descriptor)
{
    free(descriptor);
    return 0;
}

SG_STANDIN(int, tensor_set)(struct tensor *tensor, int type, int count, const int *size, const int *stride)
{
    if (count < 0 || count > DIMENSIONS)
        return BAD_PARAM;
    *tensor = (struct tensor){.type = type, .count = count};
    memcpy(tensor->size, size, (size_t)count * sizeof *size);
    memcpy(tensor->stride, stride, (size_t)count * sizeof *stride);
    return 0;
}

SG_STANDIN(int, tensor_get)(const struct tensor *tensor, int wanted, int *ret_type, int *ret_count, int *ret_size,
                            int *ret_stride)
{
    *ret_type = tensor->type;
    *ret_count = tensor->count;
    for (int i = 0; i < tensor->count && i < wanted; i++) {
        ret_size[i] = tensor->size[i];
        ret_stride[i] = tensor->stride[i];
    }
    return 0;
}

SG_STANDIN(int, rnn_set)
(struct layers *layers, int algorithm, int mode, int bias, int direction, int input_mode, int type, int precision,
    int math, int input, int hidden, int projection, int count)
{
    (void)algorithm, (void)input_mode, (void)precision, (void)math;
    *layers = (struct layers){.mode = mode, .bias = bias, .directions = direction ? 2 : 1, .type = type, .input = input,
                              .hidden = hidden, .projection = projection ? projection : hidden, .count = count};
    return 0;
}

SG_STANDIN(int, sequences_set)(struct sequences *sequences, int type, int layout, int longest, int batch, int width)
{
    (void)layout;
    *sequences = (struct sequences){.type = type, .longest = longest, .batch = batch, .width = width};
    return 0;
}

static int rnn_gates(const struct layers *l)
{
    return l->mode == LSTM ? 4 : l->mode == GRU ? 3 : 1;
}

static size_t rnn_element_bytes(int type)
{
    return type == 1 ? 8 : type == 2 || type == 9 ? 2 : 4; /* cudnnDataType_t: double, half and bfloat16, float */
}

static bool rnn_projects(const struct layers *l)
{
    return l->mode == LSTM && l->projection != l->hidden;
}

/* Elements that a pseudo-layer (layer x direction) reads: the input, or all that the layer before gives. */
static size_t input_width(const struct layers *l, int pseudo)
{
    return pseudo < l->directions ? (size_t)l->input : (size_t)l->projection * (size_t)l->directions;
}

/* Elements of the matrices of a pseudo-layer. */
static size_t matrix_elements(const struct layers *l, int pseudo)
{
    size_t hidden = (size_t)l->hidden, g = (size_t)rnn_gates(l);
    return g * hidden * (input_width(l, pseudo) + (size_t)l->projection) +
           (rnn_projects(l) ? hidden * (size_t)l->projection : 0);
}

static size_t bias_elements(const struct layers *l)
{
    size_t kinds = l->bias == DOUBLE ? 2 : l->bias == NO_BIAS ? 0 : 1;
    return kinds * (size_t)rnn_gates(l) * (size_t)l->hidden;
}

static size_t all_matrices(const struct layers *l, int up_to)
{
    size_t sum = 0;
    for (int i = 0; i < up_to; i++)
        sum += matrix_elements(l, i);
    return sum;
}

SG_STANDIN(int, rnn_weight_bytes)(void *handle, const struct layers *l, size_t *ret)
{
    (void)handle;
    int pseudo = l->count * l->directions;
    *ret = (all_matrices(l, pseudo) + (size_t)pseudo * bias_elements(l)) * rnn_element_bytes(l->type);
    return 0;
}

/* Callers ask for the matrix or the bias alone: the other's descriptor is NULL then. */
static void rnn_describe_matrix(struct tensor *tensor, int type, size_t rows, size_t columns)
{
    if (!tensor)
        return;
    *tensor = (struct tensor){.type = type, .count = 3, .size = {1, (int)rows, (int)columns},
                              .stride = {(int)(rows * columns), (int)columns, 1}};
}

SG_STANDIN(int, rnn_weights)
(void *handle, const struct layers *l, int pseudo, size_t bytes, char *buffer, int linear, struct tensor *ret_matrix,
    char **ret_matrix_at, struct tensor *ret_bias, char **ret_bias_at)
{
    (void)handle, (void)bytes;
    int g = rnn_gates(l);
    size_t hidden = (size_t)l->hidden, input = input_width(l, pseudo), recurrent = (size_t)l->projection;
    size_t element = rnn_element_bytes(l->type), at = all_matrices(l, pseudo);
    bool is_projection = linear == 2 * g;
    if (linear < g) {
        at += (size_t)linear * hidden * input;
        rnn_describe_matrix(ret_matrix, l->type, hidden, input);
    } else {
        at += (size_t)g * hidden * input + (size_t)(linear - g) * hidden * recurrent;
        rnn_describe_matrix(ret_matrix, l->type, is_projection ? recurrent : hidden, is_projection ? hidden : recurrent);
    }
    if (ret_matrix_at)
        *ret_matrix_at = buffer + at * element;
    if (ret_bias_at)
        *ret_bias_at = NULL;
    if (ret_bias)
        ret_bias->count = 0;
    bool has_bias = !is_projection && (l->bias == DOUBLE || (l->bias == SINGLE_INPUT && linear < g) ||
                                       (l->bias == SINGLE_RECURRENT && linear >= g));
    if (has_bias) {
        size_t place = l->bias == SINGLE_RECURRENT ? (size_t)(linear - g) : (size_t)linear;
        at = all_matrices(l, l->count * l->directions) + (size_t)pseudo * bias_elements(l) + place * hidden;
        rnn_describe_matrix(ret_bias, l->type, hidden, 1);
        if (ret_bias_at)
            *ret_bias_at = buffer + at * element;
    }
    return 0;
}

/* An estimate: what the backward pass needs of each layer, step and sequence is its gates, state and output. */
SG_STANDIN(int, rnn_space)(void *handle, const struct layers *l, int mode, const struct sequences *x, size_t *ret_work,
                           size_t *ret_reserve)
{
    (void)handle;
    enum { TRAINING = 1 };
    size_t cells = (size_t)x->longest * (size_t)x->batch * (size_t)l->hidden * (size_t)l->directions;
    if (ret_work)
        *ret_work = cells * (size_t)rnn_gates(l) * rnn_element_bytes(l->type);
    if (ret_reserve)
        *ret_reserve =
            mode == TRAINING ? cells * (size_t)l->count * (size_t)(rnn_gates(l) + 2) * rnn_element_bytes(l->type) : 0;
    return 0;
}
