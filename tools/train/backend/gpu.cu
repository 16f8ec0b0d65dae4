/* The kernels of kernels.def for a GPU, compiled at start by NVRTC. Every kernel takes the same arguments and works on
   all of them whatever the grid and the block (a power of two of threads), in float whatever the dtype. Sums are made
   in an order that depends on the block only, and nothing is added atomically: the same every time. The tests compile
   this file for the host and compare it with the CPU's kernels. */

#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif

typedef long long i64;
typedef unsigned long long u64;
typedef unsigned char u8;
typedef unsigned short u16;

enum { F32, BF16 };
constexpr i64 IGNORED_LABEL = -100, CHUNK = 256;
constexpr int MOST_THREADS = 256, MOST_PARTS = 8;

struct kernel_args {
    int kernel, dtype;
    float f[KERNEL_SCALARS];
    i64 n[KERNEL_COUNTS];
    void *p[KERNEL_POINTERS];
};
static_assert(sizeof(struct kernel_args) == KERNEL_ARGS_BYTES, "as in arithmetic.h");

#define KERNEL(name) extern "C" __global__ void gpu_##name(const struct kernel_args a)
#define N(i) (a.n[i])
#define I(i) ((i64 *)a.p[i])
#define B(i) ((u8 *)a.p[i])
#define X(i) ((float *)a.p[i])
#define EACH(i, count)                                                                                                 \
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < (count); i += (i64)gridDim.x * blockDim.x)
#define ROWS(r, count) for (i64 r = blockIdx.x; r < (count); r += gridDim.x)
#define COLUMNS(c, count) for (i64 c = threadIdx.x; c < (count); c += blockDim.x)

static __device__ float load_as(const void *from, int dtype, i64 i)
{
    if (dtype == F32)
        return ((const float *)from)[i];
    union { unsigned bits; float value; } wide = {(unsigned)((const u16 *)from)[i] << 16};
    return wide.value;
}

static __device__ void store_as(void *to, int dtype, i64 i, float value)
{
    if (dtype == F32) {
        ((float *)to)[i] = value;
        return;
    }
    union { float value; unsigned bits; } wide = {value};
    if ((wide.bits & 0x7fffffffu) > 0x7f800000u)
        ((u16 *)to)[i] = (u16)(wide.bits >> 16 | 0x40u);
    else
        ((u16 *)to)[i] = (u16)((wide.bits + 0x7fffu + (wide.bits >> 16 & 1u)) >> 16);
}

#define LOAD(from, i) load_as(a.p[from], a.dtype, (i))
#define STORE(to, i, value) store_as(a.p[to], a.dtype, (i), (value))

/* Of the whole block; every thread gets the result. */
template <typename T> static __device__ T block_sum(T mine)
{
    __shared__ T parts[MOST_THREADS];
    parts[threadIdx.x] = mine;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half; half /= 2) {
        if (threadIdx.x < half)
            parts[threadIdx.x] += parts[threadIdx.x + half];
        __syncthreads();
    }
    T sum = parts[0];
    __syncthreads();
    return sum;
}

static __device__ float block_most(float mine)
{
    __shared__ float parts[MOST_THREADS];
    parts[threadIdx.x] = mine;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half; half /= 2) {
        if (threadIdx.x < half && parts[threadIdx.x + half] > parts[threadIdx.x])
            parts[threadIdx.x] = parts[threadIdx.x + half];
        __syncthreads();
    }
    float most = parts[0];
    __syncthreads();
    return most;
}

static __device__ float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

/* Element by element. */
#define MAP(name, expression)                                                                                          \
    KERNEL(name)                                                                                                       \
    {                                                                                                                  \
        EACH(i, N(0))                                                                                                  \
        {                                                                                                              \
            const float x = a.p[1] ? LOAD(1, i) : 0, f = a.f[0];                                                       \
            (void)x, (void)f;                                                                                          \
            STORE(0, i, (expression));                                                                                 \
        }                                                                                                              \
    }

MAP(fill, f)
MAP(copy, x)
MAP(add, x + LOAD(2, i))
MAP(add_to, LOAD(0, i) + x)
MAP(add_scalar, x + f)
MAP(scale, x * f)
MAP(mul, x * LOAD(2, i))
MAP(square, x * x)
MAP(cube, x * x * x)
MAP(rsqrt, 1 / sqrtf(x))
MAP(reciprocal, 1 / x)
MAP(clamp_to_one, x < 1 ? x : 1)
MAP(silu, x * sigmoid(x))
MAP(cosine, cosf(x))
MAP(sine, sinf(x))
MAP(adam_denominator, sqrtf(x) / f + a.f[1])
MAP(adam_update, a.f[1] * LOAD(0, i) - f * x / LOAD(2, i))

