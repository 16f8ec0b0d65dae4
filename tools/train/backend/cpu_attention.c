#include "backend/cpu.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define P(i) ((float *)a->p[i])

/* n0 rows of n1 heads, n2 wide, turned by factors that come over again every n3 rows. */
CPU_KERNEL(mul_heads)
{
    for (int64_t r = 0; r < a->n[0]; r++)
        for (int64_t h = 0; h < a->n[1]; h++)
            for (int64_t c = 0; c < a->n[2]; c++) {
                int64_t at = (r * a->n[1] + h) * a->n[2] + c;
                P(0)[at] = P(1)[at] * P(2)[r % a->n[3] * a->n[2] + c];
            }
}

CPU_KERNEL(negate_half)
{
    for (int64_t r = 0; r < a->n[0]; r++)
        for (int64_t c = 0; c < a->n[2]; c++)
            P(0)[r * a->n[2] + c] = -P(1)[(2 * r + a->n[1]) * a->n[2] + c];
}

CPU_KERNEL(join_halves)
{
    const size_t half = (size_t)a->n[2];
    for (size_t r = 0; r < (size_t)a->n[0]; r++) {
        memcpy(P(0) + 2 * r * half, P(1) + r * half, half * sizeof(float));
        memcpy(P(0) + (2 * r + 1) * half, P(2) + 2 * r * half, half * sizeof(float));
    }
}

CPU_KERNEL(pad_half)
{
    const size_t half = (size_t)a->n[2], which = (size_t)a->n[1];
    for (size_t r = 0; r < (size_t)a->n[0]; r++) {
        memcpy(P(0) + (2 * r + which) * half, P(1) + r * half, half * sizeof(float));
        memset(P(0) + (2 * r + 1 - which) * half, 0, half * sizeof(float));
    }
}

CPU_KERNEL(pad_half_of)
{
    const size_t half = (size_t)a->n[2];
    for (size_t r = 0; r < (size_t)a->n[0]; r++) {
        memcpy(P(0) + 2 * r * half, P(1) + (2 * r + 1) * half, half * sizeof(float));
        memset(P(0) + (2 * r + 1) * half, 0, half * sizeof(float));
    }
}

CPU_KERNEL(repeat_heads)
{
    const size_t dim = (size_t)a->n[3], heads = (size_t)(a->n[0] * a->n[1]), times = (size_t)a->n[2];
    for (size_t h = 0; h < heads; h++)
        for (size_t i = 0; i < times; i++)
            memcpy(P(0) + (h * times + i) * dim, P(1) + h * dim, dim * sizeof(float));
}

CPU_KERNEL(sum_heads)
{
    const int64_t dim = a->n[3], heads = a->n[0] * a->n[1], times = a->n[2];
    for (int64_t h = 0; h < heads; h++)
        for (int64_t c = 0; c < dim; c++) {
            float sum = 0;
            for (int64_t i = 0; i < times; i++)
                sum += P(1)[(h * times + i) * dim + c];
            P(0)[h * dim + c] = sum;
        }
}

struct head_view {
    int length, dim, stride; /* rows of a head are `stride` floats apart */
    size_t at;               /* offset of its first row in q, k, v and out */
    const float *bias;       /* length * length */
    size_t log_sums;         /* offset of its log-sum-exps */
};

static struct head_view attention_view(const struct kernel_args *a, int64_t sequence, int64_t head, const float *bias)
{
    int64_t length = a->n[1], heads = a->n[2], dim = a->n[3];
    return (struct head_view){(int)length, (int)dim, (int)(heads * dim),
                              (size_t)(sequence * length * heads * dim + head * dim),
                              bias + sequence * length * length, (size_t)((sequence * heads + head) * a->n[4])};
}

/* Room for the scores of one head, which a GPU keeps on its chip. */
static float *attention_scratch(const struct kernel_args *a, size_t matrices)
{
    float *memory = malloc(matrices * (size_t)(a->n[1] * a->n[1]) * sizeof(float));
    if (!memory)
        abort();
    return memory;
}

static void attention_scores(const struct kernel_args *a, const struct head_view *h, const float *q, const float *k,
    float *s)
{
    size_t all = (size_t)h->length * (size_t)h->length;
    memcpy(s, h->bias, all * sizeof *s);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, h->length, h->length, h->dim, a->f[0], q + h->at, h->stride,
                k + h->at, h->stride, 1, s, h->length);
}

static void attention_attend(const struct kernel_args *a, const struct head_view *h, float *s)
{
    attention_scores(a, h, P(2), P(3), s);
    for (int r = 0; r < h->length; r++) {
        float *row = s + (size_t)r * (size_t)h->length, most = row[0], sum = 0;
        for (int c = 1; c < h->length; c++)
            most = row[c] > most ? row[c] : most;
        for (int c = 0; c < h->length; c++)
            sum += row[c] = expf(row[c] - most);
        for (int c = 0; c < h->length; c++)
            row[c] /= sum;
        P(1)[h->log_sums + (size_t)r] = most + logf(sum);
    }
    for (int64_t r = h->length; r < a->n[4]; r++)
        P(1)[h->log_sums + (size_t)r] = 0;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, h->length, h->dim, h->length, 1, s, h->length,
                P(4) + h->at, h->stride, 0, P(0) + h->at, h->stride);
}

CPU_KERNEL(attention)
{
    float *s = attention_scratch(a, 1);
    for (int64_t b = 0; b < a->n[0]; b++)
        for (int64_t head = 0; head < a->n[2]; head++) {
            struct head_view h = attention_view(a, b, head, P(5));
            attention_attend(a, &h, s);
        }
    free(s);
}

static void attend_gradient(const struct kernel_args *a, const struct head_view *h, size_t head, float *s, float *of_s)
{
    const float *out = P(10) + h->at, *gradient = P(11) + h->at;
    float *delta = P(3) + head * (size_t)h->length;
    const size_t length = (size_t)h->length;
    attention_scores(a, h, P(6), P(7), s);
    for (size_t r = 0; r < length; r++) {
        for (size_t c = 0; c < length; c++)
            s[r * length + c] = expf(s[r * length + c] - P(5)[h->log_sums + r]);
        delta[r] = 0;
        for (int c = 0; c < h->dim; c++)
            delta[r] += out[r * (size_t)h->stride + (size_t)c] * gradient[r * (size_t)h->stride + (size_t)c];
    }
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, h->length, h->dim, h->length, 1, s, h->length, gradient,
                h->stride, 0, P(2) + h->at, h->stride);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, h->length, h->length, h->dim, 1, gradient, h->stride,
                P(8) + h->at, h->stride, 0, of_s, h->length);
    for (size_t r = 0; r < length; r++)
        for (size_t c = 0; c < length; c++)
            of_s[r * length + c] = a->f[0] * s[r * length + c] * (of_s[r * length + c] - delta[r]);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, h->length, h->dim, h->length, 1, of_s, h->length,
                P(7) + h->at, h->stride, 0, P(0) + h->at, h->stride);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, h->length, h->dim, h->length, 1, of_s, h->length,
                P(6) + h->at, h->stride, 0, P(1) + h->at, h->stride);
}

CPU_KERNEL(attention_gradient)
{
    float *s = attention_scratch(a, 2);
    for (int64_t b = 0; b < a->n[0]; b++)
        for (int64_t head = 0; head < a->n[2]; head++) {
            struct head_view h = attention_view(a, b, head, P(9));
            attend_gradient(a, &h, (size_t)(b * a->n[2] + head), s, s + a->n[1] * a->n[1]);
        }
    free(s);
}
