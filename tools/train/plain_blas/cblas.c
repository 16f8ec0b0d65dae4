#include "cblas.h"

#include <stddef.h>

/* A row of c at a time, so that the innermost loop goes along rows of b and c where b isn't transposed. */
void cblas_sgemm(enum CBLAS_ORDER order, enum CBLAS_TRANSPOSE of_a, enum CBLAS_TRANSPOSE of_b, int m, int n, int k,
                 float alpha, const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc)
{
    (void)order;
    size_t wide_a = (size_t)lda, wide_b = (size_t)ldb;
    for (size_t i = 0; i < (size_t)m; i++) {
        float *row = c + i * (size_t)ldc;
        for (size_t j = 0; j < (size_t)n; j++)
            row[j] = beta == 0 ? 0 : beta * row[j];
        for (size_t l = 0; l < (size_t)k; l++) {
            float factor = alpha * (of_a == CblasTrans ? a[l * wide_a + i] : a[i * wide_a + l]);
            if (of_b == CblasTrans) {
                for (size_t j = 0; j < (size_t)n; j++)
                    row[j] += factor * b[j * wide_b + l];
            } else {
                for (size_t j = 0; j < (size_t)n; j++)
                    row[j] += factor * b[l * wide_b + j];
            }
        }
    }
}

void openblas_set_num_threads(int threads)
{
    (void)threads;
}