KERNEL(scale_by)
{
    const float factor = LOAD(1, 0);
    EACH(i, N(0))
        STORE(0, i, LOAD(0, i) * factor);
}

KERNEL(silu_gradient)
{
    EACH(i, N(0))
    {
        const float z = LOAD(2, i), s = sigmoid(z);
        STORE(0, i, LOAD(1, i) * s * (1 + z * (1 - s)));
    }
}

KERNEL(adam_moments)
{
    EACH(i, N(0))
    {
        const float gradient = LOAD(2, i);
        STORE(0, i, a.f[0] * LOAD(0, i) + (1 - a.f[0]) * gradient);
        STORE(1, i, a.f[1] * LOAD(1, i) + (1 - a.f[1]) * gradient * gradient);
    }
}

KERNEL(cast)
{
    EACH(i, N(0))
        store_as(a.p[0], (int)N(1), i, load_as(a.p[1], (int)N(2), i));
}

/* As on the CPU: SplitMix64 of where the element is. */
static __device__ u64 element_bits(const struct kernel_args &a, i64 i)
{
    u64 z = ((u64)a.n[2] * 0x9e3779b97f4a7c15ull) ^ ((u64)a.n[1] << 40) ^ (u64)i;
    for (int round = 0; round < 2; round++) {
        z += 0x9e3779b97f4a7c15ull;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        z ^= z >> 31;
    }
    return z;
}

KERNEL(fill_normal)
{
    EACH(i, N(0))
    {
        const u64 bits = element_bits(a, i);
        const double u = ((double)(bits >> 32) + 1) / 4294967297.0, v = (double)(unsigned)bits / 4294967296.0;
        STORE(0, i, a.f[0] * (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v)));
    }
}

KERNEL(fill_uniform)
{
    EACH(i, N(0))
        STORE(0, i, a.f[0] * (float)((double)(element_bits(a, i) >> 11) * 0x1p-52 - 1));
}

KERNEL(drop_out)
{
    EACH(i, N(0))
    {
        const u8 kept = (double)(element_bits(a, i) >> 11) * 0x1p-53 >= (double)a.f[0];
        B(1)[i] = kept;
        STORE(0, i, kept ? LOAD(2, i) / (1 - a.f[0]) : 0);
    }
}

KERNEL(drop_out_gradient)
{
    EACH(i, N(0))
        STORE(0, i, B(2)[i] ? LOAD(1, i) / (1 - a.f[0]) : 0);
}

KERNEL(fill_inverse_frequencies)
{
    EACH(i, N(0))
        X(0)[i] = powf(a.f[0], -(float)i / (float)N(0));
}

/* Rows and columns. */
static __device__ float row_total(const struct kernel_args &a, i64 r)
{
    float sum = 0;
    COLUMNS(c, N(1))
        sum += LOAD(1, r * N(1) + c);
    return block_sum(sum);
}

KERNEL(row_sum)
{
    ROWS(r, N(0))
    {
        const float sum = row_total(a, r);
        if (!threadIdx.x)
            STORE(0, r, sum);
    }
}

KERNEL(row_mean)
{
    ROWS(r, N(0))
    {
        const float sum = row_total(a, r);
        if (!threadIdx.x)
            STORE(0, r, sum / (float)N(1));
    }
}

KERNEL(row_spread)
{
    EACH(i, N(0) * N(1))
        STORE(0, i, a.f[0] * LOAD(1, i / N(1)));
}

KERNEL(column_sum)
{
    EACH(c, N(1))
    {
        float sum = 0;
        for (i64 r = 0; r < N(0); r++)
            sum += LOAD(1, r * N(1) + c);
        STORE(0, c, sum);
    }
}

KERNEL(mul_rows)
{
    EACH(i, N(0) * N(1))
        STORE(0, i, LOAD(1, i) * LOAD(2, i / N(1)));
}

KERNEL(mul_columns)
{
    EACH(i, N(0) * N(1))
        STORE(0, i, LOAD(1, i) * LOAD(2, i % N(1)));
}

/* Before a product that is added to it: the bias p3 in every row. */
KERNEL(gemm)
{
    EACH(i, N(0) * N(1))
        STORE(0, i, LOAD(3, i % N(1)));
}

