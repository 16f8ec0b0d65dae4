/* Arithmetic on the CPU: float only, one thread, sums in a fixed order, nothing that depends on an address. */
#include "backend/cpu.h"

#include <cblas.h>
#include <math.h>
#include <string.h>

typedef void cpu_kernel(const struct kernel_args *a);

#define P(i) ((float *)a->p[i])
#define EACH(expression)                                                                                               \
    {                                                                                                                  \
        float *restrict y = P(0);                                                                                      \
        const float *x = P(1), *z = P(2);                                                                              \
        const float f = a->f[0];                                                                                       \
        (void)x, (void)z, (void)f;                                                                                     \
        for (int64_t i = 0; i < a->n[0]; i++)                                                                          \
            y[i] = (expression);                                                                                       \
    }

static float cpu_sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

static void cpu_fill(const struct kernel_args *a) EACH(f) static void cpu_add(const struct kernel_args *a)
    EACH(x[i] + z[i]) static void cpu_add_to(const struct kernel_args *a) EACH(y[i] + x[i]) static void cpu_add_scalar(
        const struct kernel_args *a) EACH(x[i] + f) static void cpu_scale(const struct kernel_args *a)
        EACH(x[i] * f) static void cpu_scale_by(const struct kernel_args *a) EACH(y[i] * x[0]) static void cpu_mul(
            const struct kernel_args *a) EACH(x[i] * z[i]) static void cpu_square(const struct kernel_args *a)
            EACH(x[i] * x[i]) static void cpu_cube(const struct kernel_args *a)
                EACH(x[i] * x[i] * x[i]) static void cpu_rsqrt(const struct kernel_args *a)
                    EACH(1 / sqrtf(x[i])) static void cpu_reciprocal(const struct kernel_args *a) EACH(
                        1 / x[i]) static void cpu_clamp_to_one(const struct kernel_args *a)
                        EACH(x[i] < 1 ? x[i] : 1) static void cpu_silu(const struct kernel_args *a) EACH(
                            x[i] * cpu_sigmoid(x[i])) static void cpu_silu_gradient(const struct kernel_args *a)
                            EACH(x[i] * cpu_sigmoid(z[i]) * (1 + z[i] * (1 - cpu_sigmoid(z[i])))) static void cpu_cosine(
                                const struct kernel_args *a)
                                EACH(cosf(x[i])) static void cpu_sine(const struct kernel_args *a)
                                    EACH(sinf(x[i])) static void cpu_adam_denominator(const struct kernel_args *a)
                                        EACH(sqrtf(x[i]) / f + a->f[1]) static void cpu_adam_update(
                                            const struct kernel_args *a) EACH(a->f[1] * y[i] - f * x[i] / z[i])

                                            static void cpu_adam_moments(const struct kernel_args *a)
{
    float *mean = P(0), *variance = P(1);
    const float *gradient = P(2);
    for (int64_t i = 0; i < a->n[0]; i++) {
        mean[i] = a->f[0] * mean[i] + (1 - a->f[0]) * gradient[i];
        variance[i] = a->f[1] * variance[i] + (1 - a->f[1]) * gradient[i] * gradient[i];
    }
}

/* A number for each element, whatever the order of filling: SplitMix64 of where it is. */
static uint64_t element_bits(const struct kernel_args *a, int64_t i)
{
    uint64_t z = ((uint64_t)a->n[2] * UINT64_C(0x9e3779b97f4a7c15)) ^ ((uint64_t)a->n[1] << 40) ^ (uint64_t)i;
    for (int round = 0; round < 2; round++) {
        z += UINT64_C(0x9e3779b97f4a7c15);
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        z ^= z >> 31;
    }
    return z;
}

