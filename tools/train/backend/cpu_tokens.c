/* Kernels on tokens, positions, masks and labels. */
#include "backend/cpu.h"

#include <math.h>
#include <string.h>

#define P(i) ((float *)a->p[i])
#define I(i) ((int64_t *)a->p[i])
#define B(i) ((uint8_t *)a->p[i])

enum { IGNORED_LABEL = -100 };

CPU_KERNEL(embed)
{
    for (int64_t r = 0; r < a->n[0]; r++)
        memcpy(P(0) + r * a->n[1], P(2) + I(1)[r] * a->n[1], (size_t)a->n[1] * sizeof(float));
}

CPU_KERNEL(embed_gradient)
{
    for (int64_t r = 0; r < a->n[0]; r++)
        for (int64_t c = 0; c < a->n[1]; c++)
            P(0)[I(1)[r] * a->n[1] + c] += P(2)[r * a->n[1] + c];
}

CPU_KERNEL(float_positions)
{
    for (int64_t i = 0; i < a->n[0]; i++)
        P(0)[i] = (float)I(1)[i];
}

CPU_KERNEL(position_angles)
{
    for (int64_t r = 0; r < a->n[0]; r++)
        for (int64_t c = 0; c < a->n[1]; c++)
            P(0)[r * a->n[1] + c] = P(1)[r] * P(2)[c];
}

CPU_KERNEL(join_twice)
{
    for (int64_t r = 0; r < a->n[0]; r++)
        for (int64_t c = 0; c < 2 * a->n[1]; c++)
            P(0)[r * 2 * a->n[1] + c] = P(1)[r * a->n[1] + c % a->n[1]];
}

CPU_KERNEL(count_up)
{
    for (int64_t i = 0; i < a->n[0]; i++)
        I(0)[i] = a->n[1] + i;
}

CPU_KERNEL(add_integer)
{
    for (int64_t i = 0; i < a->n[0]; i++)
        I(0)[i] = I(1)[i] + a->n[1];
}

CPU_KERNEL(difference)
{
    for (int64_t i = 0; i < a->n[0]; i++)
        I(0)[i] = I(1)[i + 1] - I(1)[i];
}

CPU_KERNEL(not_one)
{
    for (int64_t i = 0; i < a->n[0]; i++)
        B(0)[i] = I(1)[i] != 1;
}

CPU_KERNEL(widen_bytes)
{
    for (int64_t i = 0; i < a->n[0]; i++)
        I(0)[i] = B(1)[i];
}

CPU_KERNEL(running_sum)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < a->n[0]; i++)
        I(0)[i] = sum += I(1)[i];
}

CPU_KERNEL(not_after)
{
    for (int64_t r = 0; r < a->n[0] * a->n[1]; r++)
        for (int64_t c = 0; c < a->n[1]; c++)
            B(0)[r * a->n[1] + c] = I(1)[c] <= I(2)[r % a->n[1]];
}

CPU_KERNEL(same_segment)
{
    for (int64_t r = 0; r < a->n[0] * a->n[1]; r++)
        for (int64_t c = 0; c < a->n[1]; c++)
            B(0)[r * a->n[1] + c] = I(3)[I(1)[c]] == I(3)[I(2)[r % a->n[1]]];
}

CPU_KERNEL(set_byte)
{
    B(0)[0] = (uint8_t)a->n[0];
}

CPU_KERNEL(both)
{
    for (int64_t i = 0; i < a->n[0]; i++)
        B(0)[i] = B(1)[i] & B(2)[a->n[1] ? i : 0];
}

CPU_KERNEL(mask_bias)
{
    for (int64_t i = 0; i < a->n[0]; i++)
        P(0)[i] = B(1)[i] ? 0 : -INFINITY;
}

CPU_KERNEL(shift_labels)
{
    for (int64_t r = 0; r < a->n[0]; r++) {
        int64_t *row = I(0) + r * (a->n[1] + 1);
        memcpy(row, I(1) + r * a->n[1], (size_t)a->n[1] * sizeof *row);
        row[a->n[1]] = IGNORED_LABEL;
    }
}

CPU_KERNEL(log_softmax)
{
    for (int64_t r = 0; r < a->n[0]; r++) {
        const float *x = P(1) + r * a->n[1];
        float *y = P(0) + r * a->n[1], most = x[0], sum = 0;
        for (int64_t c = 1; c < a->n[1]; c++)
            most = x[c] > most ? x[c] : most;
        for (int64_t c = 0; c < a->n[1]; c++)
            sum += expf(x[c] - most);
        most += logf(sum);
        for (int64_t c = 0; c < a->n[1]; c++)
            y[c] = x[c] - most;
    }
}

CPU_KERNEL(log_softmax_gradient)
{
    for (int64_t r = 0; r < a->n[0]; r++) {
        const float *gradient = P(1) + r * a->n[1], *y = P(2) + r * a->n[1];
        float sum = 0;
        for (int64_t c = 0; c < a->n[1]; c++)
            sum += gradient[c];
        for (int64_t c = 0; c < a->n[1]; c++)
            P(0)[r * a->n[1] + c] = gradient[c] - expf(y[c]) * sum;
    }
}

/* The label of a row is the token after it: labels have one more a sequence than rows. */
static int64_t label_of(const struct kernel_args *a, int64_t row)
{
    return I(3)[row / a->n[1] * (a->n[1] + 1) + row % a->n[1] + 1];
}

CPU_KERNEL(nll)
{
    double sum = 0;
    int64_t count = 0;
    for (int64_t r = 0; r < a->n[0] * a->n[1]; r++) {
        int64_t label = label_of(a, r);
        if (label == IGNORED_LABEL)
            continue;
        sum -= P(2)[r * a->n[2] + label];
        count++;
    }
    P(0)[0] = (float)(sum / (double)count);
    P(1)[0] = (float)count;
}

CPU_KERNEL(nll_gradient)
{
    memset(a->p[0], 0, (size_t)(a->n[0] * a->n[1] * a->n[2]) * sizeof(float));
    for (int64_t r = 0; r < a->n[0] * a->n[1]; r++) {
        int64_t label = label_of(a, r);
        if (label != IGNORED_LABEL)
            P(0)[r * a->n[2] + label] = -P(1)[0] / P(2)[0];
    }
}