/* Only the first block. */
KERNEL(norm)
{
    if (blockIdx.x)
        return;
    double sum = 0;
    COLUMNS(i, N(0))
        sum += (double)LOAD(1, i) * LOAD(1, i);
    sum = block_sum(sum);
    if (!threadIdx.x)
        STORE(0, 0, (float)sqrt(sum));
}

/* Heads. */
KERNEL(mul_heads)
{
    EACH(i, N(0) * N(1) * N(2))
    {
        const i64 c = i % N(2), r = i / N(2) / N(1);
        STORE(0, i, LOAD(1, i) * LOAD(2, r % N(3) * N(2) + c));
    }
}

KERNEL(negate_half)
{
    EACH(i, N(0) * N(2))
        STORE(0, i, -LOAD(1, (2 * (i / N(2)) + N(1)) * N(2) + i % N(2)));
}

KERNEL(join_halves)
{
    EACH(i, N(0) * 2 * N(2))
    {
        const i64 r = i / (2 * N(2)), c = i % (2 * N(2));
        STORE(0, i, c < N(2) ? LOAD(1, r * N(2) + c) : LOAD(2, 2 * r * N(2) + c - N(2)));
    }
}

KERNEL(pad_half)
{
    EACH(i, N(0) * 2 * N(2))
    {
        const i64 r = i / (2 * N(2)), c = i % (2 * N(2));
        STORE(0, i, c / N(2) == N(1) ? LOAD(1, r * N(2) + c % N(2)) : 0);
    }
}

KERNEL(pad_half_of)
{
    EACH(i, N(0) * 2 * N(2))
    {
        const i64 r = i / (2 * N(2)), c = i % (2 * N(2));
        STORE(0, i, c < N(2) ? LOAD(1, (2 * r + 1) * N(2) + c) : 0);
    }
}

KERNEL(repeat_heads)
{
    EACH(i, N(0) * N(1) * N(2) * N(3))
        STORE(0, i, LOAD(1, i / N(3) / N(2) * N(3) + i % N(3)));
}

KERNEL(sum_heads)
{
    EACH(i, N(0) * N(1) * N(3))
    {
        const i64 h = i / N(3), c = i % N(3);
        float sum = 0;
        for (i64 k = 0; k < N(2); k++)
            sum += LOAD(1, (h * N(2) + k) * N(3) + c);
        STORE(0, i, sum);
    }
}

/* Attention: rows of a head lie `stride` elements apart, from `at` on. */
struct head {
    i64 sequence, number, length, dim, stride, at;
};

static __device__ struct head head_of(const struct kernel_args &a, i64 which)
{
    struct head h;
    h.sequence = which / a.n[2];
    h.number = which % a.n[2];
    h.length = a.n[1];
    h.dim = a.n[3];
    h.stride = a.n[2] * a.n[3];
    h.at = h.sequence * h.length * h.stride + h.number * h.dim;
    return h;
}

static __device__ float dot(const struct kernel_args &a, const struct head &h, int p, i64 row, int q, i64 other)
{
    float sum = 0;
    for (i64 c = 0; c < h.dim; c++)
        sum += load_as(a.p[p], a.dtype, h.at + row * h.stride + c) *
               load_as(a.p[q], a.dtype, h.at + other * h.stride + c);
    return sum;
}

static __device__ float score(const struct kernel_args &a, const struct head &h, int q, i64 row, int k, i64 key,
                              int bias)
{
    return a.f[0] * dot(a, h, q, row, k, key) +
           load_as(a.p[bias], a.dtype, (h.sequence * h.length + row) * h.length + key);
}

KERNEL(attention)
{
    __shared__ float weights[CHUNK];
    ROWS(which, N(0) * N(2) * N(4))
    {
        const struct head h = head_of(a, which / N(4));
        const i64 r = which % N(4), at_sum = (h.sequence * N(2) + h.number) * N(4) + r;
        if (r >= h.length) {
            if (!threadIdx.x)
                X(1)[at_sum] = 0;
            continue;
        }
        float most = -INFINITY, sum = 0, part[MOST_PARTS] = {0};
        COLUMNS(k, h.length)
            most = fmaxf(most, score(a, h, 2, r, 3, k, 5));
        most = block_most(most);
        for (i64 first = 0; first < h.length; first += CHUNK) {
            const i64 some = h.length - first < CHUNK ? h.length - first : CHUNK;
            COLUMNS(k, some)
            {
                weights[k] = expf(score(a, h, 2, r, 3, first + k, 5) - most);
                sum += weights[k];
            }
            __syncthreads();
            int n = 0;
            COLUMNS(c, h.dim)
            {
                for (i64 k = 0; k < some; k++)
                    part[n] += weights[k] * LOAD(4, h.at + (first + k) * h.stride + c);
                n++;
            }
            __syncthreads();
        }
        sum = block_sum(sum);
        int n = 0;
        COLUMNS(c, h.dim)
            STORE(0, h.at + r * h.stride + c, part[n++] / sum);
        if (!threadIdx.x)
            X(1)[at_sum] = most + logf(sum);
    }
}