static void cpu_fill_normal(const struct kernel_args *a)
{
    for (int64_t i = 0; i < a->n[0]; i++) {
        uint64_t bits = element_bits(a, i);
        double u = ((double)(bits >> 32) + 1) / 4294967297.0, v = (double)(uint32_t)bits / 4294967296.0;
        P(0)[i] = a->f[0] * (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
    }
}

static void cpu_fill_uniform(const struct kernel_args *a)
{
    for (int64_t i = 0; i < a->n[0]; i++)
        P(0)[i] = a->f[0] * (float)((double)(element_bits(a, i) >> 11) * 0x1p-52 - 1);
}

static void cpu_drop_out(const struct kernel_args *a)
{
    uint8_t *kept = a->p[1];
    for (int64_t i = 0; i < a->n[0]; i++) {
        kept[i] = (double)(element_bits(a, i) >> 11) * 0x1p-53 >= (double)a->f[0];
        P(0)[i] = kept[i] ? P(2)[i] / (1 - a->f[0]) : 0;
    }
}

static void cpu_drop_out_gradient(const struct kernel_args *a)
{
    const uint8_t *kept = a->p[2];
    for (int64_t i = 0; i < a->n[0]; i++)
        P(0)[i] = kept[i] ? P(1)[i] / (1 - a->f[0]) : 0;
}

static void cpu_fill_inverse_frequencies(const struct kernel_args *a)
{
    for (int64_t i = 0; i < a->n[0]; i++)
        P(0)[i] = powf(a->f[0], -(float)i / (float)a->n[0]);
}

static void cpu_copy(const struct kernel_args *a)
{
    memcpy(a->p[0], a->p[1], (size_t)a->n[0] * sizeof(float));
}

static void cpu_cast(const struct kernel_args *a)
{
    (void)a; /* float is the only dtype here, and a cast to the same dtype is never queued */
}

static void cpu_row_sum(const struct kernel_args *a)
{
    for (int64_t r = 0; r < a->n[0]; r++) {
        float sum = 0;
        for (int64_t c = 0; c < a->n[1]; c++)
            sum += P(1)[r * a->n[1] + c];
        P(0)[r] = sum;
    }
}

static void cpu_row_mean(const struct kernel_args *a)
{
    cpu_row_sum(a);
    for (int64_t r = 0; r < a->n[0]; r++)
        P(0)[r] /= (float)a->n[1];
}

static void cpu_row_spread(const struct kernel_args *a)
{
    for (int64_t r = 0; r < a->n[0]; r++)
        for (int64_t c = 0; c < a->n[1]; c++)
            P(0)[r * a->n[1] + c] = a->f[0] * P(1)[r];
}

static void cpu_column_sum(const struct kernel_args *a)
{
    memset(a->p[0], 0, (size_t)a->n[1] * sizeof(float));
    for (int64_t r = 0; r < a->n[0]; r++)
        for (int64_t c = 0; c < a->n[1]; c++)
            P(0)[c] += P(1)[r * a->n[1] + c];
}

static void cpu_mul_rows(const struct kernel_args *a)
{
    for (int64_t r = 0; r < a->n[0]; r++)
        for (int64_t c = 0; c < a->n[1]; c++)
            P(0)[r * a->n[1] + c] = P(1)[r * a->n[1] + c] * P(2)[r];
}

static void cpu_mul_columns(const struct kernel_args *a)
{
    for (int64_t r = 0; r < a->n[0]; r++)
        for (int64_t c = 0; c < a->n[1]; c++)
            P(0)[r * a->n[1] + c] = P(1)[r * a->n[1] + c] * P(2)[c];
}

static void cpu_gemm(const struct kernel_args *a)
{
    int rows = (int)a->n[0], columns = (int)a->n[1], inner = (int)a->n[2];
    float beta = 0;
    if (a->p[3]) {
        beta = 1;
        for (int r = 0; r < rows; r++)
            memcpy(P(0) + (size_t)r * (size_t)columns, a->p[3], (size_t)columns * sizeof(float));
    }
    cblas_sgemm(CblasRowMajor, a->n[3] ? CblasTrans : CblasNoTrans, a->n[4] ? CblasTrans : CblasNoTrans, rows, columns,
                inner, 1, P(1), a->n[3] ? rows : inner, P(2), a->n[4] ? inner : columns, beta, P(0), columns);
}

static void cpu_norm(const struct kernel_args *a)
{
    double sum = 0;
    for (int64_t i = 0; i < a->n[0]; i++)
        sum += (double)P(1)[i] * P(1)[i];
    P(0)[0] = (float)sqrt(sum);
}

static cpu_kernel *const kernels[KERNEL_COUNT] = {
#define KERNEL(name, text) [KERNEL_##name] = cpu_##name,
#include "backend/kernels.def"
#undef KERNEL
};

static int cpu_start(const struct cuda_rt *rt, int threads, char *error, size_t error_size)
{
    (void)rt, (void)error, (void)error_size;
    openblas_set_num_threads(threads);
    return 0;
}

static void cpu_run(const struct kernel_args *args)
{
    kernels[args->kernel](args);
}

const struct arithmetic arithmetic_cpu = {"cpu", 1U << DTYPE_F32, true, cpu_start, NULL, cpu_run, NULL};