/* The first of three: how much of each row's gradient goes along its output. */
KERNEL(attention_gradient)
{
    EACH(i, N(0) * N(2) * N(1))
    {
        const struct head h = head_of(a, i / N(1));
        X(3)[i] = dot(a, h, 10, i % N(1), 11, i % N(1));
    }
}

static __device__ float weight_of(const struct kernel_args &a, const struct head &h, i64 row, i64 key)
{
    return expf(score(a, h, 6, row, 7, key, 9) - ((float *)a.p[5])[(h.sequence * a.n[2] + h.number) * a.n[4] + row]);
}

static __device__ float of_score(const struct kernel_args &a, const struct head &h, float weight, i64 row, i64 key)
{
    const float delta = ((float *)a.p[3])[(h.sequence * a.n[2] + h.number) * h.length + row];
    return a.f[0] * weight * (dot(a, h, 11, row, 8, key) - delta);
}

KERNEL(attention_gradient_queries)
{
    __shared__ float of_scores[CHUNK];
    ROWS(which, N(0) * N(2) * N(1))
    {
        const struct head h = head_of(a, which / N(1));
        const i64 r = which % N(1);
        float part[MOST_PARTS] = {0};
        for (i64 first = 0; first < h.length; first += CHUNK) {
            const i64 some = h.length - first < CHUNK ? h.length - first : CHUNK;
            COLUMNS(k, some)
                of_scores[k] = of_score(a, h, weight_of(a, h, r, first + k), r, first + k);
            __syncthreads();
            int n = 0;
            COLUMNS(c, h.dim)
            {
                for (i64 k = 0; k < some; k++)
                    part[n] += of_scores[k] * LOAD(7, h.at + (first + k) * h.stride + c);
                n++;
            }
            __syncthreads();
        }
        int n = 0;
        COLUMNS(c, h.dim)
            STORE(0, h.at + r * h.stride + c, part[n++]);
    }
}

KERNEL(attention_gradient_keys)
{
    __shared__ float weights[CHUNK], of_scores[CHUNK];
    ROWS(which, N(0) * N(2) * N(1))
    {
        const struct head h = head_of(a, which / N(1));
        const i64 key = which % N(1);
        float of_key[MOST_PARTS] = {0}, of_value[MOST_PARTS] = {0};
        for (i64 first = 0; first < h.length; first += CHUNK) {
            const i64 some = h.length - first < CHUNK ? h.length - first : CHUNK;
            COLUMNS(r, some)
            {
                weights[r] = weight_of(a, h, first + r, key);
                of_scores[r] = of_score(a, h, weights[r], first + r, key);
            }
            __syncthreads();
            int n = 0;
            COLUMNS(c, h.dim)
            {
                for (i64 r = 0; r < some; r++) {
                    of_key[n] += of_scores[r] * LOAD(6, h.at + (first + r) * h.stride + c);
                    of_value[n] += weights[r] * LOAD(11, h.at + (first + r) * h.stride + c);
                }
                n++;
            }
            __syncthreads();
        }
        int n = 0;
        COLUMNS(c, h.dim)
        {
            STORE(1, h.at + key * h.stride + c, of_key[n]);
            STORE(2, h.at + key * h.stride + c, of_value[n++]);
        }
    }
}

/* Tokens, positions, masks, labels. */
KERNEL(embed)
{
    EACH(i, N(0) * N(1))
        STORE(0, i, LOAD(2, I(1)[i / N(1)] * N(1) + i % N(1)));
}

KERNEL(embed_gradient)
{
    EACH(c, N(1))
        for (i64 r = 0; r < N(0); r++)
            STORE(0, I(1)[r] * N(1) + c, LOAD(0, I(1)[r] * N(1) + c) + LOAD(2, r * N(1) + c));
}

KERNEL(float_positions)
{
    EACH(i, N(0))
        X(0)[i] = (float)I(1)[i];
}

KERNEL(position_angles)
{
    EACH(i, N(0) * N(1))
        X(0)[i] = X(1)[i / N(1)] * X(2)[i % N(1)];
}

KERNEL(join_twice)
{
    EACH(i, N(0) * 2 * N(1))
        X(0)[i] = X(1)[i / (2 * N(1)) * N(1) + i % N(1)];
}

KERNEL(count_up)
{
    EACH(i, N(0))
        I(0)[i] = N(1) + i;
}

KERNEL(add_integer)
{
    EACH(i, N(0))
        I(0)[i] = I(1)[i] + N(1);
}

KERNEL(difference)
{
    EACH(i, N(0))
        I(0)[i] = I(1)[i + 1] - I(1)[i];
}

KERNEL(not_one)
{
    EACH(i, N(0))
        B(0)[i] = I(1)[i] != 1;
}

KERNEL(widen_bytes)
{
    EACH(i, N(0))
        I(0)[i] = B(1)[i];
}

/* One thread: positions are few. */
KERNEL(running_sum)
{
    if (blockIdx.x || threadIdx.x)
        return;
    i64 sum = 0;
    for (i64 i = 0; i < N(0); i++)
        I(0)[i] = sum += I(1)[i];
}

KERNEL(not_after)
{
    EACH(i, N(0) * N(1) * N(1))
        B(0)[i] = I(1)[i % N(1)] <= I(2)[i / N(1) % N(1)];
}

KERNEL(same_segment)
{
    EACH(i, N(0) * N(1) * N(1))
        B(0)[i] = I(3)[I(1)[i % N(1)]] == I(3)[I(2)[i / N(1) % N(1)]];
}

KERNEL(set_byte)
{
    if (!blockIdx.x && !threadIdx.x)
        B(0)[0] = (u8)N(0);
}

KERNEL(both)
{
    EACH(i, N(0))
        B(0)[i] = B(1)[i] & B(2)[N(1) ? i : 0];
}

KERNEL(mask_bias)
{
    EACH(i, N(0))
        store_as(a.p[0], (int)N(1), i, B(1)[i] ? 0 : -INFINITY);
}

KERNEL(shift_labels)
{
    EACH(i, N(0) * (N(1) + 1))
    {
        const i64 r = i / (N(1) + 1), c = i % (N(1) + 1);
        I(0)[i] = c < N(1) ? I(1)[r * N(1) + c] : IGNORED_LABEL;
    }
}

/* Logits are float. */
KERNEL(log_softmax)
{
    ROWS(r, N(0))
    {
        const float *x = X(1) + r * N(1);
        float most = -INFINITY, sum = 0;
        COLUMNS(c, N(1))
            most = fmaxf(most, x[c]);
        most = block_most(most);
        COLUMNS(c, N(1))
            sum += expf(x[c] - most);
        most += logf(block_sum(sum));
        COLUMNS(c, N(1))
            X(0)[r * N(1) + c] = x[c] - most;
    }
}

KERNEL(log_softmax_gradient)
{
    ROWS(r, N(0))
    {
        float sum = 0;
        COLUMNS(c, N(1))
            sum += X(1)[r * N(1) + c];
        sum = block_sum(sum);
        COLUMNS(c, N(1))
            X(0)[r * N(1) + c] = X(1)[r * N(1) + c] - expf(X(2)[r * N(1) + c]) * sum;
    }
}

static __device__ i64 label_of(const struct kernel_args &a, i64 row)
{
    return ((i64 *)a.p[3])[row / a.n[1] * (a.n[1] + 1) + row % a.n[1] + 1];
}

KERNEL(nll)
{
    if (blockIdx.x)
        return;
    double sum = 0, count = 0;
    COLUMNS(r, N(0) * N(1))
    {
        const i64 label = label_of(a, r);
        if (label != IGNORED_LABEL) {
            sum -= X(2)[r * N(2) + label];
            count++;
        }
    }
    sum = block_sum(sum);
    count = block_sum(count);
    if (!threadIdx.x) {
        X(0)[0] = (float)(sum / count);
        X(1)[0] = (float)count;
    }
}

KERNEL(nll_gradient)
{
    EACH(i, N(0) * N(1) * N(2))
        X(0)[i] = i % N(2) == label_of(a, i / N(2)) ? -X(1)[0] / X(2)[0] : 0;
}
